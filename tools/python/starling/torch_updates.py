"""Updates of torch's optimizers that a job has as formulas (starling.Elementwise): as torch.optim computes them, for one
element, after its own weight decay. Needs no torch."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Tuple

from .formula import select
from .script import Refused

Updates = Tuple["Callable[..., Any]", int]  # an update and its moments

# Hyperparameters beside lr and weight_decay that these have: alike in all groups.
HYPERPARAMETERS = ("alpha", "centered", "momentum", "lr_decay", "initial_accumulator_value", "betas", "eps",
                   "decoupled_weight_decay")
NAMES = ("RMSprop", "Adagrad", "Adamax", "RAdam")


def _rmsprop(of: "Mapping[str, Any]") -> Updates:
    alpha, eps, momentum = of["alpha"], of["eps"], of["momentum"]

    def plain(w: Any, g: Any, m: Any, rate: Any, decay: Any) -> Any:
        g = g + decay * w
        m = alpha * m + (1 - alpha) * g * g
        return w - rate * g / (m.sqrt() + eps), m

    def centered(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any) -> Any:
        g = g + decay * w
        m, v = alpha * m + (1 - alpha) * g * g, v + (1 - alpha) * (g - v)
        return w - rate * g / ((m - v * v).sqrt() + eps), m, v

    def with_momentum(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any) -> Any:
        g = g + decay * w
        m = alpha * m + (1 - alpha) * g * g
        v = momentum * v + g / (m.sqrt() + eps)
        return w - rate * v, m, v

    if momentum and of["centered"]:
        raise Refused("torch.optim.RMSprop with momentum and centered keeps three values for each parameter, and a job has"
                      " two")
    if momentum:
        return with_momentum, 2
    if of["centered"]:
        return centered, 2
    return plain, 1


def _adagrad(of: "Mapping[str, Any]") -> Updates:
    slower, first, eps = of["lr_decay"], of["initial_accumulator_value"], of["eps"]

    def update(w: Any, g: Any, m: Any, rate: Any, decay: Any, step: Any) -> Any:
        g = g + decay * w
        m = m + g * g  # without `first`: moments begin with 0
        return w - rate / (1 + (step - 1) * slower) * g / ((m + first).sqrt() + eps), m

    return update, 1


def _adamax(of: "Mapping[str, Any]") -> Updates:
    (beta1, beta2), eps = of["betas"], of["eps"]

    def update(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any, step: Any) -> Any:
        g = g + decay * w
        m, v = m + (1 - beta1) * (g - m), (beta2 * v).maximum(abs(g) + eps)
        return w - rate / (1 - beta1 ** step) * m / v, m, v

    return update, 2


def _radam(of: "Mapping[str, Any]") -> Updates:
    (beta1, beta2), eps, decoupled = of["betas"], of["eps"], of["decoupled_weight_decay"]
    longest = 2 / (1 - beta2) - 1

    def update(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any, step: Any) -> Any:
        w, g = (w * (1 - rate * decay), g) if decoupled else (w, g + decay * w)
        m, v = m + (1 - beta1) * (g - m), beta2 * v + (1 - beta2) * g * g
        length = longest - 2 * step * beta2 ** step / (1 - beta2 ** step)
        part = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        mean = m / (1 - beta1 ** step)
        rectified = ((1 - beta2 ** step) * part).sqrt() / (v.sqrt() + eps)
        return w - rate * mean * select(length - 5, rectified, 1), m, v

    return update, 2


def _adam(of: "Mapping[str, Any]") -> Updates:
    (beta1, beta2), eps = of["betas"], of["eps"]

    def update(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any, step: Any) -> Any:
        g = g + decay * w
        m, v = m + (1 - beta1) * (g - m), beta2 * v + (1 - beta2) * g * g
        root = (1 - beta2 ** step) ** 0.5
        return w - rate / (1 - beta1 ** step) * m / (v.sqrt() / root + eps), m, v

    return update, 2


_OF = {"RMSprop": _rmsprop, "Adagrad": _adagrad, "Adamax": _adamax, "RAdam": _radam, "Adam": _adam}


def of(name: str, group: "Mapping[str, Any]") -> Updates:
    """The update of the optimizer of that name in torch.optim, with the hyperparameters of a group. Raises Refused."""
    return _OF[name](group)
