"""What a store of oplogs can refuse.

OplogError
├── OplogMissingError   no store is there
├── OplogFullError      the disk or the map has no room; what was not written can be tried again
├── OplogCorruptError   bytes that are not what this store wrote
├── OplogFormatError    a store of another format version
├── OplogBusyError      another process runs this store, or this process buffers too much
└── FencedError         a newer opening of the store exists; nothing was written
"""


class OplogError(Exception):
    """Any refusal of the store: what, and as far as they are known where and what to do."""

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(": ".join(part for part in (message, where, hint) if part))
        self.message = message
        self.where = where
        self.hint = hint


class OplogMissingError(OplogError):
    """No store is there, and none is made by who only reads."""


class OplogFullError(OplogError):
    """No room on the disk or in the map. Nothing of the batch was written."""


class OplogCorruptError(OplogError):
    """Stored bytes do not decode. The message names the worker and the index."""


class OplogFormatError(OplogError):
    """The store was written by another format version."""


class OplogBusyError(OplogError):
    """Another process holds the store (`process` names it), or a worker's buffer is full."""


class FencedError(OplogError):
    """A newer epoch of the store exists; the commit was refused inside its transaction."""
