"""What an exception of an embedder's function is told as."""

import pytest
import trio
from trio.testing import trio_test

from executor.durable.retry import TransientError
from executor.errors import GuestError
from executor.host.foreign_errors import as_told


def forged():
    return trio.Cancelled._create(source="explicit")


@pytest.mark.parametrize(
    ("given", "kind"),
    [({}, ""), ({"kind": "busy"}, "busy"), ({"kind": None}, ""), ({"kind": 7}, "7")],
)
def test_a_transient_error_says_what_kind_it_is_as_text(given, kind):
    told = as_told(TransientError("no", **given))
    assert isinstance(told, TransientError)
    assert (str(told), told.kind) == ("no", kind)


def test_of_several_transient_errors_counts_what_all_of_them_say():
    one = TransientError("a", status=503, kind="busy", retry_after_s=1)
    two = TransientError("b", status=503, kind="slow", retry_after_s=2)
    told = as_told(ExceptionGroup("g", [one, ExceptionGroup("h", [two])]))
    assert isinstance(told, TransientError)
    assert (str(told), told.status, told.kind, told.retry_after_s) == ("a; b", 503, "", 2)


@trio_test
async def test_a_cancellation_is_passed_on_where_the_call_is_cancelled_and_a_failure_elsewhere():
    cancelled = forged()
    with trio.CancelScope() as scope:
        await trio.lowlevel.checkpoint()
        assert isinstance(as_told(cancelled), GuestError)
        scope.cancel()
        assert as_told(cancelled) is cancelled
        assert as_told(BaseExceptionGroup("g", [ValueError("no"), cancelled])) is cancelled
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
            assert isinstance(as_told(cancelled), GuestError)
    assert isinstance(as_told(cancelled), GuestError), "it is over"


def test_a_cancellation_in_a_thread_is_nobody_s():
    assert isinstance(as_told(forged()), GuestError)


def test_an_exception_with_parts_without_end_is_told_by_its_class():
    error = ValueError("no")
    for _ in range(5_000):
        error = ExceptionGroup("g", [error])
    told = as_told(error)
    assert isinstance(told, GuestError)
    assert told.message.startswith("ExceptionGroup, which cannot be read: RecursionError")
