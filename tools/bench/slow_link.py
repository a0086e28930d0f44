#!/usr/bin/env python3
"""What a step takes where machines are joined by a slow link, and how much of the exchange is hidden.

Each worker, and the coordinator, has a network namespace of its own. Packets between them pass through
this script, which gives every machine a line of so many Gb/s in and out and delays each packet. That
needs root and /dev/net/tun, but no support of the kernel for delays. Each program runs the job twice:
with computing that takes no time, and with computing of --compute-ms a step. Then

  wire      what a worker sends in a step, divided by the line's rate: reduce and gather alone
  together  both runs' time beyond each other: (step without computing + computing) - (step with it)
  hidden    together / wire: 0 where bytes move before and after computing only, 1 where all of them
            move under it; less where the machine's cores are short

  sudo tools/bench/slow_link.py build/release/starling --parameters 10000000 --compute-ms 500
"""
import argparse
import contextlib
import csv
import ctypes
import fcntl
import heapq
import json
import os
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
MTU = 65000  # one read and one write a packet: fewer of them leave the cores to the workers
QUEUE_S = 0.002  # of a line; then its machine waits, as for a network card
SKIPPED_STEPS = 3  # warm-up, not counted
PORT = 7000


def in_namespace(pid, action):
    """Returns action(), done in the network namespace of process `pid`."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path):
        with open(path, encoding="ascii") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns {path}")

    with open("/proc/self/ns/net", encoding="ascii") as ours:
        enter(f"/proc/{pid}/ns/net")
        try:
            return action()
        finally:
            enter(f"/proc/self/fd/{ours.fileno()}")


def open_tun():
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
    return tun


def forward(tuns, bytes_per_s, delay_s):
    """Carries packets until it is killed. Machine i has address 10.78.0.(i + 1)."""
    sends, receives = [0.0] * len(tuns), [0.0] * len(tuns)  # until when each line is busy
    under_way = []  # (when, order, machine, packet)
    order = 0
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, machine, packet = heapq.heappop(under_way)
            with contextlib.suppress(BlockingIOError):
                os.write(tuns[machine], packet)
        free = [i for i, until in enumerate(sends) if until - now < QUEUE_S]
        moments = [under_way[0][0]] if under_way else []
        moments += [until - QUEUE_S for until in sends if until - now >= QUEUE_S]
        wait = max(0.0, min(moments) - now) if moments else None
        readable, _, _ = select.select([tuns[i] for i in free], [], [], wait)
        for machine in free:
            if tuns[machine] not in readable:
                continue
            try:
                packet = os.read(tuns[machine], MTU + 64)
            except BlockingIOError:
                continue
            to = packet[19] - 1 if packet[0] >> 4 == 4 else -1  # IPv4's destination
            if not 0 <= to < len(tuns):
                continue
            took = len(packet) / bytes_per_s
            sends[machine] = max(time.monotonic(), sends[machine]) + took
            # The first byte comes `delay_s` after it left; two senders share the receiver's line.
            receives[to] = max(sends[machine] + delay_s, receives[to] + took)
            order += 1
            heapq.heappush(under_way, (receives[to], order, to, packet))


class Machines:
    """Namespaces that exist as long as their holders, and the process that carries their packets."""

    def __init__(self, count, rate_gbit, delay_ms):
        self._of_line = rate_gbit * 1e9 / 8, delay_ms / 1e3
        self.holders, tuns = [], []
        for i in range(count):
            holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo in; exec sleep 36000"],
                                      stdout=subprocess.PIPE, text=True)
            self.holders.append(holder)
            if holder.stdout.readline() != "in\n":
                sys.exit("slow_link: no network namespace (are you root?)")
            tuns.append(in_namespace(holder.pid, open_tun))
            subprocess.run(self.inside(i) + ["sh", "-ec", f"""ip link set lo up
                ip addr add {self.address(i)}/24 dev eth0
                ip link set eth0 mtu {MTU} txqueuelen 100 up"""], check=True)
        self.carrier = os.fork()
        if self.carrier == 0:
            try:
                self.carry(tuns)
            finally:
                os._exit(1)
        for tun in tuns:
            os.close(tun)

    def carry(self, tuns):
        forward(tuns, *self._of_line)

    @staticmethod
    def address(i):
        return f"10.78.0.{i + 1}"

    def inside(self, i):
        return ["nsenter", "--target", str(self.holders[i].pid), "--net"]

    def close(self):
        os.kill(self.carrier, signal.SIGKILL)
        os.waitpid(self.carrier, 0)
        for holder in self.holders:
            holder.kill()
            holder.wait()


def measure_link(machines):
    """(Gb/s of one TCP stream, ms of a round trip), as two programs on machines 0 and 1 see it."""
    listener = in_namespace(machines.holders[1].pid, lambda: socket.create_server((machines.address(1), PORT)))
    child = os.fork()
    if child == 0:
        peer, _ = listener.accept()
        for _ in range(20):
            peer.sendall(peer.recv(1))
        got = 0
        while got < (64 << 20):
            got += len(peer.recv(1 << 20))
        peer.sendall(b"x")
        os._exit(0)
    listener.close()
    line = in_namespace(machines.holders[0].pid, lambda: socket.create_connection((machines.address(1), PORT)))
    trips = []
    for _ in range(20):
        begun = time.monotonic()
        line.sendall(b"x")
        line.recv(1)
        trips.append(time.monotonic() - begun)
    begun = time.monotonic()
    line.sendall(bytes(64 << 20))
    line.recv(1)
    took = time.monotonic() - begun
    line.close()
    os.waitpid(child, 0)
    return (64 << 20) * 8 / took / 1e9, 1e3 * statistics.median(trips)


def write_job(folder, parameters, workers, compute_ms, steps):
    path = os.path.join(folder, "job.toml")
    with open(path, "w", encoding="utf-8") as job:
        job.write(f'[job]\nname = "link"\nsteps = {steps}\nmicro_batches = {workers}\n'
                  f'[model]\nkind = "synthetic"\nparameters = {parameters}\ncompute_ms = {compute_ms}\n'
                  '[optimizer]\nkind = "adamw"\npeak_rate = 1e-3\n')
    return path


def run(starling, machines, workers, parameters, compute_ms, steps):
    """Returns (median ms of a step, MB that the worker that sends most sends in a step)."""
    with tempfile.TemporaryDirectory(prefix="starling-link-") as folder:
        job = write_job(folder, parameters, workers, compute_ms, steps)
        keys, out = os.path.join(folder, "keys"), os.path.join(folder, "out")
        subprocess.run([starling, "keys", "--out", keys, "--workers", str(workers)], check=True,
                       stdout=subprocess.DEVNULL)
        at = f"{machines.address(0)}:{PORT}"
        commands = [[starling, "coordinator", "--job", job, "--keys", keys, "--listen", f"tcp://{at}", "--workers",
                     str(workers), "--state", os.path.join(folder, "state"), "--out", out, "--new"]]
        for i in range(workers):
            commands.append([starling, "worker", "--join", at, "--keys", keys, "--notices", "none", "--save", "none",
                             "--times", os.path.join(folder, f"{i}.csv"), "--quiet"])
        logs = [open(os.path.join(folder, f"{i}.log"), "w+", encoding="utf-8") for i in range(len(commands))]
        processes = [subprocess.Popen(machines.inside(i) + command, stdout=logs[i], stderr=subprocess.STDOUT)
                     for i, command in enumerate(commands)]
        try:
            codes = [process.wait(timeout=1800) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for code, command, log in zip(codes, commands, logs):
            log.seek(0)
            text = log.read()
            log.close()
            if code != 0:
                sys.exit(f"slow_link: {' '.join(command)} ended with {code}:\n{text}")
        with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as stream:
            at = [e["t"] for e in map(json.loads, stream) if e["ev"] == "step"]
        sent = []
        for i in range(workers):
            with open(os.path.join(folder, f"{i}.csv"), encoding="ascii") as stream:
                # Counted from the worker's beginning.
                totals = [int(row["sent_bytes"]) for row in csv.DictReader(stream)]
            sent.append(statistics.median(b - a for a, b in zip(totals, totals[1:])))
        steps = [b - a for a, b in zip(at, at[1:])][SKIPPED_STEPS - 1 :]
        return 1e3 * statistics.median(steps), max(sent) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling", nargs="+", help="program; several are run in turn")
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compute-ms", type=float, default=500, help="of a worker in a step")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rate-gbit", type=float, default=1)
    parser.add_argument("--delay-ms", type=float, default=1, help="of each packet, each way")
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun") or not shutil.which("nsenter"):
        sys.exit("slow_link: needs root, /dev/net/tun and nsenter")
    if options.steps < SKIPPED_STEPS + 2:
        sys.exit(f"slow_link: --steps is at least {SKIPPED_STEPS + 2}")
    machines = Machines(options.workers + 1, options.rate_gbit, options.delay_ms)
    try:
        rate, trip = measure_link(machines)
        print(f"{options.workers} workers, {options.parameters:,} parameters; each line {options.rate_gbit:g} Gb/s, "
              f"{options.delay_ms:g} ms each way (one stream {rate:.2f} Gb/s, round trip {trip:.1f} ms)")
        print("  ms: step without computing   computing   step with it   wire   together   hidden", flush=True)
        for _ in range(options.rounds):
            for starling in options.starling:
                bare, sent = run(starling, machines, options.workers, options.parameters, 0, options.steps)
                full, _ = run(starling, machines, options.workers, options.parameters, options.compute_ms,
                              options.steps)
                wire = sent * 8 / options.rate_gbit
                together = bare + options.compute_ms - full
                print(f"  {bare:>27.0f}{options.compute_ms:>12.0f}{full:>15.0f}{wire:>7.0f}{together:>11.0f}"
                      f"{together / wire:>9.2f}   {starling}", flush=True)
    finally:
        machines.close()


if __name__ == "__main__":
    main()
