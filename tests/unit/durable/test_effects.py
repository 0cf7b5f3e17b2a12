import pytest
import trio
import trio.testing

from executor.durable.effects import Effect, TrioEffects, perform_effect
from executor.durable.inbox import Bell
from executor.errors import InternalError


def effect(run):
    return Effect(function="test", function_type="read-remote", key="", run=run)


@trio.testing.trio_test
async def test_an_effect_is_performed_though_the_one_before_was_cancelled_as_it_ended():
    bell = Bell()
    gate = trio.Event()
    answers = []

    async def sleep():
        await trio.sleep(0.01)
        return "slept"

    def done(answer, error):
        answers.append((answer, error))

    async with trio.open_nursery() as nursery:
        effects = TrioEffects(nursery, bell, perform_effect)
        first = effects.start(effect(gate.wait), done)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()  # its answer is on the way when it is cancelled
        first.cancel()
        effects.start(effect(sleep), done)
        await trio.sleep(0.3)
        nursery.cancel_scope.cancel()
    bell.close()
    assert ("slept", None) in answers


@trio.testing.trio_test
async def test_an_effect_that_fails_while_it_is_cancelled_has_ended_and_harms_no_other():
    bell = Bell()
    answers = []

    async def fail_at_the_end():
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cancelled")

    async def grouped():
        async with trio.open_nursery() as inner:
            inner.start_soon(fail_at_the_end)
            inner.start_soon(trio.sleep_forever)

    async with trio.open_nursery() as nursery:
        effects = TrioEffects(nursery, bell, perform_effect)
        handle = effects.start(effect(grouped), lambda *end: answers.append(end))
        await trio.testing.wait_all_tasks_blocked()
        handle.cancel()
        with trio.fail_after(10):
            await handle.wait()
        assert answers == [], "nobody hears of an effect that was cancelled"
        answered = trio.Event()

        async def later():
            await trio.lowlevel.checkpoint()
            return "later"

        effects.start(effect(later), lambda answer, error: answered.set())
        with trio.fail_after(10):
            await answered.wait()
        nursery.cancel_scope.cancel()
    bell.close()


@trio.testing.trio_test
async def test_an_effect_that_waits_holds_up_none_that_is_asked_for_later():
    bell = Bell()
    async with trio.open_nursery() as nursery:
        effects = TrioEffects(nursery, bell, perform_effect)
        for _ in range(100):
            effects.start(effect(trio.sleep_forever), lambda answer, error: None)
            await trio.testing.wait_all_tasks_blocked(0.001)
            answered = trio.Event()

            async def answer_at_once():
                return "at once"

            def done(answer, error, answered=answered):
                assert (answer, error) == ("at once", None)
                answered.set()

            effects.start(effect(answer_at_once), done)
            with trio.fail_after(10):
                await answered.wait()
        nursery.cancel_scope.cancel()
    bell.close()


def cancelled_by_nobody():
    return trio.Cancelled._create(source="explicit")


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
@pytest.mark.parametrize("grouped", [False, True], ids=["bare", "group"])
@trio.testing.trio_test
async def test_a_cancellation_of_nobody_is_told_as_a_failure_and_cancels_nobody(waits, grouped):
    bell = Bell()
    answers = []
    told = trio.Event()

    async def leave():
        if waits:
            await trio.lowlevel.checkpoint()
        bare = cancelled_by_nobody()
        raise BaseExceptionGroup("g", [bare, ValueError("no")]) if grouped else bare

    async def later():
        return "later"

    def done(answer, error):
        answers.append((answer, error))
        told.set()

    async with trio.open_nursery() as nursery:
        effects = TrioEffects(nursery, bell, perform_effect)
        handle = effects.start(effect(leave), done)
        with trio.fail_after(10):
            await told.wait()
            await handle.wait()
        [(answer, error)] = answers
        assert answer is None
        assert isinstance(error, InternalError)
        assert str(error) == "test was cancelled, and nobody had asked for it"
        told = trio.Event()
        effects.start(effect(later), done)
        with trio.fail_after(10):
            await told.wait()
        assert answers[1:] == [("later", None)]
        assert not nursery.cancel_scope.cancel_called
        nursery.cancel_scope.cancel()
    bell.close()


@pytest.mark.parametrize("how", ["handle", "nursery"])
@trio.testing.trio_test
async def test_an_effect_that_was_cancelled_is_told_to_nobody(how):
    bell = Bell()
    answers = []
    async with trio.open_nursery() as nursery:
        effects = TrioEffects(nursery, bell, perform_effect)
        handle = effects.start(effect(trio.sleep_forever), lambda *end: answers.append(end))
        await trio.testing.wait_all_tasks_blocked()
        (handle if how == "handle" else nursery.cancel_scope).cancel()
        with trio.CancelScope(shield=True), trio.fail_after(10):
            await handle.wait()
        nursery.cancel_scope.cancel()
    assert answers == []
    bell.close()
