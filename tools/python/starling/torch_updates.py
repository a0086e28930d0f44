"""Updates of torch's optimizers that a job has as formulas (starling.Elementwise): as torch.optim computes them, for one
element, after its own weight decay. Needs no torch."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Tuple

from .formula import select
from .script import Refused

Updates = Tuple["Callable[..., Any]", int]  # an update and its moments

# Hyperparameters beside lr and weight_decay that these have: alike in all groups.
HYPERPARAMETERS = ("alpha", "centered", "momentum", "lr_decay", "initial_accumulator_value", "betas", "eps",
                   "decoupled_weight_decay", "momentum_decay")
NAMES = ("RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam")

TERMS = 11          # of a polynomial in place of log(1 - x / 2) / x, x from 0 to 1: within 1e-9
DOUBLINGS = 12      # of an exponential: a second-order one of a 4096th of the exponent, within 2e-8
SLOWEST = 1e-6      # the least momentum_decay but 0: below that doubles do not tell a power of it from 1


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


def _nadam(of: "Mapping[str, Any]") -> Updates:
    """torch keeps the product of all steps' momenta, mu(i) = beta1 (1 - q^i / 2); here it is a function of the step."""
    (beta1, beta2), eps, decoupled = of["betas"], of["eps"], of["decoupled_weight_decay"]
    if not (of["momentum_decay"] == 0 or SLOWEST <= of["momentum_decay"] < math.inf):
        raise Refused(f"torch.optim.NAdam's momentum_decay must be 0 or from {SLOWEST:g} on, is {of['momentum_decay']:g}")
    q = 0.96 ** of["momentum_decay"]
    # log(1 - q^i / 2) is a polynomial in q^i, of which each power's sum over the steps is a geometric series.
    series = [] if q == 1 else [c * q ** k / (1 - q ** k) for k, c in enumerate(_logarithm(), 1)]

    def product(step: Any, power: Any) -> Any:
        if q == 1:
            return (beta1 / 2) ** step
        part = series[-1] * power
        for one in reversed(series[:-1]):
            part = (part + one) * power
        part = ((sum(series) - part) / 2 ** DOUBLINGS).maximum(-1)  # no product is above 0 by then
        factor = part * part / 2 + part + 1
        for _ in range(DOUBLINGS):
            factor = factor * factor
        return beta1 ** step * factor

    def update(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any, step: Any) -> Any:
        w, g = (w * (1 - rate * decay), g) if decoupled else (w, g + decay * w)
        m, v = m + (1 - beta1) * (g - m), beta2 * v + (1 - beta2) * g * g
        power = q ** step
        mu, coming = beta1 * (1 - 0.5 * power), beta1 * (1 - 0.5 * q * power)
        so_far = product(step, power)
        root = (v / (1 - beta2 ** step)).sqrt() + eps
        w = w - rate * (1 - mu) / (1 - so_far) * (g / root)
        return w - rate * coming / (1 - so_far * coming) * (m / root), m, v

    return update, 2


def _logarithm() -> "list[float]":
    """Coefficients of x, x^2, .. of a polynomial that is log(1 - x / 2) within 1e-9 x, for x from 0 to 1: through its
    values at Chebyshev's places."""
    places = [0.5 + 0.5 * math.cos(math.pi * (2 * k + 1) / (2 * TERMS)) for k in range(TERMS)]
    steps = [math.log1p(-x / 2) / x for x in places]
    for order in range(1, TERMS):  # Newton's divided differences
        for k in range(TERMS - 1, order - 1, -1):
            steps[k] = (steps[k] - steps[k - 1]) / (places[k] - places[k - order])
    powers = [0.0]
    for step, place in zip(reversed(steps), reversed(places)):  # powers = powers * (x - place) + step
        powers = [(powers[k - 1] if k else step) - (powers[k] * place if k < len(powers) else 0.0)
                  for k in range(len(powers) + 1)]
    return powers[:TERMS]


def _adam(of: "Mapping[str, Any]") -> Updates:
    (beta1, beta2), eps = of["betas"], of["eps"]

    def update(w: Any, g: Any, m: Any, v: Any, rate: Any, decay: Any, step: Any) -> Any:
        g = g + decay * w
        m, v = m + (1 - beta1) * (g - m), beta2 * v + (1 - beta2) * g * g
        root = (1 - beta2 ** step) ** 0.5
        return w - rate / (1 - beta1 ** step) * m / (v.sqrt() / root + eps), m, v

    return update, 2


_OF = {"RMSprop": _rmsprop, "Adagrad": _adagrad, "Adamax": _adamax, "NAdam": _nadam, "RAdam": _radam,
       "Adam": _adam}


def of(name: str, group: "Mapping[str, Any]") -> Updates:
    """The update of the optimizer of that name in torch.optim, with the hyperparameters of a group. Raises Refused."""
    return _OF[name](group)
