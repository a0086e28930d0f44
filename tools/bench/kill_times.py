#!/usr/bin/env python3
"""What a kill -9 costs, and whether it changes a bit.

Runs a job once undisturbed, then N times with one worker, drawn at random, killed at a random moment
after the first step. Each run must end with the undisturbed run's digest and with every (step,
micro-batch) pair once in its ledger. Prints where the time went, as medians and worst cases:

  guard   from the kill to a coordinator's word that the worker is lost, which its guard told
  peers   from the kill to the stop of the member that went on first
  detect  first notice anywhere to Freeze sent      form  to the plan committed
  resume  to the next committed step                commit  from the kill to it
  gap     distance of the commits around the kill   step    median step of the same run before the kill
  device  from the kill to the next step whose bytes went from device to device, if any did

  tools/bench/kill_times.py build/release/starling examples/gpt/tiny.toml --workers 4 --kills 20
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time


def events(folder):
    path = pathlib.Path(folder, "events.jsonl")
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def of_kind(folder, kind):
    return [e for e in events(folder) if e["ev"] == kind]


def start(args, folder, workers, *more):
    command = [args.starling, "run", args.job, "--workers", str(workers), "--steps",
               str(args.steps), "--threads", "1", "--respawn", "0", "--out", str(folder), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def digest(folder):
    done = of_kind(folder, "done")
    return done[-1]["digest"] if done else None


def steps_committed(folder):
    return len(of_kind(folder, "step"))


def device_steps(folder, killed_at):
    """Before and after the kill: steps whose bytes went from device to device."""
    direct = [e["t"] > killed_at for e in of_kind(folder, "step") if e.get("direct")]
    return len(direct) - sum(direct), sum(direct)


def ledger_holds(folder):
    script = pathlib.Path(__file__).resolve().parent.parent / "verify_ledger.py"
    return subprocess.run([sys.executable, script, folder], stdout=subprocess.DEVNULL).returncode == 0


def disturb(run, folder, draw, victims):
    """Waits for a drawn step and a drawn part of it, then kills. Returns the kill's time on the
    events' clock."""
    at = draw.randrange(2, max(3, draw.steps - 3))
    while steps_committed(folder) < at and run.poll() is None:
        time.sleep(0.005)
    begun = of_kind(folder, "start")[0]["monotonic_ns"]
    joined = [e for e in of_kind(folder, "worker") if e["what"] == "joined"]
    steps = of_kind(folder, "step")
    typical = statistics.median(e["ms"] for e in steps[1:] or steps)
    time.sleep(draw.random() * typical / 1000)
    chosen = draw.sample(joined, victims)
    now = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begun) / 1e9
    for victim in chosen:
        os.kill(victim["pid"], signal.SIGKILL)
    return now, [v["name"] for v in chosen]


def measure(folder, killed_at):
    steps = of_kind(folder, "step")
    before = [e["t"] for e in steps if e["t"] <= killed_at]
    after = [e["t"] for e in steps if e["t"] > killed_at]
    forced = [e for e in of_kind(folder, "epoch") if e["kind"] == "forced"]
    if not before or not after or not forced:
        return None
    times = sorted(before)
    typical = statistics.median(b - a for a, b in zip(times, times[1:])) if len(times) > 2 else 0
    gaps = sorted(before)[-1:] + sorted(after)
    longest = max(b - a for a, b in zip(gaps[:4], gaps[1:5]))
    first = forced[0]
    told = [e["t"] for e in of_kind(folder, "worker") if e["what"] == "lost" and e["phase"] is not None]
    # The line of an epoch is written when its first member has gone on, so its stop was its pause before.
    stopped = first["t"] - sum(first["pause"].values()) / 1000 if first["pause"] else None
    committed = [e["t"] for e in steps if e["epoch"] == first["id"]]
    since = lambda times: 1000 * (min(times) - killed_at) if times else None
    direct = [e["t"] for e in steps if e.get("direct") and e["t"] > killed_at]
    return {"guard": since(told), "peers": since([stopped] if stopped else []),
            "detect": first["detect_ms"], "form": first["form_ms"], "resume": first["resume_ms"],
            "commit": since(committed), "device": since(direct), "gap": 1000 * longest, "step": 1000 * typical}


def shown(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("job")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kills", type=int, default=20, help="runs with a kill")
    parser.add_argument("--at-once", type=int, default=1, help="workers killed in one instant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quiet-transport", choices=("auto", "tcp", "nccl"), default="auto",
                        help="starling run --transport of the undisturbed run")
    parser.add_argument("--transport", choices=("auto", "tcp", "nccl"), default="auto",
                        help="the same of the runs with a kill")
    parser.add_argument("--json", metavar="FILE", help="the figures as one JSON object as well")
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="starling-kills-"))
    draw = random.Random(args.seed)
    draw.steps = args.steps
    bad, rows, direct, paths = 0, [], [], []
    try:
        quiet = start(args, work / "quiet", args.workers, "--transport", args.quiet_transport)
        if quiet.wait() != 0:
            print(quiet.stderr.read(), file=sys.stderr)
            return 2
        expected = digest(work / "quiet")
        print(f"undisturbed: {expected}")
        for i in range(args.kills):
            folder = work / str(i)
            run = start(args, folder, args.workers, "--transport", args.transport)
            while not of_kind(folder, "step") and run.poll() is None:
                time.sleep(0.02)
            killed_at, names = disturb(run, folder, draw, args.at_once)
            errors = run.communicate()[1]
            same = digest(folder) == expected
            whole = ledger_holds(folder)
            row = measure(folder, killed_at)
            direct.append(device_steps(folder, killed_at))
            paths += of_kind(folder, "path")[-1:]
            held = run.returncode == 0 and same and whole
            bad += not held
            if row:
                rows.append(row)
            print(f"kill {i}: {', '.join(names)} after step {sum(1 for e in of_kind(folder, 'step') if e['t'] <= killed_at)}"
                  f"  digest {'same' if same else 'DIFFERS'}  ledger {'whole' if whole else 'BROKEN'}"
                  f"  exit {run.returncode}  epochs {len(of_kind(folder, 'epoch'))}  " +
                  ("  ".join(f"{k} {shown(v, 0)}" for k, v in row.items()) if row else "(no step after it)"), flush=True)
            if not held:
                print(errors, file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
        figures = {"kills": args.kills, "held": args.kills - bad, "digest": expected,
                   "device_steps": sum(before + after for before, after in direct),
                   "device_again": sum(before > 0 < after for before, after in direct),
                   "path": paths[-1]["why"] if paths else ""}
        if rows:
            print(f"{'ms':8} {'median':>8} {'worst':>8}   ({len(rows)} kills)")
            for row in rows:
                row["gap-step"] = row["gap"] - row["step"]
            for key in rows[0]:
                values = [r[key] for r in rows if r[key] is not None]
                median, worst = (statistics.median(values), max(values)) if values else (None, None)
                print(f"{key:8} {shown(median, 1):>8} {shown(worst, 1):>8}")
                figures[f"{key}_ms"], figures[f"{key}_ms_max"] = median, worst
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(figures) + "\n")
        print(f"{args.kills - bad} of {args.kills} runs ended with the same bits and a whole ledger")
        return 1 if bad else 0
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
