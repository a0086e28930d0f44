"""What a worker says of its machine when it joins, who is refused for it, and what a run warns of."""
import json
import os
import signal
import subprocess

import harness
from harness import STARLING, environment, main, require, wait_until
from own_jobs import NONE, PROGRAM
from own_jobs import job as own_job

MANY = 1_000_000  # steps


def slow_job(place, slowest):
    """A micro-batch takes what SLOW_MS of its process says."""
    path = own_job(place, NONE, steps=MANY)
    with open(path, "a") as file:
        file.write(f"slowest = {slowest}\n")
    return path


def begin(place, job, workers, **variables):
    harness.STARLING = PROGRAM
    try:
        with environment(**variables):
            return place.run(job, "--workers", workers)
    finally:
        harness.STARLING = STARLING


def joining(run, *options, **variables):
    return subprocess.Popen([PROGRAM, "worker", "--join", run.out, "--save", "none", *options], env={**os.environ, **variables}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def stop(run, *workers):
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)
    for worker in workers:
        worker.communicate(timeout=harness.PATIENCE)


def a_joiner_that_all_would_wait_for_is_refused_in_a_line_at_both_ends(place):
    run = begin(place, slow_job(place, slowest=10), 2, SLOW_MS="20")
    run.wait_for_step(5)
    slow = joining(run, SLOW_MS="3000")
    said, wrong = slow.communicate(timeout=harness.PATIENCE)
    lines = wrong.strip().split("\n")
    require(slow.returncode == 2 and len(lines) == 1 and "on the median member's, more than 10 times as long; [elastic].slowest" in lines[0],
            f"{slow.returncode}: {said}{wrong}")
    warnings = [w["text"] for w in run.events("warning") if "asked to join and is refused: a micro-batch takes" in w["text"]]
    require(len(warnings) == 1, run.events("warning"))
    joined = len(run.events("worker"))
    others = [joining(run, "--quiet", SLOW_MS="20"), joining(run, "--quiet", "--role", "hold", SLOW_MS="3000")]
    wait_until(lambda: len(run.events("worker")) == joined + 2, "the one that is as fast, and the one that computes nothing")
    stop(run, *others)


def what_a_machine_has_is_in_the_event_and_the_status(place):
    run = place.run(place.job(steps=MANY), "--workers", 2)
    run.wait_for_step(5)
    here = os.statvfs(run.out)
    for event in run.events("worker"):
        machine = event["machine"]
        require(machine["processors"] == len(os.sched_getaffinity(0)), machine)
        require(0 < machine["memory_free"] <= machine["memory"], machine)
        require(abs(machine["disk_free"] - here.f_bavail * here.f_frsize) < here.f_blocks * here.f_frsize / 2, machine)
        require(machine["first_gradient_ns"] > 0 and abs(machine["clock_ahead_ms"]) < 30000, machine)
    status = json.loads(subprocess.run([STARLING, "status", run.out, "--json"], text=True, capture_output=True, timeout=harness.PATIENCE,
                                       check=True).stdout)
    members = status["epoch"]["members"]
    require(len(members) == 2 and all(member["machine"]["first_gradient_seconds"] > 0 for member in members), members)
    stop(run)


def data_that_are_read_too_slowly_are_told(place):
    run = begin(place, own_job(place, NONE, steps=MANY), 1, SLOW_DATA_MS="10")
    told = wait_until(lambda: [w["text"] for w in run.events("warning") if "waits for data" in w["text"]], "the warning")
    require(told[0].startswith("worker-0 waits for data ") and told[0].endswith("they are read more slowly than they are used"), told)
    stop(run)


main(a_joiner_that_all_would_wait_for_is_refused_in_a_line_at_both_ends, what_a_machine_has_is_in_the_event_and_the_status,
     data_that_are_read_too_slowly_are_told)
