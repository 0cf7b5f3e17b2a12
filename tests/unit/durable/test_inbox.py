"""The inbox makes the calls of other threads until it is stopped, cancelled or not."""

import threading

import pytest
import trio
import trio.testing

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
