"""What holds for every test of a run."""

import signal

import hypothesis  # noqa: F401  # before a command freezes what the collector looks at


def pytest_configure() -> None:
    """A run in the background of a script inherits an ignored SIGINT, and so would the commands
    that it starts: none of them would hear a Ctrl-C.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
