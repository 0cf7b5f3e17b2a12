"""A response that was lost when the guest had read a part of it, and that was asked for again:
whether it is the same one.

It must have the status, the length and the validators that are recorded, and must begin with the
very bytes that the guest has read; those are passed over. Anything else is a failure, which may
pass where the peer is only busy. Pure.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from executor.host.streams import Piece
from executor.services.http_client_errors import failure
from executor.services.http_client_types import HttpFailure, ResponseHead
from executor.wasm.values import Variant

MUST_STAY: Final = frozenset({"content-length", "content-encoding", "etag", "last-modified"})
BUSY: Final = frozenset({408, 425, 429, *range(500, 600)})
"""Of a peer that may give in a moment what it gave before."""
DIGEST_BYTES: Final = 16


class Response(NamedTuple):
    """What is recorded of one."""

    head: ResponseHead
    first: Piece


def new_digest(content: bytes = b"") -> Any:
    """Of what the guest has seen of a body; a copy of it says what of it comes again."""
    return blake2b(content, digest_size=DIGEST_BYTES)


class LostResponse:
    """One, while it comes again."""

    def __init__(self, where: str, before: Response, seen_bytes: int, seen: bytes) -> None:
        """`seen` is the digest of the `seen_bytes` bytes that the guest has."""
        self._changed = f"{where}: the response was lost, and asked for again it is another one:"
        self._head = before.head
        self._left = seen_bytes
        self._seen = seen
        self._passed = new_digest()

    def check_head(self, head: ResponseHead, pause_s: float) -> None:
        """`pause_s` is what the peer asks for. Raises: HttpFailure."""
        if head.status != self._head.status and head.status in BUSY:
            raise HttpFailure(
                Variant("HTTP-protocol-error"),
                f"{self._changed} status {head.status}",
                transient=True,
                status=head.status,
                retry_after_s=pause_s,
            )
        if what_matters(head) != what_matters(self._head):
            raise self._other("its status, length or version")

    def new_part(self, piece: Piece) -> Piece | None:
        """What of the next piece the guest has not seen; None if nothing. Raises: HttpFailure."""
        self._passed.update(piece.content[: self._left])
        rest = piece.content[self._left :]
        self._left = max(0, self._left - len(piece.content))
        if piece.ended and self._left:
            raise self._other("it is shorter")
        if not self._left and self._passed.digest() != self._seen:
            raise self._other("it begins with something else")
        return Piece(rest, piece.ended, piece.trailers) if rest or piece.ended else None

    def _other(self, how: str) -> HttpFailure:
        return failure("HTTP-protocol-error", f"{self._changed} {how}", lasting=True)


def what_matters(head: ResponseHead) -> tuple[object, ...]:
    """What has to be the same."""
    kept = [field for field in head.headers if field[0] in MUST_STAY]
    return head.status, sorted(kept)
