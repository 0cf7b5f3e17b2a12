"""An HTTP server for the benches, in a process of its own: it answers every request at once.

with http_peer() as port: ...
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


class Answering(asyncio.Protocol):
    """One connection; requests have no bodies."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.rest = b""

    def data_received(self, received: bytes) -> None:
        *heads, self.rest = (self.rest + received).split(b"\r\n\r\n")
        assert isinstance(self.transport, asyncio.WriteTransport)
        self.transport.write(ANSWER * len(heads))


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def http_peer() -> Iterator[int]:
    command = (sys.executable, "-m", "benches.http_peer")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(serve())
