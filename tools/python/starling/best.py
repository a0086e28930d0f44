"""The best model of a job's evaluations: a function of the records alone, so the same for any number of workers. Its
checkpoint stays beside the newest ones, and its model is written when the job is done. Needs no torch."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import shutil
import subprocess
import tempfile
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


def _no_word(given: Any) -> Any:
    """Raises TypeError for a text, and for what is true or false, of which the smaller is false."""
    if isinstance(given, (bool, str, bytes)) or "bool" in str(getattr(given, "dtype", "")):
        raise TypeError
    return given


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
            value = float(_no_word(given))
        except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several
            text = " ".join(f"{given!r:.256}".split())[:64]
            raise Refused(f"best must give one number for an evaluation, the smaller the better, gives {text}") from None
        if value < self._least:  # never of a NaN
            self._least, self.record = value, record


def steps_in(folder: str, whole: bool = True) -> "list[int]":
    """Of the checkpoints, ascending; whole=False: also of those without a manifest, which are not complete."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith("step-") and name[5:].isdigit() and (
                    not whole or os.path.exists(os.path.join(folder, name, "manifest.json"))):
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


def _sweep(place: str) -> None:
    """What a process has left that was killed while it wrote."""
    for one in glob.glob(f"{glob.escape(place)}.tmp-*"):
        shutil.rmtree(one, ignore_errors=True)


def forget(out: str) -> None:
    """The model below the run's folder, of a run that was shorter or of another best=, is the best no more."""
    place = os.path.join(out, _FOLDER)
    if os.path.exists(os.path.join(place, _SAID)):
        shutil.rmtree(place, ignore_errors=True)


def written(record: EvaluationRecord, out: str, end: int, make: "Callable[[str], None]") -> Best:
    """Writes the model below the run's folder, unless it is that of the end, or there already. make: makes a folder that
    has it. Raises Refused."""
    place = os.path.join(out, _FOLDER)
    _sweep(place)
    if record.step == end:
        forget(out)
        return Best(record.step, record.loss, record.metrics, out)
    said = {"step": record.step, "loss": record.loss, "metrics": dict(record.metrics)}
    text = json.dumps(said, sort_keys=True)
    with contextlib.suppress(OSError), open(os.path.join(place, _SAID), encoding="utf-8") as file:
        if file.read() == text:
            return Best(record.step, record.loss, record.metrics, place)
    made = f"{place}.tmp-{os.getpid()}"
    try:
        make(made)
        with open(os.path.join(made, _SAID), "w", encoding="utf-8") as file:
            file.write(text)
        shutil.rmtree(place, ignore_errors=True)
        os.rename(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return Best(record.step, record.loss, record.metrics, place)


def exported(program: str, checkpoint: str, made: str) -> bool:
    """Makes a folder with the trained parameters of a checkpoint; whether it was there and whole."""
    return subprocess.run([program, "export", checkpoint, made], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def gone_back(folder: str, record: EvaluationRecord, made: str,
              run: "Callable[[str, str, bool], tuple[int, Optional[EvaluationRecord]]]") -> None:
    """Makes a folder with the trained parameters of the evaluation's step where there is no checkpoint of them, as one
    that comes while the one before is being written is given up: the job does its steps again, from the checkpoint before.
    run(out, checkpoints, resume): does as many steps; returns the exit code and the evaluation of the last. Raises
    Refused."""
    step = record.step
    before = max((one for one in steps_in(folder) if one < step), default=None)
    print(f"the best model is that of step {step}, of which there is no checkpoint: its steps are done again from"
          f" {'the beginning' if before is None else f'the checkpoint of step {before}'}", flush=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(made), prefix=f"{_FOLDER}.tmp-") as side:
        checkpoints, out = os.path.join(side, "checkpoints"), os.path.join(side, "out")
        os.mkdir(checkpoints)
        if before is not None:
            shutil.copytree(path_of(folder, before), path_of(checkpoints, before))
        code, found = run(out, checkpoints, before is not None)
        if code != 0:
            raise Refused(f"the best model is that of step {step}, and doing its steps again has ended with exit code {code}")
        if repr(found) != repr(record):  # NaN of a metric is the same
            raise Refused(f"the best model is that of step {step}, and doing its steps again has come to another evaluation:"
                          " what has changed since then reaches the result")
        os.makedirs(made, exist_ok=True)
        os.replace(os.path.join(out, "model.safetensors"), os.path.join(made, "model.safetensors"))
