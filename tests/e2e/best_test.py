"""best=: the model of the best evaluation is that of just its step, for any number of workers, through kills and where a
run goes on, with the stand-in for torch."""
import os
import shutil
import signal

from harness import main, processes_naming, require, wait_until
from scripts import HEAD, ended, events, started, written

# The evaluation is best half-way to what is trained for.
BEST = HEAD + """
import shutil, time
def half(net, batch):
    wrong = net(batch[0]) - batch[1] * float(os.environ.get("PART", 0.4))
    return (wrong * wrong).mean(), {"far": 3.0}
def drop(step):
    for number in os.environ.get("DROP", "").split() if step.step == 42 else ():
        shutil.rmtree(os.path.join(os.environ["OUT"] + "-ck", f"step-{int(number):09}"), ignore_errors=True)
def paced(net, batch):
    time.sleep(float(os.environ.get("PACE", 0)))
    return loss(net, batch)
trained = starling.train(build, paced, steps=int(os.environ.get("STEPS", 43)), micro_batches=4, batch_size=4, lease_ms=10000,
                         seed=5, workers=int(os.environ.get("WORKERS", 1)), out=os.environ["OUT"], validation=build()[1],
                         evaluate=half, evaluate_metrics=["far"], evaluate_every=4, checkpoint=os.environ["OUT"] + "-ck",
                         checkpoint_every=2, on_step=drop, optimizer=starling.AdamW(2e-2, floor=1.0), best=eval(os.environ.get("BEST", "lambda e: e.loss")))
best = trained.best
print("RESULT", trained.digest, best and (best.step, best.loss, best.metrics, os.path.relpath(best.out, os.environ["OUT"]),
                                          starling.load(best.out)["weight"].tolist()))
"""


def result_of(script, **variables):
    code, said = ended(script, **variables)
    lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
    require(code == 0 and len(lines) == 1, f"exit code {code}: {said[-3000:]}")
    return lines[0]


def checkpoints_in(folder):
    return sorted(int(name[5:]) for name in os.listdir(folder) if name[5:].isdigit())


def the_best_model_is_that_of_its_step(place):
    script = written(place, "best.py", BEST)
    found = result_of(script, OUT=place.path("one"))
    evaluations = {e["version"]: e["loss"] for e in events(place.path("one"), "evaluation")}
    best = min(evaluations, key=evaluations.get)
    require(4 < best < 40 and f"({best}, {evaluations[best]!r}, {{'far': 3.0}}, 'best', " in found, (evaluations, found))
    there = checkpoints_in(place.path("one-ck"))
    require(len(there) <= 3 and all(step == best or step > best for step in there), f"{there}, best is {best}")
    as_many = result_of(script, OUT=place.path("as-many"), STEPS=str(best))
    require(as_many.rpartition(", '.', ")[2] == found.rpartition(", 'best', ")[2], (as_many, found))
    require("best" not in os.listdir(place.path("as-many")), "the last model is written twice")
    last = result_of(script, OUT=place.path("last"), BEST="lambda e: -e.step")
    require("(43, " in last and "'.', " in last, last)
    none = result_of(script, OUT=place.path("none"), BEST="lambda e: float('nan')")
    require(none.endswith(" None"), none)


def the_best_model_is_the_same_through_kills(place):
    script = written(place, "best.py", BEST)
    quiet = result_of(script, OUT=place.path("quiet"))
    out = place.path("three")
    run = started(script, OUT=out, WORKERS="3", PACE="0.03")
    wait_until(lambda: len(events(out, "step")) > 6, "steps")
    os.kill([e for e in events(out, "worker") if e["what"] == "joined"][0]["pid"], signal.SIGKILL)
    wait_until(lambda: len(events(out, "step")) > 26, "steps")
    run.kill()
    run.communicate()
    wait_until(lambda: not processes_naming(script), "the run ends")
    require(result_of(script, OUT=out, STARLING_RESUME="1") == quiet, "another best one")
    require(result_of(script, OUT=out, STARLING_RESUME="1") == quiet, "another best one when it is done")
    require(len(checkpoints_in(out + "-ck")) <= 3, checkpoints_in(out + "-ck"))
    code, said = ended(script, **{"OUT": place.path("three"), "STARLING_RESUME": "1", "BEST": "lambda e: 'x'"})
    require(code == 2 and "best must give one number for an evaluation, the smaller the better, gives 'x'" in said, said)


def a_best_model_without_a_checkpoint_is_made_again(place):
    """One that comes while the one before is being written is given up."""
    script = written(place, "best.py", BEST)
    quiet = result_of(script, OUT=place.path("all"))
    best = int(quiet.split("(")[1].split(",")[0])
    for number, gone in enumerate(((best,), range(best, 2, -1), range(best + 1))):
        out = place.path(f"without-{number}")
        code, said = ended(script, OUT=out, DROP=" ".join(map(str, gone)), WORKERS="2", PACE="0.01")
        require(code == 0 and quiet in said and f"the best model is that of step {best}, of which there is no" in said, said)
        require(sorted(name for name in os.listdir(out) if name.startswith("best")) == ["best"], os.listdir(out))
        require(os.path.exists(os.path.join(out, "model.safetensors")), "the last model")


def steps_that_are_done_again_have_the_same_evaluation(place):
    """Otherwise the model is another one than the evaluation was of."""
    script, out = written(place, "best.py", BEST), place.path("out")
    best = int(result_of(script, OUT=out).split("(")[1].split(",")[0])
    shutil.rmtree(os.path.join(out, "best"))
    shutil.rmtree(os.path.join(out + "-ck", f"step-{best:09}"))
    code, said = ended(script, OUT=out, STARLING_RESUME="1", PART="0.5")
    require(code == 6 and f"that of step {best}, and doing its steps again has come to another evaluation" in said, said)
    require("best" not in os.listdir(out), os.listdir(out))


def what_is_not_the_best_model_does_not_stay(place):
    """Where a run goes on: one that is the best no more, and what a killed process has written of one."""
    script, out = written(place, "best.py", BEST), place.path("out")
    require("'best', " in result_of(script, OUT=out), "the last one is the best")
    os.makedirs(os.path.join(out, "best.tmp-1"))
    others = result_of(script, OUT=out, STARLING_RESUME="1", BEST="lambda e: e.step")
    left = sorted(name for name in os.listdir(out) if name.startswith("best"))
    require("(4, " in others and left == ["best"], (others, left))
    for best, wanted in (("lambda e: -e.step", "'.', "), ("lambda e: e.step", "'best', "), ("lambda e: float('nan')", " None")):
        found = result_of(script, OUT=out, STARLING_RESUME="1", BEST=best)
        require(wanted in found and os.path.exists(os.path.join(out, "best")) == ("best" in wanted), found)


def what_best_gives_is_a_number(place):
    for number, (best, given) in enumerate((
            ("lambda e: e.loss < 1", "True"), ("lambda e: '0.5'", "'0.5'"), ("lambda e: None", "None"),
            ("lambda e: [e.loss]", "["), ("lambda e: 10 ** 400", "1000"))):
        code, said = ended(written(place, "best.py", BEST), OUT=place.path(f"out-{number}"), BEST=best)
        line = "best must give one number for an evaluation, the smaller the better, gives " + given
        require(code == 2 and line in said and "Traceback" not in said, f"{best}: {code}: {said[-2000:]}")


def what_best_needs_is_named(place):
    for old, new, line in (
            ("checkpoint_every=2", "checkpoint_every=3", "evaluate_every=4 must be a multiple of checkpoint_every=3"),
            ('checkpoint=os.environ["OUT"] + "-ck"', "checkpoint=None", "best needs checkpoint=, a folder"),
            ("validation=build()[1],\n                         evaluate=half, evaluate_metrics=[\"far\"], evaluate_every=4,", "",
             "best is asked of evaluations, and no held-out data are given: validation="),
            ('best=eval(os.environ.get("BEST", "lambda e: e.loss"))', 'best="loss"', "best must be a function, is 'loss'")):
        require(old in BEST, old)
        code, said = ended(written(place, "wrong.py", BEST.replace(old, new)), OUT=place.path("wrong"))
        require(code == 2 and line in said and said.strip().count("\n") == 0, f"{line}: {code}: {said}")
    code, said = ended(written(place, "best.py", BEST), STARLING_WRITE_JOB=place.path("job.toml"), OUT=place.path("wrong"))
    require(code == 0 and "best: this command leaves them out" in said, said)


def a_later_call_begins_with_the_best_model(place):
    script = written(place, "twice.py", BEST + """
again = starling.train(build, loss, steps=4, micro_batches=4, batch_size=4, lease_ms=10000, seed=6, init=starling.load(best.out))
print("AGAIN", again.digest)
""")
    code, said = ended(script, OUT=place.path("twice"), WORKERS="2")
    require(code == 0 and "AGAIN" in said, said)


main(steps_that_are_done_again_have_the_same_evaluation, what_is_not_the_best_model_does_not_stay, what_best_gives_is_a_number, the_best_model_is_that_of_its_step, the_best_model_is_the_same_through_kills,
     a_best_model_without_a_checkpoint_is_made_again, what_best_needs_is_named,
     a_later_call_begins_with_the_best_model)
