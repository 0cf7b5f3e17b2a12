"""Deployments: how revisions are numbered, and what is deployed with them."""

import time

import pytest
import trio

from executor import RetryPolicy, RetryRule, Transient
from executor.errors import GuestError, UsageError
from executor.records import InitialFile
from executor.server.client import ask
from executor.server.serving import open_served
from executor.wasm.engine import memory_bytes_min, table_elements_min
from oplog.entry import Create, Error
from tests.support import guests
from tests.support.engines import Hold
from tests.support.executors import LastingEngine, opened, run, until, worker_entries
from tests.support.programs import RELAY, echo, peer
from tests.support.rules_guest import RULES, WORKER, RulesPeer

QUICK = RetryPolicy(
    attempts_max=5, min_delay_s=0.001, max_delay_s=0.002, multiplier=1.0, max_jitter_factor=0.0
)


def test_deployments_of_one_name_at_the_same_time_get_a_revision_each():
    async def case():
        engine = LastingEngine(on_write=lambda batches: time.sleep(0.05))
        async with opened(engine, host=[echo()]) as shem:
            got = []

            async def deploy(wasm, value):
                got.append(await shem.deploy(wasm, name="c", env={"A": value}))

            async with trio.open_nursery() as nursery:
                for wasm in (guests.ADDER, RELAY):
                    for value in "1223":
                        nursery.start_soon(deploy, wasm, value)
            stored = (await shem.component("c")).revisions
            assert [revision.revision for revision in stored] == list(range(6))
            digests = {revision.revision: revision.digest for revision in stored}
            assert all(digests[one.revision] == one.digest for one in got)
            assert {one.revision for one in got} == set(range(6))
            assert len({one.id for one in got}) == 1

    run(case)


OPTIONS = (
    {},
    {"env": {"A": "1"}},
    {"env": {"A": "2"}},
    {"env": {"A": "1", "B": ""}},
    {"config": {"A": "1"}},
    {"limits": {"memory": 1 << 20}},
    {"limits": {"memory": 2 << 20}},
    {"files": [InitialFile(path="/a", content=b"one", writable=False)]},
    {"files": [InitialFile(path="/a", content=b"two", writable=False)]},
    {"files": [InitialFile(path="/b", content=b"one", writable=False)]},
    {"files": [InitialFile(path="/a", content=b"one", writable=True)]},
    {"allow_net": ["example.com"]},
    {"retry": QUICK},
    {"retry": [RetryRule(name="r", errors=("busy",), policy=QUICK)]},
)


def test_the_same_bytes_and_options_are_the_revision_that_is_there_and_any_other_is_new():
    async def case():
        async with opened(LastingEngine()) as shem:

            async def deploy(options):
                return (await shem.deploy(guests.ADDER, name="c", **options)).revision

            assert [await deploy(options) for options in OPTIONS] == list(range(len(OPTIONS)))
            assert [await deploy(options) for options in OPTIONS] == list(range(len(OPTIONS)))
            turned = {"env": {"B": "", "A": "1"}}
            assert await deploy(turned) == OPTIONS.index({"env": {"A": "1", "B": ""}})

    run(case)


def test_a_deployment_that_is_cancelled_in_its_commit_keeps_its_number():
    async def case():
        hold = Hold()
        async with opened(LastingEngine(on_write=hold), host=[echo()]) as shem:
            scope = trio.CancelScope()
            stages = []
            second = []

            async def deploy_first():
                with scope:
                    await shem.deploy(guests.ADDER, name="c")

            async def deploy_second():
                second.append(await shem.deploy(RELAY, name="c", progress=stages.append))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(deploy_first)
                await until(hold.entered.is_set)
                scope.cancel()
                nursery.start_soon(deploy_second)
                await until(lambda: "storing" in stages)
                hold.go.set()
            assert [one.revision for one in second] == [1]
            stored = (await shem.component("c")).revisions
            assert [revision.revision for revision in stored] == [0, 1]

    run(case)


# -- retry policy ----------------------------------------------------------------------------------


def busy(_call, _text):
    raise Transient("busy")


def test_workers_retry_by_the_policy_of_their_revision_and_keep_it():
    async def case():
        engine = LastingEngine()
        async with opened(engine, host=[peer(busy)]) as shem:
            await shem.deploy(RELAY, name="relay", retry=QUICK)
            with pytest.raises(GuestError, match="after 5 attempts"):
                await shem.invoke("relay/w", "relay", ["a"])
            again = await shem.deploy(RELAY, name="relay", retry=QUICK)
            assert again.revision == 0
            default = await shem.deploy(RELAY, name="relay")
            assert default.revision == 1
        (_, create), *entries = worker_entries(engine, "relay/w")
        assert isinstance(create, Create)
        assert (create.retry.attempts_max, create.retry.min_delay_ns) == (5, 1_000_000)
        errors = [entry for _, entry in entries if isinstance(entry, Error)]
        assert [e.retry_at and e.retry_at - e.at for e in errors] == [10**6] * 4 + [None]

    run(case)


def test_a_retry_survives_the_process_and_counts_on_by_the_same_policy():
    async def case():
        engine, calls = LastingEngine(), []

        def fail(_call, text):
            calls.append(text)
            raise Transient("busy")

        slow = RetryPolicy(attempts_max=3, min_delay_s=0.2, max_delay_s=0.2, multiplier=1.0)
        async with opened(engine, host=[peer(fail)]) as shem:
            await shem.deploy(RELAY, name="relay", retry=slow)
            await shem.submit("relay/w", "relay", ["a"], key="k")
            await until(lambda: calls)
            with trio.move_on_after(0.05):
                await shem.wait("relay/w", "k")
        async with opened(engine, host=[peer(fail)], recover="all") as shem:
            outcome = await shem.wait("relay/w", "k")
        assert outcome.error.message.endswith("(after 3 attempts)")
        assert len(calls) == 3

    run(case)


def test_what_a_guest_sets_wins_over_what_was_deployed():
    async def case():
        engine, rules_peer = LastingEngine(), RulesPeer()

        async def fail(_call, _step):
            raise Transient("not now")

        rules_peer.before = fail
        async with opened(engine, host=rules_peer.functions()) as shem:
            await shem.deploy(RULES, name="rules", retry=QUICK)
            with pytest.raises(GuestError, match="after 2 attempts"):
                await shem.invoke(WORKER, "run", ["p2 w1"])
            await shem.revert(WORKER, last=1)
            with pytest.raises(GuestError, match="after 5 attempts"):
                await shem.invoke(WORKER, "run", ["w1"])

    run(case)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"attempts_max": 0}, "max-attempts is from 1"),
        ({"attempts_max": 2**32}, "max-attempts is from 1"),
        ({"min_delay_s": -1.0}, "a delay is from 0"),
        ({"max_delay_s": float("inf")}, "a delay is from 0"),
        ({"min_delay_s": 2.0}, "min-delay is not longer than max-delay"),
        ({"multiplier": float("nan")}, "multiplier and jitter are finite"),
        ({"max_jitter_factor": -0.1}, "multiplier and jitter are finite"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_and_nothing_is_deployed(policy, says):
    async def case():
        async with opened(LastingEngine()) as shem:
            with pytest.raises(UsageError, match=says):
                await shem.deploy(guests.ADDER, name="adder", retry=RetryPolicy(**policy))
            assert await shem.components() == ()

    run(case)


def test_options_reach_the_process_that_runs_the_store(tmp_path):
    async def case():
        async with open_served(tmp_path) as shem, ask(tmp_path, {}, None) as asked:
            await asked.deploy(guests.ADDER, name="adder", retry=QUICK, config={"a": "b"})
            await asked.deploy(guests.ADDER, name="plain")
            (revision,) = (await shem.component("adder")).revisions
            assert (revision.retry.attempts_max, revision.config) == (5, {"a": "b"})
            assert (await shem.component("plain")).revisions[0].retry is None

    run(case)


# -- memory ----------------------------------------------------------------------------------------

TWO_MEMORIES = b"""
(component
  (component
    (core module $M (memory 3) (memory 2 9))
    (core instance (instantiate $M)))
  (core module $N (memory 1) (func (export "f")))
  (core instance $n (instantiate $N))
  (func (export "f") (canon lift (core func $n "f"))))
"""


def test_a_memory_limit_below_what_the_component_begins_with_is_refused():
    async def case():
        async with opened(LastingEngine()) as shem:
            with pytest.raises(UsageError) as refused:
                await shem.deploy(TWO_MEMORIES, name="c", limits={"memory": 2 * 65_536})
            assert refused.value.message == (
                "a memory of the component begins with 196,608 bytes, and its limit is 131,072"
            )
            assert refused.value.where == "limit memory"
            assert await shem.components() == ()
            await shem.deploy(TWO_MEMORIES, name="c", limits={"memory": 3 * 65_536})
            assert await shem.invoke("c/w", "f") is None

    run(case)


def test_what_a_memory_begins_with_is_read_from_any_component():
    assert memory_bytes_min(TWO_MEMORIES) == 3 * 65_536
    assert memory_bytes_min(b"(component)") == 0
    small = b"(component (core module (memory 1 (pagesize 1))) (core module (memory 0)))"
    assert memory_bytes_min(small) == 1


TABLES = b"""
(component
  (component
    (core module $M (table 7 9 funcref) (table 2 (ref null func)))
    (core instance (instantiate $M)))
  (core module $N (table 1 externref) (func (export "f")))
  (core instance $n (instantiate $N))
  (func (export "f") (canon lift (core func $n "f"))))
"""


def test_a_limit_of_tables_below_what_the_component_begins_with_is_refused():
    async def case():
        async with opened(LastingEngine()) as shem:
            for size in (0, 6):
                with pytest.raises(UsageError) as refused:
                    await shem.deploy(TABLES, name="c", limits={"tables": size})
                assert refused.value.message == (
                    f"a table of the component begins with 7 elements, and its limit is {size}"
                )
                assert refused.value.where == "limit tables"
            assert await shem.components() == ()
            await shem.deploy(TABLES, name="c", limits={"tables": 7})
            assert await shem.invoke("c/w", "f") is None

    run(case)


def test_what_a_table_begins_with_is_read_where_it_can_be_told():
    assert table_elements_min(TABLES) == 7
    assert table_elements_min(b"(component)") == 0
    first = b"(component (core module (func $f) (table 9 funcref (ref.func $f))))"
    assert table_elements_min(first) == 0


# -- host bindings ---------------------------------------------------------------------------------

BANK = """
from executor import host_function

@host_function("demo:bank/api", "charge: func(cents: u64)")
def charge(call, cents): pass

@host_function("demo:relay/peer", "call: func(text: string) -> result<string, string>")
def call(call, text): pass

both = [charge, call]
"""


def test_a_binding_of_which_nothing_is_imported_is_refused(tmp_path):
    (tmp_path / "unused_bank.py").write_text(BANK)

    async def case():
        async with opened(LastingEngine()) as shem:

            async def deploy(*bindings):
                options = {"host": bindings, "host_directory": str(tmp_path)}
                return await shem.deploy(RELAY, name="relay", **options)

            with pytest.raises(UsageError) as refused:
                await deploy("unused_bank:call", "unused_bank:charge")
            assert refused.value.message == (
                "the component imports nothing of --host unused_bank:charge,"
                " which holds demo:bank/api.charge"
            )
            assert await shem.components() == ()
            assert (await deploy("unused_bank:call")).revision == 0
            assert (await deploy("unused_bank:both")).revision == 1, "one of them is imported"

    run(case)
