"""The worker's parameters and gradient in this process. A net on the CPU has the worker's own parameters, mapped so that
what a script writes into them reaches nobody, and is noticed; a net on another device has a copy of them there."""

from __future__ import annotations

import ctypes
import mmap
import os
import warnings
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Iterator, Optional, Sequence

from . import gpu_memory
from .gpu_memory import CannotMap as CannotMap

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


@dataclass(frozen=True)
class Place:
    """Of the worker's memory: a file, the byte in it at which the memory begins, and how many bytes the file has. floats()
    and Weights close the file."""

    file: int
    gpu: bool
    offset: int
    whole: int

    def floats(self, torch: Any, size: int, write: bool) -> Any:
        """A float32 tensor [size / 4]; of the host's memory a fork of the script's has none of it."""
        try:
            if self.gpu:
                return gpu_memory.floats(torch, self.file, self.offset, size, self.whole, write)
            memory, first = mapped(self.file, self.offset, size)
        finally:
            os.close(self.file)
        memory.madvise(mmap.MADV_DONTFORK)
        return floats(torch, memory, first, size)


@dataclass(frozen=True)
class Tensors:
    """Those of a net that a job has, as they lie in the worker's memory: `firsts` and `shapes` of each, in elements, and
    the device and the type that the net has each on and of."""

    firsts: "Sequence[int]"
    shapes: "Sequence[Any]"
    devices: "Sequence[Any]"
    dtypes: "Sequence[Any]"

    def views(self, flat: Any) -> "list[Any]":
        return [flat[first:first + shape.numel()].view(shape) for first, shape in zip(self.firsts, self.shapes)]


class Here:
    """A net on the CPU: it computes with the worker's parameters, and its gradients are put into the worker's memory."""

    def __init__(self, torch: Any, tensors: Tensors, weights: Place, gradient: Place, size: int) -> None:
        self._weights = Weights(torch, weights.file, weights.offset, size)
        target = gradient.floats(torch, size, write=True)
        target.zero_()  # what lies between tensors stays so
        self.parameters, self.gradients = tensors.views(self._weights.flat), tensors.views(target)

    def renew(self) -> None:
        """Called before the first pass with other parameters."""

    def changed(self, everything: bool = False) -> Optional[int]:
        """See Weights.changed()."""
        return self._weights.changed(everything)

    def finish(self) -> None:
        """Called when all gradients of a pass are there: the worker has them when it returns."""


@dataclass(frozen=True)
class _Run:
    """Tensors that lie one behind the other, on one device and of one type."""

    first: int  # element
    own: Any  # of that type; the others are float32
    theirs: Any  # the worker's
    made: Any  # the gradient on the device
    goal: Any  # where the worker wants it: the same, if that is on the device


class Elsewhere:
    """A net on other devices or of another type, which has a copy of the parameters there, renewed with each step: what
    the worker has is rounded to that type before. Where the worker's lie on the same GPU, nothing passes the host's
    memory."""

    def __init__(self, torch: Any, tensors: Tensors, weights: Place, gradient: Place, size: int) -> None:
        self._torch = torch
        self._pinned: "list[int]" = []
        self._process = os.getpid()
        source, target = weights.floats(torch, size, write=False), gradient.floats(torch, size, write=True)
        target.zero_()
        if any(device.type == "cuda" for device in tensors.devices):
            self._pin(*(flat for flat, place in ((source, weights), (target, gradient)) if not place.gpu))
        self._runs = list(self._made(tensors, source, target))
        self.parameters, self.gradients = [], []
        for run, at in zip(self._runs, self._of_runs(tensors)):
            within = Tensors([tensors.firsts[i] - run.first for i in at], [tensors.shapes[i] for i in at], [], [])
            self.parameters += within.views(run.own)
            self.gradients += within.views(run.made)
        self._waits_for = {run.own.device for run in self._runs} if gradient.gpu else set()

    @staticmethod
    def _of_runs(tensors: Tensors) -> "list[list[int]]":
        """Numbers of the tensors of each run."""
        return [list(at) for _, at in groupby(range(len(tensors.devices)), lambda i: (str(tensors.devices[i]), str(tensors.dtypes[i])))]

    def _made(self, tensors: Tensors, source: Any, target: Any) -> "Iterator[_Run]":
        runs = self._of_runs(tensors)
        begins = [tensors.firsts[at[0]] for at in runs]
        for at, first, end in zip(runs, begins, [*begins[1:], len(source)]):
            device = tensors.devices[at[0]]
            own, goal = self._torch.empty(end - first, device=device, dtype=tensors.dtypes[at[0]]), target[first:end]
            made = goal if goal.device == device else self._torch.zeros(end - first, device=device, dtype=self._torch.float32)
            yield _Run(first, own, source[first:end], made, goal)

    def _pin(self, *flats: Any) -> None:
        """Copies from and to pinned memory are eight times as fast; advice only."""
        for flat in flats:
            if int(self._torch.cuda.cudart().cudaHostRegister(flat.data_ptr(), 4 * len(flat), 0)) == 0:
                self._pinned.append(flat.data_ptr())

    def __del__(self) -> None:
        for at in getattr(self, "_pinned", []) if self._process == os.getpid() else []:  # a fork has no GPU
            self._torch.cuda.cudart().cudaHostUnregister(at)

    def renew(self) -> None:
        """Called before the first pass with other parameters."""
        with self._torch.no_grad():
            for run in self._runs:
                run.own.copy_(run.theirs)

    def changed(self, everything: bool = False) -> Optional[int]:
        """After a pass: the first element that differs from the worker's, or None. `everything`: also where the worker's
        lie on another device."""
        for run in self._runs:
            if run.own.device == run.theirs.device or everything:
                at = self._first_difference(run.own, run.theirs.to(device=run.own.device, dtype=run.own.dtype))
                if at is not None:
                    return run.first + at
        return None

    def _first_difference(self, mine: Any, theirs: Any) -> Optional[int]:
        """By bits: a NaN is what it is."""
        bits = self._torch.int32 if mine.element_size() == 4 else self._torch.int16
        mine, theirs = mine.view(bits), theirs.view(bits)
        if self._torch.equal(mine, theirs):
            return None
        low, high = 0, len(mine)  # the first one lies between
        while high - low > 1:
            middle = (low + high) // 2
            if self._torch.equal(mine[low:middle], theirs[low:middle]):
                low = middle
            else:
                high = middle
        return low

    def finish(self) -> None:
        """Called when all gradients of a pass are there: the worker has them when it returns."""
        for run in self._runs:
            if run.made is not run.goal:
                run.goal.copy_(run.made)
        for device in self._waits_for:
            self._torch.cuda.synchronize(device)
