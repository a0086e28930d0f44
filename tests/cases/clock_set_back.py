"""A worker hears SIGTERM, and a run ends, also after the wall clock was set back by an hour."""
import os
import signal
import subprocess

from faults import preloaded
from harness import LEFT, PATIENCE, environment, require, wait_until


def _set_back(file):
    """The clock was an hour ahead for whoever asks within half a second, and is not any more."""
    open(file, "w").close()
    wait_until(lambda: os.path.exists(file + ".seen"), "somebody looks at the clock")
    subprocess.run(["sleep", "0.5"], check=True)
    os.remove(file)


def a_worker_leaves_and_the_run_ends(place):
    clock = place.path("ahead")
    with environment(**preloaded(place, clock=clock)):
        run = place.run(place.job(steps=1000000), "--workers", 2)
        run.wait_for_step(20)
        worker = run.join("--save", "none")
        wait_until(lambda: len(run.workers()) == 3, "the join")
    _set_back(clock)
    worker.send_signal(signal.SIGTERM)
    require(worker.wait(PATIENCE) == LEFT, f"exit code {worker.returncode}:\n{run.text()[-2000:]}")
    run.process.send_signal(signal.SIGTERM)
    run.end(code=143)
