#!/usr/bin/env python3
"""PyTorch models, trained by Starling: the same digest for every number of workers and through kills of workers
and of the processes that compute for them, and the losses of a loop of torch alone.

  same_bits.py STARLING [--models mlp,resnet,frozen,lstm,gpt2,bert,half] [--workers 1,2,4,7] [--steps 60] [--kills 20]

Run it with an interpreter that has torch, transformers and the starling package (tools/test.sh --pytorch makes one).
Others are averaged, cnn, vit, unet and seq2seq. One line for each run; exit code 1 if a digest differs, one of the first
five losses is off by more than 1e-6 (1e-3 of `half`, a GPT-2 of bfloat16), a later one by that and by more than four times
what last bits of the first parameters make of it in torch alone, running statistics after six steps by more than 1e-4
of the largest, or a process is left."""

import argparse
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import starling
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "models.py")
TOLERANCE, OF_STATISTICS = 1e-6, 1e-4
NUDGES = 8
ROUNDED = {"half": 1e-3}  # a last bit of a parameter in float32 is now and then one in bfloat16
FIRST = 5  # losses that rounding has not moved yet, whatever the net
PATIENCE = 1200
SECONDS_PER_KILL = 7
MARK = f"STARLING_TEST={os.getpid()}"  # in the environment of all that is started here
os.environ.update([MARK.split("=")])


def philox(counter, key):
    """Philox 4x32-10: Salmon et al., 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def sample_of(seed, place, n, purpose):
    """As core/data/permutation.cpp: the sample at a place of the endless sequence of passes over the data."""
    epoch, value = divmod(place, n)
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = value >> half, value & mask
        for turn in range(6):
            bits = philox((right & 0xFFFFFFFF, right >> 32, epoch, (purpose << 24) ^ turn), (seed & 0xFFFFFFFF, seed >> 32))
            left, right = right, (left ^ bits[0]) & mask
        value = left << half | right
        if value < n:
            return value


def hear_interrupts():
    """In a new process: a shell's background job has SIGINT ignored, and so has what that starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Run:
    """One job, in a process of its own, whose events are read as they come."""

    def __init__(self, model, workers, steps, arguments=(), script=SCRIPT, **environment):
        self.folder = tempfile.mkdtemp(prefix="starling-pytorch-")
        self.out = os.path.join(self.folder, "out")
        self.extra = []  # workers that have joined
        self.events, self._at = [], 0
        self.log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        self.environment = {**os.environ, "MODEL": model, "WORKERS": str(workers), "STEPS": str(steps), "OUT": self.out,
                            **environment}
        self.process = subprocess.Popen([sys.executable, script, *arguments], env=self.environment, stdout=self.log,
                                        stderr=subprocess.STDOUT, preexec_fn=hear_interrupts)

    def look(self):
        path = os.path.join(self.out, "events.jsonl")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                file.seek(self._at)
                for line in file:
                    if not line.endswith("\n"):
                        break
                    self._at += len(line.encode())
                    self.events.append(json.loads(line))
        return self.events

    def last(self, kind):
        return next((e for e in reversed(self.events) if e["ev"] == kind), None)

    def step(self):
        event = self.last("step")
        return event["version"] if event else -1

    def world(self):
        event = self.last("step")
        return event["world"] if event else 0

    def workers(self):
        """Process ids of those that are there, by the events."""
        pids = {}
        for e in self.events:
            if e["ev"] == "worker":
                if e["what"] == "joined":
                    pids[e["name"]] = e["pid"]
                else:
                    pids.pop(e["name"], None)
        return pids

    def join(self):
        start = next(e for e in self.events if e["ev"] == "start")
        self.extra.append(subprocess.Popen(
            [os.environ["STARLING"], "worker", "--quiet", "--join", start["address"], "--keys", start["keys"], "--save", "none"],
            env={**self.environment, "STARLING_PYTHON": sys.executable}, stdout=self.log, stderr=subprocess.STDOUT))

    def wait(self):
        code = self.process.wait(PATIENCE)
        for worker in self.extra:
            worker.wait(PATIENCE)
        self.look()
        return code

    def text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def close(self):
        for process in [self.process, *self.extra]:
            if process.poll() is None:
                process.kill()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def children_of(pid):
    """Processes that compute for that worker."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                name, rest = file.read().rsplit(")", 1)
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read().split(b"\0")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[1]) == pid and fields[0] != "Z" and b"starling" in command and not name.endswith("(starling-warm"):
            found.append(int(entry))
    return found


def left_behind():
    """Of what this program has started, and not of another one beside it, which may run the same script."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:  # empty of one that has ended
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if MARK.encode() in variables and int(entry) != os.getpid():
            found.append(entry)
    return found


def disturb(run, steps, kills, draw, kinds=("worker", "child"), joins=0):
    """Kills workers and their processes, evenly over the steps. A killed worker is followed by another, unless one of the
    joins, which are as even, has brought one more than there were."""
    done = {"worker": 0, "child": 0}
    killed, after, joined, more = set(), 0, 0, 0
    while sum(done.values()) < kills and run.process.poll() is None:
        run.look()
        wanted = (sum(done.values()) + 1) * steps // (kills + 2)
        # Two steps after a kill the copies that it took are there again: with more lost at once than a
        # segment has copies the state would be gone, and the job would say so.
        if run.step() < max(wanted, after) or run.world() < 3:
            time.sleep(0.01)
            continue
        if joined * kills < joins * (sum(done.values()) + 1):
            run.join()
            joined, more = joined + 1, more + 1
        time.sleep(draw.random() * 0.2)
        pid = draw.choice(sorted(run.workers().values()))
        kind = draw.choice(kinds)
        targets = [pid] if kind == "worker" else children_of(pid)
        if pid in killed or not targets:
            continue
        try:
            os.kill(targets[0], signal.SIGKILL)
        except OSError:
            continue
        done[kind] += 1
        after = run.step() + 2
        if kind == "worker":
            killed.add(pid)
            if more:
                more -= 1
            else:
                run.join()
    return done


def digest_of(run):
    event = run.last("done")
    return event["digest"] if event else None


def check(model, options, say):
    steps, held = options.steps, True
    reference = None
    for workers in options.workers:
        run = Run(model, workers, steps)
        begun = time.monotonic()
        code = run.wait()
        digest = digest_of(run)
        if code != 0 or digest is None:
            say(f"{model}: {workers} workers: exit code {code}\n{run.text()}")
            run.close()
            return False
        if reference is None:
            reference, losses = digest, {e["version"]: e["loss"] for e in run.events if e["ev"] == "step"}
        held &= digest == reference
        say(f"{model}: {workers} workers: digest {digest} ({time.monotonic() - begun:.0f} s)"
            + ("" if digest == reference else "  DIFFERS"))
        run.close()
    os.environ["MODEL"] = model
    others, statistics = by_torch_alone(steps)
    furthest, bound = apart(others, losses), ROUNDED.get(model, TOLERANCE)
    why = ""
    if furthest > bound:
        moved, tries = 0.0, 0
        while furthest > 4 * moved and tries < NUDGES:  # one that flips no ReLU shows nothing
            tries += 1
            moved = max(moved, apart(others, dict(enumerate(by_torch_alone(steps, nudged=tries)[0]))))
        held &= apart(others[:FIRST], losses) <= bound and furthest <= 4 * moved
        why = f", which last bits of its first parameters move by {moved:.2g} ({tries} of {NUDGES} ways)"
    held &= len(others) == len(losses) == steps
    say(f"{model}: {steps} losses within {furthest:.2g} of torch alone ({others[0]:.4f} to {others[-1]:.4f}){why}")
    if statistics:
        run = Run(model, 1, FIRST + 1)
        held &= run.wait() == 0
        trained, (_, statistics) = starling.load(run.out), by_torch_alone(FIRST + 1)
        run.close()
        worst = max(float((trained[name] - other).abs().max() / other.abs().max()) for name, other in statistics.items())
        held &= worst <= OF_STATISTICS
        say(f"{model}: {len(statistics)} running statistics within {worst:.2g} of torch alone after {FIRST + 1} steps")
    if options.kills:
        # So slow that whoever takes the place of a killed one has begun before the next kill.
        pace = SECONDS_PER_KILL * options.kills * 6 / (steps * 8)
        run = Run(model, 6, steps, PACE=str(pace))
        done = disturb(run, steps, options.kills, random.Random(options.seed))
        code = run.wait()
        digest = digest_of(run)
        held &= digest == reference and code == 0 and sum(done.values()) == options.kills
        say(f"{model}: {done['worker']} workers and {done['child']} of their processes killed: digest {digest}"
            + ("" if digest == reference else f"  DIFFERS, exit code {code}\n{run.text()}"))
        audit = subprocess.run([os.environ["STARLING"], "audit", run.out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        held &= audit.returncode == 0
        say(f"{model}: audit: {audit.stdout.decode().strip().splitlines()[-1]}")
        run.close()
    left = left_behind()
    if left:
        say(f"{model}: processes are left: {left}")
    return held and not left


def apart(losses, others):
    """The largest difference; others are by their steps."""
    return max(abs(loss - others[step]) for step, loss in enumerate(losses))


def by_torch_alone(steps, nudged=0):
    """Losses, and the running statistics at the end."""
    with tempfile.NamedTemporaryFile() as file:
        plain = subprocess.run(
            [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import same_bits; same_bits.plain(*sys.argv[2:])",
             HERE, str(steps), file.name, str(nudged)], stdout=subprocess.PIPE, check=True,
            env={**os.environ, "MKL_CBWR": "AVX2"})
        state = torch.load(file.name)
    return json.loads(plain.stdout), state


def plain(steps, out, nudged):
    """Prints the losses of a loop of torch alone, over the samples that the job takes, and saves its running statistics. Nudged
    (above 0: in which way) each element of a parameter begins with a number next to its own."""
    import models

    _, data = models.build()
    per_step = models.MICRO_BATCHES * models.BATCH

    def order(step, m):
        first = step * per_step + m * models.BATCH
        return [sample_of(1, first + i, len(data), PURPOSE_DATA_ORDER) for i in range(models.BATCH)]

    print(json.dumps(models.plain_losses(int(steps), order, out, functools.partial(nudge, int(nudged)) if int(nudged) else None)))


def nudge(way, net):
    draw = torch.Generator().manual_seed(way)
    with torch.no_grad():
        for p in net.parameters():
            up, down = (torch.nextafter(p, torch.full_like(p, end)) for end in (torch.inf, -torch.inf))
            p.copy_(torch.where(torch.rand(p.shape, generator=draw) < 0.5, up, down))


PURPOSE_DATA_ORDER = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--models", default="mlp,resnet,frozen,lstm,gpt2,bert,half")
    parser.add_argument("--workers", default="1,2,4,7", type=lambda text: [int(w) for w in text.split(",")])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["STARLING"] = os.path.abspath(options.starling)
    failed = 0
    names = options.models.split(",")
    for model in names:
        failed += not check(model, options, lambda text: print(text, flush=True))
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
