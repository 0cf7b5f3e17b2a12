"""What a durable call does to the world, and so what recovery may do with one that never ended.

| type         | effect starts                 | `start` without `end` after a crash             |
|--------------|-------------------------------|-------------------------------------------------|
| read-local   | at once                       | runs again                                      |
| write-local  | at once                       | runs again                                      |
| read-remote  | at once                       | runs again                                      |
| write-remote | once its start is committed   | runs again under the same start and the same    |
|              |                               | derived key while idempotence mode is on; with  |
|              |                               | it off the worker's owner decides               |

Two more are those of scopes, calls that hold others (`durable/scopes.py`): `write-remote-batched`
and `write-remote-transaction` are never performed again by themselves, only as a whole.
"""

from typing import Final, Literal

FunctionType = Literal[
    "read-local",
    "write-local",
    "read-remote",
    "write-remote",
    "write-remote-batched",
    "write-remote-transaction",
]

READ_LOCAL: Final = "read-local"
WRITE_LOCAL: Final = "write-local"
READ_REMOTE: Final = "read-remote"
WRITE_REMOTE: Final = "write-remote"
WRITE_REMOTE_BATCHED: Final = "write-remote-batched"
REMOTE: Final = frozenset({READ_REMOTE, WRITE_REMOTE})


def may_repeat(function_type: str, *, idempotent: bool) -> bool:
    """Whether an incomplete call of this type may be performed again under its own `start`."""
    if function_type == WRITE_REMOTE:
        return idempotent
    return function_type in {READ_LOCAL, WRITE_LOCAL, READ_REMOTE}
