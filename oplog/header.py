"""The two pages that `data.mdb` begins with, looked at before LMDB believes them.

Each says what one transaction left; LMDB goes by the newer one, unseen. A bit that flipped there
ends in an assertion of LMDB, which kills the process, in words about memory or versions, or in the
transaction before the last one, as if that had been the last. So what is fixed, and how the two
belong together, is checked here. In native byte order:

      0  number of the page (8) · 0 (2) · flags (2) · not used (4)
     16  magic (4) · version (4) · address (8) · size of the map (8)
     40  the free pages:    page size (4) · flags (2) · depth (2) · 4 counts (8 each) · root (8)
     88  the main database: 0 (4) · flags (2) · depth (2) · 4 counts (8 each) · root (8)
    136  last page (8) · transaction (8)
"""

import struct
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

META: Final = struct.Struct("=QHH4x 4sI16x IHH32xQ IHH32xQ QQ")
META_FLAG: Final = 0x08
MAGIC: Final = struct.pack("=I", 0xBEEFC0DE)
VERSION: Final = 1
INTEGER_KEYS: Final = 0x08
NOT_IN_FOLDER: Final = 0x4000
"""Which way the file was first opened; LMDB keeps it here and does not read it."""
DEPTH_MAX: Final = 32
NO_ROOT: Final = (1 << 64) - 1
FIRST_ROOT: Final = 2
PAGE_BYTES_MIN: Final = 1 << 9
PAGE_BYTES_MAX: Final = 1 << 16
FILE_BYTES_MAX: Final = 1 << 40

LOOKS_MAX: Final = 5
LOOK_S: Final = 0.01
"""A page that another process writes just then may be read half: it is looked at again."""


class Meta(NamedTuple):
    """One of the two pages."""

    number: int
    padding: int
    flags: int
    magic: bytes
    version: int
    page_bytes: int
    free_flags: int
    free_depth: int
    free_root: int
    main_padding: int
    main_flags: int
    main_depth: int
    main_root: int
    last_page: int
    transaction: int

    @classmethod
    def read(cls, header: bytes, at: int) -> Self | None:
        """None if the bytes end before."""
        if len(header) < at + META.size:
            return None
        return cls(*META.unpack_from(header, at))

    @property
    def needed_bytes(self) -> int:
        """Up to where the transaction numbered pages."""
        return (self.last_page + 1) * self.page_bytes

    def is_sound(self, number: int) -> bool:
        """Whether it can be page `number` of a file of LMDB."""
        return (
            (self.number, self.padding, self.flags) == (number, 0, META_FLAG)
            and (self.magic, self.version) == (MAGIC, VERSION)
            and PAGE_BYTES_MIN <= self.page_bytes <= PAGE_BYTES_MAX
            and self.page_bytes.bit_count() == 1
            and self.main_padding == 0
            and self.free_flags & ~NOT_IN_FOLDER == INTEGER_KEYS
            and self.main_flags == 0
            and self.needed_bytes <= FILE_BYTES_MAX
            and self._has_root(self.free_depth, self.free_root)
            and self._has_root(self.main_depth, self.main_root)
        )

    def _has_root(self, depth: int, root: int) -> bool:
        if root == NO_ROOT:
            return depth == 0
        return 0 < depth < DEPTH_MAX and FIRST_ROOT <= root <= self.last_page


def newer_meta(header: bytes) -> Meta | None:
    """The page that LMDB goes by; None if one of the two is damaged. Pure."""
    first = Meta.read(header, 0)
    if first is None or not first.is_sound(0):
        return None
    second = Meta.read(header, first.page_bytes)
    if second is None or not second.is_sound(1) or second.page_bytes != first.page_bytes:
        return None
    # Transactions take turns: even numbers are in the first page, odd ones in the second.
    numbers = first.transaction, second.transaction
    if numbers != (0, 0) and (numbers[0] % 2, abs(numbers[0] - numbers[1])) != (0, 1):
        return None
    older, newer = sorted((first, second), key=lambda meta: meta.transaction)
    return newer if newer.last_page >= older.last_page else None


def read_header(file: Path) -> Meta | None:
    """As `newer_meta`, of a file that a process may be writing. Blocks."""
    for look in range(LOOKS_MAX):
        if look:
            time.sleep(LOOK_S)
        with file.open("rb") as opened:
            found = newer_meta(opened.read(PAGE_BYTES_MAX + META.size))
        if found is not None:
            return found
    return None
