"""Models and data of a program of its own, that throw: what one worker met costs that worker, and what every worker
met is the end, with its reason."""
import os
import re
import signal
import subprocess

import harness
from harness import STARLING, environment, main, require, same
from own_jobs import DATA, MODEL, NONE, ONE, PROGRAM, job


def ended_joiner(run):
    """Exit code of a worker that joins, and what it said."""
    start = run.events("start")[0]
    done = subprocess.run([PROGRAM, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none"],
                          capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def what_every_worker_meets_is_the_end(place):
    for flaw, reason in (MODEL, "sample 77 has no mean"), (DATA, "no sample 77 in the file"):
        run = place.run(job(place, flaw), "--workers", 3)
        run.end(code=2)
        last = run.text().strip().splitlines()[-1]
        require(last.startswith("starling: ") and reason in last, f"the last line is {last}")
        require(not run.events("done") and not os.path.exists(os.path.join(run.out, "model.safetensors")),
                "a job that failed has a model")


def what_one_worker_meets_costs_that_worker(place):
    quiet = place.quiet(job(place, NONE))
    with environment(FLAW=place.path("met")):
        run = place.run(job(place, ONE), "--workers", 3)
        run.end()
    (lost,) = run.workers("lost")
    require("sample 77 has no mean" in (lost["reason"] or ""), lost)
    require(run.losses() == quiet.losses(), "losses differ from those of a model without a flaw")


def its_help_and_its_sizes_are_its_own(place):
    """The program names itself; a job as small as this one needs some KiB, which are no 0 MiB."""
    def said(*words):
        return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True, timeout=300).stdout
    text = said("--help")
    require(text.startswith("flawed, a program with Starling in it, ") and "`flawed SUBCOMMAND --help`" in text, text)
    for word in ("run", "worker", "check"):
        text = said(word, "--help")
        require(f"  flawed {word} " in text and "  starling " not in text, text)
    text = said("check", job(place, NONE))
    sizes = re.findall(r"needs at least (\d+) KiB, each of 4 (\d+) KiB", text)
    require(sizes and min(map(int, sizes[0])) > 0 and " 0 MiB" not in text, text)


def a_worker_with_other_data_is_told_to_go(place):
    """The program gives no identity, so samples are compared: those that are drawn when it asks, all when it has read
    them."""
    drawn = {k * (500 // 256) + k * (500 % 256) // 256 for k in range(256)}
    run = place.run(job(place, NONE, steps=1000000), "--workers", 2)
    run.wait_for_step(20)
    for sample in sorted(drawn)[-1], next(i for i in range(500) if i not in drawn):
        with environment(OTHER=str(sample)):
            code, said = ended_joiner(run)
        require(code == 2 and "data" in said, f"sample {sample}: {code}: {said}")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)
    require(run.losses() and not run.events("mismatch"), "the two others train on")


harness.STARLING = PROGRAM
main(what_every_worker_meets_is_the_end, what_one_worker_meets_costs_that_worker,
     a_worker_with_other_data_is_told_to_go, its_help_and_its_sizes_are_its_own)
