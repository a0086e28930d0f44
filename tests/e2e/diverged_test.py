"""A run whose loss becomes infinite says so: in its events, on its terminal and with its exit code."""
import os
import re
import signal
import subprocess

from cluster import Cluster
from harness import STARLING, Run, main, require, wait_until, with_checkpoints


def diverging(place, steps=60, **changes):
    job = place.job(steps=steps)
    with open(job) as file:
        text = file.read()
    text = text.replace('kind = "adamw"', 'kind = "sgd"\nclip = 0.0\nweight_decay = 0.0').replace(
        "peak_rate = 1e-3", "peak_rate = 900.0").replace("warmup_steps = 5\n", "")
    for key, value in changes.items():
        text = text.replace("[model]", f"{key} = {value}\n[model]", 1)
    with open(job, "w") as file:
        file.write(text)
    return job


def a_diverged_run_does_not_look_perfect(place):
    job = diverging(place)
    run = place.run(job, "--workers", 2).end(1)
    text = run.text()
    steps = run.events("step")
    require(len(steps) == 60, f"{len(steps)} steps")
    skipped = [e for e in steps if e["skipped"]]
    require(len(skipped) > 20 and all(e["loss"] is None for e in skipped), str(steps[-1]))
    require(all(e["loss"] is not None for e in steps if not e["skipped"]), "a good step has no loss")
    require("loss 0.0000" not in text and "loss nan  skipped, " in text, text)
    require(re.search(r"warning: step \d+ is skipped: a micro-batch of it is not finite", text), text)
    require("the training has diverged" in text, text)
    require(re.search(r"starling: diverged: the last \d+ steps were skipped", text), text)
    require(run.events("done")[0]["loss"] is None, "the end has a loss")
    with open(os.path.join(run.out, "loss.svg")) as file:
        require("nan" not in file.read(), "loss.svg")
    alone = place.run(job, "--workers", 1, "--coordinators", 3).end(1)  # P1 holds all the same
    require(alone.losses() == run.losses(), "losses differ")
    for one in run, alone:
        for warning in one.events("warning"):
            require(one.text().count(warning["text"]) == 1, f"{warning['text']} is said more than once:\n{one.text()}")


def warnings_are_errors_output(place):
    done = subprocess.run([STARLING, "run", diverging(place), "--out", place.path("apart"), "--steps", "30"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    require(re.search(r"^warning: step \d+ is skipped", done.stderr, re.M), done.stderr)
    require("warning: " not in done.stdout, done.stdout)
    # What waits is said before there is an epoch.
    said = done.stdout + done.stderr
    require(re.search(r"\d+ workers? of \d+ begin here; training begins when ", said), said)
    require(said.index("begin here") < said.index("epoch 1."), said)


def on_nonfinite_stop_ends_it(place):
    job = diverging(place, steps=1_000_000, on_nonfinite='"stop"')
    run = place.run(job, "--workers", 2).end(1)
    failed = run.events("failed")
    require(len(failed) == 1 and failed[0]["code"] == 1 and 'on_nonfinite is "stop"' in failed[0]["reason"],
            str(failed))
    require(not run.events("done"), "it is done")
    steps = run.events("step")
    require(sum(e["skipped"] for e in steps) == 1 and steps[-1]["skipped"], f"not one skipped step, the last: {steps[-3:]}")


def told_of_skipped(run):
    """The steps that warnings name as skipped, in the order in which they were told."""
    return [int(found[1]) for e in run.events("warning") if (found := re.match(r"step (\d+) is skipped", e["text"]))]


def due_of_skipped(run):
    """The first, tenth, hundredth.. skipped step in a row."""
    due, row = [], 0
    for e in sorted(run.events("step"), key=lambda e: e["version"]):
        row = row + 1 if e["skipped"] else 0
        if row and set(str(row)) <= {"0", "1"} and str(row).count("1") == 1:
            due.append(e["version"])
    return due


def a_new_leader_counts_on(place):
    """It was told of no step before it led, and a member may repeat the last one."""
    run = place.run(diverging(place, steps=1_000_000), "--workers", 2, "--coordinators", 3)
    for _ in range(4):
        wait_until(lambda: run.events("step") and run.events("step")[-1]["skipped"], "a skipped step")
        leads = run.events("leader")
        os.kill(leads[-1]["pid"], signal.SIGKILL)
        wait_until(lambda: len(run.events("leader")) > len(leads), "another leader")
        run.wait_for_step(run.steps() + 20)
    run.process.send_signal(signal.SIGINT)
    run.end(130)
    told, due = told_of_skipped(run), due_of_skipped(run)
    # A step that no coordinator had told when the next one was counts in no row.
    require(told[0] == due[0] and len(told) == len(due), f"told of {told}, due {due}")
    for step in told:
        require(run.text().count(f"warning: step {step} is skipped") == 1, run.text())


def verdicts(text):
    return re.findall(r"^starling: (diverged: .*)", text, re.M)


def a_coordinator_that_comes_back_ends_as_if_it_had_stayed(place):
    quiet = place.run(diverging(place), "--workers", 1).end(1)
    (verdict,) = verdicts(quiet.text())
    with Cluster(place, diverging(place), 1, 1) as cluster:
        cluster.start_all()
        require(cluster.coordinators[0].wait(300) == 1, cluster.text())
        require(cluster.start_coordinator(0).wait(300) == 1, "no step was told to the one that came back")
        require(verdicts(cluster.text()) == [verdict, verdict], cluster.text())
        require("loss" in open(os.path.join(cluster.folder(0), "loss.svg")).read(), "an empty picture")


def one_skipped_step_is_none_of_a_diverged_run(place):
    """Also if it is the last one, and the only one that the coordinator is told after it has come back."""
    quiet = place.run(diverging(place), "--workers", 1).end(1)
    bad = next(e["version"] for e in quiet.events("step") if e["skipped"])
    require(bad > 0, "the first step is skipped")
    job = diverging(place, steps=bad + 1)
    with open(job) as file:
        text = file.read().replace("schedule_steps = 0", "schedule_steps = 60")
    with open(job, "w") as file:
        file.write(text)
    require([e["skipped"] for e in place.quiet(job).events("step")] == [False] * bad + [True], "another step is skipped")
    with Cluster(place, job, 1, 1) as cluster:
        cluster.start_coordinator(0)
        cluster.start_worker("--slow", 20, "--save", "none")  # so that the last step is to come when it is killed
        cluster.wait_for_step(0, bad)
        cluster.coordinators[0].kill()
        cluster.coordinators[0].wait()
        require(cluster.start_coordinator(0).wait(300) == 0, cluster.text())


def a_diverged_run_that_is_asked_for_again_has_still_diverged(place):
    job = with_checkpoints(diverging(place), place.path("checkpoints"), every=20)
    first = place.run(job, "--workers", 1).end(1)
    again = Run(job, first.out, ("--workers", 1, "--resume")).end(1)
    require("done before" in again.text() and len(verdicts(again.text())) == 1, again.text())


main(a_diverged_run_does_not_look_perfect, warnings_are_errors_output, on_nonfinite_stop_ends_it,
     a_new_leader_counts_on, a_coordinator_that_comes_back_ends_as_if_it_had_stayed, one_skipped_step_is_none_of_a_diverged_run,
     a_diverged_run_that_is_asked_for_again_has_still_diverged)
