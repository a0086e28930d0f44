#!/usr/bin/env python3
"""log= of a real run whose starting process is killed and which goes on: the readers of TensorBoard and of W&B's offline
files see every scalar of every step once, with the value that the events have, and the table has each step once. And the
same of a job file with --tensorboard.

  logs.py STARLING [--steps 60] [--only tensorboard,wandb,csv,job]

Run it with an interpreter that has torch and the starling package; what of tensorboard and wandb is not installed is
said, and not tested. One line for each; exit code 1 if one does not hold, or a process is left."""

import argparse
import csv
import glob
import importlib.util
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SCRIPT = """
import os, time
import torch, starling

def build():
    torch.manual_seed(3)
    x = torch.randn(512, 16)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)), \\
        torch.utils.data.TensorDataset(x, x[:, :4].sum(1, keepdim=True))

def loss(net, batch):
    time.sleep(float(os.environ.get("PACE", 0)))
    wrong = net(batch[0]) - batch[1]
    return (wrong * wrong).mean(), {"worst": wrong.detach().abs().max()}

if __name__ == "__main__":
    trained = starling.train(build, loss, steps=int(os.environ["STEPS"]), micro_batches=4, batch_size=8, metrics=["worst"],
                             optimizer=starling.AdamW(1e-2, warmup=5), workers=2, lease_ms=10000, out=os.environ["OUT"],
                             checkpoint=os.environ["OUT"] + "-ck", checkpoint_every=20, log=os.environ["LOG"].split(","))
    print("DIGEST", trained.digest)
"""


def tensorboard_of(out, below="tensorboard"):
    """{name: [(step, value)]}, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(os.path.join(out, below), size_guidance={"scalars": 0})
    reader.Reload()
    return {name: [(e.step, e.value) for e in reader.Scalars(name)] for name in reader.Tags()["scalars"]}


def records_of(path):
    """The records of one of W&B's files: 7 bytes, then blocks as LevelDB's logs have them; what a kill has cut is left."""
    block = 32768
    with open(path, "rb") as file:
        data = file.read()
    at, parts = 7, []
    while at + 7 <= len(data):
        if block - at % block < 7:  # no room for another head in this block
            at += block - at % block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if kind not in (1, 2, 3, 4) or at + 7 + size > len(data):
            return
        parts.append(data[at + 7:at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield b"".join(parts)
            parts = []


def wandb_of(out):
    """The same, of all files of one run, by W&B's own messages."""
    from wandb.proto import wandb_internal_pb2

    found, runs = {}, set()
    for path in sorted(glob.glob(os.path.join(out, "wandb", "offline-run-*", "*.wandb"))):
        for data in records_of(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                runs.add(record.run.run_id)
            if record.WhichOneof("record_type") == "history":
                for item in record.history.item:
                    name = item.key or ".".join(item.nested_key)
                    if not name.startswith("_"):
                        found.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
    if len(runs) != 1:
        found["runs"] = [(0, name) for name in sorted(runs)]
    return found


def csv_of(out):
    with open(os.path.join(out, "steps.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [(int(row["step"]), float(row[name])) for row in rows] for name in rows[0] if name != "step"}


READERS = {"tensorboard": tensorboard_of, "wandb": wandb_of, "csv": csv_of}


def start(script, out, log, **variables):
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "OUT": out, "LOG": log, "WANDB_MODE": "offline", "WANDB_SILENT": "true",
                                 **variables})


def left_behind(folder):
    """Processes that name it: the workers' and those that compute for them."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if folder.encode() in file.read() and int(entry) != os.getpid():
                    found.append(entry)
        except OSError:
            continue
    return found


def steps_in(path):
    try:
        with open(path) as file:
            return [e for e in map(json.loads, file.read().split("\n")[:-1]) if e["ev"] == "step"]
    except OSError:
        return []


def check(name, steps, folder):
    script, out = os.path.join(folder, "train.py"), os.path.join(folder, name)
    with open(script, "w") as file:
        file.write(SCRIPT)
    variables = {"STEPS": str(steps)}
    first = start(script, out, name, PACE="0.02", **variables)
    while len(steps_in(os.path.join(out, "events.jsonl"))) < steps // 2 and first.poll() is None:
        time.sleep(0.05)
    killed_at = len(steps_in(os.path.join(out, "events.jsonl")))
    first.send_signal(signal.SIGKILL)
    first.communicate()
    while left_behind(folder):
        time.sleep(0.1)
    for _ in "goes on", "is done before":
        again = start(script, out, name, STARLING_RESUME="1", **variables)
        said, _ = again.communicate()
        if again.returncode != 0:
            return False, f"exit code {again.returncode}\n{said}"
    losses = {}
    for path in (os.path.join(out, "run-1", "events.jsonl"), os.path.join(out, "events.jsonl")):
        losses.update({e["version"] + 1: e["loss"] for e in steps_in(path)})
    found = READERS[name](out)
    wanted = list(range(1, steps + 1))
    wrong = [scalar for scalar, values in found.items() if [step for step, _ in values] != wanted]
    wrong += [f"loss of step {step}" for step, value in found.get("loss", []) if abs(value - losses[step]) > 1e-6]
    names = {"loss", "norm", "rate", "epoch", "workers", "ms", "worst"} - set(found)
    held = not wrong and not names
    return held, f"{len(found)} scalars of {steps} steps, killed after {killed_at}: " + \
        ("each once" if held else f"wrong {wrong}, missing {names}: { {k: [s for s, _ in v] for k, v in found.items()} }")


JOB = """
[job]
name = "curves"
steps = STEPS
[model]
kind = "mlp"
sizes = [64, 48, 10]
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[data]
kind = "classified"
path = "DATA"
[evaluate]
path = "DATA"
every = 7
batches = 2
[checkpoint]
dir = "CHECKPOINTS"
every = 20
"""


def check_job_file(steps, folder):
    """A run and the one that goes on from its checkpoint, with some of its steps done twice, are one curve."""
    job, curves = os.path.join(folder, "job.toml"), os.path.join(folder, "job-curves")
    data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "mlp", "digits.safetensors")
    with open(job, "w") as file:
        file.write(JOB.replace("STEPS", str(steps)).replace("DATA", os.path.abspath(data)).replace("CHECKPOINTS", os.path.join(folder, "job-ck")))
    losses, out = {}, os.path.join(folder, "job-out")
    words = [os.environ["STARLING"], "run", job, "--workers", "2", "--tensorboard", curves, "--out"]
    first = subprocess.Popen([*words, out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(steps_in(os.path.join(out, "events.jsonl"))) < steps // 2 and first.poll() is None:
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    first.wait()
    while left_behind(folder):
        time.sleep(0.1)
    killed_at = len(steps_in(os.path.join(out, "events.jsonl")))
    losses.update({e["version"]: e["loss"] for e in steps_in(os.path.join(out, "events.jsonl"))})
    time.sleep(1)  # TensorBoard reads files in the order of their names, which have seconds
    again = subprocess.run([*words, out + "-2", "--resume"], capture_output=True, text=True)
    if again.returncode != 0:
        return False, f"exit code {again.returncode}\n{again.stdout}{again.stderr}"
    losses.update({e["version"]: e["loss"] for e in steps_in(os.path.join(out + "-2", "events.jsonl"))})
    found = tensorboard_of(curves, "")
    wrong = [scalar for scalar, values in found.items() if not scalar.startswith("validation.") and
             [step for step, _ in values] != list(range(steps))]
    wrong += [scalar for scalar, values in found.items() if scalar.startswith("validation.") and
              [step for step, _ in values] != sorted({step for step, _ in values})]
    wrong += [f"loss of step {step}" for step, value in found.get("loss", []) if abs(value - losses[step]) > 1e-6]
    names = {"loss", "norm", "rate", "workers", "ms", "validation.loss"} - set(found)
    held = not wrong and not names and killed_at < steps
    return held, f"{len(found)} scalars of {steps} steps, killed after {killed_at}: " + \
        ("each once" if held else f"wrong {wrong}, missing {names}: { {k: [s for s, _ in v] for k, v in found.items()} }")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.environ["STARLING"] = os.path.abspath(options.starling)
    failed = count = 0
    folder = tempfile.mkdtemp(prefix="starling-logs-")
    for name in (*READERS, "job"):
        if options.only and name not in options.only.split(","):
            continue
        if name != "csv" and importlib.util.find_spec({"job": "tensorboard"}.get(name, name)) is None:
            print(f"        {name}: not installed, not tested")
            continue
        held, text = check_job_file(3000, folder) if name == "job" else check(name, options.steps, folder)
        left = left_behind(folder)
        count += 1
        failed += not (held and not left)
        print(f"{'ok    ' if held else 'FAILED'} {name}: {text}" + (f"; processes are left: {left}" if left else ""), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
