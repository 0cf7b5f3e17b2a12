"""What a child of the crash tests is asked to do, and what it reports: JSON lines both ways."""

from typing import TypeAlias

import msgspec


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="step"):
    pass


class Invoke(Step, frozen=True, kw_only=True, tag="invoke"):
    """Awaited: acceptance and outcome."""

    worker: str
    function: str
    arguments: tuple[str, ...] = ()
    """WAVE texts."""
    key: str


class Submit(Step, frozen=True, kw_only=True, tag="submit"):
    """Only accepted."""

    worker: str
    function: str
    arguments: tuple[str, ...] = ()
    key: str


class Wait(Step, frozen=True, kw_only=True, tag="wait"):
    worker: str
    key: str


class Together(Step, frozen=True, kw_only=True, tag="together"):
    """Several sequences at once."""

    sequences: tuple[tuple["AnyStep", ...], ...]


class Deploy(Step, frozen=True, kw_only=True, tag="deploy"):
    path: str
    name: str


class Delete(Step, frozen=True, kw_only=True, tag="delete"):
    worker: str


AnyStep: TypeAlias = Invoke | Submit | Wait | Together | Deploy | Delete


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    report: str
    """File to which the child appends its reports."""
    errors: str
    """File of its standard error."""
    receiver_port: int
    peer: str
    """Path of the receiver's URL: names the case."""
    bank: str = "demo:bank/api"
    """Interface of `charge`."""
    charge_type: str = "write-remote"
    flaky: str = ""
    """A folder: each charge fails transiently once, before it reaches the receiver, and leaves a
    file of its key here."""
    workers: tuple[str, ...] = ()
    steps: tuple[AnyStep, ...] = ()
    queries: tuple[Invoke, ...] = ()
    point: tuple[str, int] | None = None
    """Where the child dies: kind and number of a crash point."""
    resume: bool = False
    """First take up whatever is pending, until idle, and report what became of each key."""
    verify: bool = False
    """In the end ask the queries, replay every worker and report its oplog."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One committed entry."""

    index: int
    kind: str
    digest: str
    """Of its bytes."""
    key: str = ""
    """Of a pending or started invocation."""
    function: str = ""
    type: str = ""
    start_index: int = 0


class Found(Event, frozen=True, kw_only=True, tag="found"):
    """A worker's committed oplog: before the executor opens, and (`verified`) in the end."""

    worker: str
    id: str
    lines: tuple[Line, ...]
    verified: bool


class Accepted(Event, frozen=True, kw_only=True, tag="accepted"):
    worker: str
    key: str


class Outcome(Event, frozen=True, kw_only=True, tag="outcome"):
    worker: str
    key: str
    resumed: bool
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


class Replayed(Event, frozen=True, kw_only=True, tag="replayed"):
    worker: str
    entries: int
    replayed: int
    divergence: str


class Deployed(Event, frozen=True, kw_only=True, tag="deployed"):
    name: str
    revision: int


class Deleted(Event, frozen=True, kw_only=True, tag="deleted"):
    worker: str
    found: bool


class Counted(Event, frozen=True, kw_only=True, tag="counted"):
    """How often each kind of crash point was reached before the verification."""

    counts: dict[str, int]


class Opened(Event, frozen=True, kw_only=True, tag="opened"):
    """A child began; whatever follows is its own."""


class Ended(Event, frozen=True, kw_only=True, tag="ended"):
    """A child ended of itself."""


AnyEvent: TypeAlias = (
    Found | Accepted | Outcome | Refused | Replayed | Deployed | Deleted | Counted | Opened | Ended
)

encode = msgspec.json.Encoder().encode
decode_plan = msgspec.json.Decoder(Plan).decode
decode_event = msgspec.json.Decoder(AnyEvent).decode
