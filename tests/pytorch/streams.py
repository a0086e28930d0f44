#!/usr/bin/env python3
"""An IterableDataset as PyTorch gives it: one that gives each loader process its part is trained on in the order that
shards= says, with the same bits for every number of workers.

  streams.py STARLING

Run it with an interpreter that has torch, numpy and the starling package. One line for each case; exit code 1 if one
fails."""

import json
import os
import sys

import cases

SCRIPT = """
import os, random, sys
import numpy, torch, starling
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STEPS, LANES, SIZE, SHARDS = 30, 4, 4, 6

class Lines(IterableDataset):
    identity = "lines"
    noise = 0.0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        mine = list(range(info.id, 70, info.num_workers))
        random.Random(self.epoch).shuffle(mine)
        for i in mine:
            x = torch.randn(10, generator=torch.Generator().manual_seed(i))
            yield x + self.noise * (torch.randn(10) + random.random() + numpy.random.rand()), x.sum()

class Noisy(Lines):
    noise = 0.1
    def shard_sizes(self):
        return [len(range(i, 70, SHARDS)) for i in range(SHARDS)]

def net(dropout=0.0):
    return torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Dropout(dropout), torch.nn.Tanh(), torch.nn.Linear(16, 1))

def loss(net, batch):
    return ((net(batch[0])[:, 0] - batch[1]) ** 2).mean()

def lane(number):
    epoch = 0
    while True:
        for shard in range(number, SHARDS, LANES):
            mine = list(range(shard, 70, SHARDS))
            random.Random(epoch).shuffle(mine)
            for i in mine:
                x = torch.randn(10, generator=torch.Generator().manual_seed(i))
                yield x, x.sum()
        epoch += 1

def plain(net, steps):
    optimizer, lanes = torch.optim.SGD(net.parameters(), lr=0.05), [lane(m) for m in range(LANES)]
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for one in lanes:
            x, y = zip(*(next(one) for _ in range(SIZE)))
            value = loss(net, (torch.stack(x), torch.stack(y))) / LANES
            value.backward()
            total += value.item()
        optimizer.step()
        yield total

if __name__ == "__main__":
    if sys.argv[1] == "plain":
        one = net()
        one.load_state_dict(torch.load("first.pt"))
        print(*plain(one, STEPS))
    else:
        told, noisy = [], sys.argv[1] == "noisy"
        first = net(0.2 if noisy else 0.0)
        if os.environ.get("WORKERS") == "1" and not noisy and starling.job.child.channel() is None:
            torch.save(first.state_dict(), "first.pt")
        data = DataLoader(Noisy() if noisy else Lines(), SIZE)
        trained = starling.train(lambda: first, loss, data=data, shards=SHARDS, steps=STEPS, micro_batches=LANES,
                                 optimizer=starling.SGD(0.05, momentum=0.0, warmup=0, floor=1.0, clip=0.0),
                                 workers=int(os.environ["WORKERS"]), threads=int(os.environ.get("THREADS", "1")),
                                 out=os.environ["OUT"], recheck=16, lease_ms=10000)
        print("RESULT digest", trained.digest)
"""


def trained(folder, kind, workers, threads=1):
    """Digest and losses."""
    os.chdir(folder)
    script, out = cases.written(folder, "train.py", SCRIPT), os.path.join(folder, f"{kind}-{workers}-{threads}")
    said = cases.said(script, kind, OUT=out, WORKERS=str(workers), THREADS=str(threads))
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    assert not [e for e in events if e["ev"] == "mismatch"], said
    return cases.digest_in(said), [e["loss"] for e in events if e["ev"] == "step"]


def losses_are_those_of_a_loop_over_the_lanes(folder):
    digest, losses = trained(folder, "exact", 1)
    wanted = list(map(float, cases.said(os.path.join(folder, "train.py"), "plain").split()))
    far = max(abs(a - b) for a, b in zip(losses, wanted))
    assert len(losses) == len(wanted) == 30 and far < 1e-5 and losses[-1] < 0.5 * losses[0], f"{far}: {losses} {wanted}"
    assert trained(folder, "exact", 3)[0] == digest, "another digest"


def samples_that_draw_have_the_same_bits_everywhere(folder):
    """Beside a net with dropout."""
    found = {trained(folder, "noisy", workers, threads)[0] for workers, threads in ((1, 1), (3, 1), (1, 2))}
    assert len(found) == 1, str(found)


def pipes_of_torch_are_divided(folder):
    """Also one in a DataLoader, which wraps it: each sample once in each pass, which is shuffled anew."""
    from starling.feed import Feed
    from torch.utils.data import DataLoader
    from torch.utils.data.datapipes.iter import IterableWrapper

    def pipe():
        made = IterableWrapper(range(24)).shuffle().sharding_filter()
        made.identity = "numbers"
        return made

    for data, shuffled in ((pipe(), True), (DataLoader(pipe(), 3), True), (DataLoader(pipe(), 3, shuffle=False), False)):
        streams = Feed(lambda: "net", data, batch_size=3, micro_batches=2, shards=4).made()[1]
        streams.identity()
        passes = [[sample for step in range(4 * i, 4 * i + 4) for lane in range(2) for sample in streams.samples(1, step, lane)]
                  for i in range(3)]
        assert all(sorted(one) == list(range(24)) for one in passes), f"not each sample once: {passes}"
        assert (passes[0] != passes[1]) == shuffled, f"shuffle is not {shuffled}: {passes}"
        late = Feed(lambda: "net", data, batch_size=3, micro_batches=2, shards=4).made()[1]
        assert late.samples(1, 9, 1) == streams.samples(1, 9, 1), "who begins late reads others"


def modes_that_a_stream_leaves_are_refused(folder):
    import torch
    from starling.script import Refused
    from starling.streams import Streams

    class Leaving(torch.utils.data.IterableDataset):
        identity = "numbers"

        def __iter__(self):
            with self.mode():
                yield from range(torch.utils.data.get_worker_info().id, 9, 3)

    for mode in (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.device("meta")):
        Leaving.mode = staticmethod(mode)
        try:
            Streams(Leaving(), 3, 3, 1).identity()
        except Refused as why:
            assert "shard 0 of Leaving leaves torch in another mode" in str(why), str(why)
        else:
            raise AssertionError(f"not refused: {mode}")
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def a_view_is_copied_without_what_it_is_a_view_of(folder):
    """Batches are kept for whoever wants them again, and a sample may be a line of a table; a loss may change it."""
    import torch
    from starling.streams import Streams

    class Lines(torch.utils.data.IterableDataset):
        identity = "lines"

        def __iter__(self):
            table = torch.arange(1 << 20).reshape(1024, 1024) + torch.utils.data.get_worker_info().id
            yield from (({"line": table[i:i + 2]}, table[:, i].numpy()) for i in range(1023))

    streams, late = (Streams(Lines(), 2, 2, 4) for _ in range(2))
    for step in range(3):
        batch = streams.samples(1, step, 0)
        assert all(one["line"].untyped_storage().nbytes() == 2 * 1024 * 8 for one, _ in batch), "more than the line"
        for one, _ in batch:
            one["line"].zero_()
    for step in (2, 3):
        for (a, b), (c, d) in zip(streams.samples(1, step, 0), late.samples(1, step, 0)):
            assert torch.equal(a["line"], c["line"]) and (b == d).all(), f"step {step} has what the loss has changed"


def main():
    os.environ["STARLING"] = os.path.abspath(sys.argv[1])
    return cases.run(pipes_of_torch_are_divided, modes_that_a_stream_leaves_are_refused,
                     a_view_is_copied_without_what_it_is_a_view_of, losses_are_those_of_a_loop_over_the_lanes,
                     samples_that_draw_have_the_same_bits_everywhere)


if __name__ == "__main__":
    sys.exit(main())
