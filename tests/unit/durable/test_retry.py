"""When an invocation is tried again, and how long that takes."""

import pytest

from executor.durable.function_type import may_repeat
from executor.durable.retry import DEFAULT_POLICY, RetryPolicy, retry_delay_s


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
    assert may_repeat(kind, idempotence=True)
    assert may_repeat(kind, idempotence=False)


def test_a_remote_write_may_be_repeated_while_its_peer_honours_keys():
    assert may_repeat("write-remote", idempotence=True)
    assert not may_repeat("write-remote", idempotence=False)
    assert not may_repeat("write-remote-batched", idempotence=True)
