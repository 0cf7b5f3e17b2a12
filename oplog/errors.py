"""What a store of oplogs can refuse.

OplogError
├── OplogFullError      the disk or the map has no room; what was not written can be tried again
├── OplogCorruptError   bytes that are not what this store wrote
├── OplogFormatError    a store of another format version
├── OplogBusyError      another process runs this store, or this process buffers too much
└── FencedError         a newer opening of the store exists; nothing was written
"""


class OplogError(Exception):
    """Any refusal of the store. The message says what, where and what to do."""


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
