#!/usr/bin/env python3
"""Kills and joins, Starling beside torchft (started by compare_recovery.sh, which says what is measured).

  compare     both systems, one after the other, and a table
  worker      one torchft worker: trains until it is told to end, logs every commit
  lighthouse  torchft's lighthouse

Commits are told with the machine's monotonic clock: by Starling's events, or by each torchft worker in a file of
its own. torchft's model is an MLP 256-1024-640-10 (925,578 parameters) with AdamW, batches of 4 and 20 ms of sleep
in each; Starling's a synthetic one of as many parameters that waits as long.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

WORKERS = 4
COMPUTE_MS = 20
PARAMETERS = 925_578
QUIET_STEPS = 20  # before each kill
AROUND_JOIN_S = 0.5  # before and after a newcomer's first commit
PATIENCE_S = 120
SETTINGS = {  # ms: the lighthouse's heartbeat timeout, join timeout and tick; the workers' heartbeat; gloo's timeout
    "defaults": dict(heartbeat_timeout=5000, join_timeout=60000, tick=100, heartbeat=100, gloo=5000),
    "tuned": dict(heartbeat_timeout=500, join_timeout=1000, tick=10, heartbeat=50, gloo=5000),
    "aggressive": dict(heartbeat_timeout=200, join_timeout=200, tick=10, heartbeat=20, gloo=300),
}
JOB = f"""
[job]
name = "compare-recovery"
steps = 1_000_000
micro_batches = {WORKERS}
[model]
kind = "synthetic"
parameters = {PARAMETERS}
compute_ms = {COMPUTE_MS}
[optimizer]
kind = "adamw"
peak_rate = 1e-3
"""


class Broken(Exception):
    """The system under test did not do what a measurement needs."""


def say(text):
    print(text, flush=True)


def wait_until(condition, what, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Broken(f"{what}: not within {seconds} s")
        time.sleep(0.005)


# ---- What is measured ------------------------------------------------------------------------------


def distances(times):
    """(time, distance to the one before) of successive commits; seconds."""
    return [(b, b - a) for a, b in zip(times, times[1:])]


def longest(times, begin, end):
    """Longest distance of commits that ends after `begin` and begins before `end`."""
    return max((d for t, d in distances(times) if t > begin and t - d < end), default=0.0)


def measure(system, kills, draw):
    """Rows of one kill and one join each, milliseconds above the median step."""
    system.start()
    wait_until(lambda: system.world() == WORKERS, "all workers are there")
    rows, quiet = [], []
    for number in range(kills):
        system.settle(QUIET_STEPS)
        time.sleep(draw.random() * 0.1)
        victim, survivor = draw.sample(system.members(), 2)
        quiet += [d for _, d in distances(system.commits(survivor))[-QUIET_STEPS:]]
        killed = time.monotonic()
        system.kill(victim)
        wait_until(lambda: sum(t > killed for t in system.commits(survivor)) >= 8, "the others go on")
        joined = time.monotonic()
        newcomer = system.join()
        first = wait_until(lambda: system.first_commit(newcomer), "the newcomer's first commit")
        wait_until(lambda: time.monotonic() > first + AROUND_JOIN_S, "the join is over")
        wait_until(lambda: system.commits(survivor)[-1] > first + AROUND_JOIN_S, "steps after the join")
        times = system.commits(survivor)
        around = (first - AROUND_JOIN_S, first + AROUND_JOIN_S)
        rows.append({"kill": longest(times, killed, joined), "join": longest(times, *around)})
        if sys.stderr.isatty():
            print(f"\r{system.name}: {number + 1} of {kills} ", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    step = statistics.median(quiet)
    return {"step_ms": 1000 * step, "kill_ms": [1000 * (r["kill"] - step) for r in rows],
            "join_ms": [1000 * (r["join"] - step) for r in rows]}


# ---- Starling --------------------------------------------------------------------------------------


class Starling:
    name = "starling"

    def __init__(self, command, folder):
        self.command, self.folder, self.out = command, folder, os.path.join(folder, "out")
        self.processes, self.events, self.offset = [], [], 0
        self.began = None

    def start(self):
        job = os.path.join(self.folder, "job.toml")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        self._spawn("run", job, "--workers", str(WORKERS), "--respawn", "0", "--out", self.out)

    def _spawn(self, *arguments):
        with open(os.path.join(self.folder, "log"), "a", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen([self.command, *arguments], stdout=log, stderr=log,
                                                   stdin=subprocess.DEVNULL, start_new_session=True))

    def _read(self):
        path = os.path.join(self.out, "events.jsonl")
        if not os.path.exists(path):
            return
        with open(path, "rb") as file:
            file.seek(self.offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        self.events += [json.loads(line) for line in whole.splitlines()]
        if self.processes[0].poll() is not None:
            raise Broken(f"the run ended with {self.processes[0].returncode}")
        if self.began is None and self.events:
            self.began = self.events[0]["monotonic_ns"] / 1e9

    def _of(self, kind):
        self._read()
        return [e for e in self.events if e["ev"] == kind]

    def world(self):
        steps = self._of("step")
        return steps[-1]["world"] if steps else 0

    def members(self):
        return [m["id"] for m in self._of("epoch")[-1]["members"]]

    def commits(self, _member):  # told once, by whoever passed first
        return [self.began + e["t"] for e in self._of("step")]

    def settle(self, steps):
        """Everybody is there, and has the copies that it should have, for so many steps."""
        def calm():
            epoch, exposed = self._of("epoch")[-1], self._of("exposure")
            return len(epoch["members"]) == WORKERS and epoch["moves"] == 0 and not (exposed and exposed[-1]["segments"])
        wait_until(calm, "nothing moves")
        told = len(self._of("step"))
        wait_until(lambda: len(self._of("step")) > told + steps, "undisturbed steps")

    def kill(self, member):
        os.kill(next(e["pid"] for e in self._of("worker") if e["id"] == member and e["what"] == "joined"), signal.SIGKILL)

    def join(self):
        start = self._of("start")[0]
        self._spawn("worker", "--join", start["address"], "--keys", start["keys"], "--quiet")
        return len(self.events)

    def first_commit(self, newcomer):
        """`newcomer`: how many events there were when it was started."""
        self._read()
        return next((self.began + e["t"] for e in self.events[newcomer:] if e["ev"] == "step" and e["world"] == WORKERS), None)

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGINT)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# ---- torchft ---------------------------------------------------------------------------------------


class Torchft:
    def __init__(self, setting, folder):
        self.name, self.folder, self.setting = f"torchft {setting}", folder, setting
        self.workers, self.count, self.lighthouse = {}, 0, None

    def _spawn(self, *arguments):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with open(os.path.join(self.folder, "log"), "a", encoding="utf-8") as log:
            return subprocess.Popen([sys.executable, os.path.abspath(__file__), *arguments, "--setting", self.setting],
                                    stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
                                    start_new_session=True)

    def start(self):
        address = os.path.join(self.folder, "lighthouse")
        self.lighthouse = self._spawn("lighthouse", "--address", address)
        wait_until(lambda: os.path.exists(address), "the lighthouse listens")
        with open(address, encoding="utf-8") as file:
            self.address = file.read()
        for _ in range(WORKERS):
            self.join()

    def join(self):
        name = self.count
        self.count += 1
        self.workers[name] = self._spawn("worker", "--lighthouse", self.address, "--name", str(name),
                                         "--commits", os.path.join(self.folder, f"commits-{name}"))
        return name

    def members(self):
        return [name for name, process in self.workers.items() if process.poll() is None]

    def _lines(self, member):
        """(time, workers) of each of its commits."""
        crashed = [n for n, p in self.workers.items() if p.poll() not in (None, -signal.SIGKILL)]
        if crashed:
            raise Broken(f"workers {crashed} ended by themselves; {self.folder}/log says why")
        path = os.path.join(self.folder, f"commits-{member}")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [tuple(map(float, line.split())) for line in file.read().split("\n")[:-1]]

    def commits(self, member):
        return [t for t, _ in self._lines(member)]

    def first_commit(self, newcomer):
        lines = self._lines(newcomer)
        return lines[0][0] if lines else None

    def world(self):
        lines = [self._lines(member) for member in self.members()]
        return int(lines[0][-1][1]) if lines and all(lines) else 0

    def settle(self, steps):
        wait_until(lambda: self.world() == WORKERS, "all workers commit together")
        member = self.members()[0]
        told = len(self._lines(member))
        wait_until(lambda: all(len(self._lines(m)) > steps for m in self.members()) and
                   len(self._lines(member)) > told + steps, "undisturbed steps")

    def kill(self, member):
        self.workers[member].kill()
        self.workers[member].wait()

    def end(self):
        for process in [*self.workers.values(), self.lighthouse]:
            if process and process.poll() is None:
                process.kill()
                process.wait()


def run_lighthouse(arguments):
    from torchft.coordination import LighthouseServer

    setting = SETTINGS[arguments.setting]
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=setting["join_timeout"],
                              quorum_tick_ms=setting["tick"], heartbeat_timeout_ms=setting["heartbeat_timeout"])
    with open(arguments.address + ".new", "w", encoding="utf-8") as file:
        file.write(server.address())
    os.rename(arguments.address + ".new", arguments.address)
    signal.pause()


def run_worker(arguments):
    from datetime import timedelta

    import torch
    from torch import nn
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    setting = SETTINGS[arguments.setting]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 640), nn.ReLU(), nn.Linear(640, 10))
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    plain = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def load_state_dict(state):
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(milliseconds=setting["gloo"])),
        load_state_dict=load_state_dict,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        min_replica_size=1, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=arguments.lighthouse, replica_id=f"worker_{arguments.name}", timeout=timedelta(seconds=30),
        heartbeat_interval=timedelta(milliseconds=setting["heartbeat"]),
    )
    parallel, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, plain)
    generator = torch.Generator().manual_seed(int(arguments.name))
    committed = 0
    with open(arguments.commits, "w", buffering=1, encoding="utf-8") as commits:
        while True:
            rows = torch.randn(4, 256, generator=generator)
            targets = torch.randint(0, 10, (4,), generator=generator)
            optimizer.zero_grad()  # begins a quorum
            time.sleep(COMPUTE_MS / 1000)
            nn.functional.cross_entropy(parallel(rows), targets).backward()
            optimizer.step()  # unless something failed
            if manager.current_step() != committed:
                committed = manager.current_step()
                commits.write(f"{time.monotonic():.6f} {manager.num_participants()}\n")


# ---- The comparison --------------------------------------------------------------------------------


def versions():
    import torch
    import torchft  # noqa: F401  that it is there
    from importlib.metadata import packages_distributions, version

    package = packages_distributions()["torchft"][0]
    return f"PyTorch {torch.__version__}, {package} {version(package)}"


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]
    except FileNotFoundError:
        return ""


def compare(arguments):
    systems = arguments.only.split(",")
    if not set(systems) <= {"starling", "torchft"}:
        sys.exit(f"compare_recovery: --only takes starling and torchft, not {arguments.only}")
    settings = arguments.settings.split(",")
    if not set(settings) <= set(SETTINGS):
        sys.exit(f"compare_recovery: --settings takes {', '.join(SETTINGS)}, not {arguments.settings}")
    kills = 2 if arguments.quick else arguments.kills
    say(f"{first_line([arguments.starling, 'version'])}{'; ' + versions() if 'torchft' in systems else ''}; "
        f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
    say(f"{WORKERS} workers, ms           n     step   kill gap: median    worst   join standstill: median    worst")
    results, broken = {}, 0
    made = [lambda folder: Starling(arguments.starling, folder)] if "starling" in systems else []
    if "torchft" in systems:
        made += [lambda folder, setting=setting: Torchft(setting, folder) for setting in settings]
    for make in made:
        with tempfile.TemporaryDirectory(prefix="starling-compare-") as folder:
            system = make(folder)
            try:
                found = measure(system, kills, random.Random(arguments.seed))
            except Broken as error:
                say(f"  {system.name}: {error}")
                results[system.name] = {"broken": str(error)}
                broken += 1
                if arguments.keep_log:
                    os.replace(os.path.join(folder, "log"), arguments.keep_log)
                continue
            finally:
                system.end()
        results[system.name] = found
        kill, join = found["kill_ms"], found["join_ms"]
        say(f"  {system.name:<20}{len(kill):>4}{found['step_ms']:>9.1f}{statistics.median(kill):>20.1f}{max(kill):>9.1f}"
            f"{statistics.median(join):>26.1f}{max(join):>9.1f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(results, stream, indent=1)
    return 1 if broken else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("compare")
    whole.add_argument("--starling", required=True)
    whole.add_argument("--only", default="starling,torchft")
    whole.add_argument("--settings", default="aggressive")
    whole.add_argument("--kills", type=int, default=10)
    whole.add_argument("--seed", type=int, default=1)
    whole.add_argument("--quick", action="store_true")
    whole.add_argument("--json")
    whole.add_argument("--keep-log", help="of a system that broke")
    worker = commands.add_parser("worker")
    for option in ("--lighthouse", "--name", "--commits"):
        worker.add_argument(option, required=True)
    lighthouse = commands.add_parser("lighthouse")
    lighthouse.add_argument("--address", required=True)
    for part in (worker, lighthouse):
        part.add_argument("--setting", choices=SETTINGS, required=True)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        sys.exit(compare(arguments))
    (run_worker if arguments.command == "worker" else run_lighthouse)(arguments)


if __name__ == "__main__":
    main()
