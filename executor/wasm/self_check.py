"""Whether the Wasmtime at hand has the layout that the codecs rely on.

The fast lane reads and writes memory of Wasmtime by offset. So before the first engine is made, the
version, the sizes and the kind tags are compared, and one value of every kind is copied by
Wasmtime's own code and read back. Blocks for well under a millisecond.
"""

import ctypes
import importlib.metadata
import sys
from typing import Final

from wasmtime import _ffi as wasmtime_ffi

from executor.errors import InternalError
from executor.wasm import ffi
from executor.wasm.abi import compile_lift, compile_lower
from executor.wasm.types import (
    BOOL,
    CHAR,
    F32,
    F64,
    S8,
    S16,
    S32,
    S64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    EnumType,
    FlagsType,
    ListType,
    OptionType,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    WitType,
)
from executor.wasm.values import Err, Ok, Variant

WASMTIME_VERSION: Final = "50.0.1"

KIND_TAGS: Final = dict(zip(ffi.KINDS, range(len(ffi.KINDS)), strict=True))

_SAMPLES: Final[tuple[tuple[str, WitType, object], ...]] = (
    ("flag", BOOL, True),
    ("i8", S8, -8),
    ("i16", S16, -16_000),
    ("i32", S32, -32_000_000),
    ("i64", S64, -(1 << 63)),
    ("n8", U8, 255),
    ("n16", U16, 65_535),
    ("n32", U32, (1 << 32) - 1),
    ("n64", U64, (1 << 64) - 1),
    ("single", F32, 0.5),
    ("double", F64, -0.1),
    ("letter", CHAR, "€"),
    ("text", STRING, "a\0é😀"),
    ("bytes", ListType(U8), b"\x00\x7f\xff"),
    ("items", ListType(U16), [1, 2, 3]),
    ("pair", TupleType((U8, STRING)), (7, "seven")),
    ("event", VariantType((("none", None), ("some", U32))), Variant("some", 9)),
    ("colour", EnumType(("red", "green")), "green"),
    ("maybe", OptionType(U64), 64),
    ("absent", OptionType(U64), None),
    ("good", ResultType(U32, STRING), Ok(32)),
    ("bad", ResultType(None, STRING), Err("why")),
    ("rights", FlagsType(("read", "write", "execute")), ["read", "execute"]),
)


def check_python() -> None:
    """Refuse an interpreter that cannot run on fibers.

    Raises: InternalError with what to install.
    """
    if sys.version_info[:2] == (3, 14) and sys.version_info[2] < _PYTHON_3_14_FIXED:
        raise InternalError(
            f"Python {sys.version.split()[0]} mistakes the stack of a fiber for an overflow"
            " (python/cpython#139653): use 3.11 to 3.13, or a later 3.14"
        )


_PYTHON_3_14_FIXED: Final = 1


def check_layout() -> None:
    """Compare version, sizes and kind tags, and copy a value of every kind.

    Raises: InternalError that names what differs.
    """
    found = importlib.metadata.version("wasmtime")
    _same("version", found, WASMTIME_VERSION)
    value = wasmtime_ffi.wasmtime_component_val_t
    entry = wasmtime_ffi.wasmtime_component_valrecord_entry_t
    _same("size of a component value", ctypes.sizeof(value), ffi.VALUE_BYTES)
    _same("offset of a component value's payload", value.of.offset, 8)
    _same("size of a record field", ctypes.sizeof(entry), ffi.FIELD_BYTES)
    _same("offset of a record field's value", entry.val.offset, 16)
    item = wasmtime_ffi.wasmtime_component_item_t
    _same("offset of what an import or export is", item.of.offset, 8)
    _same("size of a pointer", ctypes.sizeof(ctypes.c_void_p), 8)
    _same("kind tags", ffi.KIND, KIND_TAGS)
    _copy_all_kinds()


def _copy_all_kinds() -> None:
    type_ = RecordType(tuple((name, of) for name, of, _ in _SAMPLES))
    sent = {name: value for name, _, value in _SAMPLES}
    memory = (ctypes.c_char * (2 * ffi.VALUE_BYTES))()
    first = ctypes.addressof(memory)
    second = first + ffi.VALUE_BYTES
    compile_lower(type_, {})(sent, first, None)
    try:
        ffi.value_clone(first, second)
        try:
            got = compile_lift(type_, {})(second, None)
        finally:
            ffi.value_delete(second)
    finally:
        ffi.value_delete(first)
    for name, value in sent.items():
        _same(f"a copied value ({name})", got[name], value)


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise InternalError(
            f"wasmtime is not as this Shem expects: {what} is {found!r} instead of {wanted!r};"
            f" install wasmtime=={WASMTIME_VERSION}"
        )
