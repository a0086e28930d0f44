"""The recovery table: drawn faults against drawn jobs of five models. Each run has to end with the digest, losses and
norms of an undisturbed one of a single worker, with every micro-batch once, and leave nothing behind.

    python3 tests/e2e/recovery_long.py build/release/starling --faults 1000 --seed 1

A run is a function of seed and number: --seed 1 --only 17 repeats it alone. A fault that a run ends before is not
counted. With --python an interpreter that has torch, scripts use torch and not its stand-in.
"""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import (PATIENCE, STARLING, Failed, Place, Run, alive, environment, processes_naming, require, wait_until)
from transport_kills_long import Story, guard_of
from recovery_jobs import drawn, in_words, models, text_of

OWN = os.path.join(os.path.dirname(STARLING), "tests", "own")
# Kinds of faults, as the table's columns name them.
KINDS = {"kill": "worker killed", "guard": "guard killed", "child": "script's process killed", "freeze": "worker frozen",
         "leave": "leave", "join": "join", "coordinator": "coordinator killed",
         "everything": "all killed, resumed"}
PATIENT = 900  # seconds for what a busy machine may take long for: only a failing run waits so long
LOSING = ("kill", "freeze", "leave")  # a worker's copies go
FREEZE_S = (2.2, 4.0)  # longer than the lease


class Over(Exception):
    """The run has ended before the next fault."""


def drawn_faults(draw, model, steps, how):
    """Groups of kinds that come at once, each with its step."""
    kinds = ["kill", "kill", "freeze", "leave", "join", "join", "guard"]
    kinds += ["child"] * 3 if model.child else []
    kinds += ["coordinator"] * 2 if how["coordinators"] > 1 else []
    at = sorted(draw.randrange(steps // 20, steps * 3 // 4) for _ in range(draw.randrange(6, 11)))
    groups = [(step, [draw.choice(kinds) for _ in range(draw.choice([1, 1, 2]))]) for step in at]
    if draw.random() < 0.4:
        middle = draw.randrange(len(groups))
        groups[middle] = (groups[middle][0], ["everything"])
    return groups


class Disturbed:
    """One job under its faults; `run` is its newest run, which goes on from where the one before was killed."""

    def __init__(self, place, model, job, sections, how, draw):
        self.place, self.model, self.job, self.sections, self.how, self.draw = place, model, job, sections, how, draw
        self.faults, self.guardless, self.runs = [], set(), []
        self.since = 0  # the step of the last fault
        self.start()

    def start(self, *options):
        how = self.how
        self.run = self.place.run(self.job, "--workers", how["workers"], "--threads", how["threads"], "--coordinators",
                                  how["coordinators"], *options)
        self.story, self.going = Story(self.run), set()  # ids of workers that were killed or told to leave
        self.runs.append(self.run)

    def wait(self, condition, what):
        """Raises Over where the run is over first."""
        def look():
            over = self.run.process.poll() is not None
            if not condition() and over:
                raise Over()
            return condition()
        wait_until(look, what, PATIENT)

    def step(self):
        steps = self.story.read("step")
        return steps[-1]["version"] + 1 if steps else 0

    def settled(self):
        """Three steps of all who are there: what copies a loss took are made again."""
        epochs, steps, there = self.story.read("epoch"), self.story.read("step"), self.story.there()
        if not epochs or len(epochs[-1]["members"]) != len(there) or self.step() < self.since + 3 or \
                self.going & {w["id"] for w in there}:
            return False
        return len(steps) > 3 and all(s["epoch"] == epochs[-1]["id"] for s in steps[-3:])

    def victim(self):
        there = [w for w in self.story.there() if alive(w["pid"]) and w["id"] not in self.going]
        if not there:
            raise Over()
        return self.draw.choice(there)

    def with_state(self):
        """How many have a copy of the state that stay: a joiner has none until an epoch says so."""
        members = {m["id"] for m in self.story.read("epoch")[-1]["members"] if not m["joiner"]}
        return len([w for w in self.story.there()
                    if w["id"] in members and w["id"] not in self.going and alive(w["pid"])])

    def disturb(self, groups):
        with_losses = min(self.sections["job"]["replicas"], 2)
        try:
            for step, kinds in groups:
                self.wait(lambda s=step: self.step() >= s, f"step {step}")
                self.wait(self.settled, f"everybody computes, at step {self.step()}")
                losses, frozen = 0, []
                for kind in kinds:
                    if kind in LOSING:
                        if losses == with_losses or self.with_state() < 2:
                            kind = "join"
                        else:
                            losses += 1
                    if self.run.process.poll() is not None or self.step() == self.model.steps:
                        raise Over()
                    self.faults.append({"kind": kind, "step": self.step(), "run": len(self.runs)})
                    getattr(self, kind)(frozen)
                self.thaw(frozen)
                self.since = self.step()
        except Over:
            pass

    # Faults. A process that is to be hit may have ended by itself.
    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            self.faults.pop()

    def kill(self, _):
        worker = self.victim()
        self.going.add(worker["id"])
        self.signal(worker["pid"], signal.SIGKILL)

    def leave(self, _):
        worker = self.victim()
        self.going.add(worker["id"])
        self.signal(worker["pid"], signal.SIGTERM)

    def freeze(self, frozen):
        worker = self.victim()
        self.signal(worker["pid"], signal.SIGSTOP)
        frozen.append((worker["pid"], time.monotonic() + self.draw.uniform(*FREEZE_S)))

    def thaw(self, frozen):
        for pid, until in frozen:
            while time.monotonic() < until and self.run.process.poll() is None:
                time.sleep(0.01)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def guard(self, _):
        with_guards = [w for w in self.story.there() if alive(w["pid"]) and w["pid"] not in self.guardless]
        guards = {guard_of(w["pid"]): w["pid"] for w in with_guards} if with_guards else {}
        if not guards:
            self.faults.pop()
            return
        guard = self.draw.choice(sorted(guards))
        self.guardless.add(guards[guard])
        self.signal(guard, signal.SIGKILL)

    def child(self, _):
        children = harness.children_of(self.victim()["pid"])
        if not children:
            self.faults.pop()
            return
        self.signal(self.draw.choice(children), signal.SIGKILL)

    def join(self, _):
        self.run.join("--save", "none", "--threads", str(self.how["threads"]))

    def coordinator(self, _):
        there = lambda: processes_naming(self.run.out + "/coordinator-")
        self.wait(lambda: len(there()) == self.how["coordinators"], "the coordinators")
        self.signal(self.draw.choice(sorted(there())), signal.SIGKILL)

    def everything(self, _):
        self.wait(lambda: self.story.read("checkpoint"), "a checkpoint")
        while processes_naming(self.run.out):
            for pid in processes_naming(self.run.out):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.run.process.wait(PATIENCE)
        for joiner in self.run.joiners:
            joiner.wait(PATIENCE)
        self.start("--resume")

    def end(self):
        self.run.end(seconds=PATIENT)
        for joiner in self.run.joiners:
            joiner.wait(PATIENT)
        wait_until(lambda: not processes_naming(self.run.out), "the end of all processes")

    def require_the_bits_of(self, quiet):
        done, wanted = self.run.events("done"), quiet.events("done")[0]["digest"]
        require(len(done) == 1 and done[0]["digest"] == wanted, f"done {done}, undisturbed {wanted}")
        begun = self.run.events("start")[0].get("from") or 0
        require(self.run.losses() == quiet.losses()[begun:], "losses or norms of steps differ")
        audit = subprocess.run([self.model.program, "audit", self.run.out, quiet.out], capture_output=True, text=True)
        require(audit.returncode == 0, f"audit: {audit.stdout}{audit.stderr}")


def one_run(place, model, draw, record):
    sections, how = drawn(model, draw, place)
    groups = drawn_faults(draw, model, model.steps, how)
    place.count += 1
    if draw.random() < 0.3 or any("everything" in kinds for _, kinds in groups):
        sections["checkpoint"] = {"dir": place.path(f"checkpoints-{place.count}"), "every": model.steps // 16}
    plain = {name: keys for name, keys in sections.items() if name != "checkpoint"}
    jobs = []
    for text in (text_of(plain), text_of(sections)):
        place.count += 1
        jobs.append(place.path(f"drawn-{place.count}.toml"))
        with open(jobs[-1], "w") as file:
            file.write(text)
    record.update(model=model.name, job=in_words(sections, how), keys=sections, drawn=groups, faults=[])
    with environment(**model.variables):
        quiet = place.run(jobs[0], "--workers", 1).end(seconds=PATIENT)
        disturbed = Disturbed(place, model, jobs[1], sections, how, draw)
        record["faults"] = disturbed.faults
        disturbed.disturb(groups)
        disturbed.end()
    disturbed.require_the_bits_of(quiet)
    shutil.rmtree(sections.get("checkpoint", {}).get("dir", ""), ignore_errors=True)


def kept(place, folder, number):
    """What a run that failed has left, for whoever looks into it."""
    if folder:
        shutil.copytree(place.folder, os.path.join(folder, f"run-{number}"), dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("checkpoints-*"))


def table(runs, rows):
    """Markdown: of each model and kind of faults how many of the runs with such a fault held; and all."""
    used = [kind for kind in KINDS if any(f["kind"] == kind for run in runs for f in run["faults"])]
    lines = ["| model | runs held | faults | " + " | ".join(KINDS[kind] for kind in used) + " |",
             "| --- |" + " --- |" * (len(used) + 2)]

    def share(of):
        return f"{sum(run['held'] for run in of)}/{len(of)}"

    for name, of in [(row, [run for run in runs if run["model"] == row]) for row in rows] + [("all", runs)]:
        cells = []
        for kind in used:
            hit = [run for run in of if any(f["kind"] == kind for f in run["faults"])]
            count = sum(f["kind"] == kind for run in of for f in run["faults"])
            cells.append(f"{share(hit)} ({count})" if hit else "")
        lines.append(f"| {name} | {share(of)} | {sum(len(run['faults']) for run in of)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this run alone")
    parser.add_argument("--first", type=int, default=0, help="begin with this run")
    parser.add_argument("--minutes", type=float, help="no new run after so long")
    parser.add_argument("--json", help="every run with its keys and faults")
    parser.add_argument("--keep", help="folder for what failed runs leave")
    parser.add_argument("--own", default=OWN, help="the program of examples/own")
    parser.add_argument("--python", default=os.environ.get("PYTHON"), help="an interpreter that has torch")
    options = parser.parse_args()
    rows = models(os.path.abspath(options.own), options.python)
    runs, begun = [], time.monotonic()
    number = options.only or options.first
    while options.only is not None and not runs or options.only is None and \
            sum(len(run["faults"]) for run in runs) < options.faults and \
            not (options.minutes and time.monotonic() - begun > 60 * options.minutes):
        model, draw, record = rows[number % len(rows)], random.Random(f"{options.seed}/{number}"), {}
        since, place, why = time.monotonic(), Place(), None
        harness.STARLING = model.program
        try:
            one_run(place, model, draw, record)
        except Exception as error:  # whatever it is, the next run is made
            why = f"{type(error).__name__}: {error}" if not isinstance(error, Failed) else str(error)
            kept(place, options.keep, number)
        try:
            place.close()
        except Failed as error:
            why = why or str(error)
        record = {"number": number, "model": model.name, "faults": [], **record, "held": why is None, "why": why,
                  "seconds": round(time.monotonic() - since, 1)}
        runs.append(record)
        said = ", ".join(f"{f['kind']}@{f['step']}" for f in record["faults"])
        print(f"{'ok     ' if not why else 'FAILED '} --seed {options.seed} --only {number}: {model.name}: "
              f"{record.get('job')}; {said} ({record['seconds']} s){': ' + why if why else ''}", flush=True)
        number += 1
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"seed": options.seed, "runs": runs}, file, indent=1)
    faults = collections.Counter(f["kind"] for run in runs for f in run["faults"])
    print(table(runs, [row.name for row in rows]))
    print(f"{sum(faults.values())} faults in {time.monotonic() - begun:.0f} s, seed {options.seed}")
    failed = sum(not run["held"] for run in runs)
    print(f"{len(runs) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
