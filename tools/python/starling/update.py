"""How a job updates its parameters: optimizer, schedule and groups as they were given to train(), made the [optimizer]
section of a job file. Needs torch where what was given is torch's."""

from __future__ import annotations

import copy
import math
import operator
import sys
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Optional

from . import torch_updates
from .optimizers import OPTIMIZERS, SGD, Adam, AdamW, Elementwise, Optimizer, Schedule
from .script import Refused

SAMPLED_MAX = 32768  # steps, as core/job/schedule.h has it
RATE_MAX = 1000.0
FACTOR_MAX = 1e6  # of a group's rate, as core/job/optimizer_reader.cpp has it
SCHEDULES = ("constant", "linear", "cosine", "step", "one-cycle", "warm-up-stable-decay", "inverse-square-root")
_KEYS_OF = {"every": "step", "factor": "step", "decay": "warm-up-stable-decay", "start": "one-cycle"}
_IN_PROPORTION = 1e-9  # of the largest rate: how far the rates of two groups may be from one proportion

# Of torch's optimizers, beside what is mapped.
_REFUSED = ("amsgrad", "maximize", "differentiable")
_HARMLESS = ("foreach", "fused", "capturable")
_MAPPED = ("lr", "weight_decay", "nesterov", "dampening", *torch_updates.HYPERPARAMETERS)
# What a group has for torch's own use, and of a scheduler.
_OTHERS = ("params", "param_names", "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")
_FORM = "lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3)"


@dataclass
class Update:
    """An optimizer in the job's words."""

    optimizer: Optimizer
    torch: Any = None  # torch's optimizer, if one was given
    # Of its groups: the names of what is trained, a factor of the rate, and the weight decay.
    names: "list[list[str]]" = field(default_factory=list)
    factors: "list[float]" = field(default_factory=list)
    decays: "list[float]" = field(default_factory=list)
    attached: bool = False  # a scheduler was made of it before it was given
    own_rate: Optional[float] = None  # which groups= are beside; None: such a scheduler may have changed it
    fixed: "list[dict[str, Any]]" = field(default_factory=list)  # of each group what a schedule may not change
    remarks: "list[str]" = field(default_factory=list)  # for people

    def groups(self) -> "list[dict[str, Any]]":
        """As job files have them. torch's weight decay is of all parameters, whatever their dimensions."""
        said: "list[dict[str, Any]]" = []
        for names, factor, decay in zip(self.names, self.factors, self.decays):
            if names and (factor != 1 or decay != 0):
                said.append({"tensors": ["*"] if len(self.names) == 1 else names,
                             **({"rate_factor": factor} if factor != 1 else {}),
                             **({"weight_decay": decay} if decay != 0 else {})})
        return said


def is_torch(value: Any) -> bool:
    """Whether it is one of torch's optimizers: without torch there is none."""
    kind = getattr(getattr(sys.modules.get("torch"), "optim", None), "Optimizer", None)
    return kind is not None and isinstance(value, kind)


def comes_later(value: Any) -> bool:
    """Whether it is told by the net that build() makes."""
    return is_torch(value) or callable(value) and not isinstance(value, type) and not isinstance(
        value, OPTIMIZERS)


def _once(text: Any) -> str:
    return " ".join(str(text).split())[:200]


def look_at(schedule: Any, groups: Any, steps: int) -> None:
    """Raises Refused for what is wrong whatever the net and its optimizer are."""
    if isinstance(schedule, (str, Schedule)):
        _named(Schedule(schedule) if isinstance(schedule, str) else schedule, Update(AdamW()), steps)
    elif schedule is not None and not _is_scheduler(schedule) and (not callable(schedule) or isinstance(schedule, type)):
        raise _no_schedule(schedule)
    if groups is not None:
        groups_of(groups, 1.0)


# ---- torch's optimizers ----------------------------------------------------------------------------------------------


def of_net(given: Any, net: Any) -> Update:
    """What train() was given as optimizer=, for the net that build() has made."""
    if isinstance(given, OPTIMIZERS):
        return Update(given)
    made = given
    if not is_torch(given):
        try:
            made = given(net)
        except Refused:
            raise
        except Exception as why:
            raise Refused(f"optimizer(net) has raised {type(why).__name__}: {_once(why)}; expected a function of the"
                          f" net, {_FORM}") from None
        if isinstance(made, OPTIMIZERS):
            return Update(made)
        if not is_torch(made):
            raise Refused(f"optimizer(net) must return an optimizer of torch or of starling, is a"
                          f" {type(made).__name__}; {_FORM} makes one")
    return _of_torch(made, net)


def _of_torch(optimizer: Any, net: Any) -> Update:
    import torch

    kind = type(optimizer)
    name = f"{'torch.optim' if kind.__module__.startswith('torch.optim.') else kind.__module__}.{kind.__name__}"
    known = ("AdamW", "Adam", "SGD", *torch_updates.NAMES)
    if kind not in [getattr(torch.optim, one, None) for one in known]:
        raise Refused(f"optimizer is a {name}, whose update a job does not have; expected {', '.join(known[:-1])} or"
                      f" {known[-1]} of torch.optim, or starling.Elementwise with an update of your own")
    groups = optimizer.param_groups
    if any(float(state.get("step", 1)) for state in optimizer.state.values()):  # Adagrad's has begun with 0
        raise Refused(f"the {name} has made steps already, which the job would lose; give one that is new")
    for when in ("pre", "post"):
        if getattr(optimizer, f"_optimizer_step_{when}_hooks", None):
            raise Refused(f"the {name} has a hook (register_step_{when}_hook), but a job makes no step of torch's; leave"
                          " the hook out")
    update = Update(AdamW(), torch=optimizer, fixed=_fixed(groups))
    for key in dict.fromkeys(key for group in groups for key in group):
        _look_at(name, key, [group.get(key) for group in groups], update)
    first = groups[0]
    rates = [_number(f"{name}'s lr", group.get("initial_lr", group["lr"])) for group in groups]  # a scheduler's is another
    decays = [_number(f"{name}'s weight_decay", group["weight_decay"]) for group in groups]
    rate = next((r for r in rates if r > 0), 0.0)  # the first group's, which people know as the optimizer's
    if not 0 < rate <= RATE_MAX:
        raise Refused(f"{name}'s lr must be a number above 0 and at most {RATE_MAX:g}, is {rate:g}")
    update.attached = any("initial_lr" in group for group in groups)
    # A scheduler may set initial_lr too, as OneCycleLR and CyclicLR do: then it is not known what a group had before.
    update.own_rate = rate if not update.attached or rate == float(optimizer.defaults["lr"]) else None
    decoupled = kind is torch.optim.AdamW or bool(first.get("decoupled_weight_decay"))
    if kind is torch.optim.SGD:
        momentum = _number(f"{name}'s momentum", first["momentum"])
        if momentum and first["dampening"]:
            raise Refused(f"{name}'s dampening must be 0, is {first['dampening']}: a job's momentum has none")
        update.optimizer = SGD(rate, floor=0.0, momentum=momentum, nesterov=bool(first["nesterov"]))
    elif kind.__name__ in torch_updates.NAMES or kind is torch.optim.Adam and any(decays) and not decoupled:
        function, moments = torch_updates.of(kind.__name__, first)
        update.optimizer = Elementwise(function, rate, moments, floor=0.0)
    else:
        beta1, beta2 = (_number(f"{name}'s betas", beta) for beta in first["betas"])
        betas = beta1, beta2
        epsilon = _number(f"{name}'s eps", first["eps"])
        if decoupled:
            update.optimizer = AdamW(rate, floor=0.0, betas=betas, epsilon=epsilon, weight_decay=0.0, clip=0.0)
        else:
            update.optimizer = Adam(rate, floor=0.0, betas=betas, epsilon=epsilon, clip=0.0)
    update.names, update.factors, update.decays = _names_of(name, groups, net), [r / rate for r in rates], decays
    return update


def _look_at(name: str, key: str, values: "list[Any]", update: Update) -> None:
    """At one hyperparameter of all groups."""
    if key in _REFUSED and any(values):
        raise Refused(f"{name}'s {key} must be False, is {next(v for v in values if v)}: a job's optimizer has no such"
                      " thing")
    if key in _HARMLESS:
        if any(values):
            update.remarks.append(f"{key}=True of {name} changes nothing here: workers update their parts of the state"
                                  " themselves")
        return
    if key in _REFUSED or key in _OTHERS or key in ("lr", "weight_decay"):
        return
    if key not in _MAPPED:
        raise Refused(f"{name} has {key}, which a job's optimizer does not have")
    if any(value != values[0] for value in values):
        raise Refused(f"{name}'s {key} differs between its groups, is {values[0]} and"
                      f" {next(v for v in values if v != values[0])}: a job's groups differ in lr and weight_decay alone")


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except Exception:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise Refused(f"{name} must be a number from 0, is {_once(value)}")
    return number


def _names_of(name: str, groups: "list[dict[str, Any]]", net: Any) -> "list[list[str]]":
    """Its groups by the names of the net's parameters."""
    names = {id(p): n for n, p in net.named_parameters()}
    trained = {n for n, p in net.named_parameters() if p.requires_grad}
    of_groups = []
    for group in groups:
        if any(id(p) not in names for p in group["params"]):
            raise Refused(f"the {name} has a parameter that the net of build() has not; expected a function of that"
                          f" net, {_FORM}")
        of_groups.append([n for n in (names[id(p)] for p in group["params"]) if n in trained])
    all_names = [n for of_group in of_groups for n in of_group]
    twice = [n for n in all_names if all_names.count(n) > 1] if len(set(all_names)) < len(all_names) else []
    if twice:
        raise Refused(f"parameter {twice[0]} is in the {name} twice, which would update it twice in a step; give it once")
    left = trained - set(all_names)
    if left:
        raise Refused(f"parameter {min(left)} of the net is not in the {name}, which would not train it; put it there,"
                      " or set requires_grad_(False) in build()")
    return of_groups


# ---- Schedules -------------------------------------------------------------------------------------------------------


def schedule_of(given: Any, update: Update, steps: int) -> "dict[str, Any]":
    """The keys of a job file for what train() was given as schedule=; may change the update's rate and groups."""
    if given is None or isinstance(given, (str, Schedule)):
        _check_not_attached(update)
    if given is None:
        return {"schedule": "constant"} if update.torch is not None else {}
    if isinstance(given, (str, Schedule)):
        return _named(Schedule(given) if isinstance(given, str) else given, update, steps)
    if steps > SAMPLED_MAX:
        raise Refused(f"schedule is sampled for at most {SAMPLED_MAX} steps, the job has {steps}; one of these names has"
                      f" no end: {', '.join(SCHEDULES)}")
    if update.torch is None:
        _check_no_warmup(update.optimizer)
    rates = _sampled(given, update, steps)
    base = next((g for g, of_group in enumerate(rates) if max(of_group) > 0), 0)
    peak, at = max((rate, -k) for k, rate in enumerate(rates[base]))
    if not 0 < peak <= RATE_MAX:
        raise Refused(f"schedule's rates must be above 0 and at most {RATE_MAX:g} somewhere, are at most {peak:g}")
    if len(rates) > 1:
        update.factors = _proportions(rates, base, -at)
    update.optimizer = replace(update.optimizer, rate=peak, warmup=0)
    fractions = [rate / peak for rate in rates[base]]
    if all(fraction == 1 for fraction in fractions):
        return {"schedule": "constant"}
    return {"schedule": "sampled", "fractions": fractions}


def _check_not_attached(update: Update) -> None:
    if update.attached:
        raise Refused("a scheduler is attached to the optimizer, which changes its rate, and is not given: schedule= takes"
                      " it, or a function that makes it of the optimizer")


def _check_no_warmup(optimizer: Optimizer) -> None:
    """Where the schedule says the rate of each step, nothing is left for an optimizer of ours to say."""
    for key in ("warmup", "floor"):
        value = getattr(optimizer, key)
        if value != getattr(type(optimizer), key):
            raise Refused(f"optimizer's {key}={_once(value)} has no meaning beside a schedule that says the rate of each"
                          " step; leave it out, or put it into the schedule")


def _no_schedule(given: Any) -> Refused:
    return Refused(f"schedule must be one of {', '.join(SCHEDULES)}, a scheduler of torch or a function of the step, is"
                   f" {_once(repr(given))}")


def _named(schedule: Schedule, update: Update, steps: int) -> "dict[str, Any]":
    name = schedule.name
    if name not in SCHEDULES:
        raise _no_schedule(name)
    for key, of in _KEYS_OF.items():
        if getattr(schedule, key) is not None and name != of:
            raise Refused(f"schedule's {key} does not apply to {name!r}, only to {of!r}")
    optimizer = update.optimizer
    warmup = optimizer.warmup if schedule.warmup is None else schedule.warmup
    if name == "one-cycle" and not warmup and schedule.warmup is None:
        warmup = max(1, round(0.3 * steps))
    floor = optimizer.floor if schedule.floor is None else schedule.floor
    update.optimizer = replace(optimizer, warmup=warmup, floor=floor)
    keys: "dict[str, Any]" = {} if name == "cosine" else {"schedule": name}
    if name == "step":
        if schedule.every is None:
            raise Refused('schedule "step" wants the steps between two falls: starling.Schedule("step", every=100)')
        keys["step_every"] = _whole("schedule's every", schedule.every)
        if schedule.factor is not None:
            keys["step_factor"] = _in_range("schedule's factor", schedule.factor, 1)
    if name == "warm-up-stable-decay":
        keys["decay_steps"] = max(1, steps // 10) if schedule.decay is None else _whole("schedule's decay", schedule.decay)
    if name == "one-cycle" and schedule.start is not None:
        keys["start"] = _in_range("schedule's start", schedule.start, 1)
    return keys


def _whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except Exception:
        number = 0
    if isinstance(value, bool) or not 1 <= number < 2**32:
        raise Refused(f"{name} must be a whole number from 1 to {2**32 - 1}, is {_once(repr(value))}")
    return number


def _in_range(name: str, value: Any, most: float) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except Exception:
        number = math.nan
    if not 0 <= number <= most:
        raise Refused(f"{name} must be a number from 0 to {most:g}, is {_once(repr(value))}")
    return number


def _is_scheduler(value: Any) -> bool:
    return is_torch(getattr(value, "optimizer", None)) and callable(getattr(value, "step", None))


def _sampled(given: Any, update: Update, steps: int) -> "list[list[float]]":
    """The rate of each step, of each of the optimizer's groups if it is torch's scheduler that says it."""
    if not _is_scheduler(given):
        try:
            first = given(0)
        except Exception as why:
            return _of_made(given, update, f"schedule(0) has raised {type(why).__name__}: {_once(why)}", steps)
        if not _is_scheduler(first):
            return [_of_function(given, steps, first)]
        given = first
    if given.optimizer is not update.torch:
        raise Refused("schedule is a scheduler of another optimizer than optimizer=; expected one of the same, or"
                      " lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 30)")
    return _of_scheduler(given, steps, update.fixed)


def _of_made(given: "Callable[[Any], Any]", update: Update, failure: str, steps: int) -> "list[list[float]]":
    """Of the scheduler that a function makes of an optimizer: of torch's own, or of one that stands for ours."""
    if sys.modules.get("torch") is None or not hasattr(sys.modules["torch"].optim, "SGD"):
        raise Refused(f"{failure}; expected the rate of step 0")
    import torch

    optimizer = update.torch
    if optimizer is None:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=float(update.optimizer.rate))
    groups = optimizer.param_groups
    before, fixed = _as_now(groups), _fixed(groups)
    try:
        scheduler = given(optimizer)
    except Exception as why:
        raise Refused(f"{failure}, and of an optimizer {type(why).__name__}: {_once(why)}; expected the rate of a step,"
                      " or a scheduler of torch") from None
    if not _is_scheduler(scheduler) or scheduler.optimizer is not optimizer:
        raise Refused(f"{failure}; expected the rate of a step, or a scheduler of torch for the optimizer that is given")
    rates = _of_scheduler(scheduler, steps, fixed)
    for group, values in zip(groups, before):  # the optimizer is as it was given, without a scheduler
        group.clear()
        group.update(values)
    return rates


def _of_function(given: "Callable[[int], Any]", steps: int, first: Any) -> "list[float]":
    """first: what it gives for step 0, of which it was asked."""
    rates = []
    for step in range(steps):
        try:
            value = given(step) if step > 0 else first
            number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
        except Exception as why:
            raise Refused(f"schedule({step}) has raised {type(why).__name__}: {_once(why)}; expected the rate of that"
                          " step") from None
        if not 0 <= number <= RATE_MAX:
            raise Refused(f"schedule({step}) must be a rate from 0 to {RATE_MAX:g}, is {_once(repr(value))}")
        rates.append(number)
    return rates


def _fixed(groups: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """Of each group of torch's what a job has once for all steps."""
    return [{key: value for key, value in group.items() if key in _MAPPED and key != "lr"} for group in groups]


def _as_now(groups: "list[dict[str, Any]]") -> "list[dict[str, Any]]":
    """A scheduler writes into a rate that is a tensor."""
    return [{**group, "lr": copy.deepcopy(group["lr"])} for group in groups]


def _steps_made(scheduler: Any) -> int:
    """A ChainedScheduler counts none itself."""
    if hasattr(scheduler, "last_epoch"):
        return int(scheduler.last_epoch)
    return max(map(_steps_made, getattr(scheduler, "_schedulers", ())), default=0)


def _of_scheduler(scheduler: Any, steps: int, fixed: "Optional[list[dict[str, Any]]]" = None) -> "list[list[float]]":
    """Steps it through all steps of the job, and back. fixed: of the groups, before the scheduler was made, if that is
    known."""
    name, groups = type(scheduler).__name__, scheduler.optimizer.param_groups
    if name == "ReduceLROnPlateau":
        raise Refused("schedule is a ReduceLROnPlateau, which waits for what the training comes to; expected a function"
                      " of the step")
    if _steps_made(scheduler) != 0:
        raise Refused(f"the {name} has made {_steps_made(scheduler)} steps already; give one that is new")
    fixed = _fixed(groups) if fixed is None else fixed
    _check_fixed(name, fixed, groups)
    before = _as_now(groups)
    state = copy.deepcopy(scheduler.state_dict())
    rates: "list[list[float]]" = [[] for _ in groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was no step of the optimizer
        for step in range(steps):
            for of_group, group in zip(rates, groups):
                of_group.append(_number(f"{name}'s rate of step {step}", group["lr"]))
            if step + 1 == steps:
                break
            try:
                scheduler.step()
            except Exception as why:
                raise Refused(f"{name} has raised {type(why).__name__} at step {step + 1} of {steps}: {_once(why)}; a"
                              " scheduler makes a step for each of the job's") from None
            _check_fixed(name, fixed, groups)
        for group, values in zip(groups, before):
            group.update(values)
        scheduler.load_state_dict(state)
    return rates


def _check_fixed(name: str, fixed: "list[dict[str, Any]]", groups: "list[dict[str, Any]]") -> None:
    for was, now in zip(fixed, groups):
        for key, value in was.items():
            if value != now[key]:
                cure = "; expected cycle_momentum=False" if key in ("momentum", "betas") else ""
                raise Refused(f"{name} changes {key}, which is fixed in a job{cure}")


def _proportions(rates: "list[list[float]]", base: int, at: int) -> "list[float]":
    """The groups' factors: a scheduler may have rates of its own for each."""
    peak = rates[base][at]
    factors = [of_group[at] / peak for of_group in rates]
    for g, of_group in enumerate(rates):
        for step, rate in enumerate(of_group):
            if abs(rate - factors[g] * rates[base][step]) > _IN_PROPORTION * peak:
                raise Refused(f"the scheduler's rates of groups {base} and {g} are in other proportions in step {step} than"
                              f" in step {at}; a job's groups have a factor each, and one schedule")
    return factors


# ---- Groups ----------------------------------------------------------------------------------------------------------


def groups_of(given: Any, rate: "Optional[float]") -> "list[dict[str, Any]]":
    """What train() was given as groups=, as job files have it. rate: which their lr is a factor of, if it is known."""
    if not isinstance(given, Mapping):
        raise Refused('groups must be a dict of names or patterns of parameters, as {"*.bias": dict(weight_decay=0.0)},'
                      f" is {_once(repr(given))}")
    groups = []
    for pattern, keys in given.items():
        if not isinstance(pattern, str) or not pattern:
            raise Refused(f"groups must have names or patterns of parameters, has {_once(repr(pattern))}")
        if not isinstance(keys, Mapping) or not keys or not set(keys) <= {"lr", "weight_decay"}:
            raise Refused(f"groups[{pattern!r}] must be a dict with lr, weight_decay or both, is {_once(repr(keys))}")
        group: "dict[str, Any]" = {"tensors": [pattern]}
        for key, value in keys.items():
            group["rate_factor" if key == "lr" else key] = _in_range(f"groups[{pattern!r}]'s {key}", value, RATE_MAX)
        if "lr" in keys:
            if rate is None:
                raise Refused(f"groups[{pattern!r}]'s lr is a rate beside the optimizer's own, which a scheduler has changed"
                              " before it was given; expected schedule= as a function that makes the scheduler, lambda"
                              " optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, ..)")
            lr, group["rate_factor"] = group["rate_factor"], group["rate_factor"] / rate
            if group["rate_factor"] > FACTOR_MAX:
                raise Refused(f"groups[{pattern!r}]'s lr must be at most {FACTOR_MAX:g} times the optimizer's, {rate:g}, is"
                              f" {lr:g}")
        groups.append(group)
    return groups


def section(optimizer: Any, schedule: Any, groups: Any, clip: "Optional[float]", steps: int, net: Any,
            check: "Callable[[Optimizer], Any]") -> "tuple[dict[str, Any], list[str]]":
    """The keys of [optimizer], and what people should know."""
    update = of_net(optimizer, net)
    rate = update.own_rate
    if update.torch is None and groups is not None:
        rate = float(update.optimizer.rate)
    keys = schedule_of(schedule, update, steps)
    if clip is not None:
        update.optimizer = replace(update.optimizer, clip=clip)
    check(update.optimizer)
    if max(update.factors, default=0) > FACTOR_MAX:
        raise Refused(f"lr of a group of torch's optimizer must be at most {FACTOR_MAX:g} times that of the first group which"
                      f" has one, is {max(update.factors):g} times that")
    said = [*update.groups(), *(groups_of(groups, rate) if groups is not None else [])]
    return {**update.optimizer._fields(), **keys, **({"groups": said} if said else {})}, update.remarks
