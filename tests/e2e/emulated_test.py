"""A device whose memory the host cannot read (emulated): the same bits, through everything that happens."""
import os
import signal

from checkpoints_test import complete
from harness import kill_join_and_leave, main, require, same, wait_until, with_checkpoints

STEPS, LONG = 200, 700  # long: somebody joins


def on_the_emulated_device(place, checkpoints=None, **changes):
    job = place.job(isa="emulated", **changes)
    return with_checkpoints(job, checkpoints, every=10) if checkpoints else job


def a_kill_a_join_a_leave_and_checkpoints_give_the_bits_of_the_host(place):
    quiet = place.quiet(place.job(steps=LONG))
    folder = place.path("checkpoints")
    run = place.run(on_the_emulated_device(place, folder, steps=LONG), "--workers", 3)
    kill_join_and_leave(run, 20, "--threads", "2")
    same(run, quiet)
    require(run.events("checkpoint"), "no checkpoint was written")
    require(os.listdir(folder), "the folder of checkpoints is empty")


def moments_in_the_hosts_memory_change_no_bit(place):
    quiet = place.quiet(place.job(steps=STEPS))
    run = place.run(on_the_emulated_device(place, steps=STEPS, offload="moments"), "--workers", 3)
    run.wait_for_step(20)
    run.kill(run.workers()[0])
    same(run, quiet)


def a_job_goes_on_from_a_checkpoint(place):
    endless = dict(steps=100000, schedule_steps=STEPS)  # until it is told to end
    job = on_the_emulated_device(place, place.path("checkpoints"), **endless)
    first = place.run(job, "--workers", 2)
    wait_until(lambda: len(first.events("checkpoint")) >= 2, "two checkpoints")
    first.process.send_signal(signal.SIGINT)
    first.end(code=130)
    steps = complete(place.path("checkpoints"))[-1] + 50
    quiet = place.quiet(place.job(**endless | dict(steps=steps)))
    again = place.run(job, "--workers", 3, "--resume", "--steps", steps)
    require(again.digest() == quiet.digest(), "another digest than that of the host")


def the_model_file_is_that_of_the_host(place):
    models = []
    for job in (place.job(steps=10), on_the_emulated_device(place, steps=10)):
        run = place.run(job, "--workers", 2).end()
        with open(run.out + "/model.safetensors", "rb") as file:
            models.append(file.read())
    require(models[0] == models[1], "model files differ")


main(a_kill_a_join_a_leave_and_checkpoints_give_the_bits_of_the_host,
     moments_in_the_hosts_memory_change_no_bit, a_job_goes_on_from_a_checkpoint,
     the_model_file_is_that_of_the_host)
