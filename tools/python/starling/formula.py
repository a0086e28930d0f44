"""The formula of an update that is written in Python: the function is called with values that note what is done with
them, and what they have noted is the job's (core/job/formula.h). Needs no torch."""

from __future__ import annotations

import inspect
import math
import numbers
import operator
from typing import Any, Callable

from .script import Refused

OPERATIONS_MAX = 80  # so that they and their numbers are as many as core/job/formula.h allows
# What torch, math and Python call the formula's functions.
_FUNCTIONS = {"sqrt": 1, "abs": 1, "sign": 1, "min": 2, "max": 2, "minimum": 2, "maximum": 2, "neg": 1, "square": 1,
              "add": 2, "sub": 2, "subtract": 2, "mul": 2, "multiply": 2, "div": 2, "divide": 2, "true_divide": 2}
_OPERATORS = {"add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/",
              "true_divide": "/"}
_NAMES = {"minimum": "min", "maximum": "max"}


class Value:
    """Of an element, or of the step: what is done with it is noted."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, notes: "Notes", name: str, of_step: bool) -> None:
        self._notes, self._name, self._of_step = notes, name, of_step

    def _two(self, sign: str, left: Any, right: Any) -> "Value":
        return self._notes.put(f"{self._notes.text(left)} {sign} {self._notes.text(right)}", left, right)

    def __add__(self, other: Any) -> "Value":
        return self._two("+", self, other)

    def __radd__(self, other: Any) -> "Value":
        return self._two("+", other, self)

    def __sub__(self, other: Any) -> "Value":
        return self._two("-", self, other)

    def __rsub__(self, other: Any) -> "Value":
        return self._two("-", other, self)

    def __mul__(self, other: Any) -> "Value":
        return self._two("*", self, other)

    def __rmul__(self, other: Any) -> "Value":
        return self._two("*", other, self)

    def __truediv__(self, other: Any) -> "Value":
        return self._two("/", self, other)

    def __rtruediv__(self, other: Any) -> "Value":
        return self._two("/", other, self)

    def __neg__(self) -> "Value":
        return self._notes.put(f"-{self._name}", self)

    def __pos__(self) -> "Value":
        return self

    def __abs__(self) -> "Value":
        return self._call("abs")

    def __pow__(self, exponent: Any) -> "Value":
        if isinstance(exponent, Value):
            return self._notes.power(self, exponent)
        if exponent == 0.5:
            return self._call("sqrt")
        whole = operator.index(exponent) if hasattr(exponent, "__index__") else 0
        if 0 < whole <= 8:
            product = self
            for _ in range(whole - 1):
                product = product * self
            return product
        raise Refused(f"the update raises to the power {exponent!r:.32}; expected 0.5, or a whole number from 1 to 8")

    def __rpow__(self, base: Any) -> "Value":
        return self._notes.power(base, self)

    def _call(self, name: str, *others: Any) -> "Value":
        arguments = ", ".join(map(self._notes.text, (self, *others)))
        return self._notes.put(f"{_NAMES.get(name, name)}({arguments})", self, *others)

    def __getattr__(self, name: str) -> Any:
        """Methods, called as torch's are."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in _FUNCTIONS:
            raise Refused(f"the update calls .{name}(), which a formula does not have: it has + - * / ** sqrt abs sign"
                          " minimum maximum square, and starling.select(x, a, b)")
        return lambda *others, **keywords: _function(name, (self, *others), keywords)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> "Value":
        name = getattr(function, "__name__", "")
        if name not in _FUNCTIONS:
            raise Refused(f"the update calls torch.{name}, which a formula does not have: it has + - * / ** sqrt abs sign"
                          " minimum maximum square, and starling.select(x, a, b)")
        return _function(name, arguments, keywords)

    def __bool__(self) -> bool:
        raise Refused("the update decides by a value (if, and, or, min()), which is another for each element;"
                      " starling.select(x, a, b) is a where x > 0, else b")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = lambda self, *_: self.__bool__()  # type: ignore[assignment]

    def __float__(self) -> float:
        raise Refused("the update asks for a number (float(), math), where there is none yet: + - * / ** sqrt abs sign"
                      " of the values themselves")

    __int__ = __index__ = __float__  # type: ignore[assignment]

    def __iter__(self) -> Any:
        raise Refused("the update takes a value apart, which is one number: it is written for one element")


def _function(name: str, arguments: Any, keywords: Any = None) -> Value:
    if keywords:
        raise Refused(f"the update calls {name} with {', '.join(keywords)}=, which a formula does not have")
    if len(arguments) != _FUNCTIONS[name]:
        raise Refused(f"the update calls {name} with {len(arguments)} arguments, expected {_FUNCTIONS[name]}")
    if name in ("min", "max") and not all(isinstance(one, Value) for one in arguments):
        raise Refused(f"the update calls {name} of a value and {_other(arguments)}, which torch takes as a dimension; expected"
                      f" {name}imum of them")
    first = next(one for one in arguments if isinstance(one, Value))
    if name in _OPERATORS:
        return first._two(_OPERATORS[name], *arguments)
    if name == "square":
        return first * first
    if name == "neg":
        return -first
    if isinstance(arguments[0], Value):
        return arguments[0]._call(name, *arguments[1:])
    return first._call(name, arguments[0])  # min and max, of a number and a value


def _other(arguments: Any) -> str:
    return f"{next(one for one in arguments if not isinstance(one, Value))!r:.32}"


def select(x: Any, a: Any, b: Any) -> Any:
    """In an update of starling.Elementwise: a where x > 0, else b."""
    first = next((one for one in (x, a, b) if isinstance(one, Value)), None)
    if first is None:
        return a if x > 0 else b
    notes = first._notes
    return notes.put(f"select({', '.join(map(notes.text, (x, a, b)))})", x, a, b)


class Notes:
    """The lines of a formula, one for each operation that was done."""

    def __init__(self) -> None:
        self.lines: "list[str]" = []

    def text(self, value: Any) -> str:
        if isinstance(value, Value):
            if value._notes is not self:
                raise Refused("the update computes with a value that it was given in another call; expected values that are"
                              " kept in its moments")
            return value._name
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise Refused(f"the update computes with {value!r:.48}; expected numbers and the values that it was given")
        number = float(value)
        if not math.isfinite(number):
            raise Refused(f"the update computes with {value}; expected finite numbers")
        return repr(number) if number >= 0 else f"({number!r})"

    def put(self, text: str, *of: Any) -> Value:
        if len(self.lines) == OPERATIONS_MAX:
            raise Refused(f"the update has more than {OPERATIONS_MAX} operations")
        name = f"x{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(self, name, all(not isinstance(one, Value) or one._of_step for one in of))

    def power(self, base: Any, exponent: Value) -> Value:
        if exponent._name != "step" or isinstance(base, Value) and not base._of_step:
            raise Refused("the update has a power whose exponent is a value; expected a number ** step")
        return self.put(f"power({self.text(base)}, step)", base)


def formula_of(update: "Callable[..., Any]", moments: int) -> str:
    """Calls update(w, g, m, rate=.., decay=.., step=..), with two moments (w, g, m, v, ..), which returns the new w and
    moments; it takes of rate, decay and step what it names. It is called twice, and has to do the same again. Raises
    Refused."""
    text, again = _noted(update, moments), _noted(update, moments)
    if text != again:
        changed = next(f"`{one}`, then `{other}`" for one, other in zip(text.splitlines(), again.splitlines()) if one != other)
        raise Refused(f"Elementwise's update does not do the same when it is called again: {changed}; expected what depends"
                      " on the values that it is given, of which step counts")
    return text


def _noted(update: "Callable[..., Any]", moments: int) -> str:
    notes = Notes()
    given = [Value(notes, name, False) for name in ("w", "g", "m", "v")[:2 + moments]]
    of_step: "dict[str, Any]" = {name: Value(notes, name, True) for name in ("rate", "decay", "step")}
    try:
        taken = inspect.signature(update).parameters.values()
    except (TypeError, ValueError):
        raise Refused("Elementwise's update has no signature; expected a function of Python") from None
    if not any(one.kind is one.VAR_KEYWORD for one in taken):
        of_step = {name: value for name, value in of_step.items() if any(one.name == name for one in taken)}
    try:
        made = update(*given, **of_step)
    except Refused:
        raise
    except Exception as why:
        raise Refused(f"Elementwise's update has raised {type(why).__name__}: {' '.join(str(why).split())[:200]}; expected"
                      f" update({', '.join(one._name for one in given)}, rate, decay, step) with moments={moments}, of which the"
                      " last three by their names") from None
    results = made if isinstance(made, tuple) else (made,)
    if len(results) != 1 + moments or not all(isinstance(one, Value) and one._notes is notes and not one._of_step for one in results):
        wanted = ", ".join(["w", "m", "v"][:1 + moments])
        raise Refused(f"Elementwise's update must return the new {wanted}, made of the values that it was given, with"
                      f" moments={moments}; returns {_shape(made)}")
    # In two stages: a new value may be an old one of another name.
    lines = [*notes.lines, *(f"new_{name} = {one._name}" for name, one in zip(("w", "m", "v"), results)),
             *(f"{name} = new_{name}" for name in ("w", "m", "v")[:len(results)])]
    return "\n".join(lines) + "\n"


def _shape(made: Any) -> str:
    return f"a tuple of {len(made)}" if isinstance(made, tuple) else f"a {type(made).__name__}"
