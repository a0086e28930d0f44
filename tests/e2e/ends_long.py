"""A signal to every process of a run, again and again: a last checkpoint each time, and the line that is printed goes
on to the bits of an undisturbed run.

    python3 tests/e2e/ends_long.py build/release/starling --runs 50 --seed 1

Coordinators (1 or 3), workers (1 to 7), the signal and the step at which it comes are drawn from the seed.
"""
import argparse
import contextlib
import glob
import json
import os
import shlex
import signal
import subprocess
import sys

arguments = argparse.ArgumentParser()
arguments.add_argument("starling")
arguments.add_argument("--runs", type=int, default=50)
arguments.add_argument("--seed", type=int, default=1)
OPTIONS = arguments.parse_args()
sys.argv[1:] = [OPTIONS.starling]

from harness import PATIENCE, Place, drawn_runs, processes_naming, require, with_checkpoints  # noqa: E402

MORE = 10  # steps after the last checkpoint
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
ENDLESS = 1000000  # steps


def job_of(place, steps):
    """With digests of every version, so that a run that goes on to any of them can be compared."""
    job = place.job(steps=steps, schedule_steps=400)
    with open(job, "a") as file:  # its last section is [elastic]
        file.write("digest_every = 1\n")
    return job


def tree(pid):
    """That process and all that it has started, as they are now."""
    found = [pid]
    for task in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(task) as file:
            for child in file.read().split():
                found += tree(int(child))
    return found


class Undisturbed:
    """One worker that trains as far as is asked for."""

    def __init__(self, place):
        self.place, self.digests = place, {}

    def digest(self, version):
        if version not in self.digests:
            steps = max(2 * version, 400)
            run = self.place.run(job_of(self.place, steps), "--workers", 1).end()
            self.digests = {e["version"]: e["digest"] for e in run.events("step")}
        return self.digests[version]


def last_words(text):
    """Of the run: the checkpoint's step, and the command that goes on from it."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if "goes on from the checkpoint of step" in line), None)
    require(at is not None, f"no command that goes on:\n{text[-2000:]}")
    return int(lines[at].rsplit(" ", 1)[1].rstrip(":")), shlex.split(lines[at + 1])


def one(place, undisturbed, dice):
    coordinators, workers = dice.choice((1, 3)), dice.randint(1, 7)
    number, step = dice.choice(SIGNALS), dice.randint(1, 120)
    what = f"{coordinators} coordinators, {workers} workers, {number.name} at step {step}"
    folder = place.path(f"checkpoints-{place.count}")
    job = with_checkpoints(job_of(place, ENDLESS), folder, every=ENDLESS)
    run = place.run(job, "--workers", workers, "--coordinators", coordinators)
    run.wait_for_step(step)
    for pid in tree(run.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    run.end(128 + number)
    require(not processes_naming(run.out), f"{what}: processes are left")
    version, command = last_words(run.text())
    require(version >= step, f"{what}: the checkpoint is of step {version}")
    left = [os.path.dirname(name) for name in glob.glob(os.path.join(folder, "step-*", "*"))]
    complete = [os.path.dirname(name) for name in glob.glob(os.path.join(folder, "step-*", "manifest.json"))]
    require(sorted(set(left)) == sorted(complete), f"{what}: {left} are left, of which {complete} are complete")
    ended = run.events("ended")
    require(len(ended) == 1 and ended[0]["checkpoint"] == version and ended[0]["signal"] == number,
            f"{what}: {ended}")
    require(not run.events("restart") and not run.events("failed"), f"{what}: it has lost its state")
    out = run.out  # where the parts lie together
    again = subprocess.run([*command, "--steps", str(version + MORE)],
                           capture_output=True, text=True, timeout=PATIENCE)
    require(again.returncode == 0, f"{what}: going on: {again.returncode} {again.stdout[-2000:]}{again.stderr}")
    with open(os.path.join(out, "events.jsonl")) as file:
        done = [json.loads(line) for line in file if '"ev":"done"' in line]
    expected = undisturbed.digest(version + MORE)
    require(done and done[0]["digest"] == expected, f"{what}: {done}, undisturbed {expected}")
    audit = subprocess.run([OPTIONS.starling, "audit", os.path.join(out, "run-1"), out, "--together"], capture_output=True, text=True)
    return f"{what}, checkpoint {version}; audit {audit.returncode}"


def main():
    place = Place()
    undisturbed = Undisturbed(place)
    drawn_runs(place, OPTIONS.runs, OPTIONS.seed, lambda _, dice: one(place, undisturbed, dice))


main()
