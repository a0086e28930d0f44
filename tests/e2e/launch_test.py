"""What `starling launch` writes is run as far as that goes without the engine: scripts and units by stand-ins that do
what the engine does with them, through a worker that is told to leave, to the model of an undisturbed run."""
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from unittest import mock

from harness import LEFT, STARLING, Skipped, alive, children_of, main, processes_naming, require, wait_until
from ports import free_port
from scripts import HEAD, PATHS, written

STEPS = 600  # who is told to leave at step 10 has left before the end
WAIT_MS = 600000
# Each starts what Slurm would, at once and in the background, with the variables that Slurm sets.
SLURM = {
    "sbatch": """#!/bin/bash
        for script; do :; done
        array=$(sed -n 's/^#SBATCH --array=\\([0-9]*\\)-\\([0-9]*\\)$/\\1 \\2/p' "$script")
        log=$(sed -n 's/^#SBATCH --output=//p' "$script")
        export SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID SLURM_CPUS_ON_NODE=1
        for SLURM_ARRAY_TASK_ID in $(seq ${array:-0 0}); do
          setsid bash "$script" >> "${log/\\%a/$SLURM_ARRAY_TASK_ID}" 2>&1 < /dev/null &
        done""",
    "srun": """#!/bin/bash
        exec "$@" """,
    "scontrol": """#!/bin/bash
        cd .. && echo "$*" >> requeued
        export SLURM_ARRAY_TASK_ID=${2#*_}
        setsid bash workers.sbatch >> worker-$SLURM_ARRAY_TASK_ID.log 2>&1 < /dev/null &""",
}


class Launched:
    """A job in a folder whose name a shell has to have quoted, and the folder of its files."""

    def __init__(self, place, engine, programs):
        place.count += 1
        self.place, self.engine = place, engine
        self.runs_in = None  # where its events and models are; None: in the folder of the files
        self.home = place.path(f"it's $(job) {place.count}")
        self.out = os.path.join(self.home, engine)
        os.mkdir(self.home)
        self.job = os.path.join(self.home, "job.toml")
        os.rename(place.job(steps=STEPS, start_timeout_ms=WAIT_MS, coordinator_timeout_ms=WAIT_MS), self.job)
        os.link(place.path("text.txt"), os.path.join(self.home, "text.txt"))
        self.bin = place.path(f"bin-{place.count}")
        os.mkdir(self.bin)
        os.symlink(STARLING, os.path.join(self.bin, "starling"))
        for name, text in programs.items():
            with open(os.path.join(self.bin, name), "w") as file:
                file.write(text)
            os.chmod(file.name, 0o755)

    def launch(self, *options, code=0):
        done = subprocess.run([STARLING, "launch", self.engine, self.job, "--out", self.out, *map(str, options)], text=True,
                              env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        require(done.returncode == code, f"exit code {done.returncode}: {done.stdout}")
        return done.stdout

    def text(self, name):
        try:
            with open(os.path.join(self.runs_in or self.out, name)) as file:
                return file.read()
        except OSError:
            return ""

    def events(self, kind):
        lines = self.text("out/events.jsonl").split("\n")[:-1]
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def workers(self, what):
        return [event for event in self.events("worker") if event["what"] == what]

    def model(self, name):
        with contextlib.suppress(OSError), open(os.path.join(self.runs_in or self.out, name), "rb") as file:
            return file.read()
        return None

    def ends_as_an_undisturbed_run(self, models):
        wait_until(lambda: self.events("done"), "the end of the job")
        wait_until(lambda: not processes_naming(self.place.folder), "all processes end")
        with open(os.path.join(self.place.quiet(self.job).out, "model.safetensors"), "rb") as file:
            expected = file.read()
        for model in models:
            require(self.model(model) == expected, f"{model} is not the model of an undisturbed run")


def slurms_scripts_lead_to_the_model_and_put_who_has_left_back(place):
    job = Launched(place, "slurm", SLURM)
    job.launch("--workers", 3, "--at", f"localhost:{free_port()}", "--data", os.path.join(job.home, "text.txt"), "--submit")
    # Who is told to leave before an epoch has it is gone without a word of the group's.
    wait_until(lambda: any(len(epoch["members"]) == 3 for epoch in job.events("epoch")), "an epoch of three workers")
    leaver = next(event for event in job.workers("joined") if event["name"] == "worker-1")
    os.kill(leaver["pid"], signal.SIGTERM)
    wait_until(lambda: job.workers("left"), "worker 1 leaves in order")
    wait_until(lambda: len(job.workers("joined")) == 4, "worker 1 is back")
    require(job.text("requeued") == "requeue 7_1\n", job.text("requeued"))
    job.ends_as_an_undisturbed_run([f"worker-{n}/model.safetensors" for n in range(3)])


def a_script_is_launched_as_a_job_file_is(place):
    script = written(place, "nets/train.py", HEAD + """
def slowly(net, batch):
    import time
    time.sleep(0.004)
    return loss(net, batch)

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    train(slowly, steps=int(sys.argv[1]), checkpoint=os.path.join(here, "kept"), checkpoint_every=20)
""")
    bin = place.path("python's bin")
    os.mkdir(bin)
    os.symlink(sys.executable, os.path.join(bin, "python3"))
    job = Launched(place, "slurm", SLURM)
    job.job = script
    with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(PATHS), "PATH": f"{bin}:{os.environ['PATH']}"}):
        job.launch("--workers", 3, "--at", f"localhost:{free_port()}", "--submit", "--", STEPS)
        require(f"export STARLING_PYTHON='{bin}/python3'".replace("n's", "n'\\''s") in job.text("workers.sbatch"), job.text("workers.sbatch"))
        wait_until(lambda: any(len(epoch["members"]) == 3 for epoch in job.events("epoch")), "an epoch of three workers")
        leaver = next(event for event in job.workers("joined") if event["name"] == "worker-1")
        os.kill(leaver["pid"], signal.SIGTERM)
        wait_until(lambda: job.text("requeued") == "requeue 7_1\n", "worker 1 is put back")
        wait_until(lambda: job.events("done"), "the end of the job")
        wait_until(lambda: not processes_naming(place.folder), "all processes end")
        require(any(step["world"] == 3 for step in job.events("step")[-100:]), "worker 1 is not back")
        quiet = place.run(script, "--workers", 1, "--checkpoints", place.path("others"), "--", STEPS)
        require(quiet.digest() == job.events("done")[0]["digest"], "another digest than that of an undisturbed run")
    with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(PATHS)}):
        pods = Launched(place, "kubernetes", {})
        pods.job = script
        pods.launch("--workers", 3, "--image", "registry.example/starling:1", "--volume", "training:/training", "--", STEPS)
        require('script = "/training/train.py"' in pods.text("job.toml"), pods.text("job.toml"))
        units = Launched(place, "systemd", {})
        units.job = script
        units.launch("--workers", 3, "--at", "10.0.0.1:7000", "--program", STARLING, "--", STEPS)
        require("STARLING_PYTHON=" in units.text("starling-worker@.service"), units.text("starling-worker@.service"))


class Unit:
    """A unit's process, which is started again as its lines say. `etc`, `var`: in the place of the machine's folders."""

    def __init__(self, path, instance, etc, var):
        with open(path) as file:
            self.lines = dict(re.findall(r"^(\w+)=(.*)$", file.read(), re.MULTILINE))
        self.folder = self.lines["WorkingDirectory"].replace("%i", instance).replace("/var/lib/starling", var)
        os.makedirs(self.folder, exist_ok=True)
        self.words = [word.replace("%%", "\0").replace("%i", instance).replace("\0", "%").replace("$$", "$")
                      .replace("/etc/starling", etc) for word in shlex.split(self.lines["ExecStart"])]
        self.starts = 0
        self.start()

    def start(self):
        self.starts += 1
        with open(os.path.join(self.folder, "unit.log"), "a") as log:
            self.process = subprocess.Popen(self.words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={"PATH": "/usr/bin:/bin"})

    def codes(self, line):
        return [int(code) for code in self.lines[line].split()]

    def tend(self):
        """As systemd does after an end, with Restart=on-failure."""
        require(self.lines["Restart"] == "on-failure", self.lines["Restart"])
        code = self.process.poll()
        stays = code is None or code in (0, *self.codes("SuccessExitStatus"), *self.codes("RestartPreventExitStatus"))
        if not stays:
            self.start()

    def kill(self):
        pids = (*children_of(self.process.pid), self.process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # systemd starts a unit again when all of its processes are gone: until then a worker's key is in use.
        wait_until(lambda: not any(alive(pid) for pid in pids), "all processes of the unit are gone")


def systemds_units_lead_to_the_model_and_begin_again_as_they_say(place):
    job = Launched(place, "systemd", {})
    job.launch("--workers", 3, "--at", f"127.0.0.1:{free_port()}", "--program", STARLING, "--data",
               os.path.join(job.home, "text.txt"))
    etc, var = place.path("etc"), place.path("var")
    shutil.copytree(os.path.join(job.out, "keys"), etc)
    shutil.copy(os.path.join(job.out, "job.toml"), etc)
    job.runs_in = var
    coordinator = Unit(os.path.join(job.out, "starling-coordinator.service"), "", etc, var)
    workers = [Unit(os.path.join(job.out, "starling-worker@.service"), str(n), etc, var) for n in range(3)]

    def wait(condition, what):
        def tended():
            for unit in (coordinator, *workers):
                unit.tend()
            return condition()
        wait_until(tended, what)

    # On a busy machine one may be left out and come back by itself.
    wait(lambda: len({worker["name"] for worker in job.workers("joined")}) == 3, "three workers")
    wait(lambda: len(job.events("step")) > 10, "steps")
    before = len(job.workers("joined"))
    workers[0].kill()
    wait(lambda: "worker-0" in [worker["name"] for worker in job.workers("joined")[before:]], "worker 0, which was killed, is back")
    coordinator.kill()
    wait(lambda: coordinator.starts == 2, "the coordinator is started again")
    workers[1].process.send_signal(signal.SIGTERM)
    wait(lambda: job.workers("left"), "worker 1 leaves in order")
    wait(lambda: all(unit.process.poll() is not None for unit in (coordinator, *workers)), "all end")
    ends = [(unit.starts, unit.process.returncode) for unit in (coordinator, *workers)]
    require(ends == [(2, 0), (2, 0), (1, LEFT), (1, 0)], f"starts and exit codes: {ends}")
    job.ends_as_an_undisturbed_run([f"worker-{n}/model.safetensors" for n in (0, 2)])


def systemd_knows_every_line_of_its_units(place):
    if shutil.which("systemd-analyze") is None:
        raise Skipped("no systemd-analyze here")
    for number, at in enumerate(("10.0.0.1:7000", "10.0.0.1:7000,[fe80::1]:7000,c:7000")):
        job = Launched(place, "systemd", {})
        job.launch("--workers", 3, "--at", at, "--program", STARLING, "--data", "/my data/100%i $x \"'\\")
        os.rename(os.path.join(job.out, "starling-worker@.service"), os.path.join(job.out, "starling-worker@3.service"))
        units = [name for name in os.listdir(job.out) if name.endswith(".service")]
        require(len(units) == 2 + 2 * number, units)
        done = subprocess.run(["systemd-analyze", "verify", *(f"./{unit}" for unit in units)], cwd=job.out, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        require(done.returncode == 0 and not done.stdout, f"exit code {done.returncode}: {done.stdout}")


def what_is_there_is_not_written_over_and_what_fails_leaves_nothing(place):
    job = Launched(place, "slurm", {})
    at = ("--workers", 3, "--at", "n4:7000")
    job.launch(*at)
    before = job.text("workers.sbatch"), job.text("keys/worker-0")
    require("is there already" in job.launch(*at, code=2), "written over")
    require((job.text("workers.sbatch"), job.text("keys/worker-0")) == before, "changed")

    keys, job.out = os.path.join(job.out, "keys"), os.path.join(job.home, "a", "b")
    require("no secret key of worker-16, expected those of 17 workers" in job.launch("--workers", 17, "--at", "n4:7000", "--keys", keys, code=2),
            "too few keys")
    require("secret keys of 1 coordinators, expected 3" in job.launch(
        "--workers", 3, "--at", "a:1,b:1,c:1", "--keys", keys, code=2), "too few coordinators")
    require(not os.path.exists(os.path.dirname(job.out)), "something is left")
    job.out += "/"
    job.launch(*at, "--keys", keys)
    require(sorted(job.text("keys/worker-0").split("\n")) == sorted(before[1].split("\n")), "other keys than those of --keys")
    require(os.stat(os.path.join(job.out, "keys")).st_mode & 0o777 == 0o700, "others can look into the folder of keys")


main(slurms_scripts_lead_to_the_model_and_put_who_has_left_back, a_script_is_launched_as_a_job_file_is,
     systemds_units_lead_to_the_model_and_begin_again_as_they_say, systemd_knows_every_line_of_its_units,
     what_is_there_is_not_written_over_and_what_fails_leaves_nothing)
