"""The command that a script's run prints when it is ended goes on from its last checkpoint."""
import os
import shlex
import signal
import subprocess

from harness import PATIENCE, STARLING, require, wait_until
from scripts import HEAD, PATHS, events, started, written

END = """
train(steps=1000000, checkpoint=os.environ["CHECKPOINTS"], checkpoint_every=1000000)
"""


def what_is_printed_can_be_run(place):
    script = written(place, "train.py", HEAD + END)
    out = place.path("out")
    run = started(script, OUT=out, CHECKPOINTS=out + ".checkpoints")
    wait_until(lambda: len(events(out, "step")) > 20 or run.poll() is not None, "twenty steps")
    run.send_signal(signal.SIGTERM)
    said = "".join(run.communicate(timeout=PATIENCE))
    require(run.returncode == 143, f"exit code {run.returncode}: {said}")
    lines = said.splitlines()
    at = next((i for i, line in enumerate(lines) if "goes on from the checkpoint of step" in line), None)
    require(at is not None, f"no way to go on: {said}")
    command = lines[at + 1].strip()
    named = [word for word in shlex.split(command) if "/" in word and word.endswith((".toml", ".py"))]
    require(all(map(os.path.exists, named)), f"what is gone is named: {command}")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING": STARLING, "OUT": out + "-again",
                 "CHECKPOINTS": out + ".checkpoints"}
    again = subprocess.Popen(command, shell=True, env=variables, cwd=place.folder, start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    shown = []
    for line in again.stdout:  # it has no end
        shown.append(line)
        if "goes on from the checkpoint of step" in line or line.startswith("step "):
            break
    os.killpg(again.pid, signal.SIGTERM)
    again.communicate(timeout=PATIENCE)
    require("goes on from the checkpoint of step" in shown[-1], "".join(shown))


def of_a_job_file_it_keeps_the_folder(place):
    job = place.job(steps=1000000, more="")
    with open(job, "a") as file:
        file.write(f'[checkpoint]\ndir = "{place.path("checkpoints")}"\nevery = 1000000\n')
    for words in (["--out", place.path("out-1")], [f"--out={place.path('out-2')}"], ["-o", place.path("out-3")]):
        out = words[-1].rpartition("=")[2]
        run = subprocess.Popen([STARLING, "run", job, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
        wait_until(lambda: len(events(out, "step")) > 3 or run.poll() is not None, "some steps")
        run.send_signal(signal.SIGTERM)
        said = run.communicate(timeout=PATIENCE)[0].splitlines()
        at = next((i for i, line in enumerate(said) if "goes on from the checkpoint of step" in line), None)
        require(at is not None, f"no way to go on: {said}")
        command = shlex.split(said[at + 1])
        require(command[1:] == ["run", job, *words, "--resume"], f"{command}")
        again = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        wait_until(lambda: events(os.path.join(out, "run-1"), "ended") and events(out, "step") or again.poll() is not None,
                   "it goes on in the same folder")
        again.send_signal(signal.SIGTERM)
        said = again.communicate(timeout=PATIENCE)[0]
        require(again.returncode == 143 and events(out, "start")[0]["from"] > 0, said[-2000:])
        subprocess.run(["rm", "-rf", place.path("checkpoints")], check=True)
