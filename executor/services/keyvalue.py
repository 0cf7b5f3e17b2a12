"""Key-value buckets: values by key, of at most a mebibyte, in transactions.

| row of `keyvalue`          | value                                     |
|----------------------------|-------------------------------------------|
| `b` bucket                 | the environment's name and the bucket's   |
| `n` bucket, key            | KeyRow                                    |
| `v` bucket, key            | the value                                 |

A bucket is there as soon as something is put into it. Listing keys reads no values. Each write
gives its key another version, so that who swaps a value can say which one it has seen.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from executor.services.environment import (
    DIGEST_BYTES,
    ENVIRONMENT,
    TABLE,
    VALUE_BYTES_MAX,
    Caller,
    Environment,
    Plan,
    Refused,
    check_name,
    digest_of,
    held_name,
    name_key,
    name_of,
    place_id,
)
from oplog.engine import Row
from oplog.errors import OplogCorruptError

PAGE_KEYS: Final = 1_000
NUMBER_CHARACTERS_MAX: Final = 20
"""Of 64 bits, with a sign or without."""


class KeyRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: bytes
    """Another one with each write."""
    size: int
    """Of the value, in bytes."""
    name: str = ""
    """Of a key whose name is too long to be a row's key."""


class Seen(msgspec.Struct, frozen=True):
    """A key as somebody has read it."""

    value: bytes | None
    version: bytes
    """Empty if there is no such key."""


class Page(msgspec.Struct, frozen=True):
    keys: list[str]
    more: bool
    """Whether more keys follow the last one."""


encode_key_row: Final = msgspec.msgpack.Encoder().encode
_decode_key_row: Final = msgspec.msgpack.Decoder(KeyRow).decode


def decode_key_row(raw: bytes) -> KeyRow:
    """Raises: OplogCorruptError."""
    try:
        return _decode_key_row(raw)
    except msgspec.MsgspecError as error:
        raise OplogCorruptError(f"a key's row in a bucket is damaged: {error}") from error


class KeyValue:
    """The buckets of one store. Reads are for any thread, writes for the trio thread."""

    def __init__(self, environment: Environment, new_version: Callable[[], bytes]) -> None:
        """`new_version` gives bytes that it never gave before."""
        self.environment = environment
        self._engine = environment.engine
        self.limits = environment.limits
        self._new_version = new_version

    # -- reads ---------------------------------------------------------------------------------

    def get(self, bucket: str, key: str) -> bytes | None:
        """Raises: Refused."""
        return self._engine.read_row(TABLE, b"v" + row_place(bucket, key))

    def get_many(self, bucket: str, keys: Sequence[str]) -> list[bytes | None]:
        """Raises: Refused."""
        self._check_count(keys)
        sizes = sum(self._size(bucket, key) for key in keys)
        if sizes > self.limits.read_bytes_max:
            raise Refused(
                f"the values of these {len(keys)} keys have {sizes} bytes; one call reads at most"
                f" {self.limits.read_bytes_max}: ask for fewer keys"
            )
        return [self.get(bucket, key) for key in keys]

    def exists(self, bucket: str, key: str) -> bool:
        """Raises: Refused."""
        return self._engine.read_row(TABLE, b"n" + row_place(bucket, key)) is not None

    def see(self, bucket: str, key: str) -> Seen:
        """The value with its version. Raises: Refused."""
        place = row_place(bucket, key)
        while (raw := self._engine.read_row(TABLE, b"n" + place)) is not None:
            value = self._engine.read_row(TABLE, b"v" + place)
            if value is not None and self._engine.read_row(TABLE, b"n" + place) == raw:
                return Seen(value, decode_key_row(raw).version)
        return Seen(None, b"")

    def list_keys(self, bucket: str, after: str | None = None, limit: int = PAGE_KEYS) -> Page:
        """Keys in the order of their names, at most `limit`. Raises: Refused."""
        prefix = b"n" + place_id("bucket", bucket)
        last = None if after is None else prefix + name_key(check_name("key", after))
        rows = self._engine.read_rows(TABLE, prefix=prefix, after=last, limit=limit + 1)
        return Page([key_name(key, raw) for key, raw in rows[:limit]], len(rows) > limit)

    def all_keys(self, bucket: str) -> list[str]:
        """Raises: Refused if they are too many for one answer."""
        page = self.list_keys(bucket, limit=self.limits.keys_max)
        if page.more:
            raise Refused(f"bucket {bucket!r} has more than {self.limits.keys_max} keys")
        return page.keys

    # -- writes --------------------------------------------------------------------------------

    async def set_many(self, caller: Caller, bucket: str, values: Mapping[str, bytes]) -> None:
        """All of them, or none. Durable on return. Raises: Refused, StoreError."""
        self._check_count(values)
        for key, value in values.items():
            if len(value) > VALUE_BYTES_MAX:
                raise Refused(
                    f"a value has at most {VALUE_BYTES_MAX} bytes, that of"
                    f" {key[:100]!r} has {len(value)}: put it into a blob store"
                )
        total = sum(map(len, values.values()))
        if total > self.limits.batch_bytes_max:
            raise Refused(
                f"one call writes at most {self.limits.batch_bytes_max} bytes, not {total}"
            )
        request = ["set", bucket, *((key, digest_of(value)) for key, value in values.items())]
        await self.environment.write(caller, request, lambda: self._replacing(bucket, values))

    async def delete_many(self, caller: Caller, bucket: str, keys: Sequence[str]) -> None:
        """All of them; one that is not there is passed over. Durable on return.

        Raises: Refused, StoreError.
        """
        self._check_count(keys)
        gone: dict[str, bytes | None] = dict.fromkeys(keys)
        request = ["delete", bucket, *keys]
        await self.environment.write(caller, request, lambda: self._replacing(bucket, gone))

    async def change_number(
        self,
        caller: Caller,
        bucket: str,
        key: str,
        request: Sequence[object],
        change: Callable[[int | None], int | None],
    ) -> int | None:
        """Puts `change(number)` in the place of a number, which is decimal text; None stands for no
        such key, and as an answer leaves it as it is. `request` says what `change` does. Gives the
        new number, durable.

        Raises: Refused, also what `change` raises; StoreError.
        """
        place = row_place(bucket, key)

        def plan() -> Plan:
            raw = self._engine.read_row(TABLE, b"n" + place)
            number = change(None if raw is None else self._number(bucket, key))
            if number is None:
                return Plan(rows=(), expects=(), added_bytes=0)
            return self._replacing(bucket, {key: b"%d" % number}, read={key: raw}, answer=number)

        answer = await self.environment.write(caller, [*request, bucket, key], plan)
        assert isinstance(answer, int | None)
        return answer

    async def swap(
        self, caller: Caller, bucket: str, key: str, value: bytes, version: bytes
    ) -> bool:
        """Whether the key was as of `version`, and has the value now. Durable on return.

        Raises: Refused, StoreError.
        """
        place = row_place(bucket, key)

        def plan() -> Plan:
            raw = self._engine.read_row(TABLE, b"n" + place)
            found = b"" if raw is None else decode_key_row(raw).version
            if found != version:
                return Plan(rows=(), expects=(), added_bytes=0, answer=False)
            return self._replacing(bucket, {key: value}, read={key: raw}, answer=True)

        if len(value) > VALUE_BYTES_MAX:
            raise Refused(f"a value has at most {VALUE_BYTES_MAX} bytes")
        request = ["swap", bucket, key, digest_of(value), version]
        return await self.environment.write(caller, request, plan) is True

    # ------------------------------------------------------------------------------------------

    def _check_count(self, keys: Sequence[str] | Mapping[str, bytes]) -> None:
        if len(keys) > self.limits.keys_max:
            raise Refused(f"one call names at most {self.limits.keys_max} keys, not {len(keys)}")

    def _size(self, bucket: str, key: str) -> int:
        raw = self._engine.read_row(TABLE, b"n" + row_place(bucket, key))
        return 0 if raw is None else decode_key_row(raw).size

    def _number(self, bucket: str, key: str) -> int:
        """Raises: Refused."""
        text = self.get(bucket, key) or b""
        digits = text.removeprefix(b"-")
        if not digits.isdigit() or len(text) > NUMBER_CHARACTERS_MAX:
            raise Refused(f"the value of {key[:100]!r} is no number in decimal digits")
        return int(text)

    def _replacing(
        self,
        bucket: str,
        values: Mapping[str, bytes | None],
        *,
        read: Mapping[str, bytes | None] | None = None,
        answer: object = None,
    ) -> Plan:
        """What puts values in the place of others, None in that of a key: it goes. `read` holds
        the rows on which the values depend, if they do.
        """
        place = place_id("bucket", bucket)
        rows: list[Row] = []
        expects: list[Row] = []
        added = 0
        version = self._new_version()
        for key, value in values.items():
            raw_name = check_name("key", key)
            row_key = place + name_key(raw_name)
            old = self._engine.read_row(TABLE, b"n" + row_key) if read is None else read[key]
            expects.append(Row(TABLE, b"n" + row_key, old))
            if old is not None:
                added -= len(raw_name) + decode_key_row(old).size
            new = None
            if value is not None:
                added += len(raw_name) + len(value)
                kept = KeyRow(version=version, size=len(value), name=held_name(raw_name))
                new = encode_key_row(kept)
            rows.append(Row(TABLE, b"n" + row_key, new))
            rows.append(Row(TABLE, b"v" + row_key, value))
        puts = any(value is not None for value in values.values())
        if puts and self._engine.read_row(TABLE, b"b" + place) is None:
            named = msgspec.msgpack.encode([ENVIRONMENT, bucket])
            rows.append(Row(TABLE, b"b" + place, named))
        return Plan(rows=rows, expects=expects, added_bytes=added, answer=answer)


def row_place(bucket: str, key: str) -> bytes:
    """Of a key in the rows of its bucket. Raises: Refused."""
    return place_id("bucket", bucket) + name_key(check_name("key", key))


def key_name(row_key: bytes, raw: bytes) -> str:
    return name_of(row_key[1 + DIGEST_BYTES :], decode_key_row(raw).name)
