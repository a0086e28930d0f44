#!/usr/bin/env python3
"""What a worker's memory is for: resident bytes in the middle of a run beside what the arrays take.

Each case is a run of the synthetic model on this machine; every worker's /proc/PID/status is read a few
times while steps pass. The arrays are 8 + 16 h bytes a parameter, h the copies that a worker holds
((1 + replicas) / workers, at most 1), and for each compute thread the gradient of the largest part.
Resident beyond that are the program's pages, threads, and frames on their way.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

def largest_part(parameters):
    """Elements, of kernels/models/synthetic.cpp."""
    c = int((parameters / 48) ** 0.5)
    rows = (parameters - 3 * (12 * c * c + 9 * c)) // c
    return max(8 * c * c + 5 * c, min(rows * c, (32 << 20) // 4))


def expected_mb(parameters, workers, threads, replicas):
    held = min(replicas + 1, workers) / workers
    return ((8 + 16 * held) * parameters + 4 * threads * largest_part(parameters)) / 1e6


def status_of(pid):
    """VmHWM, RssAnon and RssFile, MB."""
    found = {}
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in ("VmHWM", "RssAnon", "RssFile"):
                found[name] = int(value.split()[0]) * 1024 / 1e6
    return found


def measure(starling, parameters, workers, threads, steps, replicas):
    """What the workers have at most, after the first steps: the least, median and most, and medians of the rest."""
    with tempfile.TemporaryDirectory() as folder:
        job, out = os.path.join(folder, "job.toml"), os.path.join(folder, "out")
        with open(job, "w", encoding="utf-8") as file:
            file.write(f'[job]\nname = "memory"\nsteps = {steps}\nmicro_batches = {workers * threads}\n'
                       f'replicas = {replicas}\n'
                       f'[model]\nkind = "synthetic"\nparameters = {parameters}\ncompute_ms = 200\n'
                       '[optimizer]\nkind = "adamw"\npeak_rate = 1e-3\n'
                       '[elastic]\nshares = "equal"\n')
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            run = subprocess.Popen([starling, "run", job, "--workers", str(workers), "--threads", str(threads),
                                    "--out", out], stdout=log, stderr=subprocess.STDOUT)
            resident, peak, pages = {}, {}, 0
            while run.poll() is None:
                time.sleep(0.1)
                try:
                    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as stream:
                        events = [json.loads(line) for line in stream if line.endswith("\n")]
                except OSError:
                    continue
                if sum(e["ev"] == "step" for e in events) < 5:
                    continue
                for pid in (e["pid"] for e in events if e["ev"] == "worker" and e["what"] == "joined"):
                    try:
                        now = status_of(pid)
                    except OSError:
                        continue  # it has ended
                    if len(now) == 3:
                        resident[pid] = max(resident.get(pid, 0), now["RssAnon"])
                        peak[pid] = now["VmHWM"]
                        pages = max(pages, now["RssFile"])
            if run.returncode != 0 or len(resident) != workers:
                log.seek(0)
                raise SystemExit(f"worker_memory: the run ended with {run.returncode}:\n{log.read()}")
    kept = sorted(resident.values())
    return kept[0], statistics.median(kept), kept[-1], statistics.median(peak.values()), pages


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starling", default="build/release/starling")
    parser.add_argument("--parameters", default="10000000,124000000")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", default="1,8")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    print(f"{arguments.workers} workers, {arguments.replicas} replicas, MB of a worker: what arrays take, anonymous pages")
    print("parameters  threads   arrays  least  median    most  ratio  program's pages  peak of all")
    for parameters in map(int, arguments.parameters.split(",")):
        for threads in map(int, arguments.threads.split(",")):
            expected = expected_mb(parameters, arguments.workers, threads, arguments.replicas)
            least, median, most, peak, pages = measure(arguments.starling, parameters, arguments.workers, threads,
                                                       arguments.steps, arguments.replicas)
            print(f"{parameters:>10}{threads:>9}{expected:>9.0f}{least:>7.0f}{median:>8.0f}{most:>8.0f}"
                  f"{median / expected:>7.2f}{pages:>17.0f}{peak:>13.0f}", flush=True)


if __name__ == "__main__":
    main()
