"""What guests may import: a table of functions for each WIT interface."""

from typing import Final

from executor.host.golem import api, durability, invocation_context, oplogs, rpc
from executor.host.interface import InterfaceTable
from executor.host.wasi import (
    blobstore,
    cli,
    clocks,
    config,
    filesystem,
    http,
    io,
    keyvalue,
    keyvalue_store,
    logging,
    random,
    sockets,
    streams,
)

INTERFACES: Final[tuple[InterfaceTable, ...]] = (
    *api.TABLES,
    *durability.TABLES,
    *invocation_context.TABLES,
    *oplogs.TABLES,
    *rpc.TABLES,
    *blobstore.TABLES,
    *cli.TABLES,
    *clocks.TABLES,
    *config.TABLES,
    *filesystem.TABLES,
    *http.TABLES,
    *io.TABLES,
    *keyvalue.TABLES,
    *keyvalue_store.TABLES,
    *logging.TABLES,
    *random.TABLES,
    *sockets.TABLES,
    *streams.TABLES,
)
"""Every interface of the host, each by its name and versions once."""
