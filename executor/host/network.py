"""What a guest knows of the network, and which of it it may reach.

A guest that looks a name up and connects to an address is allowed what it would be by the name:
the addresses that a name led to are remembered. It is the same in replay, where nothing is looked
up and the recorded addresses are learnt again.
"""

from collections.abc import Iterable
from typing import Final

from executor.services.egress import EgressPolicy, literal_address

SOCKETS_MAX: Final = 256
"""Sockets that a guest may hold at a time."""


class GuestNetwork:
    """Of one instance; changed on the lane, asked on any thread."""

    def __init__(self) -> None:
        self.sockets = 0
        """How many the guest holds."""
        self._names: dict[object, tuple[str, ...]] = {}
        """Those that led to an address."""

    def learn(self, name: str, addresses: Iterable[str]) -> None:
        """The guest was told where a name leads."""
        for text in addresses:
            address = literal_address(text)
            known = self._names.get(address, ())
            if name not in known:
                self._names[address] = (*known, name)

    def refusal(self, egress: EgressPolicy, address: str, port: int) -> str | None:
        """Why an address may not be reached, by itself or by a name that led to it; None if it
        may.
        """
        refused = egress.check(address, port)
        if refused is None:
            return None
        for name in self._names.get(literal_address(address), ()):
            refused = egress.check_address(name, port, address)
            if refused is None:
                return None
        return refused
