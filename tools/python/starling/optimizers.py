"""The optimizers and schedules that a job can have. Needs no torch."""

from __future__ import annotations

import operator
from dataclasses import InitVar, dataclass
from typing import Any, Callable, Optional, Union

from .formula import formula_of

NAMES = {"lr": "rate", "eps": "epsilon"}  # torch's, and what they are here


class _TorchNames:
    """Lets an optimizer be told by torch's names as well."""

    def _take(self, **given: "Optional[float]") -> None:
        for theirs, value in given.items():
            if value is not None:
                object.__setattr__(self, NAMES[theirs], value)


@dataclass(frozen=True)
class AdamW(_TorchNames):
    """Loshchilov and Hutter, 2019, "Decoupled Weight Decay Regularization". The rate rises for `warmup` steps
    to `rate` and falls along a cosine to `floor` times that, or as `schedule=` of train() says. `weight_decay` is for
    parameters of two or more dimensions; `clip` bounds the norm of the whole gradient, 0 does not. `lr` and `eps` are
    other names of `rate` and `epsilon`, and count where both are given."""

    rate: float = 1e-3
    warmup: int = 0
    floor: float = 0.1
    betas: "tuple[float, float]" = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    lr: InitVar[Optional[float]] = None
    eps: InitVar[Optional[float]] = None

    def __post_init__(self, lr: "Optional[float]", eps: "Optional[float]") -> None:
        self._take(lr=lr, eps=eps)

    def _fields(self) -> "dict[str, Any]":
        return {"kind": "adamw", "peak_rate": float(self.rate), "warmup_steps": operator.index(self.warmup),
                "floor": float(self.floor), "beta1": float(self.betas[0]), "beta2": float(self.betas[1]),
                "epsilon": float(self.epsilon), "weight_decay": float(self.weight_decay),
                "clip": float(self.clip)}


@dataclass(frozen=True)
class Adam(_TorchNames):
    """Kingma and Ba, 2015, "Adam: A Method for Stochastic Optimization"; rate and clip as of AdamW."""

    rate: float = 1e-3
    warmup: int = 0
    floor: float = 0.1
    betas: "tuple[float, float]" = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float = 1.0
    lr: InitVar[Optional[float]] = None
    eps: InitVar[Optional[float]] = None

    def __post_init__(self, lr: "Optional[float]", eps: "Optional[float]") -> None:
        self._take(lr=lr, eps=eps)

    def _fields(self) -> "dict[str, Any]":
        fields = AdamW(self.rate, self.warmup, self.floor, self.betas, self.epsilon, 0.0, self.clip)._fields()
        del fields["weight_decay"]
        return {**fields, "kind": "adam"}


@dataclass(frozen=True)
class SGD(_TorchNames):
    """Stochastic gradient descent with momentum, of Nesterov's kind or not; rate and clip as of AdamW."""

    rate: float = 0.1
    warmup: int = 0
    floor: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    clip: float = 0.0
    lr: InitVar[Optional[float]] = None

    def __post_init__(self, lr: "Optional[float]") -> None:
        self._take(lr=lr)

    def _fields(self) -> "dict[str, Any]":
        return {"kind": "sgd", "peak_rate": float(self.rate), "warmup_steps": operator.index(self.warmup),
                "floor": float(self.floor), "momentum": float(self.momentum), "nesterov": self.nesterov,
                "weight_decay": float(self.weight_decay), "clip": float(self.clip)}


@dataclass(frozen=True)
class Elementwise(_TorchNames):
    """An update of one's own. `update` is called before the job begins, to see what it computes of one element, and not in
    its steps:

        def lion(w, g, m, rate, decay):
            return w - rate * (torch.sign(0.9 * m + 0.1 * g) + decay * w), 0.99 * m + 0.01 * g

        starling.Elementwise(lion, lr=1e-4, moments=1, weight_decay=0.1)

    It gets the weight, the gradient (clipped) and `moments` (1 or 2), which begin with 0, and by their names, where it
    has them, rate (of the step and group), decay (weight_decay of the parameter) and step (1 is the first); it returns
    the new weight and moments. It has + - * / **, sqrt, abs, sign, minimum, maximum, square, as functions of torch or
    methods, and starling.select(x, a, b); rate, decay, step and numbers are computed in double, the rest in float32. What
    comes of it is a formula, part of the job. Rate, its cosine, weight_decay (of two or more dimensions) and clip as of
    AdamW; no weight_decay and no clip unless told."""

    update: "Callable[..., Any]"
    rate: float = 1e-3
    moments: int = 2
    warmup: int = 0
    floor: float = 0.1
    weight_decay: float = 0.0
    clip: float = 0.0
    lr: InitVar[Optional[float]] = None

    def __post_init__(self, lr: "Optional[float]") -> None:
        self._take(lr=lr)

    def _fields(self) -> "dict[str, Any]":
        return {"kind": "elementwise", "peak_rate": float(self.rate), "warmup_steps": operator.index(self.warmup),
                "floor": float(self.floor), "update": formula_of(self.update, self.moments),
                "weight_decay": float(self.weight_decay), "clip": float(self.clip)}


Optimizer = Union[AdamW, Adam, SGD, Elementwise]
OPTIMIZERS = (AdamW, Adam, SGD, Elementwise)


@dataclass(frozen=True)
class Schedule:
    """How the rate goes with the steps, after a warm-up from 0: "constant", "linear" and "cosine" from the rate to
    `floor` times it in the last step, "step" (times `factor` after each `every` steps), "one-cycle" (in `warmup` steps
    from `start` times the rate up to it along a cosine, then along one to `floor`), "warm-up-stable-decay" (the last
    `decay` steps linear to `floor`), "inverse-square-root". warmup and floor: else the optimizer's, where it is torch's 0.
    docs/pytorch.md has the formulae."""

    name: str
    warmup: Optional[int] = None
    floor: Optional[float] = None
    every: Optional[int] = None
    factor: Optional[float] = None
    decay: Optional[int] = None
    start: Optional[float] = None
