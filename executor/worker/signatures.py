"""The exported functions of a revision, from the WIT text that is stored with it.

So an outcome can be shown, and arguments be parsed, without loading the component.
"""

from collections.abc import Mapping
from functools import lru_cache

from executor.wasm.types import FuncType
from executor.wasm.wit import parse_function


@lru_cache(maxsize=1_024)
def export_types(exports: tuple[str, ...]) -> Mapping[str, FuncType]:
    """Types by path, of lines like `demo:counter/api.{add}: func(n: u32) -> u32`."""
    types: dict[str, FuncType] = {}
    for line in exports:
        path, _, signature = line.partition(": func")
        types[path] = parse_function(f"f: func{signature}")[1]
    return types
