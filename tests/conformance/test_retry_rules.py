"""Rules of a deployment: each failure is tried as often as its rule says, wherever it is met."""

import threading
from unittest.mock import patch

import pytest
import trio

from executor import Ok, RetryPolicy, RetryRule, Transient, host_function
from executor.errors import GuestError, GuestTrap, UsageError
from executor.server.client import ask
from executor.server.serving import open_served
from executor.worker.worker import Worker
from oplog.entry import Create, Error
from tests.support import guests
from tests.support.executors import LastingEngine, copy_oplog, opened, run, worker_entries
from tests.support.programs import RELAY, peer
from tests.support.rules_guest import RULES, WORKER, RulesPeer

DELAYS = {"min_delay_s": 0.001, "max_delay_s": 0.001, "max_jitter_factor": None}


def quick(attempts_max):
    return RetryPolicy(attempts_max=attempts_max, **DELAYS)


RETRY = (
    RetryRule(name="gone", errors=("no such",), policy=quick(1)),
    RetryRule(name="limited", errors=("rate-limited",), statuses=(429,), policy=quick(6)),
    RetryRule(name="server", functions=("demo:relay/*",), statuses=("5xx",), policy=quick(4)),
    RetryRule(name="elsewhere", functions=("*",), errors=("nobody says this",), policy=quick(9)),
    quick(2),
)
FAILURES = {
    "gone": (lambda: Transient("No such thing", status=503), 1, "gone"),
    "limited": (lambda: Transient("slow down", status=429, kind="rate-limited"), 6, "limited"),
    "server": (lambda: Transient("oops", status=502), 4, "server"),
    "other": (lambda: Transient("oops", status=404), 2, ""),
    "group": (lambda: ExceptionGroup("", [Transient(n, status=502) for n in "ab"]), 4, "server"),
}


class Failing:
    """A peer that fails as it is told; it counts how often it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, call, text):
        self.asked.append((call.key, text))
        failure, _, _ = FAILURES[text]
        raise failure()


def errors_of(engine, worker):
    return [entry for _, entry in worker_entries(engine, worker) if isinstance(entry, Error)]


@pytest.mark.parametrize("kind", ["read-remote", "write-remote"])
@pytest.mark.parametrize("text", FAILURES)
def test_a_failure_is_tried_as_often_as_its_rule_says(text, kind):
    async def case():
        engine, failing = LastingEngine(), Failing()
        _, attempts, rule = FAILURES[text]
        async with opened(engine, host=[peer(failing, kind)]) as shem:
            await shem.deploy(RELAY, name="relay", retry=RETRY)
            with pytest.raises(GuestError, match=rf"\(after {attempts} attempts\)"):
                await shem.invoke("relay/w", "relay", [text], key="k")
            assert (await shem.replay("relay/w")).divergence is None
        assert len(failing.asked) == attempts
        assert len(set(failing.asked)) == 1, "under one key"
        assert [error.policy for error in errors_of(engine, "relay/w")] == [rule] * attempts

    run(case)


@pytest.mark.parametrize("text", FAILURES)
def test_attempts_are_counted_over_a_crash_at_every_entry(text):
    async def case():
        engine, failing = LastingEngine(), Failing()
        _, attempts, rule = FAILURES[text]
        async with opened(engine, host=[peer(failing)]) as shem:
            await shem.deploy(RELAY, name="relay", retry=RETRY)
            with pytest.raises(GuestError):
                await shem.invoke("relay/w", "relay", [text], key="k")
        entries = worker_entries(engine, "relay/w")
        pending, last_error = 2, len(entries) - 1
        assert isinstance(entries[last_error - 1][1], Error)
        for count in range(pending, len(entries) + 1):
            if count == last_error:
                continue  # it is committed with the outcome
            crashed, again = LastingEngine(), Failing()
            copy_oplog(engine, crashed, "relay/w", count)
            async with opened(crashed, host=[peer(again)], recover="all") as shem:
                outcome = await shem.wait("relay/w", "k")
            assert outcome.error.message.endswith(f"(after {attempts} attempts)"), count
            counted = [entry for _, entry in entries[:count] if isinstance(entry, Error)]
            assert len(again.asked) == attempts - len(counted), count
            policies = {error.policy for error in errors_of(crashed, "relay/w")}
            assert policies == {rule}, count

    run(case)


def test_the_last_failure_is_one_with_the_outcome():
    """What is committed of a worker has both or neither: a crash gives no further attempt."""
    apart = []
    append = Worker.append

    def append_and_look(worker, entry):
        index = append(worker, entry)
        if isinstance(entry, Error) and entry.retry_at is None:
            looking = threading.Thread(target=lambda: look(worker.writer.lock))
            looking.start()
            looking.join()
        return index

    def look(lock):
        apart.append(lock.acquire(blocking=False))
        if apart[-1]:
            lock.release()

    async def case():
        async with opened(LastingEngine(), host=[peer(Failing())]) as shem:
            await shem.deploy(RELAY, name="relay", retry=RETRY)
            with pytest.raises(GuestError):
                await shem.invoke("relay/w", "relay", ["gone"])

    with patch.object(Worker, "append", append_and_look):
        run(case)
    assert apart == [False], "somebody could commit the one without the other"


def test_a_failure_in_an_atomic_region_is_tried_by_its_rule_too():
    async def case():
        rules_peer = RulesPeer()

        async def fail(_call, step):
            raise Transient("gone" if step == 1 else "busy")

        rules_peer.before = fail
        rules = [
            RetryRule(name="once", errors=("gone",), policy=quick(1)),
            RetryRule(name="often", functions=("demo:rules/peer.write",), policy=quick(5)),
        ]
        engine = LastingEngine()
        async with opened(engine, host=rules_peer.functions()) as shem:
            await shem.deploy(RULES, name="rules", retry=rules)
            for step, attempts in ((1, 1), (2, 5)):
                with pytest.raises(GuestError, match=rf"\(after {attempts} attempts\)"):
                    await shem.invoke(WORKER, "run", [f"b0 w{step} e0"])
                assert rules_peer.writes == [step] * attempts
                rules_peer.writes.clear()
                await shem.revert(WORKER, last=1)
        assert [error.policy for error in errors_of(engine, WORKER)] == ["once"] + ["often"] * 5

    run(case)


def test_a_trap_in_a_region_that_wrote_is_tried_by_a_rule_for_traps():
    async def case():
        rules_peer = RulesPeer()
        rules = [
            RetryRule(name="writes", functions=("demo:rules/*",), policy=quick(9)),
            RetryRule(name="traps", errors=("guest-trap",), policy=quick(4)),
        ]
        async with opened(LastingEngine(), host=rules_peer.functions()) as shem:
            await shem.deploy(RULES, name="rules", retry=rules)
            with pytest.raises(GuestTrap, match=r"\(after 4 attempts\)"):
                await shem.invoke(WORKER, "run", ["b0 w1 T. e0"])
        assert rules_peer.writes == [1] * 4

    run(case)


def test_what_a_guest_sets_replaces_the_workers_own_policy_and_no_rule():
    async def case():
        rules_peer = RulesPeer()

        async def fail(_call, step):
            raise Transient("gone" if step == 1 else "busy")

        rules_peer.before = fail
        rule = RetryRule(name="gone", errors=("gone",), policy=quick(4))
        async with opened(LastingEngine(), host=rules_peer.functions()) as shem:
            await shem.deploy(RULES, name="rules", retry=[rule, quick(3)])
            for program, attempts in (("p2 w1", 4), ("p2 w2", 2), ("w2", 3)):
                with pytest.raises(GuestError, match=rf"\(after {attempts} attempts\)"):
                    await shem.invoke(WORKER, "run", [program])
                await shem.revert(WORKER, last=1)

    run(case)


def test_a_living_worker_keeps_its_rules_whatever_is_deployed():
    async def case():
        engine, failing = LastingEngine(), Failing()
        other = [RetryRule(name="server", statuses=("5xx",), policy=quick(7)), quick(2)]
        async with opened(engine, host=[peer(failing)]) as shem:
            assert (await shem.deploy(RELAY, name="relay", retry=RETRY)).revision == 0
            assert await shem.invoke("relay/w", "count") == 0
            assert (await shem.deploy(RELAY, name="relay", retry=list(RETRY))).revision == 0
            assert (await shem.deploy(RELAY, name="relay", retry=other)).revision == 1
        async with opened(engine, host=[peer(failing)]) as shem:
            for worker, attempts in (("relay/w", 4), ("relay/new", 7)):
                with pytest.raises(GuestError, match=rf"\(after {attempts} attempts\)"):
                    await shem.invoke(worker, "relay", ["server"])
        (_, create), *_ = worker_entries(engine, "relay/w")
        assert isinstance(create, Create)
        assert [rule.name for rule in create.retry_rules] == [r.name for r in RETRY[:-1]]
        assert create.retry.attempts_max == 2

    run(case)


def test_a_pause_that_a_host_function_asks_for_is_kept():
    async def case():
        engine, times = LastingEngine(), []

        @host_function("demo:relay/peer", "call: func(text: string) -> result<string, string>")
        async def call(_call, text):
            times.append(trio.current_time())
            if len(times) < 2:
                raise Transient("busy", retry_after_s=0.2)
            return Ok(text)

        async with opened(engine, host=[call]) as shem:
            await shem.deploy(RELAY, name="relay", retry=quick(2))
            assert await shem.invoke("relay/w", "relay", ["a"]) == Ok("a")
        assert times[1] - times[0] >= 0.2

    run(case)


@pytest.mark.parametrize("function", ["demo:bank/*", "demo:relay/peer", "demo:relay/api.relay"])
def test_a_rule_for_what_is_not_imported_is_refused_and_nothing_is_deployed(function):
    async def case():
        rules = [RetryRule(name="typo", functions=(function,))]
        async with opened(LastingEngine(), host=[peer(Failing())]) as shem:
            with pytest.raises(UsageError, match="the component imports no function"):
                await shem.deploy(RELAY, name="relay", retry=rules)
            assert await shem.components() == ()

    run(case)


def test_rules_reach_the_process_that_runs_the_store(tmp_path):
    async def case():
        rules = [RetryRule(name="server", statuses=("5xx", 429), policy=quick(4))]
        async with open_served(tmp_path) as shem, ask(tmp_path, {}, None) as asked:
            await asked.deploy(guests.ADDER, name="adder", retry=[*rules, quick(3)])
            (revision,) = (await shem.component("adder")).revisions
            assert revision.retry.attempts_max == 3
            assert [(rule.name, rule.statuses) for rule in revision.retry_rules] == [
                ("server", ("5xx", "429"))
            ]

    run(case)
