"""Who has no key: what strangers cost a coordinator, and what a limit of open files does."""
import contextlib
import os
import resource
import signal
import socket
import statistics
import subprocess
import time

from harness import STARLING, Run, main, require, wait_until

MIB = 1 << 20
# ZMTP 3.0 with CURVE, and a "command" of 60 MiB.
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE").ljust(64, b"\0")
COMMAND = b"\x06" + (60 * MIB).to_bytes(8, "big")


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def address_of(run):
    host, port = run.events("start")[0]["address"].removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


def large_greetings_take_no_memory(place):
    job = place.job(steps=40)
    run = place.run(job, "--workers", 3, "--start", 2)  # it waits for the third
    wait_until(lambda: len(run.workers()) == 2, "the run is up")
    before = most = resident(run.process.pid)
    strangers = []
    for _ in range(20):
        stranger = socket.create_connection(address_of(run))
        stranger.setblocking(False)
        strangers.append([stranger, GREETING + COMMAND])
    end = time.monotonic() + 30
    while strangers and time.monotonic() < end:
        for entry in list(strangers):
            stranger, unsent = entry
            try:
                if unsent:
                    entry[1] = unsent[stranger.send(unsent):]
                else:
                    stranger.send(bytes(64 * 1024))
            except BlockingIOError:
                pass
            except OSError:  # cut off
                strangers.remove(entry)
        most = max(most, resident(run.process.pid))
    require(not strangers, f"{len(strangers)} strangers are still heard after 30 s")
    require(most - before < 60 * MIB, f"memory grew from {before / MIB:.0f} to {most / MIB:.0f} MiB")
    run.join()
    run.end(seconds=300)
    require(run.digest() == place.quiet(job).digest(), "another digest than undisturbed")


def a_flood_of_idle_connections_leaves_files_for_workers(place):
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))

    job = place.job(steps=100000, coordinator_timeout_ms=3000)  # until it is ended
    out = place.path("flooded")
    run = Run(job, out, ["--workers", 2], before=few_files)
    process = run.process
    run.wait_for_step(2)
    address = address_of(run)
    flood, samples = [], []
    end = time.monotonic() + 6
    while time.monotonic() < end or len(samples) < 100:
        with contextlib.suppress(OSError):
            flood.append(socket.create_connection(address, timeout=1))
        flood = flood[-700:]
        if len(flood) > 400:
            samples.append(files(process.pid))
    # A quarter of the files is for those who have not shown a key; the rest is used by few here.
    require(statistics.median(samples) < 250, f"open files: {sorted(samples)[::len(samples) // 8]}")
    joined = run.join()
    wait_until(lambda: len(run.workers()) == 3, "the worker that joins")
    for connection in flood:
        connection.close()
    process.send_signal(signal.SIGINT)
    run.end(130)
    joined.wait(300)


def more_workers_than_files_allow_are_refused(place):
    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))

    done = subprocess.run([STARLING, "run", place.job(), "--workers", "40", "--out", place.path("o")],
                          capture_output=True, text=True, preexec_fn=few_files)
    require(done.returncode == 2, f"exit code {done.returncode}: {done.stderr}")
    require("40 workers need" in done.stderr and "open files" in done.stderr, done.stderr)


main(large_greetings_take_no_memory, a_flood_of_idle_connections_leaves_files_for_workers,
     more_workers_than_files_allow_are_refused)
