"""What a run has told in its events.jsonl, as records with names: of a live run as its file grows, of earlier runs in
the same folder, which the command has put aside there. Needs no torch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Iterator, Mapping, Optional, Sequence

EVENTS = "events.jsonl"
_EARLIER = re.compile(r"run-(\d+)")  # the folders of earlier runs (tools/starling/earlier_run.cpp)
_WANTED = ('"ev":"start"', '"ev":"step"', '"ev":"checkpoint"', '"ev":"evaluation"')  # of the kinds of lines
_EVALUATION = "evaluation"  # of a step that history() gives: the event of what it has made
_KIND_WITHIN = 96  # characters of a line's begin, after the times


@dataclass(frozen=True)
class EvaluationRecord:
    """What the net comes to on the held-out data after a step, the same for any number of workers.

    step     so many steps are done
    loss     the mean over the batches; NaN where one is not finite
    metrics  the means of what evaluate() measures beside it, by name"""

    step: int
    loss: float
    metrics: "Mapping[str, float]" = field(default_factory=dict)

    def values(self) -> "dict[str, float]":
        return {"loss": self.loss, **self.metrics}


def evaluation(event: "Mapping[str, Any]", names: "Sequence[str]") -> EvaluationRecord:
    """Of an `evaluation` event."""
    return EvaluationRecord(int(event["version"]), number(event["loss"]),
                            dict(zip(names, map(number, event.get("metrics", [])))))


@dataclass(frozen=True)
class StepRecord:
    """What is the same of a step for any number of workers and whatever happens to them.

    step     so many steps are done with it: 1 for the first
    loss     mean over its micro-batches; NaN if it was skipped
    norm     of the whole gradient, before it was clipped
    rate     of the optimizer in it; None if the job's schedule is not known here
    epoch    so many passes over the data are done with it, a fraction; None of an IterableDataset
    samples  of this step
    skipped  a micro-batch was not finite: the step has changed nothing
    metrics  means over its micro-batches of what the loss measures, by name
    evaluation  of the held-out data after it, where one is due; else None"""

    step: int
    loss: float
    norm: float
    rate: "Optional[float]"
    epoch: "Optional[float]"
    samples: int
    skipped: bool = False
    metrics: "Mapping[str, float]" = field(default_factory=dict)
    evaluation: "Optional[EvaluationRecord]" = None


@dataclass(frozen=True)
class StepEvent(StepRecord):
    """A StepRecord, and how this run came to it.

    workers  that computed it
    ms       that it took; NaN if it is not known
    time     when it was told, UTC, RFC 3339"""

    workers: int = 0
    ms: float = 0.0
    time: str = ""

    def same(self, evaluated: bool = True) -> bytes:
        """What is equal whenever the step is done, unless the course has changed; without its evaluation if told so."""
        held_out = [] if self.evaluation is None or not evaluated else [self.evaluation.loss, *self.evaluation.metrics.values()]
        values = [self.loss, self.norm, math.nan if self.rate is None else self.rate, *self.metrics.values(), *held_out]
        return struct.pack(f"<{len(values)}d", *(math.nan if math.isnan(value) else value for value in values))

    def record(self) -> StepRecord:
        return StepRecord(self.step, self.loss, self.norm, self.rate, self.epoch, self.samples, self.skipped,
                          self.metrics, self.evaluation)

    def scalars(self) -> "dict[str, float]":
        """What log= writes of it, by name; a metric that is called as one of the others is
        "metric.NAME". Held-out values come last: not every step has them."""
        found = {"loss": self.loss, "norm": self.norm, **({} if self.epoch is None else {"epoch": self.epoch}),
                 "workers": float(self.workers), "ms": self.ms}
        if self.rate is not None:
            found["rate"] = self.rate
        for name, value in self.metrics.items():
            found[f"metric.{name}" if name in _OWN or name.startswith(_HELD_OUT) else name] = value
        if self.evaluation is not None:
            found.update({_HELD_OUT + name: value for name, value in self.evaluation.values().items()})
        return found


_OWN = ("step", "loss", "norm", "rate", "epoch", "workers", "ms")
_HELD_OUT = "validation."


@dataclass(frozen=True)
class EpochRecord:
    """The end of a pass over the data: that of the step with its last sample.

    epoch    so many passes are done; a step that ends several has the last of them
    step     so many steps are done
    steps    so many, those since the end of the pass before that were not skipped, are in the means
    loss     the mean of theirs
    metrics  the means of theirs, by name"""

    epoch: int
    step: int
    steps: int
    loss: float
    metrics: "Mapping[str, float]"


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint that is complete.

    step  so many steps are in it
    path  its folder"""

    step: int
    path: str


def number(value: Any) -> float:
    """Events have null for what is not finite, as of a step that was skipped."""
    return math.nan if value is None else float(value)


class Course:
    """What the `start` event says of a run, as far as its steps' records need it."""

    def __init__(self, start: "Mapping[str, Any]", metrics: "Sequence[str]", evaluated: "Sequence[str]" = (),
                 passes: bool = True) -> None:
        """passes: whether the job's steps are passes over data, or parts of them."""
        self.begins = int(start["from"])
        self._metrics, self._evaluated = tuple(metrics), tuple(evaluated)
        held_out = _section(start["job"], "evaluate")
        self.every = int(held_out.get("every", "0"))
        self.evaluates: "tuple[str, ...]" = tuple(json.loads(held_out.get("metrics", "[]")))  # names beside the loss
        self._samples, self._passes = int(start["samples"]), passes
        self._per_step = int(start["micro_batches"]) * int(start["sequences"])
        self._steps = int(start["steps"])

    def step(self, event: "Mapping[str, Any]") -> StepEvent:
        done = int(event["version"]) + 1
        measured = dict(zip(self._metrics, map(number, event.get("metrics", []))))
        epoch = done * self._per_step / self._samples if self._samples else 0.0
        step = StepEvent(done, number(event["loss"]), number(event["norm"]), event.get("rate"), epoch if self._passes else None, self._per_step,
                         bool(event["skipped"]), measured, workers=int(event["world"]), ms=number(event["ms"]),
                         time=event["time"])
        return self.evaluated(step, event[_EVALUATION]) if _EVALUATION in event else step

    def evaluated(self, step: StepEvent, event: "Mapping[str, Any]") -> StepEvent:
        """With its `evaluation` event."""
        return replace(step, evaluation=evaluation(event, self._evaluated))

    def due(self, step: int) -> bool:
        """Whether every run that does the step evaluates after it: one that ends with it does for that alone."""
        return self.every > 0 and step % self.every == 0

    def lacks(self, step: StepEvent) -> bool:
        """Whether an evaluation is due after it that is not there: it comes with the step after it, or with the end."""
        return step.evaluation is None and (self.due(step.step) or self.every > 0 and step.step == self._steps)

    def passes(self, steps: int) -> int:
        """That are over after so many steps."""
        return steps * self._per_step // self._samples if self._samples else 0


def _section(job: str, name: str) -> "dict[str, str]":
    """Keys of a job file's section as the command writes it; values as they stand there."""
    _, _, rest = job.partition(f"[{name}]\n")
    lines = (line.partition(" = ") for line in rest.partition("\n[")[0].split("\n"))
    return {key: value for key, between, value in lines if between}


class InOrder:
    """Steps by version, whatever the order of their lines: a member may tell one late."""

    def __init__(self, first: int) -> None:
        self._next, self._early = first, {}  # type: int, dict[int, Mapping[str, Any]]

    def put(self, event: "Mapping[str, Any]") -> "Iterator[Mapping[str, Any]]":
        """Those whose turn it is with this one."""
        if event["version"] >= self._next:
            self._early[event["version"]] = event
        while self._next in self._early:
            yield self._early.pop(self._next)
            self._next += 1

    def rest(self) -> "Iterator[Mapping[str, Any]]":
        """Those after a gap: a disk that took no lines has left one."""
        for version in sorted(self._early):
            yield self._early.pop(version)


class Tail:
    """The whole lines of a file that grows, of the kinds that are wanted, as dicts."""

    def __init__(self, path: str) -> None:
        self._file, self._part = open(path, "rb"), b""

    def read(self) -> "list[dict[str, Any]]":
        """What has come since."""
        data = self._part + self._file.read()
        whole, end, self._part = data.rpartition(b"\n")
        found = []
        for text in whole.decode("utf-8", "replace").split("\n") if end else []:
            if any(kind in text[:_KIND_WITHIN] for kind in _WANTED):
                with contextlib.suppress(ValueError):  # of a disk that was full
                    found.append(json.loads(text))
        return found

    def close(self) -> None:
        self._file.close()


def _told_in(path: str) -> "list[dict[str, Any]]":
    try:
        tail = Tail(path)
    except OSError:
        return []
    try:
        return tail.read()
    finally:
        tail.close()


def history(out: str, with_last: bool) -> "Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]":
    """Of all runs that a folder tells of, each step's `step` event, in order, after its run's `start`: the steps that a
    later run did again are those of the later run. with_last: of events.jsonl, too."""
    files = [os.path.join(out, f"run-{i}", EVENTS) for i in _earlier(out)] + ([os.path.join(out, EVENTS)] if with_last else [])
    starts = list(map(_start_in, files))
    begins = [None if start is None else int(start["from"]) for start in starts]
    evaluations = {int(event["version"]): event for path, start in zip(files, starts)
                   if start is not None and "[evaluate]" in start["job"]
                   for event in _told_in(path) if event["ev"] == "evaluation"}
    for i, path in enumerate(files):
        first = begins[i]
        if first is None:
            continue
        limit = min((b for b in begins[i + 1:] if b is not None), default=math.inf)
        start, *events = _told_in(path)
        order = InOrder(first)
        for event in _steps(events, order):
            if event["version"] < limit:
                found = evaluations.get(event["version"] + 1)
                yield start, {**event, _EVALUATION: found} if found else event


def done_before(out: str, metrics: "Sequence[str]", evaluated: "Sequence[str]", first: int) -> "dict[int, list[tuple[int, StepEvent]]]":
    """Of the runs that a folder has put aside: by step, each record of those after so many steps, with its run's number.
    A run that goes on from there does these steps again."""
    found: "dict[int, list[tuple[int, StepEvent]]]" = {}
    for number_of_run in _earlier(out):
        start, *events = _told_in(os.path.join(out, f"run-{number_of_run}", EVENTS)) or [{}]
        if start.get("ev") == "start":
            course = Course(start, metrics, evaluated)
            evaluations = {int(event["version"]): event for event in events if event["ev"] == "evaluation"}
            for event in events:
                if event["ev"] == "step" and event["version"] >= first:
                    step = course.step(event)
                    if step.step in evaluations:
                        step = course.evaluated(step, evaluations[step.step])
                    found.setdefault(step.step, []).append((number_of_run, step))
    return found


def _earlier(out: str) -> "list[int]":
    """Numbers of the runs that the folder has put aside, in order."""
    with contextlib.suppress(OSError):
        return sorted(int(match[1]) for match in map(_EARLIER.fullmatch, os.listdir(out)) if match)
    return []


def _steps(events: "Sequence[dict[str, Any]]", order: InOrder) -> "Iterator[Mapping[str, Any]]":
    for event in events:
        if event["ev"] == "step":
            yield from order.put(event)
    yield from order.rest()


def _start_in(path: str) -> "Optional[Mapping[str, Any]]":
    """The first line of a run's events; None where there is none."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        start = json.loads(file.readline())
        return start if start["ev"] == "start" else None
    return None
