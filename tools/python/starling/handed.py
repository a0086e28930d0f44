"""A batch, handed from a process to another one just as it is: tensors with their strides, places and shared storages,
in memory that the other maps and does not copy."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import pickle
import struct
import sys
from typing import Any

import torch

ALIGNED = 64  # tensors lie at the same remainder as before, since a kernel may add in another order elsewhere
_HEAD = struct.Struct("<QQQ")  # where the tables begin, and the lengths of tables and stream


class CannotBeHanded(Exception):
    """It would not be the same at the other end."""


class _Extent:
    """What tensors use of a storage: the bytes from `low` to `high`."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage  # kept, so that no other one comes to lie here
        self.begin = storage.data_ptr()
        self.low, self.high = self.begin + storage.nbytes(), self.begin

    def take(self, tensor: Any) -> None:
        first = tensor.data_ptr()
        last = first + (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))) * tensor.element_size()
        self.low = min(self.low, max(self.begin, first // ALIGNED * ALIGNED))
        self.high = max(self.high, last)


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL, buffer_callback=self._keep)
        self.extents: "dict[int, _Extent]" = {}
        self.places: "list[tuple[int, int]]" = []  # of each tensor: its extent's number and address
        self.buffers: "list[memoryview]" = []

    def _keep(self, buffer: Any) -> None:
        self.buffers.append(buffer.raw())

    def reducer_override(self, one: Any) -> Any:
        if type(one) is torch.Tensor and hasattr(one, "untyped_storage"):
            return self._tensor(one)
        if isinstance(one, (torch.Tensor, torch.UntypedStorage)) and hasattr(one, "untyped_storage"):
            raise CannotBeHanded(type(one).__name__)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(one, numpy.ndarray) and (
                type(one) is not numpy.ndarray or not one.flags.forc):
            raise CannotBeHanded("an array of its own kind")
        return NotImplemented

    def _tensor(self, one: Any) -> Any:
        if one.layout != torch.strided or one.device.type != "cpu" or one.is_quantized or one.is_nested \
                or one.requires_grad or one.is_conj() or one.is_neg() or one.is_inference() or one.__dict__:
            raise CannotBeHanded("a tensor of its own kind")
        if one.numel() == 0:
            return _empty, (one.dtype, tuple(one.shape), one.stride())
        storage = one.untyped_storage()
        extent = self.extents.setdefault(storage.data_ptr(), _Extent(storage))
        extent.take(one)
        self.places.append((storage.data_ptr(), one.data_ptr()))
        return _tensor_at, (len(self.places) - 1, one.dtype, tuple(one.shape), one.stride())


def _empty(dtype: Any, shape: Any, stride: Any) -> Any:
    return torch.empty_strided(shape, stride, dtype=dtype)


def _tensor_at(*_: Any) -> Any:
    """Named in streams: _Unpickler knows which memory is meant."""
    raise pickle.UnpicklingError("a tensor without its memory")


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: memoryview, places: "list[tuple[int, int]]", storages: "dict[int, tuple[int, Any]]",
                 buffers: "list[memoryview]") -> None:
        super().__init__(io.BytesIO(stream), buffers=buffers)
        self._places, self._storages = places, storages

    def find_class(self, module: str, name: str) -> Any:
        return self._tensor if (module, name) == (__name__, "_tensor_at") else super().find_class(module, name)

    def _tensor(self, number: int, dtype: Any, shape: Any, stride: Any) -> Any:
        key, address = self._places[number]
        low, storage = self._storages[key]
        made = torch.empty(0, dtype=dtype)
        offset, rest = divmod(address - low, made.element_size())
        if rest:
            raise CannotBeHanded("a tensor between two elements")
        return made.set_(storage, offset, shape, stride)


def _write(file: int, data: Any, at: int) -> None:
    view = memoryview(data).cast("B")
    while view:
        n = os.pwrite(file, view, at)
        at, view = at + n, view[n:]


def written(one: Any) -> int:
    """A file with `one`, which the caller closes. Raises what pickle does, or CannotBeHanded."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(one)
    file = os.memfd_create("batch", os.MFD_CLOEXEC)
    try:
        at = ALIGNED
        extents, buffers = [], []
        for key, extent in pickler.extents.items():
            at += (extent.low - at) % ALIGNED
            size = extent.high - extent.low
            _write(file, (ctypes.c_char * size).from_address(extent.low), at)
            extents.append((key, extent.low, at, size))
            at += size
        for view in pickler.buffers:
            address = _address(view)
            at += (address - at) % ALIGNED
            _write(file, view, at)
            buffers.append((at, view.nbytes, view.readonly))
            at += view.nbytes
        tables = pickle.dumps((extents, pickler.places, buffers))
        _write(file, tables, at)
        _write(file, stream.getbuffer(), at + len(tables))
        _write(file, _HEAD.pack(at, len(tables), stream.getbuffer().nbytes), 0)
    except BaseException:
        os.close(file)
        raise
    return file


def _address(view: memoryview) -> int:
    """Of an array's buffer."""
    if view.nbytes == 0:
        return 0
    if not view.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(view))
    return int(sys.modules["numpy"].frombuffer(view, "u1").ctypes.data)


def read(file: int) -> Any:
    """What written() was given, over memory of its own; closes the file."""
    try:
        memory = mmap.mmap(file, 0, mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0), mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(file)
    view = memoryview(memory)
    at, tables, stream = _HEAD.unpack_from(view)
    extents, places, buffers = pickle.loads(view[at:at + tables])
    storages = {key: (low, torch.frombuffer(memory, dtype=torch.uint8, offset=where, count=size).untyped_storage())
                for key, low, where, size in extents}
    views = [view[where:where + size] for where, size, _ in buffers]
    views = [one.toreadonly() if readonly else one for one, (_, _, readonly) in zip(views, buffers)]
    at += tables
    return _Unpickler(view[at:at + stream], places, storages, views).load()
