"""A digest of values by their content: 16 bytes, the same in every process. What has no content that it can see is
refused."""

from __future__ import annotations

import array
import copyreg
import ctypes
import enum
import functools
import hashlib
import pathlib
import struct
import sys
import types
import weakref
from collections import UserDict, defaultdict
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any, Callable

import torch

from .script import Refused

DEPTH = 32  # of values in values
DIGITS = 10_000  # bits of a whole number; one with more has too many decimal digits for Python
DENSE = 1 << 24  # elements; a larger sparse tensor is not made dense
TAKEN, REPEATED = 20_000, 16  # see _Met
_PLAIN = (bool, int, float, complex, str)
_SIMPLE = frozenset((type(None), *_PLAIN, bytes))
_BUILT_IN = (type(None), *_PLAIN, bytes, bytearray, memoryview, array.array, dict, list, tuple, set, frozenset)
_COMPRESSED = {"torch.sparse_csr": ("crow_indices", "col_indices"), "torch.sparse_bsr": ("crow_indices", "col_indices"),
               "torch.sparse_csc": ("ccol_indices", "row_indices"), "torch.sparse_bsc": ("ccol_indices", "row_indices")}
_WORD = struct.calcsize("P")
_OF_TENSORS = set(vars(torch.zeros(1)))  # fields that every tensor has


class Opaque(Refused):
    """A value's content cannot be compared; the text says what it is."""


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _Met:
    """Counts what is taken of one value. A value in it is taken along every path that leads to it, which has no end in
    practice where objects refer to each other: of more than TAKEN each different one may come REPEATED times."""

    def __init__(self) -> None:
        self._taken = 0
        self._different: "dict[int, Any]" = {}  # by id, and held, so that no other value gets this id

    def count(self, value: Any, made: bool) -> None:
        """made: for the digest, so a value that is met once. Raises Opaque."""
        self._taken += 1
        if not made:
            self._different[id(value)] = value
        if self._taken > TAKEN and self._taken > REPEATED * len(self._different):
            raise Opaque("objects that refer to each other")


class Digest:
    """Of values in their order, with their types and shapes. Checkpoints have digests: those of a kind of value stay
    as they are."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._within: "list[int]" = []  # ids of the values that the one which is taken now lies in
        self._met = _Met()  # of the outermost value

    def take(self, value: Any) -> "Digest":
        """Tensors, arrays, numbers, texts, and what is made of those; of other objects what pickle takes of them, where
        their class says it, else their fields. Raises Opaque for what has neither."""
        outermost = not self._within
        try:
            return self._inner(value)
        finally:
            if outermost:
                self._met = _Met()

    def _inner(self, value: Any, made: bool = False) -> "Digest":
        """made: as _Met.count() has it."""
        if type(value) in _SIMPLE:
            self._take(value)
            return self
        if id(value) in self._within:
            self._bytes(b"again %d" % (len(self._within) - self._within.index(id(value))))
            return self
        if len(self._within) > DEPTH:
            raise Opaque(f"a {_kind(value)} more than {DEPTH} levels deep")
        self._met.count(value, made)
        self._within.append(id(value))
        try:
            self._take(value)
        except Opaque:
            raise
        except Exception as error:  # of the value's own methods
            raise Opaque(f"a {_kind(value)} that raises {type(error).__name__} when it is looked at") from error
        finally:
            self._within.pop()
        return self

    def _take(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, (bytes, bytearray, memoryview, array.array)):
            self._bytes(bytes(value))
            form = getattr(value, "format", getattr(value, "typecode", "B"))
            if form != "B":
                self._bytes(f"{form} {getattr(value, 'shape', ())}".encode())
            self._beside(value)
        elif value is None or isinstance(value, _PLAIN):
            self._plain(value)
        elif isinstance(value, Mapping) and (isinstance(value, dict) or not _says_its_content(type(value))):
            self._bytes(b"mapping %d" % len(value))
            for key, one in value.items():
                self.take(key).take(one)
            if isinstance(value, defaultdict):
                self._bytes(b"factory")
                self.take(value.default_factory)
            self._beside(value)
        elif isinstance(value, (list, tuple)):
            self._bytes(b"list %d" % len(value))
            for one in value:
                self.take(one)
            self._beside(value)
        elif _is_numpys(value):
            self._array(value)
        elif isinstance(value, (set, frozenset)):
            self._bytes(b"set %d" % len(value))
            for one in sorted(map(self._alone, value)):
                self._bytes(one)
            self._beside(value)
        else:
            self._object(value)

    def _plain(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, int) and value.bit_length() > DIGITS:
            text = format(int(value), "x")
        elif kind in _SIMPLE or hasattr(kind, "dtype") or getattr(kind.__repr__, "__module__", "") == "enum":
            text = repr(value)
        else:
            base: Any = next(base for base in _PLAIN if isinstance(value, base))
            text = base.__repr__(value)  # its own may leave out anything, and have an address
        self._bytes(f"{kind.__name__} {text}".encode("utf-8", "surrogatepass"))
        if kind not in _BUILT_IN and not hasattr(kind, "dtype") and not isinstance(value, enum.Enum):
            self._beside(value)

    def _array(self, value: Any) -> None:
        shape = getattr(value, "shape", ())
        if value.dtype.hasobject:
            fields = f" {value.dtype}" if getattr(value.dtype, "names", None) else ""
            self._bytes(f"objects {shape}{fields}".encode())
            self._inner(value.tolist(), made=True)  # their bytes are addresses
        else:
            self._bytes(f"{value.dtype} {shape}".encode())
            self._bytes(value.tobytes() if _packed(value.dtype) else _without_padding(value))
        self._beside_array(value)

    def _tensor(self, given: Any) -> None:
        value = given.detach()
        if value.device.type == "meta":
            raise Opaque(f"a {_kind(given)} on the device meta")
        if value.is_nested:
            self._bytes(b"nested")
            self.take(list(value.unbind()))
            return
        if hasattr(type(value), "__tensor_flatten__"):  # made of other tensors
            names, context = value.__tensor_flatten__()
            self._bytes(f"{_kind(value)} {value.dtype} {tuple(value.shape)}".encode())
            self.take({name: getattr(value, name) for name in names}).take(context)
            return
        layout = str(value.layout)
        if layout in _COMPRESSED:
            self._bytes(f"{layout} {value.dtype} {tuple(value.shape)}".encode())
            for name in (*_COMPRESSED[layout], "values"):
                self.take(getattr(value, name)())
        elif value.is_sparse:
            self._sparse(value.cpu())
        elif layout == "torch.strided":
            self._strided(given, value.cpu())
        else:
            raise Opaque(f"a {_kind(given)} of layout {layout}")
        fields = {name: one for name, one in vars(given).items() if name not in _OF_TENSORS}
        if fields:
            self.take(fields)

    def _strided(self, given: Any, value: Any) -> None:
        value = value.resolve_conj().resolve_neg().contiguous()
        size = value.numel() * value.element_size()
        if size and (not value.data_ptr() or value.is_quantized and value.untyped_storage().nbytes() < size):
            raise Opaque(f"a {_kind(given)} of {value.dtype}")
        self._bytes(f"{value.dtype} {tuple(value.shape)}".encode())
        self._bytes(ctypes.string_at(value.data_ptr(), size) if size else b"")
        if value.is_quantized:
            each = str(value.qscheme()).startswith("torch.per_channel")
            self.take((value.q_per_channel_scales(), value.q_per_channel_zero_points(), value.q_per_channel_axis())
                      if each else (value.q_scale(), value.q_zero_point()))

    def _sparse(self, value: Any) -> None:
        if value.numel() > DENSE:
            self._bytes(f"sparse {value.dtype} {tuple(value.shape)}".encode())
            self._inner((value._indices(), value._values()), made=True)
            return
        dense = value.to_dense()
        self._strided(value, dense)
        places = (dense != 0).flatten(value.sparse_dim()).any(-1) if value.dense_dim() and dense.numel() else dense != 0
        if value._nnz() != int(places.sum()):  # some are stored that are zero, or more than once
            self.take(value._indices()).take(value._values())

    def _object(self, value: Any) -> None:
        if isinstance(value, enum.Enum):
            self._bytes(f"{type(value).__qualname__} {value._name_}".encode("utf-8", "surrogatepass"))
            self.take(value._value_)
        elif isinstance(value, (KeysView, ItemsView, ValuesView)):
            self._bytes(type(value).__name__.encode())
            self._inner(list(value), made=True)
        elif isinstance(value, pathlib.PurePath):  # whose fields are made when they are asked for
            self._bytes(f"{type(value).__name__} {value}".encode("utf-8", "surrogateescape"))
            if getattr(value, "__dict__", None):
                self.take(value.__dict__)
        elif isinstance(value, weakref.ref):
            self._bytes(b"reference")
            self.take(value())
        elif isinstance(value, (type, types.FunctionType)):
            self._bytes(b"named")
            self._bytes(_name_of(value).encode())
        elif isinstance(value, torch.layout):
            self._bytes(str(value).encode())
        elif isinstance(value, torch.UntypedStorage):
            here = value.cpu()
            self._bytes(b"storage")
            self._bytes(ctypes.string_at(here.data_ptr(), here.nbytes()) if here.nbytes() else b"")
        elif _says_its_content(type(value)) or not _transparent(type(value)):
            self._reduced(value)
        else:
            self._bytes(type(value).__name__.encode())
            self._inner(_slots(value), made=True)._inner(_fields(value), made=True)

    def _reduced(self, value: Any) -> None:
        """What pickle would take. Its bytes would not do: they say which of equal values are the same object."""
        kind = type(value)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            parts = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception:  # whatever the value's own raises
            raise Opaque(f"a {_kind(value)}") from None
        self._bytes(kind.__name__.encode())
        if isinstance(parts, str):  # a name of its module's
            self.take(parts)
            return
        make, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        self.take(getattr(make, "__qualname__", make))
        self._inner([kind.__qualname__ if one is kind else one for one in arguments], made=True)
        self._inner(state, made=True)
        self._inner(None if items is None else list(items), made=True)
        self._inner(None if pairs is None else list(pairs), made=True)

    def _beside(self, value: Any) -> None:
        """What an object of a class that is made of a built-in one has beside that one's content: its fields, or what
        its class says of them."""
        kind = type(value)
        if kind in _BUILT_IN:
            return
        if getattr(kind, "__getstate__", None) is not getattr(object, "__getstate__", None):
            state = value.__getstate__()
            if state is not None:
                self._bytes(b"beside")
                self._inner(state, made=True)
            return
        fields = {**_slots(value), **(_fields(value) or {})}
        if isinstance(value, dict):  # some give their items as fields, too
            fields = {name: one for name, one in fields.items() if value.get(name, fields) is not one}
        elif isinstance(value, UserDict):
            fields.pop("data", None)  # its items
        if fields:
            self._bytes(b"beside")  # else they could be the value that follows
            self._inner(fields, made=True)

    def _beside_array(self, value: Any) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, numpy.ndarray):
            return
        if isinstance(value, numpy.ma.MaskedArray):
            self.take([numpy.asarray(value), numpy.ma.getmaskarray(value), value.fill_value])
        elif type(value).__module__.partition(".")[0] != "numpy":  # fields of numpy's own say where the array lies
            self._beside(value)

    def _alone(self, value: Any) -> bytes:
        digest = Digest()
        digest._within, digest._met = list(self._within), self._met
        return digest.take(value).bytes()

    def _bytes(self, data: bytes) -> None:
        self._hash.update(struct.pack("<Q", len(data)))
        self._hash.update(data)

    def bytes(self) -> "bytes":
        return self._hash.digest()


def _is_numpys(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _names(slots: Any) -> "tuple[str, ...]":
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _slots(value: Any) -> "dict[str, Any]":
    """Those that have something."""
    names = []
    for kind in type(value).__mro__:
        private = f"_{kind.__name__.lstrip('_')}"
        names += [private + name if name.startswith("__") and not name.endswith("__") else name
                  for name in _names(vars(kind).get("__slots__", ()))]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _fields(value: Any) -> "dict[str, Any] | None":
    """All but those that are computed from the others when they are first asked for."""
    fields = getattr(value, "__dict__", None)
    if not fields:
        return fields
    return {name: one for name, one in fields.items()
            if not isinstance(getattr(type(value), name, None), functools.cached_property)}


def _packed(kind: Any) -> bool:
    """Whether all bytes of an array of this dtype belong to its values."""
    if kind.names is not None:
        parts = [kind.fields[name][0] for name in kind.names]
        return kind.itemsize == sum(part.itemsize for part in parts) and all(map(_packed, parts))
    if kind.subdtype is not None:
        return _packed(kind.subdtype[0])
    return kind.char not in "gG"  # long doubles have 80 bits in 16 bytes on x86-64


def _without_padding(value: Any) -> bytes:
    numpy = sys.modules["numpy"]
    value = numpy.asarray(value)
    if value.dtype.names is not None:
        return b"".join(value[name].tobytes() if _packed(value[name].dtype) else _without_padding(value[name])
                        for name in value.dtype.names)
    used = 10 if numpy.finfo(numpy.longdouble).nmant == 63 else numpy.dtype("g").itemsize
    one = numpy.dtype("g").itemsize
    return bytes(numpy.frombuffer(value.tobytes(), numpy.uint8).reshape(-1, one)[:, :used].tobytes())


def _transparent(kind: type) -> bool:
    """Whether fields are all that its objects have: no part that is written in C has room for more."""
    slots = sum(len(_names(vars(part).get("__slots__", ()))) for part in kind.__mro__)
    words = slots + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return not kind.__itemsize__ and kind.__basicsize__ <= object.__basicsize__ + words * _WORD


def _says_its_content(kind: type) -> bool:
    """Whether it says itself what pickle takes."""
    own = ("__reduce__", "__reduce_ex__", "__getstate__")
    return kind in copyreg.dispatch_table or any(
        getattr(kind, name, None) is not getattr(object, name, None) for name in own)


def _name_of(value: "type | Callable[..., Any]") -> str:
    """Under which it is found in its module, whose text is compared. Raises Opaque: what is made elsewhere may hold
    anything."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise Opaque(f"the {'class' if isinstance(value, type) else 'function'} {value.__qualname__}, which its module"
                     " does not have by that name")
    return f"{value.__module__}.{value.__qualname__}"
