"""A connection to a host: its name resolved, each address checked, TCP, TLS.

Every address is checked after the name was resolved, right before it is connected to: a name that
leads somewhere else a moment later is checked anew. Addresses are tried in the order that the
system's resolver gives, each next one a quarter of a second after the one before (RFC 8305).
"""

import socket
import ssl
from typing import Any, Final, NamedTuple

import certifi
import trio

from executor.services.egress import EgressPolicy
from executor.services.http_client_errors import (
    failure,
    lookup_failure,
    network_failure,
    translated,
)
from executor.services.http_client_types import HttpFailure, HttpRequest, denied
from executor.services.lookups import Lookups

ATTEMPT_DELAY_S: Final = 0.25
PROTOCOLS: Final = ("h2", "http/1.1")


class Address(NamedTuple):
    family: socket.AddressFamily
    where: tuple[Any, ...]
    """As the system's resolver gives it: the address, the port, and more with IPv6."""

    @property
    def text(self) -> str:
        return str(self.where[0])


class Connected(NamedTuple):
    stream: trio.abc.Stream
    socket: trio.socket.SocketType
    """Under the stream."""
    address: str
    """The peer's."""
    protocol: str
    """One of `PROTOCOLS`."""


def tls_context() -> ssl.SSLContext:
    """Trusts what the system trusts, and what certifi lists: many containers have no list."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(PROTOCOLS)
    return context


async def connect(
    request: HttpRequest, egress: EgressPolicy, lookups: Lookups, context: ssl.SSLContext | None
) -> Connected:
    """A new connection, in the request's time for it; `context` is that of TLS, if the request is
    secure. Raises: HttpFailure.
    """
    where = f"{request.host}:{request.port}"
    with trio.move_on_after(request.timeouts.connect_s):
        addresses = await allowed_addresses(request.host, request.port, egress, lookups)
        stream, address = await first_connected(addresses, where)
        if not request.secure or context is None:
            return Connected(stream, stream.socket, address, "http/1.1")
        return await secured(stream, address, request.host, context)
    raise not_in_time(request)


def not_in_time(request: HttpRequest) -> HttpFailure:
    text = f"{request.host}:{request.port}: no connection in {request.timeouts.connect_s} s"
    return failure("connection-timeout", text, lasting=True)


async def allowed_addresses(
    host: str, port: int, egress: EgressPolicy, lookups: Lookups
) -> list[Address]:
    """What the name resolves to and may be reached, at least one address. Raises: HttpFailure."""
    try:
        found = await lookups.addresses(host, port)
    except socket.gaierror as error:
        raise lookup_failure(host, error) from error
    except UnicodeError as error:
        raise failure("HTTP-request-URI-invalid", f"{host}: {error}", lasting=True) from error
    addresses = list(dict.fromkeys(Address(family, where) for family, _, _, _, where in found))
    refusals = [egress.check_address(host, port, address.text) for address in addresses]
    if all(refusals):
        raise denied("; ".join(dict.fromkeys(filter(None, refusals))))
    return [
        address for address, refusal in zip(addresses, refusals, strict=True) if refusal is None
    ]


async def first_connected(addresses: list[Address], where: str) -> tuple[trio.SocketStream, str]:
    """The first connection that stands; what failed last if none does. Raises: HttpFailure."""
    won: list[tuple[trio.SocketStream, str]] = []
    failures: list[HttpFailure] = []

    async def attempt(address: Address, over: trio.Event) -> None:
        try:
            stream = await connected(address)
        except OSError as error:
            failures.append(network_failure(where, error))
            over.set()
            return
        won.append((stream, address.text))
        nursery.cancel_scope.cancel()

    kept = 0
    try:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                over = trio.Event()
                nursery.start_soon(attempt, address, over)
                with trio.move_on_after(ATTEMPT_DELAY_S):
                    await over.wait()
        kept = 1
    finally:
        for stream, _ in won[kept:]:
            stream.socket.close()
    if not won:
        raise failures[-1]
    return won[0]


async def connected(address: Address) -> trio.SocketStream:
    """TCP to an address. Raises: OSError."""
    made = trio.socket.socket(address.family, socket.SOCK_STREAM)
    done = False
    try:
        await made.connect(address.where)
        stream = trio.SocketStream(made)  # without delays, as trio sets it
        done = True
        return stream
    finally:
        if not done:
            made.close()


async def secured(
    transport: trio.SocketStream, address: str, host: str, context: ssl.SSLContext
) -> Connected:
    """TLS over the connection, which is closed if that fails. Raises: HttpFailure."""
    stream = trio.SSLStream(transport, context, server_hostname=host, https_compatible=True)
    done = False
    try:
        with translated(host):
            await stream.do_handshake()
        done = True
    finally:
        if not done:
            transport.socket.close()
    protocol = stream.selected_alpn_protocol() or "http/1.1"
    return Connected(stream, transport.socket, address, protocol)
