"""A job with [numbers] adds up gradients of a few bits: the same bits in any group, in frames that are packed, and through kills."""
import subprocess

from harness import PATIENCE, STARLING, kill_join_and_leave, main, require, same_digest_by_any_group


def with_bits(place, bits, rounding, **changes):
    job = place.job(**changes)
    with open(job, "a") as file:
        file.write(f'\n[numbers]\ngrid_bits = {bits}\nrounding = "{rounding}"\n')
    return job


def any_group_has_the_same_bits(place):
    digests = {}
    for bits, rounding, precision in ((8, "stochastic", "bf16"), (10, "nearest", "fp32")):
        job = with_bits(place, bits, rounding, steps=120, precision=precision)
        alone = place.quiet(job)
        run = place.run(job, "--workers", 3, "--threads", 2)
        kill_join_and_leave(run, 20)
        require(run.digest() == alone.digest(), f"{bits} bits, {rounding}: another digest with kills")
        losses = [loss for _, loss, _ in alone.losses()]
        require(sum(losses[-20:]) < sum(losses[:20]) - 10, f"nothing is learned: {losses[0]} {losses[-1]}")
        digests[bits, rounding] = alone.digest()
    require(len(set(digests.values())) == 2, f"{digests}")


def what_cannot_be_is_said(place):
    done = subprocess.run([STARLING, "check", with_bits(place, 20, "stochastic")], capture_output=True, text=True, timeout=PATIENCE)
    require(done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "grid_bits of at most 15" in done.stderr, done.stderr)


def any_number_of_workers_and_threads_has_the_same_bits(place):
    for bits, rounding, precision in ((8, "stochastic", "fp32"), (10, "stochastic", "bf16"), (8, "nearest", "bf16")):
        job = with_bits(place, bits, rounding, steps=120, precision=precision)
        same_digest_by_any_group(place, job, f"{bits} bits, {rounding}, {precision}", 10)


main(any_group_has_the_same_bits, what_cannot_be_is_said, long=(any_number_of_workers_and_threads_has_the_same_bits,))
