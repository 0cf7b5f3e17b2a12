"""What happens after an invocation left the guest without an outcome.

| error                                  | decision                                  |
|----------------------------------------|-------------------------------------------|
| transient (a host function said so)    | again, by policy, then a failure          |
| a trap in an atomic region that wrote  | the region again, by policy, then a       |
|                                        | failure                                   |
| anything else the host or guest raised | a failure at once                         |
| divergence, limit, bad request         | never again by itself                     |

Which policy that is, the failure says: it is chosen once (`durable/retry_rules.py`). A transient
failure is tried again inside its call where that can be (`durable/retrying.py`). Else a retry is a
rebuild: the instance is thrown away and the invocation goes on from the oplog, so that only the
failing call is performed again, under its own start; what an open atomic region held runs again as
a whole. Attempts of both kinds are counted together.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from executor.errors import UsageError
from oplog.entry import Retry, SetRetryPolicy

NS_PER_S: Final = 1_000_000_000


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Delays between attempts: `min_delay_s`, times `multiplier` each, at most `max_delay_s`."""

    attempts_max: int = 3
    """With the first."""
    min_delay_s: float = 0.1
    max_delay_s: float = 1.0
    multiplier: float = 3.0
    max_jitter_factor: float | None = 0.15


DELAY_MAX_S: Final = 1e9
"""Thirty years: what a longer delay is cut to, so that its end is a time."""
ATTEMPTS_MAX: Final = 2**32 - 1
DEFAULT_POLICY: Final = RetryPolicy()
NEVER: Final = RetryPolicy(attempts_max=1)


class Chosen(msgspec.Struct, frozen=True):
    """What decides about one failure, wherever that is."""

    policy: RetryPolicy
    rule: str = ""
    """The name of the rule that chose it; "" for the worker's own policy."""


class TransientError(Exception):
    """Raised by a host function whose failure may pass: the call is tried again by policy."""

    status: int | None = None
    """Of HTTP."""
    kind: str = ""
    """A short word for what went wrong, as `rate-limited`."""
    retry_after_s: float = 0.0
    """How long the peer asks to be left alone."""
    function: str = ""
    """Of the call that failed, if it is not the one that meets it."""
    chosen: Chosen | None = None
    """Set where the failure is first met."""

    def __init__(
        self,
        *message: object,
        status: int | None = None,
        kind: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        """A deployment's rules choose a policy by the text, `kind` and `status`."""
        if not 0 <= retry_after_s < math.inf:
            raise ValueError(f"retry_after_s is {retry_after_s}: no time to wait")
        super().__init__(*message)
        self.status = status
        self.kind = kind
        self.retry_after_s = retry_after_s


class TransientAnswer(TransientError):
    """An effect has an answer that may be better in a moment: no connection, a busy peer.

    Whoever raises it has the guest's answer ready for when it is not tried again. An answer with a
    `status` is tried again only by a rule that names the status: without one it is an answer as any
    other.
    """

    def __init__(
        self,
        message: str,
        answer: object,
        *,
        function: str = "",
        status: int | None = None,
        kind: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        """`function` is that of the call which failed, where another one meets it: a read of what
        a request was answered with. Rules are those of the former, and a status is no answer then.
        """
        super().__init__(message, status=status, kind=kind, retry_after_s=retry_after_s)
        self.answer = answer
        self.function = function


def retry_delay_s(
    policy: RetryPolicy, failed_attempts: int, random_unit: Callable[[], float]
) -> float | None:
    """Seconds to wait before the next attempt, or None if `failed_attempts` used them up.

    `random_unit` gives a float in [0, 1) for the jitter.
    """
    if failed_attempts >= policy.attempts_max:
        return None
    try:
        grown = policy.min_delay_s * policy.multiplier ** (failed_attempts - 1)
    except OverflowError:
        grown = policy.max_delay_s
    jitter = 1 + random_unit() * (policy.max_jitter_factor or 0.0)
    return min(min(policy.max_delay_s, grown) * jitter, DELAY_MAX_S)


def recorded_policy(policy: RetryPolicy, where: str = "retry policy") -> Retry:
    """A deployment's policy as its workers record it. Raises: UsageError."""
    delays = policy.min_delay_s, policy.max_delay_s
    factors = policy.multiplier, policy.max_jitter_factor or 0.0
    why = ""
    if not 1 <= policy.attempts_max <= ATTEMPTS_MAX:
        why = f"max-attempts is from 1 to {ATTEMPTS_MAX}, the first one included"
    elif not all(0 <= delay <= DELAY_MAX_S for delay in delays):
        why = f"a delay is from 0 to {DELAY_MAX_S:.0f} seconds"
    elif delays[0] > delays[1]:
        why = "min-delay is not longer than max-delay"
    elif not all(0 <= factor < math.inf for factor in factors):
        why = "multiplier and jitter are finite and not negative"
    if why:
        raise UsageError(why, where=where, hint="see `shem deploy --help`")
    return Retry(
        attempts_max=policy.attempts_max,
        min_delay_ns=round(policy.min_delay_s * NS_PER_S),
        max_delay_ns=round(policy.max_delay_s * NS_PER_S),
        multiplier=policy.multiplier,
        max_jitter_factor=policy.max_jitter_factor,
    )


def policy_of(entry: Retry | SetRetryPolicy) -> RetryPolicy:
    """The policy that was deployed, or that a guest set."""
    return RetryPolicy(
        attempts_max=entry.attempts_max,
        min_delay_s=entry.min_delay_ns / NS_PER_S,
        max_delay_s=entry.max_delay_ns / NS_PER_S,
        multiplier=entry.multiplier,
        max_jitter_factor=entry.max_jitter_factor,
    )


def storable(text: str) -> str:
    """The text of an error of foreign code as it can be recorded: a lone surrogate, as a file name
    that is not UTF-8 has it, is written out.
    """
    return text.encode(errors="backslashreplace").decode()
