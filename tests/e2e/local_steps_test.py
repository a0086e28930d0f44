"""A job with [local] trains by local steps: the same bits in any group, through kills and after all was lost; and what such a job
cannot be is said."""
import subprocess

from harness import PATIENCE, STARLING, kill_join_and_leave, main, processes_naming, require, same_digest_by_any_group, wait_until, with_checkpoints


def starling(*words):
    done = subprocess.run([STARLING, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def local(place, length, more="", **changes):
    """A job whose steps are of SGD with momentum, each of 8 micro-batches of `length` local steps of AdamW with 2 sequences."""
    job = place.job(sequences=2 * length, **changes)
    with open(job) as file:
        text = file.read()
    before, optimizer, rest = text[:text.index("[optimizer]")], text[text.index("[optimizer]"):text.index("[data]")], text[text.index("[data]"):]
    schedule = "".join(line for line in optimizer.splitlines(keepends=True) if line.startswith("schedule_steps"))
    with open(job, "w") as file:
        file.write(f'{before}[optimizer]\nkind = "sgd"\npeak_rate = 0.7\n{schedule}\n'
                   f'[local]\nsteps = {length}\nkind = "adamw"\npeak_rate = 2e-3\n{more}\n{rest}')
    return job


def losses_of(run):
    return [loss for _, loss, _ in run.losses()]


def any_group_has_the_same_bits(place):
    job = local(place, 4, steps=40, more="warmup_steps = 16\n")
    code, out, err = starling("check", job)
    require(code == 0 and "local steps: a micro-batch is 4 of 2 sequences; schedules of [local] have 160 steps" in out, f"{out} {err}")
    alone = place.quiet(job)
    run = place.run(job, "--workers", 3, "--threads", 2)
    kill_join_and_leave(run, 10)
    require(run.digest() == alone.digest(), "another digest with kills")
    losses = losses_of(alone)
    require(sum(losses[-5:]) < sum(losses[:5]) - 1, f"nothing is learned: {losses}")
    plain = place.quiet(local(place, 1, steps=40))
    require(plain.digest() != alone.digest(), "local steps count for nothing")


def a_job_goes_on_after_all_was_lost(place):
    folder = place.path("checkpoints")

    def job(steps, **changes):
        return with_checkpoints(local(place, 4, steps=steps, precision="bf16", **changes), folder, 10)
    whole = place.quiet(local(place, 4, steps=40, schedule_steps=0, precision="bf16"))
    part = place.run(job(40), "--workers", 2)
    part.wait_for_step(15)
    part.kill_everything()
    wait_until(lambda: not processes_naming(part.out), "the guards of the killed workers end")
    other = with_checkpoints(local(place, 4, steps=40, precision="bf16", more="beta1 = 0.8\n"), folder, 10)
    code, said, err = starling("check", other)
    require(code == 0 and "of another job: [local].beta1 is 0.9 and 0.8" in said, f"{code} {said} {err}")
    resumed = place.run(job(40), "--workers", 3, "--resume")
    require(resumed.digest() == whole.digest(), "another digest after all was lost")
    # More steps than the job had: both schedules stay as they were.
    longer = place.run(job(40), "--workers", 1, "--resume", "--steps", 50)
    at_once = place.quiet(local(place, 4, steps=50, schedule_steps=40, precision="bf16", more="schedule_steps = 160\n"))
    require(longer.digest() == at_once.digest(), "a run that is trained longer is another one than at once")


def what_cannot_be_is_said(place):
    for job, expected in ((local(place, 4, more='name = "x"\n'), 'name does not apply to kind "adamw"; [local].name'),
                          (local(place, 4, more='groups = [{ tensors = ["nope"], weight_decay = 0.0 }]\n'), "; [local].groups"),
                          (local(place, 4, more='schedule = "halving"\n'), "; [local].schedule")):
        code, out, err = starling("check", job)
        require(code == 2 and len(err.splitlines()) == 1 and expected in err, f"{code} {out} {err}")


def any_number_of_workers_and_threads_has_the_same_bits(place):
    for length, precision in ((8, "fp32"), (32, "fp32"), (8, "bf16")):
        job = local(place, length, steps=24, precision=precision)
        same_digest_by_any_group(place, job, f"{length} local steps, {precision}", 4)


main(any_group_has_the_same_bits, a_job_goes_on_after_all_was_lost, what_cannot_be_is_said,
     long=(any_number_of_workers_and_threads_has_the_same_bits,))
