"""HTTP as a guest does it, over `tests.support.python_guest`: what a client library is to it."""

from typing import Any

from executor.wasm.values import Err, Ok, Variant
from tests.support.python_guest import Guest

TYPES = "wasi:http/types"
STREAMS = "wasi:io/streams"


class Client:
    """One guest's."""

    def __init__(self, guest: Guest, authority: str, scheme: str = "HTTP") -> None:
        self.guest = guest
        self.authority = authority
        self.scheme = scheme

    def request(self, path: str, method: str = "get", headers: Any = ()) -> int:
        """A new `outgoing-request`."""
        g = self.guest
        fields = g.ok(f"{TYPES}.[static]fields.from-list", list(headers))
        request = g.call(f"{TYPES}.[constructor]outgoing-request", fields)
        on = f"{TYPES}.[method]outgoing-request"
        g.ok(f"{on}.set-method", request, Variant(method))
        g.ok(f"{on}.set-scheme", request, Variant(self.scheme))
        g.ok(f"{on}.set-authority", request, self.authority)
        g.ok(f"{on}.set-path-with-query", request, path)
        return int(request)

    def body(self, request: int) -> tuple[int, int]:
        """Its body and the body's stream."""
        body = self.guest.ok(f"{TYPES}.[method]outgoing-request.body", request)
        return body, self.guest.ok(f"{TYPES}.[method]outgoing-body.write", body)

    def finish(self, body: int, stream: int, trailers: Any = None) -> None:
        self.guest.drop(f"{STREAMS}.output-stream", stream)
        fields = None
        if trailers is not None:
            fields = self.guest.ok(f"{TYPES}.[static]fields.from-list", trailers)
        self.guest.ok(f"{TYPES}.[static]outgoing-body.finish", body, fields)

    def handle(self, request: int, options: int | None = None) -> int:
        return int(self.guest.ok("wasi:http/outgoing-handler.handle", request, options))

    def options(self, **seconds: float) -> int:
        g = self.guest
        options = g.call(f"{TYPES}.[constructor]request-options")
        for name, value in seconds.items():
            setter = f"{TYPES}.[method]request-options.set-{name.replace('_', '-')}-timeout"
            g.ok(setter, options, int(value * 1e9))
        return int(options)

    def get(self, path: str, **more: Any) -> int:
        """A future."""
        return self.handle(self.request(path, **more))

    def post(self, path: str, content: bytes, **more: Any) -> int:
        return self.send("post", path, content, **more)

    def send(self, method: str, path: str, content: bytes, **more: Any) -> int:
        """A future."""
        request = self.request(path, method, **more)
        body, stream = self.body(request)
        self.write(stream, content)
        self.finish(body, stream)
        return self.handle(request)

    def write(self, stream: int, content: bytes) -> None:
        g = self.guest
        for start in range(0, len(content), 4096):
            on = f"{STREAMS}.[method]output-stream.blocking-write-and-flush"
            g.ok(on, stream, content[start : start + 4096])

    def write_as_it_fits(self, stream: int, content: bytes, most: int = 1 << 16) -> None:
        """Asks how much fits before each piece."""
        g = self.guest
        on = f"{STREAMS}.[method]output-stream"
        pollable = g.call(f"{on}.subscribe", stream)
        while content:
            g.call("wasi:io/poll.poll", [pollable])
            room = min(g.ok(f"{on}.check-write", stream), most)
            g.ok(f"{on}.write", stream, content[:room])
            content = content[room:]
        g.drop("wasi:io/poll.pollable", pollable)

    def wait(self, *futures: int) -> list[int]:
        """Polls futures until one is ready; which are."""
        g = self.guest
        on = f"{TYPES}.[method]future-incoming-response.subscribe"
        pollables = [g.call(on, future) for future in futures]
        ready = g.call("wasi:io/poll.poll", pollables)
        for pollable in pollables:
            g.drop("wasi:io/poll.pollable", pollable)
        return [futures[index] for index in ready]

    def response(self, future: int) -> Any:
        """The response, or its error-code; waits."""
        g = self.guest
        while (got := g.call(f"{TYPES}.[method]future-incoming-response.get", future)) is None:
            self.wait(future)
        g.drop(f"{TYPES}.future-incoming-response", future)
        assert isinstance(got, Ok)
        return got.value.value

    def head(self, response: int) -> tuple[int, dict[str, bytes]]:
        g = self.guest
        headers = g.call(f"{TYPES}.[method]incoming-response.headers", response)
        entries = g.call(f"{TYPES}.[method]fields.entries", headers)
        g.drop(f"{TYPES}.fields", headers)
        return g.call(f"{TYPES}.[method]incoming-response.status", response), dict(entries)

    def stream(self, response: int) -> tuple[int, int]:
        """The body of a response and its stream."""
        g = self.guest
        body = g.ok(f"{TYPES}.[method]incoming-response.consume", response)
        return body, g.ok(f"{TYPES}.[method]incoming-body.stream", body)

    def read(self, stream: int, count: int = 1 << 16, function: str = "blocking-read") -> Any:
        """Bytes (or a count), None at the end, or an error's text."""
        g = self.guest
        result = g.call(f"{STREAMS}.[method]input-stream.{function}", stream, count)
        if isinstance(result, Ok):
            return result.value
        assert isinstance(result, Err)
        if result.value.case == "closed":
            return None
        error = result.value.payload
        code = g.call(f"{TYPES}.http-error-code", error)
        text = g.call("wasi:io/error.[method]error.to-debug-string", error)
        g.drop("wasi:io/error.error", error)
        return code.case, text

    def read_all(self, stream: int, count: int = 1 << 16) -> Any:
        """The whole body; (what came, the error) if it fails."""
        content = b""
        while isinstance(piece := self.read(stream, count), bytes):
            content += piece
        return content if piece is None else (content, piece)

    def trailers(self, body: int, stream: int) -> Any:
        """Waits for them: entries, None, or an error-code."""
        g = self.guest
        g.drop(f"{STREAMS}.input-stream", stream)
        future = g.call(f"{TYPES}.[static]incoming-body.finish", body)
        on = f"{TYPES}.[method]future-trailers"
        while (got := g.call(f"{on}.get", future)) is None:
            pollable = g.call(f"{on}.subscribe", future)
            g.call("wasi:io/poll.[method]pollable.block", pollable)
            g.drop("wasi:io/poll.pollable", pollable)
        g.drop(f"{TYPES}.future-trailers", future)
        if isinstance(got.value, Err):
            return got.value.value
        fields = got.value.value
        return None if fields is None else g.call(f"{TYPES}.[method]fields.entries", fields)

    def answer(self, future: int) -> Any:
        """Status and whole body, or the error-code; everything is dropped."""
        response = self.response(future)
        if isinstance(response, Variant):
            return response
        status, _ = self.head(response)
        body, stream = self.stream(response)
        content = self.read_all(stream)
        self.guest.drop(f"{STREAMS}.input-stream", stream)
        self.guest.drop(f"{TYPES}.incoming-body", body)
        self.guest.drop(f"{TYPES}.incoming-response", response)
        return status, content
