"""A worker that is started again and refused, since the data are others now, does not fail the run that others finish."""
import os
import signal

from harness import alive, children_of, require, wait_until


def the_refusal_is_heard_of_after_the_end(place):
    """The data change, a worker is killed, and the guard of the one that follows is stopped until the job is done."""
    os.mkdir(place.path("texts"))
    for name in "abc":
        with open(place.path(f"texts/{name}.txt"), "w") as file:
            file.write(f"some words of {name} " * 9000)
    job = place.job(steps=600)
    with open(job) as file:
        text = file.read().replace("text.txt", "texts")
    with open(job, "w") as file:
        file.write(text)
    run = place.run(job, "--workers", 2, "--respawn", 1)
    run.wait_for_step(20)
    guards = set(children_of(run.process.pid))
    with open(place.path("texts/ab.txt"), "w") as file:
        file.write("zzz" * 3000)
    run.kill(run.workers()[0])
    guard = wait_until(lambda: set(children_of(run.process.pid)) - guards, "another worker is started").pop()
    worker = wait_until(lambda: children_of(guard) or not alive(guard), "its process")
    require(worker is not True, "it ended before it was stopped")
    os.kill(guard, signal.SIGSTOP)
    try:
        wait_until(lambda: not alive(worker[0]), "it is refused")
        require("computes other bits" in run.text() or "are others" in run.text(), run.text()[-2000:])
        wait_until(lambda: run.events("done"), "the others finish")
    finally:
        os.kill(guard, signal.SIGCONT)
    run.end()
    require(os.path.exists(os.path.join(run.out, "model.safetensors")), "the model is not there")
