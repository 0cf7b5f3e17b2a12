"""What an exception of an embedder's function means to the worker: transient, or a failure.

Its class, and every text and attribute of it, are the embedder's code too: whatever reading them
raises is no error of the executor's.
"""

import math
import signal
from collections.abc import Iterator, Sequence
from traceback import walk_tb
from typing import Final, NoReturn

import trio

from executor.durable.retry import TransientError
from executor.errors import GuestError

ENDING: Final = (signal.SIGINT, signal.SIGTERM)


def raise_as_told(error: BaseException) -> NoReturn:
    """Raises what the worker is to hear of an exception that left a function."""
    told = as_told(error)
    if told is error:
        raise error
    raise told from error


def as_told(error: BaseException) -> BaseException:
    """A TransientError, a GuestError, or what the executor itself had raised in the function, as it
    is. Called where the function was.
    """
    try:
        leaves = list(exceptions_in(error))
        ours = [leaf for leaf in leaves if is_ours(leaf)]
        if ours:
            return next((leaf for leaf in ours if not isinstance(leaf, trio.Cancelled)), ours[0])
        transient = [leaf for leaf in leaves if isinstance(leaf, TransientError)]
        if len(transient) == len(leaves):
            return merged(transient)
        return GuestError("; ".join(map(error_text, leaves)))
    except BaseException as odd:
        if is_ours(odd):
            return odd
        name = type(error).__name__
        return GuestError(f"{name}, which cannot be read: {error_text(odd)}")


def is_ours(error: BaseException) -> bool:
    """Whether it is the cancellation of the call, or what ends the process, a Ctrl-C or SIGTERM:
    the handler of the signal raised that, not the function. A cancellation that was kept from
    another scope, or made, is the function's own.
    """
    if isinstance(error, trio.Cancelled):
        in_trio = trio.lowlevel.in_trio_task()
        return in_trio and trio.current_effective_deadline() == -math.inf
    if isinstance(error, Exception):
        return False
    answers = [getattr(signal.getsignal(number), "__code__", None) for number in ENDING]
    return any(frame.f_code in answers for frame, _ in walk_tb(error.__traceback__))


def error_text(error: BaseException) -> str:
    name = type(error).__name__
    text = text_of(error)
    return f"{name}: {text}" if text else name


def text_of(error: BaseException) -> str:
    """Empty if it cannot tell."""
    try:
        return str(error)
    except BaseException:  # the class is the embedder's as well
        return ""


def merged(errors: Sequence[TransientError]) -> TransientError:
    """Several at once as one: of what they say about themselves, what all of them say.

    Raises: TypeError, ValueError for what says something about itself that makes no sense.
    """
    statuses = {error.status for error in errors}
    kinds = {str(error.kind or "") for error in errors}
    return TransientError(
        "; ".join(text_of(error) or type(error).__name__ for error in errors),
        status=statuses.pop() if len(statuses) == 1 else None,
        kind=kinds.pop() if len(kinds) == 1 else "",
        retry_after_s=max(error.retry_after_s for error in errors),
    )


def exceptions_in(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, at whatever depth; an exception is its own group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from exceptions_in(inner)
    else:
        yield error
