"""`golem:rpc/types@0.1.x` and `0.2.x`: how workers and components are named.

A UUID crosses as two halves of 64 bits. Calls between workers are not offered.
"""

from typing import Any, Final
from uuid import UUID

from executor.durable.definition import Local
from executor.host.interface import InterfaceTable, host_interface
from executor.wasm.values import Err, Ok

HALF: Final = 64
HALF_MASK: Final = 2**HALF - 1

TYPES: Final = """
interface golem:rpc/types@0.2.0 {
  record uuid { high-bits: u64, low-bits: u64 }
  record component-id { uuid: uuid }
  record worker-id { component-id: component-id, worker-name: string }

  type node-index = s32;
  record uri { value: string }
  variant wit-node {
    record-value(list<node-index>),
    variant-value(tuple<u32, option<node-index>>),
    enum-value(u32),
    flags-value(list<bool>),
    tuple-value(list<node-index>),
    list-value(list<node-index>),
    option-value(option<node-index>),
    result-value(result<option<node-index>, option<node-index>>),
    prim-u8(u8),
    prim-u16(u16),
    prim-u32(u32),
    prim-u64(u64),
    prim-s8(s8),
    prim-s16(s16),
    prim-s32(s32),
    prim-s64(s64),
    prim-float32(f32),
    prim-float64(f64),
    prim-char(char),
    prim-bool(bool),
    prim-string(string),
    handle(tuple<uri, u64>),
  }
  record wit-value { nodes: list<wit-node> }

  type resource-id = u64;
  enum resource-mode { owned, borrowed }
  variant wit-type-node {
    record-type(list<tuple<string, node-index>>),
    variant-type(list<tuple<string, option<node-index>>>),
    enum-type(list<string>),
    flags-type(list<string>),
    tuple-type(list<node-index>),
    list-type(node-index),
    option-type(node-index),
    result-type(tuple<option<node-index>, option<node-index>>),
    prim-u8-type,
    prim-u16-type,
    prim-u32-type,
    prim-u64-type,
    prim-s8-type,
    prim-s16-type,
    prim-s32-type,
    prim-s64-type,
    prim-f32-type,
    prim-f64-type,
    prim-char-type,
    prim-bool-type,
    prim-string-type,
    handle-type(tuple<resource-id, resource-mode>),
  }
  record wit-type { nodes: list<wit-type-node> }
  record value-and-type { value: wit-value, typ: wit-type }

  parse-uuid: func(uuid: string) -> result<uuid, string>;
  uuid-to-string: func(uuid: uuid) -> string;
}
"""


def uuid_record(text: str) -> dict[str, int]:
    """Raises: ValueError unless the text is a UUID."""
    number = UUID(text).int
    return {"high-bits": number >> HALF, "low-bits": number & HALF_MASK}


def uuid_text(record: dict[str, int]) -> str:
    return str(UUID(int=record["high-bits"] << HALF | record["low-bits"]))


def parse_uuid(_state: Any, text: str) -> object:
    try:
        return Ok(uuid_record(text))
    except ValueError:
        return Err(f"{text!r} is not a UUID")


def uuid_to_string(_state: Any, uuid: dict[str, int]) -> str:
    return uuid_text(uuid)


RPC_TYPES: Final = host_interface(
    TYPES,
    "0.1|0.2",
    [Local("parse-uuid", parse_uuid), Local("uuid-to-string", uuid_to_string)],
)

TABLES: Final[tuple[InterfaceTable, ...]] = (RPC_TYPES,)
