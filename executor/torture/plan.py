"""What a process under torture is asked to do, and what it reports: JSON lines both ways.

Reports are appended to a file as things happen: after a SIGKILL they tell what the process had
promised and done. The processes of one case share one file.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from executor.torture.crash_points import Point


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="step"):
    """One invocation that a client asks for. The same key again asks again for the same one."""

    worker: str
    function: str
    arguments: tuple[str, ...] = ()
    """WAVE texts."""
    key: str
    env: dict[str, str] | None = None
    """Of a new worker."""
    args: tuple[str, ...] | None = None
    """Of a new worker."""


class Submit(Step, frozen=True, kw_only=True, tag="submit"):
    """Only accepted, which is reported."""


class Invoke(Step, frozen=True, kw_only=True, tag="invoke"):
    """Awaited: its outcome is reported."""


AnyStep: TypeAlias = Submit | Invoke


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    case: str
    """The environment variable `SHEM_TORTURE_CASE` of the process."""
    store: str
    """This path and the other ones are legible (`executor.path_text`)."""
    report: str
    """File to which the process appends its reports."""
    errors: str
    """File of its standard output and standard error."""
    workers: tuple[str, ...] = ()
    """Whose oplogs are reported."""
    steps: tuple[AnyStep, ...] = ()
    point: Point | None = None
    """Where the process dies."""
    resume: bool = False
    """First take up whatever is pending, until idle, and report what became of each key."""
    verify: bool = False
    """In the end replay every worker and report its oplog."""
    later_s: float | None = None
    """If given, the clocks are years late, and each reading is so much later than the one before.
    """
    timeout_s: float
    """A process that lives longer ends with exit code 1 and says where it stood."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    pass


class Opened(Event, frozen=True, kw_only=True, tag="opened"):
    """A process began; whatever follows is its own."""


class Accepted(Event, frozen=True, kw_only=True, tag="accepted"):
    worker: str
    key: str


class Outcome(Event, frozen=True, kw_only=True, tag="outcome"):
    worker: str
    key: str
    resumed: bool = False
    """Found committed after the resumption, before anybody asked again."""
    status: str
    wave: str = ""
    error: str = ""
    """Its kind and message."""
    exit_code: int | None = None
    attempts: int = 0
    stdout: str = ""
    stderr: str = ""


class Refused(Event, frozen=True, kw_only=True, tag="refused"):
    worker: str
    key: str
    kind: str
    message: str


class Trouble(Event, frozen=True, kw_only=True, tag="trouble"):
    """What kept a worker with work from running while everything was taken up."""

    kind: str
    message: str


class Resolved(Event, frozen=True, kw_only=True, tag="resolved"):
    """A worker was uncertain, and its owner had the write repeated."""

    worker: str
    start: int


class EffectBegan(Event, frozen=True, kw_only=True, tag="effect-began"):
    """A remote effect is about to be performed."""

    key: str
    """Derived."""
    function: str
    type: str


class EffectEnded(Event, frozen=True, kw_only=True, tag="effect-ended"):
    key: str
    answered: bool
    """False if it raised or was cancelled: then it may be tried again."""


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recorded remote call."""

    index: int
    """Of its `start`."""
    key: str
    """Derived."""
    invocation: str
    function: str
    type: str
    request: str = ""
    response: str = ""
    ended: bool = False
    cancelled: bool = False
    """The guest dropped it before it ended; it is not taken up again."""
    hidden: bool = False
    asked: bool = False
    """Whether recovery must ask its owner before it repeats the call."""
    begun: int = 0
    """How often an owner's word had it repeated."""
    asked_on: bool = False
    """It may be performed again for the rest of its answer, each time that this was lost."""


class Found(Event, frozen=True, kw_only=True, tag="found"):
    """A worker's committed oplog: before the executor opens, and (`verified`) in the end."""

    worker: str
    id: str
    entries: tuple[str, ...]
    """A digest of each, in order."""
    calls: tuple[Call, ...] = ()
    doubles: tuple[str, ...] = ()
    """What a key or a call has more than once, as sentences."""
    setbacks: int = 0
    """Failed attempts, jumps and words of an owner: with each an instance may have been lost, or
    the rest of a response, without a crash."""
    rolled_back: bool = False
    """Whether anything is hidden: output of an attempt that does not count stays."""
    status: str = ""
    pending: int = 0
    verified: bool = False


class Replayed(Event, frozen=True, kw_only=True, tag="replayed"):
    worker: str
    entries: int
    replayed: int
    divergence: str = ""


class Files(Event, frozen=True, kw_only=True, tag="files"):
    """A worker's files in the end."""

    worker: str
    texts: dict[str, str]
    """By path: what is in a file, where a symbolic link leads, or that it is a directory."""


class Counted(Event, frozen=True, kw_only=True, tag="counted"):
    """How often each kind of crash point was reached before the verification."""

    counts: dict[str, int]


class Ended(Event, frozen=True, kw_only=True, tag="ended"):
    """A process ended of itself."""


AnyEvent: TypeAlias = (
    Opened
    | Accepted
    | Outcome
    | Refused
    | Trouble
    | Resolved
    | EffectBegan
    | EffectEnded
    | Found
    | Replayed
    | Files
    | Counted
    | Ended
)

Report: TypeAlias = Callable[[AnyEvent], None]

encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(Plan).decode
decode_event = msgspec.json.Decoder(AnyEvent).decode
