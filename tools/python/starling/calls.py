"""Which calls of train() and Job a script has made, and what they came to."""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

from .best import Best
from .script import Refused, Script, caller


class Failed(SystemExit):
    """A job that did not end well. The command has said why, in one line on stderr; `code` is its exit
    code: 1 diverged, 2 bad input, 3 too few workers, 4 state lost, 5 internal error."""


@dataclass(frozen=True)
class Trained:
    """What a job came to."""

    out: str      # its folder: events.jsonl, loss.svg, and the model, which load() reads
    digest: str   # of the final state: equal for equal jobs, whatever happened
    loss: float   # of the last step
    steps: int
    metrics: "Mapping[str, float]" = field(default_factory=dict)  # of the last step
    evaluation: Any = None  # what evaluate(net) returned; with validation= a dict of the last one's loss and metrics
    best: "Optional[Best]" = None  # with best=; None: it gave NaN or infinity alone
    doubted_from: "Optional[int]" = None  # the first step in doubt: "tainted" and "mismatch" in events.jsonl say why


class _NotHere(Trained):
    """In a worker's process, an earlier call's result whose evaluation is no plain value."""

    def __getattribute__(self, name: str) -> Any:
        if name == "evaluation":
            raise Refused("what evaluate() returned is known to workers only if it is a number, a text, or a list or dict"
                          " of such")
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        return f"Trained(out={self.out!r}, digest={self.digest!r}, loss={self.loss}, steps={self.steps})"


_PLAIN_MAX = 32768   # bytes of an evaluation that workers are told,
_ALL_MAX = 1 << 18   # and of all that they are told of earlier calls; of the oldest evaluations nothing then


def _plain(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        keys = all(type(key) is str for key in value) if isinstance(value, dict) else True
        return keys and all(_plain(v) for v in (value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, (bool, int, float, str))


class Call:
    """A call of train() or Job. They are counted in the order in which a script makes them, which is the same in
    every process: a worker's process computes for the one that the job is of, and those before it return what
    they came to in the process that a person has started."""

    made: "list[Call]" = []

    def __init__(self) -> None:
        Call.made.append(self)
        self.number = len(Call.made)
        self.at = caller()
        self.trained: Optional[Trained] = None
        self.failed: Optional[int] = None  # exit code
        self._net: "Callable[[], Any]" = lambda: None  # that was trained

    @classmethod
    def records(cls, count: int) -> "tuple[str, ...]":
        """Of the first calls, for processes that pass them by."""
        told: "list[str]" = []
        left = _ALL_MAX
        for call in reversed(cls.made[:count]):
            told.append(call.record(left))
            left -= len(told[-1])
        return tuple(reversed(told))

    def has_trained(self, net: Any) -> None:
        """In the process that a person has started."""
        self._net = weakref.ref(net)

    def trainer_of(self, net: Any) -> int:
        """The last earlier call that has trained the net, 0: none."""
        return max((call.number for call in self.made[:self.number - 1] if call._net() is net), default=0)

    def record(self, most: int) -> str:
        """For processes that pass this call by; its evaluation if that takes at most so many bytes."""
        said: "dict[str, Any]" = {"at": self.at}
        if self.failed is not None:
            said["failed"] = self.failed
        if self.trained is not None:
            trained = self.trained
            said["trained"] = {"out": trained.out, "digest": trained.digest, "loss": trained.loss,
                               "steps": trained.steps, "metrics": dict(trained.metrics)}
            if trained.best is not None:
                said["trained"]["best"] = {**vars(trained.best), "metrics": dict(trained.best.metrics)}
            if trained.doubted_from is not None:
                said["trained"]["doubted_from"] = trained.doubted_from
            text = json.dumps(trained.evaluation) if _plain(trained.evaluation) else ""
            if 0 < len(text) <= min(_PLAIN_MAX, most):
                said["trained"]["evaluation"] = trained.evaluation
        return json.dumps(said)

    def is_the_jobs(self, script: Script) -> bool:
        """In a worker's process: whether it is to compute for this call. If not, `trained` and `failed` are what the
        call came to. Raises Refused where the script has not come here as it did in the process that a person
        has started."""
        if self.number > script.call:
            raise Refused(f"the script has come to call {self.number} of starling.train() or starling.Job before it has"
                          f" come to a loop over call {script.call}, which the job is")
        said: "dict[str, Any]" = json.loads(script.earlier[self.number - 1]) if self.number <= len(script.earlier) else {"at": script.at}
        if said["at"] and said["at"] != self.at:
            raise Refused(f"call {self.number} of starling.train() or starling.Job is at {self.at} here and at"
                          f" {said['at']} in the job: every process has to make the same calls, also those that are over")
        self.failed = said.get("failed")
        if "trained" in said:
            told = said["trained"]
            kind = Trained if "evaluation" in told else _NotHere
            self.trained = kind(**{**told, **({"best": Best(**told["best"])} if "best" in told else {})})
        return self.number == script.call

    def result(self) -> Trained:
        """Of an earlier call, in a worker's process."""
        if self.failed is not None:
            raise Failed(self.failed)
        if self.trained is None:
            raise Refused(f"call {self.number} of starling.train() or starling.Job has come to nothing yet in the job")
        return self.trained
