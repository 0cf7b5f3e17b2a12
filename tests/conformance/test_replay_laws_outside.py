"""The laws of replay for the guests that have somebody outside: peers, promises, rows of the store.

As `test_replay_laws` has them for all others; together they are every guest of `guests/`. What a
prefix is continued in has the rows of the transaction that the prefix ends in: what was written
there is there, whether or not its `end` is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from executor import host_function
from executor.durable.keys import call_key
from executor.worker.rows import read_worker_id
from guests import recipes
from oplog.engine import Batch, Row
from oplog.entry import (
    End,
    InvocationFinished,
    InvocationStarted,
    PendingInvocation,
    Start,
)
from tests.conformance.model.program import Code, Op, encode
from tests.support import guests
from tests.support.executors import (
    LastingEngine,
    Traces,
    check_rows,
    copy_oplog,
    opened,
    run,
    worker_entries,
)
from tests.support.http_server import HttpServer, http_server
from tests.support.peers import echo, tcp_peer, udp_peer
from tests.support.programs import PROGRAMS
from tests.support.wit_values import exact, unordered

HANDLE = "wasi:http/outgoing-handler.handle"
SEE_LOSSES = {"auditor", "courier", "stepper"}
"""Whose answers may differ after a loss: sockets are lost, oplogs grow, time goes by."""
DURABILITY = "golem:durability/durability"
OUTSIDE_TABLES = ("promises", "keyvalue", "blobs")
RULES = ("localhost", "127.0.0.1")


class Outside(NamedTuple):
    """Who is there while a guest runs."""

    server: HttpServer
    tcp_port: int
    udp_port: int
    component: str
    """The id of the component."""


@contextmanager
def outside() -> Iterator[Outside]:
    with http_server() as server, tcp_peer(echo) as tcp, udp_peer() as udp:
        yield Outside(server, tcp.port, udp.port, "")


Call = tuple[str, Sequence[object]]


class Guest(NamedTuple):
    wasm: Callable[[], bytes]
    calls: Callable[[Outside, list[Any]], Iterator[Call]]
    """What is asked, one after another; the list holds what was answered so far."""


def asked_of_approval(_: Outside, answers: list[Any]) -> Iterator[Call]:
    yield "create", ()
    promise = answers[0]
    yield "poll", (promise,)
    yield "complete", (promise, b"yes")
    yield "await", (promise,)
    yield "create-again", ()
    yield "delete", (answers[-1],)
    yield "remind", ("water", 0)


def asked_of_auditor(out: Outside, _: list[Any]) -> Iterator[Call]:
    number = UUID(out.component).int
    itself = number >> 64, number & (1 << 64) - 1, "w"
    yield "entries", itself
    yield "search", (*itself, "kind:start")
    yield "entries", itself


def asked_of_callback(out: Outside, _: list[Any]) -> Iterator[Call]:
    yield "ask", (f"{out.server.url}/text/a",)
    yield "ask", (f"{out.server.url}/text/b",)


def asked_of_command(_: Outside, __: list[Any]) -> Iterator[Call]:
    yield "run", ()
    yield "run", ()


def asked_of_courier(out: Outside, _: list[Any]) -> Iterator[Call]:
    yield "ask", ("localhost", out.tcp_port, "hello")
    yield "ping", (out.udp_port, "é")
    yield "dial", (out.tcp_port,)
    yield "say", ("one",)


def fetched(out: Outside, _: list[Any]) -> Iterator[Call]:
    yield "fetch-all", ([f"{out.server.url}/text/{number}" for number in range(2)],)


def asked_of_fetcher(out: Outside, answers: list[Any]) -> Iterator[Call]:
    yield from fetched(out, answers)
    yield "drain", (f"{out.server.url}/bytes/150000",)
    yield "pour", (f"{out.server.url}/count", 100_000)


def asked_of_gather(out: Outside, answers: list[Any]) -> Iterator[Call]:
    yield from fetched(out, answers)
    yield "post-all", ([f"{out.server.url}/echo"] * 2, "a body")


def asked_of_keeper(_: Outside, __: list[Any]) -> Iterator[Call]:
    yield "count-up", ("n", 2)
    yield "put", ("bucket", "key", "value")
    yield "look", ("bucket", "key")
    yield "store", ("object", b"\x00\xff" * 50, 3)
    yield "sum", ("object",)
    yield "clear", ()


def asked_of_poster(out: Outside, _: list[Any]) -> Iterator[Call]:
    yield "run", (out.server.authority, "P0A0a1P1P2A2A1i0a2")


def asked_of_stepper(_: Outside, __: list[Any]) -> Iterator[Call]:
    yield (
        "run",
        (
            encode(
                [
                    *(Op(Code.READ_LOCAL, 1), Op(Code.WRITE_REMOTE, 2), Op(Code.LOG, 0, 7)),
                    *(Op(Code.INDEX, 0), Op(Code.WRITE_FILE, 1, 9), Op(Code.READ_REMOTE, 3)),
                    *(Op(Code.POLICY, 2), Op(Code.KEY), Op(Code.STAT_FILE)),
                ]
            ),
        ),
    )
    yield (
        "run",
        (
            encode(
                [
                    *(Op(Code.WRITE_REMOTE, 5), Op(Code.JUMP, 2, 0), Op(Code.WRITE_REMOTE, 7)),
                    *(Op(Code.MODE, 0), Op(Code.READ_REMOTE, 6), Op(Code.MODE, 1)),
                    *(Op(Code.READ_FILE), Op(Code.ASK), Op(Code.COMMIT), Op(Code.ADD, 3)),
                ]
            ),
        ),
    )


GUESTS = {
    "approval": Guest(guests.approval_component, asked_of_approval),
    "auditor": Guest(guests.auditor_component, asked_of_auditor),
    "callback": Guest(guests.callback_component, asked_of_callback),
    "collector": Guest(guests.collector_component, fetched),
    "command": Guest(guests.command_component, asked_of_command),
    "courier": Guest(guests.courier_component, asked_of_courier),
    "fetcher": Guest(guests.fetcher_component, asked_of_fetcher),
    "gather": Guest(guests.gather_component, asked_of_gather),
    "keeper": Guest(guests.keeper_component, asked_of_keeper),
    "poster": Guest(guests.poster_component, asked_of_poster),
    "stepper": Guest(lambda: recipes.build("stepper").read_bytes(), asked_of_stepper),
}


def test_every_guest_has_a_run_for_which_the_laws_are_tested():
    built = {path.name for path in recipes.GUESTS.iterdir() if (path / "wit").is_dir()}
    assert built == (set(recipes.RECIPES) | set(recipes.LARGE))
    assert built <= set(GUESTS) | set(PROGRAMS)


class Peer:
    """The embedder's functions: a peer that answers with what it is asked, and remembers keys."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def functions(self) -> list[Any]:
        @host_function("demo:poster/peer", "ask: func(n: u32) -> u32", type="read-remote")
        async def ask(_call: Any, n: int) -> int:
            return n

        kinds = ("read-local", "read-remote", "write-remote")
        return [ask, self._gate(), *map(self._stepped, kinds)]

    def _stepped(self, kind: Any) -> Any:
        @host_function("demo:stepper/outside", f"{kind}: func(n: u32) -> u64", type=kind)
        async def step(call: Any, n: int) -> int:
            if kind == "write-remote":
                self.asked.append(call.key)
            return n & 0xFF

        return step

    def _gate(self) -> Any:
        @host_function("demo:stepper/outside", "gate: func(n: u32) -> u64", type="read-remote")
        async def gate(_call: Any, _n: int) -> int:
            return 0

        return gate


class SeenEngine(LastingEngine):
    """Keeps what the tables of the outside held after each transaction."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker
        self.seen: list[tuple[int, list[Row]]] = []
        """How many entries of the worker were durable, and the rows then."""

    def write(self, batches: Sequence[Batch]) -> Any:
        written = super().write(batches)
        worker_id = read_worker_id(self, self._worker)
        last = 0 if worker_id is None else self.last_index(worker_id)
        self.seen.append((last, outside_rows(self)))
        return written

    def rows_with(self, length: int) -> list[Row]:
        """What was there as soon as so many entries were."""
        return next(rows for last, rows in self.seen if last >= length)


def outside_rows(engine: LastingEngine) -> list[Row]:
    return [
        Row(table, key, value)
        for table in OUTSIDE_TABLES
        for key, value in engine.read_rows(table, limit=10_000)
    ]


class Recording:
    """One run of a guest, never interrupted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.worker = f"{name}/w"
        self.engine = SeenEngine(self.worker)
        self.peer = Peer()
        self.traces = Traces()
        self.answers: list[Any] = []

    async def run(self, out: Outside) -> None:
        guest = GUESTS[self.name]
        with self.traces.installed():
            async with opened(self.engine, host=self.peer.functions()) as shem:
                made = await shem.deploy(guest.wasm(), name=self.name, allow_net=RULES)
                calls = guest.calls(out._replace(component=made.id), self.answers)
                for number, (function, arguments) in enumerate(calls):
                    self.answers.append(
                        await shem.invoke(
                            self.worker, function, list(arguments), key=f"key-{number}"
                        )
                    )

    @property
    def entries(self) -> list[tuple[int, Any]]:
        return worker_entries(self.engine, self.worker)

    def prefix(self, length: int) -> LastingEngine:
        target = LastingEngine()
        copy_oplog(self.engine, target, self.worker, length)
        assert target.write([Batch(rows=self.engine.rows_with(length))]) == [None]
        return target


def seen(calls: list[tuple[str, tuple[object, ...], object]]) -> list[str]:
    """But the bodies of the guest's own durable functions, which run only where nothing is
    recorded of them.
    """
    kept = []
    in_body = False
    for path, arguments, value in calls:
        in_body = in_body and path != f"{DURABILITY}.end-durable-function"
        if not in_body:
            kept.append(f"{path} {shown(arguments)} {shown(value)}")
        in_body = in_body or path == f"{DURABILITY}.begin-durable-function"
    return kept


def shown(value: object) -> object:
    """What the guest sees of it; of what it leaves with, or waits for, the kind."""
    try:
        return unordered(value)
    except TypeError:
        return type(value).__name__


@pytest.mark.parametrize("name", GUESTS)
def test_a_replay_asks_and_is_answered_what_the_live_run_was_and_nobody_outside_hears(name):
    live = Recording(name)

    async def case():
        with outside() as out:
            await live.run(out)
            heard = len(out.server.requests), len(live.peer.asked)
            traces = Traces()
            with traces.installed():
                async with opened(live.engine, host=live.peer.functions()) as shem:
                    rebuild = await shem.replay(live.worker)
                    assert (rebuild.divergence, rebuild.entries) == (None, len(live.entries))
                    assert (await shem.crash(live.worker)).divergence is None
            assert (len(out.server.requests), len(live.peer.asked)) == heard
        return traces.calls

    first, second = run(case)
    wanted = seen(live.traces.calls[-1])
    assert wanted
    assert seen(first) == wanted
    assert seen(second) == wanted


@pytest.mark.parametrize("name", GUESTS)
def test_every_prefix_continues_legally_and_no_completed_write_is_heard_again(name):
    live = Recording(name)

    with outside() as out:
        run(live.run, out)
        for length in range(1, len(live.entries) + 1):
            run(continues_legally, live, out, length)
    print(f"{name}: {len(live.entries)} prefixes")


async def continues_legally(live: Recording, out: Outside, length: int) -> None:
    target = live.prefix(length)
    prefix = live.entries[:length]
    keys = [entry.key for _, entry in prefix if isinstance(entry, PendingInvocation)]
    finished = sum(isinstance(entry, InvocationFinished) for _, entry in prefix)
    heard_before = len(out.server.requests)
    peer = Peer()
    reports: list[str] = []
    async with opened(target, host=peer.functions(), recover="all", report=reports.append) as shem:
        await shem.run(until_idle=True)
        outcomes = [await shem.wait(live.worker, key) for key in keys]
        rebuild = await shem.replay(live.worker)
        record = await shem.worker(live.worker)
    where = f"{live.name}, the first {length} entries"
    assert reports == [], where
    assert rebuild.divergence is None, where
    assert {outcome.status for outcome in outcomes} <= {"completed"}, where
    answers = [exact(outcome.value) for outcome in outcomes]
    compared = finished if live.name in SEE_LOSSES else len(keys)
    assert answers[:compared] == [exact(answer) for answer in live.answers[:compared]], where
    assert (record.status, record.pending, record.current_key) == ("idle", (), None), where
    assert worker_entries(target, live.worker)[:length] == prefix, where
    heard = [request.key for request in out.server.requests[heard_before:]] + peer.asked
    completed, incomplete = written_keys(read_worker_id(target, live.worker), prefix)
    assert completed.isdisjoint(heard), where
    assert incomplete <= set(heard), where
    assert len(set(heard)) == len(heard), where
    check_rows(target, read_worker_id(target, live.worker))


def written_keys(
    worker_id: bytes | None, prefix: list[tuple[int, Any]]
) -> tuple[set[str], set[str]]:
    """Of remote writes that have an `end`, and of HTTP requests that have none."""
    assert worker_id is not None
    key = ""
    keys = {}
    http = set()
    for index, entry in prefix:
        match entry:
            case InvocationStarted():
                key = entry.key
            case Start(function_type="write-remote"):
                keys[index] = call_key(worker_id, key, index)
                if entry.function == HANDLE:
                    http.add(index)
    ended = {entry.start_index for _, entry in prefix if isinstance(entry, End)}
    return {keys[i] for i in keys if i in ended}, {keys[i] for i in http - ended}
