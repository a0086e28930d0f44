"""Digests by which processes know that they compute the same: of data, of modules' texts, of a gradient. 16 bytes."""

from __future__ import annotations

import array
import ctypes
import hashlib
import struct
from collections.abc import Mapping
from typing import Any, Callable, Iterable, Optional, Sequence

import torch

from .script import Refused, Script, texts

DRAWN = 256   # samples of which the digest of data is
REPEATED = 4  # of them that are read twice
_DEPTH = 16   # of lists in lists of a batch


class Digest:
    """Of values in their order, with their types and shapes."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def take(self, value: Any, depth: int = 0) -> "Digest":
        """Tensors, arrays, numbers, texts, and what is made of those; of other objects what their fields have."""
        if depth > _DEPTH:
            return self
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().to_dense() if value.is_sparse else value.detach().cpu()
            value = value.contiguous()
            self._bytes(f"{value.dtype} {tuple(value.shape)}".encode())
            self._bytes(ctypes.string_at(value.data_ptr(), value.numel() * value.element_size()) if value.numel() else b"")
        elif isinstance(value, (bytes, bytearray, memoryview, array.array)):
            self._bytes(bytes(value))
        elif value is None or isinstance(value, (bool, int, float, complex, str)):
            self._bytes(f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass"))
        elif isinstance(value, Mapping):
            self._bytes(b"mapping %d" % len(value))
            for key, one in value.items():
                self.take(key, depth + 1).take(one, depth + 1)
        elif isinstance(value, (list, tuple)):
            self._bytes(b"list %d" % len(value))
            for one in value:
                self.take(one, depth + 1)
        elif hasattr(value, "tobytes") and getattr(getattr(value, "dtype", None), "hasobject", False):
            self._bytes(f"objects {getattr(value, 'shape', ())}".encode())
            self.take(value.tolist(), depth + 1)  # their bytes are addresses
        elif hasattr(value, "tobytes") and hasattr(value, "dtype"):  # numpy's
            self._bytes(f"{value.dtype} {getattr(value, 'shape', ())}".encode())
            self._bytes(value.tobytes())
        elif isinstance(value, (set, frozenset)):
            self._bytes(b"set %d" % len(value))
            for one in sorted(Digest().take(one, depth + 1).bytes() for one in value):
                self._bytes(one)
        else:
            self._bytes(type(value).__name__.encode())
            slots = [name for kind in type(value).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
            self.take({name: getattr(value, name) for name in slots if hasattr(value, name)}, depth + 1)
            self.take(getattr(value, "__dict__", None), depth + 1)
        return self

    def _bytes(self, data: bytes) -> None:
        self._hash.update(struct.pack("<Q", len(data)))
        self._hash.update(data)

    def bytes(self) -> "bytes":
        return self._hash.digest()


def _names(slots: Any) -> "tuple[str, ...]":
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def of_state(state: "Optional[Mapping[str, Any]]") -> str:
    """Hexadecimal, of a state that a job begins with; "" of none."""
    return "" if state is None else Digest().take(dict(sorted(state.items()))).bytes().hex()


def drawn(count: int) -> "list[int]":
    """Up to DRAWN numbers of samples, spread over all: the same everywhere."""
    if count <= DRAWN:
        return list(range(count))
    numbers = []
    for k in range(DRAWN):
        first, end = k * count // DRAWN, (k + 1) * count // DRAWN
        draw = hashlib.blake2b(struct.pack("<Q", k), digest_size=8).digest()
        numbers.append(first + int.from_bytes(draw, "little") % (end - first))
    return numbers


def of_samples(data: Any, numbers: "Sequence[int]", collate: "Callable[[list], Any]", size: int,
               seed: "Callable[[int], None]") -> bytes:
    """Of batches of `size`, of which the last one begins anew where there are no more. seed: called with the number of
    each sample before it is read, since reading may draw."""

    def sample(number: int) -> Any:
        seed(number)
        return data[number]

    digest = Digest()
    for first in range(0, len(numbers), size):
        digest.take(collate([sample(numbers[i % len(numbers)]) for i in range(first, first + size)]))
    return digest.bytes()


def of_batch(data: Any, number: int, collate: "Callable[[list], Any]", size: int,
             seed: "Callable[[int], None]") -> bytes:
    """Of batch `number` of all samples in their order, with its number; nothing where of_data() has seen all."""
    if getattr(data, "identity", None) is not None or len(data) <= DRAWN:
        return b""
    first = number * size
    numbers = range(first, min(first + size, len(data)))
    return Digest().take(number).take(of_samples(data, numbers, collate, size, seed)).bytes()


def check_repeats(data: Any, numbers: "Sequence[int]", collate: "Callable[[list], Any]", size: int,
                  seed: "Callable[[int], None]") -> None:
    """Raises Refused if samples are others when they are read again."""
    if len({of_samples(data, numbers, collate, size, seed) for _ in range(2)}) > 1:
        raise Refused(f"samples of {type(data).__name__} are others when they are read again: what a Dataset or collate"
                      " draws has to come from torch, random or numpy.random themselves, which are seeded for each"
                      " micro-batch, and not from a generator or a counter of its own")


def of_data(data: Any, collate: "Callable[[list], Any]", size: int, seed: "Callable[[int], None]") -> bytes:
    """Of the Dataset's own `identity`, a value or a method, if it has one; else of some of its samples, in batches of
    `size`. Raises Refused."""
    own = getattr(data, "identity", None)
    if own is None:
        numbers = drawn(len(data))
        check_repeats(data, numbers[:REPEATED], collate, size, seed)
        return of_samples(data, numbers, collate, size, seed)
    value = own() if callable(own) else own
    if not isinstance(value, (str, bytes, int)):
        raise Refused(f"the identity of {type(data).__name__} must be a text, bytes or a whole number, is a"
                      f" {type(value).__name__}")
    return Digest().take("identity").take(value).bytes()


def of_texts(script: Script) -> bytes:
    """Of the script, the first half, and of all modules beside it that are imported by now, the second; the script's
    own name does not count."""
    own, *modules = texts(script)
    return bytes.fromhex(own.rpartition(":")[2]) + Digest().take(modules).bytes()[:8]


def of_gradient(loss: float, metrics: "Sequence[float]", gradients: "Iterable[Optional[bytes]]") -> bytes:
    """gradients: the digest of each parameter's, None where it has none."""
    digest = Digest().take(struct.pack(f"<d{len(metrics)}d", loss, *metrics))
    for gradient in gradients:
        digest.take(gradient)
    return digest.bytes()
