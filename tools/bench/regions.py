#!/usr/bin/env python3
"""What a step takes where workers are in two regions with a slow link between them, for each of some jobs.

Each worker, and the coordinator (of the first region), has a network namespace of its own, as in slow_link.py. Packets within a region
pass as fast as this machine lets them; those between the regions share one line of so many Mb/s each way, and are late. The line
counts its bytes. --kill has a worker of the second region killed and another one begun; --cut has no packet pass between the regions
for so long. Needs root and /dev/net/tun. Prints a row of a table for each job, with the digest.

  sudo tools/bench/regions.py build/release/starling a.toml b.toml --workers 2 --rate-mbit 100 --delay-ms 50
"""
import argparse
import collections
import contextlib
import heapq
import json
import mmap
import os
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import slow_link
from slow_link import MTU, PORT

QUEUE_S = 0.2  # of the line between the regions; what does not fit is lost, as at a router


class Line:
    """What the carrier and this process say to each other: bytes between the regions, and whether they are cut."""

    def __init__(self):
        self._memory = mmap.mmap(-1, 16)

    def count(self, size):
        struct.pack_into("Q", self._memory, 0, self.bytes() + size)

    def bytes(self):
        return struct.unpack_from("Q", self._memory, 0)[0]

    def cut(self, is_cut):
        struct.pack_into("Q", self._memory, 8, is_cut)

    def is_cut(self):
        return struct.unpack_from("Q", self._memory, 8)[0] != 0


def carry(tuns, regions, line, bytes_per_s, delay_s):
    """Carries packets until it is killed. Machine i has address 10.78.0.(i + 1) and lies in regions[i]."""
    busy = [0.0, 0.0]  # until when the line is, by the region that sends
    under_way, order = [], 0
    waiting = [collections.deque() for _ in tuns]  # of one region: what a machine did not take at once
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, machine, packet = heapq.heappop(under_way)
            waiting[machine].append(packet)
        for machine, packets in enumerate(waiting):
            with contextlib.suppress(BlockingIOError):
                while packets:
                    os.write(tuns[machine], packets[0])
                    packets.popleft()
        wait = max(0.0, under_way[0][0] - now) if under_way else None
        if any(waiting):
            wait = 0.001
        readable, _, _ = select.select(tuns, [], [], wait)
        for machine, tun in enumerate(tuns):
            if tun not in readable:
                continue
            try:
                packet = os.read(tun, MTU + 64)
            except BlockingIOError:
                continue
            to = packet[19] - 1 if packet[0] >> 4 == 4 else -1  # IPv4's destination
            if not 0 <= to < len(tuns):
                continue
            region = regions[machine]
            if region == regions[to]:
                waiting[to].append(packet)
                continue
            now = time.monotonic()
            if line.is_cut() or busy[region] - now > QUEUE_S:
                continue
            busy[region] = max(now, busy[region]) + len(packet) / bytes_per_s
            line.count(len(packet))
            order += 1
            heapq.heappush(under_way, (busy[region] + delay_s, order, to, packet))


class Regions(slow_link.Machines):
    """Machine 0 has the coordinator; the others have workers, the first half of them beside it."""

    def __init__(self, workers, rate_mbit, delay_ms):
        self.line = Line()
        self.of = [0] + [i // workers for i in range(2 * workers)]
        self._rate, self._delay = rate_mbit * 1e6 / 8, delay_ms / 1e3
        super().__init__(2 * workers + 1, 0, 0)

    def carry(self, tuns):
        carry(tuns, self.of, self.line, self._rate, self._delay)


def events_of(out):
    with contextlib.suppress(OSError):
        with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as stream:
            return [json.loads(line) for line in stream if line.endswith("\n")]
    return []


def run(starling, machines, job, options):
    """Returns (ms of a step, bytes between the regions in one, tokens in one, digest, lines of what happened)."""
    workers = len(machines.of) - 1
    with tempfile.TemporaryDirectory(prefix="starling-regions-") as folder, contextlib.ExitStack() as stack:
        keys, out = os.path.join(folder, "keys"), os.path.join(folder, "out")
        subprocess.run([starling, "keys", "--out", keys, "--workers", str(workers + 1)], check=True, stdout=subprocess.DEVNULL)
        at = f"{machines.address(0)}:{PORT}"

        def begin(machine, *words):
            log = stack.enter_context(open(os.path.join(folder, f"{len(processes)}.log"), "w+", encoding="utf-8"))
            processes.append(subprocess.Popen(machines.inside(machine) + [starling, *words], stdout=log, stderr=subprocess.STDOUT))
            stack.callback(processes[-1].kill)
            return processes[-1]
        processes = []
        first = begin(0, "coordinator", "--job", job, "--keys", keys, "--listen", f"tcp://{at}", "--workers", str(workers), "--state",
                      os.path.join(folder, "state"), "--out", out, "--new")
        worker = ("worker", "--join", at, "--keys", keys, "--notices", "none", "--save", "none", "--quiet")
        members = [begin(i + 1, *worker) for i in range(workers)]
        said, marks, healed = [], [], None
        kill, cut = options.kill, options.cut
        while first.poll() is None:
            time.sleep(0.05)
            events = events_of(out)
            steps = [e["version"] for e in events if e["ev"] == "step"]
            if steps and (not marks or marks[-1][0] != steps[-1]):
                marks.append((steps[-1], time.monotonic(), machines.line.bytes()))
            if kill and len(steps) > options.steps_before:
                members[-1].kill()
                begin(workers, *worker)
                said.append(f"a worker of the second region was killed at step {steps[-1]}, another one joined")
                kill = False
            if cut and len(steps) > 2 * options.steps_before:
                machines.line.cut(True)
                healed, cut = time.monotonic() + cut, 0
                said.append(f"no packet passed between the regions for {options.cut:g} s from step {steps[-1]} on")
            if healed and time.monotonic() > healed:
                machines.line.cut(False)
                healed = None
        machines.line.cut(False)
        events = events_of(out)
        done = [e for e in events if e["ev"] == "done"]
        if first.returncode != 0 or not done:
            sys.exit(f"regions: {job} ended with {first.returncode}: {open(os.path.join(folder, '0.log'), encoding='utf-8').read()}")
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
        start = next(e for e in events if e["ev"] == "start")
        times = [e["t"] for e in events if e["ev"] == "step"]
        between = [b - a for a, b in zip(times, times[1:])][1:]
        (v0, _, b0), (v1, _, b1) = marks[min(1, len(marks) - 1)], marks[-1]
        return 1e3 * statistics.median(between), (b1 - b0) / max(v1 - v0, 1), start["tokens_per_step"], done[0]["digest"], said, \
            times[-1] - times[0], len(times) - 1


def local_steps_of(job):
    with open(job, encoding="utf-8") as file:
        found = re.search(r"(?ms)^\[local\].*?^steps = (\d+)", file.read())
    return int(found[1]) if found else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("jobs", nargs="+", help="job files")
    parser.add_argument("--workers", type=int, default=2, help="in each region")
    parser.add_argument("--rate-mbit", type=float, default=100, help="of the line between the regions, each way")
    parser.add_argument("--delay-ms", type=float, default=25, help="of each packet, each way")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--cut", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--steps-before", type=int, default=3, help="a kill; twice as many before a cut")
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        sys.exit("regions: needs root and /dev/net/tun")
    machines = Regions(options.workers, options.rate_mbit, options.delay_ms)
    try:
        print(f"two regions of {options.workers} workers; {options.rate_mbit:g} Mb/s and {options.delay_ms:g} ms each way between them")
        print("| job | a step | .. a local step | tokens/s | between the regions, a step | .. a local step | digest |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for job in options.jobs:
            ms, sent, tokens, digest, said, whole, steps = run(options.starling, machines, job, options)
            local = local_steps_of(job)
            print(f"| {os.path.basename(job)} | {ms:.0f} ms | {ms / local:.0f} ms | {tokens * steps / whole:.0f} | {sent / 1e6:.2f} MB |"
                  f" {sent / local / 1e6:.3f} MB | {digest[:8]} |", flush=True)
            for line in said:
                print(f"  {line}", flush=True)
    finally:
        machines.close()


if __name__ == "__main__":
    main()
