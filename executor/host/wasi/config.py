"""wasi:config: the configuration that a worker was created with.

Reads are recorded, since another revision of the component may have another one.
"""

from typing import Final

from executor.durable.definition import Recorded
from executor.durable.function_type import READ_LOCAL
from executor.host.interface import InterfaceTable, host_interface
from executor.host.state import HostState
from executor.wasm.values import Ok


def read_value(state: HostState, key: str) -> Ok:
    return Ok(state.config.get(key))


def read_all(state: HostState) -> Ok:
    """Sorted by key: an order that no map decides."""
    return Ok(sorted(state.config.items()))


def config_interface(name: str, error: str) -> InterfaceTable:
    return host_interface(
        f"""
        interface wasi:config/{name} {{
            variant {error} {{ upstream(string), io(string) }}
            get: func(key: string) -> result<option<string>, {error}>;
            get-all: func() -> result<list<tuple<string, string>>, {error}>;
        }}
        """,
        "0.2",
        [
            Recorded(name="get", function_type=READ_LOCAL, action=read_value),
            Recorded(name="get-all", function_type=READ_LOCAL, action=read_all),
        ],
    )


TABLES: Final = (
    config_interface("store", "error"),
    config_interface("runtime", "config-error"),  # as drafts before `store` call it
)
