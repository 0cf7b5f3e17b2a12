"""`golem:api/host@1.1.x`: what a guest may ask of its own durability.

Marks (`executor.durable.marks`) are positional entries of their own; what reads the guest's modes
is answered from them, in both modes of the worker. Functions that concern updates, forks or reverts
are linked, since guests import them without calling them; a call leaves the guest with a sentence.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from executor.durable import marks
from executor.durable.definition import Awaited, HostFunctionRow, Local, Recorded
from executor.durable.function_type import READ_LOCAL, WRITE_LOCAL, WRITE_REMOTE
from executor.errors import GuestError, LimitError
from executor.host.golem import others, promises
from executor.host.golem.rpc import RPC_TYPES, uuid_record
from executor.host.golem.wit import HOST
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState
from executor.wasm.values import Variant

NS_PER_S: Final = 1_000_000_000
U64_MAX: Final = 2**64 - 1
"""A guest's longest delay; a float of that size is rounded up."""
INTERFACE: Final = "golem:api/host"

NOT_OFFERED: Final = (
    "update-worker",
    "fork-worker",
    "revert-worker",
    "fork",
)


async def oplog_commit(state: Any, replicas: int) -> None:
    """Returns once everything before is durable. One machine is every replica there is."""
    del replicas
    await state.session.commit()


async def generate_key(state: Any) -> dict[str, int]:
    """The derived key of this very call: the same in every attempt."""
    return uuid_record(state.session.call_key)


def read_metadata(state: HostState) -> dict[str, object]:
    """The worker as it sees itself: it runs, since it asks."""
    own = state.identity
    return {
        "worker-id": {
            "component-id": {"uuid": uuid_record(own.component_id)},
            "worker-name": own.name,
        },
        "args": list(state.arguments),
        "env": list(state.environment),
        "status": "running",
        "component-version": own.revision,
        "retry-count": own.retry_count,
    }


def read_policy(state: Any) -> dict[str, object]:
    policy = state.session.modes.policy
    return {
        "max-attempts": policy.attempts_max,
        "min-delay": min(round(policy.min_delay_s * NS_PER_S), U64_MAX),
        "max-delay": min(round(policy.max_delay_s * NS_PER_S), U64_MAX),
        "multiplier": policy.multiplier,
        "max-jitter-factor": policy.max_jitter_factor,
    }


def set_policy(state: Any, policy: dict[str, Any]) -> None:
    factors = (policy["multiplier"], policy["max-jitter-factor"] or 0.0)
    if not all(math.isfinite(factor) and factor >= 0 for factor in factors):
        raise GuestError(
            "set-retry-policy: multiplier and max-jitter-factor are finite and not negative",
            where=INTERFACE,
        )
    marks.set_retry_policy(
        state.session,
        attempts_max=policy["max-attempts"],
        delays_ns=(policy["min-delay"], policy["max-delay"]),
        multiplier=policy["multiplier"],
        max_jitter_factor=policy["max-jitter-factor"],
    )


def not_offered(name: str) -> Local:
    def refuse(*_: object) -> object:
        raise LimitError(
            f"{INTERFACE}.{name} is not offered yet: no forks, updates or reverts",
            where=INTERFACE,
            hint="the function may be imported, but not called",
        )

    return Local(name, refuse)


def on_session(call: Callable[..., object]) -> Callable[..., object]:
    """A function of the session as one of the host's state."""

    def called(state: Any, *arguments: object) -> object:
        return call(state.session, *arguments)

    return called


def read_mode(state: Any, name: str) -> object:
    return getattr(state.session.modes, name)


ROWS: Final[tuple[HostFunctionRow, ...]] = (
    Local("get-oplog-index", on_session(marks.read_index)),
    Local("set-oplog-index", on_session(marks.jump)),
    Awaited(name="oplog-commit", function_type=WRITE_LOCAL, action=oplog_commit),
    Local("mark-begin-operation", on_session(marks.begin_region)),
    Local("mark-end-operation", on_session(marks.end_region)),
    Recorded(name="get-retry-policy", function_type=READ_LOCAL, action=read_policy),
    Local("set-retry-policy", set_policy),
    Local(
        "get-oplog-persistence-level",
        lambda state: Variant(state.session.modes.level),
    ),
    Local(
        "set-oplog-persistence-level",
        lambda state, level: marks.set_persistence_level(state.session, level.case),
    ),
    Local("get-idempotence-mode", partial(read_mode, name="idempotent")),
    Local("set-idempotence-mode", on_session(marks.set_idempotence_mode)),
    Awaited(name="generate-idempotency-key", function_type=WRITE_REMOTE, action=generate_key),
    Recorded(name="get-self-metadata", function_type=READ_LOCAL, action=read_metadata),
    *others.ROWS,
    *promises.ROWS,
    *(not_offered(name) for name in NOT_OFFERED),
)

TABLES: Final[tuple[InterfaceTable, ...]] = (
    host_interface(HOST, "1.1", ROWS, uses=RPC_TYPES.wit.types),
)
