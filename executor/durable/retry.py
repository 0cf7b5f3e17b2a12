"""What happens after an invocation left the guest without an outcome.

| error                                  | decision                                  |
|----------------------------------------|-------------------------------------------|
| transient (a host function said so)    | again, by policy, then a failure          |
| anything else the host or guest raised | a failure at once                         |
| divergence, limit, bad request         | never again by itself                     |

A retry is a rebuild: the instance is thrown away and the invocation goes on from the oplog, so that
only the failing call is performed again, under its own start.
"""

from collections.abc import Callable
from typing import Final

import msgspec


class TransientError(Exception):
    """Raised by a host function whose failure may pass: the call is tried again by policy."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Delays between attempts: `min_delay_s`, times `multiplier` each, at most `max_delay_s`."""

    attempts_max: int = 3
    """With the first."""
    min_delay_s: float = 0.1
    max_delay_s: float = 1.0
    multiplier: float = 3.0
    max_jitter_factor: float = 0.15


DEFAULT_POLICY: Final = RetryPolicy()


def retry_delay_s(
    policy: RetryPolicy, failed_attempts: int, random_unit: Callable[[], float]
) -> float | None:
    """Seconds to wait before the next attempt, or None if `failed_attempts` used them up.

    `random_unit` gives a float in [0, 1) for the jitter.
    """
    if failed_attempts >= policy.attempts_max:
        return None
    grown = policy.min_delay_s * policy.multiplier ** (failed_attempts - 1)
    return min(policy.max_delay_s, grown) * (1 + random_unit() * policy.max_jitter_factor)
