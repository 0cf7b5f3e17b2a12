"""Shem: a durable executor for WebAssembly components.

The public names are imported when they are first asked for, so that a command that only reads a
store does not wait for all of it.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, which takes longer than all else here
if TYPE_CHECKING:
    from executor.durable.retry import RetryPolicy
    from executor.durable.retry import TransientError as Transient
    from executor.durable.retry_rules import RetryRule
    from executor.errors import InvocationError, RequestError, ShemError
    from executor.executor import Executor
    from executor.host.embedder import HostCall, host_function
    from executor.requests import WaveArguments
    from executor.services.environment import StoreLimits
    from executor.wasm.values import Err, Ok, Some, Variant

__all__ = [
    "Err",
    "Executor",
    "HostCall",
    "InvocationError",
    "Ok",
    "RequestError",
    "RetryPolicy",
    "RetryRule",
    "ShemError",
    "Some",
    "StoreLimits",
    "Transient",
    "Variant",
    "WaveArguments",
    "host_function",
]

HOMES = {
    "Err": "executor.wasm.values:Err",
    "Executor": "executor.executor:Executor",
    "HostCall": "executor.host.embedder:HostCall",
    "InvocationError": "executor.errors:InvocationError",
    "Ok": "executor.wasm.values:Ok",
    "RequestError": "executor.errors:RequestError",
    "RetryPolicy": "executor.durable.retry:RetryPolicy",
    "RetryRule": "executor.durable.retry_rules:RetryRule",
    "ShemError": "executor.errors:ShemError",
    "Some": "executor.wasm.values:Some",
    "StoreLimits": "executor.services.environment:StoreLimits",
    "Transient": "executor.durable.retry:TransientError",
    "Variant": "executor.wasm.values:Variant",
    "WaveArguments": "executor.requests:WaveArguments",
    "host_function": "executor.host.embedder:host_function",
}


def __getattr__(name: str) -> object:
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = home.partition(":")
    return getattr(import_module(module), attribute)
