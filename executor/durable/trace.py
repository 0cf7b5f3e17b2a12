"""The trace of an invocation: spans in the sense of OpenTelemetry, and which one is the current.

Every invocation has a trace of its own, with a root and under it the span of the invocation; the
guest's spans lie under that. Ids have nothing random: they are digests of the worker's id, the
invocation's key and a count, so every attempt of an invocation has the same. All of it is rebuilt
by replay.
"""

from hashlib import blake2b
from typing import Final

from oplog.entry import InvocationStarted

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8


class Span:
    """One unit of work. It outlives its invocation if the guest keeps it."""

    __slots__ = ("attributes", "finished", "parent", "span_id", "started_ns")

    def __init__(
        self, span_id: str, parent: "Span | None", started_ns: int, attributes: dict[str, str]
    ) -> None:
        self.span_id = span_id
        """8 bytes as hex."""
        self.parent = parent
        self.started_ns = started_ns
        """Nanoseconds since the Unix epoch."""
        self.attributes = attributes
        self.finished = False

    def chain(self, key: str) -> list[str]:
        """The values of an attribute, that of the innermost span first."""
        span: Span | None = self
        values = []
        while span is not None:
            if key in span.attributes:
                values.append(span.attributes[key])
            span = span.parent
        return values

    def keys(self) -> list[str]:
        """The attributes of the span and all that it lies in, sorted."""
        span: Span | None = self
        found: set[str] = set()
        while span is not None:
            found.update(span.attributes)
            span = span.parent
        return sorted(found)


class Trace:
    """Of the invocation that runs. On the worker's lane, and by the loop before the guest runs."""

    __slots__ = ("_current", "_key", "_started", "_worker", "_worker_id", "count", "forwards")

    def __init__(self, worker: str, worker_id: bytes) -> None:
        self.forwards = True
        """Whether outgoing requests carry the headers of the trace; holds over invocations."""
        self._worker = worker
        self._worker_id = worker_id
        self._key = ""
        self._started: InvocationStarted | None = None
        self._current: Span | None = None
        self.count = 0
        """Of the spans that the guest has begun in the invocation."""

    def enter_invocation(self, started: InvocationStarted) -> None:
        """No span of another invocation is the current one any more."""
        self._started = started
        self._key = started.key
        self._current = None
        self.count = 0

    @property
    def trace_id(self) -> str:
        """16 bytes as hex."""
        return self._digest("trace", TRACE_ID_BYTES)

    @property
    def current(self) -> Span:
        """The innermost span that is not finished; at first that of the invocation."""
        if self._current is None:
            self._current = self._first()
        return self._current

    @property
    def header(self) -> str:
        """`traceparent` as W3C Trace Context has it: version 00, and not sampled, since nothing
        here decides that.
        """
        return traceparent(self.trace_id, self.current)

    def begin(self, started_ns: int, attributes: dict[str, str], span_id: str) -> Span:
        """A span under the current one, which it becomes; `span_id` is that of `next_id`."""
        self._current = Span(span_id, self.current, started_ns, attributes)
        self.count += 1
        return self._current

    def end(self, span: Span) -> None:
        span.finished = True
        current = self.current
        while current.finished and current.parent is not None:
            current = current.parent
        self._current = current

    def next_id(self) -> str:
        """The id of the span that begins next."""
        return self._digest(f"span {self.count}", SPAN_ID_BYTES)

    def _first(self) -> Span:
        """Root and invocation are made when they are asked for: most guests never ask."""
        at = 0 if self._started is None else self._started.at
        root = Span(self._digest("root", SPAN_ID_BYTES), None, at, {})
        if self._started is None:
            return root  # the instance is being made, for no invocation yet
        attributes = {
            "name": "invoke-exported-function",
            "idempotency_key": self._key,
            "function_name": self._started.function,
            "worker_id": self._worker,
        }
        return Span(self._digest("invocation", SPAN_ID_BYTES), root, at, attributes)

    def _digest(self, what: str, size: int) -> str:
        told = b"\0".join((self._worker_id, self._key.encode(), what.encode()))
        return blake2b(told, digest_size=size).hexdigest()


def traceparent(trace_id: str, span: Span) -> str:
    return f"00-{trace_id}-{span.span_id}-00"
