"""What key-value buckets and blob containers have in common: names, a quota, and writes that may be
repeated.

Both belong to an environment, of which a store has one. Rows, in the table `keyvalue`:

| key                  | value                                                              |
|----------------------|--------------------------------------------------------------------|
| `u` environment      | bytes of everything that its buckets and containers hold, a number |
| `w` worker id        | LastWrite: what the worker wrote last, under which key             |

Names are a guest's own, of any characters. A bucket or container is named in rows by a digest, a
key or object by its own bytes behind that, so no name of a guest is the key of another row; a long
one is cut and made unique by a digest, and its row holds it whole. So listings are in the order of
names, but for the tails of long ones.

A remote write may be repeated after a crash, under the same derived key. A worker makes one write
at a time, so what it wrote last says whether it was that one: then the same answer is given and
nothing is written, also where others have written since.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
import trio

from executor.services.writing import WriteBatch, Written
from oplog.codec import encode_value
from oplog.engine import Batch, Count, Engine, Row

MIB: Final = 1 << 20
ENVIRONMENT: Final = "default"
NAME_BYTES_MAX: Final = 1_024
"""Of a bucket, container, key or object, as UTF-8."""
NAME_KEY_BYTES_MAX: Final = 400
"""Of a name that is a row's key as it is."""
DIGEST_BYTES: Final = 16
ROWS_AT_ONCE: Final = 100
"""More are read neither on the trio thread nor on a lane."""
TABLE: Final = "keyvalue"
USED_ROW: Final = b"u" + ENVIRONMENT.encode()


VALUE_BYTES_MAX: Final = MIB
"""Of a key's value: it crosses in one piece. A guest meets this where nothing is recorded, so it
never changes."""


class Refused(Exception):
    """What a guest asked for cannot be; the text is what it hears."""


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What guests may keep. One that meets a limit hears so in the error of its call."""

    environment_bytes_max: int = 10 << 30
    """Of everything in it: names, values, objects."""
    batch_bytes_max: int = 16 * MIB
    """Of the values that one call writes together."""
    read_bytes_max: int = 2 * MIB
    """Of the values that one call reads together."""
    keys_max: int = 10_000
    """Of the keys that one call names, or lists without pages."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose write it is."""

    worker_id: bytes
    worker: str
    key: str
    """The derived key of the call: the same in every attempt."""


class LastWrite(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    request: bytes
    """A digest of what was asked for: in an atomic region that runs again, another write may have
    the key."""
    answer: msgspec.Raw


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A write, as of what was just read."""

    rows: Sequence[Row]
    expects: Sequence[Row]
    """The rows that were read."""
    added_bytes: int = 0
    counts: Sequence[Count] = ()
    """Besides that of the environment."""
    answer: object = None


encode_last: Final = msgspec.msgpack.Encoder().encode
decode_last: Final = msgspec.msgpack.Decoder(LastWrite).decode


def last_write_key(worker_id: bytes) -> bytes:
    return b"w" + worker_id


def check_name(what: str, name: str) -> bytes:
    """Raises: Refused."""
    raw = name.encode()
    if len(raw) > NAME_BYTES_MAX:
        raise Refused(f"the name of a {what} has at most {NAME_BYTES_MAX} bytes, not {len(raw)}")
    return raw


def digest_of(*parts: object) -> bytes:
    return blake2b(encode_value(parts), digest_size=DIGEST_BYTES).digest()


def place_id(what: str, name: str) -> bytes:
    """What names a bucket or container in rows. Raises: Refused."""
    check_name(what, name)
    return digest_of(ENVIRONMENT, what, name)


def name_key(raw: bytes) -> bytes:
    """A row key that orders like the name."""
    if len(raw) <= NAME_KEY_BYTES_MAX:
        return raw
    return raw[:NAME_KEY_BYTES_MAX] + blake2b(raw, digest_size=DIGEST_BYTES).digest()


def held_name(raw: bytes) -> str:
    """The name that a row has to hold, "" where its key says it all."""
    return raw.decode() if len(raw) > NAME_KEY_BYTES_MAX else ""


def name_of(key: bytes, held: str) -> str:
    """The name behind the part of a row's key."""
    return held or key.decode()


async def run_plan(plan: Callable[[], Plan], row_count: int) -> Plan:
    if row_count <= ROWS_AT_ONCE:
        return plan()
    return await trio.to_thread.run_sync(plan)


class Environment:
    """The one of a store. `write` is for the trio thread."""

    def __init__(self, engine: Engine, write: WriteBatch, limits: StoreLimits) -> None:
        self.engine = engine
        self.limits = limits
        self._write = write

    @property
    def used_bytes(self) -> int:
        return int.from_bytes(self.engine.read_row(TABLE, USED_ROW) or b"", "big", signed=True)

    async def write(
        self, caller: Caller, request: Sequence[object], plan: Callable[[], Plan]
    ) -> object:
        """Has what `plan` says written as one unit, once for the caller's key and request; the
        plan's answer, durable. It is made again as long as others change what it has read, and in a
        thread of its own if it reads many rows: as many as the request has parts.

        Raises: Refused, StoreError.
        """
        last = self.repeated(caller, request)
        while last is None:
            planned = await run_plan(plan, len(request))
            answer = msgspec.Raw(encode_value(planned.answer))
            kept = LastWrite(key=caller.key, request=digest_of(*request), answer=answer)
            row = Row(TABLE, last_write_key(caller.worker_id), encode_last(kept))
            if await self._put(planned, row, caller.worker):
                return planned.answer
        return msgspec.msgpack.decode(last.answer)

    def repeated(self, caller: Caller, request: Sequence[object]) -> LastWrite | None:
        """What this very write came to, if it has been made."""
        raw = self.engine.read_row(TABLE, last_write_key(caller.worker_id))
        last = None if raw is None else decode_last(raw)
        if last is None or (last.key, last.request) != (caller.key, digest_of(*request)):
            return None
        return last

    async def _put(self, planned: Plan, row: Row, worker: str) -> bool:
        """One transaction; False if an expected row is another one. Raises: Refused, StoreError."""
        counts = planned.counts
        if planned.added_bytes:
            most = self.limits.environment_bytes_max
            counts = (Count(TABLE, USED_ROW, planned.added_bytes, most=most), *counts)
        batch = Batch(rows=(*planned.rows, row), expects=planned.expects, counts=counts)
        written = await self._write(batch, worker)
        if written is Written.EXCEEDED:
            raise self.full(planned.added_bytes)
        return written is Written.DONE

    async def write_beside(
        self, rows: Sequence[Row], worker: str, expects: Sequence[Row] = ()
    ) -> bool:
        """Rows that nobody refers to yet, or any more; False if an expected row is another one.

        Raises: StoreError.
        """
        return await self._write(Batch(rows=rows, expects=expects), worker) is Written.DONE

    def full(self, added_bytes: int) -> Refused:
        return Refused(
            f"the environment {ENVIRONMENT!r} is full: it may hold"
            f" {self.limits.environment_bytes_max} bytes, holds {self.used_bytes}, and this would"
            f" add {added_bytes}; an executor may be opened with other store_limits"
        )
