"""Signals: what a run keeps when it is told to end, how it goes on, and what nohup means."""
import glob
import json
import os
import shlex
import signal
import subprocess
import time

from harness import PATIENCE, STARLING, Run, main, processes_naming, require, wait_until

SECTION = """
[checkpoint]
dir = "{dir}"
every = 1000000
"""


def with_checkpoints(place, **changes):
    """A job with checkpoints that come only when they are asked for, and their folder."""
    job = place.job(**changes)
    folder = place.path(f"checkpoints-{place.count}")
    with open(job, "a") as file:
        file.write(SECTION.format(dir=folder))
    return job, folder


def complete(folder):
    return sorted(int(os.path.basename(os.path.dirname(path))[5:])
                  for path in glob.glob(os.path.join(folder, "step-*", "manifest.json")))


def line_after(text, what):
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if what in line)
    return lines[at + 1].strip()


def a_signal_writes_a_last_checkpoint_and_says_how_to_go_on(place):
    quiet = place.quiet(place.job(steps=400))
    for number, code, coordinators in ((signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 3)):
        job, folder = with_checkpoints(place, steps=400)
        run = place.run(job, "--workers", 2, "--coordinators", coordinators)
        run.wait_for_step(60)
        run.process.send_signal(number)
        run.end(code)
        versions = complete(folder)
        require(len(versions) == 1 and versions[0] > 60, f"checkpoints {versions}:\n{run.text()}")
        what = f"goes on from the checkpoint of step {versions[0]}"
        require(what in run.text(), run.text())
        command = shlex.split(line_after(run.text(), what))
        require("--resume" in command and command[command.index("--out") + 1] == run.out, command)
        # An end in order is no loss, and who goes on takes no step back.
        ended = run.events("ended")
        require(len(ended) == 1 and ended[0]["signal"] == number and ended[0]["checkpoint"] == versions[0], f"{ended}")
        require(not run.events("restart") and not run.events("failed") and not run.workers("lost"), run.text())
        # It is an end also while nobody goes on, whether the file is said to be all there is of the run or not.
        for words in (), ("--together",):
            audit = subprocess.run([STARLING, "audit", run.out, *words], capture_output=True, text=True)
            require(audit.returncode == 0 and audit.stdout.count(" held ") == 3
                    and f"the run ended in order at version {run.steps()} before the job was done" in audit.stdout,
                    audit.stdout + audit.stderr)
        again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        require(again.returncode == 0 and f"digest {quiet.digest()}" in again.stdout, again.stdout + again.stderr)
        audit = subprocess.run([STARLING, "audit", os.path.join(run.out, "run-1"), run.out, "--together"],
                               capture_output=True, text=True)
        require(audit.returncode == 0 and "ended in order" in audit.stdout, audit.stdout + audit.stderr)
        require(not processes_naming(run.out), "processes are left")


def a_second_signal_ends_the_run_at_once(place):
    # A stopped worker writes no part; nobody leaves it out for as long as its lease lasts.
    job, folder = with_checkpoints(place, steps=1000000, lease_ms=50000)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(20)
    run.kill(run.workers()[0], signal.SIGSTOP)
    run.process.send_signal(signal.SIGINT)
    wait_until(lambda: "writing a last checkpoint" in run.text(), "it says what it does")
    time.sleep(1)  # longer than one signal that comes twice
    require(run.process.poll() is None, f"it does not wait for the checkpoint:\n{run.text()}")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130, seconds=20)
    require(complete(folder) == [], "there is a checkpoint that not all have written")
    require("ended before there was a checkpoint" in run.text(), run.text())


def without_checkpoints_a_signal_says_what_is_lost(place):
    run = place.run(place.job(steps=1000000), "--workers", 1)
    run.wait_for_step(5)
    run.process.send_signal(signal.SIGINT)
    run.end(code=130, seconds=20)
    require("nothing of it is kept, as the job file has no [checkpoint]" in run.text(), run.text())


def hangup_ends_a_run_unless_nohup_says_otherwise(place):
    run = place.run(place.job(steps=1000000), "--workers", 1)
    run.wait_for_step(5)
    run.process.send_signal(signal.SIGHUP)
    run.end(code=129, seconds=20)
    out = place.path("nohup")
    with open(out + ".log", "w") as log:
        kept = subprocess.Popen(["nohup", STARLING, "run", place.job(steps=1000000), "--out", out],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    steps = lambda: steps_in(out)
    wait_until(lambda: steps() > 5, "steps under nohup")
    kept.send_signal(signal.SIGHUP)
    now = steps()
    wait_until(lambda: steps() > now + 50, "it goes on after SIGHUP")
    require(kept.poll() is None, "SIGHUP has ended it")
    kept.send_signal(signal.SIGTERM)
    require(kept.wait(20) == 143, f"exit code {kept.returncode}")


def a_run_hears_how_its_workers_end_whoever_starts_it(place):
    """Who ignores SIGCHLD, or starts with it ignored, leaves that to what it starts."""
    def ignoring():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    run = Run(place.job(steps=1000000), place.path("ignoring"), ["--workers", 2, "--respawn", 1], before=ignoring)
    run.wait_for_step(5)
    run.kill(run.workers()[0])
    wait_until(lambda: len(run.workers()) == 3, "another worker")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def steps_in(out):
    try:
        with open(os.path.join(out, "events.jsonl")) as file:
            lines = file.read().split("\n")[:-1]
    except OSError:
        return 0
    return sum(json.loads(line)["ev"] == "step" for line in lines)


main(a_signal_writes_a_last_checkpoint_and_says_how_to_go_on, a_second_signal_ends_the_run_at_once,
     without_checkpoints_a_signal_says_what_is_lost, hangup_ends_a_run_unless_nohup_says_otherwise,
     a_run_hears_how_its_workers_end_whoever_starts_it)
