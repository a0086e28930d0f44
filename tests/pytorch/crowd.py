#!/usr/bin/env python3
"""A crowd on a machine that has no time: many joiners import torch at once beside busy processes, and the leader of
three coordinators is killed. No more elections than faults, every joiner is let in, no worker is lost, the losses are
those of one undisturbed worker.

  crowd.py STARLING [--joiners 20] [--load 40]

Run it with an interpreter that has torch and the starling package (tools/test.sh --pytorch makes one)."""

import argparse
import contextlib
import os
import signal
import sys
import time

import same_bits
from cases import busy

STEPS = 100000  # the run is ended long before
AFTER = 5  # steps with everybody in


def wait_until(run, condition, what):
    begun = time.monotonic()
    while not condition(run.look()):
        if run.process.poll() is not None:
            raise SystemExit(f"{what}: the run ended with {run.process.returncode}\n{run.text()[-3000:]}")
        if ended := [worker.returncode for worker in run.extra if worker.poll() is not None]:
            raise SystemExit(f"{what}: joiners ended with {ended}\n{run.text()[-3000:]}")
        if time.monotonic() - begun > same_bits.PATIENCE:
            raise SystemExit(f"{what}: not within {same_bits.PATIENCE} s\n{run.text()[-3000:]}")
        time.sleep(0.05)


def leaders(events):
    return [e for e in events if e["ev"] == "leader"]


def losses(events):
    return {e["version"]: e["loss"] for e in events if e["ev"] == "step"}


def check(options):
    run = same_bits.Run("mlp", 2, STEPS, arguments=["--coordinators", "3"])
    beside = contextlib.ExitStack()
    try:
        wait_until(run, lambda _: run.step() >= 2, "the first steps")
        beside.enter_context(busy(options.load))
        before = len(run.workers())
        for _ in range(options.joiners):
            run.join()
        wait_until(run, lambda _: len(run.workers()) >= before + options.joiners // 2, "half of the joiners")
        quiet_elections = len(leaders(run.look()))
        os.kill(leaders(run.events)[-1]["pid"], signal.SIGKILL)
        wait_until(run, lambda _: len(run.workers()) >= before + options.joiners, "all joiners")
        wait_until(run, lambda _: run.world() >= before + options.joiners, "an epoch of everybody")
        last = run.step() + AFTER
        wait_until(run, lambda _: run.step() >= last, "steps of everybody")
        load = os.getloadavg()[0]
        lost = [e for e in run.events if e["ev"] == "worker" and e["what"] in ("lost", "fenced")]
        elections = len(leaders(run.events))
        run.process.send_signal(signal.SIGINT)
        run.wait()
        got = losses(run.look())
    finally:
        beside.close()
        run.close()
    quiet = same_bits.Run("mlp", 1, STEPS)
    try:
        wait_until(quiet, lambda _: quiet.step() >= max(got), "the same steps of one worker")
        quiet.process.send_signal(signal.SIGINT)
        quiet.wait()
        expected = {version: loss for version, loss in losses(quiet.look()).items() if version in got}
    finally:
        quiet.close()
    results = [
        (quiet_elections == 1, f"{quiet_elections - 1} elections before a fault"),
        (elections <= 2, f"{elections - 1} elections after one fault"),
        (not lost, f"{len(lost)} workers lost: {lost[:3]}"),
        (got == expected and len(got) > last > 0, f"{len(got)} steps, losses "
         + ("those of one undisturbed worker" if got == expected else "DIFFER from those of one undisturbed worker"))]
    print(f"load {load:.0f}, {options.joiners} joiners")
    for held, text in results:
        print(("ok      " if held else "FAILED  ") + text)
    failed = sum(not held for held, _ in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--joiners", type=int, default=20)
    parser.add_argument("--load", type=int, default=40)
    options = parser.parse_args()
    os.environ["STARLING"] = os.path.abspath(options.starling)
    return check(options)


if __name__ == "__main__":
    sys.exit(main())
