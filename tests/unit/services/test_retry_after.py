"""`Retry-After`, in both of its forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.services.retry_after import PAUSE_MAX_S, retry_after_s

NOW_NS = 784_111_777 * 10**9
"""Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110, 5.6.7."""


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (b"120", 120),
        (b" 7 ", 7),
        (b"0", 0),
        (b"9" * 400, PAUSE_MAX_S),
        (b"Sun, 06 Nov 1994 08:50:37 GMT", 60),
        (b"Sunday, 06-Nov-94 08:50:37 GMT", 60),
        (b"Sun Nov  6 08:50:37 1994", 60),
        (b"Sun, 06 Nov 1994 08:48:37 GMT", 0),
        (b"Sun, 06 Nov 9994 08:48:37 GMT", PAUSE_MAX_S),
        (b"-5", 0),
        (b"1.5", 0),
        (b"soon", 0),
        (b"Sun, 99 Nov 1994 08:48:37 GMT", 0),
        (b"", 0),
    ],
)
def test_a_pause_is_seconds_or_a_date(said, seconds):
    headers = [("date", b"4"), ("retry-after", said), ("retry-after", b"9")]
    assert retry_after_s(headers, NOW_NS) == seconds


def test_nothing_said_is_no_pause():
    assert retry_after_s([("date", b"4")], NOW_NS) == 0


@given(st.binary(max_size=40) | st.text("0123456789:- JanGMT+,", max_size=40).map(str.encode))
def test_whatever_a_peer_says_it_is_a_time_to_wait(said):
    assert 0 <= retry_after_s([("retry-after", said)], NOW_NS) <= PAUSE_MAX_S
