#!/usr/bin/env python3
"""The same PyTorch model, the same schedule of kills: Starling, torchft and Horovod elastic (started by
compare_elastic.sh, which says what is measured and installs what is missing).

The scripts that are run lie in elastic/, as a user of each system would write them. Every one is run undisturbed,
and once more while workers are killed, in all systems at the same steps. Commits, the micro-batches that were begun and
the final parameters are noted by the scripts themselves (elastic/model.py), commits of Starling by its events."""

import argparse
import ast
import io
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elastic")
SYSTEMS = ("starling", "torchft", "horovod")
WORKERS = 4  # as elastic/model.py
FIRST_KILL = 60  # steps
BETWEEN_KILLS = 180  # steps
AFTER_KILLS = 300  # steps, from the last one to the end
GO_ON = 8  # commits of the others, before a killed worker is replaced
QUIET = 20  # steps with everybody, before a kill
ROUND_S = 0.5  # from the beginning of a worker's last micro-batch to a step of which it had a part
PATIENCE_S = 180
SETTINGS = {  # "fast": the fastest that worked on a machine with 2 cores
    "fast": {
        "torchft": {"heartbeat_timeout": 200, "join_timeout": 200, "tick": 10, "heartbeat": 20, "gloo": 300},  # ms
        "horovod": {"gloo": 2, "cooldown": (2, 4)}},  # s
    "defaults": {
        "torchft": {"heartbeat_timeout": 5000, "join_timeout": 60000, "tick": 100, "heartbeat": 100, "gloo": 5000},
        "horovod": {"gloo": 30, "cooldown": (5, 10)}},  # with no cooldown nobody comes back
}


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


def alive(pid, word):
    """Whether the process is there, and still the one whose command has that word: numbers are used again."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return word.encode() in file.read()  # nothing in it of one that has ended
    except OSError:
        return False


def group_alive(process, number):
    """Sends a signal to a process and those that it has started; whether there was any."""
    process.poll()
    try:
        os.killpg(process.pid, number)
        return True
    except ProcessLookupError:
        return False


# ---- What the scripts note down --------------------------------------------------------------------


class Notes:
    """Lines of elastic/model.py, by process, as they come."""

    def __init__(self, folder):
        self.folder = folder
        self._at = {}
        self.began = {}  # process: (time, samples) of each micro-batch
        self.passed = {}  # process: (time, step, workers, counted, samples) of each step
        self.ready = {}  # process: time
        self.ends = {}  # process: hash of the final parameters
        self._forgotten = set()

    def forget(self, pid):
        """As if that process had never been."""
        self._forgotten.add(str(pid))
        for of_process in (self.began, self.passed, self.ready, self.ends):
            of_process.pop(pid, None)

    def look(self):
        for name in set(filter(str.isdigit, os.listdir(self.folder))) - self._forgotten:
            with open(os.path.join(self.folder, name), "rb") as file:
                file.seek(self._at.get(name, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._at[name] = self._at.get(name, 0) + len(whole)
            for kind, at, *words in map(str.split, whole.decode().splitlines()):
                if kind == "pass":
                    self.began.setdefault(int(name), []).append((float(at), words[0]))
                elif kind == "step":
                    step, workers, counted, samples = words
                    self.passed.setdefault(int(name), []).append(
                        (float(at), int(step), int(workers), counted == "1", samples))
                elif kind == "ready":
                    self.ready[int(name)] = float(at)
                else:
                    self.ends[int(name)] = words[0]
        return self


# ---- The systems -----------------------------------------------------------------------------------


class System:
    """A run of one script, which can be disturbed."""

    def __init__(self, options, folder, steps):
        self.options, self.folder, self.steps = options, folder, steps
        self.setting = SETTINGS[options.settings].get(self.name, {})
        self.notes = Notes(os.path.join(folder, "notes"))
        os.mkdir(self.notes.folder)
        self.processes = []
        self.environment = {**os.environ, "NOTES": self.notes.folder, "STEPS": str(steps), "OMP_NUM_THREADS": "1",
                            "PYTHONUNBUFFERED": "1", "OUT": os.path.join(folder, "out")}

    def spawn(self, *command, **environment):
        with open(os.path.join(self.folder, "log"), "a", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=HERE, start_new_session=True,
                env={**self.environment, **environment}))
        return self.processes[-1]

    def go(self):
        with open(os.path.join(self.notes.folder, "go"), "w", encoding="utf-8"):
            pass

    def last(self):
        """Number and workers of the newest step; (0, 0) at first."""
        passed = [p[-1] for p in self.notes.look().passed.values()]
        return max(((step, workers) for _, step, workers, _, _ in passed), default=(0, 0))

    def workers(self):
        """Processes that compute and have passed a step."""
        return sorted(pid for pid in self.notes.look().passed if alive(pid, self.script))

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)

    def replace(self):
        """Somebody in the place of who was killed last."""

    def too_late(self):
        """At the end: whoever has not come back until now has no part in it."""

    def over(self):
        """Whether all has ended well."""
        raise NotImplementedError

    def close(self):
        for pid in {*self.notes.look().began, *self.notes.ready}:
            if alive(pid, self.script):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        for process in self.processes:  # each with a session of its own
            if process.poll() is not None:
                continue
            for number in (signal.SIGTERM, signal.SIGKILL):
                until = time.monotonic() + 10
                while group_alive(process, number) and time.monotonic() < until:
                    time.sleep(0.05)
                    number = 0
            process.wait()

    def rounds(self):
        """(time, step, workers, samples that were used) of each step, the attempt that stands, in order."""
        attempts = {}
        for pid, lines in self.notes.look().passed.items():
            for at, step, workers, counted, samples in lines:
                attempts.setdefault(step, []).append((at, workers, counted, samples, pid))
        found, told = [], {}
        for step in sorted(attempts):
            lines = attempts[step]
            # A process that tells it twice has gone back to the step before, and so have all with it.
            since = max(sorted(line[0] for line in lines if line[4] == pid)[-2] if n > 1 else 0.0
                        for pid, n in Counter(line[4] for line in lines).items())
            lines = sorted((line for line in lines if line[0] > since), reverse=True)
            workers = lines[0][1]
            lines = lines[:workers]
            told[step] = {line[4] for line in lines}
            found.append([min(line[0] for line in lines), step, workers, [line[3] for line in lines if line[2]]])
        # Who was killed between the exchange and its note had a part in the step all the same.
        for pid, began in self.notes.began.items():
            passed = self.notes.passed.get(pid, [])
            if not passed or pid in self.notes.ends:
                continue
            after = passed[-1][1] + 1
            row = next((r for r in found if r[1] == after), None)
            at, samples = began[-1]
            if row and len(row[3]) < row[2] and pid not in told[after] and at < row[0] < at + ROUND_S:
                row[3].append(samples)
        return found

    def final(self):
        """Hashes of the final parameters: one, unless the workers differ."""
        return sorted(set(self.notes.look().ends.values()))


class Starling(System):
    name, script = "starling", "starling_train.py"

    def start(self):
        self.events, self._events_at = [], 0
        self.environment["PYTHONPATH"] = os.path.join(HERE, "..", "..", "python")
        self.environment["STARLING"] = self.options.starling
        self.job = self.spawn(self.options.torchft_python, self.script)

    def look(self):
        path = os.path.join(self.folder, "out", "events.jsonl")
        if os.path.exists(path):
            with open(path, "rb") as file:
                file.seek(self._events_at)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._events_at += len(whole)
            self.events += map(json.loads, whole.splitlines())
        if self.job.poll() not in (None, 0):
            raise Broken(f"the script has ended with {self.job.returncode}")
        return self.events

    def of(self, kind):
        return [e for e in self.look() if e["ev"] == kind]

    def last(self):
        step = next((e for e in reversed(self.look()) if e["ev"] == "step"), None)
        return (step["version"] + 1, step["world"]) if step else (0, 0)

    def workers(self):
        pids = {}
        for e in self.of("worker"):
            if e["what"] == "joined":
                pids[e["id"]] = e["pid"]
            else:
                pids.pop(e["id"], None)
        return sorted(pid for pid in pids.values() if alive(pid, "starling"))

    def replace(self):
        start = self.of("start")[0]
        self.spawn(self.options.starling, "worker", "--quiet", "--join", start["address"], "--keys", start["keys"],
                   "--save", "none", STARLING_PYTHON=self.options.torchft_python)

    def over(self):
        self.look()
        return self.job.poll() == 0 and all(p.poll() is not None for p in self.processes)

    def rounds(self):
        """As its events tell them, and the ledger of each step: one entry a micro-batch."""
        began = self.look()[0]["monotonic_ns"] / 1e9
        ledgers = {}
        for e in self.of("ledger"):
            ledgers.setdefault(e["version"], []).append([m for m, _ in e["workers"]])
        # Samples are the same for a micro-batch whoever computes it, so those of the passes, each once.
        sets = {samples for passes in self.notes.look().began.values() for _, samples in passes}
        used = sum(len(ms) for lines in ledgers.values() for ms in lines)
        distinct = len({(v, m) for v, lines in ledgers.items() for ms in lines for m in ms})
        if len(sets) != distinct:
            raise Broken(f"{len(sets)} sets of samples in {distinct} micro-batches")
        repeated = used - distinct
        samples = sorted(sets) + sorted(sets)[:repeated]
        rows = []
        for e in self.of("step"):
            counted = sum(len(ms) for ms in ledgers.get(e["version"], []))
            rows.append([began + e["t"], e["version"] + 1, e["world"], [samples.pop() for _ in range(counted)]])
        return rows


class Torchft(System):
    name, script = "torchft", "torchft_train.py"

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        bin_ = os.path.dirname(self.options.torchft_python)
        setting = self.setting
        self.environment |= {
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "GLOO_TIMEOUT_MS": str(setting["gloo"]),
            "HEARTBEAT_MS": str(setting["heartbeat"])}
        self.lighthouse = self.spawn(
            os.path.join(bin_, "torchft_lighthouse"), "--bind", f"127.0.0.1:{port}", "--min_replicas", "1",
            "--join_timeout_ms", str(setting["join_timeout"]), "--quorum_tick_ms", str(setting["tick"]),
            "--heartbeat_timeout_ms", str(setting["heartbeat_timeout"]))
        self.torchrun = os.path.join(bin_, "torchrun")
        self.replicas = {}  # number: torchrun
        self.vacant = None
        self.agents = {}  # worker: its torchrun
        for number in range(WORKERS):
            self.replica(number)
        wait_until(lambda: self.check() or len(self.notes.look().ready) == WORKERS, "all replicas are ready")
        time.sleep(1)  # and the lighthouse has heard of them
        self.go()

    def replica(self, number):
        self.replicas[number] = self.spawn(
            self.torchrun, "--standalone", "--nproc_per_node=1", self.script, REPLICA_GROUP_ID=str(number))

    def check(self):
        ended = [n for n, p in self.replicas.items() if p.poll() not in (None, 0)]
        if ended:
            raise Broken(f"replicas {ended} have ended by themselves")
        if self.lighthouse.poll() is not None:
            raise Broken("the lighthouse has ended")

    def last(self):
        self.check()
        for pid in set(self.notes.look().ready) - set(self.agents):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    self.agents[pid] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
        return super().last()

    def kill(self, pid):
        self.vacant = next(n for n, p in self.replicas.items() if p.pid == self.agents[pid])
        os.kill(pid, signal.SIGKILL)
        agent = self.replicas.pop(self.vacant)
        agent.kill()  # and the torchrun of that machine
        agent.wait()

    def replace(self):
        self.replica(self.vacant)

    def too_late(self):
        """Alone it would begin with the first step."""
        agent = self.replicas.get(self.vacant)
        if agent is None or agent.poll() is not None:
            return
        pids = [pid for pid, parent in self.agents.items() if parent == agent.pid]
        if any(pid in self.notes.passed and self.notes.passed[pid][0][1] > 1 for pid in pids):
            return
        del self.replicas[self.vacant]
        agent.terminate()
        agent.wait()
        for pid in pids:
            self.notes.forget(pid)

    def over(self):
        self.check()
        return all(p.poll() == 0 for p in self.replicas.values())


class Horovod(System):
    name, script = "horovod", "horovod_train.py"

    def start(self):
        # Four machines with one slot each: names of this one.
        hosts = os.path.join(self.folder, "hosts.sh")
        with open(hosts, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nprintf '%s:1\\n' localhost Localhost LocalHost LOCALHOST\n")
        os.chmod(hosts, 0o755)
        bin_ = os.path.dirname(self.options.horovod_python)
        self.environment |= {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(self.setting["gloo"]),
                             "PATH": f"{bin_}:{os.environ['PATH']}"}
        self.job = self.spawn(
            self.options.horovod_python, os.path.join(bin_, "horovodrun"), "--gloo", "-np", str(WORKERS), "--min-np",
            "2", "--max-np", str(WORKERS), "--host-discovery-script", hosts, "--network-interfaces", "lo",
            "--gloo-timeout-seconds", str(self.setting["gloo"]), "--blacklist-cooldown-range",
            *map(str, self.setting["cooldown"]), self.options.horovod_python, self.script)

    def last(self):
        if self.job.poll() not in (None, 0):
            raise Broken(f"horovodrun has ended with {self.job.returncode}")
        return super().last()

    def over(self):
        self.last()
        return self.job.poll() == 0


# ---- A run, and what it came to --------------------------------------------------------------------


def run(make, options, steps, schedule):
    """One run: its rounds, its kills, its passes and its final parameters."""
    folder = tempfile.mkdtemp(prefix="starling-elastic-")
    system = make(options, folder, steps)
    kills = []
    try:
        system.start()
        wait_until(lambda: system.last()[1] == WORKERS, f"{system.name}: all workers pass a step together")
        for number, (at, who, later) in enumerate(schedule):
            def calm(at=at):
                now, _ = system.last()
                return now >= at and now >= back + QUIET and len(system.workers()) == WORKERS
            wait_until(lambda: system.last()[1] == WORKERS or ended(system, steps), "all workers are there")
            back = system.last()[0]
            wait_until(lambda: calm() or ended(system, steps), "the time for a kill")
            time.sleep(later)
            workers = system.workers()
            if ended(system, steps) or len(workers) < WORKERS:
                break
            step = system.last()[0]
            kills.append({"at": time.monotonic(), "step": step})
            system.kill(workers[who])
            wait_until(lambda: system.last()[0] >= step + GO_ON or ended(system, steps), "the others go on")
            kills[-1]["replaced"] = time.monotonic()
            system.replace()
            progress(f"{system.name}: {number + 1} of {len(schedule)} kills")
        wait_until(lambda: ended(system, steps), f"{system.name}: the last step", PATIENCE_S + steps * 0.5)
        system.too_late()
        wait_until(system.over, f"{system.name}: the end")
        rounds = system.rounds()
        return {"rounds": rounds, "kills": kills, "final": system.final(), "steps": steps,
                "passes": sorted(p for passes in system.notes.began.values() for p in passes)}
    except (Broken, KeyboardInterrupt):
        if options.keep_log:
            shutil.copy(os.path.join(folder, "log"), options.keep_log)
        raise
    finally:
        system.close()
        progress("")
        shutil.rmtree(folder, ignore_errors=True)


def ended(system, steps):
    return system.last()[0] >= steps


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def judge(disturbed, alone, again):
    """Figures of the table, from the runs of a system; `again` may be missing."""
    rounds, kills, steps = disturbed["rounds"], disturbed["kills"], disturbed["steps"]
    times = [row[0] for row in rounds]
    full = [b[0] - a[0] for a, b in zip(rounds, rounds[1:]) if a[2] == b[2] == WORKERS]
    if not full:
        raise Broken("there were never two steps with everybody")
    step = statistics.median(full)
    batch = max(len(text.split(",")) for _, text in disturbed["passes"])

    def samples(texts):
        return Counter(s for text in texts for s in text.split(","))

    def longest(begin, end):
        return 1000 * (max((b - a for a, b in zip(times, times[1:]) if begin < b <= end), default=step) - step)

    rows = []
    for kill, later in zip(kills, [*kills[1:], {"at": float("inf")}]):
        rows.append({"step": kill["step"], "at": kill["at"] - times[0], "pause_ms": longest(kill["at"], later["at"]),
                     "pause_of_kill_ms": longest(kill["at"], kill["replaced"]),
                     "pause_of_join_ms": longest(kill["replaced"], later["at"])})
    counted = [text for row in rounds for text in row[3]]
    used = samples(counted)
    missing_rounds = steps - len(rounds)
    skipped = sum(WORKERS - len(row[3]) for row in rounds) + WORKERS * missing_rounds
    thrown = len(disturbed["passes"]) - len(counted)
    repeated = sum(n - 1 for n in used.values()) / batch
    quiet = [text for row in alone["rounds"] for text in row[3]]
    usual = {"thrown_away": len(alone["passes"]) - len(quiet), "skipped": steps * WORKERS - len(quiet),
             "repeated": sum(n - 1 for n in samples(quiet).values()) / batch}
    found = {"thrown_away": thrown, "skipped": skipped, "repeated": repeated}
    return {
        "commits": [[row[0] - times[0], *row[1:3], len(row[3])] for row in rounds],
        "kills": rows, "step_ms": 1000 * step, "worlds": dict(Counter(row[2] for row in rounds)),
        "micro_batches": {"due": steps * WORKERS, "begun": len(disturbed["passes"]), "counted": len(counted),
                          "undisturbed": usual, "disturbed": found,
                          "of_kills": {what: found[what] - usual[what] for what in found}},
        "final": disturbed["final"], "final_undisturbed": alone["final"],
        "same": disturbed["final"] == alone["final"] and len(alone["final"]) == 1,
        "undisturbed_twice_same": again["final"] == alone["final"] if again else None,
    }


def code_lines(path, function=None):
    """Lines of code of a script, or of one function of it and the module's imports, without blank ones, comments,
    docstrings and those that only note something down."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    tree = ast.parse(text)
    documented = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.FunctionDef))
                  and ast.get_docstring(node)]
    dropped = {n for node in documented
               for n in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    lines = {token.start[0] + i for token in tokenize.generate_tokens(io.StringIO(text).readline)
             if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
                                   tokenize.ENDMARKER)
             for i in range(token.end[0] - token.start[0] + 1)}
    if function:
        node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
        lines &= set(range(node.lineno + 1, node.end_lineno + 1))
    source = text.splitlines()
    return [source[n - 1].strip() for n in sorted(lines - dropped)
            if not source[n - 1].rstrip().endswith("# noted") and source[n - 1].strip() != ")"]


def lines_of(system):
    """Lines of its script: all, and those that the loop without it does not have."""
    script = code_lines(os.path.join(HERE, f"{system}_train.py"))
    plain = Counter(code_lines(os.path.join(HERE, "model.py"), "plain"))
    return {"all": len(script), "beyond_plain_loop": sum((Counter(script) - plain).values())}


# ---- The comparison --------------------------------------------------------------------------------


def missing(python, module, log):
    """Why a system cannot be run; None if it can."""
    if not os.path.exists(python):
        why = "there is no " + python
    else:
        tried = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return None
        why = (tried.stderr.strip().splitlines() or ["no word"])[-1]
    if os.path.exists(log):
        with open(log, encoding="utf-8", errors="replace") as file:
            errors = [line.strip() for line in file if line.strip().lower().startswith("error")]
        why = f"{errors[-1] if errors else why}; {log}"
    return why


def versions(options, systems):
    def asked(python, code):
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()

    found = {}
    if "starling" in systems:
        text = subprocess.run([options.starling, "version"], capture_output=True, text=True, check=False).stdout
        found["starling"] = f"{text.strip().splitlines()[0]}, PyTorch " + asked(
            options.torchft_python, "import torch; print(torch.__version__)")
    if "torchft" in systems:
        found["torchft"] = asked(options.torchft_python, (
            "import torch; from importlib.metadata import packages_distributions as p, version as v;"
            "n = p()['torchft'][0]; print(n, v(n) + ', PyTorch', torch.__version__)"))
    if "horovod" in systems:
        found["horovod"] = asked(options.horovod_python, (
            "import horovod, torch; print('horovod', horovod.__version__ + ', PyTorch', torch.__version__)"))
    return found


def table_row(name, found):
    kills, work = found["kills"], found["micro_batches"]["of_kills"]
    final = "same" if found["same"] else "DIFFERENT" if len(found["final"]) == 1 else "WORKERS DIFFER"
    n, pauses = len(kills), [k["pause_ms"] for k in kills]
    return (f"  {name:<10}{found['lines']['all']:>6}{n:>7}{found['step_ms']:>9.1f}"
            f"{work['thrown_away'] / n:>12.1f}{work['skipped'] / n:>10.1f}{work['repeated'] / n:>10.1f}"
            f"{statistics.median(pauses):>10.0f}{max(pauses):>8.0f}   {final:<16}"
            f"{ {True: 'same', False: 'DIFFERENT', None: 'not run'}[found['undisturbed_twice_same']]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starling", required=True, help="the command")
    parser.add_argument("--venv", default="build", help="folder with torchft/ and horovod/, both venvs")
    parser.add_argument("--only", default=",".join(SYSTEMS))
    parser.add_argument("--settings", choices=SETTINGS, default="fast")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="a second undisturbed run of each system")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--keep-log", help="where the log of a system that broke is copied")
    options = parser.parse_args()
    systems = options.only.split(",")
    if not set(systems) <= set(SYSTEMS):
        sys.exit(f"compare_elastic: --only takes {', '.join(SYSTEMS)}, not {options.only}")
    options.starling = os.path.abspath(options.starling)
    venv = os.path.abspath(options.venv)
    options.torchft_python = os.path.join(venv, "torchft", "bin", "python")
    options.horovod_python = os.path.join(venv, "horovod", "bin", "python")
    kills = 1 if options.quick else options.kills
    if kills < 1:
        sys.exit("compare_elastic: --kills takes 1 or more")
    steps = FIRST_KILL + BETWEEN_KILLS * (kills - 1) + AFTER_KILLS
    draw = random.Random(options.seed)
    schedule = [(FIRST_KILL + BETWEEN_KILLS * i, draw.randrange(WORKERS), draw.random() * 0.1) for i in range(kills)]

    needs = {"starling": (options.torchft_python, "torch", os.path.join(venv, "torchft.log")),
             "torchft": (options.torchft_python, "torchft", os.path.join(venv, "torchft.log")),
             "horovod": (options.horovod_python, "horovod.torch", os.path.join(venv, "horovod.log"))}
    results = {}
    for name in systems:
        why = missing(*needs[name])
        if why:
            results[name] = {"not_installed": why}
    present = [name for name in systems if name not in results]
    found_versions = versions(options, present)
    for text in found_versions.values():
        say(text)
    plain = len(code_lines(os.path.join(HERE, "model.py"), "plain"))
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {WORKERS} workers, {steps} steps of {WORKERS}"
        f" micro-batches, {kills} kill{'s' if kills > 1 else ''}, settings {options.settings};"
        f" without any of them the script has {plain} lines")
    say("                                 micro-batches of each kill, mean   pause, ms        final parameters")
    say("             lines  kills  step ms thrown away   skipped  repeated  median     max   as undisturbed"
        " undisturbed twice")
    for name in systems:
        if name not in present:
            say(f"  {name}: not installed: {results[name]['not_installed']}")
            continue
        make = {"starling": Starling, "torchft": Torchft, "horovod": Horovod}[name]
        try:
            alone = run(make, options, steps, [])
            again = run(make, options, steps, []) if options.again else None
            disturbed = run(make, options, steps, schedule)
            if not disturbed["kills"]:
                raise Broken("nobody could be killed before the end")
            results[name] = {"version": found_versions[name], "lines": lines_of(name), 
                             **judge(disturbed, alone, again)}
        except Broken as error:
            say(f"  {name}: {error}")
            results[name] = {"broken": str(error)}
            continue
        say(table_row(name, results[name]))
    if any("kills" in found for found in results.values()):
        say("""thrown away: computed, and in no step; skipped: not in a step that was due to have them, mostly while a
worker is missing; repeated: of samples that another step has had. Taken off, as an undisturbed run has them too:""")
    for name, found in results.items():
        if "kills" in found:
            usual = found["micro_batches"]["undisturbed"]
            say(f"  {name}: {usual['thrown_away']} thrown away, {usual['skipped']} skipped,"
                f" {usual['repeated']:.0f} repeated")
    say("pause: longest distance of two commits from a kill to the next, less the median step with everybody")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump({"steps": steps, "workers": WORKERS, "settings": options.settings, "cores": os.cpu_count(),
                       "systems": results}, stream, indent=1)
    if not present:
        return 2
    return 1 if any("broken" in found for found in results.values()) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
