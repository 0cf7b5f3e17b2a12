"""What a call sends piece by piece: frames in the oplog, from which it can be sent again.

A frame is a hint under the `start` of its call. A replaying guest that sends the same pieces again
takes the recorded frames, in order, and nothing is written twice; where there are none left its
history has ended, and it goes live. One that went live before, at something that is not recorded,
takes them as well until it does something that is. What a frame holds is read back from the oplog
when it is needed, so however much was sent takes no memory.
"""

from typing import Protocol

from executor.errors import Divergence
from executor.replay.claims import describe
from executor.replay.cursor import Cursor
from oplog.codec import encode_value
from oplog.entry import ABSENT, HostStreamFrame, Raw
from oplog.writer import Writer


class Session(Protocol):
    worker: str
    writer: Writer
    cursor: Cursor
    live: bool

    @property
    def is_behind_history(self) -> bool: ...
    def wall_ns(self) -> int: ...
    def go_live(self) -> None: ...
    def stop_if_full(self) -> None: ...
    async def commit(self) -> None: ...


class Frames:
    """One stream of one call. `append` is for the lane, the rest for the trio thread."""

    def __init__(self, session: Session, call_index: int, stream: str) -> None:
        """`call_index` is 0 for a call that nothing is recorded of, in a zone."""
        self._session = session
        self._call_index = call_index
        self._stream = stream

    @property
    def live(self) -> bool:
        return self._session.live

    def append(self, content: bytes | None) -> int:
        """Orders the next frame, or takes the recorded one; None is the end of the stream. Its
        index, 0 if nothing is recorded. Raises: Divergence, LeaveGuest.
        """
        session = self._session
        if not self._call_index:
            return 0
        if not session.live or session.is_behind_history:
            index = session.cursor.take_frame(self._call_index)
            if index is not None:
                return index
        if not session.live:
            following = session.cursor.peek()
            if following is not None:
                raise Divergence(
                    worker=session.worker,
                    index=following[0],
                    recorded=describe(following[1]),
                    requested=f"more of the {self._stream} of the call at {self._call_index}",
                )
            session.go_live()
        frame = HostStreamFrame(
            at=session.wall_ns(),
            parent_start=self._call_index,
            stream=self._stream,
            payload=ABSENT if content is None else Raw(encode_value(content)),
        )
        index = session.writer.append(frame)
        session.stop_if_full()
        return index

    async def committed(self, index: int) -> None:
        """Returns once the frame is durable. Raises: OplogError."""
        if self._session.writer.committed_index < index:
            await self._session.commit()
