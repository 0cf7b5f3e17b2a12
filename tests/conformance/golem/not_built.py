"""Interfaces that a guest imports and the host does not offer yet, in the place of them.

`offering` defines what a guest imports under a prefix: by the rows it is given, and for the rest by
functions that refuse. `CannedHttp` has rows for as much of `wasi:http` as Golem's guests use: each
request is a remote write, and its whole answer comes from a function.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from executor import executor as executor_module
from executor.durable.definition import Awaited, HostFunctionRow, Local
from executor.errors import GuestError
from executor.host import INTERFACES
from executor.host.interface import InterfaceTable, drop_handle
from executor.host.pollables import AlwaysReady
from executor.host.streams import InputStream, OutputStream, StreamClosed
from executor.wasm.component import Component
from executor.wasm.engine import Engine
from executor.wasm.values import Ok
from executor.wasm.wit import WitInterface

Rows = Mapping[str, HostFunctionRow]


@contextmanager
def offering(wasm: bytes, folder: Path, prefix: str, rows: Rows) -> Iterator[None]:
    """While it is entered, executors that open also offer what `wasm` imports under `prefix`."""
    artifact = folder / "guest.cwasm"
    engine = Engine.open()
    artifact.write_bytes(engine.compile(wasm))
    tables = tuple(tables_of(engine.load(artifact), prefix, rows))
    assert tables, f"the guest imports nothing under {prefix}"
    with patch.object(executor_module, "INTERFACES", (*INTERFACES, *tables)):
        yield


def tables_of(component: Component, prefix: str, rows: Rows) -> Iterator[InterfaceTable]:
    for imported in component.imports:
        if imported.name.startswith(prefix):
            yield InterfaceTable(
                name=imported.name,
                versions="0.2",
                wit=WitInterface(
                    name=imported.name,
                    version=imported.version,
                    functions=imported.functions,
                    resources=imported.resources,
                    types={},
                ),
                functions=tuple(
                    rows.get(name) or refusing_row(imported.name, name)
                    for name in imported.functions
                ),
                drops=dict.fromkeys(imported.resources, drop_handle),
            )


def refusing_row(interface: str, name: str) -> Local:
    def refuse(*_: Any) -> object:
        raise GuestError(f"{interface}.{name} is not there")

    return Local(name, refuse)


class Request(OutputStream):
    """An outgoing request, its body and the body's stream in one."""

    def __init__(self) -> None:
        self.method = "get"
        self.path = "/"
        self.body = b""

    def write(self, _state: Any, contents: bytes) -> None:
        self.body += contents

    def drop(self, _state: Any) -> None:
        """The request holds what was written."""


class Response(InputStream):
    """An incoming response, its body and the body's stream in one."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def read(self, _state: Any, count: int) -> bytes:
        if not self.body:
            raise StreamClosed
        read, self.body = self.body[:count], self.body[count:]
        return read

    def skip(self, state: Any, count: int) -> int:
        return len(self.read(state, count))

    def drop(self, _state: Any) -> None:
        """Nothing was held for it."""


class CannedHttp:
    """Answers requests with `answer(method, path, body)`, each recorded as a remote write."""

    def __init__(self, answer: Callable[[str, str, bytes], bytes]) -> None:
        self.answer = answer

    def rows(self) -> Rows:
        new = self._new
        return {
            row.name: row
            for row in (
                Local("[constructor]fields", lambda state: new(state, "fields")),
                Local("[static]fields.from-list", lambda state, _: Ok(new(state, "fields"))),
                Local("[method]fields.entries", lambda *_: []),
                Local("[constructor]outgoing-request", self._request),
                Local("[method]outgoing-request.set-method", self._set_method),
                Local("[method]outgoing-request.set-path-with-query", self._set_path),
                Local("[method]outgoing-request.set-scheme", lambda *_: Ok()),
                Local("[method]outgoing-request.set-authority", lambda *_: Ok()),
                Local("[method]outgoing-request.body", self._same),
                Local("[method]outgoing-body.write", self._same),
                Local("[static]outgoing-body.finish", self._finish),
                Local("[constructor]request-options", lambda state: new(state, "options")),
                Local("[method]request-options.set-connect-timeout", lambda *_: Ok()),
                Local("[method]request-options.set-first-byte-timeout", lambda *_: Ok()),
                Local("[method]request-options.set-between-bytes-timeout", lambda *_: Ok()),
                Awaited(
                    name="handle",
                    function_type="write-remote",
                    action=self._perform,
                    observe=self._answered,
                    answer="list<u8>",
                ),
                Local(
                    "[method]future-incoming-response.subscribe",
                    lambda state, _: new(state, AlwaysReady()),
                ),
                Local("[method]future-incoming-response.get", self._get),
                Local("[method]incoming-response.status", lambda *_: 200),
                Local("[method]incoming-response.headers", lambda state, _: new(state, "fields")),
                Local("[method]incoming-response.consume", self._same),
                Local("[method]incoming-body.stream", self._same),
            )
        }

    def _new(self, state: Any, held: object) -> int:
        number: int = state.handles.add(held)
        return number

    def _same(self, state: Any, mine: int) -> Ok:
        return Ok(self._new(state, state.handles.get(mine, object)))

    def _request(self, state: Any, _headers: int) -> int:
        return self._new(state, Request())

    def _set_method(self, state: Any, mine: int, method: Any) -> Ok:
        state.handles.get(mine, Request).method = method.case
        return Ok()

    def _set_path(self, state: Any, mine: int, path: str | None) -> Ok:
        state.handles.get(mine, Request).path = path or "/"
        return Ok()

    def _finish(self, state: Any, body: int, _trailers: int | None) -> Ok:
        state.handles.drop(body)
        return Ok()

    async def _perform(self, state: Any, request: int, _options: int | None) -> bytes:
        asked = state.handles.get(request, Request)
        return self.answer(asked.method, asked.path, asked.body)

    def _answered(self, state: Any, body: bytes, request: int, _options: int | None) -> Ok:
        state.handles.drop(request)
        return Ok(self._new(state, Response(body)))

    def _get(self, state: Any, mine: int) -> Ok:
        return Ok(Ok(self._new(state, state.handles.get(mine, Response))))


class StepServer:
    """What the guests of `transactions.rs` talk to: it counts steps and notes side effects."""

    def __init__(self, fail_per_step: int) -> None:
        self.fail_per_step = fail_per_step
        self.counts: dict[str, int] = {}
        self.events: list[str] = []

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        if path == "/side-effect":
            self.events.append(body.decode())
            return b"OK"
        assert method == "get"
        count = self.counts[path] = self.counts.get(path, 0) + 1
        return b"true" if count <= self.fail_per_step else b"false"
