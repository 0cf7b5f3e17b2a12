"""Several terminals on one store: `shem` as processes of their own, in one folder."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.children import ROOT

TIMEOUT_S = 180


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


class Terminal:
    """One running command."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "executor.cli", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> Ended:
        try:
            out, err = self.process.communicate(timeout=TIMEOUT_S)
        finally:
            self.process.kill()
        return Ended(self.process.returncode, out, err)

    def press_ctrl_c(self) -> Ended:
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def kill(self) -> None:
        self.process.kill()
        self.ended()


class Terminals:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / ".shem"
        self._open: list[Terminal] = []

    def start(self, *arguments: str) -> Terminal:
        terminal = Terminal(self.folder, *arguments)
        self._open.append(terminal)
        return terminal

    def shem(self, *arguments: str) -> Ended:
        return self.start(*arguments).ended()

    def serve(self) -> Terminal:
        """`shem run`, once it holds the store."""
        terminal = self.start("run")
        lock = self.store / "executor.lock"
        self.until(lambda: lock.exists() and str(terminal.process.pid) in lock.read_text())
        self.until((self.store / "control.sock").exists)
        return terminal

    def until(self, condition: Any) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come"
            time.sleep(0.02)

    def status(self, worker: str) -> str:
        found = self.shem("worker", worker, "--json")
        return found.json["status"] if found.code == 0 else ""

    def has_work(self, worker: str) -> bool:
        """Whether an invocation is accepted: that a busy guest has begun is not durable at once."""
        found = self.shem("worker", worker, "--json")
        return found.code == 0 and bool(found.json["pending"] or found.json["current_key"])

    def close(self) -> None:
        for terminal in self._open:
            if not terminal.process.stdout.closed:
                terminal.kill()
