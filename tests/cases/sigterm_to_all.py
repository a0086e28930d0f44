"""SIGTERM to every process of a run at once, as systemd and Slurm send it, keeps the last checkpoint."""
import os
import signal
import time

from harness import PATIENCE, processes_naming, require, with_checkpoints
from kept import ENDLESS, goes_on_to_the_undisturbed_digest


def every_process_of_a_run_is_told(place):
    for coordinators, run_first in ((3, True), (3, False), (1, False)):
        folder = place.path(f"checkpoints-{place.count}")
        job = with_checkpoints(place.job(**ENDLESS), folder, every=1000000)
        run = place.run(job, "--workers", 3, "--coordinators", coordinators)
        run.wait_for_step(40)
        told = run.steps()
        for pid in sorted(processes_naming(run.out), key=lambda pid: (pid == run.process.pid) != run_first):
            if pid == run.process.pid and not run_first:
                time.sleep(0.2)  # the others have heard it, as they may on a busy machine
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass  # another signal has ended it
        require(run.process.wait(PATIENCE) == 143, f"exit code {run.process.returncode}:\n{run.text()}")
        goes_on_to_the_undisturbed_digest(place, job, folder, told)
