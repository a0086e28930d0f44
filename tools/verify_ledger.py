#!/usr/bin/env python3
"""Checks from outside that a run counted every micro-batch exactly once.

    python3 verify_ledger.py DIR [--partial]

Reads DIR/events.jsonl (or the file itself) and checks that
  - there is one `start`, first, and it says steps and micro_batches;
  - the versions of `step` events are contiguous, each exactly once;
  - each has exactly one `ledger` (after a `restart` from before it one more, which counts instead),
    with every micro-batch 0 .. M-1 exactly once, each by a worker that some `epoch` event names;
  - no ledger is of a version that was not committed;
  - there is one `done`, last, at the job's number of steps (not with --partial: a run that was
    ended early).
Prints one line; exit code 0 if all holds, 1 if not, 2 if the file cannot be read.
"""
import json
import os
import sys


class Broken(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Broken(text)


def natural(value, text):
    require(isinstance(value, int) and not isinstance(value, bool) and value >= 0,
            f"{text} must be a whole number, is {value!r}")
    return value


def read(path):
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            require(raw.endswith(b"\n"), f"line {number} is cut")
            try:
                event = json.loads(raw)
            except ValueError:
                raise Broken(f"line {number} is not JSON") from None
            require(isinstance(event, dict) and isinstance(event.get("ev"), str),
                    f"line {number} is no event")
            yield number, event


def ledger_of(event, where, count):
    rows = event.get("workers")
    require(isinstance(rows, list) and all(isinstance(r, list) and len(r) == 2 for r in rows),
            f"{where}: workers must be pairs")
    seen = {}
    for micro_batch, worker in rows:
        natural(micro_batch, f"{where}: micro-batch")
        natural(worker, f"{where}: worker")
        require(micro_batch < count, f"{where}: micro-batch {micro_batch} of {count}")
        require(micro_batch not in seen, f"{where}: micro-batch {micro_batch} counted twice")
        seen[micro_batch] = worker
    missing = sorted(set(range(count)) - set(seen))
    require(not missing, f"{where}: micro-batches {missing} missing")
    return set(seen.values())


def verify(path, partial):
    start = done = None
    steps, ledgers, known, workers = set(), set(), set(), set()
    undone = set()  # ledgers of steps that are to be done again
    for number, event in read(path):
        where, kind = f"line {number}", event["ev"]
        require((start is None) == (kind == "start"), f"{where}: `start` must be first and once")
        require(done is None, f"{where}: {kind} after `done`")
        if kind == "start":
            start = event
            natural(event.get("steps"), f"{where}: steps")
            natural(event.get("micro_batches"), f"{where}: micro_batches")
        elif kind == "epoch":
            known.update(natural(m.get("id"), f"{where}: id") for m in event.get("members", []))
        elif kind == "step":
            version = natural(event.get("version"), f"{where}: version")
            require(version not in steps, f"{where}: step {version} committed twice")
            steps.add(version)
        elif kind == "ledger":
            version = natural(event.get("version"), f"{where}: version")
            require(version not in ledgers, f"{where}: two ledgers of step {version}")
            ledgers.add(version)
            workers |= ledger_of(event, f"{where}, step {version}", start["micro_batches"])
        elif kind == "restart":
            version = natural(event.get("version"), f"{where}: version")
            undone |= {v for v in ledgers if v >= version}
            ledgers = {v for v in ledgers if v < version}
        elif kind == "done":
            done = event
    require(start is not None, "no `start`")
    require(steps, "no step was committed")
    first, end = min(steps), max(steps) + 1
    missing = sorted(set(range(first, end)) - steps)
    require(not missing, f"versions {missing[:8]} missing between {first} and {end}")
    if partial:
        ledgers |= undone
    require(not steps - ledgers, f"no ledger of steps {sorted(steps - ledgers)[:8]}")
    require(not ledgers - steps, f"ledgers of steps never committed: {sorted(ledgers - steps)[:8]}")
    require(workers <= known, f"workers {sorted(workers - known)} were in no epoch")
    if not partial:
        require(done is not None, "no `done`")
        require(done.get("version") == end == start["steps"],
                f"done at version {done.get('version')}, steps up to {end}, job has {start['steps']}")
    return (f"{path}: steps {first} to {end - 1}, each with its {start['micro_batches']} micro-batches "
            f"once, by {len(workers)} workers")


def main(arguments):
    paths = [a for a in arguments if a != "--partial"]
    if len(paths) != 1 or paths[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    path = os.path.join(paths[0], "events.jsonl") if os.path.isdir(paths[0]) else paths[0]
    try:
        print("ok: " + verify(path, "--partial" in arguments))
        return 0
    except Broken as broken:
        print(f"WRONG: {path}: {broken}")
        return 1
    except OSError as error:
        print(f"cannot read {path}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
