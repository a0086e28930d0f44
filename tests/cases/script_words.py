"""What is said to people who have a script speaks of the script and its arguments, and of no job file; nothing of a run
stays in the folder for temporary files, however it ends."""
import contextlib
import os
import signal
import subprocess
import sys

from harness import PATIENCE, STARLING, processes_naming, require, wait_until
from scripts import HEAD, KEPT, PATHS, ended, events, started, written

ENDLESS = HEAD + """
train(steps=1000000)
"""
KEEPS = KEPT + """
def keeps(steps, **more):
    train(until_kept("checkpoints"), steps=steps, checkpoint="checkpoints", checkpoint_every=4, **more)
"""


def _command(place, *arguments, **variables):
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), **variables}
    done = subprocess.run([STARLING, *arguments], env=variables, cwd=place.folder, capture_output=True, text=True,
                          timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def nothing_stays_of_one_that_is_killed(place):
    temporary = place.path("tmp")
    os.mkdir(temporary)
    script = written(place, "train.py", ENDLESS)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING": STARLING, "TMPDIR": temporary}
    for number, command in enumerate(([sys.executable, script], [STARLING, "run", script, "--out", place.path("out-1")])):
        out = place.path(f"out-{number}")
        process = subprocess.Popen(command, env={**variables, "OUT": out}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: len(events(out, "step")) > 3 or process.poll() is not None, "some steps")
        require(process.poll() is None, f"{command} has ended")
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pid in processes_naming(out):  # of a killed `run` they look for its coordinator for half a minute
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes_naming(place.folder), "its processes end, those of the script too")
        require(not os.listdir(temporary), f"{command}: {os.listdir(temporary)}")


def an_option_of_the_command_that_does_not_fit_names_the_script(place):
    script = written(place, "train.py", HEAD + """
train(optimizer=starling.AdamW(warmup=6), command=("--steps", "5"))
""")
    code, said = ended(script, OUT=place.path("out"))
    require(code == 2 and "must be below the schedule's 5 steps" in said, said)
    _speaks_of_no_job_file(said)


def _speaks_of_no_job_file(said):
    for word in "job file", ".toml", "/proc/", "reading", "[job]", "[checkpoint]", "sequences":
        require(word not in said, f"{word}: {said}")


def to_go_on_it_has_to_name_a_folder_of_checkpoints(place):
    script = written(place, "train.py", HEAD + "train(resume=True)\n")
    code, said = ended(script, OUT=place.path("out"))
    require(code == 2 and "needs checkpoint= in starling.train()" in said, said)
    _speaks_of_no_job_file(said)
    code, said = _command(place, "run", written(place, "plain.py", HEAD + "train()\n"), "--checkpoints", "c")
    require(code == 2 and "--checkpoints needs checkpoint= in the script's starling.train()" in said, said)
    _speaks_of_no_job_file(said)


def a_script_is_told_how_it_goes_on(place):
    script = written(place, "train.py", KEEPS + "keeps(20)\n")
    require(ended(script, folder=place.folder, OUT=place.path("first"))[0] == 0, "the first run")
    code, said = ended(script, folder=place.folder, OUT=place.path("again"))
    require(code == 2 and "or resume=True in starling.train() (STARLING_RESUME=1, or --resume of starling run)" in said, said)
    _speaks_of_no_job_file(said)
    code, said = ended(script, folder=place.folder, OUT=place.path("again"), STARLING_RESUME="1")
    require(code == 0, said)


def a_script_is_told_how_it_trains_longer(place):
    script = written(place, "train.py", KEEPS + "keeps(int(sys.argv[1]), command=sys.argv[2:])\n")
    require(ended(script, 20, folder=place.folder, OUT=place.path("short"))[0] == 0, "the first 20 steps")
    resumed = {"folder": place.folder, "STARLING_RESUME": "1"}
    code, said = ended(script, 24, OUT=place.path("refused"), **resumed)
    require(code == 2 and 'command=("--steps", "24") in starling.train() goes on and leaves' in said, said)
    code, said = ended(script, 20, "--steps", 24, OUT=place.path("longer"), **resumed)
    require(code == 0 and events(place.path("longer"), "done")[0]["version"] == 24, said)
    code, said = _command(place, "run", script, "--resume", "--out", place.path("run"), "--", "24")
    require(code == 2 and "; --steps 24 goes on and leaves" in said, said)


def arguments_of_a_script_follow_two_dashes(place):
    script = written(place, "two.py", HEAD + "train(steps=2)\n")
    for words, name in ((["run", script, "--workers", "2", "--dropout", "0.5"], "--dropout"),
                        (["chaos", script, "--out", "c", "--dropout=0.5"], "--dropout"),
                        (["check", script, "--dropout", "0.5"], "--dropout"),
                        (["worker", "--join", "a:1", "--script", script, "--dropout", "0.5"], "--dropout"),
                        (["run", script, "left"], "left")):
        code, said = _command(place, *words)
        expected = f"arguments of the script follow --, as in starling {words[0]} .. {script} -- {name}"
        require(code == 2 and expected in said and said.count("\n") == 1, f"{words}: {said}")
    code, said = _command(place, "run", "job.toml", "--worker", "2")
    require(code == 2 and said == "starling: unknown option --worker of run; did you mean --workers?\n", said)
