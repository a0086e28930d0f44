"""SIGUSR1 and SIGUSR2, which Slurm sends before a job's time is over, write a last checkpoint."""
import signal

from harness import PATIENCE, processes_naming, require, with_checkpoints
from kept import ENDLESS, goes_on_to_the_undisturbed_digest


def either_signal_keeps_what_was_trained(place):
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        folder = place.path(f"checkpoints-{place.count}")
        job = with_checkpoints(place.job(**ENDLESS), folder, every=1000000)
        run = place.run(job, "--workers", 2)
        run.wait_for_step(40)
        told = run.steps()
        run.process.send_signal(number)
        run.process.wait(PATIENCE)
        require(not processes_naming(run.out), f"processes are left; {run.text()}")
        goes_on_to_the_undisturbed_digest(place, job, folder, told)
