"""A run whose loss becomes infinite says so: in its events, on its terminal and with its exit code."""
import os
import re
import subprocess

from harness import STARLING, main, require


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


main(a_diverged_run_does_not_look_perfect, warnings_are_errors_output, on_nonfinite_stop_ends_it)
