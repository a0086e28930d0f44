"""Data of an IterableDataset of torch: each micro-batch of a step reads a stream of its own, its lane, and the number of
the step says where in it (docs/decisions/060)."""

from __future__ import annotations

import bisect
import copy
import operator
import sys
import time
from typing import Any, Callable, Iterator, Optional

import torch
from torch.utils import data as torch_data
from torch.utils.data._utils import worker

from . import loaders, proof
from .digest import Digest, Opaque
from .loaders import torch_modes
from .module import seed_of, seed_with
from .script import Refused

COMPARED = 64          # shards whose first samples are compared from process to process
REPEATED, EACH = 4, 4  # shards that are opened twice when a process begins, and samples of each
KEPT = 2               # micro-batches of a lane that are there for whoever wants them again
UNEVEN = 1.1           # of the samples of lanes, before a line tells it
BEGINS_MAX = 4096      # begins of shards that a lane remembers
QUIET_S = 10.0         # of reading what is not wanted, before a line tells it
PATIENCE_S = 3600      # for a pass before anything is known of how long one takes: a process may read long before its first
_OF_STREAMS = 0x53     # beside the seed: what else is seeded has other keys
_PLAIN = frozenset((type(None), bool, int, float, str, bytes))
_Pipe: Any = getattr(torch_data, "IterDataPipe", ())


def drawn_from() -> "tuple[Any, ...]":
    """The state of all random numbers that seed_with() seeds."""
    return loaders.drawn_from(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None


def draw_from(state: "tuple[Any, ...]") -> None:
    loaders.draw_from(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])


class Streams:
    """What a job has of an IterableDataset, in the place of a map-style Dataset.

    data    the IterableDataset, never iterated itself: each shard of each pass is read in a copy of it
    shards  shard i belongs to lane i mod lanes; it is what a loader process of torch reads whose
            get_worker_info() has id=i and num_workers=shards
    lanes   micro-batches of a step: micro-batch m of step t has the samples t * size to (t + 1) * size - 1 of lane m
    size    samples of a micro-batch
    begin   called with a shard's number before it is opened (worker_init_fn)

    Raises Refused."""

    def __init__(self, data: Any, shards: int, lanes: int, size: int, begin: "Optional[Callable[[int], Any]]" = None) -> None:
        self.data, self.shards, self.lanes, self.size, self.begin = data, shards, lanes, size, begin
        self.name = type(data).__name__
        if getattr(data, "identity", None) is None:
            raise Refused(f"{self.name} has no identity: what a stream has later cannot be compared beforehand, so it has to"
                          " say which data it is of; expected an attribute or method `identity` that gives a text, bytes or a"
                          " whole number, as the hash of its files")
        self._as_given: Any = None
        self.sizes = self._said_sizes()
        self._lanes: "dict[tuple[int, int], Lane]" = {}  # by seed and number

    def __len__(self) -> int:
        """Samples of a step."""
        return self.lanes * self.size

    def _said_sizes(self) -> "Optional[list[int]]":
        """The dataset's `shard_sizes`, samples of each shard in every pass; None where it has none."""
        said = getattr(self.data, "shard_sizes", None)
        if said is None:
            return None
        try:
            sizes = [operator.index(size) for size in (said() if callable(said) else said)]
        except TypeError:
            sizes = []
        if len(sizes) != self.shards or min(sizes) < 0:
            raise Refused(f"shard_sizes of {self.name} must be {self.shards} whole numbers, the samples of each shard in every"
                          " pass")
        return sizes

    def remarks(self) -> "Iterator[str]":
        """For people."""
        if self.sizes is None:
            yield (f"{self.name} has no shard_sizes: a process that begins late, as with resume, reads its lanes from their"
                   " begin")
            few, rest = divmod(self.shards, self.lanes)
            if rest:
                yield (f"shards={self.shards} over micro_batches={self.lanes}: {rest} of them read {few + 1} shards, the others"
                       f" {few}, whose samples are taken more often in the same steps")
            return
        least, most = (f(sum(self.sizes[i] for i in self.of_lane(m)) for m in range(self.lanes)) for f in (min, max))
        if most > UNEVEN * least:
            yield (f"the shards of a micro-batch of {self.name} have from {least} to {most} samples together: those of the"
                   " fewest are taken more often in the same steps")

    @property
    def patience_s(self) -> int:
        """Of the job; 0: the usual one."""
        return PATIENCE_S if self.sizes is None else 0

    def of_lane(self, lane: int) -> range:
        """Its shards, in their order."""
        return range(lane, self.shards, self.lanes)

    def samples(self, seed: int, step: int, lane: int) -> "list[Any]":
        """Of micro-batch `lane` of a step; seed: the job's. Random numbers are afterwards as they were before. Raises
        Refused, and what the dataset raises."""
        if (seed, lane) not in self._lanes:
            self._lanes[seed, lane] = Lane(self, seed, lane)
        return self._lanes[seed, lane].samples(step)

    def doubts(self) -> "Iterator[str]":
        """For people, of the first samples of two shards, which are read for it. Random numbers are afterwards as they were
        before. What the dataset raises is left to who computes."""
        one, other = Shard(self, 0, 0, 0), Shard(self, 0, 0, min(1, self.shards - 1))
        other.draw_as(one)
        before = drawn_from()
        try:
            begins = [self._begin_of(shard, EACH) for shard in (one, other)]
        except Exception:
            return
        finally:
            draw_from(before)
        if one.shard != other.shard and any(begins[0]) and begins[0] == begins[1]:
            yield (f"shards of {self.name} differ by the random numbers alone that each has: where it makes no samples from them,"
                   " but shuffles with them, each shard has all of the data; expected a part from each, that of"
                   " torch.utils.data.get_worker_info().id among .num_workers")

    def copied(self) -> Any:
        """The dataset as it was when it was first read, whatever the script does with it afterwards. Raises Refused."""
        try:
            if self._as_given is None:
                self._as_given = copy.deepcopy(self.data)
            return copy.deepcopy(self._as_given)
        except Exception as why:  # of the dataset's own parts
            raise Refused(f"{self.name} cannot be copied ({type(why).__name__}: {' '.join(str(why).split())[:200]}), and"
                          " each shard is read in a copy of its own, as in a loader process of torch: open files and the like"
                          " in __iter__") from None

    def identity(self) -> bytes:
        """Of what the dataset says that it is, of the lanes, and of the first samples of some shards, which are read for
        it. Raises Refused where shards are no shards, or are others when they are read again."""
        before = drawn_from()
        try:
            begins = [self._begin_of(Shard(self, 0, 0, i), EACH if i < REPEATED else 1)
                      for i in range(min(self.shards, COMPARED))]
            self._check_repeats(begins[:REPEATED])
        finally:
            draw_from(before)
        firsts = [begin[0] for begin in begins if begin and begin[0]]
        if len(firsts) > 1 and len(set(firsts)) == 1 and len({tuple(begin) for begin in begins[:REPEATED] if begin}) == 1:
            raise Refused(f"the first {len(begins)} shards of {self.name} all begin with the same sample: expected a part of"
                          " the data from each, that of torch.utils.data.get_worker_info().id among .num_workers")
        digest = Digest().take("streams").take(proof.identity_of(self.data))
        digest.take([self.shards, self.lanes, self.size]).take(self.sizes)
        return digest.take([begin[0] if begin else None for begin in begins]).bytes()

    def _begin_of(self, shard: "Shard", samples: int) -> "list[bytes]":
        """Digests of its first samples."""
        found: "list[bytes]" = []
        while len(found) < samples and self._took(shard, found):
            continue
        return found

    @staticmethod
    def _took(shard: "Shard", found: "list[bytes]") -> bool:
        """Adds the digest of a shard's next sample, nothing for one that cannot be looked into, which `identity` vouches
        for; whether there is one."""
        modes = torch_modes()
        one = shard.next()
        shard.check_modes(modes)
        if one:
            try:
                found.append(Digest().take(one[0]).bytes())
            except Opaque:
                found.append(b"")
        return bool(one)

    def _check_repeats(self, before: "list[list[bytes]]") -> None:
        """Opens the first shards again and reads them in turn, as lanes are read."""
        shards = [Shard(self, 0, 0, i) for i in range(len(before))]
        again: "list[list[bytes]]" = [[] for _ in shards]
        for _ in range(EACH):
            for shard, found in zip(shards, again):
                shard.go_on()
                self._took(shard, found)
                shard.pause()
        for i, (was, now) in enumerate(zip(before, again)):
            if was != now:
                raise Refused(f"samples of shard {i} of {self.name} are others when it is read again, beside other shards: what"
                              " it draws has to come from torch, random or numpy.random themselves, which are seeded for each"
                              " shard of each pass, and it may keep nothing outside of itself")


class Shard:
    """One shard of one pass that is being read, with a copy of the dataset and a state of random numbers of its own. Is
    opened when its first sample is wanted."""

    def __init__(self, streams: Streams, seed: int, number: int, shard: int) -> None:
        """number: of the pass."""
        self.number, self.shard, self.read = number, shard, 0
        self._streams, self._seed = streams, seed_of(_OF_STREAMS, seed, number, shard)
        self._shared_seed = seed_of(_OF_STREAMS, seed, number)  # of all shards of the pass
        self._samples: "Optional[Iterator[Any]]" = None
        self._drawn: "Optional[tuple[Any, ...]]" = None  # None: it is seeded when it is opened
        self._info: Any = None

    def draw_as(self, other: "Shard") -> None:
        """Before it is opened: its random numbers are those of the other one."""
        self._seed = other._seed

    def go_on(self) -> None:
        """What is drawn from now on comes from its random numbers."""
        if self._drawn is not None:
            draw_from(self._drawn)

    def pause(self) -> None:
        """Its random numbers stay as they are now until it goes on."""
        self._drawn = drawn_from()

    def next(self) -> "tuple[Any, ...]":
        """Its next sample, or nothing at its end."""
        before, worker._worker_info = worker._worker_info, self._info
        try:
            if self._samples is None:
                self._samples = self._begun()
            found = next(self._samples)
        except StopIteration:
            return ()
        finally:
            worker._worker_info = before
        self.read += 1
        return (found,)

    def check_modes(self, before: "tuple[Any, ...]") -> None:
        """Raises Refused where it has left torch in another mode than that before it was read: the loss, and other shards,
        would compute in it."""
        if torch_modes() != before:
            raise Refused(f"shard {self.shard} of {self._streams.name} leaves torch in another mode between its samples (no_grad,"
                          " autocast, a default type or device), which the loss would have too; expected that each is set and"
                          " put back before a sample is given: no yield within `with torch.no_grad()`")

    def _begun(self) -> "Iterator[Any]":
        try:
            return self._opened()
        except StopIteration:  # which is no end of its samples
            raise Refused(f"shard {self.shard} of {self._streams.name} raises StopIteration when it is opened, which says nothing of"
                          " its samples; expected an iterator, which has none where it is empty") from None

    def _opened(self) -> "Iterator[Any]":
        seed_with(self._seed)
        data = self._streams.copied()
        if isinstance(data, _Pipe):
            self._divide(data)
        self._info = worker.WorkerInfo(id=self.shard, num_workers=self._streams.shards, seed=self._seed, dataset=data)
        worker._worker_info = self._info
        if torch_data.get_worker_info() is not self._info:
            raise Refused("shards= cannot tell a dataset its shard: get_worker_info() of this torch does not have it")
        if hasattr(data, "set_epoch"):
            data.set_epoch(self.number)
        if self._streams.begin is not None:
            self._streams.begin(self.shard)
        return iter(data)

    def _divide(self, pipe: Any) -> None:
        """As a loader process of torch does: all shards shuffle alike, and each takes its part at a sharding_filter()."""
        from torch.utils.data import graph_settings

        graph_settings.apply_random_seed(pipe, torch.Generator().manual_seed(self._shared_seed & sys.maxsize))
        graph_settings.apply_sharding(pipe, self._streams.shards, self.shard)


def _copied(samples: "list[Any]") -> "list[Any]":
    """A deepcopy, but with no more of a tensor's memory than it is over, where deepcopy has all of that which it is a view
    of, and lists of numbers at once."""
    memo: "dict[int, Any]" = {}
    wanted, met = [samples], set()  # type: list[Any], set[int]
    while wanted:
        one = wanted.pop()
        if type(one) is torch.Tensor and not one.requires_grad and not getattr(one, "__dict__", None):
            memo[id(one)] = one.clone()
        elif type(one) is list and _PLAIN.issuperset(map(type, one)):
            memo[id(one)] = one.copy()
        elif type(one) in (list, tuple, dict) and id(one) not in met:
            met.add(id(one))
            wanted.extend(one.values() if type(one) is dict else one)
    return copy.deepcopy(samples, memo)


class Lane:
    """The shards of a lane, one after the other, pass after pass, and where it is read."""

    def __init__(self, streams: Streams, seed: int, number: int) -> None:
        self._streams, self._seed, self._number = streams, seed, number
        self._shards = streams.of_lane(number)
        self._sizes = None if streams.sizes is None else [streams.sizes[i] for i in self._shards]
        self._place = 0  # of the sample that comes next, of those of the whole lane
        self._at: "Optional[Shard]" = None
        self._found = False  # a sample in this pass
        # Places at which shards begin, rising, with pass and turn of each: whoever goes back begins at one.
        self._begins: "list[tuple[int, int, int]]" = [(0, 0, 0)]
        self._kept: "dict[int, list[Any]]" = {}  # by step

    def samples(self, step: int) -> "list[Any]":
        """See Streams."""
        kept = self._kept.get(step)
        if kept is not None:
            return _copied(kept)
        before, modes = drawn_from(), torch_modes()
        try:
            self._go_to(step * self._streams.size)
            found = [self._next() for _ in range(self._streams.size)]
            assert self._at is not None
            self._at.pause()
            self._at.check_modes(modes)
        except BaseException:
            self._at = None  # whatever is left of it
            raise
        finally:
            draw_from(before)
        return self._copy_of(step, found)

    def _copy_of(self, step: int, found: "list[Any]") -> "list[Any]":
        """What is given away, as collate and loss may change what they get, and the dataset may have it still; another copy
        is kept. What cannot be copied is read again where it is wanted again."""
        try:
            self._kept[step], given = _copied(found), _copied(found)
        except Exception:
            self._kept.pop(step, None)
            return found
        for old in list(self._kept)[:-KEPT]:
            del self._kept[old]
        return given

    def _go_to(self, place: int) -> None:
        """Reads on to it, or from the last begin of a shard before it, whichever is nearer."""
        begin, number, turn = self._begin_before(place)
        if self._at is None or self._place > place or begin > self._place:
            self._place, self._found = begin, turn > 0
            self._open(number, turn)
        else:
            self._at.go_on()
        first, begun, told = self._place, time.monotonic(), QUIET_S
        while self._place < place:
            self._next()
            took = time.monotonic() - begun
            if took > told:
                told = 4 * took
                print(f"starling: lane {self._number} of {self._streams.name} is read to where step"
                      f" {place // self._streams.size} goes on: {self._place - first} of {place - first} samples in"
                      f" {took:.0f} s", file=sys.stderr, flush=True)

    def _begin_before(self, place: int) -> "tuple[int, int, int]":
        if self._sizes is None or not sum(self._sizes):
            return self._begins[bisect.bisect_right(self._begins, (place, sys.maxsize, 0)) - 1]
        number, rest = divmod(place, sum(self._sizes))
        turn = 0
        while rest >= self._sizes[turn]:
            rest -= self._sizes[turn]
            turn += 1
        return place - rest, number, turn

    def _open(self, number: int, turn: int) -> None:
        self._turn, self._at = turn, Shard(self._streams, self._seed, number, self._shards[turn])
        begin = (self._place, number, turn)
        if self._sizes is None and begin > self._begins[-1]:
            self._begins.append(begin)
            if len(self._begins) > BEGINS_MAX:
                del self._begins[1::2]

    def _next(self) -> Any:
        while True:
            assert self._at is not None
            found = self._at.next()
            self._check_size(self._at, over=not found)
            if found:
                self._place, self._found = self._place + 1, True
                return found[0]
            number, turn = self._at.number, self._turn + 1
            if turn == len(self._shards):
                if not self._found:
                    shards = ", ".join(map(str, self._shards[:8])) + (", .." if len(self._shards) > 8 else "")
                    raise Refused(f"lane {self._number} of {self._streams.lanes} reads no sample in pass {number} of"
                                  f" {self._streams.name}: shards {shards} of {self._streams.shards} are empty")
                number, turn, self._found = number + 1, 0, False
            self._open(number, turn)

    def _check_size(self, shard: Shard, over: bool) -> None:
        if self._sizes is None:
            return
        said = self._sizes[self._turn]
        if shard.read > said or over and shard.read < said:
            raise Refused(f"shard {shard.shard} of {self._streams.name} has {'more' if shard.read > said else shard.read}"
                          f" samples in pass {shard.number}, and shard_sizes says {said}")
