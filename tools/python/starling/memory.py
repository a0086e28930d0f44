"""The worker's parameters in this process: mapped so that what a script writes into them reaches nobody, and is
noticed."""

from __future__ import annotations

import ctypes
import mmap
import os
import warnings
from typing import Any, Iterator, Optional

PAGE = mmap.PAGESIZE
PIECE = 1 << 22  # bytes that are compared at once
# Of an entry of /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst), the highest byte: the page is present
# (bit 7) or swapped out (6), and belongs to a file (5). One that is there and is no file's is this process's own copy.
COPIED = bytes(1 if byte & 0xC0 and not byte & 0x20 else 0 for byte in range(256))


def mapped(file: int, offset: int, size: int, flags: int = mmap.MAP_SHARED,
           rights: int = mmap.PROT_READ | mmap.PROT_WRITE) -> "tuple[mmap.mmap, int]":
    """`size` bytes of the file from `offset` on, and at which byte of the mapping they begin."""
    start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    return mmap.mmap(file, size + offset - start, flags, rights, offset=start), offset - start


def floats(torch: Any, memory: mmap.mmap, first: int, size: int) -> Any:
    """A float32 tensor [size / 4] over the mapping."""
    with warnings.catch_warnings():  # of memory that may not be written, which nothing here does
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=torch.float32, offset=first, count=size // 4)


class Weights:
    """The worker's parameters, `size` bytes of a file, which is closed. A page that is written here becomes this
    process's own copy and would be out of date in the next step: changed() after each pass finds and drops those."""

    def __init__(self, torch: Any, file: int, offset: int, size: int) -> None:
        self._size = size
        try:
            self._own, self._first = mapped(file, offset, size, mmap.MAP_PRIVATE)
            self._workers, _ = mapped(file, offset, size, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(file)
        self.flat = floats(torch, self._own, self._first, size)
        try:
            self._pages: Optional[int] = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._pages = None  # then all is compared
        anchor = ctypes.c_char.from_buffer(self._own)
        self._address = ctypes.addressof(anchor)

    def __del__(self) -> None:
        pages: Optional[int] = getattr(self, "_pages", None)
        if pages is not None:
            os.close(pages)

    def _written(self) -> "Iterator[tuple[int, int]]":
        """Runs of pages that this process has written, as bytes of the mapping."""
        length = len(self._own)
        count = -(-length // PAGE)
        raw = b""
        if self._pages is not None:
            try:
                raw = os.pread(self._pages, 8 * count, self._address // PAGE * 8)
            except OSError:
                raw = b""
        if len(raw) != 8 * count:
            yield 0, length
            return
        copied = raw[7::8].translate(COPIED)
        page = copied.find(1)
        while page >= 0:
            end = copied.find(0, page)
            end = count if end < 0 else end
            yield page * PAGE, min(end * PAGE, length)
            page = copied.find(1, end)

    def changed(self, everything: bool = False) -> Optional[int]:
        """After a pass: the first element that differs from the worker's, or None. `everything`: look at all of them,
        not only at what was written. What was written and put back as it was is the worker's again."""
        written = list(self._written())
        for first, end in ([(0, len(self._own))] if everything else written):
            low, high = max(first, self._first), min(end, self._first + self._size)
            for at in range(low, high, PIECE):
                until = min(at + PIECE, high)
                mine, theirs = self._own[at:until], self._workers[at:until]
                if mine != theirs:
                    byte = next(i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b)
                    return (at + byte - self._first) // 4
        for first, end in written:
            self._own.madvise(mmap.MADV_DONTNEED, first, end - first)
        return None
