"""The processes under torture, from outside: servers that fork them, several at once.

Each server is a session of its own, so that Ctrl-C reaches only us, and all of it can be killed
together.
"""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

from executor.errors import InternalError
from executor.torture.plan import Plan, encode

CHILD: Final = "executor.torture.child"


class Server:
    """One process that forks children, one at a time."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # this very program
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, line: bytes) -> int:
        """Blocks until a child has done what the line says."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise InternalError("the server of the processes under torture is gone")
        return int(answer)

    def kill(self) -> None:
        """The server and its child, which are dead on return."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class Children:
    """Servers, and threads to wait for them. Methods block; any thread may call them."""

    def __init__(self, at_once: int, module: str = CHILD) -> None:
        """`module` is run as a program by each server and speaks as `executor.torture.child`."""
        self.pool = ThreadPoolExecutor(at_once)
        """For what runs processes, at most so many at once as there are servers."""
        self._servers = [Server(module) for _ in range(at_once)]
        self._free: SimpleQueue[Server] = SimpleQueue()
        for server in self._servers:
            self._free.put(server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for server in self._servers:
            server.kill()
        self.pool.shutdown()

    def run(self, plan: Plan) -> int:
        """The exit code of a new process; the number of a signal that killed it, negated."""
        return self.run_line(encode(plan))

    def run_line(self, line: bytes) -> int:
        """As `run`, for a module that has plans of its own."""
        server = self._free.get()
        try:
            return server.run(line)
        finally:
            self._free.put(server)
