"""What a guest asked of its own durability, and what stands open because of it.

All of it is rebuilt by replay: the guest makes the same calls again. Idempotence mode and retry
policy hold from call to call of the worker; a region, and a zone in which nothing is recorded, end
with their invocation at the latest.

The keys of remote writes inside the outermost region count from its begin + 1, in each attempt
anew, so that the n-th write of a region has the same key in every attempt. In a zone no entry has
an index to count by: its keys are derived from a key of the zone itself, counted from 1. Other
calls move no counter; where there is one they have keys of a namespace of their own, so that no two
calls share a key.
"""

from uuid import UUID

from executor.durable.keys import key_in
from executor.durable.retry import DEFAULT_POLICY, RetryPolicy
from executor.replay.spans import PERSIST_NOTHING

SMART = "smart"


class Modes:
    """Used on the worker's lane, and by the loop once the guest was left."""

    __slots__ = (
        "_region_key",
        "_zone_key",
        "_zone_namespace",
        "_zone_reads",
        "begin",
        "idempotent",
        "level",
        "policy",
        "regions",
        "wrote",
        "zone",
    )

    def __init__(self) -> None:
        self.idempotent = True
        self.policy: RetryPolicy = DEFAULT_POLICY
        self.leave_invocation()

    def leave_invocation(self) -> None:
        """No region and no zone outlives its invocation."""
        self.level = SMART
        self.regions: list[int] = []
        """Begins of the open regions, outermost first."""
        self.zone = 0
        self.begin = 0
        """The outermost open begin, of a region or a zone: where a failure goes back to."""
        self.wrote = False
        """Whether the outermost open region held a start other than read-local."""
        self._region_key = 0
        self._zone_key = 0
        self._zone_reads = 0
        self._zone_namespace = b""

    @property
    def retries_traps(self) -> bool:
        """Whether a trap may come from outside the guest, and may be tried again from the begin."""
        return bool(self.regions) and self.wrote

    def begin_region(self, index: int) -> None:
        self.regions.append(index)
        self._opened(index)

    def end_region(self, begin: int) -> None:
        """With those that began inside it."""
        self.regions = [outer for outer in self.regions if outer < begin]
        self._closed()

    def set_level(self, level: str, index: int, namespace: bytes) -> None:
        """`namespace` is that of the invocation's keys."""
        self.level = level
        if level == PERSIST_NOTHING and not self.zone:
            self._zone_namespace = UUID(self.key(namespace, index)).bytes
            self._zone_key = 0
            self._zone_reads = 0
            self.zone = index
            self._opened(index)
        elif level != PERSIST_NOTHING and self.zone:
            self.zone = 0
            self._closed()

    def _opened(self, index: int) -> None:
        if not self.begin:
            self.begin = index
            self.wrote = False
            self._region_key = index

    def _closed(self) -> None:
        if not self.regions and not self.zone:
            self.begin = 0

    def key(self, namespace: bytes, index: int) -> str:
        """The derived key of the write whose start is at `index`; the next one differs."""
        if self.zone:
            self._zone_key += 1
            return key_in(self._zone_namespace, self._zone_key)
        if not self.begin:
            return key_in(namespace, index)
        self._region_key += 1
        return key_in(namespace, self._region_key)

    def read_key(self, namespace: bytes, index: int) -> str:
        """The derived key of a call that is no remote write, whose start is at `index`."""
        if self.zone:
            self._zone_reads += 1
            return key_in(UUID(key_in(self._zone_namespace, 0)).bytes, self._zone_reads)
        if not self.begin:
            return key_in(namespace, index)
        return key_in(UUID(key_in(namespace, self.begin)).bytes, index)
