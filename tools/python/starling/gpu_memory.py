"""Memory of the worker's on a GPU, in this process: CUDA's driver maps the file that the worker has exported it as (CUDA
Driver API, "Virtual Memory Management"; kernels/cuda/exported.h has the other end)."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_FILE, _DEVICE = 1, 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE
_READ, _READ_AND_WRITE = 1, 3  # CU_MEM_ACCESS_FLAGS_PROT_..


class CannotMap(Exception):
    """Says what the driver refused."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ.get("STARLING_LIBCUDA") or "libcuda.so.1")


def _call(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    function = getattr(driver, name, None)
    if function is None:
        raise CannotMap(f"{name}: the driver has no such function")
    code = function(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(text))
        raise CannotMap(f"{name}: {(text.value or b'').decode()} ({code})")


class Piece:
    """All of an exported file, `size` bytes, on the process's first GPU, of which torch has made a context. It is
    unmapped when the last tensor over it is gone."""

    def __init__(self, file: int, size: int, write: bool) -> None:
        self._at = self._size = ctypes.c_uint64(0)
        self._process = os.getpid()
        try:
            self._lib = _driver()
        except OSError as why:
            raise CannotMap(str(why)) from None
        handle, at, length = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t(size)
        _call(self._lib, "cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(file), _FILE)
        try:
            _call(self._lib, "cuMemAddressReserve", ctypes.byref(at), length, ctypes.c_size_t(0), ctypes.c_uint64(0),
                  ctypes.c_uint64(0))
            try:
                _call(self._lib, "cuMemMap", at, length, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
            except CannotMap:
                self._lib.cuMemAddressFree(at, length)
                raise
        finally:
            self._lib.cuMemRelease(handle)
        self._at, self._size = at, ctypes.c_uint64(size)
        access = _Access(_Location(_DEVICE, 0), _READ_AND_WRITE if write else _READ)
        _call(self._lib, "cuMemSetAccess", at, length, ctypes.byref(access), ctypes.c_size_t(1))
        self.__cuda_array_interface__ = {"shape": (size // 4,), "typestr": "<f4", "data": (at.value, False), "version": 3,
                                         "strides": None}

    def __del__(self) -> None:
        if self._at.value and self._process == os.getpid():  # a fork has no GPU
            length = ctypes.c_size_t(self._size.value)
            self._lib.cuCtxSynchronize()
            self._lib.cuMemUnmap(self._at, length)
            self._lib.cuMemAddressFree(self._at, length)


def floats(torch: Any, file: int, offset: int, size: int, whole: int, write: bool) -> Any:
    """A float32 tensor [size / 4] over the worker's memory from `offset` on, in bytes; `whole`: of the file. Raises
    CannotMap."""
    torch.zeros(1, device="cuda")  # makes the context
    flat = torch.as_tensor(Piece(file, whole, write), device="cuda")
    return flat[offset // 4:(offset + size) // 4]
