"""In the place of torch where there is none: tensors of float32 over plain memory, gradients of sums, products and
differences, and what else the starling package asks of torch. Slow, exact, and the same everywhere."""
import array
import contextlib
import ctypes
import math
import random
import struct

__version__ = "stand-in"
float32, int32, int64, uint8 = "torch.float32", "torch.int32", "torch.int64", "torch.uint8"
int16, bfloat16 = "torch.int16", "torch.bfloat16"
strided = "torch.strided"


class Size(tuple):
    def numel(self):
        return math.prod(self)


class device:
    """"cpu", or "cuda": memory of the process like any other, on one GPU (see cuda.py)."""

    def __init__(self, name="cpu"):
        self.type, _, number = str(name).partition(":")
        self.index = None if self.type == "cpu" else int(number or 0)

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


CPU = device()


class layout:
    pass


class UntypedStorage:
    pass


def _memory(values):
    return memoryview(bytearray(array.array("f", values).tobytes() or b"")).cast("f")


def _rounded(value):
    """To bfloat16, to nearest, and of two as near the even one; in memory as the float32 that this is."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000) & 0xFFFFFFFF))[0]


class Tensor:
    """[shape] in row-major order, dense. A result remembers what it was made of for backward()."""

    layout, is_leaf = "torch.strided", True
    is_sparse = is_nested = is_quantized = False

    def __init__(self, memory, shape, parents=(), at=None, dtype=float32):
        self._memory, self.shape, self.dtype = memory, Size(shape), dtype
        assert len({parent.device for parent, _ in parents if parent.shape}) < 2, "tensors on several devices"
        self.device = at or next((parent.device for parent, _ in parents if parent.shape), CPU)
        self._parents = [(t, back) for t, back in parents if t.requires_grad]
        self.requires_grad, self.grad, self._version, self._hooks = bool(self._parents), None, 0, []
        self.names = None

    def __reduce__(self):
        return tensor_of, (self._memory.tobytes(), self.shape)

    # Memory.
    @property
    def data(self):
        return self._like(self._memory, self.shape)

    @data.setter
    def data(self, other):
        self._memory, self.shape, self.device, self.dtype = other._memory, other.shape, other.device, other.dtype

    def _like(self, memory, shape):
        return Tensor(memory, shape, at=self.device, dtype=self.dtype)

    def detach(self):
        return self.data

    def clone(self):
        return self._like(_memory(self._memory), self.shape)

    def to(self, where=None, *, dtype=None, **named):
        where, dtype = _device(named.get("device", where or self.device)), dtype or self.dtype
        if where == self.device and dtype == self.dtype:
            return self
        return Tensor(_memory(map(_rounded, self._memory) if dtype == bfloat16 else self._memory), self.shape, at=where, dtype=dtype)

    def cpu(self):
        return self.to("cpu")

    def contiguous(self):
        return self

    to_dense = resolve_conj = resolve_neg = contiguous

    def numel(self):
        return self.shape.numel()

    def dim(self):
        return len(self.shape)

    def element_size(self):
        return 4

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory)) if self.numel() else 0

    def stride(self):
        return tuple(math.prod(self.shape[i + 1:]) for i in range(len(self.shape)))

    def is_floating_point(self):
        return True

    def equal(self, other):
        return equal(self, other)

    def masked_fill(self, truths, value):
        return self._like(_memory(value if there else own for own, there in zip(self._memory, truths)), self.shape)

    def item(self):
        assert self.numel() == 1
        return self._memory[0]

    __float__ = item

    def tolist(self):
        if not self.shape:
            return self.item()
        return [t.tolist() for t in self] if len(self.shape) > 1 else list(self._memory)

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        """A row or rows: memory of this tensor."""
        row = math.prod(self.shape[1:])
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            assert step == 1
            return self._like(self._memory[first * row:max(first, last) * row], (max(0, last - first), *self.shape[1:]))
        key = range(len(self))[key]
        return self._like(self._memory[key * row:(key + 1) * row], self.shape[1:])

    def view(self, *shape):
        if shape in ((uint8,), (int32,)):  # for bytes to be compared
            return self
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        known = math.prod(n for n in shape if n != -1)
        return self._like(self._memory, [self.numel() // known if n == -1 else n for n in shape])

    reshape = view

    def flatten(self):
        return self.view(-1)

    def _write(self, values):
        for i, value in enumerate(map(_rounded, values) if self.dtype == bfloat16 else values):
            self._memory[i] = value
        self._version += 1
        return self

    def zero_(self):
        return self.fill_(0.0)

    def fill_(self, value):
        return self._write([value] * self.numel())

    def copy_(self, other):
        return self._write(list(other._memory))

    def add_(self, other):
        return self._write([a + b for a, b in zip(self._memory, _tensor(other)._spread(self.numel()))])

    def mul_(self, other):
        return self._write([a * b for a, b in zip(self._memory, _tensor(other)._spread(self.numel()))])

    def requires_grad_(self, wanted=True):
        self.requires_grad = wanted
        return self

    def register_post_accumulate_grad_hook(self, hook):
        self._hooks.append(hook)

    # Arithmetic: shapes are equal, or one is the end of the other.
    def _spread(self, count):
        return [self._memory[i % self.numel()] for i in range(count)]

    def _gather(self, gradient):
        sums = [0.0] * self.numel()
        for i, value in enumerate(gradient):
            sums[i % len(sums)] += value
        return sums

    def _with(self, other, result, mine, theirs):
        other = _tensor(other)
        larger = self if self.numel() >= other.numel() else other
        a, b = self._spread(larger.numel()), other._spread(larger.numel())
        return Tensor(_memory(map(result, a, b)), larger.shape, [
            (self, lambda g: self._gather(map(mine, g, a, b))), (other, lambda g: other._gather(map(theirs, g, a, b)))])

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b, lambda g, a, b: g, lambda g, a, b: g)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b, lambda g, a, b: g * b, lambda g, a, b: g * a)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + -_tensor(other)

    def __rsub__(self, other):
        return _tensor(other) - self

    def __truediv__(self, number):
        return self * (1.0 / number)

    def isnan(self):
        return Tensor(_memory(map(math.isnan, self._memory)), self.shape)

    def any(self):
        return any(self._memory)

    def sum(self, dim=None):
        """Of all, or with -1 of each row of the last dimension."""
        width = self.numel() if dim is None else self.shape[-1]
        rows = [math.fsum(self._memory[i:i + width]) for i in range(0, self.numel(), width)]
        return Tensor(_memory(rows), () if dim is None else self.shape[:-1],
                      [(self, lambda g: [value for value in g for _ in range(width)])])

    def mean(self):
        return self.sum() / self.numel()

    def backward(self):
        order, seen = [], set()

        def visit(tensor):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                for parent, _ in tensor._parents:
                    visit(parent)
                order.append(tensor)

        visit(self)
        gradients = {id(self): [1.0]}
        for tensor in reversed(order):
            gradient = gradients.pop(id(tensor))
            for parent, back in tensor._parents:
                gradients[id(parent)] = [a + b for a, b in zip(back(gradient), gradients.get(id(parent), [0.0] * parent.numel()))]
            if not tensor._parents:
                if tensor.grad is not None:  # as autograd does
                    gradient = [a + b for a, b in zip(gradient, tensor.grad.reshape(-1).tolist())]
                tensor.grad = Tensor(_memory(gradient), tensor.shape, at=tensor.device)
                for hook in tensor._hooks:
                    hook(tensor)


def tensor_of(data, shape):
    return Tensor(memoryview(bytearray(data)).cast("f"), shape)


def _tensor(value):
    return value if isinstance(value, Tensor) else Tensor(_memory([value]), ())


def tensor(values, dtype=None):
    del dtype
    shape, flat = [], values
    while isinstance(flat, (list, tuple)):
        shape.append(len(flat))
        flat = flat[0] if flat else None
    while shape and isinstance(values, (list, tuple)) and values and isinstance(values[0], (list, tuple)):
        values = [one for row in values for one in row]
    return Tensor(_memory(values if shape else [values]), shape)


def _shape(shape):
    return shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


_default = [float32]


def set_default_dtype(dtype):
    _default[0] = dtype


def empty(*shape, device=CPU, dtype=None):
    return Tensor(_memory([0.0] * math.prod(_shape(shape))), _shape(shape), at=_device(device), dtype=dtype or _default[0])


zeros, _device = empty, device


def as_tensor(owner, device):
    """Over memory that says where it is by __cuda_array_interface__, and stays while a tensor is over it."""
    said = owner.__cuda_array_interface__
    (count,), (at, read_only) = said["shape"], said["data"]
    assert said["typestr"] == "<f4" and not read_only

    class Memory(ctypes.c_char * (4 * count)):
        pass

    memory = Memory.from_address(at)
    memory.owner = owner
    return Tensor(memoryview(memory).cast("B").cast("f"), (count,), at=_device(device))


def clear_autocast_cache():
    pass


def zeros_like(like):
    return empty(like.shape)


def ones(*shape):
    return empty(*shape).fill_(1.0)


def stack(tensors):
    return Tensor(_memory(value for t in tensors for value in t._memory), (len(tensors), *tensors[0].shape))


def is_tensor(value):
    return isinstance(value, Tensor)


def cat(tensors):
    assert len({t.device for t in tensors}) == 1, "tensors on several devices"
    return Tensor(_memory(value for t in tensors for value in t._memory), (sum(map(len, tensors)),), at=tensors[0].device)


def equal(a, b):
    assert a.device == b.device, "tensors on several devices"
    return a.shape == b.shape and bytes(a._memory) == bytes(b._memory)


class _Truths(list):
    def all(self):
        return False not in self

    def __or__(self, other):
        return _Truths(a or b for a, b in zip(self, other))


def isfinite(tensor):
    return _Truths(map(math.isfinite, tensor._memory))


def frombuffer(memory, *, dtype, count=None, offset=0):
    assert dtype == float32
    count = (len(memory) - offset) // 4 if count is None else count
    return Tensor(memoryview(memory)[offset:offset + 4 * count].cast("f"), (count,))


def eq(a, b):
    """Of the bits, which is what views of int32 are asked for."""
    return _Truths(x == y for x, y in zip(a._memory.cast("B").cast("i"), b._memory.cast("B").cast("i")))


class Generator:
    def __init__(self):
        self.draw = random.Random(0)

    def manual_seed(self, seed):
        self.draw.seed(seed)
        return self

    def get_state(self):
        return self.draw.getstate()

    def set_state(self, state):
        self.draw.setstate(state)


default_generator = Generator()
manual_seed = default_generator.manual_seed


def rand(*shape, generator=None):
    draw = (generator or default_generator).draw
    return Tensor(_memory(draw.random() for _ in range(math.prod(_shape(shape)))), _shape(shape))


def randn(*shape, generator=None):
    draw = (generator or default_generator).draw
    return Tensor(_memory(draw.gauss(0, 1) for _ in range(math.prod(_shape(shape)))), _shape(shape))


@contextlib.contextmanager
def no_grad():
    yield


def _nothing(*_, **__):
    return None


set_num_threads = set_num_interop_threads = use_deterministic_algorithms = _nothing
are_deterministic_algorithms_enabled = is_deterministic_algorithms_warn_only_enabled = _nothing

from . import backends, cuda, nn, optim, utils  # noqa: E402,F401
