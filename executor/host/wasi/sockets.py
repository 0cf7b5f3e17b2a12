"""wasi:sockets: names, connections and datagrams, within what a worker may reach.

`sockets_network` says what holds for all of it.
"""

from typing import Final

from executor.host.interface import InterfaceTable
from executor.host.wasi.sockets_lookup import IP_NAME_LOOKUP
from executor.host.wasi.sockets_network import INSTANCE_NETWORK, NETWORK
from executor.host.wasi.sockets_tcp import TCP, TCP_CREATE_SOCKET
from executor.host.wasi.sockets_udp import UDP, UDP_CREATE_SOCKET

TABLES: Final[tuple[InterfaceTable, ...]] = (
    NETWORK,
    INSTANCE_NETWORK,
    TCP,
    TCP_CREATE_SOCKET,
    UDP,
    UDP_CREATE_SOCKET,
    IP_NAME_LOOKUP,
)
