"""Shem: a durable executor for WebAssembly components."""

from executor.durable.retry import TransientError as Transient
from executor.errors import InvocationError, RequestError, ShemError
from executor.executor import Executor, WaveArguments
from executor.host.embedder import HostCall, host_function
from executor.wasm.values import Err, Ok, Some, Variant

__all__ = [
    "Err",
    "Executor",
    "HostCall",
    "InvocationError",
    "Ok",
    "RequestError",
    "ShemError",
    "Some",
    "Transient",
    "Variant",
    "WaveArguments",
    "host_function",
]
