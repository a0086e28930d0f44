"""What a job was told of its data: a Dataset, or a DataLoader of torch, of which a job takes what it means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, Optional

from . import sampling
from .sampling import Sampler
from .script import Refused

BATCH = 8   # samples of a micro-batch, where nothing is said
AHEAD = 2   # micro-batches that each loader process has in hand, as torch's prefetch_factor
AHEAD_MAX = 64
_SUBSET = "SubsetRandomSampler"


@dataclass(frozen=True)
class Taken:
    """What holds of all that was said."""

    collate: "Optional[Callable[[list[Any]], Any]]" = None
    batch_size: int = BATCH
    loaders: int = 0        # processes
    ahead: int = AHEAD
    begin: "Optional[Callable[[int], Any]]" = None  # worker_init_fn
    remarks: "tuple[str, ...]" = ()  # for people
    streamed: bool = False  # of an IterableDataset
    pins: bool = False      # batches are in pinned memory, where the net is on a GPU
    sampler: "Optional[Sampler]" = None  # None: each pass has each sample once, in a drawn order

    def begun(self) -> None:
        """To be called in each process that reads samples, before it does."""
        if self.begin is not None:
            self.begin(0)


@dataclass
class Feed:
    """build       () -> (net, data), or the net alone where `data` are given
    data        a Dataset, a DataLoader, or a function that gives one
    collate, batch_size, num_workers, shards, sampler  as given to train(); None: nothing was said"""

    build: "Callable[[], Any]"
    data: Any = None
    collate: "Optional[Callable[[list[Any]], Any]]" = None
    batch_size: Optional[int] = None
    num_workers: Optional[int] = None
    micro_batches: int = 1
    local_steps: Optional[int] = None
    shards: Optional[int] = None
    sampler: Any = None
    taken: "Taken" = field(default_factory=lambda: Taken())  # by made()

    @property
    def passes(self) -> int:
        """Of a step: its micro-batches, or the local steps of all of them. A pass has the number m * local_steps + i of local
        step i of micro-batch m (core/data/batch.h)."""
        return self.micro_batches * (self.local_steps or 1)

    def made(self) -> "tuple[Any, Any]":
        """The net and its Dataset, or the Streams of an IterableDataset, by build(). Raises Refused."""
        from torch.utils.data import DataLoader, IterableDataset

        made = self.build()
        if self.data is None:
            if not isinstance(made, tuple) or len(made) != 2:
                raise Refused("build() must return (nn.Module, Dataset)")
            net, data = made
        else:
            net, data = made, self.data
            if isinstance(made, tuple):
                raise Refused("build() returns a tuple, expected the nn.Module alone where data= is given")
            if isinstance(data, type) or callable(data) and not hasattr(data, "__getitem__"):
                data = data()
        self.taken = Taken(self.collate, self.batch_size or BATCH, self.num_workers or 0, pins=bool(self.num_workers))
        loader = data if isinstance(data, DataLoader) else None
        samples = data if loader is None else loader.dataset
        if isinstance(samples, IterableDataset):
            return net, self._streams(getattr(samples, "_datapipe", samples), loader)  # a DataLoader wraps an IterDataPipe
        if self.shards is not None:
            raise Refused(f"shards={self.shards} is said of a {_named(samples)}, which is no"
                          " IterableDataset: leave it out")
        if loader is not None:
            return net, self._of_loader(loader)
        if self.sampler is not None:
            self.taken = replace(self.taken, sampler=sampling.of(self.sampler, len(data), by_hand=True))
        return net, data

    def _streams(self, data: Any, loader: Any) -> Any:
        """Of an IterableDataset, which may be given in a DataLoader."""
        from .streams import Streams

        if self.sampler is not None:
            raise Refused(f"sampler= is said of a {_named(data)}, an IterableDataset, whose samples have no numbers: leave it out")
        if self.shards is None:
            raise Refused(f"{_named(data)} is an IterableDataset, whose samples have no numbers; give a map-style Dataset with"
                          " __len__ and __getitem__, or say how many shards it has (shards=)")
        if loader is not None:
            self._check_batches(loader)
            self.taken = Taken(self.collate or loader.collate_fn, loader.batch_size,
                               loader.num_workers if self.num_workers is None else self.num_workers, pins=loader.pin_memory)
        if self.taken.loaders:
            raise Refused(f"num_workers={self.taken.loaders} with shards=: the process that computes reads an IterableDataset"
                          " itself, as yet; expected num_workers=0")
        begin = None if loader is None else loader.worker_init_fn
        streams = Streams(data, self.shards, self.passes, self.taken.batch_size, begin)
        remarks = [*streams.remarks(), *(() if loader is None else self._remarks_of_streams(loader))]
        self.taken = replace(self.taken, remarks=tuple(remarks), streamed=True)
        return streams

    @staticmethod
    def _remarks_of_streams(loader: Any) -> "Iterator[str]":
        if loader.drop_last:
            yield ("the DataLoader's drop_last=True changes nothing: the passes of a lane follow one another without a short"
                   " batch and without a rest")
        if loader.generator is not None:
            yield "the DataLoader's generator is not used: seed= decides what is drawn"

    def _check_batches(self, loader: Any) -> None:
        """Raises Refused unless the DataLoader makes batches of a size itself, and a function of them."""
        from torch.utils.data import BatchSampler, default_collate

        _check_iteration(loader)
        if loader.batch_size is None:
            given = loader.batch_sampler
            raise Refused("the DataLoader has batch_size=None, expected the size of a micro-batch" if given is None else
                          f"the DataLoader has a batch_sampler, {_named(given)}, but a job makes its micro-batches: give"
                          " batch_size= and shuffle= instead")
        if type(loader.batch_sampler) is not BatchSampler:
            raise Refused(f"the DataLoader has a {_named(loader.batch_sampler)}, expected batch_size= and shuffle=")
        if self.batch_size is not None and self.batch_size != loader.batch_size:
            raise Refused(f"batch_size={self.batch_size} and the DataLoader's batch_size={loader.batch_size} differ: say it"
                          " in one of them")
        if self.collate is not None and loader.collate_fn not in (default_collate, self.collate):
            raise Refused("collate= and the DataLoader's collate_fn differ: say it in one of them")

    def _of_loader(self, loader: Any) -> Any:
        from torch.utils.data import SequentialSampler

        data: Any = loader.dataset
        self._check_batches(loader)
        if self.sampler is not None and type(loader.sampler) is not SequentialSampler:
            raise Refused(f"sampler= and the DataLoader's {_named(loader.sampler)} differ: say it in one of them")
        drawn = sampling.of(loader.sampler, len(data)) if self.sampler is None else sampling.of(self.sampler, len(data), by_hand=True)
        self.taken = Taken(
            self.collate or loader.collate_fn, loader.batch_size,
            loader.num_workers if self.num_workers is None else self.num_workers,
            min(AHEAD_MAX, loader.prefetch_factor or AHEAD), loader.worker_init_fn,
            tuple(self._remarks(loader, len(data) if drawn is None else drawn.length)),
            pins=loader.pin_memory, sampler=drawn)
        return data

    @staticmethod
    def _remarks(loader: Any, samples: int) -> "Iterator[str]":
        if samples % loader.batch_size:
            yield (f"the DataLoader's batch_size={loader.batch_size} does not divide {samples} samples: passes follow one"
                   f" another without a short batch, and drop_last={loader.drop_last} changes nothing")
        if loader.generator is not None:
            yield "the DataLoader's generator is not used: seed= decides the order of the samples"
        if getattr(loader.sampler, "generator", None) not in (None, loader.generator):
            yield f"the generator of the DataLoader's {_named(loader.sampler)} is not used: seed= decides what is drawn"


def held_out_of(data: Any, taken: Taken) -> Any:
    """The Dataset of held-out data, which may be given in a DataLoader; taken: of those that are trained on. Raises
    Refused."""
    from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, default_collate

    streamed = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(streamed, IterableDataset):
        raise Refused(f"validation is an IterableDataset, {_named(streamed)}, whose samples have no numbers; expected a map-style"
                      " Dataset with __len__ and __getitem__")
    if not isinstance(data, DataLoader):
        return data
    if data.batch_size != taken.batch_size:
        raise Refused(f"validation is a DataLoader with batch_size={data.batch_size}, expected that of a micro-batch,"
                      f" {taken.batch_size}: give its Dataset")
    samples: Any = data.dataset
    _check_iteration(data)
    if data.worker_init_fn not in (None, taken.begin):
        cure = "leave it out, as that of an IterableDataset is called for its shards" if taken.streamed else "give the same to both"
        raise Refused("validation is a DataLoader with a worker_init_fn, and processes that read samples call that of the data"
                      f" alone: {cure}")
    if type(data.sampler) is not SequentialSampler or len(data.sampler) != len(samples):
        cure = "give torch.utils.data.Subset(dataset, indices) and shuffle=False" if _named(data.sampler) == _SUBSET else \
            "give shuffle=False"
        raise Refused(f"validation is a DataLoader with a {_named(data.sampler)}, but all held-out samples are taken in their"
                      f" order: {cure}")
    if data.collate_fn is not (taken.collate or default_collate):
        raise Refused("validation is a DataLoader with another collate_fn than the data: give the same to both")
    return samples


def _check_iteration(loader: Any) -> None:
    """Raises Refused."""
    from torch.utils.data import DataLoader

    own: Any = type(loader)
    if own.__iter__ is not DataLoader.__iter__ or own._get_iterator is not DataLoader._get_iterator:
        raise Refused(f"{own.__name__} is a DataLoader with an iteration of its own, which no process would call: give"
                      " its Dataset, and collate=")


def _named(one: Any) -> str:
    return type(one).__name__
