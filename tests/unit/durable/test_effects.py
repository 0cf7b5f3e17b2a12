import trio
import trio.testing

from executor.durable.effects import Effect, TrioEffects, perform_effect
from executor.durable.inbox import Bell


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
