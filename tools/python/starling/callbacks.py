"""What the process that a person has started is told while the command trains: steps, epochs and checkpoints, each
once and in order, from the run's events. Needs no torch."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
from dataclasses import dataclass
from typing import Any, Callable, Deque, Iterator, Mapping, Optional, Sequence

from . import logs
from .best import Chosen, remove, steps_in, superfluous
from .records import (EVENTS, CheckpointRecord, Course, EpochRecord, EvaluationRecord, InOrder, StepEvent, StepRecord, Tail,
                      done_before, history)
from .script import Refused

TOLD = "told.json"
_TOLD_BYTES = 1024
_AGAIN = "again"  # in it: [[last run, step], ..], of the steps that were told anew
_LATE = 2  # steps that wait for an evaluation: a disk that took no lines has left it out where there are more


@dataclass
class Callbacks:
    """The functions that train() and Job were given for the process that was started."""

    on_step: "Optional[Callable[[StepEvent], Any]]" = None
    on_epoch: "Optional[Callable[[EpochRecord], Any]]" = None
    on_checkpoint: "Optional[Callable[[CheckpointRecord], Any]]" = None
    stop: "Optional[Callable[[StepRecord], Any]]" = None
    log: Any = None
    on_evaluate: "Optional[Callable[[EvaluationRecord], Any]]" = None
    best: "Optional[Callable[[EvaluationRecord], Any]]" = None

    def functions(self) -> "dict[str, Any]":
        return {"on_step": self.on_step, "on_epoch": self.on_epoch, "on_checkpoint": self.on_checkpoint,
                "on_evaluate": self.on_evaluate, "stop": self.stop, "best": self.best}

    def asks(self) -> "list[str]":
        """Those that are asked of every step."""
        return [name for name in ("stop", "best") if getattr(self, name) is not None]

    def check(self, checkpoint: "Optional[str]", every: "Optional[int]" = None, checkpoint_every: int = 1) -> None:
        """every: steps from one evaluation to the next, 0: none. Raises Refused."""
        evaluates = every != 0
        for name in self.asks():
            if checkpoint and "://" in checkpoint:
                raise Refused(f"{name} needs checkpoint= in a folder of this machine, which it reads and tidies, is {checkpoint}")
        if self.best is not None:
            if not every:
                raise Refused("best is asked of evaluations, and no held-out data are given: validation=")
            if not checkpoint:
                raise Refused("best needs checkpoint=, a folder: the best model is in one of the checkpoints")
            if every % checkpoint_every != 0:
                raise Refused(f"best needs a checkpoint of each evaluation: evaluate_every={every} must be a multiple of"
                              f" checkpoint_every={checkpoint_every}")
        if self.on_evaluate is not None and not evaluates:
            raise Refused("on_evaluate is told of held-out data, and none are given: validation=")
        if self.stop is not None and not checkpoint:
            raise Refused("stop needs checkpoint=, a folder: the run goes back to the checkpoint before the step at which"
                          " it stops, as workers are further when stop is asked")
        logs.check(self.log)

    def check_for_command(self) -> "Optional[str]":
        """Of a command that takes a script, where nobody calls them: what is to be said, None if nothing. Raises
        Refused."""
        if self.stop is not None:
            raise Refused("stop= is asked in the process that `python` starts, and a command that takes a script has"
                          " none: run the script itself, or leave stop= out for the command")
        names = [name for name, given in [*self.functions().items(), ("log", self.log)] if given is not None]
        return f"{', '.join(names)}: this command leaves them out, `python` with the script itself does not" if names else None

    def any(self) -> bool:
        return bool(self.log) or any(function is not None for function in self.functions().values())


class Told:
    """How far the functions have been told of a run, in its folder: the process may end at any time, and one that goes
    on with the run begins there."""

    def __init__(self, out: str, resume: bool) -> None:
        self._path = os.path.join(out, TOLD)
        self._file: "Optional[int]" = None
        self._at: "dict[str, Any]" = {}
        if resume:
            with contextlib.suppress(OSError, ValueError), open(self._path, encoding="utf-8") as file:
                self._at = dict(json.load(file))

    def get(self, name: str) -> Any:
        return self._at.get(name, 0)

    def set(self, name: str, value: Any) -> None:
        """The folder must be there."""
        self._at[name] = value
        text = json.dumps(self._at)
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.pwrite(self._file, (text.ljust(_TOLD_BYTES - 1) + "\n").encode(), 0)

    def tells_of(self, run: int, step: int) -> bool:
        """Whether the functions may have been told the step as the run with this number has done it."""
        return all(step < first for last, first in self._at.get(_AGAIN, ()) if run <= last)

    def again(self, last: int, step: int, passes: int) -> bool:
        """The functions are told anew from this step on, which comes after so many passes: the runs up to the number
        `last` have done it otherwise. Returns whether one was told of it."""
        kept = [pair for pair in self._at.get(_AGAIN, ()) if pair[1] < step]
        most = {name: passes if name == "on_epoch" else step - 1 for name in self._at
                if name.startswith(("on_", "log-")) or name in ("tensorboard", "wandb")}
        told = any(self._at[name] > most[name] for name in most)
        self._at.update({name: min(self._at[name], most[name]) for name in most})
        self.set(_AGAIN, [*kept, [last, step]])
        return told

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class _Pass:
    """The steps since the last end of a pass over the data, and their sums."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._count, self._loss, self._metrics = 0, 0.0, {}  # type: int, float, dict[str, float]

    def step(self, step: StepRecord, course: Course) -> "Optional[EpochRecord]":
        """The end of a pass with this step."""
        if not step.skipped:
            self._count += 1
            self._loss += step.loss
            for name, value in step.metrics.items():
                self._metrics[name] = self._metrics.get(name, 0.0) + value
        passes = course.passes(step.step)
        if passes == course.passes(step.step - 1):
            return None
        ended = EpochRecord(passes, step.step, self._count, self._loss / self._count if self._count else math.nan,
                            {name: total / self._count for name, total in self._metrics.items()})
        self._clear()
        return ended


class Watch:
    """Follows a run's events and tells the functions. Used by one thread, between looks at the command: no worker
    waits for what the functions do."""

    def __init__(self, callbacks: Callbacks, out: str, metrics: "Sequence[str]", resume: bool,
                 writers: "Sequence[logs.Writer]" = (), evaluated: "Sequence[str]" = (), every: "Optional[int]" = None,
                 checkpoints: str = "", keep: int = 1, passes: bool = True) -> None:
        """every: steps from one evaluation to the next, 0: none; it is compared with that of the runs before.
        checkpoints: their folder; with best so many of the newest are kept, and the best one.
        passes: as of Course."""
        self._callbacks, self._out, self._metrics, self._evaluated = callbacks, out, metrics, evaluated
        self._passes = passes
        self._told = Told(out, resume)
        self._writers = tuple(writers)
        self._queue: "Deque[Callable[[], None]]" = collections.deque()
        self._seen = 0  # steps that were looked at, in order
        self._checkpoint = 0  # of the newest that was looked at
        # Steps that wait for the evaluation of the first of them, which is told with the step after it.
        self._held: "Deque[tuple[StepEvent, Course]]" = collections.deque()
        self._evaluations: "dict[int, Mapping[str, Any]]" = {}  # of steps that have not come yet
        self._pass = _Pass()
        self._asked: "list[bytes]" = []  # of each step that stop or best was asked of, what is the same whenever it is done
        self.chosen = None if callbacks.best is None else Chosen(callbacks.best)
        self._checkpoints, self._keep = checkpoints, keep
        self.end: "Optional[int]" = None  # so many steps, at which stop was true
        self._expected: "Optional[int]" = None  # that the command was told as its end
        self._before: "Optional[tuple[int, int]]" = None
        self._tail: "Optional[Tail]" = None
        self._order = InOrder(0)
        self._course: "Optional[Course]" = None
        self._resume = resume
        self._before_this: "dict[int, list[tuple[int, StepEvent]]]" = {}  # what earlier runs have done of its steps
        for writer in self._writers:
            writer.begin(self._told, resume)
        if resume and callbacks.asks():
            self._ask_history(every)

    def _ask_history(self, every: "Optional[int]") -> None:
        late: "Optional[StepEvent]" = None
        for start, event in history(self._out, with_last=True):
            course = self._course_of(start)
            if every is not None and course.every != every:
                raise Refused(f"evaluate_every is {every} here and was {course.every} in the run before (0: no held-out data),"
                              f" and {self._asks()} asked of records that have evaluations: go on with that, or begin anew, in"
                              " another out= and checkpoint=")
            if every and course.evaluates != tuple(self._evaluated):
                raise Refused(f"evaluations measure {', '.join(self._evaluated) or 'the loss alone'} here and measured"
                              f" {', '.join(course.evaluates) or 'the loss alone'} in the run before, and {self._asks()} asked of"
                              " both: go on with the same evaluate_metrics, or begin anew, in another out= and checkpoint=")
            step = course.step(event)
            if late is not None:
                self._ask(late, course)
            late = step if course.lacks(step) else None  # that of the last step comes with the run that goes on
            if late is None:
                self._ask(step, course)

    def _course_of(self, start: "Mapping[str, Any]") -> Course:
        return Course(start, self._metrics, self._evaluated, self._passes)

    @property
    def enough(self) -> bool:
        """Whether the command makes more steps than it should."""
        return self.end != self._expected

    def expect(self) -> None:
        """Before the command is started, which makes a file of events of its own and is told the end if it is known."""
        self._expected = self.end
        self._close_tail()
        self._before = self._place()

    def _place(self) -> "Optional[tuple[int, int]]":
        with contextlib.suppress(OSError):
            status = os.stat(os.path.join(self._out, EVENTS))
            return status.st_dev, status.st_ino
        return None

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail, self._course = None, None

    def look(self) -> bool:
        """Hears what is new and tells one thing of it; whether there was one."""
        if self._callbacks.asks() or not self._queue:  # stop is asked at once, however slow the others are
            self._hear()
        if not self._queue:
            return False
        self._queue.popleft()()
        return True

    def finish(self, done: bool) -> None:
        """When the command has ended: tells the rest. done: it says that the job is."""
        self._hear()
        if self._tail is None and done:  # it was done before, and the command has written nothing
            self._tell_history(with_last=True)
        for event in self._order.rest():
            self._step(event)
        # A checkpoint may have been told before the last evaluations, and the last one may be there and not told.
        if self.chosen is not None:
            self._checkpoint = max([self._checkpoint, *steps_in(self._checkpoints)])
        self._prune()
        if done:
            self._release(wait=False)
        while self._queue:
            self._queue.popleft()()

    def close(self) -> None:
        self._close_tail()
        for writer in self._writers:
            writer.close(self._told)
        self._told.close()

    def _hear(self) -> None:
        if self._tail is None:
            place = self._place()
            if place is None or place == self._before:
                return
            self._tail = Tail(os.path.join(self._out, EVENTS))
        for event in self._tail.read():
            if event["ev"] == "start":
                self._held.clear()
                self._tell_history(with_last=False, limit=int(event["from"]))
                self._course = self._course_of(event)
                self._order = InOrder(self._course.begins)
                self._before_this = done_before(self._out, self._metrics, self._evaluated, self._course.begins) if self._resume else {}
            elif event["ev"] == "checkpoint":
                self._take_checkpoint(event)
            elif event["ev"] == "evaluation":
                self._evaluations[int(event["version"])] = event
                self._release()
            else:
                for one in self._order.put(event):
                    self._step(one)

    def _tell_history(self, with_last: bool, limit: float = math.inf) -> None:
        course, of = None, None
        for start, event in history(self._out, with_last):
            if course is None or of is not start:
                course, of = self._course_of(start), start
            if event["version"] < limit:
                self._take(course.step(event), course)

    def _step(self, event: "Mapping[str, Any]") -> None:
        if self._course is not None:
            self._take(self._course.step(event), self._course)

    def _take(self, step: StepEvent, course: Course) -> None:
        self._held.append((step, course))
        self._release()

    def _release(self, wait: bool = True) -> None:
        while self._held:
            step, course = self._held[0]
            if course.lacks(step):
                event = self._evaluations.pop(step.step, None)
                if event is not None:
                    step = course.evaluated(step, event)
                elif wait and len(self._held) <= _LATE:
                    return
            self._held.popleft()
            self._tell(step, course)

    def _tell(self, step: StepEvent, course: Course) -> None:
        self._ask(step, course)
        if step.step <= self._seen or self.end is not None and step.step > self.end:
            if step.step == self.end and step.evaluation is not None:  # it is evaluated as the end, done again as such
                self._put("on_evaluate", step.step, step.evaluation)
            return
        self._compare(step, course)
        self._seen = step.step
        ended = self._pass.step(step, course)
        for writer in self._writers:
            self._queue.append(lambda writer=writer: writer.step(step, self._told))  # type: ignore[misc]
        self._put("on_step", step.step, step)
        if step.evaluation is not None:
            self._put("on_evaluate", step.step, step.evaluation)
        if ended is not None:
            self._put("on_epoch", ended.epoch, ended)

    def _compare(self, step: StepEvent, course: Course) -> None:
        """Where a run before has done the step otherwise, what was told and logged from it on is of another course."""
        before = [(run, one) for run, one in self._before_this.get(step.step, ()) if self._told.tells_of(run, step.step)]

        def alike(one: StepEvent) -> bool:  # a run that has ended before may lack the evaluation
            evaluated = course.due(step.step) and one.evaluation is not None
            return one.same(evaluated) == step.same(evaluated)

        if all(alike(one) for _, one in before):
            return
        logged = [writer.cut(step.step, self._told) for writer in self._writers]
        last = max(run for runs in self._before_this.values() for run, _ in runs)
        told = self._told.again(last, step.step, course.passes(step.step - 1))
        if told or any(logged):
            print(f"step {step.step} has another loss, norm, rate, metric or evaluation than in the run before: what was"
                  " told and logged from it on is told and logged anew", flush=True)

    def _take_checkpoint(self, event: "Mapping[str, Any]") -> None:
        step = int(event["version"])
        if step <= self._checkpoint or self.end is not None and step >= self.end:
            return  # one that is published once more, or one that is removed
        self._checkpoint = step
        self._prune()
        self._put("on_checkpoint", step, CheckpointRecord(step, event["path"]))

    def _prune(self) -> None:
        if self.chosen is None:
            return
        best = self.chosen.record.step if self.chosen.record is not None else None
        there = [step for step in steps_in(self._checkpoints) if step <= self._checkpoint]
        for step in superfluous(there, self._keep, best, len(self._asked)):
            remove(self._checkpoints, step)

    def _asks(self) -> str:
        names = self._callbacks.asks()
        return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"

    def _put(self, name: str, at: int, what: Any) -> None:
        function = self._callbacks.functions()[name]
        if function is None or at <= self._told.get(name):
            return

        def tell() -> None:
            function(what)
            self._told.set(name, at)

        self._queue.append(tell)

    def _ask(self, step: StepEvent, course: Course) -> None:
        stop = self._callbacks.stop
        if not self._callbacks.asks() or self.end is not None and step.step > self.end:
            return
        same = step.same(course.due(step.step))
        if self.chosen is not None and step.evaluation is not None:
            self.chosen.take(step.evaluation)
        if step.step <= len(self._asked):
            if self._asked[step.step - 1] != same:
                raise Refused(f"step {step.step} was done again with another loss, norm, rate, metric or evaluation, after"
                              f" {' and '.join(self._callbacks.asks())} had seen the one before: what has changed reaches"
                              " the result; begin anew, in another out= and checkpoint=")
            return
        if step.step > len(self._asked) + 1:
            raise Refused(f"{self._asks()} asked of every step, and {self._out} tells nothing of step"
                          f" {len(self._asked) + 1}: go on in the out= of the runs before, or begin anew")
        self._asked.append(same)
        if stop is not None and stop(step.record()):
            self.end = step.step


def drop_checkpoints(folder: str, end: int) -> None:
    """Those of so many steps or more: the run ends with fewer steps than it has made."""
    for step in steps_in(folder, whole=False):
        if step >= end:
            remove(folder, step)
