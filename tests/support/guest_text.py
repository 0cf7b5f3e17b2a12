"""Components as WAT text: an identity guest for any type, and random types and values."""

from executor.wasm.types import (
    INTEGER_RANGES,
    PRIMITIVES,
    U8,
    EnumType,
    FlagsType,
    ListType,
    OptionType,
    Primitive,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    nests_option,
)
from executor.wasm.values import Err, Ok, Some, Variant

MAX_FLAT = 16


def flat(type_):
    """The core types that a value of this type is passed as, by the canonical ABI."""
    match type_:
        case None:
            return []
        case Primitive("s64" | "u64"):
            return ["i64"]
        case Primitive("f32" | "f64" as name):
            return [name]
        case Primitive("string") | ListType():
            return ["i32", "i32"]
        case RecordType(fields):
            return [core for _, of in fields for core in flat(of)]
        case TupleType(elements):
            return [core for of in elements for core in flat(of)]
        case VariantType(cases):
            return _joined([of for _, of in cases])
        case OptionType(payload):
            return _joined([None, payload])
        case ResultType(ok, err):
            return _joined([ok, err])
        case _:
            return ["i32"]


def _joined(payloads):
    joined = []
    for payload in payloads:
        for index, core in enumerate(flat(payload)):
            if index == len(joined):
                joined.append(core)
            elif joined[index] != core:
                joined[index] = "i32" if {joined[index], core} <= {"i32", "f32"} else "i64"
    return ["i32", *joined]


def alignment(type_):
    """Of a value in memory, by the canonical ABI."""
    match type_:
        case None:
            return 1
        case Primitive(name):
            return {"char": 4, "string": 4, "bool": 1}.get(name) or int(name[1:]) // 8
        case ListType():
            return 4
        case RecordType(fields):
            return max(alignment(of) for _, of in fields)
        case TupleType(elements):
            return max(map(alignment, elements))
        case VariantType(cases):
            return max(_number(len(cases)), *(alignment(of) for _, of in cases))
        case OptionType(payload):
            return alignment(payload)
        case ResultType(ok, err):
            return max(alignment(ok), alignment(err))
        case EnumType(cases):
            return _number(len(cases))
        case FlagsType(flags):
            return 1 if len(flags) <= 8 else 2 if len(flags) <= 16 else 4
    raise TypeError(type_)


def _number(cases):
    """Bytes that tell so many cases apart."""
    return 1 if cases <= 1 << 8 else 2 if cases <= 1 << 16 else 4


class Declared:
    """Type declarations of an imported instance: named types must be exported to be used."""

    def __init__(self):
        self.lines = []

    def name(self, type_):
        match type_:
            case Primitive(name):
                return name
            case ListType(element):
                return f"(list {self.name(element)})"
            case OptionType(payload):
                return f"(option {self.name(payload)})"
            case TupleType(elements):
                return f"(tuple {' '.join(self.name(of) for of in elements)})"
            case ResultType(ok, err):
                ok_text = f" {self.name(ok)}" if ok else ""
                return f"(result{ok_text}{f' (error {self.name(err)})' if err else ''})"
            case RecordType(fields):
                body = " ".join(f'(field "{name}" {self.name(of)})' for name, of in fields)
                return self._declare(f"(record {body})")
            case VariantType(cases):
                body = " ".join(
                    f'(case "{name}"{f" {self.name(of)}" if of else ""})' for name, of in cases
                )
                return self._declare(f"(variant {body})")
            case EnumType(names):
                return self._declare(f"(enum {_quoted(names)})")
            case FlagsType(names):
                return self._declare(f"(flags {_quoted(names)})")
        raise TypeError(type_)

    def _declare(self, body):
        number = len(self.lines)
        self.lines.append(
            f'(type $t{number}x {body}) (export "t{number}" (type $t{number} (eq $t{number}x)))'
        )
        return f"$t{number}"


def _quoted(names):
    return " ".join(f'"{name}"' for name in names)


def identity_guest(type_):
    """A guest that passes `x` through the import `t:host/api.{f}` n times, n at least 1.

    It exports `run: func(n: u32, x: T) -> T`. A T of too many parts to be passed flat is passed in
    memory. None if it has so many that `f` takes them flat and `run` does not.
    """
    core = flat(type_)
    in_memory = len(core) > MAX_FLAT
    if len(core) == MAX_FLAT:
        return None
    declared = Declared()
    name = declared.name(type_)
    aliases = "\n".join(
        f'(alias export $api "t{number}" (type $a{number}))'
        for number in range(len(declared.lines))
    )
    exported = name.replace("$t", "$a")
    indirect = len(core) > 1
    params = " ".join(core)
    gets = " ".join(f"(local.get {index + 1})" for index in range(len(core)))
    take, count = "", "$n"
    if in_memory:  # one pointer, to both parameters
        offset = max(4, alignment(type_))
        params, count = "i32", "$count"
        gets = f"(i32.add (local.get $n) (i32.const {offset}))"
        take = "(local.set $count (i32.load (local.get $n)))"
    result = "i32" if indirect else core[0]
    import_result = "" if indirect else f" (result {core[0]})"
    call = f"(call $f {gets} (i32.const 64))"
    if not indirect:
        call = f"(local.set $r (call $f {gets}))"
    answer = "(i32.const 64)" if indirect else "(local.get $r)"
    return f"""(component
 (import "t:host/api" (instance $api {" ".join(declared.lines)}
   (export "f" (func (param "x" {name}) (result {name})))))
 {aliases}
 (core module $libc (memory (export "memory") 256)
  (global $next (mut i32) (i32.const 4096)) (global $mark (mut i32) (i32.const 4096))
  (func (export "set") (global.set $mark (global.get $next)))
  (func (export "reset") (global.set $next (global.get $mark)))
  (func (export "zero") (global.set $next (i32.const 4096)))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
   (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
   (global.set $next (i32.add (local.get $at) (local.get 3))) (local.get $at)))
 (core instance $libc (instantiate $libc))
 (core func $f (canon lower (func $api "f") (memory (core memory $libc "memory"))
   (realloc (core func $libc "realloc"))))
 (core module $m
  (import "h" "f" (func $f (param {params}{" i32" if indirect else ""}){import_result}))
  (import "l" "set" (func $set)) (import "l" "reset" (func $reset))
  (import "l" "zero" (func $zero)) (import "l" "memory" (memory 256))
  (func (export "run") (param $n i32) {"" if in_memory else f"(param {params})"}
   (result {result}) (local $r {core[0]}) (local $count i32)
   (call $set) {take}
   (loop $again (call $reset) {call}
     (local.set {count} (i32.sub (local.get {count}) (i32.const 1)))
     (br_if $again (i32.gt_s (local.get {count}) (i32.const 0)))) {answer})
  (func (export "post") (param {result}) (call $zero)))
 (core instance $i (instantiate $m (with "h" (instance (export "f" (func $f))))
   (with "l" (instance $libc))))
 (func (export "run") (param "n" u32) (param "x" {exported}) (result {exported})
  (canon lift (core func $i "run") (memory (core memory $libc "memory"))
   (realloc (core func $libc "realloc")) (post-return (core func $i "post")))))"""


def random_type(random, depth=3):
    """Any type without handles, nested up to `depth`."""
    kinds = ["primitive"] * 3 + ["enum", "flags"]
    if depth:
        kinds += ["list", "record", "tuple", "variant", "option", "result"]

    def part():
        return random_type(random, depth - 1)

    def maybe():
        return part() if random.random() < 0.7 else None

    match random.choice(kinds):
        case "primitive":
            return random.choice(list(PRIMITIVES.values()))
        case "list":
            return ListType(part())
        case "record":
            return RecordType(tuple((f"f{i}", part()) for i in range(random.randint(1, 3))))
        case "tuple":
            return TupleType(tuple(part() for _ in range(random.randint(1, 3))))
        case "variant":
            return VariantType(tuple((f"c{i}", maybe()) for i in range(random.randint(1, 4))))
        case "enum":
            return EnumType(tuple(f"e{i}" for i in range(random.randint(1, 5))))
        case "option":
            return OptionType(part())
        case "result":
            return ResultType(maybe(), maybe())
        case _:
            return FlagsType(tuple(f"g{i}" for i in range(random.randint(1, 32))))


def random_value(random, type_):
    """A canonical value of the type; `None` for no type."""

    def of(part):
        return random_value(random, part)

    match type_:
        case None:
            return None
        case Primitive(name):
            return _random_primitive(random, name)
        case ListType(element) if element == U8:
            return random.randbytes(random.randint(0, 4))
        case ListType(element):
            return [of(element) for _ in range(random.randint(0, 4))]
        case RecordType(fields):
            return {name: of(field) for name, field in fields}
        case TupleType(elements):
            return tuple(of(element) for element in elements)
        case VariantType(cases):
            name, payload = random.choice(cases)
            return Variant(name, of(payload))
        case EnumType(names):
            return random.choice(names)
        case FlagsType(names):
            return [name for name in names if random.random() < 0.5]
        case OptionType(payload):
            if random.random() < 0.3:
                return None
            return Some(of(payload)) if nests_option(type_) else of(payload)
        case ResultType(ok, err):
            return Ok(of(ok)) if random.random() < 0.5 else Err(of(err))
    raise TypeError(type_)


def _random_primitive(random, name):
    if name in INTEGER_RANGES:
        least, greatest = INTEGER_RANGES[name]
        return random.choice((least, greatest, random.randint(least, greatest)))
    match name:
        case "bool":
            return random.random() < 0.5
        case "f32" | "f64":
            return random.choice((0.0, -0.0, 1.5, -2.25, float("inf"), float("nan")))
        case "char":
            return random.choice("\0A€\ud7ff\ue000😀")
    return "".join(random.choice("aé€😀\0") for _ in range(random.randint(0, 6)))
