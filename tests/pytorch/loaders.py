#!/usr/bin/env python3
"""Data as PyTorch gives it: a DataLoader and num_workers=, with the same bits for every number of loader processes and of
workers, through kills of each kind of process; what a job cannot have is refused.

  loaders.py STARLING [--bench]

Run it with an interpreter that has torch, numpy and the starling package. One line for each case; exit code 1 if one
fails. --bench: how many samples a second are trained on, beside a loop of torch with a DataLoader, no test."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import cases

SCRIPT = """
import itertools, os, random, sys, time
import numpy, torch, starling
from torch.utils.data import *

class Data(Dataset):
    def __init__(self, samples=100, path=os.environ.get("DATA")):
        self.file, self.samples, self.pause = open(path, "rb"), samples, float(os.environ.get("PAUSE", "0.001"))

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        time.sleep(self.pause)
        if os.environ.get("READERS"):
            with open("/proc/self/comm") as comm, open(os.environ["READERS"], "a") as log:
                log.write(comm.read())
        if os.environ.get("WRONG") == "raises" and i == 77:
            raise ValueError("no such colour")
        self.file.seek(40 * i)
        x = torch.frombuffer(bytearray(self.file.read(40)), dtype=torch.float32)
        return x + 0.01 * torch.randn(10), float(x.sum()) + random.random() + numpy.random.rand(), i

def collate(samples):
    x, y, i = zip(*samples)
    both = torch.stack([torch.stack(x), torch.stack(x) * torch.rand(())])
    return {"x": both[0], "noise": both[1], "y": torch.tensor(y), "i": i, "names": ["a", {"b": numpy.array(i)}]}

def net():
    return torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(16, 1))

def build():
    return net(), Data()

def loss(net, batch):
    time.sleep(float(os.environ.get("PACE", "0")))
    assert batch["x"].data_ptr() % 64 == 0 and not batch["x"].requires_grad
    batch["x"] += 0.1 * batch["noise"]
    return ((net(batch["x"])[:, 0] - batch["y"]) ** 2).mean()

def loader(**more):
    return DataLoader(Data(), **{**dict(batch_size=8, shuffle=True, collate_fn=collate), **more})

GIVEN = dict(steps=int(os.environ.get("STEPS", "12")), micro_batches=6, seed=4, optimizer=starling.AdamW(1e-2, warmup=5),
             workers=int(os.environ.get("WORKERS", "1")), out=os.environ.get("OUT"), lease_ms=10000)

if __name__ == "__main__":
    more = eval(os.environ.get("MORE", "{}"))
    given = dict(GIVEN, batch_size=8, collate=collate) | more
    trained = starling.train(given.pop("build", build), loss, **given)
    print("RESULT digest", trained.digest)
"""
SAMPLES = 100


def environment(folder):
    path = os.path.join(folder, "samples")
    if not os.path.exists(path):
        draw = random.Random(1)
        with open(path, "wb") as file:
            file.write(b"".join(draw.randbytes(2) + bytes([draw.randrange(128), 62]) for _ in range(10 * SAMPLES)))
    return {"DATA": path}


def run(folder, name, code=0, text=SCRIPT, **more):
    script = cases.written(folder, "train.py", text)
    out = os.path.join(folder, name)
    found, said = cases.ended(script, OUT=out, **environment(folder), **more)
    assert found == code, f"{name}: exit code {found}, expected {code}: {said[-3000:]}"
    assert not left_behind(script), f"{name}: processes are left"
    return said


def left_behind(script):
    """Processes that run the script; those that end need a moment."""
    for _ in range(100):
        found = [pid for pid, words in processes() if script.encode() in words]
        if not found:
            return []
        time.sleep(0.05)
    return found


def processes():
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                ended = file.read().rsplit(")", 1)[1].split()[0] == "Z"
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if not ended and int(entry) != os.getpid():
            yield int(entry), words


def named(script, loaders):
    """Processes that compute for workers, or the loader processes of these."""
    found = []
    for pid, words in processes():
        if script.encode() in words and b"starling" in words:
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    name = file.read().strip()
                if name != "starling-warm" and (name == "starling-loader") == loaders:
                    found.append(pid)
            except OSError:
                continue
    return found


def undisturbed(folder):
    """The digest of one worker without loader processes."""
    path = os.path.join(folder, "digest")
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(cases.digest_in(run(folder, "undisturbed")))
    with open(path, encoding="utf-8") as file:
        return file.read()


def every_number_of_processes_gives_the_same_bits(folder):
    for workers, loaders in ((1, 2), (1, 4), (3, 0), (3, 2), (3, 4)):
        said = run(folder, f"{workers}-{loaders}", WORKERS=str(workers), MORE=f"dict(num_workers={loaders})")
        assert cases.digest_in(said) == undisturbed(folder), f"{workers} workers, {loaders} loader processes: {said[-2000:]}"


def loader_processes_read_what_comes_next(folder):
    readers = os.path.join(folder, "readers")
    run(folder, "readers-out", READERS=readers, MORE="dict(num_workers=2)", PACE="0.05")
    with open(readers, encoding="utf-8") as file:
        names = file.read().split()
    by_loaders = names.count("starling-loader")
    # Of 12 steps of 6 micro-batches; the process that computes reads the first, those of rechecks, and what proves the data.
    assert by_loaders >= 60 * 8, f"{by_loaders} of {len(names)} samples"


def a_data_loader_is_taken_as_it_is(folder):
    for name, more in (("keyword", "dict(build=net, data=loader(num_workers=2), batch_size=None, collate=None)"),
                       ("built", "dict(build=lambda: (net(), loader(drop_last=True, pin_memory=True)), batch_size=8)"),
                       ("function", "dict(build=net, data=loader, num_workers=1, collate=collate)"),
                       ("begun", "dict(build=net, data=lambda: loader(num_workers=1, worker_init_fn=lambda i: random.seed(i)))")):
        said = run(folder, name, MORE=more, WORKERS="2")
        assert cases.digest_in(said) == undisturbed(folder), f"{name}: {said[-2000:]}"
        assert "batch_size=8 does not divide 100 samples" in said, said


def held_out_data_are_read_ahead_too(folder):
    found = []
    for workers, loaders in ((1, 0), (1, 2), (3, 2)):
        name = f"held-{workers}-{loaders}"
        said = run(folder, name, WORKERS=str(workers), READERS=os.path.join(folder, name + "-readers"), PACE="0.02", MORE=
                   f"dict(num_workers={loaders}, validation=DataLoader(Data(60), 8, collate_fn=collate), evaluate_every=4)")
        assert cases.digest_in(said) == undisturbed(folder), said[-2000:]
        with open(os.path.join(folder, name, "events.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        found.append([(e["version"], e["loss"]) for e in events if e["ev"] == "evaluation"])
    assert [v for v, _ in found[0]] == [4, 8, 12] and found[0] == found[1] == found[2], found
    readers = [open(os.path.join(folder, f"held-1-{n}-readers"), encoding="utf-8").read().split() for n in (0, 2)]
    alone, others = (names.count("python") + names.count("python3") for names in readers)
    assert readers[1].count("starling-loader") >= 3 * 5 * 8 + 60 * 8 and others < alone - 3 * 5 * 8, (alone, others)


LOOP = SCRIPT.split("if __name__")[0] + """
job = starling.Job(net, data=loader(num_workers=int(os.environ["LOADERS"])), **GIVEN)
for step in job:
    for mb in step.mine:
        if mb.number == 2:
            torch.rand(1)  # so that its samples draw other numbers than those that were read ahead
        if mb.number == 3:
            mb.batch()
        with torch.inference_mode(mb.number == 4), torch.autocast("cpu", enabled=mb.number == 5):
            batch = mb.batch()
        if mb.number == 4:
            batch = {**batch, **{key: batch[key].clone() for key in ("x", "noise", "y")}}
        assert tuple(batch["i"]) == mb.samples, (batch["i"], mb.samples)
        with open(os.environ["TAKEN"], "a") as file:
            print(step.number, mb.number, *mb.samples, file=file)
        mb.done(loss(job.net, batch))
print("digest", job.trained.digest)
"""


def what_a_loop_does_beside_its_batches_changes_no_bit(folder):
    digests, found = set(), []
    for workers, loaders in ((1, 0), (3, 2)):
        taken = os.path.join(folder, f"taken-{workers}")
        said = run(folder, f"loop-{workers}", text=LOOP, TAKEN=taken, WORKERS=str(workers), LOADERS=str(loaders))
        digests.add(cases.digest_in(said))
        with open(taken, encoding="utf-8") as file:
            rows = {tuple(map(int, line.split()[:2])): tuple(map(int, line.split()[2:])) for line in file}
        found.append(rows)
    assert len(found[0]) == 72 and found[0] == found[1], found
    assert len(digests) == 1 and undisturbed(folder) not in digests, digests


def kills_change_no_bit(folder):
    script, out = cases.written(folder, "train.py", SCRIPT), os.path.join(folder, "killed")
    wanted = cases.digest_in(run(folder, "longer", STEPS="60"))
    log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
    process = subprocess.Popen([sys.executable, script], stdout=log, stderr=subprocess.STDOUT, env=cases.environment(
        **environment(folder), OUT=out, WORKERS="3", STEPS="60", PACE="0.03", MORE="dict(num_workers=2)"))
    draw, done, after = random.Random(3), {"loader": 0, "stopped": 0, "child": 0, "worker": 0}, 3
    wishes = ["loader", "child", "stopped", "worker", "loader", "loader", "child", "stopped"]
    while process.poll() is None and wishes:
        time.sleep(0.02)
        if last_step(out) < after:
            continue
        kind = wishes[0]
        pids = workers_of(out) if kind == "worker" else named(script, loaders=kind != "child")
        if pids:
            try:
                os.kill(draw.choice(sorted(pids)), signal.SIGSTOP if kind == "stopped" else signal.SIGKILL)
            except OSError:
                continue
            done[wishes.pop(0)] += 1
            after = last_step(out) + 5
    code = process.wait()
    log.seek(0)
    said = log.read()
    assert "a loader process did not answer in time" in said, said[-3000:]
    assert code == 0 and not wishes, f"exit code {code}, {done}: {said[-3000:]}"
    assert cases.digest_in(said) == wanted, f"digest, {done}: {said[-3000:]}"
    assert not left_behind(script), "processes are left"


def last_step(out):
    try:
        with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
            return file.read().count('"ev":"step"')
    except OSError:
        return 0


def workers_of(out):
    here = {}
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file.read().split("\n")[:-1]]
    for event in events:
        if event["ev"] == "worker":
            if event["what"] == "joined":
                here[event["id"]] = event["pid"]
            elif event["what"] in ("lost", "left"):
                here.pop(event["id"], None)
    return list(here.values())


def the_end_of_all_leaves_no_loader_process(folder):
    script, out = cases.written(folder, "train.py", SCRIPT), os.path.join(folder, "ended")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=cases.environment(
        **environment(folder), OUT=out, STEPS="100000", MORE="dict(num_workers=3)"))
    while last_step(out) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    loaders = named(script, loaders=True)
    (child,) = named(script, loaders=False)
    os.kill(child, signal.SIGKILL)
    while set(loaders) & {pid for pid, _ in processes()}:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert len(loaders) == 3 and not left_behind(script), "processes are left"


REFUSED = {
    "loader(sampler=WeightedRandomSampler([1.0] * 99, 100), shuffle=None)": "Weighted has 99 weights, and the Dataset 100 samples",
    "loader(sampler=itertools.repeat(1), shuffle=None)": "the sampler, a repeat, gives more than 1048576 samples for pass 0",
    "loader(sampler=SubsetRandomSampler([100]), shuffle=None)": "the sampler, a SubsetRandomSampler, gives 100 for pass 0, expected",
    "loader(sampler=torch.utils.data.distributed.DistributedSampler(Data(), 2, 0), shuffle=None)":
        "leave it out, since each worker takes its own micro-batches",
    "DataLoader(Data(), batch_sampler=[[1, 2], [3]])":
        "the DataLoader has a batch_sampler, list, but a job makes its micro-batches: give batch_size= and shuffle= instead",
    "DataLoader(Data(), batch_size=None)": "the DataLoader has batch_size=None, expected the size of a micro-batch",
    "loader(collate_fn=lambda samples: samples)": "collate= and the DataLoader's collate_fn differ: say it in one of them",
    "loader(batch_size=4)": "batch_size=8 and the DataLoader's batch_size=4 differ: say it in one of them",
    "type('Own', (DataLoader,), {'__iter__': None})(Data())": "Own is a DataLoader with an iteration of its own",
    "DataLoader(type('Endless', (IterableDataset,), {'__iter__': iter})())": "Endless is an IterableDataset, whose samples have no numbers",
}


def what_a_job_cannot_have_is_refused_in_one_line(folder):
    wrong = [(f"dict(build=net, data={given})", line) for given, line in REFUSED.items()]
    wrong += [("dict(data=Data())", "build() returns a tuple, expected the nn.Module alone where data= is given"),
              ("dict(num_workers=-1)", "num_workers must be a whole number from 0 to 256, is -1"),
              ("dict(num_workers='2')", "num_workers must be a whole number from 0 to 256, is '2'")]
    wrong += [(f"dict(validation={given})", line) for given, line in (
        ("DataLoader(Data(), 4)", "validation is a DataLoader with batch_size=4, expected that of a micro-batch, 8"),
        ("DataLoader(Data(), 8, shuffle=True)", "validation is a DataLoader with a RandomSampler"),
        ("DataLoader(Data(), 8, sampler=SubsetRandomSampler([1, 2]), collate_fn=collate)",
         "Subset(dataset, indices) and shuffle=False"),
        ("type('Own', (DataLoader,), {'__iter__': None})(Data(), 8, collate_fn=collate)", "Own is a DataLoader with an iteration"),
        ("DataLoader(Data(), 8, collate_fn=collate, worker_init_fn=print)", "validation is a DataLoader with a worker_init_fn"),
        ("DataLoader(Data(), 8)", "validation is a DataLoader with another collate_fn than the data"))]
    for more, line in wrong:
        said = run(folder, "refused", code=2, MORE=more).strip()
        assert line in said and "\n" not in said, f"{more}: {said}"


FEW = """(__import__('resource').setrlimit(7, (48, 48)) if 'starling' in open('/proc/self/cmdline').read().split(chr(0)) else None,
          net())[1]"""  # RLIMIT_NOFILE of the processes that compute


def few_open_files_change_no_bit(folder):
    more = f"dict(build=lambda: {FEW}, data=loader(num_workers=2, prefetch_factor=64))"
    said = run(folder, "few", MORE=more)
    assert cases.digest_in(said) == undisturbed(folder) and "loader process" not in said, said[-2000:]


# Notes of each micro-batch its place and its samples.
NOTED = SCRIPT.split("if __name__")[0] + """
job = starling.Job(net, data=loader(shuffle=None, sampler=eval(os.environ["SAMPLER"]), num_workers=int(os.environ["LOADERS"])),
                   recheck=0, **GIVEN)
for step in job:
    for mb in step.mine:
        with open(os.environ["OUT"] + "-noted", "a") as file:
            file.write(f"{6 * step.number + mb.number:08d}:{' '.join(map(str, mb.samples))}\\n")
        batch = mb.batch()
        assert batch["i"] == mb.samples
        mb.done(loss(job.net, batch))
print("RESULT digest", job.trained.digest)
"""


def drawn(folder, name, sampler, loaders, workers):
    """The digest, and the numbers of all samples in the order of their micro-batches."""
    digest = cases.digest_in(run(folder, name, text=NOTED, SAMPLER=sampler, LOADERS=loaders, WORKERS=workers))
    with open(os.path.join(folder, name + "-noted"), encoding="utf-8") as file:
        return digest, [int(word) for line in sorted(set(file)) for word in line.split(":")[1].split()]


def samplers_of_torch_are_what_they_say(folder):
    """For any number of workers and of loader processes. Of a job of 12 steps and 6 micro-batches of 8 samples."""
    for number, (sampler, length, check) in enumerate((
            ("WeightedRandomSampler([1.0 * (i % 2) for i in range(100)], 60)", 60, lambda one: all(i % 2 for i in one)),
            ("WeightedRandomSampler([1.0 * (i < 40) for i in range(100)], 40, replacement=False)", 40,
             lambda one: sorted(one) == list(range(40))),
            ("SubsetRandomSampler(range(50), torch.Generator().manual_seed(9))", 50, lambda one: sorted(one) == list(range(50))),
            ("RandomSampler(range(100), num_samples=30)", 30, lambda one: len(set(one)) == 30),
            ("SequentialSampler(range(100))", 100, lambda one: one == list(range(100))))):
        digest, samples = drawn(folder, f"{number}-one", sampler, "0", "1")
        assert len(samples) == 12 * 6 * 8, sampler
        passes = [samples[at:at + length] for at in range(0, len(samples) - length + 1, length)]
        assert all(map(check, passes)) and (len({*map(tuple, passes)}) == 1) == sampler.startswith("Sequential"), f"{sampler}: {passes}"
        found = drawn(folder, f"{number}-three", sampler, "1", "3")
        assert found == (digest, samples), f"{sampler}: another digest, or other samples"


def what_a_dataset_raises_is_told_as_without_loader_processes(folder):
    for loaders in (0, 2):
        said = run(folder, f"raises-{loaders}", code=2, WRONG="raises", MORE=f"dict(num_workers={loaders})")
        assert "ValueError: no such colour; " in said and "in __getitem__" in said, said


def batches_are_handed_over_just_as_they_are(folder):
    import numpy
    import torch
    from starling import handed

    base = torch.arange(1000, dtype=torch.float32)
    large = numpy.arange(5000.0)[100:4000]
    large.flags.writeable = False
    batch = {"view": base[3:500:7], "same": base, "turned": base[:990].view(30, 33).t(), "none": torch.empty(0, 4),
             "scalar": torch.tensor(2.5), "kinds": [torch.ones(5, dtype=kind) for kind in (torch.bool, torch.bfloat16, torch.int8,
                                                                                        torch.complex64, torch.float64)],
             "wide": torch.zeros(1, 4).expand(3, 4), "array": large, "turned array": numpy.ones((3, 4), order="F"), "text": "x",
             "nested": (1, None, 2.5, [b"y", {"z": {3}}])}
    batch["again"] = batch["view"]
    found = handed.read(handed.written(batch))

    def compare(a, b):
        assert type(a) is type(b)
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b)
            assert a.numel() == 0 or a.data_ptr() % 64 == b.data_ptr() % 64
        elif isinstance(a, numpy.ndarray):
            assert a.strides == b.strides and a.flags.writeable == b.flags.writeable and numpy.array_equal(a, b)
            assert a.ctypes.data % 64 == b.ctypes.data % 64
        elif isinstance(a, dict):
            assert list(a) == list(b)
            [compare(a[key], b[key]) for key in a]
        elif isinstance(a, (list, tuple)):
            assert len(a) == len(b)
            [compare(one, other) for one, other in zip(a, b)]
        else:
            assert a == b

    compare(batch, found)
    assert found["again"] is found["view"]
    found["same"][3] = -1.0
    assert found["view"][0] == -1.0 and base[3] == 3.0, "shared as before, and nobody else's"
    for other in (torch.nn.Parameter(torch.ones(2)), torch.ones(2).to_sparse(), torch.ones(2, requires_grad=True),
                  numpy.arange(10)[::2], lambda: 0):
        files = os.listdir("/proc/self/fd")
        try:
            handed.written([other])
        except Exception:
            assert os.listdir("/proc/self/fd") == files
            continue
        raise AssertionError(f"{other!r} was handed over")


# torch's loader processes share the place of the file that was open before.
BENCH = SCRIPT.split("GIVEN")[0].replace("100, path", "20000, path").replace("        self.file.seek(40 * i)\n", "").replace(
    "self.file.read(40)", "os.pread(self.file.fileno(), 40, 40 * (i % 100))") + """
LOADERS, STEPS = int(sys.argv[2]), int(os.environ.get("STEPS", "80"))
if sys.argv[1] == "torch":
    model, told = net(), []
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.set_num_threads(1)
    for k, batch in enumerate(loader(num_workers=LOADERS)):
        loss(model, batch).backward()
        if k % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()
            told.append(time.perf_counter())
            if len(told) == STEPS:
                break
    print("RESULT", 64 * 40 / (told[-1] - told[-41]))
elif __name__ == "__main__":
    told = []
    starling.train(net, loss, data=loader(num_workers=LOADERS), steps=STEPS, micro_batches=8, workers=1, out=os.environ["OUT"],
                   lease_ms=10000, on_step=lambda s: told.append(s.ms))
    print("RESULT", 64 * 40 / (sum(told[-40:]) / 1000))
"""


def bench():
    """Samples of 10 ms in micro-batches of 8 and steps of 64; the last 40 of 80 steps, as in the first 32 of a job a
    micro-batch of each is computed twice."""
    import tempfile

    for loaders in (0, 2, 4):
        found = {}
        for who in ("torch", "starling"):
            with tempfile.TemporaryDirectory() as folder:
                script = cases.written(folder, "bench.py", BENCH)
                code, said = cases.ended(script, who, loaders, OUT=os.path.join(folder, "out"), PAUSE="0.01", **environment(folder))
                assert code == 0, said
                found[who] = float(said.split("RESULT")[1].split()[0])
        print(f"{loaders} loader processes: torch {found['torch']:.0f} samples/s, starling {found['starling']:.0f}"
              f" ({found['starling'] / found['torch']:.2f})", flush=True)
    return 0


def main():
    os.environ["STARLING"] = os.path.abspath(sys.argv[1])
    if sys.argv[2:] == ["--bench"]:
        return bench()
    wanted = os.environ.get("ONLY", "").split(",")
    every = [every_number_of_processes_gives_the_same_bits, loader_processes_read_what_comes_next,
             a_data_loader_is_taken_as_it_is, held_out_data_are_read_ahead_too, what_a_loop_does_beside_its_batches_changes_no_bit, kills_change_no_bit,
             the_end_of_all_leaves_no_loader_process, what_a_job_cannot_have_is_refused_in_one_line, samplers_of_torch_are_what_they_say,
             few_open_files_change_no_bit, what_a_dataset_raises_is_told_as_without_loader_processes, batches_are_handed_over_just_as_they_are]
    return cases.run(*[one for one in every if wanted == [""] or one.__name__ in wanted], shared=True)


if __name__ == "__main__":
    sys.exit(main())
