"""`golem:api/host@1.1.x`: what a guest may ask of its own durability."""

from typing import Any, Final

from executor.durable.definition import Awaited
from executor.durable.function_type import WRITE_LOCAL
from executor.host.interface import InterfaceTable, host_interface

HOST: Final = """
interface golem:api/host@1.1.6 {
  oplog-commit: func(replicas: u8);
}
"""


async def oplog_commit(state: Any, replicas: int) -> None:
    """Returns once everything before is durable. One machine is every replica there is."""
    del replicas
    await state.session.commit()


TABLES: Final[tuple[InterfaceTable, ...]] = (
    host_interface(
        HOST,
        "1.1",
        [Awaited(name="oplog-commit", function_type=WRITE_LOCAL, action=oplog_commit)],
    ),
)
