"""What a script's own functions are told in the process that was started, and stop=, by the command itself over the
package, with the stand-in for torch (tests/python/callbacks_test.py has the files of events alone)."""
import csv
import os
import re
import shutil
import signal
import subprocess

from harness import SOURCE, STARLING, alive, main, processes_naming, require, wait_until
from scripts import HEAD, ended, events, result, started, written

# What is told goes to a file, a line each; PACE has passes take their time.
TELLS = HEAD + """
import time
told = open(os.environ["TOLD"], "a", buffering=1)
def paced(net, batch):
    time.sleep(float(os.environ.get("PACE", 0)) if os.path.exists(os.environ.get("SLOW", os.sep)) else 0)
    return loss(net, batch)
def say(kind, number):
    print(kind, number, file=told)
options = dict(steps=40, on_step=lambda s: say("step", s.step), on_epoch=lambda e: say("epoch", e.epoch),
               on_checkpoint=lambda c: say("checkpoint", c.step), checkpoint=os.environ.get("CK"), checkpoint_every=10,
               optimizer=starling.AdamW(2e-2, floor=1.0), log=["csv", lambda step, scalars: say("log", step)])
"""
RUNS = TELLS + "train(paced, **options)\n"


def told_in(path, kind):
    try:
        with open(path) as file:
            return [int(line.split()[1]) for line in file if line.startswith(kind + " ")]
    except OSError:
        return []


def variables(place, name, **more):
    return {"TOLD": place.path(name + ".told"), "OUT": place.path(name), "CK": place.path(name + "-ck"), **more}


def each_is_told_once_whatever_happens_to_workers(place):
    script = written(place, "runs.py", RUNS.replace("steps=40", "steps=400").replace("every=10", "every=100"))
    quiet = result(script, **variables(place, "quiet"))
    slow = written(place, "slow", "")  # until another one has come in the place of the one that is killed
    of = variables(place, "three", WORKERS="3", PACE="0.05", SLOW=slow)
    run = started(script, **of)
    wait_until(lambda: told_in(of["TOLD"], "step")[2:], "steps are told while the job runs")

    def joined():
        return [e for e in events(of["OUT"], "worker") if e["what"] == "joined"]

    os.kill(joined()[1]["pid"], signal.SIGKILL)
    wait_until(lambda: len(joined()) > 3, "another worker")
    os.remove(slow)
    said, errors = run.communicate()
    require(run.returncode == 0 and quiet in said, said + errors)
    for name in "quiet", "three":
        told = variables(place, name)["TOLD"]
        require(told_in(told, "step") == list(range(1, 401)), f"{name}: {told_in(told, 'step')}")
        require(told_in(told, "epoch") == list(range(1, 101)), f"{name}: {told_in(told, 'epoch')}")
        require(told_in(told, "checkpoint") == [100, 200, 300], f"{name}: {told_in(told, 'checkpoint')}")


def a_slow_function_holds_no_worker_up(place):
    script = written(place, "slow.py", HEAD + """
import time
def waits(step):
    while step.step == 1 and '"ev":"done"' not in open(os.path.join(os.environ["OUT"], "events.jsonl")).read():
        time.sleep(0.01)
    print("STEP", step.step, flush=True)
train(on_step=waits)
""")
    code, said = ended(script, OUT=place.path("slow"), WORKERS="2")
    require(code == 0 and [line for line in said.splitlines() if line.startswith("STEP")]
            == [f"STEP {i}" for i in range(1, 9)], said)


def what_one_raises_ends_the_run_and_is_the_last_that_is_said(place):
    script = written(place, "raises.py", RUNS.replace('say("step", s.step)', """(say("step", s.step),
    {}["mine"] if s.step == 15 and not os.environ.get("MENDED") else None)"""))
    quiet = result(script, **variables(place, "quiet", MENDED="1"))
    of = variables(place, "raises", PACE="0.01", WORKERS="2", SLOW=SOURCE)
    run = started(script, **of)
    said, errors = run.communicate()
    require(run.returncode == 1 and errors.rstrip().endswith("KeyError: 'mine'"), f"{run.returncode}: {said}{errors}")
    require(not processes_naming(script) and not events(of["OUT"], "done"), "something goes on")
    again = result(script, MENDED="1", STARLING_RESUME="1", **of)
    require(again == quiet, f"{again}, undisturbed {quiet}")
    require(told_in(of["TOLD"], "step") == [*range(1, 16), *range(15, 41)], f"{told_in(of['TOLD'], 'step')}")
    require(told_in(of["TOLD"], "epoch") == list(range(1, 11)), f"{told_in(of['TOLD'], 'epoch')}")


def who_goes_on_after_a_kill_is_told_the_rest(place):
    script = written(place, "runs.py", RUNS)
    quiet = result(script, **variables(place, "quiet"))
    of = variables(place, "killed", PACE="0.01", SLOW=SOURCE)
    run = started(script, **of)
    wait_until(lambda: told_in(of["TOLD"], "step")[14:], "steps are told")
    workers = [e["pid"] for e in events(of["OUT"], "worker") if e["what"] == "joined"]
    run.kill()
    run.communicate()
    wait_until(lambda: not any(alive(pid) for pid in workers) and not processes_naming(script), "the run ends")
    require(result(script, STARLING_RESUME="1", **of) == quiet, "another digest")
    require(told_in(of["TOLD"], "step") == list(range(1, 41)), f"{told_in(of['TOLD'], 'step')}")
    require(told_in(of["TOLD"], "checkpoint") == [10, 20, 30], f"{told_in(of['TOLD'], 'checkpoint')}")
    require(result(script, STARLING_RESUME="1", **of) == quiet, "it was done")
    require(told_in(of["TOLD"], "step") == list(range(1, 41)), "told again when it was done")


def a_log_has_one_course_where_a_run_goes_on_at_another_rate(place):
    script = written(place, "rates.py", RUNS.replace("train(paced", """
if os.environ.get("RATE"):
    options["command"] = ("--peak-rate", os.environ["RATE"])
train(paced"""))
    of = variables(place, "rates", PACE="0.01", SLOW=SOURCE)
    run = started(script, **of)
    wait_until(lambda: told_in(of["TOLD"], "step")[14:], "steps are told")
    run.kill()
    run.communicate()
    wait_until(lambda: not processes_naming(script), "the run ends")
    before = told_in(of["TOLD"], "step")[-1]
    for name in os.listdir(of["CK"]):  # steps after the one that is left were done, and told
        if name.startswith("step-") and name != "step-000000010":
            shutil.rmtree(os.path.join(of["CK"], name))
    code, said = ended(script, STARLING_RESUME="1", RATE="0.005", **of)
    require(code == 0 and said.count("step 11 has another loss, norm, rate, metric or evaluation than in the run before") == 1, said)
    losses = [e["loss"] for name in ("run-1", "") for e in events(os.path.join(of["OUT"], name), "step")
              if name == "" or e["version"] < 10]
    with open(os.path.join(of["OUT"], "steps.csv")) as file:
        rows = list(csv.DictReader(file))
    require([int(row["step"]) for row in rows] == list(range(1, 41)), f"{rows}")
    require([float(row["loss"]) for row in rows] == losses, f"{rows}")
    require([float(row["rate"]) for row in rows] == [0.02] * 10 + [0.005] * 30, f"{rows}")
    for kind in "step", "log":
        numbers = told_in(of["TOLD"], kind)
        require(numbers[-30:] == list(range(11, 41)) and numbers[:before] == list(range(1, before + 1)), f"{kind}: {numbers}")


STOPS = TELLS + """
def below(record):
    return record.step >= 13 and record.loss < 1.9
train(paced, **(options | eval(os.environ.get("MORE", "{}"))), stop=below)
"""


def steps_of(of):
    return events(of["OUT"], "done")[0]["version"]


def stop_ends_at_one_step_for_any_number_of_workers(place):
    script = written(place, "stops.py", STOPS)
    first = variables(place, "one")
    code, said = ended(script, **first)
    require(code == 0, said)
    digest = next(line.split()[1] for line in said.splitlines() if line.startswith("RESULT "))
    end = steps_of(first)
    lines = [line for line in said.splitlines() if "stop was true" in line]
    require(lines == ["stop was true; ending, to go back to its step", f"stop was true at step {end}: the job ends with that"], said)
    require("writing a last checkpoint" not in said and "this goes on from" not in said, said)
    audited = subprocess.run([STARLING, "audit", "--together", os.path.join(first["OUT"], "run-1"), first["OUT"]],
                             capture_output=True, text=True)
    require(audited.returncode == 0 and re.search(r"P1 one record +held .*; it went back there from step", audited.stdout), audited)
    require(13 <= end < 40, f"it ends with step {end}, expected one between others")
    losses = [e["loss"] for e in events(os.path.join(first["OUT"], "run-1"), "step")]
    require(losses[end - 1] < 1.9 and not any(l < 1.9 for l in losses[12:end - 1]), f"{end}: {losses}")
    require(os.path.exists(os.path.join(first["OUT"], "model.safetensors")), "no model")
    of = variables(place, "three", WORKERS="3", PACE="0.02", SLOW=SOURCE)
    run = started(script, **of)
    wait_until(lambda: told_in(of["TOLD"], "step")[2:], "steps are told")
    os.kill([e for e in events(of["OUT"], "worker") if e["what"] == "joined"][0]["pid"], signal.SIGKILL)
    said, errors = run.communicate()
    require(run.returncode == 0 and digest in said and steps_of(of) == end, f"{steps_of(of)}, expected {end}: {said}{errors}")
    for one in first, of:
        require(told_in(one["TOLD"], "step") == list(range(1, end + 1)), f"{told_in(one['TOLD'], 'step')}")
        require(told_in(one["TOLD"], "checkpoint") == [n for n in (10, 20, 30) if n < end], told_in(one["TOLD"], "checkpoint"))
        require(not [name for name in os.listdir(one["CK"]) if name[5:].isdigit() and int(name[5:]) >= end], "beyond the end")
    # The rate is the same at all steps here, so that a job of so many steps has the same model.
    require(result(written(place, "runs.py", RUNS.replace("train(paced", f"options['steps'] = {end}\ntrain(paced")),
                   **variables(place, "as-many")) == digest, "another model than that of a job of so many steps")
    require(result(script, STARLING_RESUME="1", **first) == digest and steps_of(first) == end, "another end when it is done")


def stop_keeps_the_schedule_and_works_without_a_checkpoint_before(place):
    script = written(place, "stops.py", STOPS)
    found = {}
    for name, more in (("often", {"checkpoint_every": 4}), ("never", {"checkpoint_every": 1000})):
        of = variables(place, name, MORE=f"{{'checkpoint_every': {more['checkpoint_every']},"
                                         " 'optimizer': starling.AdamW(2e-2, warmup=3, floor=0.0)}")
        found[name] = result(script, **of), steps_of(of)
    require(len(set(found.values())) == 1, f"{found}")


def stop_holds_through_a_kill_and_a_resume(place):
    script = written(place, "stops.py", STOPS)
    quiet = variables(place, "quiet")
    digest = result(script, **quiet)
    of = variables(place, "killed", PACE="0.01", SLOW=SOURCE)
    run = started(script, **of)
    wait_until(lambda: told_in(of["TOLD"], "step")[10:], "steps are told")
    run.kill()
    run.communicate()
    wait_until(lambda: not processes_naming(script), "the run ends")
    require(result(script, STARLING_RESUME="1", **of) == digest and steps_of(of) == steps_of(quiet), "another end")
    require(told_in(of["TOLD"], "step") == list(range(1, steps_of(quiet) + 1)), f"{told_in(of['TOLD'], 'step')}")
    elsewhere = {**of, "OUT": place.path("elsewhere"), "STARLING_RESUME": "1"}
    code, said = ended(script, **elsewhere)
    require(code == 2 and "tells nothing of step 1: go on in the out= of the runs before" in said.splitlines()[-1], said)


def stop_is_refused_where_nobody_can_ask_it(place):
    script = written(place, "stops.py", STOPS)
    code, said = ended(script, **{**variables(place, "none"), "CK": ""})
    require(code == 2 and "stop needs checkpoint=, a folder" in said and said.count("\n") == 1, said)
    code, said = ended(script, STARLING_WRITE_JOB=place.path("job.toml"), **variables(place, "command"))
    require(code == 2 and "stop= is asked in the process that `python` starts" in said, said)
    code, said = ended(written(place, "runs.py", RUNS), STARLING_WRITE_JOB=place.path("job.toml"), **variables(place, "c"))
    require(code == 0 and "on_step, on_epoch, on_checkpoint, log: this command leaves them out, `python` with the script itself" in said, said)


def a_loop_of_ones_own_has_them_too(place):
    script = written(place, "loop.py", HEAD + """
job = starling.Job(build, steps=12, micro_batches=4, batch_size=4, seed=5, lease_ms=10000, workers=2,
                   out=os.environ["OUT"], checkpoint=os.environ["CK"], checkpoint_every=6, on_step=lambda s: (os.chdir("/"), print("STEP", s.step)),
                   stop=lambda record: record.step == 7)
for step in job:
    for mb in step.mine:
        mb.done(loss(job.net, mb.batch()))
print("RESULT", job.trained.digest, job.trained.steps)
""")
    code, said = ended(script, folder=place.folder, OUT="loop", CK="loop-ck")
    steps = [line for line in said.splitlines() if line.startswith("STEP")]
    require(code == 0 and steps == [f"STEP {i}" for i in range(1, 8)] and said.splitlines()[-1].endswith(" 7"), said)
    require("goes on from the checkpoint of step 6 in " + place.path("loop-ck") in said, said)


def epochs_end_with_a_pass_over_the_data(place):
    script = written(place, "epochs.py", RUNS.replace("train(paced", """
del options["steps"]
train(paced, **options, steps=None, epochs=2.4)
""" + "#train(paced"))
    of = variables(place, "epochs")
    code, said = ended(script, **of)
    require(code == 0 and "epochs=2.4 of 64 samples: 10 steps of 16, which are 2.5 epochs\n" in said, said)
    require(steps_of(of) == 10 and told_in(of["TOLD"], "epoch") == [1, 2], f"{told_in(of['TOLD'], 'epoch')}")


main(epochs_end_with_a_pass_over_the_data, each_is_told_once_whatever_happens_to_workers, a_slow_function_holds_no_worker_up,
     what_one_raises_ends_the_run_and_is_the_last_that_is_said, who_goes_on_after_a_kill_is_told_the_rest,
     a_log_has_one_course_where_a_run_goes_on_at_another_rate,
     stop_ends_at_one_step_for_any_number_of_workers, stop_keeps_the_schedule_and_works_without_a_checkpoint_before,
     stop_holds_through_a_kill_and_a_resume, stop_is_refused_where_nobody_can_ask_it, a_loop_of_ones_own_has_them_too)
