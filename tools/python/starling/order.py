"""Which samples a micro-batch has, and which micro-batches come next: what lets samples be read before they are asked
for. Needs no torch. A sample that is expected wrongly is read in vain, no more: a request says what is wanted."""

from __future__ import annotations

import functools
import sys
from typing import Any, Iterator, Optional, Sequence

_DATA_ORDER = 2 << 24  # Purpose::kDataOrder (core/base/philox.h), where random4() has it
_ROUNDS = 6
_M0, _M1, _K0, _K1, _LOW = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF


BLOCK = 1024  # places whose samples are drawn at once: numpy takes as long for a few


def _number(index: Any, epoch: Any, turn: int, seed: int) -> Any:
    """The first of the four numbers that random4() of core/base/philox.h draws for the order of data; of arrays of
    uint64 for each element."""
    a, b, c, d = index & _LOW, index >> 32, epoch & _LOW, _DATA_ORDER ^ turn
    k, l = seed & _LOW, (seed >> 32) ^ (epoch >> 32)
    for _ in range(10):
        p, q = a * _M0, c * _M1
        a, b, c, d = (q >> 32) ^ b ^ k, q & _LOW, (p >> 32) ^ d ^ l, p & _LOW
        k, l = (k + _K0) & _LOW, (l + _K1) & _LOW
    return a


def _turned(value: Any, epoch: Any, samples: int, seed: int) -> Any:
    half = max(1, ((samples - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    left, right = value >> half, value & mask
    for turn in range(_ROUNDS):
        left, right = right, (left ^ _number(right, epoch, turn, seed)) & mask
    return left << half | right


def drawn(seed: int, places: "Sequence[int]", samples: int) -> "list[int]":
    """The samples at places of the endless sequence of passes over the data, as core/data/permutation.cpp has them."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and len(places) > 1:
        epochs, values = numpy.divmod(numpy.asarray(places, numpy.uint64), numpy.uint64(samples))
        outside = numpy.arange(len(values))
        while len(outside):
            values[outside] = _turned(values[outside], epochs[outside], samples, seed)
            outside = outside[values[outside] >= samples]
        return [int(value) for value in values]
    found = []
    for place in places:
        epoch, value = divmod(place, samples)
        value = _turned(value, epoch, samples, seed)
        while value >= samples:  # ends: on the cycle lies the one that we came from
            value = _turned(value, epoch, samples, seed)
        found.append(value)
    return found


class Order:
    """The numbers of the samples of each micro-batch, drawn for each pass. Held-out batch i has the number micro_batches + i, as its random numbers have (core/data/held_out.cpp)."""

    def __init__(self, samples: int, micro_batches: int, size: int) -> None:
        self.samples, self.micro_batches, self.size = samples, micro_batches, size

    def held_out(self, m: int) -> bool:
        return m >= self.micro_batches

    def of(self, seed: int, step: int, m: int) -> "tuple[int, ...]":
        if self.held_out(m):
            first = (m - self.micro_batches) * self.size
            return tuple(range(first, first + self.size))
        first = (step * self.micro_batches + m) * self.size
        return self.drawn(seed, range(first, first + self.size))

    def drawn(self, seed: int, places: range) -> "tuple[int, ...]":
        """The samples at places of the endless sequence of passes."""
        return tuple(_block(seed, place // BLOCK, self.samples)[place % BLOCK] for place in places)


@functools.lru_cache(2)
def _block(seed: int, number: int, samples: int) -> "list[int]":
    return drawn(seed, range(number * BLOCK, (number + 1) * BLOCK), samples)


class Coming:
    """Expects that a process is asked for the micro-batches of a step that it was asked for in the step before: shares
    seldom change. Nothing is known in its first step, whose micro-batches are expected to follow one another.

    every, batches  in each step that is a multiple of `every`, so many held-out batches come with the micro-batches
                    (docs/decisions/055)
    local_steps     of a micro-batch: each is asked for as a micro-batch of its own"""

    def __init__(self, micro_batches: int, every: int = 1, batches: int = 0, local_steps: int = 1) -> None:
        self._all, self._every, self._batches, self._local = micro_batches, every, batches, local_steps
        self._step = self._last = -1  # of what was asked last
        self._now: "list[int]" = []  # of this step, rising: a lower one is computed a second time (recheck)
        self._before: "Optional[list[int]]" = None

    def asked(self, step: int, m: int) -> None:
        if step != self._step:
            follows = self._step >= 0 and step == self._step + 1
            self._before, self._now, self._step = self._now if follows else None, [], step
        if m < self._all and (not self._now or m > self._now[-1]):
            self._now.append(m)
        self._last = m

    def next(self, count: int) -> "list[tuple[int, int]]":
        """Up to so many as (step, micro-batch), the first to come first."""
        return [one for one, _ in zip(self._each(), range(count))]

    def _held_out(self, step: int, m: int) -> "range":
        """The held-out batches that come with micro-batch m, or with the last of its local steps."""
        if step == 0 or step % self._every or (m + 1) % self._local:
            return range(0)
        count = self._all // self._local
        first, end = (self._all + n * self._batches // count for n in (m // self._local, m // self._local + 1))
        return range(first, end)

    def _each(self) -> "Iterator[tuple[int, int]]":
        step = self._step
        if not self._now:  # the last version, which one worker evaluates alone
            yield from ((step, m) for m in range(self._last + 1, self._all + self._batches))
            return
        last = self._now[-1]
        yield from ((step, m) for m in self._held_out(step, last) if m > self._last)
        known = self._before if self._before is not None and last in self._before else None
        rest = range(last + 1, self._all) if known is None else [m for m in known if m > last]
        whole = known if known is not None else [*self._now, *rest]
        for m in rest:
            yield from ((step, one) for one in (m, *self._held_out(step, m)))
        while True:
            step += 1
            for m in whole:
                yield from ((step, one) for one in (m, *self._held_out(step, m)))
