"""The outside world of `shem demo`: a small HTTP server in a process of its own, and its client.

As a bank it does what a peer that honours idempotency keys does: a POST is charged once by its
`idempotency-key` header and answered with the same reference whenever it comes again, and it
counts how often each key came. A POST is answered only after a while, so that a client can be
killed in between. Behind `/quotes/N` are suppliers, of whom each second one takes longer. GET
answers with everything, as JSON. The server ends when its stdin closes.

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
SLOW_S: Final = 2.0
"""How long every second supplier thinks."""
ANSWER_TIMEOUT_S: Final = 30
QUOTES: Final = "/quotes/"


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


@dataclass(kw_only=True)
class Quote:
    """What a supplier was asked under one idempotency key."""

    key: str
    path: str
    requests: int = 0
    """How often the key came."""
    answered: int = 0


class Receiver:
    """The server's process as its client sees it. Methods block."""

    def __init__(self, url: str) -> None:
        self.url = url

    def charges(self) -> list[Charge]:
        """Every charge so far, in the order in which they first came."""
        with urllib.request.urlopen(self.url, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310
            return [Charge(**charge) for charge in json.load(answer)]

    def quotes(self) -> list[Quote]:
        """Every quote that was asked for, in the order in which they first came."""
        url = self.url + QUOTES[1:]
        with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310
            return [Quote(**quote) for quote in json.load(answer)]

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


class Suppliers:
    """What they were asked, by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._quotes: dict[str, Quote] = {}

    def ask(self, key: str, path: str) -> Quote:
        with self._lock:
            quote = self._quotes.setdefault(key, Quote(key=key, path=path))
            quote.requests += 1
            return quote

    def answer(self, quote: Quote) -> None:
        with self._lock:
            quote.answered += 1

    def quotes(self) -> list[dict[str, object]]:
        with self._lock:
            return [asdict(quote) for quote in self._quotes.values()]


class Exchange(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    bank: Bank
    suppliers: Suppliers

    def do_POST(self) -> None:  # http.server's name
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        key = self.headers.get("idempotency-key", "")
        if self.path.startswith(QUOTES):
            self._quote(key)
            return
        wanted = json.loads(body)
        charge = self.bank.charge(key, str(wanted["who"]), int(wanted["cents"]))
        time.sleep(DELAY_S)
        self._answer({"reference": charge.reference})

    def _quote(self, key: str) -> None:
        quote = self.suppliers.ask(key, self.path)
        number = int(self.path.removeprefix(QUOTES))
        if number % 2:
            time.sleep(SLOW_S)
        self.suppliers.answer(quote)
        self._answer({"supplier": number})

    def do_GET(self) -> None:  # http.server's name
        quotes = self.path.startswith(QUOTES)
        self._answer(self.suppliers.quotes() if quotes else self.bank.charges())

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
    Exchange.suppliers = Suppliers()
    server = ThreadingHTTPServer((HOST, 0), Exchange)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
