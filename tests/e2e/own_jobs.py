"""Jobs of a program with models of its own, which have flaws (tests/own/flawed.cpp)."""
import os

from harness import STARLING

PROGRAM = os.path.join(os.path.dirname(STARLING), "tests", "flawed")
NONE, MODEL, DATA, ONE = range(4)
JOB = """
[job]
name = "own"
steps = {steps}
micro_batches = 8
sequences = 4
replicas = 2
[model]
kind = "own"
name = "mean"
tensors = ["mean:1"]
options = {{ flaw = {flaw} }}
[optimizer]
kind = "sgd"
peak_rate = 1e-2
[elastic]
lease_ms = 2000
"""


def job(place, flaw, steps=300):
    path = place.path(f"own-{flaw}.toml")
    with open(path, "w") as file:
        file.write(JOB.format(flaw=flaw, steps=steps))
    return path
