"""The command `shem`: arguments to calls of the library, answers to text or JSON. No logic."""

from executor.cli.app import main

__all__ = ["main"]
