"""When an invocation is tried again, and how long that takes."""

import pytest

from executor.durable.function_type import may_repeat
from executor.durable.retry import (
    DEFAULT_POLICY,
    DELAY_MAX_S,
    RetryPolicy,
    policy_of,
    retry_delay_s,
)
from oplog.entry import SetRetryPolicy


def test_the_default_is_three_attempts_of_growing_distance():
    assert retry_delay_s(DEFAULT_POLICY, 1, lambda: 0.0) == pytest.approx(0.1)
    assert retry_delay_s(DEFAULT_POLICY, 2, lambda: 0.0) == pytest.approx(0.3)
    assert retry_delay_s(DEFAULT_POLICY, 3, lambda: 0.0) is None
    assert retry_delay_s(DEFAULT_POLICY, 4, lambda: 0.0) is None


def test_jitter_makes_a_delay_longer_by_at_most_its_share():
    delays = [retry_delay_s(DEFAULT_POLICY, 1, lambda unit=unit: unit / 10) for unit in range(10)]
    assert delays == sorted(delays)
    assert delays[0] == pytest.approx(0.1)
    assert 0.11 < delays[-1] < 0.115


def test_a_delay_never_grows_beyond_its_maximum_but_for_the_jitter():
    policy = RetryPolicy(attempts_max=100)
    delays = [retry_delay_s(policy, attempts, lambda: 0.0) for attempts in range(1, 100)]
    assert delays[:3] == [pytest.approx(0.1), pytest.approx(0.3), pytest.approx(0.9)]
    assert set(delays[3:]) == {1.0}


def test_one_attempt_is_no_retry():
    assert retry_delay_s(RetryPolicy(attempts_max=1), 1, lambda: 0.0) is None


@pytest.mark.parametrize("kind", ["read-local", "write-local", "read-remote"])
def test_what_writes_nothing_outside_may_always_be_repeated(kind):
    assert may_repeat(kind, idempotent=True)
    assert may_repeat(kind, idempotent=False)


def test_a_remote_write_may_be_repeated_while_its_peer_honours_keys():
    assert may_repeat("write-remote", idempotent=True)
    assert not may_repeat("write-remote", idempotent=False)
    assert not may_repeat("write-remote-batched", idempotent=True)


@pytest.mark.parametrize("multiplier", [0.0, 1.0, 1e300])
def test_no_policy_of_a_guest_makes_a_delay_that_is_no_time(multiplier):
    policy = policy_of(
        SetRetryPolicy(
            at=1,
            attempts_max=2**32 - 1,
            min_delay_ns=2**64 - 1,
            max_delay_ns=2**64 - 1,
            multiplier=multiplier,
            max_jitter_factor=1e300,
        )
    )
    for failed in (1, 2, 50):
        assert 0 <= retry_delay_s(policy, failed, lambda: 0.99) <= DELAY_MAX_S


def test_a_policy_without_jitter_has_none():
    policy = policy_of(
        SetRetryPolicy(at=1, attempts_max=2, min_delay_ns=10**9, max_delay_ns=10**9, multiplier=1.0)
    )
    assert retry_delay_s(policy, 1, lambda: 0.99) == 1.0
    assert retry_delay_s(policy, 2, lambda: 0.99) is None
