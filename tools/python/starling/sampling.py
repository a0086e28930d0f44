"""Which samples a pass over the data has, and in which order, where that is not each sample once in a drawn order: a
function of the job's seed and of the pass alone, which every process asks by itself."""

from __future__ import annotations

import array
import bisect
import functools
import hashlib
import itertools
import math
import operator
import struct
from collections.abc import Mapping, Sequence, Set
from numbers import Integral
from typing import Any, Callable, Iterator, Optional

from .order import Order, drawn
from .script import Refused

SAMPLES_MAX = 1 << 40
POOL = 50  # micro-batches of a pool of Grouped
A_PASS = 1 << 63  # where the seed of random numbers has a micro-batch: a pass draws others than any
TEXT_MAX = 100  # of a value that is told
LEAST_MOST, OFTEN = 1 << 20, 16  # samples of a pass that a function gives, where the Dataset has few; times the Dataset's


def _uniform(seed: int, place: int) -> float:
    """From 0 up to 1, a multiple of 2^-53."""
    drawn_bytes = hashlib.blake2b(struct.pack("<QQ", seed, place), digest_size=8, person=b"sampling").digest()
    return (int.from_bytes(drawn_bytes, "little") >> 11) * 2.0 ** -53


def _numbers(values: Any, what: str) -> "list[float]":
    """Of a list, a tensor or an array of one dimension. Raises ValueError."""
    try:
        if isinstance(values, (str, bytes, Mapping, Set)):  # those of classes, by name, or each number once
            raise TypeError
        found = [float(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{what} must be numbers, one for each sample") from None
    # One by one millions take seconds. A sum may be infinite of what is finite.
    plain = not found or min(found) >= 0 and math.isfinite(sum(found))
    for i, value in enumerate(() if plain else found):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{what} must be finite numbers from 0 on, the one of sample {i} is {value}")
    return found


def _whole(value: Any) -> Optional[int]:
    """A whole number, of numpy and torch too; None of what is none."""
    if isinstance(value, bool) or not isinstance(value, Integral) and str(getattr(value, "dtype", "")) in ("bool", "torch.bool"):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _digest(*parts: Any) -> bytes:
    from .digest import Digest

    digest = Digest()
    for part in parts:
        digest.take(part)
    return digest.bytes()


class Sampler:
    """length  samples of a pass"""

    length = 0

    def at(self, seed: int, places: "Sequence[int]", size: int) -> "list[int]":
        """Numbers of the samples at these places of the endless sequence of passes, which micro-batches of `size` take in
        turn. Raises Refused."""
        raise NotImplementedError

    def check(self, samples: int) -> None:
        """Raises Refused unless it is one of so many samples."""

    def digest(self) -> bytes:
        """Of what it draws by."""
        raise NotImplementedError


class Weighted(Sampler):
    """Draws each sample of a pass by itself, as often as its weight says, with replacement: as torch's
    WeightedRandomSampler, with numbers of its own.

    weights  a number from 0 on for each sample of the Dataset
    samples  that a pass has; default: as many as there are weights

    Raises ValueError."""

    def __init__(self, weights: "Sequence[float]", samples: Optional[int] = None) -> None:
        given = _numbers(weights, "weights")
        self._until = array.array("d", itertools.accumulate(given))
        self.length = len(given) if samples is None else _whole(samples) or 0
        if not given or not 0.0 < self._until[-1] < math.inf:
            raise ValueError("weights must have a finite sum above 0")
        if not 1 <= self.length <= SAMPLES_MAX:
            raise ValueError(f"samples={samples!r}, expected a whole number from 1 on")

    def at(self, seed: int, places: "Sequence[int]", size: int) -> "list[int]":
        until = self._until
        # Rounded up to the sum a draw is of the last sample that has a weight.
        last = bisect.bisect_left(until, until[-1])
        return [min(last, bisect.bisect_right(until, _uniform(seed, place) * until[-1])) for place in places]

    def check(self, samples: int) -> None:
        if len(self._until) != samples:
            raise Refused(f"Weighted has {len(self._until)} weights, and the Dataset {samples} samples; expected one for each")

    def digest(self) -> bytes:
        return _digest("weighted", self.length, self._until.tobytes())


class Grouped(Sampler):
    """Each sample once in a pass, those of a micro-batch of about the same length, so that little of a batch is padding: a
    drawn order is cut into pools, the samples of a pool are sorted, and the micro-batches that come of all pools have
    a drawn order.

    lengths  a number from 0 on for each sample of the Dataset
    pool     micro-batches of a pool; fewer: a pass that is closer to a drawn one

    Raises ValueError."""

    def __init__(self, lengths: "Sequence[float]", pool: int = POOL) -> None:
        self._lengths = array.array("d", _numbers(lengths, "lengths"))
        self.length, self._pool = len(self._lengths), pool
        if not self.length:
            raise ValueError("lengths has no number")
        if isinstance(pool, bool) or not isinstance(pool, int) or not 1 <= pool <= SAMPLES_MAX:
            raise ValueError(f"pool={pool!r}, expected a whole number from 1 on")
        self._pass = functools.lru_cache(2)(self._drawn)

    def _drawn(self, seed: int, number: int, size: int) -> "array.array[int]":
        first = number * self.length
        order = drawn(seed, range(first, first + self.length), self.length)
        # The first micro-batch of a pass has begun with the last samples of the one before.
        begun = -first % size
        grouped, whole = order[:begun], []
        for at in range(begun, self.length, self._pool * size):
            pool = sorted(order[at:at + self._pool * size], key=self._lengths.__getitem__, reverse=True)
            whole += [pool[i:i + size] for i in range(0, len(pool), size)]
        rest = whole.pop() if whole and len(whole[-1]) < size else []
        if whole:
            for i in drawn(seed, range(number * len(whole), (number + 1) * len(whole)), len(whole)):
                grouped += whole[i]
        return array.array("q", grouped + rest)

    def at(self, seed: int, places: "Sequence[int]", size: int) -> "list[int]":
        return [self._pass(seed, place // self.length, size)[place % self.length] for place in places]

    def check(self, samples: int) -> None:
        if self.length != samples:
            raise Refused(f"Grouped has {self.length} lengths, and the Dataset {samples} samples; expected one for each")

    def digest(self) -> bytes:
        return _digest("grouped", self._pool, self._lengths.tobytes())


class InOrder(Sampler):
    """Each sample once in a pass, in the order of the Dataset."""

    def __init__(self, samples: int) -> None:
        self.length = samples

    def at(self, seed: int, places: "Sequence[int]", size: int) -> "list[int]":
        return [place % self.length for place in places]

    def digest(self) -> bytes:
        return _digest("in order")


class Function(Sampler):
    """What a function gives for the number of each pass (0 is the first): as many sample numbers for each, the same
    each time. Random numbers are seeded for each pass.

    Raises Refused."""

    def __init__(self, of_pass: "Callable[[int], Any]", samples: int, name: str) -> None:
        self._of_pass, self._samples, self._name = of_pass, samples, name
        self._most = max(LEAST_MOST, OFTEN * samples)
        first = self._asked(0, 0)
        self.length = len(first)
        if self._asked(0, 0) != first:
            raise Refused(f"{name} gives other samples for pass 0 when it is asked again; expected a function of the pass alone:"
                          " torch, random and numpy.random themselves are seeded for each pass, a generator of its own is not")
        self._digest = _digest("function", first.tobytes(), self._checked(0, 1).tobytes())
        self._pass = functools.lru_cache(2)(self._next)
        self._before: "Optional[tuple[int, int, array.array[int]]]" = None  # seed, number and samples of the pass asked for last

    def _asked(self, seed: int, number: int) -> "array.array[int]":
        from . import loaders, module

        before = loaders.drawn_from()
        module.seed_everything(seed, number, A_PASS)
        try:
            given = self._of_pass(number)
            plain = given.tolist() if hasattr(given, "tolist") else given
            if not hasattr(plain, "__iter__") or isinstance(plain, (str, bytes)):
                raise Refused(f"{self._name} gives a {type(given).__name__} for pass {number}, {self._expected()}")
            given = list(itertools.islice(plain, self._most + 1))
        finally:
            loaders.draw_from(before)
        if not 1 <= len(given) <= self._most:
            many = f"more than {self._most}" if given else "no"
            raise Refused(f"{self._name} gives {many} samples for pass {number}, expected a pass over {self._samples} that ends")
        plain = set(map(type, given)) == {int}  # as of millions of samples, one by one, takes seconds
        whole = given if plain else [_whole(i) for i in given]
        if (not plain and None in whole) or min(whole) < 0 or max(whole) >= self._samples:
            wrong = next(i for i, one in zip(given, whole) if one is None or not 0 <= one < self._samples)
            raise Refused(f"{self._name} gives {' '.join(repr(wrong).split())[:TEXT_MAX]} for pass {number}, {self._expected()}")
        return array.array("q", whole)

    def _expected(self) -> str:
        return f"expected numbers of samples, 0 to {self._samples - 1}"

    def _checked(self, seed: int, number: int) -> "array.array[int]":
        found = self._asked(seed, number)
        if len(found) != self.length:
            raise Refused(f"{self._name} gives {len(found)} samples for pass {number} and {self.length} for the first; expected"
                          " as many for each, as a pass may have a sample again")
        return found

    def _next(self, seed: int, number: int) -> "array.array[int]":
        """When the one before it has been trained on, which is asked for again."""
        before, self._before = self._before, None
        if before is not None and self._asked(*before[:2]) != before[2]:
            raise Refused(f"{self._name} gives other samples for pass {before[1]} when it is asked again at pass {number}; expected a"
                          " function of the pass alone, which reads nothing that the training changes")
        found = self._checked(seed, number)
        self._before = seed, number, found
        return found

    def at(self, seed: int, places: "Sequence[int]", size: int) -> "list[int]":
        return [self._pass(seed, place // self.length)[place % self.length] for place in places]

    def digest(self) -> bytes:
        return self._digest


class Sampled(Order):
    """The order of a job whose samples a Sampler draws."""

    def __init__(self, sampler: Sampler, micro_batches: int, size: int) -> None:
        super().__init__(sampler.length, micro_batches, size)
        self._sampler = sampler

    def drawn(self, seed: int, places: range) -> "tuple[int, ...]":
        return tuple(self._sampler.at(seed, places, self.size))


def _of_torch(sampler: Any, samples: int) -> "Optional[Sampler]":
    """Of what gives numbers of samples each time that it is iterated."""
    import torch
    from torch.utils.data import RandomSampler, SequentialSampler, WeightedRandomSampler

    kind = type(sampler)
    if any(one.__name__ == "DistributedSampler" for one in kind.__mro__):
        own = "" if kind.__name__ == "DistributedSampler" else f"{kind.__name__}, a "
        raise Refused(f"the sampler is a {own}DistributedSampler: leave it out, since each worker takes its own micro-batches")
    of_all = kind in (RandomSampler, SequentialSampler) and len(sampler.data_source) == samples  # else of some other Dataset
    if of_all and kind is SequentialSampler:
        return InOrder(samples)
    if of_all and not sampler.replacement and sampler.num_samples == samples:
        return None
    if of_all and sampler.replacement:
        return Weighted([1.0] * samples, sampler.num_samples)
    if kind is WeightedRandomSampler and sampler.replacement:
        return Weighted(sampler.weights, sampler.num_samples)

    def of_pass(number: int) -> "Iterator[int]":
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(number)
        if isinstance(getattr(sampler, "generator", None), torch.Generator):
            sampler.generator.manual_seed(torch.initial_seed())  # as torch itself is seeded for the pass
        return iter(sampler)

    return Function(of_pass, samples, f"the sampler, a {kind.__name__},")


def of(given: Any, samples: int, by_hand: bool = False) -> "Optional[Sampler]":
    """What a job of so many samples has of a DataLoader, or was told by sampler= (by_hand); None where a pass has each sample
    once, in a drawn order. Raises Refused."""
    # A list in the place of a sampler is as often one of weights.
    plain = by_hand and (hasattr(given, "tolist") or isinstance(given, (Mapping, Sequence, Set)))
    try:
        made: "Optional[Sampler]" = None
        if isinstance(given, Sampler):
            made = given
        elif hasattr(given, "__iter__") and not isinstance(given, (type, str, bytes)) and not plain:
            made = _of_torch(given, samples)
        elif callable(given) and not isinstance(given, type):
            made = Function(given, samples, "sampler=")
        elif given is not None:
            kind = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
            raise Refused(f"sampler= is {kind}, expected starling.Weighted(weights), starling.Grouped(lengths), a sampler of torch, or a"
                          " function of the number of a pass that gives the numbers of its samples, as lambda epoch: numbers")
    except ValueError as why:
        raise Refused(f"the sampler's {why}") from None
    if made is not None:
        made.check(samples)
    return made
