"""Coordinators that die: no step stops, and they come back."""
import os
import signal

from harness import main, processes_naming, require, same, wait_until


def coordinators_of(run):
    return [p for p in processes_naming(run.out + "/coordinator-")]


def a_killed_coordinator_stops_no_step_and_comes_back(place):
    job = place.job(steps=1000)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 3, "--coordinators", 3)
    run.wait_for_step(50)
    first = coordinators_of(run)
    require(len(first) == 3, f"{len(first)} coordinators, expected 3")
    for pid in first:  # one after the other, so the leader is among them
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(coordinators_of(run)) == 3, "it is started again", 10)
        now = run.steps()
        wait_until(lambda: run.steps() > now + 20, "steps go on", 10)
    require(not set(first) & set(coordinators_of(run)), "a killed coordinator lives")
    run.kill(run.workers()[1])
    same(run, quiet)
    require(len(run.workers("lost")) == 1, "the loss was not noticed once")


main(a_killed_coordinator_stops_no_step_and_comes_back)
