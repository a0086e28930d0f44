"""Where log= writes: each scalar once, also where a process that was killed is followed by another one. TensorBoard and
W&B are stand-ins here; tests/pytorch/logs.py has their own readers."""
import csv
import dataclasses
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

from starling import logs  # noqa: E402
from starling.callbacks import Told  # noqa: E402
from starling.records import EvaluationRecord, StepEvent  # noqa: E402
from starling.script import Refused  # noqa: E402


def step(number, **metrics):
    return StepEvent(number, 1.0 / number, 2.0, 0.5, 0.1 * number, 8, False, metrics, workers=2, ms=3.5)


def refusal(call):
    try:
        call()
    except Refused as why:
        return str(why)
    raise AssertionError("it was taken")


def a_table_has_each_step_once_and_whole_lines(place):
    path = place.path("steps.csv")
    for resume, numbers in ((False, range(1, 4)), (True, range(1, 6)), (True, range(1, 6))):
        if resume:
            with open(path, "a") as file:
                file.write("6,0.1")  # a line that a kill has cut
        table, told = logs.Table(place.folder), Told(place.folder, resume)
        table.begin(told, resume)
        for number in numbers:
            table.step(step(number, accuracy=0.5, loss=7.0), told)
        if resume:
            table.close(told)
    with open(path) as file:
        rows = list(csv.reader(file))
    require(rows[0] == ["step", "loss", "norm", "epoch", "workers", "ms", "rate", "accuracy", "metric.loss"], f"{rows[0]}")
    require([row[0] for row in rows[1:]] == list("12345") and float(rows[3][1]) == 1 / 3, f"{rows}")
    table = logs.Table(place.folder)
    table.begin(told, True)
    require("goes on with the columns step, loss" in refusal(lambda: table.step(step(1), told)), "other columns")
    table = logs.Table(place.folder)
    table.begin(told, False)
    table.step(step(1), told)
    table.close(told)
    with open(path) as file:
        require(len(file.readlines()) == 2, "a run that begins anew has a table of its own")


def a_table_has_columns_for_evaluations_that_not_every_step_has(place):
    table, told = logs.Table(place.folder, ("validation.loss", "validation.accuracy")), Told(place.folder, False)
    table.begin(told, False)
    measured = [dataclasses.replace(step(n), metrics={"accuracy": 0.75, "validation.loss": 9.0}) for n in (1, 2, 3)]
    evaluated = dataclasses.replace(measured[1], evaluation=EvaluationRecord(2, 0.25, {"accuracy": 0.5}))
    table.step(measured[0], told)
    table.close(told)
    table = logs.Table(place.folder, ("validation.loss", "validation.accuracy"))  # goes on with one that has an evaluation
    table.begin(told, True)
    for one in (evaluated, measured[2]):
        table.step(one, told)
    table.close(told)
    with open(place.path("steps.csv")) as file:
        rows = list(csv.DictReader(file))
    require([(r["validation.loss"], r["validation.accuracy"]) for r in rows] == [("", ""), ("0.25", "0.5"), ("", "")], f"{rows}")
    require([(r["accuracy"], r["metric.validation.loss"]) for r in rows] == [("0.75", "9.0")] * 3, f"{rows}")


class Files:
    """SummaryWriter, whose reader takes a later writer's purge_step for the end of what was before."""

    seen = {}

    def __init__(self, folder, purge_step):
        for key in [key for key in Files.seen if key[1] >= purge_step]:
            del Files.seen[key]
        self._late = []

    def add_scalar(self, name, value, number):
        self._late.append((name, number))

    def flush(self):
        for key in self._late:
            Files.seen[key] = Files.seen.get(key, 0) + 1
        self._late = []

    def close(self):
        self.flush()


def tensorboard_has_each_scalar_once(place):
    Files.seen.clear()
    told = Told(place.folder, False)
    board = logs.TensorBoard(place.folder, Files)
    board.begin(told, False)
    for number in range(1, 9):
        board.step(step(number, accuracy=0.5), told)
        if number == 4:
            board._flush(told)
    board._writer.flush()  # they are in the file, and the process is killed before it has noted them
    for _ in range(2):
        told = Told(place.folder, True)
        board = logs.TensorBoard(place.folder, Files)
        board.begin(told, True)
        for number in range(1, 11):
            board.step(step(number, accuracy=0.5), told)
        board.close(told)
        told.close()
    require(set(Files.seen.values()) == {1} and {n for _, n in Files.seen} == set(range(1, 11)), f"{Files.seen}")
    require({name for name, _ in Files.seen} == {"loss", "norm", "rate", "epoch", "workers", "ms", "accuracy"}, "names")


def wandb_goes_on_with_the_same_run(place):
    begun, logged = [], []

    class Run:
        id = "abc"

        def log(self, scalars, step, commit):
            logged.append((step, commit, scalars["loss"]))

        def finish(self):
            logged.append("finished")

    def init(**options):
        begun.append(options)
        return Run()

    wandb = types.SimpleNamespace(run=None, init=init)
    for first, last in ((1, 3), (1, 5)):
        told = Told(place.folder, first != last and bool(begun))
        run = logs.Wandb(place.folder, wandb, "mine", {"steps": 5}, lambda out, identity: len(logged))
        run.begin(told, bool(begun))
        for number in range(first, last + 1):
            run.step(step(number), told)
        if last == 5:
            run.close(told)
    require([b["id"] for b in begun] == [None, "abc"] and begun[1]["resume"] == "allow", f"{begun}")
    require(begun[0]["project"] == "mine" and begun[0]["config"] == {"steps": 5}, f"{begun}")
    require([e[0] for e in logged[:-1]] == [1, 2, 3, 4, 5] and logged[-1] == "finished", f"{logged}")
    own = types.SimpleNamespace(run=Run(), init=None)
    run = logs.Wandb(place.folder, own, "mine", {})
    told = Told(place.folder, False)
    run.begin(told, False)
    run.step(step(9), told)
    run.close(told)
    require(logged[-1][0] == 9, "the script's own run was ended")


def steps_of_another_course_are_cut(place):
    Files.seen.clear()
    writers = [logs.Table(place.folder), logs.TensorBoard(place.folder, Files)]
    told = Told(place.folder, False)
    for writer in writers:
        writer.begin(told, False)
        for number in range(1, 8):
            writer.step(step(number), told)
        writer.close(told)
    told.close()
    for late in (False, True):  # before and after the steps before were written
        told = Told(place.folder, True)
        for writer in (logs.Table(place.folder), logs.TensorBoard(place.folder, Files)):
            writer.begin(told, True)
            for number in range(1, 4) if late else ():
                writer.step(step(number), told)
            require(writer.cut(4, told), f"{type(writer).__name__} had nothing to cut")
            for number in range(4, 6 if late else 8):
                writer.step(step(number, again=7.0), told) if isinstance(writer, logs.TensorBoard) else \
                    writer.step(step(number), told)
            writer.close(told)
        told.close()
        with open(place.path("steps.csv")) as file:
            numbers = [int(row[0]) for row in list(csv.reader(file))[1:]]
        require(numbers == list(range(1, 6 if late else 8)), f"{numbers}")
        require({n for name, n in Files.seen if name == "again"} == set(range(4, 6 if late else 8)), f"{Files.seen}")
        require({n for name, n in Files.seen if name == "loss"} == set(numbers) and set(Files.seen.values()) == {1}, "once")
    table = logs.Table(place.folder)
    table.begin(told, True)
    require(not table.cut(9, told) and not logs.TensorBoard(place.path("none"), Files).cut(1, told), "nothing was there")


def another_run_of_wandb_has_what_was_done_otherwise(place):
    runs = []

    class Run:
        def __init__(self, options):
            self.id, self.options, self.steps, self.summary, self.ended = f"run{len(runs)}", options, [], {}, False
            runs.append(self)

        def log(self, scalars, step, commit):
            self.steps.append(step)

        def finish(self):
            self.ended = True

    wandb = types.SimpleNamespace(run=None, init=lambda **options: Run(options))
    told = Told(place.folder, False)
    run = logs.Wandb(place.folder, wandb, "mine", {"steps": 5}, lambda out, identity: 5)
    run.begin(told, False)
    told.set("wandb-id", "run0")
    run = logs.Wandb(place.folder, wandb, "mine", {"steps": 5}, lambda out, identity: 5)
    run.begin(told, True)
    require(not run.cut(6, told) and run.cut(4, told), "what was written")
    for number in (4, 5, 6):
        run.step(step(number), told)
    run.close(told)
    before, after = runs[-2:]
    require(before.ended and before.summary == {"superseded_after_step": 3} and before.steps == [], f"{vars(before)}")
    require(after.ended and after.steps == [4, 5, 6] and after.options["config"]
            == {"steps": 5, "continues": before.id, "continues_from_step": 3}, f"{vars(after)}")
    require(told.get("wandb-id") == after.id, "who goes on has the run before")


def what_is_none_is_named_and_what_is_missing_too(place):
    for log, line in (("tensorbord", 'log must be "tensorboard", "wandb", "csv", a function, or a list of these, is \'t'),
                      (3, "a list of these, is 3"), (["csv", {}], "a list of these, is {}"),
                      ("tensorboard", 'log="tensorboard" needs the package tensorboard: pip install tensorboard (')):
        require(line in refusal(lambda: logs.check(log)), f"{log}: {refusal(lambda: logs.check(log))}")
    logs.check(None)
    logs.check(["csv", print])
    require([type(w).__name__ for w in logs.writers(["csv", print], place.folder, "n", {})] == ["Table", "Function"], "kinds")


main(a_table_has_each_step_once_and_whole_lines, a_table_has_columns_for_evaluations_that_not_every_step_has,
     tensorboard_has_each_scalar_once, wandb_goes_on_with_the_same_run,
     steps_of_another_course_are_cut, another_run_of_wandb_has_what_was_done_otherwise,
     what_is_none_is_named_and_what_is_missing_too)
