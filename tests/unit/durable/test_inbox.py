"""The inbox makes the calls of other threads until it is stopped, cancelled or not."""

import signal
import threading

import pytest
import trio
import trio.testing

from executor.cli.output import leaf_error
from executor.durable.inbox import Inbox, setting


@pytest.fixture
def inbox():
    inbox = Inbox()
    yield inbox
    inbox.close()


def post_apart(inbox, *calls):
    """From another thread."""
    thread = threading.Thread(target=lambda: [inbox.post(*call) for call in calls])
    thread.start()
    thread.join()


@trio.testing.trio_test
async def test_calls_are_made_in_order_on_the_trio_thread(inbox):
    seen = []
    done = trio.Event()

    def see(number):
        seen.append((number, threading.current_thread()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run)
        post_apart(inbox, *((see, number) for number in range(100)), (done.set,))
        with trio.fail_after(5):
            await done.wait()
        inbox.stop()
    assert seen == [(number, threading.current_thread()) for number in range(100)]


@trio.testing.trio_test
async def test_calls_are_made_though_the_nursery_was_cancelled_until_the_inbox_is_stopped(inbox):
    heard = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.move_on_after(5):
            await trio.testing.wait_all_tasks_blocked()
            post_apart(inbox, (heard.set,))
            await heard.wait()
        inbox.stop()
    assert heard.is_set()


@trio.testing.trio_test
async def test_what_is_posted_to_an_inbox_that_was_stopped_is_dropped():
    inbox = Inbox()
    late = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.run)
        await trio.testing.wait_all_tasks_blocked()
        inbox.stop()
        post_apart(inbox, (late.set,))
    inbox.close()
    post_apart(inbox, (late.set,))
    assert not late.is_set()


def test_an_event_is_set_from_any_thread_and_nothing_happens_once_trio_has_ended():
    async def waiting():
        event = trio.Event()
        set_soon = setting(event)
        thread = threading.Thread(target=set_soon)
        thread.start()
        with trio.fail_after(5):
            await event.wait()
        thread.join()
        return setting(trio.Event())

    late = trio.run(waiting)
    late()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_interrupts_the_block_that_is_served_ends_it_and_its_tasks(inbox, error):
    """A Ctrl-C may come between any two steps of an opening."""

    async def case():
        posted = trio.Event()
        with trio.fail_after(30):
            async with inbox.served() as nursery:
                nursery.start_soon(trio.sleep_forever)
                inbox.post(posted.set)
                await posted.wait()
                raise error

    with pytest.raises(BaseException) as raised:
        trio.run(case)
    assert isinstance(leaf_error(raised.value), error)


def test_a_ctrl_c_does_not_end_who_makes_the_calls(inbox):
    """It is for the task that opened; the calls that its leaving waits for are made."""
    made = []

    async def case():
        left = trio.Event()
        async with inbox.served():
            inbox.post(signal.raise_signal, signal.SIGINT)
            try:
                await trio.sleep_forever()
            finally:
                inbox.post(left.set)
                with trio.move_on_after(30, shield=True):
                    await left.wait()
                    made.append("left")

    with pytest.raises(BaseException) as raised:
        trio.run(case)
    assert isinstance(leaf_error(raised.value), KeyboardInterrupt)
    assert made == ["left"]
