"""Bytes across the canonical ABI: a `list<u8>`, or text of two digits a byte (`bulk_bytes`).

Of a list every byte is a component value of 32 bytes, which Wasmtime makes and frees one by one.
"""

from binascii import hexlify, unhexlify
from ctypes import memmove, string_at
from typing import Any, Final

from executor.wasm.abi_handles import WrongValue
from executor.wasm.ffi import KIND, VALUE_BYTES, bytes_new, list_new, sequence_at, u8_at, u64_at

_KIND_LIST: Final = KIND["list"]
_KIND_STRING: Final = KIND["string"]
_U8_VALUE: Final = bytes([KIND["u8"]]) + bytes(VALUE_BYTES - 1)


def lift_digits(at: int, _crossing: Any) -> bytes:
    slot = sequence_at(at)
    return unhexlify(string_at(slot.first, slot.count))


def lift_bytes(at: int, _crossing: Any) -> bytes:
    slot = sequence_at(at)
    count = slot.count
    return string_at(slot.first, VALUE_BYTES * count)[8::VALUE_BYTES] if count else b""


def lower_digits(value: Any, at: int, _crossing: Any) -> None:
    if type(value) is not bytes and type(value) is not bytearray:
        raise WrongValue
    encoded = hexlify(value)
    bytes_new(at + 8, len(encoded), encoded)
    u8_at(at).value = _KIND_STRING


def lower_bytes(value: Any, at: int, _crossing: Any) -> None:
    if type(value) is not bytes and type(value) is not bytearray:
        raise WrongValue
    count = len(value)
    list_new(at + 8, count)
    u8_at(at).value = _KIND_LIST
    if count:
        values = bytearray(_U8_VALUE * count)
        values[8::VALUE_BYTES] = value
        memmove(u64_at(at + 16).value, bytes(values), VALUE_BYTES * count)
