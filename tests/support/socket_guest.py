"""Sockets as a guest uses them, over `tests.support.python_guest`: what a libc is to it."""

from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any

from executor.wasm.values import Err, Ok, Variant
from tests.support.python_guest import Guest, world

TCP = "wasi:sockets/tcp.[method]tcp-socket"
UDP = "wasi:sockets/udp.[method]udp-socket"
INCOMING = "wasi:sockets/udp.[method]incoming-datagram-stream"
OUTGOING = "wasi:sockets/udp.[method]outgoing-datagram-stream"
INPUT = "wasi:io/streams.[method]input-stream"
OUTPUT = "wasi:io/streams.[method]output-stream"
LOOKUP = "wasi:sockets/ip-name-lookup"
STREAM = f"{LOOKUP}.[method]resolve-address-stream"


def at(host: str, port: int) -> Variant:
    """An `ip-socket-address`."""
    if ":" not in host:
        return Variant("ipv4", {"port": port, "address": tuple(map(int, host.split(".")))})
    packed = IPv6Address(host).packed
    groups = tuple(int.from_bytes(packed[n : n + 2]) for n in range(0, 16, 2))
    return Variant("ipv6", {"port": port, "flow-info": 0, "address": groups, "scope-id": 0})


class Network:
    """One guest's."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.call, self.ok, self.err = guest.call, guest.ok, guest.err
        self.number = guest.call("wasi:sockets/instance-network.instance-network")

    def tcp(self, family: str = "ipv4") -> int:
        return int(self.ok("wasi:sockets/tcp-create-socket.create-tcp-socket", family))

    def udp(self, family: str = "ipv4") -> int:
        return int(self.ok("wasi:sockets/udp-create-socket.create-udp-socket", family))

    def block(self, function: str, handle: int) -> None:
        pollable = self.call(function, handle)
        self.call("wasi:io/poll.[method]pollable.block", pollable)
        self.guest.drop("wasi:io/poll.pollable", pollable)

    def connect(self, socket: int, host: str, port: int) -> Any:
        """The two streams, or the error-code."""
        self.ok(f"{TCP}.start-connect", socket, self.number, at(host, port))
        while (result := self.call(f"{TCP}.finish-connect", socket)) == Err("would-block"):
            self.block(f"{TCP}.subscribe", socket)
        return result.value

    def connected(self, host: str, port: int) -> tuple[int, int, int]:
        socket = self.tcp("ipv6" if ":" in host else "ipv4")
        streams = self.connect(socket, host, port)
        assert isinstance(streams, tuple), streams
        return socket, *streams

    def bound_udp(self, family: str = "ipv4", host: str = "127.0.0.1") -> int:
        socket = self.udp(family)
        self.ok(f"{UDP}.start-bind", socket, self.number, at(host, 0))
        self.ok(f"{UDP}.finish-bind", socket)
        return socket

    def result(self, result: Ok | Err) -> Any:
        """What a stream's operation gave: its value, "closed", or the error-code of its failure."""
        if isinstance(result, Ok):
            return result.value
        error: Any = result.value
        if error.case == "closed":
            return "closed"
        code = self.call("wasi:sockets/network.network-error-code", error.payload)
        self.guest.drop("wasi:io/error.error", error.payload)
        return code

    def write(self, output: int, content: bytes) -> Any:
        for start in range(0, len(content), 4096):
            piece = content[start : start + 4096]
            found = self.call(f"{OUTPUT}.blocking-write-and-flush", output, piece)
            if isinstance(found, Err):
                return self.result(found)
        return None

    def read(self, input_: int, count: int = 65536) -> Any:
        return self.result(self.call(f"{INPUT}.blocking-read", input_, count))

    def read_exactly(self, input_: int, count: int) -> Any:
        """Bytes, or what came instead of the next ones."""
        content = b""
        while len(content) < count:
            piece = self.read(input_, count - len(content))
            if not isinstance(piece, bytes):
                return piece
            content += piece
        return content

    def drop(self, socket: int, input_: int, output: int) -> None:
        self.guest.drop("wasi:io/streams.input-stream", input_)
        self.guest.drop("wasi:io/streams.output-stream", output)
        self.guest.drop("wasi:sockets/tcp.tcp-socket", socket)

    def receive(self, incoming: int, most: int = 16) -> Any:
        """Datagrams, as soon as there are some, or the error-code."""
        while True:
            result = self.call(f"{INCOMING}.receive", incoming, most)
            if result != Ok([]):
                return result.value
            self.block(f"{INCOMING}.subscribe", incoming)

    def send(self, outgoing: int, *datagrams: tuple[bytes, Variant | None]) -> Any:
        """How many, or the error-code."""
        while (permitted := self.call(f"{OUTGOING}.check-send", outgoing)) == Ok(0):
            self.block(f"{OUTGOING}.subscribe", outgoing)
        if isinstance(permitted, Err):
            return permitted.value
        listed = [{"data": data, "remote-address": remote} for data, remote in datagrams]
        return self.call(f"{OUTGOING}.send", outgoing, listed).value

    def look_up(self, name: str) -> Any:
        """Addresses, or the error-code."""
        begun = self.call(f"{LOOKUP}.resolve-addresses", self.number, name)
        if isinstance(begun, Err):
            return begun.value
        found = []
        while True:
            result = self.call(f"{STREAM}.resolve-next-address", begun.value)
            if result == Err("would-block"):
                self.block(f"{STREAM}.subscribe", begun.value)
            elif isinstance(result, Err) or result.value is None:
                self.guest.drop(f"{LOOKUP}.resolve-address-stream", begun.value)
                return found if isinstance(result, Ok) else result.value
            else:
                found.append(result.value)


async def told(
    program: Callable[[Network, Callable[[object], None]], None], egress: Any = None, **options: Any
) -> list[object]:
    """What a program tells, live."""
    async with world(egress=egress) as around:
        ran = await around.run(lambda guest: program(Network(guest), guest.tell), **options)
        assert ran.lost is None
        return ran.trace
