"""A command whose output is lost says so and ends with exit code 2; a pipe whose reader has gone is no error."""
import os
import subprocess

from harness import STARLING, SOURCE, require


def _ended(arguments, **streams):
    return subprocess.run([STARLING, *arguments], stderr=subprocess.PIPE, text=True, timeout=300, **streams)


def what_is_printed_on_a_full_disk(place):
    run = place.run(place.job(steps=20), "--workers", 1).end()
    job = os.path.join(SOURCE, "examples", "mlp", "digits.toml")
    for arguments in (["audit", run.out], ["check", job], ["check", os.path.join(run.out, "model.safetensors")],
                      ["version"], ["--version"], ["keys", "--help"], ["help"], ["--help"],
                      ["keys", "--out", place.path("keys")]):
        with open("/dev/full", "w") as full:
            ended = _ended(arguments, stdout=full)
        require(ended.returncode == 2, f"{arguments}: exit code {ended.returncode}: {ended.stderr}")
        require(ended.stderr == "starling: cannot write to standard output: No space left on device\n",
                f"{arguments}: {ended.stderr}")
    with open("/dev/full", "w") as full:  # what is wrong is said once
        ended = _ended(["audit", place.path("nothing")], stdout=full)
    require(ended.returncode == 2 and len(ended.stderr.splitlines()) == 1, ended.stderr)


def no_reader_and_no_stream(place):
    read, write = os.pipe()
    os.close(read)
    ended = _ended(["version"], stdout=write, preexec_fn=lambda: __import__("signal").signal(13, 1))
    require(ended.returncode == 0 and not ended.stderr, f"{ended.returncode}: {ended.stderr}")
    ended = _ended(["version"], preexec_fn=lambda: os.close(1))
    require(ended.returncode == 0 and not ended.stderr, f"{ended.returncode}: {ended.stderr}")
