"""WAVE: values as text, the way the command line reads arguments and prints results.

The grammar is that of the wasm-wave crate of bytecodealliance/wasm-tools. Beyond it, a handle is
written as its number. Pure; any thread.
"""

from collections.abc import Sequence
from typing import Any

from executor.wasm.check import fill_arguments
from executor.wasm.types import FuncType, WitType
from executor.wasm.wave_parser import WaveParser
from executor.wasm.wave_printer import print_value


def parse_wave(type_: WitType, text: str, where: str = "") -> Any:
    """The canonical value that the whole text is. `where` names the text for the error.

    Raises BadArguments with `column` (1-based) and `expected`: `column 5: expected u32, found "x"`.
    """
    parser = WaveParser(text, where)
    value = parser.value(type_)
    parser.end()
    return value


def format_wave(type_: WitType, value: object) -> str:
    """A canonical value as WAVE on one line; `parse_wave` reads it back as the same value."""
    return print_value(type_, value)


def format_result(type_: FuncType, value: object) -> str:
    """The function's result as WAVE, "" if it has none."""
    return "" if type_.result is None else print_value(type_.result, value)


def parse_arguments(type_: FuncType, texts: Sequence[str], where: str = "function") -> list[Any]:
    """The canonical arguments of a call, one text each. `where` is the function's name.

    Options at the end may be left out. Raises BadArguments, also for too few or too many.
    """
    given = fill_arguments(type_, list(texts), "none", where)
    return [
        parse_wave(of, text, f"{where}: argument {number} ({name})")
        for number, ((name, of), text) in enumerate(zip(type_.params, given, strict=True), start=1)
    ]
