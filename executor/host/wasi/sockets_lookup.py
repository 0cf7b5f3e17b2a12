"""wasi:sockets/ip-name-lookup: where names lead, by the system's resolver.

One deferred call a name: its answer is recorded whole, and given to the guest one address after
another. A name that no rule names is not looked up. An address in the place of a name is answered
as it is.
"""

from functools import partial
from typing import Any, Final

from executor.durable.deferred import DeferredCall
from executor.durable.deferred_function import DeferredFunction
from executor.durable.definition import Local, NotReady
from executor.durable.function_type import READ_REMOTE
from executor.durable.retry import TransientAnswer
from executor.host.interface import InterfaceTable, host_interface
from executor.host.pollables import AlwaysReady, Pollable, Watched
from executor.host.state import HostState
from executor.host.wasi.sockets_network import (
    FAILED,
    TYPES,
    Network,
    denied,
    ip_text,
    observed_failure,
    recorded_failure,
    wit_ip,
)
from executor.services.egress import ascii_name, is_name, literal_address
from executor.services.sockets import SocketFailure
from executor.wasm.values import Err, Ok

LOOK_UP: Final = DeferredFunction(
    "wasi:sockets/ip-name-lookup",
    f"resolve-addresses: func(name: string) -> result<list<ip-address>, {FAILED}>",
    TYPES,
)


class Addresses:
    """A `resolve-address-stream`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.call: DeferredCall | None = None
        self.left: list[object] = []
        """What the guest has yet to be given, once the answer is there; the next one last."""
        self.failure: str | None = None


def resolve_addresses(state: Any, network: int, name: str) -> Ok | Err:
    state.handles.get(network, Network)
    stream = Addresses(name)
    address = literal_address(name)
    if address is not None:
        stream.left = [wit_ip(str(address))]
    elif not is_name(ascii_name(name)):
        return Err("invalid-argument")
    else:
        run = partial(find, state, name)
        stream.call = LOOK_UP.begin(state.session.deferred, READ_REMOTE, (name,), run)
    return Ok(state.handles.add(stream))


async def find(state: HostState, name: str, _call: DeferredCall) -> Ok | Err:
    """The answer of the call. Raises: TransientAnswer."""
    refused = state.egress.check_name(name)
    if refused is not None:
        return recorded_failure(denied(refused))
    assert state.outside is not None
    found = await state.outside.sockets.look_up(name)
    if isinstance(found, SocketFailure):
        answer = recorded_failure(found)
        if found.code == "temporary-resolver-failure":
            raise TransientAnswer(found.message, answer)
        return answer
    return Ok([wit_ip(text) for text in found])


def resolve_next(state: Any, number: int) -> Ok | Err:
    stream = state.handles.get(number, Addresses)
    if stream.call is not None:
        answer = LOOK_UP.read(state.session.deferred, stream.call)
        if isinstance(answer, NotReady):
            return Err("would-block")
        stream.call = None
        if isinstance(answer, Err):
            failed = observed_failure(state, answer.value)
            stream.failure = str(failed.value)
            return failed
        assert isinstance(answer, Ok)
        found: Any = answer.value
        state.network.learn(stream.name, map(ip_text, found))
        stream.left = list(reversed(found))
    if stream.failure is not None:
        return Err(stream.failure)
    return Ok(stream.left.pop() if stream.left else None)


def subscribe(state: Any, number: int) -> int:
    call = state.handles.get(number, Addresses).call
    pollable: Pollable = AlwaysReady()
    if call is not None:
        pollable = Watched(call.signal, lambda: bool(state.session.deferred.is_ready(call)))
    added: int = state.handles.add(pollable)
    return added


def drop_stream(state: Any, number: int) -> None:
    stream = state.handles.drop(number)
    if stream.call is not None:
        state.session.deferred.drop(stream.call)


IP_NAME_LOOKUP: Final[InterfaceTable] = host_interface(
    """
    interface wasi:sockets/ip-name-lookup {
        use wasi:io/poll.{pollable};
        use network.{network, error-code, ip-address};
        resource resolve-address-stream {
            resolve-next-address: func() -> result<option<ip-address>, error-code>;
            subscribe: func() -> pollable;
        }
        resolve-addresses: func(network: borrow<network>, name: string)
            -> result<resolve-address-stream, error-code>;
    }
    """,
    "0.2",
    [
        Local("resolve-addresses", resolve_addresses),
        Local("[method]resolve-address-stream.resolve-next-address", resolve_next),
        Local("[method]resolve-address-stream.subscribe", subscribe),
    ],
    drops={"resolve-address-stream": drop_stream},
    uses=TYPES,
)
