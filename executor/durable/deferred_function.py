"""What a host module uses to make deferred calls of one function: its name and its codecs.

    HANDLE = DeferredFunction("wasi:http/outgoing-handler", "handle: func(url: string) -> u16")

    call = HANDLE.begin(state.session.deferred, READ_REMOTE, (url,), run)    # the guest goes on
    answer = HANDLE.read(state.session.deferred, call)    # NOT_READY: it is not there yet

The WIT text says what is recorded: the parameters are the request, the result is the answer; they
need not be those of the function that the guest called. `run(call)` performs the effect in trio and
gives the answer; it is a function of the worker's state and the request, since it runs again after
a crash. Rows that call `begin`, `read` and `state.session.deferred.drop` are `Local`: what they
record is their call's own, in both modes.
"""

from collections.abc import Callable, Mapping

from executor.durable.call import AnswerCodec, compile_request
from executor.durable.deferred import DeferredCall, DeferredCalls
from executor.durable.definition import NOT_READY, NotReady
from executor.durable.effects import Steps
from executor.durable.function_type import FunctionType
from executor.wasm.types import WitType
from executor.wasm.wit import parse_function


class DeferredFunction:
    """Made once, when the host module is imported; used on lanes."""

    def __init__(
        self,
        interface: str,
        text: str,
        uses: Mapping[str, WitType] | None = None,
        *,
        keyed: bool = False,
    ) -> None:
        """`text` is one WIT function; `uses` are the named types in it. `keyed` says that a peer
        hears the key of a call.
        """
        self._keyed = keyed
        name, function_type = parse_function(text, uses)
        self.function = f"{interface}.{name}"
        self._encode_request = compile_request(function_type)
        self.answer = function_type.result
        self._answers = AnswerCodec(function_type.result)

    def begin(
        self,
        calls: DeferredCalls,
        function_type: FunctionType,
        request: tuple[object, ...],
        run: Callable[[DeferredCall], Steps],
        *,
        idempotent: bool = False,
    ) -> DeferredCall:
        """Begins the call, or claims the recorded one; the effect starts once its instance is live,
        a write-remote one, or one that is keyed, once its start is committed. An `idempotent` write
        may be repeated whatever the mode. Raises: Divergence, LeaveGuest.
        """
        call = DeferredCall(
            self.function,
            function_type,
            run,
            self._answers.encode,
            idempotent=idempotent,
            keyed=self._keyed,
        )
        calls.begin(call, self._encode_request(request))
        return call

    def read(self, calls: DeferredCalls, call: DeferredCall) -> object | NotReady:
        """The answer, observed by the guest here; NOT_READY if it is not there yet. Once a call.

        Raises: Divergence, LeaveGuest, and what the effect failed with.
        """
        response = calls.read(call)
        return NOT_READY if response is None else self._answers.decode(response, call.index)

    def decode(self, call: DeferredCall) -> object:
        """What a call that is over has ended with."""
        return self._answers.decode(call.response, call.index)
