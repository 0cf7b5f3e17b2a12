"""Golem's guests for logging and contexts, live, in forced replay and after crashes.

What is expected is the behaviour of Golem's executor tests at v1.2.5, written afresh. They are not
committed here; see `components.py`.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from trio.testing import trio_test

from executor import opened as opened_module
from executor.durable.definition import Local
from executor.executor import Executor
from executor.host import INTERFACES
from executor.host.interface import host_interface
from oplog.entry import (
    Create,
    InvocationFinished,
    InvocationStarted,
    Log,
    PendingInvocation,
    SpanAttribute,
    SpanFinished,
    SpanStarted,
)
from tests.conformance.golem.components import WHY_SKIPPED, components_folder, golem_component
from tests.support.http_server import Answer, Request, http_server

if components_folder() is None:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

LEVELS = ("stdout", "stderr", "critical", "error", "debug", "info", "warn", "trace")


async def rebuilt(shem: Executor, worker: str, mode: str) -> None:
    if mode != "live":
        rebuild = await (shem.replay if mode == "replayed" else shem.crash)(worker)
        assert rebuild.divergence is None


@trio_test
async def test_every_level_is_logged_once_in_order(tmp_path: Path, mode: str) -> None:
    async with Executor.open(tmp_path) as shem:
        await shem.deploy(golem_component("logging"), name="logging")
        accepted = await shem.submit("logging/w", "some-random-entries")
        done = await shem.wait("logging/w", accepted.key, timeout_s=60)
        assert (done.status, done.error) == ("completed", None)
        await rebuilt(shem, "logging/w", mode)
        logs = [found.entry async for found in shem.oplog("logging/w", search="kind:log")]
        assert all(isinstance(log, Log) for log in logs)
        written: dict[int, str] = {}
        lines = "".join(log.text for log in logs if log.level == "stdout").splitlines()
        errors = "".join(log.text for log in logs if log.level == "stderr").splitlines()
        for level, streamed in (("stdout", lines), ("stderr", errors)):
            written |= {int(line.partition(".")[0]): level for line in streamed}
        written |= {int(log.context): log.level for log in logs if log.level in LEVELS[2:]}
        assert written == {number: LEVELS[number % 8] for number in range(100)}
        assert sum(log.level in LEVELS[2:] for log in logs) == 75 - 1
        assert done.stderr.count("\n") == len(errors) + 74


class Told(NamedTuple):
    context: dict[str, Any]
    traceparent: str
    """The header of the request that told it."""


NO_CALLS = host_interface(
    """
    interface golem:ictest-client/golem-ictest-client {
      record uuid { high-bits: u64, low-bits: u64 }
      record component-id { uuid: uuid }
      record worker-id { component-id: component-id, worker-name: string }
      resource golem-ictest-api {
        custom: static func(location: worker-id) -> golem-ictest-api;
        blocking-test2: func();
        test3: func();
      }
    }
    """,
    "",
    [
        Local("[static]golem-ictest-api.custom", lambda state, _at: state.handles.add(object())),
        Local("[method]golem-ictest-api.blocking-test2", lambda *_: None),
        Local("[method]golem-ictest-api.test3", lambda *_: None),
    ],
)
"""Of the guest below, whose calls to other workers are not made."""


@asynccontextmanager
async def telling(path: Path) -> AsyncIterator[tuple[Executor, list[Told]]]:
    """An executor with that guest, and what it tells a server of its invocations' contexts."""
    told: list[Told] = []

    def answer(request: Request) -> Answer:
        assert request.path == "/invocation-context"
        told.append(Told(json.loads(request.body), request.headers["traceparent"]))
        return 200, b"ok", {}

    offered = patch.object(opened_module, "INTERFACES", (*INTERFACES, NO_CALLS))
    with http_server(answer) as http, offered:
        async with Executor.open(path) as shem:
            await shem.deploy(
                golem_component("golem_ictest"),
                name="golem_ictest",
                env={"PORT": str(http.port)},
                allow_net=["localhost"],
            )
            yield shem, told


@trio_test
async def test_a_guest_tells_the_context_of_its_invocation(tmp_path: Path, mode: str) -> None:
    """As `invocation_context_test` has it, without calls between workers."""
    async with telling(tmp_path) as (shem, told):
        for key in ("k1", "k2"):
            await shem.invoke("golem_ictest/w1", "test3", key=key)
            await rebuilt(shem, "golem_ictest/w1", mode)
    assert len(told) == 2
    for key, (context, traceparent) in zip(("k1", "k2"), told, strict=True):
        invocation, root = context["spans"]
        assert root == {}
        assert invocation["name"] == "invoke-exported-function"
        assert invocation["idempotency_key"] == key
        trace = f"00-{context['trace_id']}-{context['span_id']}-00"
        assert context["headers"] == {"traceparent": trace}
        assert traceparent == trace
    assert told[0].context["trace_id"] != told[1].context["trace_id"]


@trio_test
async def test_the_spans_that_a_guest_starts_are_recorded_with_what_it_says_of_them(
    tmp_path: Path, mode: str
) -> None:
    async with telling(tmp_path) as (shem, told):
        for worker in ("golem_ictest/w1", "golem_ictest/w2"):  # each looks the other one up
            await shem.invoke(worker, "test3")
        for worker, function in (("golem_ictest/w1", "test1"), ("golem_ictest/w2", "test2")):
            await shem.invoke(worker, function)
            await rebuilt(shem, worker, mode)
        entries = [record.entry async for record in shem.oplog("golem_ictest/w2")]
    assert [len(context["spans"]) for context, _ in told] == [2] * 4
    outer, inner = [entry for entry in entries if isinstance(entry, SpanStarted)]
    assert (outer.attributes, inner.attributes) == ({"name": "custom"}, {"name": "custom2"})
    assert (outer.parent, inner.parent) == (told[-1].context["span_id"], outer.span_id)
    assert [
        (entry.span_id, entry.key, entry.value)
        for entry in entries
        if isinstance(entry, SpanAttribute)
    ] == [(outer.span_id, "x", "1"), (outer.span_id, "y", "2"), (inner.span_id, "z", "3")]
    finished = [entry.span_id for entry in entries if isinstance(entry, SpanFinished)]
    assert sorted(finished) == sorted([outer.span_id, inner.span_id])


@trio_test
async def test_an_oplog_that_begins_with_a_later_revision_is_read_by_its_types(
    tmp_path: Path, mode: str
) -> None:
    """`f4` is not there in the first revision."""
    async with Executor.open(tmp_path) as shem:
        for name in ("update-test-v1", "update-test-v2"):
            await shem.deploy(golem_component(name), name="update-test")
        assert await shem.invoke("update-test/w", "f4") == 11
        await rebuilt(shem, "update-test/w", mode)
        assert (await shem.worker("update-test/w")).revision == 1
        entries = [record.entry async for record in shem.oplog("update-test/w")]
        assert [type(entry) for entry in entries] == [
            *(Create, PendingInvocation, InvocationStarted, InvocationFinished)
        ]
