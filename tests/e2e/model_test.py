"""The trained model: what is saved has the bits of the run's last version, or nothing is saved.

STARLING_LEAVES says how many runs are given a leave at random in their last steps (10), and
STARLING_LEAVES_SEED from which seed on.
"""
import json
import os
import random
import re
import signal
import subprocess

from harness import NOT_HERE, STARLING, children_of, main, require, wait_until
from ports import free_port

LEAVES = int(os.environ.get("STARLING_LEAVES", "10"))
SEED = int(os.environ.get("STARLING_LEAVES_SEED", "1"))
STEPS = 300
PATIENCE = 300.0  # seconds: runs are many, and the machine may have others to run


def model(folder):
    path = os.path.join(folder, "model.safetensors")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def a_leave_near_the_end_saves_the_trained_model_or_none(place):
    steps = 80
    job = place.waiting_job(steps=steps)
    quiet = place.quiet(job)
    expected, digest = model(quiet.out), quiet.digest()
    require(expected, "an undisturbed run saves no model")
    left = saved = 0
    for seed in range(SEED, SEED + LEAVES):
        chance = random.Random(seed)
        at = steps - chance.randrange(1, 25)
        run = place.run(job, "--workers", 3)
        wait_until(lambda: run.steps() >= at or run.process.poll() is not None, f"step {at}", PATIENCE)
        leaver = chance.choice(run.workers())
        try:
            run.kill(leaver, signal.SIGTERM)
        except ProcessLookupError:
            pass  # the run was over first
        code = run.process.wait(PATIENCE)
        found = model(run.out)
        require(code in (0, NOT_HERE), f"seed {seed}: exit code {code}:\n{run.text()}")
        require((code == 0) == (found is not None), f"seed {seed}: exit code {code}, model {found is not None}")
        require(found in (None, expected), f"seed {seed}: the model is not that of the run's end")
        require(f"digest {digest}" in run.text(), f"seed {seed}: {run.text()}")
        left += len(run.workers("left"))
        saved += found is not None
    print(f"        {LEAVES} runs, {saved} models saved, {left} workers had left before the end")


def who_was_left_out_and_wakes_up_after_the_end_saves_nothing(place):
    run = place.run(place.job(steps=600), "--workers", 2, "--start", 1)
    wait_until(lambda: run.events("start"), "the run's address")
    folder = place.path("frozen")
    os.mkdir(folder)
    joiner = run.join("--save", os.path.join(folder, "model.safetensors"))
    run.wait_for_step(50)
    frozen = next(w for w in run.workers() if w["pid"] in children_of(joiner.pid))
    run.kill(frozen, signal.SIGSTOP)
    try:
        wait_until(lambda: run.workers("fenced"), "it is left out")
        wait_until(lambda: run.events("done"), "the end without it")
    finally:
        run.kill(frozen, signal.SIGCONT)
    require(joiner.wait(300) in (NOT_HERE, 3), f"exit code {joiner.returncode}:\n{run.text()}")
    if joiner.returncode == NOT_HERE:  # 3: the run's coordinator was gone before it was awake
        require("the model is not here" in run.text(), run.text())
    run.end()
    require(not os.listdir(folder), f"it saved {os.listdir(folder)}")
    require(model(run.out), "who was there saved no model")


class Cluster:
    """One coordinator and workers, started by hand."""

    def __init__(self, place, job):
        self.place, self.job = place, job
        self.folder = place.path("cluster")
        os.mkdir(self.folder)
        self.keys = os.path.join(self.folder, "keys")
        self.at = "127.0.0.1:" + str(free_port())
        subprocess.run([STARLING, "keys", "--out", self.keys], check=True, capture_output=True)

    def coordinator(self):
        state = os.path.join(self.folder, "state")
        first = [] if os.path.exists(state) else ["--new"]
        return subprocess.Popen([STARLING, "coordinator", "--job", self.job, "--keys", self.keys,
                                 "--listen", self.at, "--state", state, "--workers", "1", *first], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def worker(self, save):
        return subprocess.Popen([STARLING, "worker", "--join", self.at, "--keys", self.keys, "--job",
                                 self.job, "--save", save],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def who_comes_after_the_end_saves_nothing(place):
    cluster = Cluster(place, place.job(steps=20))
    coordinator = cluster.coordinator()
    saved = os.path.join(cluster.folder, "model.safetensors")
    said, _ = cluster.worker(saved).communicate(timeout=300)
    require(os.path.exists(saved), said)
    require(coordinator.wait(300) == 0, "the coordinator failed")
    late = cluster.worker(os.path.join(cluster.folder, "late.safetensors"))
    coordinator = cluster.coordinator()  # of the job that is over
    said, _ = late.communicate(timeout=300)
    require(late.returncode == NOT_HERE and "the model is not here: this worker has computed none" in said,
            f"exit code {late.returncode}: {said}")
    require(coordinator.wait(300) == 0, "the coordinator failed")
    require(not os.path.exists(os.path.join(cluster.folder, "late.safetensors")), "a late worker saved a model")
    # It leaves the job's model alone, as a worker does that was killed shortly before the end and comes back.
    with open(saved, "rb") as file:
        trained = file.read()
    late = cluster.worker(saved)
    coordinator = cluster.coordinator()
    said, _ = late.communicate(timeout=300)
    require(late.returncode == 0 and "came after the end" in said, f"exit code {late.returncode}: {said}")
    require(coordinator.wait(300) == 0, "the coordinator failed")
    with open(saved, "rb") as file:
        require(file.read() == trained and not os.path.exists(saved + ".old"), os.listdir(cluster.folder))


def a_model_of_another_run_is_never_taken_for_this_ones(place):
    quiet = place.quiet(place.job(steps=20))
    cluster = Cluster(place, place.job(steps=21))
    saved = os.path.join(cluster.folder, "model.safetensors")
    with open(saved, "wb") as file:
        file.write(model(quiet.out))
    coordinator = cluster.coordinator()
    said, _ = cluster.worker(saved).communicate(timeout=300)
    require(coordinator.wait(300) == 0, "the coordinator failed")
    require("was another model" in said, said)
    with open(saved + ".old", "rb") as old:
        require(old.read() == model(quiet.out), "the other model is lost")
    require(model(cluster.folder) != model(quiet.out), "the other model is still there")
    # A folder of `run` is to be new.
    os.mkdir(place.path("used"))
    with open(place.path("used/model.safetensors"), "wb") as file:
        file.write(b"x")
    refused = subprocess.run([STARLING, "run", place.job(steps=20), "--out", place.path("used")],
                             capture_output=True, text=True)
    require(refused.returncode == 2 and "already has a model" in refused.stderr, refused.stderr)


def with_layers(path, layers):
    """A copy of a model file whose metadata have other layers, or none."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header, values = json.loads(file.read(size)), file.read()
    header["__metadata__"].pop("starling_layers")
    if layers is not None:
        header["__metadata__"]["starling_layers"] = layers
    text = json.dumps(header).encode()
    with open(path + ".other", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + values)
    return path + ".other"


def turned(data):
    """A model file in which the sizes of a matrix are swapped."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    matrix = next(t for n, t in header.items() if n != "__metadata__" and len(set(t["shape"])) == 2)
    matrix["shape"].reverse()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data[8 + size:])


def what_is_saved_is_whole_and_a_flipped_bit_is_found(place):
    def checked(path):
        done = subprocess.run([STARLING, "check", path], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    for width in (32, 128):  # of several segments each
        run = place.quiet(place.job(steps=20, width=width))
        path = os.path.join(run.out, "model.safetensors")
        code, said = checked(path)
        require(code == 0 and "a trained model" in said, f"{code} {said}")
        # Two digests, and each says of what it is: that of the job is the one that its run has told.
        own, job = (re.search(words + " ([0-9a-f]{32})", said) for words in
                    ("; digest of these tensors", "of its job's state with digest"))
        require(own and job and own[1] != run.digest() and job[1] == run.digest(), f"{run.digest()}: {said}")
        require(checked(run.out) == (code, said), "the folder of the run is not checked as its model")
        with open(path, "rb") as file:
            data = bytearray(file.read())
        data[-5] ^= 1
        with open(path + ".flipped", "wb") as file:
            file.write(data)
        code, said = checked(path + ".flipped")
        require(code == 1 and "are not those that were saved" in said, f"{code} {said}")
    with open(path + ".turned", "wb") as file:  # the values are there, in another shape
        file.write(turned(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]))
    code, said = checked(path + ".turned")
    require(code == 1 and "has the shape" in said, f"{code} {said}")
    # Metadata are anybody's.
    tensors = len(json.loads(data[8:8 + int.from_bytes(data[:8], "little")])) - 1
    for layers, word in ((None, "cannot be told"), ("0", "1 layers of"), (",".join(["x"] * tensors), '"x"'),
                         (",".join(["1"] + ["0"] * (tensors - 1)), "must rise"),
                         (",".join(["0r"] * tensors), "several tensors"),
                         (",".join(str(i) + "r" for i in range(tensors)), "no matrix")):
        code, said = checked(with_layers(path, layers))
        require(code == 2 and word in said, f"{layers}: {code} {said}")


main(who_comes_after_the_end_saves_nothing, a_model_of_another_run_is_never_taken_for_this_ones,
     a_leave_near_the_end_saves_the_trained_model_or_none, what_is_saved_is_whole_and_a_flipped_bit_is_found,
     long=(who_was_left_out_and_wakes_up_after_the_end_saves_nothing,))
