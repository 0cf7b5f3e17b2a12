"""wasi:cli: what a command sees of its surroundings. `run` is an export, so it is not here.

Environment, arguments and initial directory are recorded, since an update or a fork changes them.
Output is the worker's log. There is no terminal, and standard input is at its end.
"""

from typing import Final

from executor.durable.definition import Local, Recorded
from executor.durable.function_type import READ_LOCAL
from executor.durable.reasons import Exited
from executor.host.interface import host_interface
from executor.host.state import HostState
from executor.host.streams import EmptyInput, LogOutput
from executor.wasm.values import Ok

INITIAL_DIRECTORY: Final = "/"
"""The root of the worker's files, which is also its one preopened directory."""


def read_environment(state: HostState) -> list[tuple[str, str]]:
    return state.environment


def read_arguments(state: HostState) -> list[str]:
    return state.arguments


def read_initial_directory(_state: HostState) -> str:
    return INITIAL_DIRECTORY


def exit_with_status(state: HostState, status: object) -> None:
    exit_with_code(state, 0 if isinstance(status, Ok) else 1)


def exit_with_code(state: HostState, code: int) -> None:
    state.session.leave(Exited(code))


def open_stdin(state: HostState) -> int:
    return state.handles.add(EmptyInput())


def open_stdout(state: HostState) -> int:
    return state.handles.add(LogOutput("stdout"))


def open_stderr(state: HostState) -> int:
    return state.handles.add(LogOutput("stderr"))


def no_terminal(_state: HostState) -> None:
    """There is none."""


ENVIRONMENT = host_interface(
    """
    interface wasi:cli/environment {
        get-environment: func() -> list<tuple<string, string>>;
        get-arguments: func() -> list<string>;
        initial-cwd: func() -> option<string>;
    }
    """,
    "0.2",
    [
        Recorded(name="get-environment", function_type=READ_LOCAL, action=read_environment),
        Recorded(name="get-arguments", function_type=READ_LOCAL, action=read_arguments),
        Recorded(name="initial-cwd", function_type=READ_LOCAL, action=read_initial_directory),
    ],
)

EXIT = host_interface(
    """
    interface wasi:cli/exit {
        exit: func(status: result);
        exit-with-code: func(status-code: u8);
    }
    """,
    "0.2",
    [Local("exit", exit_with_status), Local("exit-with-code", exit_with_code)],
)

STDIN = host_interface(
    """
    interface wasi:cli/stdin {
        use wasi:io/streams.{input-stream};
        get-stdin: func() -> input-stream;
    }
    """,
    "0.2",
    [Local("get-stdin", open_stdin)],
)

STDOUT = host_interface(
    """
    interface wasi:cli/stdout {
        use wasi:io/streams.{output-stream};
        get-stdout: func() -> output-stream;
    }
    """,
    "0.2",
    [Local("get-stdout", open_stdout)],
)

STDERR = host_interface(
    """
    interface wasi:cli/stderr {
        use wasi:io/streams.{output-stream};
        get-stderr: func() -> output-stream;
    }
    """,
    "0.2",
    [Local("get-stderr", open_stderr)],
)

TERMINAL_INPUT = host_interface(
    "interface wasi:cli/terminal-input { resource terminal-input; }", "0.2", []
)

TERMINAL_OUTPUT = host_interface(
    "interface wasi:cli/terminal-output { resource terminal-output; }", "0.2", []
)

TERMINAL_STDIN = host_interface(
    """
    interface wasi:cli/terminal-stdin {
        use terminal-input.{terminal-input};
        get-terminal-stdin: func() -> option<terminal-input>;
    }
    """,
    "0.2",
    [Local("get-terminal-stdin", no_terminal)],
)

TERMINAL_STDOUT = host_interface(
    """
    interface wasi:cli/terminal-stdout {
        use terminal-output.{terminal-output};
        get-terminal-stdout: func() -> option<terminal-output>;
    }
    """,
    "0.2",
    [Local("get-terminal-stdout", no_terminal)],
)

TERMINAL_STDERR = host_interface(
    """
    interface wasi:cli/terminal-stderr {
        use terminal-output.{terminal-output};
        get-terminal-stderr: func() -> option<terminal-output>;
    }
    """,
    "0.2",
    [Local("get-terminal-stderr", no_terminal)],
)

TABLES: Final = (
    ENVIRONMENT,
    EXIT,
    STDIN,
    STDOUT,
    STDERR,
    TERMINAL_INPUT,
    TERMINAL_OUTPUT,
    TERMINAL_STDIN,
    TERMINAL_STDOUT,
    TERMINAL_STDERR,
)
