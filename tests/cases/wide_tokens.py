"""Token files of 32- or 64-bit numbers without a header are not taken for 16-bit ones."""
import random
import struct
import subprocess

from harness import STARLING, require

JOB = """
[job]
name = "tokens"
steps = 4
[model]
kind = "gpt"
layers = 1
heads = 2
width = 32
context = 32
vocabulary = 50257
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[data]
kind = "tokens"
path = "{name}.bin"
"""


def wide_numbers_are_refused(place):
    draw = random.Random(1)
    tokens = [draw.randrange(50257) for _ in range(6000)]
    for name, letter, refused in (("u16", "H", False), ("u32", "I", True), ("i64", "q", True)):
        with open(place.path(name + ".bin"), "wb") as file:
            file.write(struct.pack(f"<{len(tokens)}{letter}", *tokens))
        with open(place.path(name + ".toml"), "w") as file:
            file.write(JOB.format(name=name))
        checked = subprocess.run([STARLING, "check", place.path(name + ".toml")], capture_output=True, text=True)
        said = checked.stdout + checked.stderr
        require(checked.returncode == (2 if refused else 0), f"{name}: exit code {checked.returncode}: {said}")
        require(not refused or (name + ".bin" in said and "bit" in said), f"{name}: {said}")
