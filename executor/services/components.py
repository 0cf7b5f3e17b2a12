"""Components and their revisions in the store.

| table           | key                          | value                               |
|-----------------|------------------------------|-------------------------------------|
| component_names | name                         | ComponentRow                        |
| components      | name NUL revision (8 bytes)  | RevisionRow                         |
| component_bytes | digest                       | the bytes of a component or a file  |

A revision is the bytes with every option of its deployment; the same bytes and options are the
existing revision. Compiled artifacts are files beside the store, `artifacts/<digest>-<settings>`:
they can be rebuilt, so losing one loses nothing. But an artifact is run as native code, so what a
crash of the machine has left of one must not be taken for it: the file ends with a trailer, its
length and a mark, and is durable before it has its name.
"""

import difflib
import os
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from unicodedata import category
from uuid import uuid4

import msgspec

from executor.errors import ComponentNotFound, StoreError, UsageError
from oplog.engine import Batch, Engine, Row
from oplog.entry import Retry, RetryRule
from oplog.errors import OplogCorruptError
from oplog.room import is_full

NAME_CHARACTERS_MAX: Final = 256
NAME_BYTES_MAX: Final = 400
"""A name is part of a key of the store."""
ARTIFACT_MARK: Final = b"shem-end"
ARTIFACT_TRAILER_BYTES: Final = 8 + len(ARTIFACT_MARK)


NEAR_MAX: Final = 3
"""Names that are suggested at most."""


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """A file that every new worker starts with; its content is stored by digest."""

    path: str
    digest: str
    writable: bool


class RevisionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    component: str
    component_id: str
    revision: int
    digest: str
    """SHA-256 of the component's bytes, as hex."""
    size_bytes: int
    deployed_at: int
    imports: tuple[str, ...]
    exports: tuple[str, ...]
    env: dict[str, str] = {}
    files: tuple[FileRow, ...] = ()
    host: tuple[str, ...] = ()
    """`MODULE:ATTR` of the embedder's host functions, looked up in `host_directory`."""
    host_directory: str = ""
    limits: dict[str, int] = {}
    config: dict[str, str] = {}
    retry: Retry | None = None
    allow_net: tuple[str, ...] = ()
    """Rules of `executor.services.egress`, sorted."""
    retry_rules: tuple[RetryRule, ...] = ()

    def options(self) -> bytes:
        """What has to be the same for two deployments to be one revision."""
        return msgspec.msgpack.encode(
            [
                self.digest,
                sorted(self.env.items()),
                self.files,
                self.host,
                self.host_directory if self.host else "",
                sorted(self.limits.items()),
                sorted(self.config.items()),
                self.retry,
                self.allow_net,
                self.retry_rules,
            ]
        )


class ComponentRow(msgspec.Struct, frozen=True, kw_only=True):
    component: str
    id: str
    revision: int
    """The latest."""


encode_row = msgspec.msgpack.Encoder().encode
_decode_component = msgspec.msgpack.Decoder(ComponentRow).decode
_decode_revision = msgspec.msgpack.Decoder(RevisionRow).decode


def decode_component(raw: bytes) -> ComponentRow:
    """Raises: OplogCorruptError."""
    try:
        return _decode_component(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(f"the row of a component is damaged: {error}") from error


def decode_revision(raw: bytes) -> RevisionRow:
    """Raises: OplogCorruptError."""
    try:
        return _decode_revision(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(f"the row of a revision is damaged: {error}") from error


def check_component_name(name: str) -> None:
    """Raises: UsageError unless the name can stand before the slash of a worker's name."""
    size = len(name.encode(errors="replace"))
    unicode = name.encode(errors="ignore").decode() == name
    if (
        not 1 <= len(name) <= NAME_CHARACTERS_MAX
        or size > NAME_BYTES_MAX
        or not unicode
        or "/" in name
        or any(category(character) == "Cc" for character in name)
    ):
        raise UsageError(
            f"{name!r} cannot name a component",
            where="deploy",
            hint=f"use 1 to {NAME_CHARACTERS_MAX} characters, and {NAME_BYTES_MAX} bytes, without a"
            " slash or a control character: --name NAME",
        )


def check_surroundings(where: str, env: Mapping[str, str], args: Sequence[str] = ()) -> None:
    """Raises: UsageError unless every variable and argument is Unicode text."""
    for text in (*env, *env.values(), *args):
        if text.encode(errors="ignore").decode() != text:
            raise UsageError(
                f"{text!r} is not Unicode text",
                where=where,
                hint="variables and arguments of a guest are UTF-8",
            )


def row_key(name: str) -> bytes:
    """No component has a name with lone surrogates, but one may be asked for."""
    return name.encode(errors="surrogatepass")


def revision_key(name: str, revision: int) -> bytes:
    return row_key(name) + b"\0" + revision.to_bytes(8, "big")


def read_component(engine: Engine, name: str) -> ComponentRow:
    """Raises: ComponentNotFound."""
    row = find_component(engine, name)
    if row is None:
        near = near_names(name, [row.component for row in read_components(engine)])
        raise ComponentNotFound(
            f"no component {name!r}",
            where="store",
            hint=near or "see `shem components`, or deploy it",
        )
    return row


def near_names(asked: str, names: Sequence[str]) -> str:
    """A question after the names that are like it; "" if none is."""
    near = difflib.get_close_matches(asked, names, n=NEAR_MAX)
    return f"did you mean {' or '.join(near)}?" if near else ""


def find_component(engine: Engine, name: str) -> ComponentRow | None:
    raw = engine.read_row("component_names", row_key(name)) if name else None
    return None if raw is None else decode_component(raw)


def read_revision(engine: Engine, name: str, revision: int) -> RevisionRow:
    """Raises: ComponentNotFound."""
    raw = engine.read_row("components", revision_key(name, revision))
    if raw is None:
        raise ComponentNotFound(
            f"component {name!r} has no revision {revision}",
            where="store",
            hint=f"see `shem component {name}`",
        )
    return decode_revision(raw)


def read_revisions(engine: Engine, name: str) -> list[RevisionRow]:
    """All revisions of a component, oldest first."""
    rows = engine.read_rows("components", prefix=name.encode() + b"\0", limit=1_000_000)
    return [decode_revision(value) for _, value in rows]


def read_components(engine: Engine) -> list[ComponentRow]:
    return [decode_component(v) for _, v in engine.read_rows("component_names", limit=1_000_000)]


def read_content(engine: Engine, digest: str) -> bytes:
    """The bytes of a component, or of a file that was deployed with one.

    Raises: OplogCorruptError if they are not what was deployed.
    """
    raw = engine.read_row("component_bytes", bytes.fromhex(digest))
    if raw is None:
        raise ComponentNotFound(
            f"the bytes of {digest} are not in the store",
            where="store",
            hint="restore the store from a copy",
        )
    if content_digest(raw) != digest:
        raise OplogCorruptError(
            f"the bytes of {digest} are damaged; if they are a component's, deploy its file again"
        )
    return raw


def content_digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def next_component(engine: Engine, name: str) -> ComponentRow:
    """The component with the revision that a new deployment would get."""
    found = find_component(engine, name)
    if found is None:
        return ComponentRow(component=name, id=str(uuid4()), revision=0)
    return ComponentRow(component=name, id=found.id, revision=found.revision + 1)


def same_revision(engine: Engine, candidate: RevisionRow) -> RevisionRow | None:
    """The existing revision with the same bytes and options, if any."""
    wanted = candidate.options()
    for revision in reversed(read_revisions(engine, candidate.component)):
        if revision.options() == wanted:
            return revision
    return None


def deployment(row: RevisionRow, contents: dict[str, bytes]) -> Batch:
    """One unit that makes a revision durable, with its bytes and files."""
    component = ComponentRow(component=row.component, id=row.component_id, revision=row.revision)
    key = revision_key(row.component, row.revision)
    rows = [
        Row(table="component_bytes", key=bytes.fromhex(digest), value=content)
        for digest, content in contents.items()
    ]
    rows.append(Row(table="components", key=key, value=encode_row(row)))
    name = row.component.encode()
    rows.append(Row(table="component_names", key=name, value=encode_row(component)))
    return Batch(rows=tuple(rows))


def artifact_path(store: Path, digest: str, settings_tag: str) -> Path:
    return store / "artifacts" / f"{digest}-{settings_tag}.cwasm"


def write_artifact(path: Path, artifact: bytes) -> None:
    """Replaces the file in one step, so that a reader never sees half of it, whatever crashes.
    Durable on return.
    """
    try:
        replace_file(path, artifact)
    except OSError as error:
        full = is_full(error.errno)
        raise StoreError(
            f"the compiled component cannot be kept: {error.strerror}",
            kind="disk-full" if full else "store-error",
            where=str(path.parent),
            hint="make space" if full else "see that the store can be written to",
        ) from error


def replace_file(path: Path, artifact: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".artifact-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(artifact)
            file.write(artifact_trailer(len(artifact)))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_whole_artifact(path: Path) -> bool:
    """Whether the file is as long as it was written; False if there is none that can be read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - ARTIFACT_TRAILER_BYTES
            if size < 0:
                return False
            file.seek(size)
            return file.read() == artifact_trailer(size)
    except OSError:
        return False


def artifact_trailer(size: int) -> bytes:
    """What stands behind `size` bytes of an artifact; Wasmtime does not look behind its own end."""
    return size.to_bytes(8, "little") + ARTIFACT_MARK
