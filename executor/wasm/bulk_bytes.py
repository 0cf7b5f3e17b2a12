"""Bytes in bulk between a guest and the host: a shim that passes them as text.

Wasmtime hands a `list<u8>` over as a component value of 32 bytes for every byte. A string is one
block. So the functions that move many bytes are imported a second time, from an interface of ours
in which the bytes are a string of hexadecimal digits. A small component beside the guest takes the
place of the interface: it translates, sixteen bytes at a time, and what does not move bytes it
passes on as it is. A host function gets and answers bytes all the same. (One character a byte
would be half as long, but half of them are two bytes of UTF-8, and translating those takes longer.)

The shim has a memory of its own, in which one call's bytes and digits lie until the call has
returned. A worker's memory limit bounds it like the guest's: below 256 KiB, a call with 64 KiB of
bytes traps.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import msgspec
import wasmtime

from executor.wasm.binary import Sort, leb, text, vector
from executor.wasm.types import STRING, FuncType, Primitive, ResultType, WitType

STREAMS: Final = "wasi:io/streams"
RAW_STREAMS: Final = "shem:bytes/wasi-io-streams"
"""The interface that is imported for it, of the same version."""

DIGITS: Final = Primitive("hexadecimal")
"""Bytes that cross as a string: no type of WIT, only of codecs."""

TOO_LARGE: Final = "more-than-1-MiB-in-one-call"
"""The function that a guest is in when it traps since it passed too much."""
BYTES_MAX: Final = 1 << 20
"""What a guest may pass in one call; a host function refuses less than that."""

_RESULT_AT: Final = 16
"""Where in the shim's memory a host function writes its result."""


class StreamFunction(msgspec.Struct, frozen=True):
    """A method of `wasi:io/streams`, in types of the text format."""

    resource: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    """Besides `self`."""
    ok: str
    """Of its `result<…, stream-error>`."""

    @property
    def export(self) -> str:
        """`[method]input-stream.read`."""
        return f"[method]{self.resource}.{self.name}"

    @property
    def plain(self) -> str:
        """`input-stream-read`."""
        return f"{self.resource}-{self.name}"

    @property
    def takes_bytes(self) -> bool:
        return any(of == _BYTES for _, of in self.parameters)

    @property
    def bulk(self) -> bool:
        return self.takes_bytes or self.ok == _BYTES

    def signature(self, of_bytes: str = "(list u8)") -> str:
        """Parameters and result."""
        given = [("self", f"(borrow ${self.resource})"), *self.parameters]
        parameters = " ".join(f'(param "{name}" {of})' for name, of in given)
        result = f"(result {self.ok} (error $stream-error))"
        if self.name == "subscribe":
            result = self.ok
        return f"{parameters} (result {result})".replace(_BYTES, of_bytes)


_BYTES: Final = "(list u8)"
_COUNT: Final = ("len", "u64")
_CONTENTS: Final = ("contents", _BYTES)
_SOURCE: Final = ("src", "(borrow $input-stream)")

FUNCTIONS: Final = {
    of.export: of
    for of in (
        StreamFunction("input-stream", "read", (_COUNT,), _BYTES),
        StreamFunction("input-stream", "blocking-read", (_COUNT,), _BYTES),
        StreamFunction("input-stream", "skip", (_COUNT,), "u64"),
        StreamFunction("input-stream", "blocking-skip", (_COUNT,), "u64"),
        StreamFunction("input-stream", "subscribe", (), "(own $pollable)"),
        StreamFunction("output-stream", "check-write", (), "u64"),
        StreamFunction("output-stream", "write", (_CONTENTS,), ""),
        StreamFunction("output-stream", "blocking-write-and-flush", (_CONTENTS,), ""),
        StreamFunction("output-stream", "flush", (), ""),
        StreamFunction("output-stream", "blocking-flush", (), ""),
        StreamFunction("output-stream", "subscribe", (), "(own $pollable)"),
        StreamFunction("output-stream", "write-zeroes", (_COUNT,), ""),
        StreamFunction("output-stream", "blocking-write-zeroes-and-flush", (_COUNT,), ""),
        StreamFunction("output-stream", "splice", (_SOURCE, _COUNT), "u64"),
        StreamFunction("output-stream", "blocking-splice", (_SOURCE, _COUNT), "u64"),
    )
}
RESOURCES: Final = ("error", "pollable", "input-stream", "output-stream")
TYPES: Final = (*RESOURCES, "stream-error")


def as_digits(type_: FuncType) -> FuncType:
    """The type of a function of ours for the codecs: its strings are bytes."""
    return FuncType(
        params=tuple((name, _digits(of)) for name, of in type_.params),
        result=None if type_.result is None else _digits(type_.result),
    )


def _digits(type_: WitType) -> WitType:
    if type_ == STRING:
        return DIGITS
    if isinstance(type_, ResultType) and type_.ok is not None:
        return ResultType(_digits(type_.ok), type_.err)
    return type_


def raw_interface(functions: Iterable[StreamFunction], types: Mapping[str, int]) -> bytes:
    """The type of the instance to import, in binary.

    `types` are indices in the surrounding component, of whatever the functions mention.
    """
    declarations = []
    local: dict[str, int] = {}
    for name, outer in types.items():
        # A type of the surrounding component, and its name here: two definitions.
        declarations.append(b"\x02" + bytes([Sort.TYPE, 2, 1]) + leb(outer))
        declarations.append(b"\x04\0" + text(name) + bytes([Sort.TYPE, 0]) + leb(2 * len(local)))
        local[name] = 2 * len(local) + 1
    count = 2 * len(local)
    for function in functions:
        name, of = ("contents", b"\x73") if function.takes_bytes else ("len", b"\x77")
        ok = b"\0" if function.takes_bytes else b"\x01\x73"
        parameters = vector([text("self") + leb(count), text(name) + of])
        declarations += [
            b"\x01\x68" + leb(local[function.resource]),
            b"\x01\x6a" + ok + b"\x01" + leb(local["stream-error"]),
            b"\x01\x40" + parameters + b"\0" + leb(count + 1),
            b"\x04\0" + text(function.export) + bytes([Sort.FUNCTION]) + leb(count + 2),
        ]
        count += 3
    return b"\x42" + vector(declarations)


@cache
def shim(functions: tuple[StreamFunction, ...], types: tuple[str, ...]) -> bytes:
    """The component that takes the place of the interface, in binary.

    It imports the types and functions by their plain names, and exports them by their own.
    """
    bulk = [function for function in functions if function.bulk]
    resources = [name for name in types if name != "stream-error"]
    held = sorted({function.resource for function in bulk})
    exported_types = [f'(export $exported-{name} "{name}" (type ${name}))' for name in types]
    return bytes(
        wasmtime.wat2wasm(f"""(component
          {" ".join(f'(import "{name}" (type ${name} (sub resource)))' for name in resources)}
          (type $shape (variant (case "last-operation-failed" (own $error)) (case "closed")))
          (import "stream-error" (type $stream-error (eq $shape)))
          {" ".join(map(_import, functions))}
          {_MEMORY}
          {" ".join(map(_lower, bulk))}
          {" ".join(f"(core func $drop-{name} (canon resource.drop ${name}))" for name in held)}
          {_code(bulk, held)}
          {" ".join(map(_lift, bulk))}
          {" ".join(exported_types)}
          {" ".join(map(_export, functions))})""")
    )


def _import(function: StreamFunction) -> str:
    name = function.plain
    return f'(import "{name}" (func ${name} {function.signature("string")}))'


def _export(function: StreamFunction) -> str:
    name = f"$lifted-{function.plain}" if function.bulk else f"${function.plain}"
    signature = function.signature().replace("$", "$exported-")
    return f'(export "{function.export}" (func {name}) (func {signature}))'


def _lower(function: StreamFunction) -> str:
    name = function.plain
    return f"(core func $raw-{name} (canon lower (func ${name}) {_OPTIONS} string-encoding=utf8))"


def _lift(function: StreamFunction) -> str:
    name = function.plain
    options = f'{_OPTIONS} (post-return (core func $memory "forget"))'
    lifted = f'(canon lift (core func $code "{name}") {options})'
    return f"(func $lifted-{name} {function.signature()} {lifted})"


def _code(bulk: Iterable[StreamFunction], held: Iterable[str]) -> str:
    """Translates, and gives back the handle that it was lent."""
    imports = [(f"drop-{name}", "i32") for name in held]
    bodies = []
    for function in bulk:
        name = function.plain
        taken = "i32 i32" if function.takes_bytes else "i64"
        imports.append((f"raw-{name}", f"i32 {taken} i32"))
        body = _READ if function.ok == _BYTES else _WRITE
        bodies.append(
            body.replace("{name}", name)
            .replace("{drop}", f"$drop-{function.resource}")
            .replace("{at}", str(_RESULT_AT))
        )
    declared = [f'(import "" "{name}" (func ${name} (param {of})))' for name, of in imports]
    given = [f'(export "{name}" (func ${name}))' for name, _ in imports]
    return f"""(core module $code {" ".join(declared)} {_TRANSLATION} {" ".join(bodies)})
      (core instance $code (instantiate $code
        (with "memory" (instance $memory)) (with "" (instance {" ".join(given)}))))"""


_OPTIONS: Final = '(memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))'

_PADDING: Final = 32
"""Behind every block: sixteen bytes are translated at a time, whatever is left."""

_MEMORY: Final = f"""(core module $memory
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 64))
    (func (export "forget") (param i32) (global.set $next (i32.const 64)))
    (func ${TOO_LARGE} (unreachable))
    (func $new (export "new") (param $size i32) (result i32) (local $at i32) (local $more i32)
      (local.set $at (global.get $next))
      (global.set $next (i32.and (i32.const -16)
        (i32.add (i32.const {_PADDING + 15}) (i32.add (local.get $at) (local.get $size)))))
      (local.set $more (i32.sub
        (i32.shr_u (i32.add (global.get $next) (i32.const 65535)) (i32.const 16)) (memory.size)))
      (if (i32.gt_s (local.get $more) (i32.const 0))
        (then (if (i32.eq (i32.const -1) (memory.grow (local.get $more))) (then (unreachable)))))
      (local.get $at))
    (func (export "realloc") (param i32 i32 i32) (param $size i32) (result i32)
      (if (i32.gt_u (local.get $size) (i32.const {BYTES_MAX})) (then (call ${TOO_LARGE})))
      (call $new (local.get $size))))
  (core instance $memory (instantiate $memory))"""

_TRANSLATION: Final = """
    (import "memory" "memory" (memory 1))
    (import "memory" "new" (func $new (param i32) (result i32)))
    (func $encode (param $from i32) (param $count i32) (param $to i32)
        (local $end i32) (local $bytes v128) (local $high v128) (local $low v128)
      (local.set $end (i32.add (local.get $from) (local.get $count)))
      (block $done (loop $next
        (br_if $done (i32.ge_u (local.get $from) (local.get $end)))
        (local.set $bytes (v128.load (local.get $from)))
        (local.set $high (i8x16.swizzle (call $digits)
          (i8x16.shr_u (local.get $bytes) (i32.const 4))))
        (local.set $low (i8x16.swizzle (call $digits)
          (v128.and (local.get $bytes) (i8x16.splat (i32.const 15)))))
        (v128.store (local.get $to) (i8x16.shuffle 0 16 1 17 2 18 3 19 4 20 5 21 6 22 7 23
          (local.get $high) (local.get $low)))
        (v128.store offset=16 (local.get $to)
          (i8x16.shuffle 8 24 9 25 10 26 11 27 12 28 13 29 14 30 15 31
            (local.get $high) (local.get $low)))
        (local.set $from (i32.add (local.get $from) (i32.const 16)))
        (local.set $to (i32.add (local.get $to) (i32.const 32)))
        (br $next))))
    (func $digits (result v128)  ;; 0123456789abcdef
      (v128.const i32x4 0x33323130 0x37363534 0x62613938 0x66656463))
    (func $values (param v128) (result v128) (local $letter v128)
      (local.set $letter (v128.and (local.get 0) (i8x16.splat (i32.const 64))))
      (i8x16.add (v128.and (local.get 0) (i8x16.splat (i32.const 15)))
        (v128.or (i8x16.shr_u (local.get $letter) (i32.const 3))
                 (i8x16.shr_u (local.get $letter) (i32.const 6)))))
    (func $decode (param $at i32) (param $count i32)
        (local $from i32) (local $end i32) (local $first v128) (local $second v128)
      (local.set $from (local.get $at))
      (local.set $end (i32.add (local.get $at) (local.get $count)))
      (block $done (loop $next
        (br_if $done (i32.ge_u (local.get $from) (local.get $end)))
        (local.set $first (call $values (v128.load (local.get $from))))
        (local.set $second (call $values (v128.load offset=16 (local.get $from))))
        (v128.store (local.get $at) (v128.or
          (i8x16.shl (i8x16.shuffle 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30
            (local.get $first) (local.get $second)) (i32.const 4))
          (i8x16.shuffle 1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 31
            (local.get $first) (local.get $second))))
        (local.set $from (i32.add (local.get $from) (i32.const 32)))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next))))"""

_READ: Final = """(func (export "{name}") (param i32 i64) (result i32)
      (call $raw-{name} (local.get 0) (local.get 1) (i32.const {at}))
      (call {drop} (local.get 0))
      (if (i32.eqz (i32.load8_u (i32.const {at}))) (then
        (call $decode (i32.load offset=4 (i32.const {at})) (i32.load offset=8 (i32.const {at})))
        (i32.store offset=8 (i32.const {at})
          (i32.shr_u (i32.load offset=8 (i32.const {at})) (i32.const 1)))))
      (i32.const {at}))"""

_WRITE: Final = """(func (export "{name}") (param i32 i32 i32) (result i32) (local $digits i32)
      (local.set $digits (call $new (i32.shl (local.get 2) (i32.const 1))))
      (call $encode (local.get 1) (local.get 2) (local.get $digits))
      (call $raw-{name} (local.get 0) (local.get $digits)
        (i32.shl (local.get 2) (i32.const 1)) (i32.const {at}))
      (call {drop} (local.get 0))
      (i32.const {at}))"""
