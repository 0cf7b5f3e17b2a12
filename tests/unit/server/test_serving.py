"""A served store and those who ask it, in one process."""

import json
import signal
import socket
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from executor.errors import (
    Busy,
    InvocationInterrupted,
    RequestError,
    StoreError,
    UnknownFunction,
    UnknownPromise,
)
from executor.records import InitialFile
from executor.requests import WaveArguments
from executor.server.client import HandedOver, NotServed, answers, ask
from executor.server.door import SOCKET_NAME, Door, short_path
from executor.server.exchange import ConnectionLost, Exchange
from executor.server.serving import open_served
from tests.support import guests

BUSY = Busy("the store is in use")


class Interrupted(Exception):
    """Ends a waiting that has no end."""


def run(case, *arguments):
    async def bounded():
        with trio.fail_after(30):
            await case(*arguments)

    trio.run(bounded)


@asynccontextmanager
async def served(path):
    async with open_served(path) as shem, ask(path, {}, BUSY) as asked:
        await asked.deploy(guests.ADDER, name="adder")
        yield shem, asked


def answered(path, request):
    """What one raw HTTP request is answered."""
    with short_path(path) as short, socket.socket(socket.AF_UNIX) as client:
        client.connect(short)
        client.sendall(request)
        client.settimeout(10)
        text = b""
        while part := client.recv(65536):
            text += part
    head, _, body = text.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def post(operation, body):
    head = f"POST /v1/{operation} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def test_a_file_of_many_pieces_arrives_whole(tmp_path):
    content = bytes(range(256)) * 8_192

    async def case():
        async with open_served(tmp_path) as shem, ask(tmp_path, {}, BUSY) as asked:
            file = InitialFile(path="/large", content=content, writable=True)
            await shem.deploy(guests.ADDER, name="adder", files=[file])
            await shem.invoke("adder/w", "add", [5])
            assert (await asked.files("adder/w", "/large")).content == content
            assert await asked.files("adder/w") == await shem.files("adder/w")

    run(case)


def test_who_asks_has_the_same_answers_and_errors(tmp_path):
    async def case():
        async with served(tmp_path) as (shem, asked):
            accepted = await asked.submit("adder/w", "add", WaveArguments(("5",)), key="k")
            assert not accepted.deduplicated
            outcome = await asked.wait("adder/w", "k")
            alone = await shem.invocation("adder/w", "k")
            assert (outcome.result, outcome.wave) == (alone.result, alone.wave) == (5, "5")
            only = await asked.submit("adder/w", "add", WaveArguments(("1",)), key="k2", run=False)
            assert (await asked.invocation("adder/w", only.key)).status == "pending"
            assert (await asked.wait("adder/w", "k2", timeout_s=20)).wave == "6"
            with pytest.raises(UnknownFunction) as refused:
                await asked.submit("adder/w", "adt", WaveArguments(()))
            with pytest.raises(UnknownFunction) as refused_alone:
                await shem.submit("adder/w", "adt", WaveArguments(()))
            assert vars(refused.value) == vars(refused_alone.value)
            assert (await asked.replay("adder/w", to=3)).replayed == 1
            await asked.run(until_idle=True)
            assert (await asked.delete("adder/w")).status == "deleted"

    run(case)


@pytest.mark.parametrize(
    ("operation", "arguments", "key"),
    [
        ("submit", ("adder/w", "add", WaveArguments(("\udcff",))), "k"),
        ("submit", ("adder/w", "add", WaveArguments(("5",))), "\udcff"),
        ("submit", ("adder/w", "add", WaveArguments(("5",))), ""),
        ("submit", ("adder/w", "\udcff", WaveArguments(())), "k"),
        ("submit", ("adder/\udcff", "add", WaveArguments(("5",))), "k"),
        ("wait", ("adder/w", "\udcff"), None),
        ("cancel", ("adder/w", "\udcff"), None),
        ("interrupt", ("adder/\udcff",), None),
        ("revert", ("adder/\udcff",), None),
        ("files", ("\udcff/w", "/"), None),
    ],
)
def test_what_is_no_unicode_is_refused_as_where_it_runs(tmp_path, operation, arguments, key):
    options = {"last": 1} if operation == "revert" else {} if key is None else {"key": key}

    async def refusal(executor):
        with pytest.raises(RequestError) as refused:
            await getattr(executor, operation)(*arguments, **options)
        return type(refused.value), vars(refused.value)

    async def case():
        async with served(tmp_path) as (shem, asked):
            await shem.invoke("adder/w", "add", [1])
            assert await refusal(asked) == await refusal(shem)

    run(case)


def test_who_asks_completes_a_promise_and_its_worker_goes_on(tmp_path):
    async def case():
        async with open_served(tmp_path) as shem, ask(tmp_path, {}, BUSY) as asked:
            await asked.deploy(guests.approval_component(), name="approval")
            await asked.submit("approval/w", "request", WaveArguments(('"x"',)), key="k")
            while not (found := (await shem.promises("approval/w")).promises):  # noqa: ASYNC110
                await trio.sleep(0.01)
            number = found[0].promise
            assert await asked.complete_promise("approval/w", number, b"\xff", key="one")
            assert await asked.complete_promise("approval/w", number, b"\xff", key="one")
            assert not await asked.complete_promise("approval/w", number, b"no")
            with pytest.raises(UnknownPromise):
                await asked.complete_promise("approval/w", number + 1, b"")
            assert (await shem.promise("approval/w", number)).value == b"\xff"
            outcome = await asked.wait("approval/w", "k")
            assert outcome.error.kind == "guest-trap"  # its text is no UTF-8

    run(case)


def test_who_stops_waiting_ends_the_waiting_and_not_the_work(tmp_path):
    async def case():
        async with served(tmp_path) as (shem, asked):
            await asked.submit("adder/w", "spin", WaveArguments(()), key="k")
            assert (await asked.wait("adder/w", "k", timeout_s=0.05)).status == "pending"
            with trio.move_on_after(0.05) as scope:
                await asked.wait("adder/w", "k")
            assert scope.cancelled_caught
            assert (await shem.worker("adder/w")).loaded
            async with trio.open_nursery() as nursery:

                async def wait():
                    with pytest.raises(InvocationInterrupted):
                        await asked.wait("adder/w", "k")

                nursery.start_soon(wait)
                await trio.sleep(0.05)
                assert (await asked.interrupt("adder/w")).done
            assert (await asked.resume("adder/w", until_ended=True)).status == "running"

    run(case)


def test_requests_that_cannot_be_read_are_refused_in_words(tmp_path):
    async def case():
        async with served(tmp_path):
            for request, status, kind in (
                (post("nothing", "{}"), 404, "usage"),
                (post("delete", "{"), 400, "usage"),
                (post("delete", '{"worker": 5}'), 400, "usage"),
                (post("delete", '{"worker": "adder/w", "more": 1}'), 400, "usage"),
                (post("delete", '{"worker": "adder/w"}'), 404, "unknown-worker"),
                (post("delete", '{"worker": ""}'), 404, "unknown-worker"),
                (
                    post("submit", '{"worker": "a/w", "function": "\\ud800"}'),
                    404,
                    "unknown-component",
                ),
            ):
                found, body = await trio.to_thread.run_sync(answered, tmp_path, request)
                assert (found, json.loads(body)["error"]["kind"]) == (status, kind)
            found, _ = await trio.to_thread.run_sync(
                answered, tmp_path, b"GET /v1/run HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            assert found == 405

    run(case)


def test_a_process_that_ended_in_order_hands_over_and_a_killed_one_is_named(tmp_path):
    async def case():
        async with ask(tmp_path, {}, BUSY) as asked:
            with pytest.raises(NotServed) as nobody:
                await asked.delete("adder/w")
            assert nobody.value.busy is BUSY
            for removed, error in ((True, HandedOver), (False, StoreError)):
                door = Door.open(tmp_path)
                async with trio.open_nursery() as nursery:

                    async def delete(error=error):
                        with pytest.raises(error):
                            await asked.delete("adder/w")

                    nursery.start_soon(delete)
                    await trio.sleep(0.05)
                    if removed:
                        door.remove()
                    door.close()
        assert (tmp_path / SOCKET_NAME).exists()
        async with served(tmp_path):
            pass
        assert not (tmp_path / SOCKET_NAME).exists()

    run(case)


@pytest.mark.parametrize("removed", [True, False], ids=["in order", "killed"])
@pytest.mark.parametrize("told", [True, False], ids=["later", "at once"])
def test_who_runs_everything_is_handed_over_to_however_the_process_ended(
    tmp_path, monkeypatch, removed, told
):
    def end(door):
        if removed:
            door.remove()
        door.close()

    async def case():
        door = Door.open(tmp_path)

        async def sent(*_):
            end(door)
            raise ConnectionLost

        if not told:
            monkeypatch.setattr(Exchange, "send", sent)
        async with ask(tmp_path, {}, BUSY) as asked, trio.open_nursery() as nursery:
            begun = trio.Event()
            owners = []

            def begin(owner):
                owners.append(owner)
                begun.set()

            async def run_all():
                with pytest.raises(HandedOver):
                    await asked.run(until_idle=True, begun=begin)

            nursery.start_soon(run_all)
            if told:
                await begun.wait()
                end(door)
        assert owners == (["the store is in use"] if told else [])

    run(case)


def test_a_process_that_does_not_answer_is_told_of_once_and_waited_for(tmp_path, monkeypatch):
    """The system takes the connections of one that is stopped."""
    monkeypatch.setattr("executor.server.client.SILENT_S", 0.01)
    monkeypatch.setattr("executor.server.client.ANSWERED_WITHIN_S", 0.01)

    async def case():
        door = Door.open(tmp_path)
        told, silent, ended = [], trio.Event(), []

        def on_silence(text):
            told.append(text)
            silent.set()

        async def wait(asked, key):
            with pytest.raises(HandedOver):
                await asked.wait("adder/w", key)
            ended.append(key)

        async with ask(tmp_path, {}, BUSY, on_silence) as asked, trio.open_nursery() as nursery:
            nursery.start_soon(wait, asked, "a")
            await silent.wait()
            nursery.start_soon(wait, asked, "b")
            await trio.testing.wait_all_tasks_blocked()
            assert ended == []
            door.remove()
            door.close()
        assert told == ["the store is in use and does not answer: waiting for it"]
        assert sorted(ended) == ["a", "b"]

    run(case)


def test_a_process_that_has_nothing_to_tell_yet_answers_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("executor.server.client.SILENT_S", 0.01)
    asked_for = []

    async def counted(path):
        found = await answers(path)
        asked_for.append(found)
        if len(asked_for) == 3:
            raise Interrupted
        return found

    monkeypatch.setattr("executor.server.client.answers", counted)

    async def case():
        async with open_served(tmp_path), ask(tmp_path, {}, BUSY, pytest.fail) as asked:
            with pytest.raises(Interrupted):
                await asked.run()
        assert asked_for == [True, True, True]

    run(case)


def test_errors_of_the_block_arrive_bare(tmp_path):
    async def case():
        with pytest.raises(ValueError, match="mine"):
            async with open_served(tmp_path):
                raise ValueError("mine")
        async with open_served(tmp_path):
            pass

    run(case)


@pytest.mark.parametrize("waits", [True, False], ids=["in the exchange", "in the operation"])
def test_a_ctrl_c_that_meets_an_exchange_ends_the_process_that_serves(tmp_path, waits, monkeypatch):
    def press_ctrl_c(*_):
        signal.raise_signal(signal.SIGINT)
        return b"{}"

    async def pressed(_shem, _worker):
        press_ctrl_c()

    if waits:
        monkeypatch.setattr("executor.server.application.body_line", press_ctrl_c)
        monkeypatch.setattr("executor.server.application.json_response", press_ctrl_c)
    else:
        monkeypatch.setattr("executor.executor.Executor.worker", pressed)
    request = post("worker", '{"worker": "adder/w"}')

    async def ask_once():
        with suppress(OSError):
            await trio.to_thread.run_sync(answered, tmp_path, request)

    async def case():
        async with open_served(tmp_path), trio.open_nursery() as nursery:
            nursery.start_soon(ask_once)
            await trio.sleep(20)

    with pytest.raises(BaseExceptionGroup) as ended:
        trio.run(case)
    assert ended.value.subgroup(KeyboardInterrupt) is not None
