"""The command of a run that was killed can be started again as it is (Slurm's requeue, systemd): --resume --out."""
import signal

from harness import processes_naming, require, wait_until, with_checkpoints, Run

STEPS = 400


def the_same_command_goes_on_in_the_same_folder(place):
    quiet = place.quiet(place.job(steps=STEPS))
    job = with_checkpoints(place.job(steps=STEPS, coordinator_timeout_ms=1000), place.path("checkpoints"), every=10)
    command = (job, place.path("out"), ("--workers", 2, "--resume"))
    first = Run(*command)
    wait_until(lambda: len(first.events("checkpoint")) >= 2, "two checkpoints")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    wait_until(lambda: not processes_naming(first.out), "its workers give up")
    second = Run(*command).end()
    digest = second.events("done")[-1]["digest"]
    require(digest == quiet.digest(), f"digest {digest}, undisturbed {quiet.digest()}")
    require("goes on from the checkpoint of step" in second.text(), second.text())
