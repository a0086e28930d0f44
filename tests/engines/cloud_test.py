"""What `starling launch skypilot` and `dstack` write, read by these tools' own packages."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import SOURCE, STARLING, Skipped, main, require

FOLDER = os.path.join(SOURCE, "build", "engines")
SKY = os.environ.get("STARLING_SKY_PYTHON", os.path.join(FOLDER, "skypilot", "bin", "python"))
DSTACK = os.environ.get("STARLING_DSTACK_PYTHON", os.path.join(FOLDER, "dstack", "bin", "python"))
READ_BY_SKY = """
import json, sys, sky
task = sky.Task.from_yaml(sys.argv[1])
(resources,) = task.resources
print(json.dumps([task.run, resources.use_spot, resources.cpus, resources.extract_docker_image(), resources.job_recovery,
                  {name: count for name, count in (resources.accelerators or {}).items()}]))
"""
READ_BY_DSTACK = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
print(parse_apply_configuration(yaml.safe_load(open(sys.argv[1]))).json())
"""


def written(place, engine, *options):
    job, out = place.job(start_timeout_ms=600000, coordinator_timeout_ms=600000), place.path(engine)
    done = subprocess.run([STARLING, "launch", engine, job, "--workers", "3", "--at", "203.0.113.7:7000", "--image",
                           "registry.example/starling:1", "--data", "/data/it's $(here): #1", "--out", out, *options],
                          capture_output=True, text=True)
    require(done.returncode == 0, done.stderr)
    return out


def read(python, program, path, **variables):
    if not os.path.exists(python):
        raise Skipped(f"needs {python}, which tools/test.sh --engines makes")
    done = subprocess.run([python, "-c", program, path], capture_output=True, text=True, env={**os.environ, **variables})
    require(done.returncode == 0, done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def words_of(command):
    """As a shell has them, without the program."""
    shown = subprocess.run(["sh", "-c", "starling() { printf '%s\\n' \"$@\"; }; " + command.removeprefix("exec ")],
                           capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()


WORKER = ["worker", "--data", "/data/it's $(here): #1", "--threads", "2", "--notice", "30", "--wait", "600"]


def skypilot_reads_what_is_meant(place):
    out = written(place, "skypilot", "--threads", "2", "--gpu", "A100:2", "--name", "tiny")
    run, spot, cpus, image, recovery, gpus = read(SKY, READ_BY_SKY, os.path.join(out, "worker.sky.yaml"),
                                                  HOME=place.folder)
    require(words_of(run.strip()) == WORKER, run)
    require(spot is True and cpus == "2+" and image == "registry.example/starling:1", (spot, cpus, image))
    require(recovery["recover_on_exit_codes"] == [143] and gpus == {"A100": 2}, (recovery, gpus))


def dstack_reads_what_is_meant(place):
    out = written(place, "dstack", "--threads", "2", "--gpu", "A100", "--name", "tiny")
    seen = read(DSTACK, READ_BY_DSTACK, os.path.join(out, "worker.dstack.yml"), HOME=place.folder)
    require(seen["type"] == "task" and seen["image"] == "registry.example/starling:1" and seen["spot_policy"] == "spot", seen)
    (command,) = seen["commands"]
    require(words_of(command.strip()) == WORKER, command)
    require(seen["retry"]["on_events"] == ["no-capacity", "interruption", "error"], seen["retry"])
    require(seen["stop_duration"] == 45 and seen["resources"]["gpu"]["name"] == ["A100"], seen)


def workers_are_begun_one_by_one_with_their_tokens(place):
    """By stand-ins for the tools, which note how they are called."""
    for engine, tool in (("skypilot", "sky"), ("dstack", "dstack")):
        out = written(place, engine)
        folder = place.path(engine + "-bin")
        os.mkdir(folder)
        with open(os.path.join(folder, tool), "w") as file:
            file.write('#!/bin/sh\necho "$*" >> "$NOTES"\necho "$STARLING_JOIN" >> "$NOTES"\n')
        os.chmod(file.name, 0o755)
        notes = place.path(engine + ".notes")
        subprocess.run(["sh", os.path.join(out, "workers.sh"), "1", "2"], check=True, cwd=place.folder,
                       env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NOTES": notes})
        with open(notes) as file:
            lines = file.read().splitlines()
        with open(os.path.join(out, "keys", "worker-2.token")) as file:
            token = file.read().strip()
        require(len(lines) == 4 and "--name e2e-worker-1 " in lines[0] and "--name e2e-worker-2 " in lines[2], lines)
        require(lines[3] == token and not any(token in line for line in lines[::2]), "the token is in no argument")


main(workers_are_begun_one_by_one_with_their_tokens, skypilot_reads_what_is_meant, dstack_reads_what_is_meant)
