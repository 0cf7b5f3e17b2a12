"""Who holds how many of what all workers share, so that no worker takes it all.

A worker gets another one for as long as it holds fewer than are left. One that asks without end so
gets half of all, the next one half of what is left then, and whoever holds none finds one, until as
many workers ask without end as `most` can be halved. Nobody has to give anything back. Pure.
"""

from collections import Counter


class Shares:
    def __init__(self, most: int) -> None:
        self.most = most
        self._held: Counter[str] = Counter()
        self._total = 0

    @property
    def left(self) -> int:
        return self.most - self._total

    def may_take(self, worker: str) -> bool:
        return self._held[worker] < self.left

    def take(self, worker: str) -> None:
        self._held[worker] += 1
        self._total += 1

    def give_back(self, worker: str) -> None:
        self._held[worker] -= 1
        self._total -= 1
        if not self._held[worker]:
            del self._held[worker]

    def refusal(self, worker: str, what: str) -> str:
        """Why `worker` may not take another one of `what`."""
        return (
            f"the worker has {self._held[worker]} {what} open, and {self.left} of {self.most} are"
            " left: a worker gets no more than others can have"
        )
