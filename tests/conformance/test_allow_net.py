"""What workers may reach: rules of the revision, and of the worker that an invocation creates."""

from unittest.mock import patch

import pytest

from executor import Executor
from executor.errors import AlreadyExists, UsageError
from executor.worker import making
from oplog.entry import Create
from tests.support import guests
from tests.support.executors import LastingEngine, opened, run, worker_entries
from tests.support.terminals import Terminals


class Made:
    """The policies that instances were given, by the name of their worker."""

    def __init__(self):
        self.policies = {}

    def installed(self):
        made, original = self, making.Resident

        def resident(**parts):
            made.policies[parts["session"].worker] = parts["state"].egress
            return original(**parts)

        return patch.object(making, "Resident", resident)

    def allows(self, worker, host, port):
        return self.policies[worker].check(host, port) is None


def test_a_worker_may_reach_what_its_revision_may_and_what_it_was_created_with():
    async def case():
        engine, made = LastingEngine(), Made()
        with made.installed():
            async with opened(engine) as shem:
                await shem.deploy(guests.ADDER, name="none")
                await shem.deploy(guests.ADDER, name="c", allow_net=["Example.com:443", "*.a.org"])
                await shem.invoke("none/w", "get")
                await shem.invoke("c/w", "get")
                await shem.invoke("c/own", "get", allow_net=["10.0.0.0/8", "10.0.0.0/8"])
                assert (await shem.worker("c/own")).allow_net == ("10.0.0.0/8",)
                [revision] = (await shem.component("c")).revisions
                assert revision.allow_net == ("*.a.org", "example.com:443")
            async with opened(engine) as shem:
                await shem.replay("c/own")
        assert not made.allows("none/w", "example.com", 443)
        assert made.allows("c/w", "example.com", 443)
        assert not made.allows("c/w", "example.com", 80)
        assert not made.allows("c/w", "10.0.0.1", 443)
        assert made.allows("c/own", "x.a.org", 443)
        assert made.allows("c/own", "10.0.0.1", 443)
        creates = {w: worker_entries(engine, w)[0][1] for w in ("c/w", "c/own")}
        assert all(isinstance(create, Create) for create in creates.values())
        assert creates["c/w"].allow_net == ()
        assert creates["c/own"].allow_net == ("10.0.0.0/8",)

    run(case)


def test_a_worker_keeps_its_revision_and_so_its_rules():
    async def case():
        made = Made()
        with made.installed():
            async with opened(LastingEngine()) as shem:
                await shem.deploy(guests.ADDER, name="c", allow_net=["*"])
                await shem.invoke("c/old", "get")
                again = await shem.deploy(guests.ADDER, name="c", allow_net=["*", "*"])
                assert again.revision == 0
                stricter = await shem.deploy(guests.ADDER, name="c")
                assert stricter.revision == 1
                await shem.invoke("c/new", "get")
                await shem.replay("c/old")
        assert made.allows("c/old", "example.com", 80)
        assert not made.allows("c/new", "example.com", 80)

    run(case)


def test_a_worker_that_exists_has_the_rules_it_was_created_with():
    async def case():
        async with opened(LastingEngine()) as shem:
            await shem.deploy(guests.ADDER, name="c")
            await shem.invoke("c/w", "get", allow_net=["b.org", "A.org"])
            assert await shem.invoke("c/w", "get", allow_net=["a.org", "b.org"]) == 0
            assert await shem.invoke("c/w", "get", allow_net=None) == 0
            for other in (["*"], []):
                with pytest.raises(AlreadyExists, match="other rules of what it may reach"):
                    await shem.invoke("c/w", "get", allow_net=other)

    run(case)


def test_a_rule_that_makes_no_sense_is_refused_and_nothing_is_made(tmp_path):
    async def case():
        async with Executor.open(tmp_path) as shem:
            with pytest.raises(UsageError, match=r"'https://a\.org' is no rule"):
                await shem.deploy(guests.ADDER, name="c", allow_net=["a.org", "https://a.org"])
            assert await shem.components() == ()
            await shem.deploy(guests.ADDER, name="c")
            with pytest.raises(UsageError, match=r"'a\.org:0' is no rule"):
                await shem.invoke("c/w", "get", allow_net=["a.org:0"])
            assert (await shem.workers()).workers == ()

    run(case)


def test_from_the_command_line_in_this_process_or_another(tmp_path):
    (tmp_path / "c.wasm").write_bytes(guests.ADDER)
    terminals = Terminals(tmp_path)
    for served in (False, True):
        if served:
            terminals.serve()
        name = f"served-{served}"
        deploy = ("deploy", "c.wasm", "--name", name, "--allow-net", "*.a.org:443")
        assert terminals.shem(*deploy, "--allow-net", "[::1]:80").code == 0
        shown = terminals.shem("component", name).stdout.splitlines()
        assert "    --allow-net *.a.org:443" in shown
        assert "    --allow-net [::1]:80" in shown
        invoke = ("invoke", f"{name}/w", "get")
        assert terminals.shem(*invoke, "--allow-net", "db:5432").stdout == "0\n"
        worker = terminals.shem("worker", f"{name}/w", "--json").json
        assert worker["allow_net"] == ["db:5432"]
        create = terminals.shem("oplog", f"{name}/w", "--limit", "1").stdout
        assert create.endswith("allow-net db:5432\n")
        other = terminals.shem(*invoke, "--allow-net", "*")
        assert (other.code, other.stdout) == (4, "")
        wrong = terminals.shem("deploy", "c.wasm", "--allow-net", "*x")
        assert (wrong.code, wrong.stdout) == (2, "")
        assert wrong.stderr.startswith("shem: '*x' is no rule: '*x' is no host")
    terminals.close()
