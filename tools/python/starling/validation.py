"""Held-out data: what train() and Job are told of them, and what they are in the processes that compute. Needs no
torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence

from .feed import Taken, held_out_of
from .script import Refused

EVERY = 100           # steps between two evaluations, where nothing is said
BATCHES_MAX = 4096    # of an evaluation (core/base/step_record.h)


@dataclass
class Validation:
    """data      a Dataset or DataLoader, or a function that gives one
    every     so many steps between two evaluations; None: EVERY
    evaluate  (net, batch) -> as a loss
    metrics   names of what it measures beside the loss; None: those of the training"""

    data: Any
    every: Optional[int]
    evaluate: "Optional[Callable[[Any, Any], Any]]"
    metrics: "Optional[Sequence[str]]"

    def given(self) -> bool:
        return self.data is not None

    def check(self) -> None:
        """Raises Refused for what does not go together."""
        if self.given():
            if self.evaluate is None:
                raise Refused("validation= needs evaluate=, a function (net, batch) that gives the loss of a held-out batch")
            return
        for name, value in (("evaluate_every", self.every), ("evaluate_metrics", self.metrics)):
            if value is not None:
                raise Refused(f"{name} is of held-out data, and none are given: validation=")

    def opened(self, taken: Taken) -> Any:
        """The Dataset. taken: of the data that are trained on. Raises Refused."""
        data = self.data
        if isinstance(data, type) or callable(data) and not hasattr(data, "__getitem__"):
            data = data()
        data = held_out_of(data, taken)
        if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise Refused(f"validation must be a Dataset with __len__ and __getitem__, or a function that gives one, is a"
                          f" {type(data).__name__}")
        return data

    def batches(self, samples: int, size: int) -> "tuple[int, int]":
        """Every how many steps, and how many of them."""
        return self.every or EVERY, min(samples // size, BATCHES_MAX)

    def section(self, samples: int, size: int) -> "dict[str, Any]":
        """Of a job file. size: samples of a batch. Raises Refused."""
        if samples < size:
            raise Refused(f"validation has {samples} samples, expected at least those of a whole batch, batch_size={size}")
        keys: "dict[str, Any]" = {"samples": samples, "every": self.every}
        return {**keys, "metrics": list(self.metrics)} if self.metrics else keys


def left_out(samples: int, size: int) -> Optional[str]:
    """A line that says which samples no evaluation takes; None if each takes all."""
    taken = min(samples // size, BATCHES_MAX) * size
    return None if taken == samples else (f"validation: the first {taken} of {samples} samples are taken, whole batches of"
                                          f" {size}, {BATCHES_MAX} of them at most")


def numbers(given: Any, names: "Sequence[str]") -> "list[float]":
    """Loss and metrics of what evaluate() gave: a number, or that and a dict. Raises Refused."""
    value, measured = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(measured, Mapping) or set(measured) != set(names):
        found = sorted(map(str, measured)) if isinstance(measured, Mapping) else type(measured).__name__
        raise Refused(f"the evaluation of a batch measures {found or 'nothing'} beside the loss, the job names"
                      f" {sorted(names) or 'nothing'}: evaluate_metrics=")
    try:
        return [float(value), *(float(measured[name]) for name in names)]
    except (TypeError, ValueError, RuntimeError):
        raise Refused("the evaluation of a batch must give one number, or that and a dict of numbers") from None
