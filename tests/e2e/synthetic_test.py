"""The synthetic model: many workers on few cores, same bits, time that is waited."""
from harness import LONG_LEASE_MS, main, require, same, wait_until

JOB = """
[job]
name = "synthetic"
steps = {steps}
micro_batches = 32
[model]
kind = "synthetic"
parameters = 100_000
compute_ms = {compute_ms}
jitter = 0.5
slow = {slow}
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[elastic]
lease_ms = {lease_ms}
start_timeout_ms = 180000
coordinator_timeout_ms = 120000
"""


def job(place, name, steps=40, compute_ms=2, slow=()):
    path = place.path(name + ".toml")
    with open(path, "w") as file:
        file.write(JOB.format(steps=steps, compute_ms=compute_ms, slow=list(slow),
                              lease_ms=LONG_LEASE_MS))
    return path


def any_number_of_workers_and_any_pace_gives_the_same_bits(place):
    quiet = place.run(job(place, "quiet", compute_ms=0), "--workers", 1).end()
    require(quiet.losses()[-1][1] < quiet.losses()[0][1], "the loss does not fall")
    for workers, slow in ((1, []), (3, [1, 2.5]), (8, [])):
        same(place.run(job(place, f"of-{workers}", slow=slow), "--workers", workers).end(), quiet)


def a_kill_and_a_slow_joiner_change_no_bit(place):
    # Its steps wait, whatever the machine does; a new process takes what the machine leaves it.
    quiet = place.run(job(place, "quiet", steps=500, compute_ms=0), "--workers", 1).end()
    run = place.run(job(place, "killed", steps=500, compute_ms=5), "--workers", 8)
    run.wait_for_step(20)
    run.kill(run.workers()[3])
    run.join("--slow", "2")
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    same(run, quiet)
    joined = run.workers()[-1]["id"]
    computed = [w for e in run.events("ledger") for _, w in e["workers"]]
    require(joined in computed, "the joiner computed nothing")


def a_micro_batch_takes_its_time(place):
    run = place.run(job(place, "timed", steps=5, compute_ms=20, slow=[1, 3]), "--workers", 2).end()
    # At best 24 micro-batches of 20 ms beside 8 of three times that, half of it less by jitter.
    for step in run.events("step")[1:]:
        require(step["ms"] > 24 * 20 / 2, f"a step took {step['ms']} ms")


def two_and_thirty_workers_train_on_any_machine(place):
    quiet = place.run(job(place, "quiet", steps=10, compute_ms=0), "--workers", 1).end()
    run = place.run(job(place, "many", steps=10, compute_ms=20), "--workers", 32).end()
    same(run, quiet)
    require(len(run.events("epoch")) == 1, "32 workers needed more than one epoch")


main(any_number_of_workers_and_any_pace_gives_the_same_bits,
     a_kill_and_a_slow_joiner_change_no_bit, a_micro_batch_takes_its_time,
     two_and_thirty_workers_train_on_any_machine)
