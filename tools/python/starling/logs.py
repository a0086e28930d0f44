"""Where log= writes the scalars of each step: event files of TensorBoard, W&B, a table, or a function of the script's.
A process that goes on with a run goes on with its log. Needs no torch, but for TensorBoard."""

from __future__ import annotations

import csv
import importlib
import io
import os
import sys
import time
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence

from . import wandb_files
from .records import StepEvent
from .script import Refused

_FLUSH_S = 2.0  # TensorBoard's reader looks every few seconds


class Told(Protocol):
    """How far a run was told, in its folder (callbacks.Told)."""

    def get(self, name: str) -> Any: ...
    def set(self, name: str, value: Any) -> None: ...


class Writer(Protocol):
    """Of the scalars of steps. A step that a process before has written is not written again."""

    def begin(self, told: Told, resume: bool) -> None:
        """Before the command is started."""

    def step(self, step: StepEvent, told: Told) -> None:
        """Steps come in order."""

    def cut(self, step: int, told: Told) -> bool:
        """This step and those after it are done otherwise than they may be written, and come anew. Returns whether
        one was written."""

    def close(self, told: Told) -> None: ...


class Table:
    """steps.csv, a line each step; the first line has the names."""

    def __init__(self, out: str, evaluated: "Sequence[str]" = ()) -> None:
        self._path, self._evaluated = os.path.join(out, "steps.csv"), tuple(evaluated)
        self._file: "Optional[io.TextIOWrapper]" = None
        self._resume, self._last = False, 0

    def begin(self, told: Told, resume: bool) -> None:
        self._resume = resume

    def _open(self, names: "Sequence[str]") -> "io.TextIOWrapper":
        there = b""
        if self._resume and os.path.exists(self._path):
            with open(self._path, "rb") as file:
                there = file.read()
        whole = there[:there.rfind(b"\n") + 1]  # what the end of a process has left of a line is written anew
        rows = list(csv.reader(io.StringIO(whole.decode("utf-8"))))
        if rows and rows[0] != list(names):
            raise Refused(f"the run goes on with the columns {', '.join(names)}, and {self._path} has"
                          f" {', '.join(rows[0])}: move it away, and all steps are written anew")
        self._last = int(rows[-1][0]) if len(rows) > 1 else 0
        opened = open(self._path, "r+" if there else "w", encoding="utf-8", newline="")
        opened.truncate(len(whole))
        opened.seek(0, os.SEEK_END)
        if not rows:
            csv.writer(opened, lineterminator="\n").writerow(names)
        return opened

    def step(self, step: StepEvent, told: Told) -> None:
        scalars: "dict[str, Any]" = {"step": step.step, **step.scalars()}
        row = [value for name, value in scalars.items() if name not in self._evaluated]
        row += [scalars.get(name, "") for name in self._evaluated]  # empty where none is due
        if self._file is None:
            self._file = self._open([*(name for name in scalars if name not in self._evaluated), *self._evaluated])
        if step.step > self._last:
            csv.writer(self._file, lineterminator="\n").writerow(row)
            self._file.flush()

    def cut(self, step: int, told: Told) -> bool:
        if not os.path.exists(self._path):
            return False
        with open(self._path, "r+b") as file:
            lines = file.read().splitlines(keepends=True)
            kept = [line for i, line in enumerate(lines) if i == 0 or not _is_from(line, step)]
            file.truncate(sum(map(len, kept)))
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)
        self._last = min(self._last, step - 1)
        return len(kept) < len(lines)

    def close(self, told: Told) -> None:
        if self._file is not None:
            self._file.close()


def _is_from(line: bytes, step: int) -> bool:
    """Of a table's line, whether it is of this step or one after it; steps come in order."""
    number = line.partition(b",")[0]
    return not number.isdigit() or int(number) >= step


class TensorBoard:
    """Event files in tensorboard/. What a process has written after its last flush is taken back by its follower, which
    writes it anew: TensorBoard's reader knows by purge_step."""

    def __init__(self, out: str, writer: "Callable[..., Any]") -> None:
        self._folder, self._make = os.path.join(out, "tensorboard"), writer
        self._writer: Any = None
        self._written, self._flushed = 0, 0.0

    def begin(self, told: Told, resume: bool) -> None:
        self._written = int(told.get("tensorboard"))

    def step(self, step: StepEvent, told: Told) -> None:
        if step.step <= self._written:
            return
        if self._writer is None:
            # Without it the steps of a run that began in the same folder would stay beside those of this one.
            self._writer = self._make(self._folder, purge_step=self._written + 1)
            self._flushed = time.monotonic()
        for name, value in step.scalars().items():
            self._writer.add_scalar(name, value, step.step)
        self._written = step.step
        if time.monotonic() - self._flushed > _FLUSH_S:
            self._flush(told)

    def cut(self, step: int, told: Told) -> bool:
        if self._written < step:
            return False
        self.close(told)
        self._writer, self._written = None, step - 1  # the next one takes back what was there
        return True

    def _flush(self, told: Told) -> None:
        self._writer.flush()
        told.set("tensorboard", self._written)
        self._flushed = time.monotonic()

    def close(self, told: Told) -> None:
        if self._writer is not None:
            self._flush(told)
            self._writer.close()


class Wandb:
    """A run of W&B, with files in wandb/ (offline where WANDB_MODE says so), or the one that the script has begun. The
    process that goes on with a run has the same id, and begins where its files end."""

    def __init__(self, out: str, wandb: Any, name: str, config: "Mapping[str, Any]",
                 last_step: "Callable[[str, str], int]" = wandb_files.last_step) -> None:
        self._last_step = last_step
        self._out, self._wandb, self._name, self._config = out, wandb, name, dict(config)
        self._run: Any = None
        self._own, self._written = False, 0

    def begin(self, told: Told, resume: bool) -> None:
        self._written = int(told.get("wandb"))
        self._run = self._wandb.run
        if self._run is None:
            os.makedirs(self._out, exist_ok=True)
            identity = told.get("wandb-id") or None
            self._written = self._last_step(self._out, identity) if identity else 0
            self._run = self._wandb.init(project=self._name, dir=self._out, config=self._config, id=identity,
                                         resume="allow" if identity else None)
            self._own = True
            told.set("wandb-id", self._run.id)

    def step(self, step: StepEvent, told: Told) -> None:
        if step.step > self._written:
            self._run.log(step.scalars(), step=step.step, commit=True)
            if not self._own:
                told.set("wandb", step.step)

    def cut(self, step: int, told: Told) -> bool:
        """W&B takes back nothing: another run has the steps from this one on, and each of the two names the other."""
        if self._written < step:
            return False
        self._written, before = step - 1, self._run
        if not self._own:
            print(f"starling: the script's own run of W&B has steps from {step} on of the run before, and W&B takes back"
                  " none", file=sys.stderr)
            return True
        of_before = before.id
        config = {**self._config, "continues": of_before, "continues_from_step": step - 1}
        before.summary.update({"superseded_after_step": step - 1})
        before.finish()
        self._run = self._wandb.init(project=self._name, dir=self._out, config=config)
        self._run.summary.update({"continues": of_before, "continues_from_step": step - 1})
        told.set("wandb-id", self._run.id)
        print(f"starling: W&B takes back nothing: of its run {of_before} only steps 1 to {step - 1} are of this training, and its"
              f" run {self._run.id} has those from {step} on", file=sys.stderr)
        return True

    def close(self, told: Told) -> None:
        if self._own:
            self._run.finish()


class Function:
    """One of the script's: (step, {name: value})."""

    def __init__(self, function: "Callable[[int, Mapping[str, float]], Any]", number: int) -> None:
        self._function, self._key = function, f"log-{number}"

    def begin(self, told: Told, resume: bool) -> None:
        pass

    def step(self, step: StepEvent, told: Told) -> None:
        if step.step > told.get(self._key):
            self._function(step.step, step.scalars())
            told.set(self._key, step.step)

    def cut(self, step: int, told: Told) -> bool:
        return False  # how far it was told is in `told` alone

    def close(self, told: Told) -> None:
        pass


def _needed(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as why:
        raise Refused(f'log="{name}" needs the package {name}: pip install {name} ({why})') from None


def _all(log: Any) -> "list[Any]":
    return [] if log is None else list(log) if isinstance(log, (list, tuple)) else [log]


def check(log: Any) -> None:
    """Raises Refused for what writers() has no writer for, and what is not installed."""
    for one in _all(log):
        if one == "tensorboard":
            _needed(one, "torch.utils.tensorboard")
        elif one == "wandb":
            _needed(one, "wandb")
        elif one != "csv" and not callable(one):
            raise Refused(f'log must be "tensorboard", "wandb", "csv", a function, or a list of these, is {one!r:.64}')


def writers(log: Any, out: str, name: str, config: "Mapping[str, Any]", evaluated: "Sequence[str]" = ()) -> "list[Writer]":
    """Of what check() has found right; `name` and `config` are for W&B. evaluated: names of scalars that not every step
    has."""
    found: "list[Writer]" = []
    for number, one in enumerate(_all(log)):
        if one == "tensorboard":
            found.append(TensorBoard(out, _needed(one, "torch.utils.tensorboard").SummaryWriter))
        elif one == "wandb":
            found.append(Wandb(out, _needed(one, "wandb"), name, config))
        elif one == "csv":
            found.append(Table(out, evaluated))
        else:
            found.append(Function(one, number))
    return found
