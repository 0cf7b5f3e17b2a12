"""What a session is given: the executor around it, and who hears of it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from executor.durable.effects import EffectRunner
from executor.durable.open_effects import Defer, Post
from executor.durable.retrying import Due, at_once
from executor.sources import Sources
from oplog.entry import Entry, Log


class Listener(Protocol):
    """What the worker hears from its session. All calls are quick and never block."""

    def on_live(self) -> None:
        """Live was published; under the worker's lock."""

    def on_target(self) -> None:
        """A session that may not go live has no history left: the guest is to be left."""

    def on_full(self) -> None:
        """Too much of the worker waits to become durable: the guest is to wait as well."""

    def on_output(self, line: Log) -> None:
        """A line of output was appended and is not yet committed; on the lane, under the worker's
        lock.
        """


class SessionWorld(msgspec.Struct, frozen=True, kw_only=True):
    """What a session uses of the executor around it."""

    effects: EffectRunner
    listener: Listener
    sources: Sources
    append: Callable[[Entry], int]
    """Orders an entry that the worker's status folds."""
    attempts: Callable[[int], int]
    """Failed attempts that are counted by the entry of this index; under the worker's lock."""
    due: Callable[[int], Due] = at_once
    """When what is counted by this entry is to be tried again."""
    defer: Defer
    """Has something run when the guest's lane has nothing else to do; on that lane."""
    post: Post
    """Has something called on the trio thread, with arguments."""
