"""The bank of `shem demo`: a small HTTP server in a process of its own, and its client.

It does what a peer that honours idempotency keys does: a POST is charged once by its
`idempotency-key` header and answered with the same reference whenever it comes again, and it
counts how often each key came. GET answers with everything, as JSON. A POST is answered only after
a while, so that a client can be killed in between. The server ends when its stdin closes.

The server needs the standard library alone; it knows nothing of the executor.
"""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

RECEIVER_VARIABLE: Final = "SHEM_DEMO_RECEIVER"
"""The environment variable of the executor's process that names the bank's address."""
HOST: Final = "127.0.0.1"
DELAY_S: Final = 0.2
"""How long a charge takes: long enough to be killed in the middle of one."""
ANSWER_TIMEOUT_S: Final = 30


@dataclass(kw_only=True)
class Charge:
    """What the bank knows of one idempotency key."""

    key: str
    who: str
    cents: int
    reference: str
    requests: int = 0
    """How often the key came."""
    charged: int = 0
    """How often money moved for it."""


class Receiver:
    """The server's process as its client sees it. Methods block."""

    def __init__(self, url: str) -> None:
        self.url = url

    def charges(self) -> list[Charge]:
        """Every charge so far, in the order in which they first came."""
        with urllib.request.urlopen(self.url, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310
            return [Charge(**charge) for charge in json.load(answer)]

    def requests(self) -> int:
        return sum(charge.requests for charge in self.charges())


@contextmanager
def started_receiver() -> Iterator[Receiver]:
    """A new server on a free port of this machine, until the block ends."""
    command = (sys.executable, "-I", "-S", str(Path(__file__).resolve()))
    with subprocess.Popen(  # noqa: S603  # this very file
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Receiver(f"http://{HOST}:{int(process.stdout.readline())}/")
        finally:
            process.kill()


class Bank:
    """The charges by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._charges: dict[str, Charge] = {}

    def charge(self, key: str, who: str, cents: int) -> Charge:
        """Counts the request; charges only if the key is new."""
        with self._lock:
            charge = self._charges.get(key)
            if charge is None:
                reference = f"ch-{len(self._charges) + 1:03d}"
                charge = Charge(key=key, who=who, cents=cents, reference=reference)
                charge.charged += 1
                self._charges[key] = charge
            charge.requests += 1
            return charge

    def charges(self) -> list[dict[str, object]]:
        with self._lock:
            return [asdict(charge) for charge in self._charges.values()]


class Exchange(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    bank: Bank

    def do_POST(self) -> None:  # http.server's name
        length = int(self.headers.get("content-length", 0))
        wanted = json.loads(self.rfile.read(length))
        key = self.headers.get("idempotency-key", "")
        charge = self.bank.charge(key, str(wanted["who"]), int(wanted["cents"]))
        time.sleep(DELAY_S)
        self._answer({"reference": charge.reference})

    def do_GET(self) -> None:  # http.server's name
        self._answer(self.bank.charges())

    def _answer(self, value: object) -> None:
        content = json.dumps(value).encode()
        try:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client was killed, as the story wants it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        """Nothing: what came is told by GET."""


def serve() -> None:
    """Prints the port and serves until stdin closes."""
    Exchange.bank = Bank()
    server = ThreadingHTTPServer((HOST, 0), Exchange)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
