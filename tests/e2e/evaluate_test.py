"""Held-out data: the loss over them is in the record, with the same bits for any number of workers and through kills,
and the training is what it is without."""
import contextlib
import glob
import math
import shutil
import signal
import subprocess

from harness import LONG_LEASE_MS, STARLING, main, require, same, wait_until


def evaluated(place, steps, every=10, more="", **changes):
    """A job that evaluates a part of the text."""
    job = place.job(steps=steps, **changes)
    with open(place.path("text.txt"), "rb") as file, open(place.path("held.txt"), "wb") as held:
        held.write(file.read()[-33 * 2 * 12:])
    with open(job, "a") as file:
        file.write(f'\n[evaluate]\npath = "held.txt"\nevery = {every}\n{more}\n')
    return job


def evaluations(run):
    return [(e["version"], e["loss"]) for e in run.events("evaluation")]


def any_number_of_workers_evaluates_to_the_same_bits(place):
    quiet = place.quiet(evaluated(place, 30))
    found = evaluations(quiet)
    require([v for v, _ in found] == [10, 20, 30], found)
    require(found[0][1] > found[1][1] > found[2][1] > 0, found)
    for workers, threads in ((3, 1), (2, 2)):
        run = place.run(evaluated(place, 30), "--workers", workers, "--threads", threads).end()
        same(run, quiet)
        require(evaluations(run) == found, f"{workers} workers: {evaluations(run)}, one worker: {found}")
    last = found[-1][1]
    shown = f"held-out loss {last:.4f}  perplexity {math.exp(last):.4g}  {last / math.log(2):.4f} bits per byte"
    require(shown in quiet.text(), f"{shown} is not in {quiet.text()}")
    with open(quiet.out + "/loss.svg") as file:
        require("held out" in file.read(), "no curve of the held-out loss")


def the_training_is_what_it_is_without(place):
    same(place.run(evaluated(place, 30), "--workers", 2).end(), place.quiet(place.job(steps=30)))


def kills_change_no_evaluation(place):
    job = evaluated(place, 200, every=5)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 4)
    for step in (20, 60):
        run.wait_for_step(step)
        lost = len(run.workers("lost"))
        run.kill(run.workers()[0 if step == 20 else 1])
        wait_until(lambda: len(run.workers("lost")) > lost, "the loss is noticed")
    same(run, quiet)
    require(evaluations(run) == evaluations(quiet), "evaluations differ")
    require(len(evaluations(run)) == 40, f"{len(evaluations(run))} evaluations")
    audit = subprocess.run([STARLING, "audit", run.out, quiet.out], capture_output=True, text=True)
    require(audit.returncode == 0 and "40 evaluations" in audit.stdout, audit.stdout + audit.stderr)


def a_kill_a_leave_and_a_join_while_every_step_evaluates_change_nothing(place):
    job = evaluated(place, 150, every=1, lease_ms=LONG_LEASE_MS)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    run.kill(run.workers()[1])
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    run.kill(run.workers()[2], signal.SIGTERM)
    run.join()
    wait_until(lambda: len(run.workers()) > 4, "a join")
    same(run, quiet)
    require(evaluations(run) == evaluations(quiet), "evaluations differ")
    require(len(evaluations(run)) == 150, f"{len(evaluations(run))} evaluations")


def whoever_is_lost_while_it_evaluates_the_end_is_replaced(place):
    """Rank 0 evaluates the last version, alone: for seconds here."""
    job = place.job(steps=12, width=192)
    with open(job, "a") as file:
        file.write('\n[evaluate]\npath = "text.txt"\nevery = 1000\n')
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 3)
    run.wait_for_step(12)
    first = min(run.events("epoch")[-1]["members"], key=lambda member: member["rank"])
    with contextlib.suppress(ProcessLookupError):  # on a machine that is so fast the job has ended
        run.kill_together([w for w in run.workers() if w["id"] == first["id"]])
    same(run, quiet)
    require([v for v, _ in evaluations(run)] == [12] and evaluations(run) == evaluations(quiet), "evaluations differ")


def a_run_that_goes_on_evaluates_the_same(place):
    """Also where it goes on from a version that was evaluated, and does steps again."""
    job = evaluated(place, 60, every=10, more=f'[checkpoint]\ndir = "{place.path("ck")}"\nevery = 10\nkeep = 100')
    quiet = place.quiet(evaluated(place, 60, every=10))
    run = place.run(job, "--workers", 2)
    run.wait_for_step(25)
    run.process.send_signal(signal.SIGTERM)
    run.end(code=143)
    shutil.rmtree(max(glob.glob(place.path("ck/step-*"))))  # the last one
    again = place.run(job, "--workers", 3, "--resume").end()
    require(again.digest() == quiet.digest(), "the digest differs")
    found = evaluations(again)
    require(found and found == evaluations(quiet)[-len(found):], f"{found} are not the last of {evaluations(quiet)}")
    audit = subprocess.run([STARLING, "audit", again.out], capture_output=True, text=True)
    require(audit.returncode == 0, audit.stdout + audit.stderr)


def other_held_out_data_are_refused_or_told(place):
    job = evaluated(place, 10, more="batches = 500")
    run = place.run(job, "--workers", 1).end(code=2)
    require("500 batches of 2 samples must be held out, there are" in run.text(), run.text())


main(any_number_of_workers_evaluates_to_the_same_bits, the_training_is_what_it_is_without, kills_change_no_evaluation,
     a_kill_a_leave_and_a_join_while_every_step_evaluates_change_nothing, a_run_that_goes_on_evaluates_the_same,
     other_held_out_data_are_refused_or_told,
     long=(whoever_is_lost_while_it_evaluates_the_end_is_replaced,))
