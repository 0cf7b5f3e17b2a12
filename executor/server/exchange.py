"""One request over the store's socket and the lines of its answer: HTTP/1.1 on a connection of its
own, so that ending the connection ends the waiting, and nothing else.
"""

import json
from pathlib import Path
from typing import Any, Final, Self

import h11
import trio

from executor.server.door import short_path

RECEIVED_BYTES: Final = 1 << 16

Line = tuple[str, Any]
"""What is told, `output` or `answer`, and its JSON."""


class ConnectionLost(Exception):
    """The other process ended before its answer did."""


class Exchange:
    """Made by `begin`; to be closed. For the trio thread."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(our_role=h11.CLIENT)
        self._received: list[bytes] = []
        """Pieces of a line that has not ended: one line may be a file of a worker."""
        self._lines: list[Line] = []

    @classmethod
    async def connect(cls, directory: Path) -> Self:
        """Raises: OSError if nobody listens there."""
        with short_path(directory) as short:
            return cls(await trio.open_unix_socket(short))

    async def send(self, operation: str, body: bytes) -> None:
        """Raises: ConnectionLost."""
        head = h11.Request(
            method="POST",
            target=f"/v1/{operation}",
            headers=[
                ("Host", "store"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),  # or it would be kept there for the next request
            ],
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            sent = self._http.send(event)
            try:
                await self._stream.send_all(sent or b"")
            except trio.BrokenResourceError as error:
                raise ConnectionLost from error

    async def next_line(self) -> Line:
        """The next thing told. Raises: ConnectionLost, also behind the last one."""
        while not self._lines:
            await self._receive()
        return self._lines.pop(0)

    async def _receive(self) -> None:
        try:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._stream.receive_some(RECEIVED_BYTES))
                return
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            raise ConnectionLost from error
        if isinstance(event, h11.Data):
            ended, *more = event.data.split(b"\n")
            self._received.append(ended)
            for piece in more:
                self._lines += json.loads(b"".join(self._received)).items()
                self._received = [piece]
        elif not isinstance(event, h11.Response):
            raise ConnectionLost

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)
