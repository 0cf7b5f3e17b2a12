"""One request that the guest handed over: over every connection, and every instance, that it takes.

The call's effect connects, sends, and answers with the head of the response and what of the body
comes with it: a short response is whole with its `end`, and is never asked for again. The rest of a
body is fetched a piece at a time, when the guest asks or waits for it, and each read is recorded.

When the instance is lost in the middle of a body, the guest that was rebuilt has read what is
recorded, and reads on. The request is then sent again, with the same key, where its type allows
that: an effect as the first one was, of the same call. The response must be the same one
(`http_lost_response.py`), or the stream fails with a sentence.

Threads: as `durable/deferred.py`; a piece is handed from the trio thread to the lane.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio
from msgspec.structs import replace

from executor.durable.deferred import CallState, DeferredCall
from executor.durable.function_type import may_repeat
from executor.durable.retry import TransientAnswer
from executor.durable.signal import Signal
from executor.host.connections import Outside
from executor.host.state import HostState
from executor.host.streams import Failure, Piece
from executor.host.wasi.http_lost_response import LostResponse, Response, new_digest
from executor.host.wasi.http_request_body import RequestBody
from executor.services.http_client_errors import failure
from executor.services.http_client_types import (
    Ended,
    Exchange,
    HttpFailure,
    HttpRequest,
    ResponseHead,
    StaleConnection,
)
from executor.services.retry_after import retry_after_s
from executor.wasm.values import Err, Ok

KEY: Final = "idempotency-key"
WITH_HEAD_BYTES: Final = 64 * 1024
"""What of a body is recorded with its head."""
WITH_HEAD_S: Final = 0.1
"""What a head waits for its body, so that a stream that trickles is seen at once."""
STATUS_OF_ERRORS: Final = 400
"""From here on a rule may call a response a failure."""
ANSWERED: Final = frozenset({CallState.READY, CallState.DELIVERED})
GIVEN_UP: Final = "the request's body was dropped before it was finished"


class Transmission:
    """Made on the lane when the request is handed over, in both modes."""

    def __init__(
        self,
        state: HostState,
        request: HttpRequest,
        body: RequestBody | None,
        recorded: Callable[[DeferredCall], Response | None],
    ) -> None:
        """`recorded(call)` reads the response that a call which has ended was answered with."""
        self.signal = Signal()
        """Fired when something can be read."""
        self.call: DeferredCall | None = None
        self._state = state
        self._request = request
        self._body = body
        self._recorded = recorded
        self._exchange: Exchange | None = None
        self._opened = False
        """There was an exchange in this instance."""
        self._sender: trio.CancelScope | None = None
        self._sent = body is None
        """The request has left, or nobody sends it any more."""
        self._fetcher: trio.CancelScope | None = None
        """Of the task that receives the next piece."""
        self._asked_again: object = None
        """The effect that asks for the response again."""
        self._closed = False
        self._piece: Piece | None = None
        """What was received and not yet read."""
        self._failure: Failure | None = None
        """Why there is nothing more to read."""
        self._unsent: Failure | None = None
        """Why the body does not leave; the guest hears of it once the call has ended."""
        self._received = False
        """The response is whole, here."""
        self._seen_whole = False
        """And in the guest."""
        self._waiting: trio.CancelScope | None = None
        """Of the wait for the head."""
        self._seen_bytes = 0
        """Of the body, by the guest: the same in replay, as the digest of them is."""
        self._seen = new_digest()
        if body is not None:
            body.on_more = self._send_on
            body.why_unsent = self._why_unsent

    # -- the effect ----------------------------------------------------------------------------

    async def perform(self, call: DeferredCall) -> Ok | Err:
        """The answer of the call, as it is recorded. Raises: TransientAnswer, if another attempt
        may come to another one.
        """
        self.call = call
        self._stop_fetching()
        try:
            head = await self._open()
        except HttpFailure as failed:
            self._end(failed)
            answer = Err({"code": failed.code, "message": failed.message})
            if failed.transient:
                kind = failed.code.case
                raise TransientAnswer(failed.message, answer, kind=kind) from failed
            return answer
        first = await self._first_piece()
        record = {"content": first.content, "ended": first.ended, "trailers": first.trailers}
        ok = Ok({"status": head.status, "headers": head.headers, "body": record})
        if head.status >= STATUS_OF_ERRORS:
            text = f"{self._request.authority}: status {head.status}"
            raise TransientAnswer(text, ok, status=head.status, retry_after_s=self._pause_s(head))
        return ok

    async def _first_piece(self) -> Piece:
        """What comes of the body within a moment."""
        assert self._exchange is not None
        whole = self._exchange.whole()
        if whole is not None:
            self._piece = Piece(whole[0], ended=True, trailers=whole[1].trailers)
            self._received = True
            self._settle()
        content = bytearray()
        with trio.move_on_after(WITH_HEAD_S):
            while len(content) < WITH_HEAD_BYTES:
                received = await self._arrived(WITH_HEAD_BYTES - len(content))
                if isinstance(received, Failure):
                    break  # the guest meets it when it reads on
                content += received.content
                if received.ended:
                    self._let_go()
                    return Piece(bytes(content), ended=True, trailers=received.trailers)
        return Piece(bytes(content))

    async def _open(self) -> ResponseHead:
        """Sends the request. Raises: HttpFailure."""
        self._piece = self._failure = self._unsent = None
        self._received = False
        fresh = not self._may_repeat
        while True:
            self._end_exchange()
            try:
                return await self._open_once(fresh=fresh)
            except StaleConnection as stale:
                if fresh:
                    where = self._request.authority
                    text = f"{where}: the peer closed the connection before it answered"
                    raise failure("connection-terminated", text) from stale
                fresh = True

    async def _open_once(self, *, fresh: bool) -> ResponseHead:
        assert self.call is not None
        if self._closed or (self._body is not None and self._body.dropped):
            raise failure("internal-error", GIVEN_UP, GIVEN_UP, lasting=True)
        outside = self._outside
        request = self._request
        if not request.has(KEY):
            request = request.saying(KEY, self.call.key)
        self._opened = True
        self._exchange = exchange = await outside.http.begin(
            request, self._state.egress, self._state.session.worker, fresh=fresh
        )
        self._state.connections.add(self)
        if self._body is None:
            await exchange.send_end([])
        else:
            self._sent = False
            send = partial(self._send, self._body, exchange)
            self._sender = outside.http.start(send, self._not_sent)
        return await self._head_in_time(exchange)

    async def _head_in_time(self, exchange: Exchange) -> ResponseHead:
        with trio.CancelScope() as self._waiting:
            self._progress()
            try:
                return await exchange.receive_head()
            except HttpFailure:
                if self._body is not None and self._body.dropped:
                    raise failure("internal-error", GIVEN_UP, GIVEN_UP, lasting=True) from None
                raise
        limit = self._request.timeouts.first_byte_s
        text = f"{self._request.authority}: no response in {limit} s"
        raise failure("connection-read-timeout", text, lasting=True)

    def _progress(self) -> None:
        """The wait for the head begins anew."""
        if self._waiting is not None:
            self._waiting.deadline = trio.current_time() + self._request.timeouts.first_byte_s

    async def _send(self, body: RequestBody, exchange: Exchange) -> None:
        await body.send(exchange, self._progress)
        self._sent = True
        self._settle()

    def _not_sent(self, error: Exception) -> None:
        """The body. Whoever waits for the head may still get one: servers answer early."""
        self._sent = True
        assert self._body is not None
        self._unsent = failure_of(error)
        if self._body.dropped or not isinstance(error, HttpFailure | StaleConnection):
            self._end_exchange()
        self._settle()
        self._body.news.fire()

    def _send_on(self) -> None:
        """The live guest has written or finished. If its instance was lost after the response had
        begun, and before all was written, the request is sent again: the peer has half of it.
        """
        if self.call is not None and not self._opened and self.call.state in ANSWERED:
            self.demand()

    # -- reading, in trio ----------------------------------------------------------------------

    def demand(self) -> None:
        """Has the next piece fetched, if none is there and none on its way."""
        busy = self._fetcher is not None or self._asked_again is not None or self._closed
        if busy or self._piece is not None or self._failure is not None:
            return
        self._state.connections.add(self)  # which closes it if the instance was left
        if self._closed:
            return
        if self._exchange is None:
            self._ask_again()
        else:
            self._fetcher = self._outside.http.start(self._fetch, self._not_fetched)

    async def received(self, count: int) -> Piece | Failure:
        """At most `count` bytes; waits for them. After a transient failure, told once, for new
        ones.
        """
        found = await self._arrived(count)
        if isinstance(found, Failure) and found.transient:
            self._failure = None
        return found

    async def _arrived(self, count: int) -> Piece | Failure:
        while (found := self.take(count)) is None:
            self.demand()
            if self._failure is None:  # that nothing comes may be known at once
                await self.signal.wait()
        return found

    async def drained(self) -> Piece | Failure:
        """The end of the body: whatever comes before it is passed over."""
        while True:
            found = await self.received(WITH_HEAD_BYTES)
            if isinstance(found, Failure) or found.ended:
                return found

    async def sent(self) -> None:
        """Its call is awaited, as a remote write is."""

    def close(self) -> None:
        """Ends everything that is under way, for good."""
        self._closed = True
        self._stop_fetching()
        self._end_exchange()

    def _stop_fetching(self) -> None:
        if self._fetcher is not None:
            self._fetcher.cancel()
            self._fetcher = None
        asked, self._asked_again = self._asked_again, None
        if asked is not None:
            self._session.deferred.stop(asked)

    async def _fetch(self) -> None:
        piece = await self._receive()
        self._fetcher = None
        self._fetched(piece)

    def _fetched(self, piece: Piece) -> None:
        self._piece = piece
        self._received = piece.ended
        self._settle()
        self.signal.fire()

    def _not_fetched(self, error: Exception) -> None:
        self._fetcher = None
        self._end(error)

    def _ask_again(self) -> None:
        """Has the request sent once more, for what follows the part that is recorded."""
        assert self.call is not None
        call = self.call
        before = self._recorded(call)
        if before is None or not self._may_repeat:
            where = self._request.authority
            text = f"{where}: the response was lost, and its request must not be repeated"
            self._end(failure("connection-terminated", text, lasting=True))
            return

        def done(piece: object, error: BaseException | None) -> None:
            self._asked_again = None
            if isinstance(piece, Piece):
                self._fetched(piece)
            else:
                assert isinstance(error, Exception)
                self._end(error)

        deferred = self._session.deferred
        self._asked_again = deferred.perform_on(call, partial(self._continue, before), done)

    async def _receive(self) -> Piece:
        """Raises: HttpFailure."""
        exchange = self._exchange
        assert exchange is not None
        with trio.move_on_after(self._request.timeouts.between_bytes_s):
            received = await exchange.receive()
            if isinstance(received, Ended):
                return Piece(b"", ended=True, trailers=received.trailers)
            end = exchange.at_end()
            if end is None:
                return Piece(received)
            return Piece(received, ended=True, trailers=end.trailers)
        limit = self._request.timeouts.between_bytes_s
        text = f"{self._request.authority}: nothing more of the response in {limit} s"
        raise failure("connection-read-timeout", text, lasting=True)

    async def _continue(self, before: Response) -> Piece:
        """Asks for the response again, and passes over what the guest has seen of it.

        Raises: HttpFailure.
        """
        assert self.call is not None
        seen_bytes, seen = self._seen_bytes, self._seen.digest()
        if self.call.state is not CallState.DELIVERED:
            seen_bytes, seen = len(before.first.content), new_digest(before.first.content).digest()
        lost = LostResponse(self._request.authority, before, seen_bytes, seen)
        head = await self._open()
        lost.check_head(head, self._pause_s(head))
        while True:
            piece = lost.new_part(await self._receive())
            if piece is not None:
                return piece

    # -- on the lane ---------------------------------------------------------------------------

    def take(self, count: int) -> Piece | Failure | None:
        """What is there, of at most `count` bytes. On the lane, or in trio while the guest waits
        for it.
        """
        piece = self._piece
        if piece is None:
            return self._failure
        if len(piece.content) > count:
            self._piece = Piece(piece.content[count:], piece.ended, piece.trailers)
            return Piece(piece.content[:count])
        self._piece = None
        return piece

    def has_something(self) -> bool:
        """Whether a read would find something; if not, it is fetched. Any thread."""
        if self._piece is not None or self._failure is not None:
            return True
        self.ask()
        return False

    def ask(self) -> None:
        """Has the next piece fetched. Any thread."""
        self._outside.post(self.demand)

    def observe(self, piece: Piece) -> None:
        """The guest gets a piece; also in replay."""
        self._seen_bytes += len(piece.content)
        self._seen.update(piece.content)
        if piece.ended:
            self._let_go()

    def give_up(self) -> None:
        """The guest wants nothing more of it; also in replay."""
        self._state.connections.discard(self)
        if self._session.live:
            self._outside.post(self.close)

    # ------------------------------------------------------------------------------------------

    @property
    def _outside(self) -> Outside:
        assert self._state.outside is not None
        return self._state.outside

    @property
    def _session(self) -> Any:
        return self._state.session

    def _pause_s(self, head: ResponseHead) -> float:
        """For how long the peer asks to be left alone."""
        return retry_after_s(head.headers, self._state.sources.wall_ns())

    @property
    def _may_repeat(self) -> bool:
        assert self.call is not None
        return may_repeat(self.call.function_type, idempotent=self.call.idempotent)

    def _settle(self) -> None:
        """Gives the connection back once request and response are whole."""
        if self._sent and self._received:
            self._end_exchange()
        if self._sent and self._seen_whole:
            self._state.connections.discard(self)

    def _let_go(self) -> None:
        """The guest has the whole response: nothing of it is lost with the instance."""
        self._seen_whole = True
        if self._sent:
            self._state.connections.discard(self)

    def _end_exchange(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def _end(self, error: Exception) -> None:
        """The request has failed, or the rest of its response."""
        self._end_exchange()
        function = "" if self.call is None else self.call.function
        self._failure = self._unsent = replace(failure_of(error), function=function)
        self._state.connections.discard(self)
        self.signal.fire()
        if self._body is not None:
            self._body.news.fire()

    def _why_unsent(self) -> Failure | None:
        """Before the call has ended another attempt may come, which sends all of the body."""
        ended = self.call is not None and self.call.state in ANSWERED
        return self._unsent if ended else None


def failure_of(error: Exception) -> Failure:
    if isinstance(error, HttpFailure):
        return Failure(
            error.code.case,
            error.message,
            transient=error.transient,
            status=error.status,
            retry_after_s=error.retry_after_s,
        )
    if isinstance(error, StaleConnection):
        return Failure("connection-terminated", "the peer closed the connection", transient=True)
    return Failure("internal-error", repr(error))
