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
