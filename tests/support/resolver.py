"""A resolver of names for tests: `trio.socket.set_custom_hostname_resolver(Resolver(…))`."""

import socket

import trio


class Resolver(trio.abc.HostnameResolver):
    """Knows what a test says: addresses of a name, or answers one after another, each of them a
    list of addresses or the number of an error.
    """

    def __init__(self, names):
        self.names = names
        self.asked = []

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):  # noqa: A002
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        found = self.names[name]
        answer = found.pop(0) if isinstance(found[0], list | int) else found
        if isinstance(answer, int):
            raise socket.gaierror(answer, "so says the test")
        return [
            (socket.AF_INET6 if ":" in ip else socket.AF_INET, type, 6, "", (ip, port))
            for ip in answer
        ]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError
