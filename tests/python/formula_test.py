"""Updates that are written in Python, as formulas of a job: what is noted, and what is refused. Without torch."""
import fractions
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

import starling  # noqa: E402
from starling import torch_updates  # noqa: E402
from starling.formula import formula_of  # noqa: E402
from starling.script import Refused  # noqa: E402


def value_of(text, **given):
    """What the formula's lines come to for one element, in double."""
    functions = {"sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan, "abs": abs, "sign": lambda x: math.copysign(1.0, x) if x else 0.0, "min": min, "max": max,
                 "power": pow, "select": lambda x, a, b: a if x > 0 else b}
    names = {"rate": 0.5, "decay": 0.25, "step": 3.0, **given}
    for line in text.splitlines():
        name, expression = line.split(" = ")
        names[name] = eval(expression, functions, names)
    return names


def what_is_computed_is_noted(place):
    def update(w, g, m, v, rate, decay, step):
        m, v = 0.5 * m + (1 - 0.5) * g, v + abs(g) ** 2 - -1
        root = (v / (1 - 0.5 ** step)).sqrt()
        return w - rate * m / root.maximum(1e-8) - decay * w * g.sign() + starling.select(g - 1, 2.0, w) / 4, m, v

    found = value_of(formula_of(update, 2), w=2.0, g=3.0, m=1.0, v=6.0)
    m, v = 0.5 * 1 + 0.5 * 3, 6 + 9 + 1.0
    require((found["m"], found["v"]) == (m, v), found)
    require(abs(found["w"] - (2 - 0.5 * m / math.sqrt(v / 0.875) - 0.25 * 2 + 2.0 / 4)) < 1e-12, found)


def new_values_may_be_old_ones_of_another_name(place):
    found = value_of(formula_of(lambda w, g, m, v: (m + 0, v, w), 2), w=1.0, g=0.0, m=2.0, v=3.0)
    require((found["w"], found["m"], found["v"]) == (2.0, 3.0, 1.0), found)


def an_update_takes_what_it_names(place):
    for update in (lambda w, g, m: (w - g, m), lambda w, g, m, step: (w - g * step / step, m),
                   lambda w, g, m, **of_step: (w - g * of_step["rate"] / of_step["rate"], m)):
        require(value_of(formula_of(update, 1), w=1.0, g=3.0, m=0.0)["w"] == -2.0, "w - g")


REFUSED = [
    (lambda w, g, m: (w if g > 0 else -w, m), "the update decides by a value (if, and, or, min())"),
    (lambda w, g, m: (w - min(g, m), m), "the update decides by a value"),
    (lambda w, g, m: (w - math.sqrt(g), m), "the update asks for a number (float(), math), where there is none yet"),
    (lambda w, g, m: (w - g.exp(), m), "the update calls .exp(), which a formula does not have"),
    (lambda w, g, m: (w - g.maximum(), m), "the update calls maximum with 1 arguments, expected 2"),
    (lambda w, g, m: (w - g ** 2.5, m), "the update raises to the power 2.5"),
    (lambda w, g, m: (w - 2 ** g, m), "the update has a power whose exponent is a value; expected a number ** step"),
    (lambda w, g, m, step: (w - 2 ** (step + 1), m), "the update has a power whose exponent is a value"),
    (lambda w, g, m: (w - g * float("inf"), m), "the update computes with inf; expected finite numbers"),
    (lambda w, g, m: (w - g * "2", m), "the update computes with '2'; expected numbers"),
    (lambda w, g, m: w, "must return the new w, m, made of the values that it was given, with moments=1; returns a Value"),
    (lambda w, g, m, rate: (rate, m), "must return the new w, m"),
    (lambda w, g, m: (w, m, g), "must return the new w, m, made of the values that it was given, with moments=1; returns a tuple of 3"),
    (lambda w, g: w, "Elementwise's update has raised TypeError"),
    (lambda w, g, m: (sum([g] * 200, w), m), "the update has more than 80 operations"),
    (lambda w, g, m: (w - g[0], m), "Elementwise's update has raised TypeError"),
    (lambda w, g, m: (w - g.max(0), m), "the update calls max of a value and 0, which torch takes as a dimension; expected maximum"),
    (lambda w, g, m: (w.add(g, alpha=-0.1), m), "the update calls add with alpha=, which a formula does not have"),
    (lambda w, g, m: (w - g * True, m), "the update computes with True"),
]


def what_no_formula_has_is_named(place):
    for number, (update, line) in enumerate(REFUSED):
        try:
            text = formula_of(update, 1)
        except Refused as why:
            require(line in str(why) and "\n" not in str(why), f"{number}: {why}")
        else:
            raise AssertionError(f"{number}: {text}")


def what_an_update_keeps_itself_is_refused(place):
    """It would be that of the one call that is noted, in all steps."""
    calls = []

    def counts(w, g, m, rate):
        calls.append(1)
        return w - rate * g / len(calls), m

    before = []

    def keeps(w, g, m, rate):
        before.append(g * m)
        return w - rate * before[max(0, len(before) - 2)], m

    kept = []

    def returns(w, g, m, rate):
        kept.append(g * m)
        return w - rate * g, kept[0]

    for update, line in ((counts, "does not do the same when it is called again: `x1 = x0 / 1.0`, then `x1 = x0 / 2.0`"),
                         (keeps, "the update computes with a value that it was given in another call"),
                         (returns, "must return the new w, m, made of the values that it was given")):
        try:
            raise AssertionError(formula_of(update, 1))
        except Refused as why:
            require(line in str(why) and "\n" not in str(why), why)


def numbers_are_of_any_kind(place):
    half, two = fractions.Fraction(1, 2), type("Two", (), {"__index__": lambda self: 2})()
    for update in (lambda w, g, m: (w - half * g ** two, m), lambda w, g, m: (w - g ** two * half, m)):
        require(value_of(formula_of(update, 1), w=1.0, g=2.0, m=0.0)["w"] == -1.0, "w - g * g / 2")


def torchs_updates_are_formulas(place):
    of = {"alpha": 0.9, "eps": 1e-8, "momentum": 0.0, "centered": False, "lr_decay": 0.5, "initial_accumulator_value": 0.25,
          "betas": (0.5, 0.75), "decoupled_weight_decay": True, "momentum_decay": 0.5}
    for name in (*torch_updates.NAMES, "Adam"):
        found = value_of(formula_of(*torch_updates.of(name, of)), w=2.0, g=0.5, m=1.0, v=4.0)
        require(all(math.isfinite(found[one]) for one in "wmv"), f"{name}: {found}")
    adagrad = value_of(formula_of(*torch_updates.of("Adagrad", of)), w=2.0, g=0.5, m=1.0, v=4.0)
    g = 0.5 + 0.25 * 2.0
    require(abs(adagrad["w"] - (2.0 - 0.5 / (1 + 2 * 0.5) * g / (math.sqrt(1 + g * g + 0.25) + 1e-8))) < 1e-12, adagrad)
    nadam = value_of(formula_of(*torch_updates.of("NAdam", of)), w=2.0, g=0.5, m=1.0, v=4.0)
    mu = [0.5 * (1 - 0.5 * 0.96 ** (i * 0.5)) for i in range(1, 5)]  # of steps 1 to 4; this is the third
    w, m, v = 2.0 * (1 - 0.5 * 0.25), 1.0 + 0.5 * (0.5 - 1.0), 0.75 * 4.0 + 0.25 * 0.25
    root = math.sqrt(v / (1 - 0.75 ** 3)) + 1e-8
    w -= 0.5 * (1 - mu[2]) / (1 - math.prod(mu[:3])) * 0.5 / root + 0.5 * mu[3] / (1 - math.prod(mu)) * m / root
    require(abs(nadam["w"] - w) < 1e-7 and nadam["m"] == m and nadam["v"] == v, f"{nadam}, not {w}")
    try:
        torch_updates.of("NAdam", {**of, "momentum_decay": 1e-9})
        raise AssertionError("a product that is not told from a power")
    except Refused as why:
        require("momentum_decay must be 0 or from 1e-06 on, is 1e-09" in str(why), why)
    try:
        torch_updates.of("RMSprop", {**of, "momentum": 0.9, "centered": True})
        raise AssertionError("three moments")
    except Refused as why:
        require("three values for each parameter" in str(why), why)


main(what_is_computed_is_noted, new_values_may_be_old_ones_of_another_name, an_update_takes_what_it_names,
     what_no_formula_has_is_named, what_an_update_keeps_itself_is_refused, numbers_are_of_any_kind, torchs_updates_are_formulas)
