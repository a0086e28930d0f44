"""P1: the same bits for any number of workers and threads."""
from harness import main, require, same, wait_until


def any_number_of_workers_and_threads_gives_the_same_bits(place):
    job = place.job(steps=30)
    quiet = place.run(job, "--workers", 1, "--threads", 1)
    quiet.end()
    for workers, threads in ((1, 2), (2, 1), (4, 2), (5, 1)):
        same(place.run(job, "--workers", workers, "--threads", threads).end(), quiet)


def replicas_and_coordinators_change_no_bits(place):
    job = place.job(steps=30)
    quiet = place.run(job, "--workers", 2)
    quiet.end()
    same(place.run(job, "--workers", 3, "--replicas", 0).end(), quiet)
    same(place.run(job, "--workers", 3, "--replicas", 1, "--coordinators", 3).end(), quiet)


def the_model_file_is_the_same_and_another_seed_is_not(place):
    job = place.job(steps=10)
    models = []
    for options in (("--workers", 1), ("--workers", 3), ("--workers", 1, "--seed", 2)):
        run = place.run(job, *options).end()
        with open(run.out + "/model.safetensors", "rb") as file:
            models.append(file.read())
    require(models[0] == models[1], "model files of one and three workers differ")
    require(models[0] != models[2], "another seed gives the same model")


def what_passes_compute_twice_has_the_same_bits(place):
    quiet = place.quiet(place.job(steps=30))
    same(place.run(place.job(steps=30, recompute="true"), "--workers", 2).end(), quiet)


def rounded_working_parameters_are_another_training_with_bits_of_its_own(place):
    job = place.job(steps=200, precision="bf16")
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 3)
    run.wait_for_step(20)
    run.kill(run.workers()[0])
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    same(run, quiet)
    same(place.run(place.job(steps=200, precision="bf16", isa="emulated"), "--workers", 2), quiet)
    full = place.quiet(place.job(steps=200))
    require(full.digest() != quiet.digest(), "bf16 changes no bit")
    require(abs(full.losses()[-1][1] - quiet.losses()[-1][1]) < 0.1, "bf16 trains to another loss")


def groups_and_schedules_have_the_same_bits_on_every_device(place):
    keys = """schedule = "one-cycle"
groups = [
  { tensors = ["*.bias", "wpe*"], weight_decay = 0.3, rate_factor = 2.0 },
  { tensors = ["h.0.*"], rate_factor = 0.25 },
]
"""

    def job(steps, keys=keys, **changes):
        path = place.job(steps=steps, **changes)
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace("[data]", keys + "[data]"))
        return path

    quiet = place.quiet(job(60))
    rates = {e["version"]: e["rate"] for e in quiet.events("step")}
    require(len(rates) == 60 and rates[0] == 1e-3 * 0.04 and rates[4] == 1e-3 and rates[59] == 1e-3 * 0.1, f"{rates}")
    run = place.run(job(60), "--workers", 3)
    run.wait_for_step(20)
    run.kill(run.workers()[0])
    same(run, quiet)
    same(place.run(job(60, isa="emulated"), "--workers", 2), quiet)
    require(place.quiet(job(60, keys='schedule = "one-cycle"\n')).digest() != quiet.digest(), "groups change no bit")


main(any_number_of_workers_and_threads_gives_the_same_bits,
     replicas_and_coordinators_change_no_bits,
     the_model_file_is_the_same_and_another_seed_is_not,
     what_passes_compute_twice_has_the_same_bits,
     rounded_working_parameters_are_another_training_with_bits_of_its_own,
     groups_and_schedules_have_the_same_bits_on_every_device)
