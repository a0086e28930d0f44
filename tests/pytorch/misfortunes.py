#!/usr/bin/env python3
"""What a script can do wrong: each is told in one line, and the group goes on where it can.

  misfortunes.py STARLING [--only NAME,NAME]

Run it with an interpreter that has torch and the starling package. One line for each; exit code 1 if one was not
told as it should be, or a process is left."""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import same_bits

STEPS = 40
# Before anything is started, by the process that the user has started.
REFUSED = {
    "batchnorm": 'module "norm" is a BatchNorm1d with momentum=None, whose running statistics are means over all passes of'
                 " one process; give it a momentum, as torch's default 0.1",
    "iterable": "Endless is an IterableDataset, whose samples have no numbers; give a map-style Dataset",
    "double": "parameter layers.0.weight is torch.float64; expected torch.float32 (net.float()) or torch.bfloat16",
}
# By the first pass of every process: the job cannot begin, or every worker ends in turn.
RAISED = {
    "buffer": "the loss has changed buffer inner.seen of module \"inner\", which would differ from worker to worker",
    "raise": "ValueError: no such colour; ",
    "shape": "RuntimeError: ",
    "parameter": "the loss has changed parameter layers.0.weight; only the job's optimizer may",
    "data": "the loss has changed parameter layers.0.weight through .data; only the job's optimizer may",
    "optimizer": "torch.optim.SGD wants to make a step, but the optimizer is the job's",
    "no-gradient": "the loss has no gradient",
    "many": "the loss must be one floating-point number with a gradient, is a tensor (3,) of torch.float32",
    "three": "the loss must be one floating-point number with a gradient, is a tuple of 3",
}
# Of one process: another takes its place, and the digest is that of an undisturbed run.
LOST = {
    "exit": "the script's process ended with status 7; another one takes its place",
    "hang": "the script's process did not answer in time; another one takes its place",
    "memory": "the script's process ran out of memory; another one takes its place",
    "fork": None,
    "fork-returns": None,
}
TOLD_WITHIN = 2.0  # seconds, from the misfortune to its line, on a machine that does nothing else


def line_with(text, log):
    return next((line for line in log.splitlines() if text in line), None)


def refused(name, text):
    run = same_bits.Run("mlp", 2, STEPS, WRONG=name)
    begun = time.monotonic()
    code = run.wait()
    took = time.monotonic() - begun
    line = line_with(text, run.text())
    nothing = not os.path.exists(run.out)
    lines = [line for line in run.text().splitlines() if line.strip()]
    run.close()
    return code == 2 and line is not None and nothing and len(lines) == 1, f"exit code {code}, {took:.1f} s: {line or lines}"


def raised(name, text):
    run = same_bits.Run("mlp", 2, STEPS, WRONG=name)
    code = run.wait()
    line = line_with(text, run.text())
    told = [e for e in run.events if e["ev"] == "worker" and text in (e.get("reason") or "")]
    run.close()
    # All but "buffer" come after the job has begun: then the events say it, for every worker that ended so.
    begun = name == "buffer" or told
    return code == 2 and line is not None and bool(begun), f"exit code {code}, in {len(told)} events: {line}"


def raised_once():
    """A worker whose script raises ends; the others go on to the same end."""
    with tempfile.TemporaryDirectory() as folder:
        run = same_bits.Run("mlp", 3, STEPS, WRONG="raise-once", ONCE=os.path.join(folder, "once"), PACE="0.02")
        code = run.wait()
    told = [e for e in run.events if e["ev"] == "worker" and "no such colour" in (e.get("reason") or "")]
    digest = same_bits.digest_of(run)
    run.close()
    same = digest == undisturbed()
    return code in (0, 2) and len(told) == 1 and same, \
        f"exit code {code}, digest {'the same' if same else digest}, told: {told[0]['reason'] if told else 'nothing'}"


def lost(name, text):
    with tempfile.TemporaryDirectory() as folder:
        once = os.path.join(folder, "once")
        # A pass may take twenty times as long as those before it: a slow one has time for its last words.
        run = same_bits.Run("mlp", 2, STEPS, WRONG=name, ONCE=once, PACE="0.2" if name == "memory" else "0.02")
        told_at = None
        while run.process.poll() is None:
            if told_at is None and text and line_with(text, run.text()):
                told_at = time.time()
            time.sleep(0.02)
        happened = os.path.getmtime(once) if os.path.exists(once) else None
        code = run.wait()
    line = line_with(text, run.text()) if text else "nothing to tell"
    same = same_bits.digest_of(run) == undisturbed()
    after = told_at - happened if told_at and happened else None
    run.close()
    told = "" if after is None else f", told after {after:.1f} s"
    return code == 0 and line is not None and same, f"exit code {code}, digest {'the same' if same else 'DIFFERS'}{told}: {line}"


def undisturbed():
    if undisturbed.digest is None:
        run = same_bits.Run("mlp", 2, STEPS)
        run.wait()
        undisturbed.digest = same_bits.digest_of(run)
        run.close()
    return undisturbed.digest


undisturbed.digest = None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.environ["STARLING"] = os.path.abspath(options.starling)
    cases = [(name, lambda n=name, t=text: refused(n, t)) for name, text in REFUSED.items()]
    cases += [(name, lambda n=name, t=text: raised(n, t)) for name, text in RAISED.items()]
    cases += [("raise-once", raised_once)]
    cases += [(name, lambda n=name, t=text: lost(n, t)) for name, text in LOST.items()]
    wanted = [n for n in options.only.split(",") if n]
    failed = count = 0
    for name, case in cases:
        if wanted and name not in wanted:
            continue
        held, text = case()
        left = same_bits.left_behind()
        held &= not left
        count += 1
        failed += not held
        print(f"{'ok    ' if held else 'FAILED'} {name}: {text}" + (f"; processes are left: {left}" if left else ""), flush=True)
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
