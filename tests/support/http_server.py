"""An HTTP server whose behaviour the path says, in threads of its own: the outside world of tests.

    with http_server() as server:
        ...  # ask for server.url + "/text/hello"
        server.counts()     # requests by idempotency key

| path             | answer                                                                        |
|------------------|-------------------------------------------------------------------------------|
| /text/T          | 200, T                                                                        |
| /echo            | 200, the request's body, its headers as `x-` ones                             |
| /status/N        | the status N, `retry-after: 1`                                                |
| /hang            | nothing, until `server.release()`, then 200                                   |
| /close           | the connection is closed before there is a response                           |
| /reset           | the connection is reset before there is a response                            |
| /bytes/N         | 200, N bytes, of which the n-th 64 KiB are told by `pattern`                  |
| /other/N         | as /bytes/N, with other bytes                                                 |
| /count           | 200, how long the body was, if it is as `pattern` tells; it is not kept       |
| /deaf            | the body is not read; an answer after `server.release()`                      |
| /early           | 200 and a first chunk at once, then, once the body is there, how long it was  |
| /cut/N/M         | as /bytes/N, but the connection is closed after M bytes                       |
| /tear/N/M        | as /cut/N/M, but the connection is reset                                      |
| /chunks/N        | 200, N chunks `chunk-0\n` …, then the trailer `x-count: N`                    |
| /chunks/N/MS/K   | as /chunks/N, each after MS milliseconds, and K times as long                 |
| /more/N/M        | as /bytes/N, but M more bytes follow                                          |
| /until-close/N   | 200, N bytes without a length, then the connection is closed                  |
| /head/N          | 200, a header of N bytes                                                      |
| /garbage         | no HTTP                                                                       |

With `?first=N` the path holds for the first N requests of a key, whose next ones get `/text/late`,
or with `&then=PATH` that one.
With `?gate` the answer waits for `server.release()`.
"""

import os
import socket
import struct
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qs, urlsplit

BLOCK = 64 * 1024
WAIT_S = 30


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name; the last one counts."""
    body: bytes
    complete: bool
    """The body arrived whole."""
    connection: int
    """Which of the server's connections it came over."""
    trailers: dict[str, str]

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")


Answer = tuple[int, bytes, dict[str, str]]
"""Status, body, headers."""
Otherwise = Callable[[Request], Answer | str]
"""What answers; or the path of the table that says how."""


def pattern(number: int) -> bytes:
    """The 64 KiB block of that number: every eight bytes say where they stand."""
    words = array("Q", range(number * BLOCK // 8, (number + 1) * BLOCK // 8))
    return words.tobytes()


def pattern_bytes(count: int) -> bytes:
    blocks = b"".join(pattern(number) for number in range(-(-count // BLOCK)))
    return blocks[:count]


class Kept:
    """A body, as it comes."""

    def __init__(self) -> None:
        self.told = b""

    def add(self, piece: bytes) -> None:
        self.told += piece


class Counted:
    """One that is too large to be kept."""

    def __init__(self) -> None:
        self.count = 0
        self.as_told = True

    def add(self, piece: bytes) -> None:
        words = array("Q", range(self.count // 8, (self.count + len(piece) + 7) // 8))
        wanted = memoryview(words.tobytes())[self.count % 8 :][: len(piece)]
        self.as_told = self.as_told and piece == wanted
        self.count += len(piece)

    @property
    def told(self) -> bytes:
        return b"%d" % self.count if self.as_told else b"something else"


class HttpServer:
    """As a test sees it. Any thread."""

    def __init__(self, listening: "Listening") -> None:
        self._listening = listening
        self.port = listening.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.authority = f"127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """In the order in which they were answered."""
        return list(self._listening.requests)

    def counts(self) -> Counter[str]:
        return Counter(request.key for request in self.requests)

    def stream(self, path: str, pieces: list[bytes], allowed: threading.Semaphore) -> None:
        """`path` is answered with pieces, each once it is allowed; every request begins anew."""
        self._listening.streams[path] = pieces, allowed

    @property
    def sent_pieces(self) -> int:
        """Of all streams."""
        return self._listening.sent_pieces

    @property
    def connections(self) -> int:
        """How many there were."""
        return self._listening.connections

    @property
    def waiting(self) -> int:
        """How many requests wait for `release`."""
        return self._listening.waiting

    def forget(self) -> None:
        """The next request of every key is its first."""
        self._listening.asked.clear()

    def release(self) -> None:
        self._listening.gate.set()

    def hold(self) -> None:
        """Requests that are told to wait do so again."""
        self._listening.gate.clear()


class Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, otherwise: Otherwise) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.otherwise = otherwise
        self.requests: list[Request] = []
        self.asked: Counter[str] = Counter()
        self.streams: dict[str, tuple[list[bytes], threading.Semaphore]] = {}
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.connections = 0
        self.sent_pieces = 0
        self.waiting = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of tests come and go."""


class Gone(Exception):
    """The connection is to be closed at once."""


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listening

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1
            self.number = self.server.connections

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Nothing on standard error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        if self.path == "/deaf":
            self.wait()
            self.close_connection = True
            return
        if self.path == "/early":
            self.head(200, ("transfer-encoding", "chunked"))
            self.chunk(b"begun ")
        body, complete, trailers = self.read_body(Counted() if self.path == "/count" else Kept())
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body, complete, self.number, trailers)
        with self.server.lock:
            self.server.requests.append(request)
            self.server.asked[request.key] += 1
            asked = self.server.asked[request.key]
        if not complete:
            self.close_connection = True
            return
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        name, *arguments = parts.path.strip("/").split("/")
        if "first" in query and asked > int(query["first"][0]):
            name, *arguments = query.get("then", ["text/late"])[0].split("/")
        if self.path in self.server.streams:
            self.send_stream(*self.server.streams[self.path])
            return
        if "gate" in query:
            self.wait()
        try:
            method = self.method_of(name)
            if method is None:
                answer = self.server.otherwise(request)
                if not isinstance(answer, str):
                    status, content, headers = answer
                    self.whole(status, content, *headers.items())
                    return
                name, *arguments = answer.strip("/").split("/")
                method = self.method_of(name)
            method(request, *arguments)
        except Gone:
            self.close_connection = True

    def method_of(self, name: str) -> Any:
        return getattr(self, "on_" + name.replace("-", "_"), None)

    def read_body(self, taken: "Kept | Counted") -> tuple[bytes, bool, dict[str, str]]:
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline() or b"-1", 16):
                if size < 0:
                    return taken.told, False, {}
                taken.add(self.rfile.read(size))
                self.rfile.readline()
            trailers = {}
            while line := self.rfile.readline().strip():
                name, _, value = line.decode().partition(":")
                trailers[name.lower()] = value.strip()
            return taken.told, True, trailers
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        taken.add(body)
        return taken.told, len(body) == length, {}

    def head(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def send(self, content: bytes) -> None:
        try:
            self.wfile.write(content)
            self.wfile.flush()
        except OSError as error:
            raise Gone from error

    def whole(self, status: int, content: bytes, *headers: tuple[str, str]) -> None:
        self.head(status, ("content-length", str(len(content))), *headers)
        if self.command != "HEAD":
            self.send(content)

    def wait(self) -> None:
        with self.server.lock:
            self.server.waiting += 1
        self.server.gate.wait(WAIT_S)
        with self.server.lock:
            self.server.waiting -= 1

    def send_stream(self, pieces: list[bytes], allowed: threading.Semaphore) -> None:
        self.head(200, ("transfer-encoding", "chunked"))
        try:
            for piece in pieces:
                allowed.acquire(timeout=WAIT_S)
                self.chunk(piece)
                self.server.sent_pieces += 1
            self.send(b"0\r\n\r\n")
        except Gone:
            self.close_connection = True

    # -- what the paths do ---------------------------------------------------------------------

    def on_text(self, _request: Request, text: str = "") -> None:
        self.whole(200, text.encode(), ("content-type", "text/plain"))

    def on_echo(self, request: Request) -> None:
        told = [(f"x-{name}", value) for name, value in request.headers.items()]
        self.whole(200, request.body, *told)

    def on_status(self, _request: Request, status: str) -> None:
        self.whole(int(status), b"no", ("retry-after", "1"))

    def on_count(self, request: Request) -> None:
        self.whole(200, request.body)

    def on_hang(self, _request: Request) -> None:
        self.wait()
        self.whole(200, b"after a while")

    def on_close(self, _request: Request) -> None:
        raise Gone

    def on_tear(self, _request: Request, count: str, sent: str) -> None:
        self.head(200, ("content-length", count))
        self.blocks(int(sent))
        time.sleep(0.1)  # a reset overtakes what is on its way
        self.reset()

    def on_reset(self, _request: Request) -> None:
        self.reset()

    def reset(self) -> NoReturn:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        os.close(self.connection.detach())  # an orderly end would come before the reset
        raise Gone

    def on_bytes(self, _request: Request, count: str) -> None:
        self.head(200, ("content-length", count))
        self.blocks(int(count))

    def on_cut(self, _request: Request, count: str, sent: str) -> None:
        self.head(200, ("content-length", count))
        self.blocks(int(sent))
        raise Gone

    def on_early(self, request: Request) -> None:
        self.chunk(b"%d" % len(request.body))
        self.send(b"0\r\n\r\n")

    def chunk(self, content: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(content), content))

    def on_other(self, _request: Request, count: str) -> None:
        self.whole(200, pattern_bytes(int(count))[::-1])

    def on_more(self, _request: Request, count: str, more: str) -> None:
        self.head(200, ("content-length", count))
        self.blocks(int(count))
        self.send(b"x" * int(more))

    def on_until_close(self, _request: Request, count: str) -> None:
        self.head(200, ("connection", "close"))
        self.blocks(int(count))
        raise Gone

    def blocks(self, count: int) -> None:
        for number in range(-(-count // BLOCK)):
            self.send(pattern(number)[: count - number * BLOCK])

    def on_chunks(
        self, _request: Request, count: str, pause_ms: str = "0", times: str = "1"
    ) -> None:
        self.head(200, ("transfer-encoding", "chunked"), ("trailer", "x-count"))
        for number in range(int(count)):
            time.sleep(int(pause_ms) / 1000)
            chunk = b"chunk-%d\n" % number * int(times)
            self.chunk(chunk)
        self.send(b"0\r\nx-count: %s\r\n\r\n" % count.encode())

    def on_head(self, _request: Request, size: str) -> None:
        self.whole(200, b"", ("x-large", "x" * int(size)))

    def on_garbage(self, _request: Request) -> None:
        self.send(b"this is no HTTP\r\n\r\n")
        raise Gone


def not_found(_request: Request) -> Answer:
    return 404, b"not found", {}


@contextmanager
def http_server(otherwise: Otherwise = not_found) -> Iterator[HttpServer]:
    """Runs until the block ends. `otherwise` answers the paths that are not in the table."""
    with Listening(otherwise) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield HttpServer(listening)
        finally:
            listening.gate.set()
            listening.shutdown()
            thread.join()


def closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as taken, suppress(OSError):
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
    raise AssertionError("no port is free")
