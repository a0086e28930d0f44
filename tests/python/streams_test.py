"""Lanes of an IterableDataset: which samples a micro-batch has, wherever a process begins to read, and what is no stream
that a job can have."""
import contextlib
import io
import itertools
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

TORCH = bool(os.environ.get("STARLING_TEST_TORCH"))  # with torch itself and numpy
sys.path[:0] = [os.path.join(SOURCE, "tools", "python")] + [os.path.join(SOURCE, "tests", "stand_in")] * (not TORCH)

import torch  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, get_worker_info  # noqa: E402

from starling import streams  # noqa: E402
from starling.feed import Feed  # noqa: E402
from starling.options import Options  # noqa: E402
from starling.script import Refused  # noqa: E402
from starling.streams import Streams  # noqa: E402
from starling.validation import Validation  # noqa: E402

SEED, SIZES, LANES, SIZE = 5, (3, 0, 7, 2, 4), 2, 3


class Numbers(IterableDataset):
    """Samples (shard, number) of shards with these sizes; notes what is read."""

    identity, reads = "numbers", []

    def __init__(self, sizes=SIZES):
        self.sizes, self.epoch = sizes, None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        require(info.num_workers == len(self.sizes) and info.dataset is self, "another worker's dataset")
        for number in range(self.sizes[info.id]):
            self.reads.append((self.epoch, info.id, number))
            yield self.epoch, info.id, number


class Said(Numbers):
    def shard_sizes(self):
        return self.sizes


class Drawing(Numbers):
    """Samples that are drawn, each from what was drawn before."""

    def __iter__(self):
        for sample in super().__iter__():
            yield (*sample, random.random(), float(torch.rand(1).sum()))


def reading(data):
    return Streams(data, len(SIZES), LANES, SIZE)


def in_order(lane, passes, sizes=SIZES):
    return [(number, shard, i) for number in range(passes) for shard in range(lane, len(sizes), LANES) for i in range(sizes[shard])]


def refused(text, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except Refused as why:
        require(text in str(why) and "\n" not in str(why), f"expected {text!r}: {why}")
        return
    raise AssertionError(f"not refused: {text}")


def a_lane_reads_its_shards_in_order_pass_after_pass(_):
    stream = reading(Numbers())
    require(len(stream) == LANES * SIZE, "a step has another number of samples")
    for lane in range(LANES):
        found = [sample for step in range(12) for sample in stream.samples(SEED, step, lane)]
        require(found == in_order(lane, 40)[:12 * SIZE], f"lane {lane}: {found}")


def whoever_begins_or_goes_back_reads_the_same(_):
    """Steps in any order, by processes that begin anywhere, are those of one that reads on; random numbers too."""
    once = reading(Drawing())
    wanted = {(step, lane): once.samples(SEED, step, lane) for step in range(30) for lane in range(LANES)}
    require(wanted[0, 0] != reading(Drawing()).samples(SEED + 1, 0, 0), "the seed changes nothing")
    draw = random.Random(3)
    for kind in (Drawing, type("Both", (Drawing, Said), {})):
        for _ in range(20):
            stream = reading(kind())
            for _ in range(8):
                step, lane = draw.randrange(30), draw.randrange(LANES)
                require(stream.samples(SEED, step, lane) == wanted[step, lane], f"{kind.__name__}: step {step}, lane {lane}")


def many_begins_of_shards_are_remembered_in_part(_):
    before, streams.BEGINS_MAX = streams.BEGINS_MAX, 4
    try:
        whoever_begins_or_goes_back_reads_the_same(_)
    finally:
        streams.BEGINS_MAX = before


def a_batch_that_is_wanted_again_is_read_once(_):
    stream = reading(type("Lists", (Numbers,), {"__iter__": lambda self: map(list, Numbers.__iter__(self))})())
    stream.samples(SEED, 3, 0)
    first = stream.samples(SEED, 4, 0)
    Numbers.reads.clear()
    first[0].clear()  # as a loss may do with what it gets
    again = stream.samples(SEED, 4, 0)
    again[1].clear()
    require(stream.samples(SEED, 4, 0) == [list(s) for s in in_order(0, 9)[12:15]], "what was given away was changed")
    require(stream.samples(SEED, 3, 0) == [list(s) for s in in_order(0, 9)[9:12]], "the batch before")
    require(not Numbers.reads, f"read again: {Numbers.reads}")
    stream.samples(SEED, 5, 0)
    require(Numbers.reads == in_order(0, 9)[15:18], f"not read on: {Numbers.reads}")


def what_is_given_away_is_no_part_of_the_dataset(_):
    """A loss that changes its batch changes no later sample: whoever begins there has not seen that loss."""
    class Window(Numbers):
        def __iter__(self):
            line = [10 * get_worker_info().id + i for i in range(9)]
            buffer = line[:3]
            for one in line[3:]:
                yield buffer
                buffer.append(one + buffer.pop(0))

    stream, late = (Streams(Window(), len(SIZES), LANES, 1) for _ in range(2))
    for step in range(3):
        stream.samples(SEED, step, 0)[0].clear()
    require(stream.samples(SEED, 2, 0) == late.samples(SEED, 2, 0), "the batch that is kept was changed")
    require(stream.samples(SEED, 3, 0) == late.samples(SEED, 3, 0), "the dataset's own buffer was changed")


def who_begins_late_reads_one_shard_where_their_sizes_are_said(_):
    for kind, first in ((Said, (7, 0, 0)), (Numbers, (0, 0, 0))):
        stream = reading(kind())
        Numbers.reads.clear()
        stream.samples(SEED, 33, 0)  # places 99 to 101 of passes of 14 samples
        require(Numbers.reads[0] == first and Numbers.reads[-1] == in_order(0, 9)[101], f"{kind.__name__}: {Numbers.reads}")
    Numbers.reads.clear()
    stream.samples(SEED, 31, 0)
    require(Numbers.reads[0] == (6, 2, 0), f"going back began at {Numbers.reads[0]}, expected the last shard before it")


def reading_on_for_long_is_told(_):
    before, streams.QUIET_S = streams.QUIET_S, -1.0
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            reading(Numbers()).samples(SEED, 2, 1)
    finally:
        streams.QUIET_S = before
    require("lane 1 of Numbers is read to where step 2 goes on: 1 of 6 samples" in said.getvalue(), said.getvalue())


def what_a_stream_draws_is_its_own(_):
    """The loss draws what it would draw without the stream, and the stream what it would without the loss."""
    stream = reading(Drawing())
    wanted = [stream.samples(SEED, step, 0) for step in range(4)]
    other = reading(Drawing())
    random.seed(1)
    torch.default_generator.manual_seed(1)
    drawn = [(random.random(), float(torch.rand(1).sum())) for _ in range(4)]
    random.seed(1)
    torch.default_generator.manual_seed(1)
    for step in range(4):
        require(other.samples(SEED, step, 0) == wanted[step], "the loss changes the stream")
        require((random.random(), float(torch.rand(1).sum())) == drawn[step], "the stream changes the loss")
    require(get_worker_info() is None, "the loss is in no loader process")


def what_a_stream_draws_on_a_gpu_is_its_own_too(_):
    class OnGpu(Numbers):
        def __iter__(self):
            for sample in super().__iter__():
                (drawn,) = torch.cuda.get_rng_state_all()
                torch.cuda.set_rng_state_all([drawn + 1])
                yield (*sample, drawn)

    if TORCH:
        return  # its GPU has a state that is no number
    os.environ["STARLING_STAND_IN_CUDA"] = "1"
    try:
        stream = reading(OnGpu())
        for step in range(8):
            torch.cuda.manual_seed_all(step)  # as before each pass
            require(stream.samples(SEED, step, 0) == reading(OnGpu()).samples(SEED, step, 0), f"step {step}: who begins late")
            require(torch.cuda.get_rng_state_all() == [step], "the stream changes the loss")
    finally:
        del os.environ["STARLING_STAND_IN_CUDA"]


def each_shard_is_read_in_a_copy(_):
    """As in loader processes of torch: what one leaves in the dataset reaches no other."""
    class Keeping(Numbers):
        left, calls = None, 0

        def __iter__(self):
            self.calls += 1
            self.left = list(Numbers.__iter__(self))
            return self

        def __next__(self):
            if not self.left:
                raise StopIteration
            return (*self.left.pop(0), self.calls)

    stream, data = reading(Keeping()), Keeping()
    for step in range(6):
        for lane in range(LANES):
            wanted = [(*s, 1) for s in in_order(lane, 9)[step * SIZE:(step + 1) * SIZE]]
            require(stream.samples(SEED, step, lane) == wanted, f"step {step} of lane {lane}")
    require(data.left is None and data.epoch is None, "the dataset itself was read")


def what_the_script_does_with_the_dataset_later_changes_no_sample(_):
    """As in loader processes of torch: whoever opens a shard has not seen what the others' losses have done."""
    class Levels(Numbers):
        level = 0

        def __iter__(self):
            return ((*sample, self.level) for sample in Numbers.__iter__(self))

    data = Levels()
    stream, late = reading(data), reading(Levels())
    stream.identity()
    for step in range(8):
        require(stream.samples(SEED, step, 0) == late.samples(SEED, step, 0), f"step {step}: {stream.samples(SEED, step, 0)}")
        data.level += 1


def a_worker_init_fn_makes_a_shard(_):
    class Range(IterableDataset):
        identity, first, end = 7, 0, 12

        def __iter__(self):
            return iter(range(self.first, self.end))

    def begin(shard):
        info = get_worker_info()
        info.dataset.first, info.dataset.end = 3 * shard, 3 * shard + 3

    stream = Streams(Range(), 4, 2, 2, begin)
    found = [stream.samples(SEED, step, lane) for step in range(3) for lane in range(2)]
    require(found == [[0, 1], [3, 4], [2, 6], [5, 9], [7, 8], [10, 11]], str(found))


def the_digest_has_what_makes_the_samples(_):
    digest = reading(Numbers()).identity()
    require(reading(Numbers()).identity() == digest, "it does not repeat itself")
    state = random.getstate()
    reading(Drawing()).identity()
    require(random.getstate() == state, "it draws")
    other = type("Other", (Numbers,), {"identity": "others"})
    changed = type("Changed", (Numbers,), {"__iter__": lambda self: (("new", *s) for s in Numbers.__iter__(self))})
    for one in (reading(other()), reading(changed()), reading(Said()), Streams(Numbers(), len(SIZES), LANES, 4),
                Streams(Numbers(), len(SIZES), 3, SIZE), Streams(Numbers((*SIZES, 1)), len(SIZES) + 1, LANES, SIZE)):
        require(one.identity() != digest, f"{one.name}, {one.shards} shards: the same digest")
    hidden = type("Hidden", (Numbers,), {"__iter__": lambda self: ((lambda: s) for s in Numbers.__iter__(self))})
    require(reading(hidden()).identity() != digest, "samples that cannot be looked into")
    headed = type("Headed", (Numbers,), {"__iter__": lambda self: itertools.chain(["text"], Numbers.__iter__(self))})
    require(reading(headed()).identity() != digest, "each shard begins with the same line")


def what_is_no_stream_of_shards_is_refused(_):
    counted = []

    def own_iter(self):
        counted.append(len(counted))
        return (s + (counted[-1],) for s in Numbers.__iter__(self))

    for kind, line in (
            ({"__iter__": lambda self: iter(range(3))}, "the first 5 shards of Wrong all begin with the same sample: expected a"
             " part of the data from each, that of torch.utils.data.get_worker_info().id"),
            ({"__iter__": own_iter}, "samples of shard 0 of Wrong are others when it is read again"),
            ({"identity": 1.5}, "the identity of Wrong must be a text, bytes or a whole number, is a float"),
            ({"file": open(os.devnull)}, "Wrong cannot be copied (TypeError: ")):
        data = type("Wrong", (Numbers,), kind)()
        if "file" in kind:
            data.file = data.file  # a field of its own
        refused(line, reading(data).identity)
    refused("Wrong has no identity: what a stream has later cannot be compared beforehand", reading,
            type("Wrong", (Numbers,), {"identity": None})())
    for sizes in ((1, 2), (1, 2, 3, 4, -5), (1, 2, 3, 4, 5.0), 7):
        refused("shard_sizes of Said must be 5 whole numbers", reading, Said(sizes))
    stopping = type("Stopping", (Numbers,), {"__iter__": lambda self: next(iter([Numbers.__iter__(self)][get_worker_info().id == 2:]))})
    refused("shard 2 of Stopping raises StopIteration when it is opened", reading(stopping()).identity)
    refused("lane 1 of 2 reads no sample in pass 0 of Numbers: shards 1, 3 of 5 are empty",
            Streams(Numbers((1, 0, 1, 0, 1)), 5, 2, SIZE).samples, SEED, 0, 1)
    refused("lane 1 of 2 reads no sample in pass 0 of Said", Streams(Said((1, 0, 1, 0, 1)), 5, 2, SIZE).samples, SEED, 9, 1)
    for first, step, line in ((4, 1, "shard 0 of Lying has 3 samples in pass 0, and shard_sizes says 4"),
                              (2, 0, "shard 0 of Lying has more samples in pass 0, and shard_sizes says 2")):
        refused(line, reading(type("Lying", (Numbers,), {"shard_sizes": (first, *SIZES[1:])})()).samples, SEED, step, 0)


def modes_of_torch_that_a_stream_leaves_are_refused(_):
    """A stand-in for `with torch.autocast(..)` around a yield, which holds in the loss as well."""
    mode = [False]

    class Leaving(Numbers):
        def __iter__(self):
            for sample in super().__iter__():
                mode[0] = sample[1] > 0 and sample[2] > 4  # in shard 2
                yield sample
                mode[0] = False

    before, streams.torch_modes = streams.torch_modes, lambda: tuple(mode)
    try:
        stream = reading(Leaving())
        stream.identity()
        stream.samples(SEED, 0, 0)
        stream.samples(SEED, 1, 0)
        refused("shard 2 of Leaving leaves torch in another mode between its samples", stream.samples, SEED, 2, 0)
        mode[0] = False
        Leaving.__iter__ = lambda self: (mode.__setitem__(0, True) or s for s in Numbers.__iter__(self))
        refused("shard 0 of Leaving leaves torch in another mode between its samples", reading(Leaving()).identity)
    finally:
        streams.torch_modes = before


def made(data, micro_batches=2, **said):
    feed = Feed(lambda: "net", data, micro_batches=micro_batches, **said)
    return feed, feed.made()[1]


def what_cannot_be_said_of_a_stream_is_refused(_):
    class Map:
        def __len__(self):
            return 9

        def __getitem__(self, i):
            return i

    Numbers.__module__, loader = __name__, lambda **more: DataLoader(Numbers(), batch_size=4, **more)
    refused("Numbers is an IterableDataset, whose samples have no numbers; give a map-style Dataset with __len__ and __getitem__,"
            " or say how many shards it has (shards=)", made, Numbers())
    refused("Numbers is an IterableDataset, whose samples have no numbers", made, loader())
    refused("shards=5 is said of a Map, which is no IterableDataset", made, Map(), shards=5)
    refused("shards=5 is said of a Map", made, DataLoader(Map(), shuffle=True), shards=5)
    refused("num_workers=2 with shards=", made, Numbers(), shards=5, num_workers=2)
    refused("num_workers=2 with shards=", made, loader(num_workers=2), shards=5)
    refused("batch_size=3 and the DataLoader's batch_size=4 differ", made, loader(), shards=5, batch_size=3)
    refused("collate= and the DataLoader's collate_fn differ", made, loader(collate_fn=list), shards=5, collate=tuple)
    feed, stream = made(loader(collate_fn=list, drop_last=True, num_workers=2), shards=5, num_workers=0)
    require(isinstance(stream, Streams) and stream.size == feed.taken.batch_size == 4 and feed.taken.collate is list, str(feed.taken))
    wanted = ("no shard_sizes", "shards=5 over micro_batches=2", "drop_last=True changes nothing")
    require(len(feed.taken.remarks) == 3 and all(words in line for words, line in zip(wanted, feed.taken.remarks)),
            str(feed.taken.remarks))
    feed, _ = made(loader(worker_init_fn=len), shards=5)
    refused("that of the data alone: leave it out, as that of an IterableDataset is called for its shards",
            Validation(DataLoader(Map(), batch_size=4, worker_init_fn=len), None, len, None).opened, feed.taken)
    for held_out in (Numbers(), loader()):
        refused("validation is an IterableDataset, Numbers, whose samples have no numbers",
                Validation(held_out, None, len, None).opened, feed.taken)


def options(**changes):
    from starling.optimizers import AdamW

    said = dict(steps=10, micro_batches=4, batch_size=None, optimizer=AdamW(), workers=1, out=None, seed=1, replicas=1,
                checkpoint=None, checkpoint_every=10, keep=2, resume=False, lease_ms=100, metrics=(), isa="auto", threads=1,
                recheck=0, on_mismatch="warn", command=(), shards=4)
    return Options(**{**said, **changes})


def lanes_that_take_samples_at_different_rates_are_told(_):
    def told(kind, *sizes):
        return [line for line in Streams(kind(sizes), len(sizes), LANES, SIZE).remarks() if "more often" in line]

    require(told(Numbers, 5, 1, 9) == ["shards=3 over micro_batches=2: 1 of them read 2 shards, the others 1, whose samples are"
                                       " taken more often in the same steps"], str(told(Numbers, 5, 1, 9)))
    require(told(Said, 5, 10, 6) == [] and told(Numbers, 5, 1) == [], "even ones")
    require(told(Said, 5, 10, 4, 20) == ["the shards of a micro-batch of Said have from 9 to 30 samples together: those of the"
                                         " fewest are taken more often in the same steps"], str(told(Said, 5, 10, 4, 20)))


def shards_that_are_all_of_the_data_in_another_order_are_told(_):
    """They begin with other samples, since each shard has random numbers of its own."""
    class Whole(Numbers):
        def __iter__(self):
            return iter(random.sample(range(99), 99))

    state = random.getstate()
    (line,) = reading(Whole()).doubts()
    require(line.startswith("shards of Whole differ by the random numbers alone that each has"), line)
    require(random.getstate() == state, "it draws")
    broken = type("Broken", (Numbers,), {"__iter__": lambda self: 1 / 0})
    for one in (Numbers(), Drawing(), broken()):
        require(not list(reading(one).doubts()), type(one).__name__)
    require(not list(Streams(Whole(), 1, 1, SIZE).doubts()), "one shard is all of the data")


def other_options_that_do_not_go_with_shards_are_refused(_):
    options().check(None, build=len, loss=len)
    for changes, line in (({"shards": 3}, "shards=3 and micro_batches=4: each micro-batch of a step reads shards of its own"),
                          ({"shards": 0}, "shards must be a whole number from 1 to 1000000, is 0"),
                          ({"shards": 4.0}, "shards must be a whole number from 1 to 1000000, is 4.0"),
                          ({"steps": None, "epochs": 2}, "epochs= with shards=: passes over an IterableDataset have no length")):
        refused(line, options(**changes).check, None, build=len, loss=len)
    refused("on_epoch= with shards=", options().check, None, build=len, loss=len, on_epoch=len)


main(a_lane_reads_its_shards_in_order_pass_after_pass, whoever_begins_or_goes_back_reads_the_same,
     many_begins_of_shards_are_remembered_in_part, a_batch_that_is_wanted_again_is_read_once,
     what_is_given_away_is_no_part_of_the_dataset,
     who_begins_late_reads_one_shard_where_their_sizes_are_said, reading_on_for_long_is_told, what_a_stream_draws_is_its_own,
     what_a_stream_draws_on_a_gpu_is_its_own_too,
     each_shard_is_read_in_a_copy, what_the_script_does_with_the_dataset_later_changes_no_sample,
     a_worker_init_fn_makes_a_shard, the_digest_has_what_makes_the_samples,
     what_is_no_stream_of_shards_is_refused, modes_of_torch_that_a_stream_leaves_are_refused, what_cannot_be_said_of_a_stream_is_refused,
     lanes_that_take_samples_at_different_rates_are_told, shards_that_are_all_of_the_data_in_another_order_are_told,
     other_options_that_do_not_go_with_shards_are_refused)
