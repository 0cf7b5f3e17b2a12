"""A value as `golem:rpc/types.wit-value`: nodes that refer to one another, the root first.

Without a type the value's own form decides, as the oplog keeps it: whole numbers are `u64` or
`s64`, and a record or a variant is a record of what its names hold, in their order.
"""

from collections.abc import Callable
from typing import Any, Final

from executor.wasm.types import (
    U8,
    BorrowType,
    EnumType,
    FlagsType,
    ListType,
    OptionType,
    OwnType,
    Primitive,
    RecordType,
    ResultType,
    TupleType,
    VariantType,
    WitType,
)
from executor.wasm.values import Err, Ok, Some, Variant

Node = Variant
NODES_OF: Final = {
    **{name: f"prim-{name}" for name in ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")},
    "f32": "prim-float32",
    "f64": "prim-float64",
    **{name: f"prim-{name}" for name in ("char", "bool", "string")},
}
NOTHING: Final[dict[str, object]] = {"nodes": []}
"""Where there is no value."""


class _Nodes:
    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def place(self, make: Callable[[], Node]) -> int:
        """The index of a node whose children come behind it."""
        index = len(self.nodes)
        self.nodes.append(None)
        self.nodes[index] = make()
        return index

    def add(self, wit_type: WitType, value: Any) -> int:
        return self.place(lambda: self._node(wit_type, value))

    def _optional(self, wit_type: WitType | None, value: Any) -> int | None:
        return None if wit_type is None else self.add(wit_type, value)

    def _node(self, wit_type: WitType, value: Any) -> Node:
        match wit_type:
            case Primitive(name=name):
                return Variant(NODES_OF[name], value)
            case ListType(element=element):
                return Variant("list-value", [self.add(element, item) for item in value])
            case RecordType(fields=fields):
                parts = [self.add(field, value[name]) for name, field in fields]
                return Variant("record-value", parts)
            case TupleType(elements=elements):
                pairs = zip(elements, value, strict=True)
                return Variant("tuple-value", [self.add(one, part) for one, part in pairs])
            case VariantType(cases=cases):
                names = [name for name, _ in cases]
                place = names.index(value.case)
                payload = self._optional(cases[place][1], value.payload)
                return Variant("variant-value", (place, payload))
            case EnumType(cases=cases):
                return Variant("enum-value", cases.index(value))
            case FlagsType(flags=flags):
                return Variant("flags-value", [flag in value for flag in flags])
            case OptionType(payload=payload):
                inner = value.value if isinstance(value, Some) else value
                return Variant("option-value", None if value is None else self.add(payload, inner))
            case ResultType(ok=ok, err=err):
                if isinstance(value, Ok):
                    return Variant("result-value", Ok(self._optional(ok, value.value)))
                return Variant("result-value", Err(self._optional(err, value.value)))
            case OwnType(resource=resource) | BorrowType(resource=resource):
                return Variant("handle", ({"value": resource}, value))

    def add_plain(self, value: Any) -> int:
        return self.place(lambda: self._plain_node(value))

    def _plain_node(self, value: Any) -> Node:
        match value:
            case bool():
                return Variant("prim-bool", value)
            case int():
                return Variant("prim-u64" if value >= 0 else "prim-s64", value)
            case float():
                return Variant("prim-float64", value)
            case str():
                return Variant("prim-string", value)
            case bytes():
                return Variant("list-value", [self.add(U8, octet) for octet in value])
            case None:
                return Variant("option-value", None)
            case dict():
                return Variant("record-value", [self.add_plain(part) for part in value.values()])
            case _:
                return Variant("list-value", [self.add_plain(part) for part in value])


def wit_value(wit_type: WitType, value: object) -> dict[str, object]:
    """`value` is what `wit_type` has in Python."""
    nodes = _Nodes()
    nodes.add(wit_type, value)
    return {"nodes": nodes.nodes}


def plain_wit_value(plain: object) -> dict[str, object]:
    """`plain` is a value in its self-describing form, whose type is not known."""
    nodes = _Nodes()
    nodes.add_plain(plain)
    return {"nodes": nodes.nodes}
