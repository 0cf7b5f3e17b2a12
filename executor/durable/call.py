"""One durable call, from the guest's request to the answer it observes.

Each row of a host module's table becomes one callable that Wasmtime's boundary invokes with lifted
arguments. This is the hot path: everything that depends only on the function's type is compiled
once, here.

Replaying: encode the request, claim the `start`, take its terminal, answer. Live: append the
`start`, perform, append the `end`, answer. A call that was recorded and never ended is performed
again under its own `start`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from executor.durable.definition import (
    NOT_READY,
    TO_RECORD,
    Awaited,
    HostFunctionRow,
    Local,
    Recorded,
    Written,
)
from executor.durable.effects import Effect
from executor.durable.function_type import WRITE_LOCAL
from executor.errors import BadArguments, GuestError
from executor.wasm.check import compile_canonical
from executor.wasm.host_function import PENDING, HostFunction
from executor.wasm.plain import STUMBLES, Convert, compile_plain, misread
from executor.wasm.types import FuncType, WitType
from executor.wasm.weight import check_weight
from executor.wasm.wit import parse_type
from oplog.codec import UNREADABLE, encode_value, read_value
from oplog.entry import ABSENT, EMPTY_ARRAY, Raw
from oplog.errors import OplogCorruptError

EncodeRequest = Callable[[tuple[object, ...]], Raw]


def host_function(
    interface: str, row: HostFunctionRow, function_type: FuncType, uses: dict[str, WitType]
) -> HostFunction:
    """The callable of one row. `uses` are the interface's named types, for a row's `answer`."""
    function = f"{interface}.{row.name}" if interface else row.name
    if isinstance(row, Local):
        return HostFunction(name=row.name, type=function_type, call=row.call, answer=row.answer)
    encode = compile_request(function_type)
    if isinstance(row, Written):
        call = written_call(function, row, encode, AnswerCodec(function_type.result))
        return HostFunction(name=row.name, type=function_type, call=call)
    answer_type = function_type.result if row.answer is None else parse_type(row.answer, uses)
    answer = AnswerCodec(answer_type)
    if isinstance(row, Recorded):
        call = recorded_call(function, row, encode, answer)
        if row.local is not None:
            call = local_or_recorded(row.local, call)
        return HostFunction(name=row.name, type=function_type, call=call, answer=answer_type)
    if row.asked is not None:
        encode = less_than_all(row.asked)
    call = awaited_call(function, row, encode, answer)
    if row.local is not None:
        call = local_or_awaited(row.local, call)
    return HostFunction(
        name=row.name, type=function_type, call=call, waits=True, answer=answer_type
    )


def local_or_recorded(
    local: Callable[..., object], recorded: Callable[..., object]
) -> Callable[..., object]:
    def call(state: Any, *arguments: object) -> object:
        value = local(state, *arguments)
        return recorded(state, *arguments) if value is TO_RECORD else value

    return call


def local_or_awaited(
    local: Callable[..., object], awaited: Callable[..., object]
) -> Callable[..., object]:
    def call(state: Any, pending: Any, *arguments: object) -> object:
        value = local(state, *arguments)
        return awaited(state, pending, *arguments) if value is TO_RECORD else value

    return call


class AnswerCodec:
    """Between a call's answer and the raw `response` of its `end`."""

    __slots__ = ("_canonical", "decode", "encode", "type")

    encode: Callable[[object], Raw]
    decode: Callable[[Raw, int], object]
    """`index` is that of the call; OplogCorruptError names it."""

    def __init__(self, answer_type: WitType | None) -> None:
        self.type = answer_type
        if answer_type is None:
            self.encode, self.decode = absent, nothing
            return
        to_plain, from_plain = compile_plain(answer_type)
        self._canonical = compile_canonical(answer_type)
        raw, encode = Raw, encode_value
        if to_plain is None:
            self.encode = lambda answer: raw(encode(answer))
        else:
            self.encode = lambda answer: raw(encode(to_plain(answer)))
        self.decode = answer_decoder(answer_type, from_plain)

    def checked(self, answer: object, function: str) -> object:
        """The canonical value of an answer that foreign code gave.

        Raises: GuestError naming the function, the place in its answer, and what belongs there; or
        what an answer that is an object of foreign code raised when it was read.
        """
        if self.type is None:
            return None
        try:
            return self._canonical(answer)
        except BadArguments as error:
            cause: Exception = error
            why = f"a value of another type: {error.message}"
        except Exception as error:
            given, raised = type(answer).__name__, type(error).__name__
            why, cause = f"a {given} that cannot be read: {raised}", error
        raise GuestError(f"{function} answered {why}", where=function) from cause


def absent(_answer: object) -> Raw:
    return ABSENT


def nothing(_response: Raw, _index: int) -> None:
    """What a function without a result answers."""


def answer_decoder(answer_type: WitType, back: Convert | None) -> Callable[[Raw, int], object]:
    read = read_value

    def decode(response: Raw, index: int) -> object:
        try:
            plain = read(response)
            return plain if back is None else back(plain)
        except (OplogCorruptError, *UNREADABLE) as error:
            damage: Exception = error
        except STUMBLES as error:
            damage = misread(answer_type, read(response), error)
            if damage is error:
                raise
        raise OplogCorruptError(
            f"the answer to the call at entry {index} is damaged: {damage}"
        ) from damage

    return decode


def compile_request(function_type: FuncType) -> EncodeRequest:
    """Arguments to the canonical bytes of one array."""
    converters = [compile_plain(wit_type)[0] for _, wit_type in function_type.params]
    if not converters:
        return no_request
    if all(converter is None for converter in converters):
        return plain_request

    def encode(arguments: tuple[object, ...]) -> Raw:
        return Raw(
            encode_value(
                [
                    argument if converter is None else converter(argument)
                    for converter, argument in zip(converters, arguments, strict=True)
                ]
            )
        )

    return encode


def no_request(arguments: tuple[object, ...]) -> Raw:
    assert not arguments
    return EMPTY_ARRAY


def plain_request(arguments: tuple[object, ...]) -> Raw:
    return Raw(encode_value(arguments))


def less_than_all(asked: Callable[..., tuple[object, ...]]) -> EncodeRequest:
    return lambda arguments: plain_request(asked(*arguments))


def recorded_call(
    function: str, row: Recorded, encode: EncodeRequest, codec: AnswerCodec
) -> Callable[..., object]:
    """A serialized call that never waits."""
    kind = row.function_type
    action = row.action
    observe = row.observe
    encode_answer = codec.encode
    decode_answer = codec.decode

    def call(state: Any, *arguments: object) -> object:
        session = state.session
        request = encode(arguments)
        index = 0
        if not session.live:
            index, response = session.claim(function, kind, request)
            if response is not None:
                answer = decode_answer(response, index)
                return answer if observe is None else observe(state, answer, *arguments)
        if not index:
            index = session.append_start(function, kind, request)
        answer = action(state, *arguments)
        session.append_end(index, encode_answer(answer))
        return answer if observe is None else observe(state, answer, *arguments)

    def call_without_arguments(state: Any) -> object:
        session = state.session
        if not session.live:
            return call(state)
        index = session.append_start(function, kind, EMPTY_ARRAY)
        answer = action(state)
        session.append_end(index, encode_answer(answer))
        return answer

    return call_without_arguments if encode is no_request and observe is None else call


def written_call(
    function: str, row: Written, encode: EncodeRequest, codec: AnswerCodec
) -> Callable[..., object]:
    """A serialized call that never waits and writes rows with its `end`."""

    def call(state: Any, *arguments: object) -> object:
        session = state.session
        request = encode(arguments)
        index = 0
        if not session.live:
            index, response = session.claim(function, WRITE_LOCAL, request)
            if response is not None:
                return codec.decode(response, index)
        if not index:
            index = session.append_start(function, WRITE_LOCAL, request)
        answer, rows = row.action(state, index, *arguments)
        with session.writer.lock:
            session.append_end(index, codec.encode(answer))
            session.writer.attach(rows)
        return answer

    return call


def awaited_call(
    function: str, row: Awaited, encode: EncodeRequest, codec: AnswerCodec
) -> Callable[..., object]:
    """A serialized call during which the guest may wait for an effect in trio."""
    kind = row.function_type
    action = row.action
    attempt = row.attempt
    observe = row.observe
    keyed = row.keyed

    def seen(state: Any, answer: object, arguments: tuple[object, ...]) -> object:
        return answer if observe is None else observe(state, answer, *arguments)

    def call(state: Any, pending: Any, *arguments: object) -> object:
        session = state.session
        request = encode(arguments)
        index = 0
        if not session.live:
            index, response = session.claim(function, kind, request)
            if response is not None:
                return seen(state, codec.decode(response, index), arguments)
        if not index:
            index = session.append_start(function, kind, request)
        if attempt is not None:
            answer = attempt(state, *arguments)
            if answer is not NOT_READY:
                session.append_end(index, codec.encode(answer))
                return seen(state, answer, arguments)
        key = session.key_of(index, kind)

        def answered(answer: object) -> object:
            value = codec.checked(answer, function)
            response = codec.encode(value)
            check_weight([(codec.type, value)], response, "the answer takes", function)
            session.append_end(index, response)
            return seen(state, value, arguments)

        session.call_key = key
        effect = Effect(
            function=function,
            function_type=kind,
            key=key,
            run=partial(action, state, *arguments),
            keyed=keyed,
        )
        session.perform(index, effect, answered, pending)
        return PENDING

    return call
