"""The optimizers that a job can have. Needs no torch."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Union


@dataclass(frozen=True)
class AdamW:
    """Loshchilov and Hutter, 2019, "Decoupled Weight Decay Regularization". The rate rises for `warmup` steps
    to `rate` and falls along a cosine to `floor` times that. `weight_decay` is for parameters of two or more
    dimensions; `clip` bounds the norm of the whole gradient, 0 does not."""

    rate: float = 1e-3
    warmup: int = 0
    floor: float = 0.1
    betas: "tuple[float, float]" = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0

    def _fields(self) -> "dict[str, Any]":
        return {"kind": "adamw", "peak_rate": float(self.rate), "warmup_steps": operator.index(self.warmup),
                "floor": float(self.floor), "beta1": float(self.betas[0]), "beta2": float(self.betas[1]),
                "epsilon": float(self.epsilon), "weight_decay": float(self.weight_decay),
                "clip": float(self.clip)}


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba, 2015, "Adam: A Method for Stochastic Optimization"; rate and clip as of AdamW."""

    rate: float = 1e-3
    warmup: int = 0
    floor: float = 0.1
    betas: "tuple[float, float]" = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float = 1.0

    def _fields(self) -> "dict[str, Any]":
        fields = AdamW(self.rate, self.warmup, self.floor, self.betas, self.epsilon, 0.0, self.clip)._fields()
        del fields["weight_decay"]
        return {**fields, "kind": "adam"}


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum, of Nesterov's kind or not; rate and clip as of AdamW."""

    rate: float = 0.1
    warmup: int = 0
    floor: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    clip: float = 0.0

    def _fields(self) -> "dict[str, Any]":
        return {"kind": "sgd", "peak_rate": float(self.rate), "warmup_steps": operator.index(self.warmup),
                "floor": float(self.floor), "momentum": float(self.momentum), "nesterov": self.nesterov,
                "weight_decay": float(self.weight_decay), "clip": float(self.clip)}


Optimizer = Union[AdamW, Adam, SGD]
