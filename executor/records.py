"""What the library answers with; the command line's JSON objects have the same fields.

`result` is the guest's value in its self-describing form, as the oplog keeps it (a variant is
`{case: v}` or its bare case, a result `{"ok": v}` or `{"err": e}`); `value` is the same as Python
knows it (`Ok`, `Err`, `Variant`). Times are nanoseconds since the Unix epoch; the command line
prints them as RFC 3339.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypedDict

import msgspec

from oplog.entry import Entry, Retry, RetryRule

NS_PER_S: Final = 1_000_000_000
ENTRY_TIMES: Final = frozenset({"at", "retry_at", "wake_at"})
"""Fields of entries that are wall time."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All answers are frozen."""


class Deployed(Record, frozen=True, kw_only=True):
    component: str
    id: str
    revision: int
    digest: str
    imports: tuple[str, ...]
    exports: tuple[str, ...]
    newest: int | None = None
    """The revision that new workers take, where this one was deployed before it."""


class RevisionRecord(Record, frozen=True, kw_only=True):
    revision: int
    digest: str
    bytes: int
    deployed_at: int
    env: dict[str, str] = {}
    config: dict[str, str] = {}
    files: tuple[tuple[str, bool], ...] = ()
    """Paths of the files that workers start with, and whether they may write to each."""
    limits: dict[str, int] = {}
    """By the names under which workers record them: `memory_bytes`."""
    host: tuple[str, ...] = ()
    host_directory: str = ""
    retry: Retry | None = None
    allow_net: tuple[str, ...] = ()
    retry_rules: tuple[RetryRule, ...] = ()


class ComponentRecord(Record, frozen=True, kw_only=True):
    component: str
    id: str
    revisions: tuple[RevisionRecord, ...]
    imports: tuple[str, ...]
    exports: tuple[str, ...]


class ComponentSummary(Record, frozen=True, kw_only=True):
    component: str
    id: str
    revision: int
    workers: int


class ErrorRecord(Record, frozen=True, kw_only=True):
    kind: str
    message: str
    where: str = ""
    hint: str = ""


class Accepted(Record, frozen=True, kw_only=True):
    """The invocation is durable: it will run once, whatever happens to this process."""

    worker: str
    function: str
    key: str
    deduplicated: bool


class Invocation(Record, frozen=True, kw_only=True):
    worker: str
    function: str
    key: str
    status: Literal["completed", "failed", "pending"]
    result: object = None
    value: object = None
    wave: str = ""
    error: ErrorRecord | None = None
    exit_code: int | None = None
    """Set where the guest exited: 0 is done, anything else a failure."""
    attempts: int = 0
    deduplicated: bool = False
    stdout: str = ""
    stderr: str = ""


class OplogRecord(Record, frozen=True, kw_only=True):
    index: int
    entry: Entry
    hidden: bool


class WorkerSummary(Record, frozen=True, kw_only=True):
    worker: str
    component: str
    revision: int
    status: str
    pending: int
    entries: int
    created_at: int
    last_error: str | None


class WorkerPage(Record, frozen=True, kw_only=True):
    workers: tuple[WorkerSummary, ...]
    cursor: str | None


class WorkerRecord(Record, frozen=True, kw_only=True):
    worker: str
    id: str
    component: str
    revision: int
    status: str
    env: dict[str, str]
    args: tuple[str, ...]
    allow_net: tuple[str, ...]
    """Rules of its own, besides those of its revision."""
    pending: tuple[str, ...]
    """Keys that wait, oldest first."""
    current_key: str | None
    entries: int
    bytes: int
    retries: int
    last_error: str | None
    created_at: int
    loaded: bool


class PromiseRecord(Record, frozen=True, kw_only=True):
    promise: int
    """The index of the call that made it."""
    status: Literal["pending", "completed"]
    created_at: int
    completed_at: int | None = None
    value: bytes | None = None
    """What it was completed with."""


class PromisePage(Record, frozen=True, kw_only=True):
    """Promises of one worker, oldest first."""

    worker: str
    promises: tuple[PromiseRecord, ...]
    cursor: int | None
    """After which the next page begins; None for the last one."""


class NewWorker(TypedDict, total=False):
    """What an invocation creates its worker with, if there is none; one that exists must have the
    same. None is as left out.
    """

    env: dict[str, str] | None
    """Its own environment, over the component's."""
    args: Sequence[str] | None
    """The command's arguments as the guest sees them, so with the name of the program first."""
    allow_net: Sequence[str] | None
    """What it may reach besides what its revision may: rules of `executor.services.egress`."""


class DivergenceRecord(Record, frozen=True, kw_only=True):
    index: int
    recorded: str
    requested: str


class Rebuild(Record, frozen=True, kw_only=True):
    """What a simulated crash or a replay found."""

    worker: str
    entries: int
    """In the oplog, of every kind."""
    replayed: int
    """Recorded steps that the guest went through again: what it caused, and what it was answered.
    Hints are no steps."""
    ms: float
    divergence: DivergenceRecord | None
    stopped_at: str | None = None
    """Why the rebuild stopped before the end of the oplog: the failed or exited invocation."""


class FileRecord(Record, frozen=True, kw_only=True):
    name: str
    """The last name of its path; `/` for the root."""
    kind: Literal["directory", "regular-file", "symbolic-link"]
    size: int
    """Bytes of a file's content or of a symbolic link's target, 0 for a directory."""
    links: int
    writable: bool
    """Whether the guest may change it; an initial file may be for reading only."""
    accessed_at: int
    modified_at: int
    changed_at: int
    target: str | None = None
    """What a symbolic link reads."""


class WorkerFile(Record, frozen=True, kw_only=True):
    """What is at a path of a worker's files."""

    worker: str
    path: str
    file: FileRecord
    """What the path leads to; symbolic links are followed."""
    entries: tuple[FileRecord, ...] | None = None
    """Of a directory, by name."""
    content: bytes | None = None
    """Of a file."""
    stopped_at: str | None = None
    """The failed or exited invocation before which these files were."""


class Done(Record, frozen=True, kw_only=True):
    worker: str
    done: bool
    status: str


class InitialFile(Record, frozen=True, kw_only=True):
    """A file every new worker of the revision starts with."""

    path: str
    content: bytes
    writable: bool


def time_text(at_ns: int) -> str:
    """`2026-11-30T10:08:10.123456789Z`, of nanoseconds since the Unix epoch."""
    seconds, rest = divmod(at_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
