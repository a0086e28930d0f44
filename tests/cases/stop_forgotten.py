"""`on_nonfinite = "stop"` ends a job at its first skipped step also when the leading coordinator dies just before."""
import json
import os
import signal
import struct
import subprocess

from harness import PATIENCE, STARLING, require, wait_until

BAD, STEPS, TRIES = 11, 20, 3  # the step that the one sample that overflows belongs to
JOB = """
[job]
name = "stop"
seed = 76
steps = {steps}
micro_batches = 2
sequences = 1
on_nonfinite = "stop"
[model]
kind = "mlp"
sizes = [4, 8, 3]
[optimizer]
kind = "sgd"
peak_rate = 0.01
[data]
kind = "classified"
path = "data.safetensors"
[elastic]
start_timeout_ms = 120000
"""


def _job(place):
    samples = 400
    xs = [[float((i * 7 + k) % 5) for k in range(4)] for i in range(samples)]
    xs[123] = [3e38] * 4
    x = b"".join(struct.pack("<4f", *row) for row in xs)
    y = struct.pack(f"<{samples}i", *(i % 3 for i in range(samples)))
    header = json.dumps({"x": {"dtype": "F32", "shape": [samples, 4], "data_offsets": [0, len(x)]},
                         "y": {"dtype": "I32", "shape": [samples], "data_offsets": [len(x), len(x) + len(y)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(place.path("data.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + x + y)
    with open(place.path("stop.toml"), "w") as file:
        file.write(JOB.format(steps=STEPS))
    return place.path("stop.toml")


def _skipped(run):
    return [e["version"] for e in run.events("step") if e["skipped"]]


def the_leader_dies_before_the_step_that_ends_the_job(place):
    job = _job(place)
    quiet = place.run(job, "--workers", 1).end(code=1)
    require(_skipped(quiet)[0] == BAD, f"undisturbed: skipped {_skipped(quiet)}, expected {BAD}")
    for _ in range(TRIES):
        run = place.run(job, "--coordinators", 3, "--workers", 2, "--start", 0)
        leader = wait_until(lambda: run.events("leader"), "a leader")[-1]
        start = run.events("start")[0]
        # So slow that a step of all 20 takes longer than it takes to see the one before it and to kill.
        slow = [subprocess.Popen([STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--slow",
                                  "1000", "--save", "none", "--quiet"], stdout=run.log, stderr=run.log)
                for _ in range(2)]
        wait_until(lambda: run.steps() >= BAD, f"step {BAD - 1}")
        killed_before = not _skipped(run)
        os.kill(leader["pid"], signal.SIGKILL)
        code = run.process.wait(PATIENCE)
        for worker in slow:
            worker.wait(PATIENCE)
        require(code == 1, f"exit code {code}, expected 1; skipped {_skipped(run)}:\n{run.text()[-2000:]}")
        if killed_before:
            return
    print("        the leader was killed too late each time")
