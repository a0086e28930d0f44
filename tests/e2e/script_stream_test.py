"""Streams of scripts, with the stand-in for torch: an IterableDataset with a number of shards has the same bits for any
number of workers, through kills and from a checkpoint on, and each sample of a pass is taken once."""
import os
import signal
import subprocess
import sys

from harness import PATIENCE, STARLING, children_of, main, require, wait_until
from scripts import HEAD, PATHS, ended, events, result, started, written

STEPS, LANES, SIZE, SIZES = 30, 4, 4, (5, 6, 7, 8, 9, 10, 3)

# Samples that draw; the loss draws too, and notes the numbers of those that it sees.
STREAM = HEAD.replace("def train(", f"""
import random, time
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIZES = {SIZES}

class Numbers(IterableDataset):
    @property
    def identity(self):
        return os.environ.get("IDENTITY", "numbers")

    def __iter__(self):
        info = get_worker_info()
        for i in range(SIZES[info.id] if info.id < len(SIZES) else 0):
            x = torch.randn(4)
            yield 100 * info.id + i, x, x.sum(-1) + random.random()

class Said(Numbers):
    shard_sizes = SIZES

def net():
    return Net()

def noting(net, batch):
    time.sleep(0 if os.path.exists(os.environ["OUT"] + "-hurry") else float(os.environ.get("PACE", 0)))
    numbers = " ".join(str(int(number)) for number in batch[0].tolist())
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(numbers + "\\n")
    return loss(net, batch[1:]) * (1.0 + random.random())

def train(""")
SCRIPT = STREAM + f"""
kind = Said if "--said" in sys.argv else Numbers
train(noting, net, data=kind, shards=int(os.environ.get("SHARDS", len(SIZES))), steps={STEPS}, micro_batches={LANES},
      batch_size={SIZE}, threads=int(os.environ.get("THREADS", 1)), recheck=16, replicas=2, log="csv",
      checkpoint=os.environ.get("CHECKPOINT"), checkpoint_every=4)
"""


def of_lane(lane, passes=40):
    return [100 * shard + i for _ in range(passes) for shard in range(lane, len(SIZES), LANES) for i in range(SIZES[shard])]


def wanted():
    """The numbers of each micro-batch's samples, by a plain count."""
    return sorted(" ".join(map(str, of_lane(m)[t * SIZE:(t + 1) * SIZE])) for t in range(STEPS) for m in range(LANES))


def seen(place, name):
    with open(place.path("seen-" + name)) as file:
        return sorted(file.read().split("\n")[:-1])


def variables(place, name, **more):
    return dict(SEEN=place.path("seen-" + name), OUT=place.path(name), **more)


_alone = []  # of undisturbed()


def undisturbed(place):
    """The digest of one worker, the numbers that its loss has seen, and the first line of its table; run once."""
    if not _alone:
        script = written(place, "stream.py", SCRIPT.replace("recheck=16", "recheck=0"))
        digest = result(script, **variables(place, "alone"))
        with open(os.path.join(place.path("alone"), "steps.csv")) as table:
            _alone.extend((digest, seen(place, "alone"), table.readline()))
    return _alone


def each_sample_of_a_pass_is_taken_once(place):
    _, found, columns = undisturbed(place)
    first = " ".join(map(str, of_lane(0)[:SIZE]))  # which every process computes when it begins, too
    once = [[numbers for numbers in all_of_them if numbers != first] for all_of_them in (found, wanted())]
    require(once[0] == once[1] and first in found, f"a sample was left out, or taken more than once in a pass: {found}")
    require("rate" in columns and "epoch" not in columns, f"passes have no length: {columns}")


def any_number_of_workers_and_processes_has_the_same_bits(place):
    digest, script = undisturbed(place)[0], written(place, "stream.py", SCRIPT)
    for workers, threads, more in ((2, 1, ()), (3, 1, ("--said",)), (1, 2, ())):
        name = f"{workers}-{threads}"
        found = result(script, *more, **variables(place, name, WORKERS=str(workers), THREADS=str(threads)))
        require(found == digest, f"{name}: {found}, of one worker {digest}")
        require(set(seen(place, name)) == set(wanted()), f"{name}: other micro-batches: {seen(place, name)}")
        require(not events(place.path(name), "mismatch"), f"{name}: a mismatch")


def kills_change_no_bit(place):
    """A worker, and the process that computes for another one, are killed."""
    digest, script = undisturbed(place)[0], written(place, "stream.py", SCRIPT)
    out = place.path("killed")
    run = started(script, **variables(place, "killed", WORKERS="3", PACE="0.3"))
    wait_until(lambda: len(events(out, "step")) > 2 or run.poll() is not None, "some steps")
    first, second = [e["pid"] for e in events(out, "worker") if e["what"] == "joined"][:2]
    (child,) = children_of(first)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: len(events(out, "step")) > 4 or run.poll() is not None, "more steps")
    os.kill(second, signal.SIGKILL)
    written(place, "killed-hurry", "")
    said = "".join(run.communicate(timeout=PATIENCE))
    require(f"RESULT {digest}" in said, f"expected {digest}: {said[-3000:]}")
    require("another one takes its place" in said and [e for e in events(out, "worker") if e["what"] == "lost"], said[-3000:])
    require(set(seen(place, "killed")) == set(wanted()) and not events(out, "mismatch"), "other micro-batches")


def a_checkpoint_goes_on_at_its_place(place):
    """With another number of workers; not with other shards or other data."""
    digest, script = undisturbed(place)[0], written(place, "stream.py", SCRIPT)
    for name, more, others in (("going", (), ({"SHARDS": "8"}, {"IDENTITY": "others"})), ("said", ("--said",), ())):
        out, checkpoint = place.path(name), place.path(name + "-checkpoints")
        run = started(script, *more, **variables(place, name, WORKERS="2", PACE="0.2", CHECKPOINT=checkpoint))
        wait_until(lambda: len(events(out, "step")) > 5 or run.poll() is not None, "some steps")
        run.terminate()
        said = "".join(run.communicate(timeout=PATIENCE))
        require(run.returncode == 128 + signal.SIGTERM, f"{run.returncode}: {said[-3000:]}")
        written(place, name + "-hurry", "")
        resume = dict(STARLING_RESUME="1", CHECKPOINT=checkpoint)
        for other in others:
            code, said = ended(script, *more, **variables(place, name, **resume, **other))
            require(code == 2 and "this worker computes other bits than the checkpoint of step" in said and ": other data" in said, f"{other}: {code}: {said[-3000:]}")
        found = result(script, *more, **variables(place, name, WORKERS="1", **resume))
        require(found == digest, f"{name}: {found}, undisturbed {digest}")
        require(events(out, "start")[0]["from"] > 5 and set(seen(place, name)) == set(wanted()), f"{name}: other micro-batches")


def a_joiner_with_other_data_is_refused(place):
    script, out = written(place, "stream.py", SCRIPT.replace(f"steps={STEPS}", "steps=2000")), place.path("joined")
    run = started(script, **variables(place, "joined", PACE="0.02"))
    wait_until(lambda: events(out, "step"), "the first step")
    start = events(out, "start")[0]
    join = [STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none", "--script", script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING_PYTHON": sys.executable,
                   "PYTHONDONTWRITEBYTECODE": "1", **variables(place, "joined")}
    for other in ({"IDENTITY": "others"}, {"SHARDS": "8"}):
        refused = subprocess.run(join, env={**environment, **other}, capture_output=True, text=True, timeout=PATIENCE)
        require(refused.returncode == 2 and ": other data" in refused.stderr, f"{other}: {refused.stderr}")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE)


def a_loop_and_a_data_loader_take_streams_too(place):
    """With the digest of train()."""
    digest = undisturbed(place)[0]
    script = written(place, "loop.py", STREAM + f"""
job = starling.Job(net, data=lambda: DataLoader(Said(), {SIZE}), shards=len(SIZES), steps={STEPS}, micro_batches={LANES},
                   workers=2, out=os.environ["OUT"], seed=5, lease_ms=10000)
for step in job:
    for mb in step.mine:
        assert mb.samples == tuple(range(step.number * {SIZE}, (step.number + 1) * {SIZE})), mb.samples
        mb.done(noting(job.net, mb.batch()))
print("RESULT", job.trained.digest)
""")
    require(result(script, **variables(place, "loop")) == digest, "another digest")


def held_out_data_beside_a_stream_change_no_bit(place):
    script = written(place, "held-out.py", STREAM + f"""
train(noting, net, data=Numbers, shards=len(SIZES), steps={STEPS}, workers=2, validation=build()[1], evaluate_every=10,
      evaluate=loss)
""")
    found = result(script, **variables(place, "held-out"))
    require(found == undisturbed(place)[0] and len(events(place.path("held-out"), "evaluation")) == 3, found)


def what_no_job_can_have_is_refused_in_one_line(place):
    script = written(place, "refused.py", STREAM + "train(noting, net, **eval(os.environ['MORE']))\n")
    same = "type('Same', (Numbers,), {'__iter__': lambda self: iter(range(9))})"
    for more, line in (("dict(data=Numbers)", "Numbers is an IterableDataset, whose samples have no numbers"),
                       ("dict(data=build()[1], shards=4)", "shards=4 is said of a TensorDataset"),
                       ("dict(data=Numbers, shards=3)", "shards=3 and micro_batches=4"),
                       ("dict(data=Numbers, shards=4, num_workers=1)", "num_workers=1 with shards="),
                       ("dict(data=Numbers, shards=4, on_epoch=print)", "on_epoch= with shards=")):
        code, said = ended(script, **variables(place, "refused", MORE=more))
        require(code == 2 and line in said and said.strip().count("\n") == 0, f"{more}: {code}: {said}")
    for more, line in ((f"dict(data={same}, shards=4)", "the first 4 shards of Same all begin with the same sample"),
                       ("dict(data=type('Few', (Numbers,), {'shard_sizes': (9, 9, 9, 9)}), shards=4)",
                        "shard 0 of Few has 5 samples in pass 0, and shard_sizes says 9")):
        code, said = ended(script, **variables(place, "refused", MORE=more))
        require(code == 2 and line in said, f"{more}: {code}: {said}")


main(each_sample_of_a_pass_is_taken_once, any_number_of_workers_and_processes_has_the_same_bits, kills_change_no_bit,
     a_checkpoint_goes_on_at_its_place, a_joiner_with_other_data_is_refused,
     a_loop_and_a_data_loader_take_streams_too, held_out_data_beside_a_stream_change_no_bit,
     what_no_job_can_have_is_refused_in_one_line)
