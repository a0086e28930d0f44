#!/usr/bin/env python3
"""stop= and best= of a real run: the same last step and digest, and the same best model, for every number of workers,
while workers are killed, and told once each in the process that was started.

  stop.py STARLING [--workers 1,3,5] [--steps 120] [--kills 2]

Run it with an interpreter that has torch and the starling package. One line for each number of workers; exit code 1 if
one differs, or a process is left."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from logs import left_behind

SCRIPT = """
import hashlib, os, time
import torch, starling

def build():
    torch.manual_seed(3)
    x = torch.randn(512, 16)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(32, 1)), \\
        torch.utils.data.TensorDataset(x, x[:, :4].sum(1, keepdim=True))

def loss(net, batch):
    time.sleep(float(os.environ["PACE"]))
    wrong = net(batch[0]) - batch[1]
    return (wrong * wrong).mean()

best, since = float("inf"), 0
def stop(record):  # no better loss in 12 steps: a function of the records in their order
    global best, since
    best, since = (record.loss, 0) if record.loss < best else (best, since + 1)
    return since >= 12

if __name__ == "__main__":
    told = open(os.environ["TOLD"], "a", buffering=1)
    trained = starling.train(build, loss, steps=int(os.environ["STEPS"]), micro_batches=8, batch_size=8, seed=4,
                             optimizer=starling.AdamW(1e-2, warmup=5), workers=int(os.environ["WORKERS"]), out=os.environ["OUT"],
                             lease_ms=10000, checkpoint=os.environ["OUT"] + "-ck", checkpoint_every=5, stop=stop,
                             validation=lambda: build()[1], evaluate=lambda net, batch: abs(loss(net, batch) - 0.1), evaluate_every=5,
                             best=lambda e: e.loss, on_step=lambda s: print(s.step, file=told))
    weights = starling.load(trained.best.out)["0.weight"].numpy().tobytes()
    print("RESULT", trained.steps, trained.digest, trained.best.step, hashlib.blake2b(weights, digest_size=8).hexdigest())
"""


def events_of(out):
    try:
        with open(os.path.join(out, "events.jsonl")) as file:
            return [json.loads(line) for line in file.read().split("\n")[:-1]]
    except OSError:
        return []


def run(folder, workers, steps, kills, draw):
    """The last step and digest, how many were killed, and the steps that were told."""
    out, told = os.path.join(folder, f"out-{workers}"), os.path.join(folder, f"told-{workers}")
    process = subprocess.Popen([sys.executable, os.path.join(folder, "train.py")], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               env={**os.environ, "OUT": out, "TOLD": told, "STEPS": str(steps), "WORKERS": str(workers),
                                    "PACE": "0.02" if kills else "0"})
    done = after = 0
    while process.poll() is None:
        events = events_of(out)
        last = max((e["version"] for e in events if e["ev"] == "step"), default=-1)
        world = max((e["world"] for e in events[-20:] if e["ev"] == "step"), default=0)
        if done < kills and last >= after and world == workers:
            pids = {e["id"]: e["pid"] for e in events if e["ev"] == "worker" and e["what"] == "joined"}
            gone = {e["id"] for e in events if e["ev"] == "worker" and e["what"] != "joined"}
            living = [pid for identity, pid in pids.items() if identity not in gone]
            if living:
                os.kill(draw.choice(living), signal.SIGKILL)
                done, after = done + 1, last + 4
        time.sleep(0.02)
    said = process.stdout.read()
    lines = [line.split()[1:] for line in said.splitlines() if line.startswith("RESULT ")]
    if process.returncode != 0 or not lines:
        return (f"exit code {process.returncode}\n{said}", ""), done, []
    with open(told) as file:
        return tuple(lines[0]), done, [int(line) for line in file]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--workers", default="1,3,5", type=lambda text: [int(w) for w in text.split(",")])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--kills", type=int, default=2)
    options = parser.parse_args()
    os.environ["STARLING"] = os.path.abspath(options.starling)
    folder = tempfile.mkdtemp(prefix="starling-stop-")
    with open(os.path.join(folder, "train.py"), "w") as file:
        file.write(SCRIPT)
    failed, reference, draw = 0, None, random.Random(1)
    for workers in options.workers:
        found, killed, told = run(folder, workers, options.steps, options.kills if workers > 1 else 0, draw)
        reference = reference or found
        held = found == reference and found[1] and told == list(range(1, int(found[0]) + 1)) and int(found[0]) < options.steps
        left = left_behind(folder)
        failed += not held or bool(left)
        print(f"{'ok    ' if held and not left else 'FAILED'} {workers} workers, {killed} killed: ends with step {found[0]},"
              f" digest {found[1]}, best {' '.join(found[2:])}, {len(told)} steps told" + (f"; processes are left: {left}" if left else ""), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(options.workers) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
