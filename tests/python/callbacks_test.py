"""What the process that was started is told of a run: from files of events as the command writes them, without it."""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

from starling.callbacks import Callbacks, Watch, drop_checkpoints  # noqa: E402
from starling.records import Course, history  # noqa: E402
from starling.script import Refused  # noqa: E402

JOB = "[job]\nsteps = 10\n[optimizer]\nkind = \"adamw\"\npeak_rate = 0.5\nwarmup_steps = 2\nfloor = 0.1\n[elastic]\n"


def start(begins=0):
    return {"ev": "start", "from": begins, "job": JOB, "steps": 10, "micro_batches": 2, "sequences": 4, "samples": 20}


def step(version, loss=None):
    return {"ev": "step", "version": version, "epoch": "1.1", "loss": 1.0 / (version + 1) if loss is None else loss,
            "norm": 2.0, "rate": 0.25 if version == 0 else 0.5, "tokens": 8, "ms": 3.5, "world": 2, "skipped": False, "metrics": [version, None]}


def checkpoint(version):
    return {"ev": "checkpoint", "version": version, "path": f"ck/step-{version:09}"}


class Folder:
    """Of a run, as the command fills it."""

    def __init__(self, place):
        self.out = place.path("out")
        os.makedirs(self.out)
        self._runs = 0

    def put(self, *events, end="\n"):
        with open(os.path.join(self.out, "events.jsonl"), "a") as file:
            for event in events:
                line = {"t": 1.5, "time": "2026-01-02T03:04:05.000006Z", **event}
                file.write(json.dumps(line, separators=(",", ":")) + end)

    def put_aside(self):
        self._runs += 1
        os.mkdir(os.path.join(self.out, f"run-{self._runs}"))
        shutil.move(os.path.join(self.out, "events.jsonl"), os.path.join(self.out, f"run-{self._runs}", "events.jsonl"))


class Heard:
    """What the functions are told, and what of it is their turn."""

    def __init__(self, stop=None):
        self.steps, self.epochs, self.checkpoints = [], [], []
        self.callbacks = Callbacks(self.steps.append, self.epochs.append, self.checkpoints.append, stop)

    def watch(self, folder, resume=False):
        watch = Watch(self.callbacks, folder.out, ("a", "b"), resume)
        watch.expect()
        return watch

    def numbers(self):
        return [s.step for s in self.steps], [e.epoch for e in self.epochs], [c.step for c in self.checkpoints]


def told(watch):
    while watch.look():
        pass


def steps_come_once_and_in_order_whatever_the_order_of_lines(place):
    folder, heard = Folder(place), Heard()
    watch = heard.watch(folder)
    told(watch)
    folder.put(start(), step(0), step(2))
    folder.put(step(1), end="")
    told(watch)
    require(heard.numbers() == ([1], [], []), f"before the line is whole: {heard.numbers()}")
    with open(os.path.join(folder.out, "events.jsonl"), "a") as file:
        file.write('\n{"t":2,"ev":"step","version":3,"lo\n')  # and one that is no event
    told(watch)
    require(heard.numbers() == ([1, 2, 3], [1], []), f"the line is whole: {heard.numbers()}")
    folder.put(step(1), step(4))
    told(watch)
    require(heard.numbers()[0] == [1, 2, 3], f"after a gap: {heard.numbers()}")
    watch.finish(done=False)
    require(heard.numbers() == ([1, 2, 3, 5], [1, 2], []), f"at the end: {heard.numbers()}")


def records_have_names(place):
    folder, heard = Folder(place), Heard()
    watch = heard.watch(folder)
    folder.put(start(), step(0), step(1), step(2, None), checkpoint(2), {**step(3), "skipped": True, "loss": None},
               step(4), checkpoint(2))
    told(watch)
    one = heard.steps[1]
    require((one.step, one.loss, one.norm, one.rate, one.epoch, one.samples, one.workers, one.ms)
            == (2, 0.5, 2.0, 0.5, 0.8, 8, 2, 3.5), f"{one}")
    require(one.metrics["a"] == 1.0 and one.metrics["b"] != one.metrics["b"], f"{one}")
    require([s.rate for s in heard.steps] == [0.25, 0.5, 0.5, 0.5, 0.5], "rates")
    require(heard.steps[3].skipped and heard.steps[3].loss != heard.steps[3].loss, f"{heard.steps[3]}")
    require(heard.numbers() == ([1, 2, 3, 4, 5], [1, 2], [2]), f"{heard.numbers()}")
    require([(e.step, e.steps) for e in heard.epochs] == [(3, 3), (5, 1)], f"{heard.epochs}")
    require(abs(heard.epochs[0].loss - (1 + 1 / 2 + 1 / 3) / 3) < 1e-15 and heard.epochs[0].metrics["a"] == 1.0,
            f"{heard.epochs[0]}")
    require(heard.checkpoints[0].path == "ck/step-000000002", f"{heard.checkpoints}")


def a_schedule_that_is_not_known_has_no_rate(place):
    event = step(1) | {"time": ""}
    require(Course(start(), ()).step(event).rate == 0.5, "the event's rate")
    del event["rate"]
    require(Course(start(), ()).step(event).rate is None, "a rate of a schedule that the coordinators do not know")


def who_goes_on_is_told_what_nobody_was(place):
    folder, first = Folder(place), Heard()
    watch = first.watch(folder)
    folder.put(start(), *map(step, range(4)), checkpoint(2))
    for _ in range(3):  # then it is killed
        watch.look()
    folder.put(*map(step, range(4, 6)))
    require(first.numbers() == ([1, 2, 3], [], []), f"{first.numbers()}")
    second = Heard()
    watch = second.watch(folder, resume=True)
    folder.put_aside()
    folder.put(start(2), *map(step, range(2, 8)), checkpoint(4))
    told(watch)
    watch.close()
    require(second.numbers() == ([4, 5, 6, 7, 8], [1, 2, 3], [4]), f"{second.numbers()}")
    require(abs(second.epochs[0].loss - (1 + 1 / 2 + 1 / 3) / 3) < 1e-15, "the pass that was begun before")
    third = Heard()
    watch = third.watch(folder, resume=True)
    watch.finish(done=True)  # it was done before: no new file comes
    require(third.numbers() == ([], [], []), f"{third.numbers()}")
    anew = Heard()
    watch = anew.watch(folder, resume=False)
    watch.finish(done=True)
    require(anew.numbers()[0] == list(range(1, 9)), f"{anew.numbers()}")
    require([e["version"] for _, e in history(folder.out, with_last=True)] == list(range(8)), "history")


def steps_that_a_run_does_otherwise_are_told_anew(place):
    other = {**start(2), "job": JOB.replace("peak_rate = 0.5", "peak_rate = 0.25")}
    slower = [{**step(2), "rate": 0.25}, {**step(3, 0.75), "rate": 0.25}]
    folder, first = Folder(place), Heard()
    watch = first.watch(folder)
    folder.put(start(), *map(step, range(6)), checkpoint(4))
    told(watch)  # then it is killed, and the checkpoint of step 4 is no more
    watch.close()
    require(first.numbers() == ([1, 2, 3, 4, 5, 6], [1, 2], [4]), f"{first.numbers()}")
    second = Heard()
    watch = second.watch(folder, resume=True)
    folder.put_aside()
    folder.put(other, *slower, checkpoint(4))
    told(watch)
    watch.close()
    require(second.numbers() == ([3, 4], [1], [4]), f"of another rate, which the records have: {second.numbers()}")
    third = Heard()
    watch = third.watch(folder, resume=True)
    folder.put_aside()
    folder.put({**other, "from": 4}, *map(step, range(4, 8)))
    told(watch)
    watch.close()
    require(third.numbers()[:2] == ([5, 6, 7, 8], [2, 3]), f"{third.numbers()}")
    fourth = Heard()  # the steps that were told anew are not told once more
    watch = fourth.watch(folder, resume=True)
    folder.put_aside()
    folder.put({**other, "from": 2}, *slower, *map(step, range(4, 9)))
    told(watch)
    require(fourth.numbers()[0] == [9], f"{fourth.numbers()}")


def what_a_function_raises_is_told_again_to_who_goes_on(place):
    folder, heard = Folder(place), Heard()

    def fails(one):
        heard.steps.append(one)
        if one.step == 2 and len(heard.steps) == 2:
            raise KeyError("mine")

    heard.callbacks.on_step = fails
    watch = heard.watch(folder)
    folder.put(start(), *map(step, range(3)))
    try:
        told(watch)
        raise AssertionError("nothing was raised")
    except KeyError:
        watch.close()
    told(heard.watch(folder, resume=True))
    watch = heard.watch(folder, resume=True)
    watch.finish(done=True)
    require(heard.numbers()[0] == [1, 2, 2, 3], f"{heard.numbers()}")


def stop_is_asked_of_every_step_and_nothing_is_told_after(place):
    asked = []

    def stop(record):
        require(not hasattr(record, "workers") and not hasattr(record, "ms"), f"{record}")
        asked.append(record.step)
        return record.loss < 0.3

    folder, heard = Folder(place), Heard(stop)
    watch = heard.watch(folder)
    folder.put(start(), step(0), step(1), checkpoint(2), *map(step, range(2, 6)), checkpoint(4), step(6))
    require(watch.look() and watch.end == 4 and watch.enough, f"stop waits for the others: {watch.end}")
    told(watch)
    require(asked == [1, 2, 3, 4] and heard.numbers() == ([1, 2, 3, 4], [1], [2]), f"{asked} {heard.numbers()}")
    watch.expect()
    require(not watch.enough, "it is enough already")
    folder.put_aside()
    folder.put(start(2), step(2), step(3))
    watch.finish(done=True)
    watch.close()
    require(asked == [1, 2, 3, 4] and heard.numbers()[0] == [1, 2, 3, 4], f"{asked} {heard.numbers()}")
    watch = heard.watch(folder, resume=True)
    require(watch.end == 4 and asked == [1, 2, 3, 4] * 2, f"{watch.end} {asked}")


def stop_is_asked_of_no_others_than_it_was(place):
    folder, heard = Folder(place), Heard(lambda record: False)
    folder.put(start(), *map(step, range(4)))
    watch = heard.watch(folder, resume=True)
    folder.put_aside()
    folder.put(start(2), step(2), step(3, 7.0))
    try:
        told(watch)
        raise AssertionError("another loss was taken")
    except Refused as why:
        require("step 4 was done again with another loss, norm, rate, metric or evaluation" in str(why), str(why))
    os.rename(folder.out, folder.out + "-elsewhere")
    os.mkdir(folder.out)
    watch = heard.watch(folder, resume=True)
    folder.put(start(2), step(2))
    try:
        told(watch)
        raise AssertionError("steps were left out")
    except Refused as why:
        require("tells nothing of step 1" in str(why), str(why))


def evaluation(version):
    return {"ev": "evaluation", "version": version, "loss": 1.0 / version, "metrics": [0.5]}


def evaluating(begins=0):
    return {**start(begins), "job": JOB + "lease_ms = 1\n\n[evaluate]\nsamples = 8\nevery = 3\nmetrics = [\"accuracy\"]\n"}


class Evaluated(Heard):
    def __init__(self, stop=None):
        super().__init__(stop)
        self.evaluations = []
        self.callbacks.on_evaluate = self.evaluations.append

    def watch(self, folder, resume=False, every=3, evaluated=("accuracy",), **checkpoints):
        watch = Watch(self.callbacks, folder.out, ("a", "b"), resume, evaluated=evaluated, every=every, **checkpoints)
        watch.expect()
        return watch


def a_step_has_its_evaluation_which_comes_with_the_next_one(place):
    folder, heard = Folder(place), Evaluated()
    watch = heard.watch(folder)
    folder.put(evaluating(), step(0), step(1), step(2), step(3))
    told(watch)
    require(heard.numbers()[0] == [1, 2] and not heard.evaluations, f"before it is evaluated: {heard.numbers()}")
    folder.put(evaluation(3))
    told(watch)
    require(heard.numbers()[0] == [1, 2, 3, 4], f"{heard.numbers()}")
    require([(e.step, e.loss, e.metrics) for e in heard.evaluations] == [(3, 1 / 3, {"accuracy": 0.5})], "the evaluation")
    require(heard.steps[2].evaluation == heard.evaluations[0] and heard.steps[3].evaluation is None, "of its step")
    require(heard.steps[2].scalars()["validation.loss"] == 1 / 3, f"{heard.steps[2].scalars()}")
    folder.put(step(4), step(5), step(6), step(7))  # a disk that took no line has left one out
    told(watch)
    require(heard.numbers()[0] == list(range(1, 9)), f"one is missing: {heard.numbers()}")
    folder.put(step(8), evaluation(9), step(9))
    told(watch)
    require(heard.numbers()[0] == list(range(1, 10)), f"the last one: {heard.numbers()}")
    folder.put(evaluation(10))
    watch.finish(done=True)
    require(heard.numbers()[0] == list(range(1, 11)) and [e.step for e in heard.evaluations] == [3, 9, 10], "the end")


def stop_is_asked_of_no_other_evaluation_or_metric_than_it_was(place):
    """Neither reaches a gradient, but what stop says of them ends the training."""
    for number, other in enumerate(({**evaluation(3), "loss": 7.0}, {**evaluation(3), "metrics": [0.25]},
                                    {**step(2), "metrics": [7, None]})):
        folder = Folder(place)
        watch = Evaluated(lambda record: False).watch(folder)
        folder.put(evaluating(), step(0), step(1), step(2), evaluation(3), step(3))
        told(watch)
        watch.close()
        watch = Evaluated(lambda record: False).watch(folder, resume=True)
        folder.put_aside()
        folder.put(evaluating(2), other if other["ev"] == "step" else step(2), evaluation(3) if number == 2 else other, step(3))
        try:
            told(watch)
            raise AssertionError(f"{other} was taken")
        except Refused as why:
            require("step 3 was done again" in str(why), str(why))
        shutil.rmtree(folder.out)


def stop_is_asked_of_evaluations_after_as_many_steps(place):
    """A run that goes on has no evaluation of the step that it begins after, which one with its own number may have."""
    folder = Folder(place)
    watch = Evaluated(lambda record: False).watch(folder)
    folder.put(evaluating(), step(0), step(1), step(2), evaluation(3), step(3))
    told(watch)
    watch.close()
    for every in (4, 0):
        try:
            Evaluated(lambda record: False).watch(folder, resume=True, every=every)
            raise AssertionError(f"{every} was taken")
        except Refused as why:
            require(f"evaluate_every is {every} here and was 3 in the run before" in str(why), str(why))
    try:
        Evaluated(lambda record: False).watch(folder, resume=True, evaluated=("f1",))
        raise AssertionError("another name was taken for the same number")
    except Refused as why:
        require("evaluations measure f1 here and measured accuracy in the run before, and stop is asked of both" in str(why), why)
    Evaluated(lambda record: False).watch(folder, resume=True).close()
    Evaluated().watch(folder, resume=True, every=4).close()


def who_goes_on_hears_the_evaluation_of_the_step_before(place):
    folder, asked = Folder(place), []
    first = Evaluated(lambda r: asked.append((r.step, r.evaluation is not None)))
    watch = first.watch(folder)
    folder.put(evaluating(), step(0), step(1), step(2))
    watch.finish(done=False)
    watch.close()
    require(first.numbers()[0] == [1, 2], f"a step whose evaluation has not come: {first.numbers()}")
    asked.clear()
    heard = Evaluated(lambda r: asked.append((r.step, r.evaluation is not None)))
    watch = heard.watch(folder, resume=True)
    folder.put_aside()
    folder.put(evaluating(3), step(3), evaluation(3), step(4))
    told(watch)
    watch.close()
    require(heard.numbers()[0] == [3, 4, 5] and [e.step for e in heard.evaluations] == [3], f"{heard.numbers()}")
    require(asked == [(1, False), (2, False), (3, True), (4, False), (5, False)], f"asked {asked}")


def a_step_that_is_done_again_with_its_evaluation_is_not_told_anew(place):
    folder, first = Folder(place), Evaluated()
    watch = first.watch(folder)
    folder.put(evaluating(), step(0), step(1), step(2), evaluation(3), step(3))
    told(watch)
    watch.close()
    second = Evaluated()
    watch = second.watch(folder, resume=True)
    folder.put_aside()
    folder.put(evaluating(2), step(2), evaluation(3), step(3), step(4))
    told(watch)
    watch.close()
    require(second.numbers()[0] == [5] and not second.evaluations, f"{second.numbers()}, {second.evaluations}")


def stop_ends_a_job_with_a_step_that_no_longer_one_evaluates(place):
    """Which a job does after its last step, whatever number that has."""
    folder, heard = Folder(place), Evaluated(lambda record: record.step == 4)
    watch = heard.watch(folder)
    folder.put(evaluating(), step(0), step(1), step(2), evaluation(3), step(3), step(4))
    told(watch)
    require(watch.end == 4, f"ends with {watch.end}")
    watch.expect()
    folder.put_aside()
    begun = evaluating(3)
    folder.put({**begun, "steps": 4, "job": begun["job"].replace("floor", "schedule_steps = 10\nfloor")}, step(3), evaluation(4))
    watch.finish(done=True)
    watch.close()
    require(heard.numbers()[0] == [1, 2, 3, 4] and [e.step for e in heard.evaluations] == [3, 4], f"{heard.evaluations}")


def the_best_is_of_the_steps_up_to_the_end(place):
    folder, ck = Folder(place), place.path("ck")
    for k in range(1, 6):
        os.makedirs(os.path.join(ck, f"step-{k:09}"))
        open(os.path.join(ck, f"step-{k:09}", "manifest.json"), "w").close()
    heard = Evaluated(lambda record: record.step == 7)
    heard.callbacks.best = lambda e: e.loss
    watch = heard.watch(folder, checkpoints=ck, keep=1)
    folder.put(evaluating(), step(0), step(1), step(2), {**evaluation(3), "loss": 5.0}, step(3), step(4), checkpoint(5))
    told(watch)
    require(sorted(os.listdir(ck)) == [f"step-{k:09}" for k in (3, 5)], f"{os.listdir(ck)}")
    folder.put(step(5), {**evaluation(6), "loss": 5.0}, step(6), step(7), step(8), {**evaluation(9), "loss": 1.0}, step(9))
    told(watch)
    require(watch.chosen.record.step == 3, "of equal ones the first, and none after the end")
    watch.close()


def at_the_end_a_checkpoint_counts_that_is_there_and_was_not_told(place):
    folder, ck = Folder(place), place.path("ck")
    for k in (3, 4, 5, 6):
        os.makedirs(os.path.join(ck, f"step-{k:09}"))
        open(os.path.join(ck, f"step-{k:09}", "manifest.json"), "w").close()
    heard = Evaluated()
    heard.callbacks.best = lambda e: e.loss
    watch = heard.watch(folder, checkpoints=ck, keep=1)
    folder.put(evaluating(), *map(step, range(3)), {**evaluation(3), "loss": 0.1}, step(3), step(4), checkpoint(5), step(5), evaluation(6), step(6))
    told(watch)
    require(sorted(os.listdir(ck)) == [f"step-{k:09}" for k in (3, 5, 6)], f"{os.listdir(ck)}")  # 6 may be half
    watch.finish(done=True)
    watch.close()
    require(sorted(os.listdir(ck)) == [f"step-{k:09}" for k in (3, 6)], f"{os.listdir(ck)}")


def only_checkpoints_beyond_the_end_go(place):
    folder = place.path("ck")
    for name in ("step-000000010", "step-000000020", "step-000000030", "step-x", "mine"):
        os.makedirs(os.path.join(folder, name))
        open(os.path.join(folder, name, "manifest.json"), "w").close()
    os.makedirs(os.path.join(folder, "step-000000040"))  # which was being written
    drop_checkpoints(folder, 20)
    require(sorted(os.listdir(folder)) == ["mine", "step-000000010", "step-x"], f"{os.listdir(folder)}")
    drop_checkpoints(place.path("nowhere"), 20)


main(steps_come_once_and_in_order_whatever_the_order_of_lines, records_have_names,
     a_schedule_that_is_not_known_has_no_rate, who_goes_on_is_told_what_nobody_was,
     steps_that_a_run_does_otherwise_are_told_anew, what_a_function_raises_is_told_again_to_who_goes_on,
     stop_is_asked_of_every_step_and_nothing_is_told_after, stop_is_asked_of_no_others_than_it_was,
     a_step_has_its_evaluation_which_comes_with_the_next_one,
     stop_is_asked_of_no_other_evaluation_or_metric_than_it_was, stop_is_asked_of_evaluations_after_as_many_steps,
     who_goes_on_hears_the_evaluation_of_the_step_before,
     a_step_that_is_done_again_with_its_evaluation_is_not_told_anew,
     stop_ends_a_job_with_a_step_that_no_longer_one_evaluates, the_best_is_of_the_steps_up_to_the_end,
     at_the_end_a_checkpoint_counts_that_is_there_and_was_not_told, only_checkpoints_beyond_the_end_go)
