"""wasi:logging: a message is a log hint of its level, as a line of output is one of its stream."""

from typing import Final

from executor.durable.definition import Local
from executor.host.interface import host_interface
from executor.host.state import HostState


def log(state: HostState, level: str, subject: str, message: str) -> None:
    state.session.log(level, message.encode(), subject)


LOGGING = host_interface(
    """
    interface wasi:logging/logging {
        enum level { trace, debug, info, warn, error, critical }
        log: func(level: level, context: string, message: string);
    }
    """,
    "",
    [Local("log", log)],
)

TABLES: Final = (LOGGING,)
