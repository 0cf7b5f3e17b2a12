"""How many of the process's file descriptors guests may take, so that it has its own."""

import resource
from typing import Final

SHARE: Final = 4
"""Guests' sockets take at most one part in so many of what the process may open, and so do the
connections of their requests."""


def descriptors_for_guests(most: int) -> int:
    """`most`, or what the limits of this process leave."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, max(1, soft // SHARE))
