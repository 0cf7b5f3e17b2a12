"""`Retry-After` (RFC 9110, 10.2.3): how long a peer asks to be left alone. Pure."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_tz
from typing import Final

SECONDS: Final = re.compile(rb"\d+", re.ASCII)
PAUSE_MAX_S: Final = 1e9
"""Thirty years: what a longer one is cut to."""
NS_PER_S: Final = 1_000_000_000


def retry_after_s(headers: Sequence[tuple[str, bytes]], now_ns: int) -> float:
    """Seconds from now, 0 if the peer says nothing that can be read. Names are in lower case."""
    said = next((value.strip() for name, value in headers if name == "retry-after"), b"")
    if SECONDS.fullmatch(said):
        return min(float(said), PAUSE_MAX_S)
    try:
        parts = parsedate_tz(said.decode("latin-1"))
        if parts is None:
            return 0.0
        at_s = datetime(*parts[:6], tzinfo=UTC).timestamp() - (parts[9] or 0)
    except (ValueError, OverflowError):
        return 0.0
    return min(max(0.0, at_s - now_ns / NS_PER_S), PAUSE_MAX_S)
