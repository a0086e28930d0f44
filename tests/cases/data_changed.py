"""A data file that is written anew, while a job runs or between two runs, is noticed: the run ends, or its audit does
not say that P1 held. What a refused run has written is gone, and what was there before it is not."""
import os
import subprocess

from harness import PATIENCE, STARLING, require, wait_until, with_checkpoints


def other_bytes_of_the_same_number(place):
    job = place.job(steps=3000)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(20)
    path = place.path("text.txt")
    require(os.path.getsize(path) > 1 << 16, "the file is not mapped")
    with open(path, "r+b") as file:
        text = file.read()
        file.seek(0)
        file.write(text[::-1])
    wait_until(lambda: run.process.poll() is not None, "the end", PATIENCE)
    if run.process.returncode == 0:
        with open(path, "wb") as file:
            file.write(text)
        if run.events("done")[0]["digest"] == place.quiet(job).events("done")[0]["digest"]:
            return
        audit = subprocess.run([STARLING, "audit", run.out], capture_output=True, text=True)
        require(audit.returncode != 0, f"exit code 0, another digest, and the audit says:\n{audit.stdout}")


def other_data_at_a_resume_cost_no_checkpoint(place):
    """Of 65 MiB the fingerprint has a sample; one byte elsewhere is another. All are read before a worker joins."""
    def write(byte):
        with open(path, "r+b") as file:
            file.seek(40_000_000)
            file.write(byte)

    path = place.path("text.txt")
    with open(path, "rb") as file:
        text = file.read()
    with open(path, "wb") as file:
        for _ in range((65 << 20) // len(text) + 1):
            file.write(text)
    write(b"x")
    folder = place.path("checkpoints")
    job = with_checkpoints(place.job(steps=60, schedule_steps=60), folder, every=4)
    quiet = place.quiet(place.job(steps=60, schedule_steps=60))
    first = place.run(job, "--workers", 2, "--steps", 40).end()
    there = sorted(os.listdir(folder))
    write(b"y")
    run = place.run(job, "--workers", 2, "--resume").end(code=2)
    newest = max(int(name[5:]) for name in there if name.startswith("step-"))
    require(f"the data here are others than those of the checkpoint of step {newest}" in run.text(), run.text())
    require(not run.events("step") and not run.events("tainted"), "something was computed from them")
    require(sorted(os.listdir(folder)) == there, f"{sorted(os.listdir(folder))}, before {there}")
    write(b"x")
    last = place.run(job, "--workers", 2, "--resume").end()
    require(last.events("done")[0]["digest"] == quiet.events("done")[0]["digest"], last.text())
    audit = subprocess.run([STARLING, "audit", "--together", first.out, last.out], capture_output=True, text=True)
    require(audit.returncode == 0, audit.stdout + audit.stderr)
