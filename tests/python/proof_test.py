"""Digests say what values are, whatever process holds them; of earlier calls as much is told as a job file can have."""
import collections
import datetime
import decimal
import enum
import functools
import io
import os
import pathlib
import sys
import threading
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

TORCH = bool(os.environ.get("STARLING_TEST_TORCH"))  # with torch itself and numpy
sys.path[:0] = [os.path.join(SOURCE, "tools", "python")] + [os.path.join(SOURCE, "tests", "stand_in")] * (not TORCH)

from starling import proof  # noqa: E402
from starling.calls import Call, Trained  # noqa: E402
from starling.script import Refused  # noqa: E402


class Array:
    """As numpy's arrays of objects, whose bytes are addresses."""

    class dtype:
        hasobject = True

    def __init__(self, values):
        self.values, self.shape = values, (len(values),)

    def tobytes(self):
        return str([id(value) for value in self.values]).encode()

    def tolist(self):
        return self.values


class Duck:
    """Gives its bytes as an array of numpy's does, and has more."""
    dtype, shape = "u1", (1,)

    def __init__(self, label):
        self.label = label

    def tobytes(self):
        return b"1"


class Slots:
    __slots__ = ("text", "missing")

    def __init__(self, text):
        self.text = text


class Private:
    __slots__ = ("__text",)

    def __init__(self, text):
        self.__text = text


class Labelled(list):
    pass


class Level(int):
    def __repr__(self):
        return "a level"


class Addressed(int):
    """As what inherits `object`'s repr: its own has an address."""

    __repr__ = object.__repr__


class Named(collections.UserDict):
    """Keeps more than its items."""

    def __init__(self, name):
        super().__init__(a=1)
        self.name = name


class Squares:
    """Keeps what is computed from its number, once somebody asks."""

    def __init__(self, number, ask=False):
        self.number = number
        if ask:
            require(self.square == number ** 2, self.square)

    @functools.cached_property
    def square(self):
        return self.number ** 2


class Remembers(Squares):
    """Says itself that what it remembers is not its content."""

    def __init__(self, number, ask=False):
        self.number = number
        if ask:
            self.asked = 1

    def __getstate__(self):
        return {"number": self.number}


class Counts(list):
    """A list that knows how often it was asked, and says that this is not its content."""

    def __init__(self, number, ask=False):
        super().__init__([number])
        self.asked, self.lock = int(ask), threading.Lock()

    def __getstate__(self):
        return None


class Bunch:
    """Has every name that is asked for."""

    def __init__(self, number):
        self.number = number

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


class Raises(dict):
    def items(self):
        raise RuntimeError("not now")


class Node:
    def __init__(self):
        self.near = []


def linked(count, made=list):
    nodes = [Node() for _ in range(count)]
    for node in nodes:
        node.near = made(other for other in nodes if other is not node)
    return nodes[0]


class Colour(enum.Enum):
    RED, BLUE = 1, 2


class Loaded:
    """As an image: its pixels lie in what is written in C, and it says what pickle takes."""

    def __init__(self, pixels):
        self.pixels, self.lock = iter(pixels), threading.Lock()

    def __getstate__(self):
        return {"pixels": list(self.pixels.__reduce__()[1][0])}


class Ring:
    def __init__(self, value):
        self.value, self.own, self.seen = value, [self], weakref.ref(self)


def deep(value, levels):
    return deep([value], levels - 1) if levels else value


def labelled(label):
    one = Labelled([1, 2])
    one.label = label
    return one


# Each makes a value of content 1 or 2.
MADE = [
    lambda n: decimal.Decimal(n), lambda n: datetime.date(2020, 1, n), lambda n: datetime.time(n),
    lambda n: datetime.datetime(2020, 1, n, tzinfo=datetime.timezone.utc), lambda n: datetime.timedelta(n),
    lambda n: collections.deque([n]), lambda n: collections.deque([1], n), lambda n: range(n), lambda n: slice(n),
    lambda n: io.BytesIO(b"1" * n), lambda n: io.StringIO("1" * n), lambda n: {n: 0}.keys(), lambda n: {0: n}.values(),
    lambda n: {0: n}.items(), lambda n: iter([n]), lambda n: enumerate([n]), lambda n: zip([n], "a"),
    lambda n: ValueError(n), lambda n: deep(n, 17), lambda n: labelled(n), lambda n: Level(n), lambda n: Private(n),
    lambda n: list(Colour)[n - 1], lambda n: pathlib.PurePosixPath(str(n)), lambda n: Loaded([n]), lambda n: Ring(n),
    lambda n: [int, str][n - 1], lambda n: [len, sum][n - 1], lambda n: [deep, labelled][n - 1],
    lambda n: memoryview(b"abcd").cast("bi"[n - 1]), lambda n: Addressed(n), lambda n: Named(n), lambda n: Bunch(n),
    lambda n: n << 20_000, lambda n: Squares(n), lambda n: Remembers(n), lambda n: Duck(n),
    lambda n: collections.defaultdict([int, str][n - 1], a=1),
]


def of_torch():
    import numpy
    import torch

    def sparse(n):
        return torch.sparse_coo_tensor([[0, 1]], [1.0, 0.0], (2,)) if n == 1 else torch.tensor([1.0, 0.0]).to_sparse()

    numbers = torch.arange(8, dtype=torch.float32)
    # Of a module whose name begins as numpy's does.
    named = type("Named", (numpy.ndarray,), {"__module__": "numpy_images"})

    def with_name(n):
        array = numpy.zeros(2).view(named)
        array.label = n
        return array

    return [with_name,
        lambda n: torch.quantize_per_tensor(n * numbers, 0.1 * n, 0, torch.quint8),
        lambda n: torch.quantize_per_channel((numbers * n).view(2, 4), torch.tensor([n, 1.0]), torch.tensor([0, 0]), 0, torch.qint8),
        lambda n: torch.complex(numbers, numbers).conj() if n == 1 else torch.complex(numbers, numbers),
        lambda n: torch.complex(numbers, numbers).conj().imag if n == 1 else numbers,
        *(lambda n, layout=layout: (n * numbers).view(2, 4).to_sparse(layout=layout)
          for layout in (torch.sparse_csr, torch.sparse_csc)),
        lambda n: (n * numbers).view(2, 4).to_sparse_bsr((2, 2)), sparse,
        *(lambda n, layout=layout: torch.nested.nested_tensor([numbers[:n], numbers], layout=layout)
          for layout in (torch.strided, torch.jagged)),
        lambda n: (n * numbers).untyped_storage(), lambda n: [torch.float32, torch.int64][n - 1],
        lambda n: torch.device("cpu", n), lambda n: torch.Generator().manual_seed(n),
        lambda n: numpy.ma.masked_array([0, 0], mask=[n == 1, False], fill_value=0),
        lambda n: numpy.ma.masked_array([n, 0], mask=[True, False], fill_value=0),
        lambda n: numpy.random.default_rng(n),
        lambda n: torch.sparse_coo_tensor([[0], [n]], [1.0], (10**6, 10**6)),
        lambda n: padded(numpy, [("a", "i1"), ("b", "f8")], n), lambda n: padded(numpy, "g", n), lambda n: padded(numpy, "G", n),
        lambda n: padded(numpy, [("a", [("b", "i1"), ("c", "f8")], (2,))], n),
    ]


def padded(numpy, kind, n):
    """An array of which some bytes belong to no value: these are others every time."""
    kind = numpy.dtype(kind, align=isinstance(kind, list))
    padded.made += 1
    array = numpy.frombuffer(bytes([padded.made % 256]) * kind.itemsize, kind).copy()
    if kind.names is None:
        array[...] = n
    elif array["a"].dtype.names is None:
        array["a"], array["b"] = 1, n
    else:
        array["a"]["b"], array["a"]["c"] = 1, n
    return array


padded.made = 0


def equal_content_has_an_equal_digest_and_no_other_has(place):
    for i, make in enumerate(MADE + (of_torch() if TORCH else [])):
        require(digest(make(1)) == digest(make(1)), f"{i}, a {type(make(1)).__name__}: two of the same")
        require(digest(make(1)) != digest(make(2)), f"{i}, a {type(make(1)).__name__}: another one has the same")


def what_is_written_in_c_is_not_consumed(place):
    numbers = iter([1, 2, 3])
    next(numbers)
    digest(numbers)
    require(list(numbers) == [2, 3], "an iterator has lost what it had")


def what_lies_beside_a_value_is_not_the_next_one(place):
    class Items(dict):
        pass

    items = Items(label=1)
    items.more = 2
    require(digest([labelled(1), {"more": 2}]) != digest([Labelled([1, 2]), items]), "fields slide into the next value")


def what_is_kept_of_a_computation_does_not_count(place):
    for kind in (Squares, Remembers, Counts):
        require(digest(kind(3)) == digest(kind(3, ask=True)), f"{kind.__name__}: another one once it was asked")


class Samples(list):
    """A Dataset."""


def what_has_no_content_to_be_seen_is_refused_by_name(place):
    wrong = [
        ((n for n in [1]), "a generator"), (threading.Lock(), "a _thread.lock"), (deep(1, 60), "a list more than 32 levels deep"),
        ({"f": lambda: 1}, "the function what_has_no_content_to_be_seen_is_refused_by_name.<locals>.<lambda>"),
        (collections.deque([sys]), "a module"), (linked(10), "objects that refer to each other"),
        (linked(10, set), "objects that refer to each other"),
        (Raises(), f"a {__name__}.Raises that raises RuntimeError when it is looked at"), (Slots(open(os.devnull)), "a _io.TextIOWrapper"),
    ]
    if TORCH:
        import torch

        wrong.append((torch.empty(3, device="meta"), "a torch.Tensor on the device meta"))
        wrong.append((torch.masked.masked_tensor(torch.zeros(1), torch.ones(1) > 0), "a torch.masked.maskedtensor"))
    for value, name in wrong:
        try:
            proof.of_data(Samples([value]), list, 1, lambda number: None)
        except Refused as why:
            require(f"a sample of Samples holds {name}" in str(why), why)
            require("whose content cannot be compared; give the Dataset an `identity`" in str(why), why)
        else:
            raise AssertionError(f"{value!r} was taken")
        try:
            proof.of_state({"extra": value})
        except Refused as why:
            require(f"init holds {name}" in str(why), why)
        else:
            raise AssertionError(f"init with {value!r} was taken")


def what_was_known_by_content_keeps_its_digest(place):
    # Checkpoints of earlier versions have digests of such.
    named = collections.namedtuple("named", "a b")
    known = [1, 2.5, "text", b"bytes", None, True, {"a": [1, (2,)]}, {1, 2}, Slots("x"), collections.OrderedDict(a=1),
             collections.UserDict(a=1), named(1, 2)]
    found = digest(known).hex()
    require(found == "3b416f058cf652d04ac6c6a35c409db9", found)


def samples_that_change_before_they_are_read_are_seen(place):
    data = list(range(1000))
    how = list, 8, lambda number: None
    before: "list[bytes]" = []
    require(proof.of_data(data, *how, before) == proof.of_data(data, *how) and len(before) == 32, f"{len(before)} batches")
    batches = range(1000 // 8)
    for number in batches:
        proof.check_unchanged(data, number, *how, before, len(batches))
    data[600:700] = [-1] * 100
    seen = []
    for number in batches:
        try:
            proof.check_unchanged(data, number, *how, before, len(batches))
        except Refused as why:
            require("samples of list are others than when this process began" in str(why), why)
            seen.append(number * 8)
    require(seen and 550 < seen[0] and seen[-1] < 750, seen)


def digest(value):
    return proof.Digest().take(value).bytes()


def equal_values_have_equal_digests(place):
    def text(word):
        return "".join(list(word))  # an object of its own

    for make in (lambda word: Array([text(word), 1]), lambda word: Slots(text(word)), lambda word: {text(word), "other"}):
        require(digest(make("one")) == digest(make("one")), f"{make('one')!r}: two of the same")
        require(digest(make("one")) != digest(make("two")), f"{make('one')!r}: another one")


def of_many_calls_the_newest_evaluations_are_told(place):
    for number in range(200):
        call = Call()
        call.trained = Trained("out", "0" * 32, 1.0, 5, evaluation="x" * 30000)
    records = Call.records(200)
    require(len(records) == 200 and sum(map(len, records)) < 400_000, f"{sum(map(len, records))} bytes")
    told = ["evaluation" in record for record in records]
    require(told[-1] and not told[0] and told == sorted(told), told)


main(equal_values_have_equal_digests, equal_content_has_an_equal_digest_and_no_other_has,
     what_is_written_in_c_is_not_consumed, what_is_kept_of_a_computation_does_not_count,
     what_lies_beside_a_value_is_not_the_next_one, samples_that_change_before_they_are_read_are_seen, what_has_no_content_to_be_seen_is_refused_by_name,
     what_was_known_by_content_keeps_its_digest, of_many_calls_the_newest_evaluations_are_told)
