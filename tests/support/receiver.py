"""The outside world of the crash tests: an HTTP server in a process of its own.

Every POST is appended to a file, and synced, before it is answered: what a killed executor did is
never in doubt. The answer depends on the `idempotency-key` header alone (the same key gets the
same reference again), so a peer that honours keys is what the executor meets, and the file tells
how often it asked.

In a test:  `with Receiver.start(folder) as receiver: ...`
By hand:    `python tests/support/receiver.py FOLDER` prints its address.

GET answers with every request so far as JSON lines. This module knows nothing of the executor and
needs the standard library only.
"""

import http.client
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

LOG_NAME = "requests.jsonl"
ANSWER_TIMEOUT_S = 30


class Request(NamedTuple):
    key: str
    """The `idempotency-key` header; empty if there was none."""
    path: str
    body: str


class Receiver:
    """The server's process, as a test sees it. Methods block; any thread may call them."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"
        self.log = log

    @classmethod
    @contextmanager
    def start(cls, folder: Path) -> Iterator[Self]:
        """Runs until the block ends. A later start in the same folder goes on with its requests."""
        command = (sys.executable, "-S", str(Path(__file__).resolve()), str(folder))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline())
                yield cls(process, port, folder / LOG_NAME)
            finally:
                process.kill()

    def requests(self) -> list[Request]:
        """Every request so far, in the order in which they arrived."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", "/")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return [Request(**json.loads(line)) for line in lines]

    def counts(self) -> Counter[str]:
        """How many requests bore each key."""
        return Counter(request.key for request in self.requests())


class RequestLog:
    """The file, and the reference that each key was given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = Lock()
        self.file = path.open("a")
        self.references: dict[str, str] = {}
        for line in path.read_text().splitlines():
            self.refer(json.loads(line)["key"])

    def append(self, request: Request) -> str:
        """Durable on return. The reference of the request's key."""
        with self.lock:
            self.file.write(json.dumps(request._asdict()) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())
            return self.refer(request.key)

    def refer(self, key: str) -> str:
        return self.references.setdefault(key, f"ref-{len(self.references) + 1}")


class Exchange(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    log_file: RequestLog

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        key = self.headers.get("idempotency-key", "")
        reference = self.log_file.append(Request(key, self.path, body.decode()))
        self.answer(json.dumps({"reference": reference}).encode())

    def do_GET(self) -> None:
        self.answer(self.log_file.path.read_bytes())

    def answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Nothing on standard error: the file is the record."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Many executors knock at once; a connection that is reset here would look like theirs."""


def serve(folder: Path) -> None:
    Exchange.log_file = RequestLog(folder / LOG_NAME)
    with Server(("127.0.0.1", 0), Exchange) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
