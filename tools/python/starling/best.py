"""The best model of a job's evaluations: a function of the records alone, so the same for any number of workers. Its
checkpoint stays beside the newest ones, and its model is written when the job is done. Needs no torch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence

from .records import EvaluationRecord
from .script import Refused

KEEP_MAX = 1000  # checkpoints that a job can keep
_FOLDER, _SAID = "best", "best.json"


@dataclass(frozen=True)
class Best:
    """The model with the smallest value of best=, the first of those with the same one.

    step     so many steps had been done
    loss     over the held-out data
    metrics  of that evaluation, by name
    out      its folder, which load() reads"""

    step: int
    loss: float
    metrics: "Mapping[str, float]" = field(default_factory=dict)
    out: str = ""


class Chosen:
    """The best of the evaluations so far."""

    def __init__(self, value: "Callable[[EvaluationRecord], Any]") -> None:
        self._value = value
        self._least = math.inf
        self._last = 0  # step of the last one
        self.record: "Optional[EvaluationRecord]" = None

    def take(self, record: EvaluationRecord) -> None:
        """The next one; one of a step before is known. Raises Refused."""
        if record.step <= self._last:
            return
        self._last = record.step
        given = self._value(record)
        try:
            value = float(given)
        except (TypeError, ValueError):
            raise Refused(f"best must give one number for an evaluation, the smaller the better, gives {given!r:.64}") from None
        if value < self._least:  # never of a NaN
            self._least, self.record = value, record


def steps_in(folder: str) -> "list[int]":
    """Of the checkpoints that are whole, ascending."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith("step-") and name[5:].isdigit() and os.path.exists(os.path.join(folder, name, "manifest.json")):
                found.append(int(name[5:]))
    return sorted(found)


def path_of(folder: str, step: int) -> str:
    return os.path.join(folder, f"step-{step:09}")


def remove(folder: str, step: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # without it there is no checkpoint
        os.remove(os.path.join(path_of(folder, step), "manifest.json"))
    shutil.rmtree(path_of(folder, step), ignore_errors=True)


def superfluous(steps: "Sequence[int]", keep: int, best: "Optional[int]", judged: int) -> "list[int]":
    """Of a job's checkpoints those that may go: not the newest, not the best, none whose evaluation is to come."""
    return [step for step in steps[:-keep] if step != best and step < judged]


def written(program: str, record: EvaluationRecord, out: str, folder: str, end: int, save: "Callable[[str], None]") -> Best:
    """Writes the model below the run's folder, unless it is that of the end, or there already. save: makes of a folder
    with the trained parameters one of the whole model. Raises Refused."""
    if record.step == end:
        return Best(record.step, record.loss, record.metrics, out)
    place = os.path.join(out, _FOLDER)
    said = {"step": record.step, "loss": record.loss, "metrics": dict(record.metrics)}
    text = json.dumps(said, sort_keys=True)
    with contextlib.suppress(OSError), open(os.path.join(place, _SAID), encoding="utf-8") as file:
        if file.read() == text:
            return Best(record.step, record.loss, record.metrics, place)
    made = f"{place}.tmp-{os.getpid()}"
    try:
        source = path_of(folder, record.step)
        exported = subprocess.run([program, "export", source, made], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if exported.returncode != 0:
            why = " ".join(exported.stderr.split()).removeprefix("starling: ")[:400]
            raise Refused(f"the best model is that of step {record.step}, whose checkpoint cannot be read: {why}")
        save(made)
        with open(os.path.join(made, _SAID), "w", encoding="utf-8") as file:
            file.write(text)
        shutil.rmtree(place, ignore_errors=True)
        os.rename(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return Best(record.step, record.loss, record.metrics, place)
