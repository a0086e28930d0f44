"""Workers are killed at random moments of a device transport's life, over a library that behaves as NCCL does: while the
transport is made, in its warm-up, in a round of transfers with half of the bytes sent, at any time, beside a join.
Each run has the bits of an undisturbed one over the hosts, ends, and leaves nothing behind.

    python3 tests/e2e/transport_kills_long.py build/release/starling --runs 100 --seed 1
"""
import argparse
import collections
import json
import os
import random
import sys
import tempfile
import time

from harness import (PATIENCE, STARLING, Failed, Place, environment, processes_naming, require, same, wait_until)

FAKE = os.path.join(os.path.dirname(STARLING), "tests", "nccl", "libfake_nccl.so")
STEPS = 600
KINDS = ("round", "warm-up", "init", "time", "join")
CYCLES, CYCLES_STEPS = 6, 6000  # kills and joins that one worker lives through
SHARED = "/dev/shm"


class Story:
    """Events of a run that goes on, each line read once."""

    def __init__(self, run):
        self.path, self.offset, self.all = os.path.join(run.out, "events.jsonl"), 0, []
        self.run = run

    def read(self, kind):
        if os.path.exists(self.path):
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                text = file.read()
            whole = text[:text.rfind(b"\n") + 1]
            self.offset += len(whole)
            self.all += map(json.loads, whole.splitlines())
        return [e for e in self.all if e["ev"] == kind]

    def there(self):
        """Workers that have joined and were not lost."""
        gone = {e["id"] for e in self.read("worker") if e["what"] != "joined"}
        return [e for e in self.all if e["ev"] == "worker" and e["what"] == "joined" and e["id"] not in gone]

    def wait(self, condition, what):
        def look():
            found = condition()
            require(found or self.run.process.poll() is None, f"ended before {what}:\n{self.run.text()[-2000:]}")
            return found
        return wait_until(look, what)

    def wait_for_epoch(self, after=0):
        self.wait(lambda: len(self.read("epoch")) > after, f"epoch {after + 1}")

    def wait_for_device_steps(self, world, epoch_after=0, count=3):
        """So many, in an epoch of so many workers that is not among the first ones told."""
        def there():
            new = {e["id"] for e in self.read("epoch")[epoch_after:] if len(e["members"]) == world}
            return sum(1 for e in self.all if e["ev"] == "step" and e.get("direct") and e["epoch"] in new) >= count
        self.wait(there, f"device steps by {world}")


def guard_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def kill_one(run, story, draw, spared=()):
    victim = draw.choice([w for w in story.there() if w["pid"] not in spared])
    guard = guard_of(victim["pid"])
    run.kill(victim)
    for joiner in [j for j in run.joiners if j.pid == guard]:
        require(joiner.wait(PATIENCE) != 0, "the guard of a killed worker ended well")
        run.joiners.remove(joiner)
    story.wait(lambda: victim["id"] in {e["id"] for e in story.read("worker") if e["what"] == "lost"}, "the loss")


def disturb(run, story, kind, draw, workers):
    """Kills of the harness; those of the library's orders come by themselves."""
    if kind == "init":
        story.wait_for_epoch()
        time.sleep(draw.uniform(0, 0.2))
        kill_one(run, story, draw)
        if workers > 3:
            story.wait_for_epoch(after=1)
            time.sleep(draw.uniform(0, 0.2))
            kill_one(run, story, draw)
    elif kind == "time":
        story.wait_for_epoch()
        time.sleep(draw.uniform(0, 1))
        kill_one(run, story, draw)
    elif kind == "join":
        story.wait_for_device_steps(workers)
        run.join()
        time.sleep(draw.uniform(0, 0.5))
        kill_one(run, story, draw)


def orders_of(kind, draw, workers):
    rank = draw.randrange(workers)
    if kind == "round":
        # The first group of transfers of a communicator is its warm-up.
        return f"die@{draw.randrange(2, 80)}/{rank}"
    if kind == "warm-up":
        return f"die@1/{rank}"
    return f"slow-init@*:{draw.randrange(250, 400)}" if kind == "init" and draw.random() < 0.5 else ""


def where_losses_fell(story, kind):
    """Of each loss: the part of a transport's life that it fell into, read off the events."""
    for loss in [e for e in story.read("worker") if e["what"] == "lost"]:
        before = story.all[:story.all.index(loss)]
        epoch = next((e["epoch"] for e in reversed(before) if e["ev"] == "step"), None)
        made = any(e["ev"] == "path" and e["epoch"] == epoch and e["direct"] for e in before)
        if kind in ("round", "warm-up"):
            yield kind  # the order itself says where
        elif not made:
            yield "init"
        else:
            yield "round" if loss.get("phase") in ("reduce", "gather") else "between rounds"


def nothing_left(run, temporary):
    wait_until(lambda: not processes_naming(run.out), f"the end of all processes of {run.out}")
    require(not os.listdir(temporary), f"temporary files left: {os.listdir(temporary)}")


def ours_in(folder):
    return {name for name in os.listdir(folder) if "starling" in name or "nccl" in name}


class Figures:
    def __init__(self):
        self.losses, self.steps, self.on_device = collections.Counter(), 0, 0

    def add(self, story, kind):
        self.losses.update(where_losses_fell(story, kind))
        steps = [e for e in story.read("step") if e["world"] > 1]
        self.steps += len(steps)
        self.on_device += sum(1 for e in steps if e.get("direct"))

    def text(self):
        fell = ", ".join(f"{self.losses[part]} in {part}" for part in ("round", "init", "warm-up"))
        return (f"{sum(self.losses.values())} kills: {fell}, {self.losses['between rounds']} between rounds; "
                f"{self.on_device} of {self.steps} steps of several workers over the device "
                f"({100 * self.on_device / max(1, self.steps):.1f} %)")


def one_run(place, quiet, kind, draw, figures, temporary):
    workers = draw.choice((3, 4))
    # Whoever takes a rank over takes its order over, so one may be left in the end, and has to hold everything.
    replicas = workers - 1 if kind in ("round", "warm-up") else 2
    orders = orders_of(kind, draw, workers)
    with environment(STARLING_NCCL=FAKE, FAKE_NCCL=orders):
        run = place.run(place.job(isa="emulated", steps=STEPS, replicas=replicas, lease_ms=10000),
                        "--workers", workers)
    story = Story(run)
    said = f"{kind}, {workers} workers {orders}"
    try:
        with environment(STARLING_NCCL=FAKE):
            disturb(run, story, kind, draw, workers)
        same(run, quiet)
        lost = [e for e in story.read("worker") if e["what"] == "lost"]
        require(lost, "nobody was killed")
        nothing_left(run, temporary)
    except Failed as error:
        raise Failed(f"{said}: {error}") from error
    figures.add(story, kind)
    return said + ", lost: " + ", ".join(where_losses_fell(story, kind))


def holdings_of(pid):
    """Threads and open files."""
    return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def least_holdings(pid):
    """Of some looks, since what an epoch had goes a little after the next one's first steps."""
    looks = []
    for _ in range(30):
        looks.append(holdings_of(pid))
        time.sleep(0.01)
    return tuple(map(min, zip(*looks)))


def one_worker_lives_through_many(place, draw, figures, temporary):
    quiet = place.quiet(place.job(steps=CYCLES_STEPS))
    with environment(STARLING_NCCL=FAKE):
        run = place.run(place.job(isa="emulated", steps=CYCLES_STEPS, lease_ms=10000), "--workers", 3)
        story = Story(run)
        story.wait_for_device_steps(3)
        survivor = story.there()[0]["pid"]
        held = [least_holdings(survivor)]
        for _ in range(CYCLES):
            kill_one(run, story, draw, spared=(survivor,))
            epochs = len(story.read("epoch"))
            run.join()
            story.wait_for_device_steps(3, epoch_after=epochs)
            held.append(least_holdings(survivor))
    same(run, quiet)
    # A transport that was given up before all came leaves the thread of its id, as NCCL does.
    made = {e["epoch"] for e in story.read("path") if e["direct"]}
    given_up = sum(1 for e in story.read("epoch") if len(e["members"]) > 1 and e["id"] not in made)
    figures.add(story, "time")
    words = ", ".join(f"{threads}/{files}" for threads, files in held)
    print(f"        a worker's threads/files after 0 to {CYCLES} kills and joins: {words}; "
          f"{given_up} of {len(story.read('epoch'))} epochs' transports given up", flush=True)
    for i, what in enumerate(("threads", "files")):
        require(held[-1][i] <= held[1][i] + given_up * (1 + i), f"{what} grow: {words}")
    nothing_left(run, temporary)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("starling")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    figures, passed, failed = Figures(), 0, 0
    shared = ours_in(SHARED)
    place = Place()
    quiet = place.quiet(place.job(steps=STEPS))

    def attempt(what, *given):
        nonlocal passed, failed
        begun = time.monotonic()
        temporary = tempfile.mkdtemp(dir=place.folder)
        try:
            with environment(TMPDIR=temporary):
                said = what(place, *given, temporary)
            passed += 1
            print(f"ok      {said or what.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Failed as error:
            failed += 1
            print(f"FAILED  {error}", flush=True)
            for pid in processes_naming(place.folder):
                os.kill(pid, 9)

    try:
        for number in range(options.runs):
            own = random.Random(f"{options.seed}/{number}")
            attempt(one_run, quiet, KINDS[number % len(KINDS)], own, figures)
        attempt(one_worker_lives_through_many, draw, figures)
        left = ours_in(SHARED) - shared
        require(not left, f"left in {SHARED}: {left}")
    finally:
        place.close()
    print(figures.text())
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
