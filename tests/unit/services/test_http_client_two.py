"""HTTP/2 with a peer that ends things: one request, or the whole connection."""

import ssl
from contextlib import asynccontextmanager, suppress

import h2.config
import h2.connection
import h2.events
import pytest
import trio
from h2.errors import ErrorCodes
from trio.testing import trio_test

from executor.services.http_client_types import Ended, StaleConnection
from tests.support.secure_server import SecureServer, certificate
from tests.unit.services.test_http_client import LOOPBACK, answer, asking, failing
from tests.unit.services.test_http_client_secure import running


class Peer:
    """Answers each request as `answers` say, the last one for ever; a request is its stream."""

    def __init__(self, *answers):
        self.left = list(answers)
        self.requests = []
        """The connection of each, and its trailers."""
        self.connections = 0

    async def serve(self, transport):
        stream = secured(transport)
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.connections += 1
        number = self.connections
        state.initiate_connection()
        await stream.send_all(state.data_to_send())
        with suppress(trio.BrokenResourceError):
            while content := await stream.receive_some():
                for event in state.receive_data(content):
                    self.take(state, event, number)
                await stream.send_all(state.data_to_send())

    def take(self, state, event, connection):
        match event:
            case h2.events.DataReceived():
                state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.TrailersReceived():
                self.requests.append((connection, event.headers))
            case h2.events.StreamEnded():
                if not self.requests or self.requests[-1][0] != connection:
                    self.requests.append((connection, []))
                answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
                answer(state, event.stream_id)


def whole(state, stream):
    state.send_headers(stream, [(":status", "200")], end_stream=True)


def reset(code, *, begun=False):
    def answer(state, stream):
        if begun:
            state.send_headers(stream, [(":status", "200")])
            state.send_data(stream, b"half of it")
        state.reset_stream(stream, code)

    return answer


def goes_away(state, stream):
    """Nothing of this request, or of any later one, was looked at."""
    state.close_connection(last_stream_id=stream - 2 if stream > 1 else 0)


def goes_away_afterwards(state, stream):
    whole(state, stream)
    state.close_connection(last_stream_id=stream)


class SilentPeer:
    """Takes a connection of HTTP/2 and never says a word over it."""

    def __init__(self):
        self.shaken = trio.Event()
        self.closed = trio.Event()

    async def serve(self, transport):
        stream = secured(transport)
        await stream.do_handshake()
        self.shaken.set()
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
        self.closed.set()


def secured(transport):
    made = certificate()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.file, made.key)
    context.set_alpn_protocols(["h2"])
    return trio.SSLStream(transport, context, server_side=True)


@asynccontextmanager
async def serving(*answers):
    async with listening(Peer(*answers)) as peer:
        yield peer


@asynccontextmanager
async def listening(peer):
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, peer.serve, listeners)
        peer.at = SecureServer(listeners[0].socket.getsockname()[1])
        yield peer
        nursery.cancel_scope.cancel()


def ask(peer, method="GET", **more):
    return asking(peer.at, "/", method, secure=True, **more)


@trio_test
async def test_trailers_of_a_request_are_sent():
    async with serving(whole) as peer, running() as client:
        request = ask(peer, "POST", has_body=True)
        trailers = [("X-Sum", b"7"), ("x-other", b"two words")]
        status, *_ = await answer(client, request, [bytes(100_000)], trailers)
    assert status == 200
    assert peer.requests == [(1, [(b"x-sum", b"7"), (b"x-other", b"two words")])]


@pytest.mark.parametrize(
    ("code", "begun", "failure"),
    [
        (ErrorCodes.CANCEL, False, "connection-terminated"),
        (ErrorCodes.INTERNAL_ERROR, True, "connection-terminated"),
        (ErrorCodes.NO_ERROR, True, "HTTP-response-incomplete"),
    ],
)
@trio_test
async def test_a_request_that_the_peer_resets_fails_and_its_connection_goes_on(
    code, begun, failure
):
    async with serving(reset(code, begun=begun), whole) as peer, running() as client:
        with failing(failure) as raised:
            await answer(client, ask(peer))
        assert raised.value.transient
        assert (await answer(client, ask(peer)))[0] == 200
    assert peer.connections == 1


@trio_test
async def test_what_was_received_before_a_reset_can_be_read():
    async with serving(reset(ErrorCodes.CANCEL, begun=True)) as peer, running() as client:
        exchange = await client.begin(ask(peer), LOOPBACK, "w")
        assert (await exchange.receive_head()).status == 200
        await trio.sleep(0.05)
        assert await exchange.receive() == b"half of it"
        with failing("connection-terminated"):
            await exchange.receive()
        exchange.close()


@pytest.mark.parametrize("refusal", [reset(ErrorCodes.REFUSED_STREAM), goes_away])
@trio_test
async def test_a_request_that_was_not_looked_at_may_be_sent_again(refusal):
    async with serving(refusal, whole) as peer, running() as client:
        with pytest.raises(StaleConnection):
            await answer(client, ask(peer))
        assert (await answer(client, ask(peer)))[0] == 200
    assert peer.connections == (2 if refusal is goes_away else 1)


@trio_test
async def test_a_connection_that_the_peer_gives_up_ends_its_exchange_and_begins_no_other():
    async with serving(goes_away_afterwards) as peer, running() as client:
        for _ in range(3):
            exchange = await client.begin(ask(peer), LOOPBACK, "w")
            assert (await exchange.receive_head()).status == 200
            assert await exchange.receive() == Ended(None)
            exchange.close()
    assert peer.connections == 3
