"""A data file that is written anew while a job runs is noticed: the run ends, or its audit does not say that P1 held."""
import os
import subprocess

from harness import PATIENCE, STARLING, require, wait_until


def other_bytes_of_the_same_number(place):
    job = place.job(steps=3000)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(20)
    path = place.path("text.txt")
    require(os.path.getsize(path) > 1 << 16, "the file is not mapped")
    with open(path, "r+b") as file:
        text = file.read()
        file.seek(0)
        file.write(text[::-1])
    wait_until(lambda: run.process.poll() is not None, "the end", PATIENCE)
    if run.process.returncode == 0 and run.events("done")[0]["digest"] != quiet.digest():
        audit = subprocess.run([STARLING, "audit", run.out], capture_output=True, text=True)
        require(audit.returncode != 0, f"exit code 0, another digest, and the audit says:\n{audit.stdout}")
