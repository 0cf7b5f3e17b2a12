"""Paths as text, where the locale has no letters for what the file system holds.

Python then takes each such byte of an argument for a lone surrogate, and cannot name a file by the
letter. Here such bytes are read as UTF-8, for what is shown and recorded, and written as UTF-8, for
what the system is asked. What is not UTF-8 at all stays as it is: it names files, and nothing else.
"""

import os


def legible(text: str) -> str:
    """The letters of what was given; lone surrogates only for what is not UTF-8."""
    try:
        return text.encode(errors="surrogateescape").decode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text  # surrogates that stand for no byte


def is_unicode(text: str) -> bool:
    """Whether the text can be recorded: nothing of it is a lone surrogate."""
    return text.encode(errors="ignore").decode() == text


def system_path(text: str) -> str:
    """The path by which the system knows the file, as Python takes it."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return os.fsdecode(text.encode(errors="surrogateescape"))
    return text
