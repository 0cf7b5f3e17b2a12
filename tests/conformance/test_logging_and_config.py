"""What a guest logs, and the configuration that it reads."""

import pytest

from executor import Ok
from executor.errors import UsageError
from oplog.entry import Create, Log, Start
from tests.support.executors import LastingEngine, opened, run, worker_entries
from tests.support.wat_guests import TELLER

WORKER = "teller/w"


def entries(engine, kind):
    return [entry for _, entry in worker_entries(engine, WORKER) if isinstance(entry, kind)]


def test_a_log_message_is_recorded_once_and_told_as_a_line_of_stderr():
    async def case():
        engine = LastingEngine()
        heard = []
        options = {"on_output": lambda *line: heard.append(line)}
        async with opened(engine, **options) as shem:
            await shem.deploy(TELLER, name="teller")
            await shem.invoke(WORKER, "log", ["warn", "disk", "nearly full"], key="1")
            await shem.crash(WORKER)
            await shem.invoke(WORKER, "log", ["critical", "", "full: é"], key="2")
            assert (await shem.replay(WORKER)).divergence is None
            first = await shem.wait(WORKER, "1")
            second = await shem.wait(WORKER, "2")
        assert (first.stdout, first.stderr) == ("", "WARN  disk: nearly full\n")
        assert (second.stdout, second.stderr) == ("", "CRITICAL full: é\n")
        assert heard == [
            (WORKER, "warn", b"WARN  disk: nearly full\n"),
            (WORKER, "critical", "CRITICAL full: é\n".encode()),
        ]
        assert [(log.level, log.context, log.text) for log in entries(engine, Log)] == [
            ("warn", "disk", "nearly full"),
            ("critical", "", "full: é"),
        ]

    run(case)


def test_a_worker_reads_the_configuration_that_it_was_created_with():
    async def case():
        engine = LastingEngine()
        async with opened(engine) as shem:
            first = await shem.deploy(TELLER, name="teller", config={"currency": "EUR"})
            assert await shem.invoke(WORKER, "tell", ["currency"]) == Ok("EUR")
            second = await shem.deploy(TELLER, name="teller", config={"currency": "CHF"})
            again = await shem.deploy(TELLER, name="teller", config={"currency": "EUR"})
            assert [deployed.revision for deployed in (first, second, again)] == [0, 1, 0]
            assert await shem.invoke("teller/x", "tell", ["currency"]) == Ok("CHF")
        async with opened(engine) as shem:
            assert await shem.invoke(WORKER, "tell", ["currency"]) == Ok("EUR")
            assert await shem.invoke(WORKER, "tell", ["nothing"]) == Ok(None)
            assert (await shem.crash(WORKER)).divergence is None
        [created] = entries(engine, Create)
        assert created.config == {"currency": "EUR"}
        functions = {(start.function, start.function_type) for start in entries(engine, Start)}
        assert functions == {("wasi:config/store.get", "read-local")}

    run(case)


def test_a_configuration_that_is_no_text_is_refused():
    async def case():
        async with opened(LastingEngine()) as shem:
            with pytest.raises(UsageError, match="is not Unicode"):
                await shem.deploy(TELLER, name="teller", config={"a": "\udcff"})

    run(case)
