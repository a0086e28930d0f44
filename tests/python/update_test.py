"""torch's optimizers and schedulers, functions and groups, as a job file has them, or one line why it has not."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

import starling  # noqa: E402
import torch  # noqa: E402
from starling import update  # noqa: E402
from starling.script import Refused  # noqa: E402
from torch.optim import SGD, Adam, AdamW  # noqa: E402
from torch.optim.lr_scheduler import ChainedScheduler, LambdaLR, OneCycleLR  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))
        self.bias = torch.nn.Parameter(torch.zeros(1))


NET = Net()


def section(optimizer, schedule=None, groups=None, clip=None, steps=6):
    keys, remarks = update.section(optimizer, schedule, groups, clip, steps, NET, lambda _: None)
    return {**keys, "remarks": remarks}


def require_keys(got, **expected):
    for key, value in expected.items():
        require(got.get(key) == value, f"{key} is {got.get(key)}, expected {value}, in {got}")


def torchs_hyperparameters_are_the_jobs(place):
    got = section(lambda net: AdamW(net.parameters(), lr=3e-4))
    require_keys(got, kind="adamw", peak_rate=3e-4, beta1=0.9, beta2=0.999, epsilon=1e-8, clip=0.0, warmup_steps=0,
                 schedule="constant", groups=[{"tensors": ["*"], "weight_decay": 0.01}], remarks=[])
    got = section(AdamW(NET.parameters(), weight_decay=0), clip=1.0)
    require_keys(got, weight_decay=0.0, clip=1.0, groups=None)
    got = section(lambda net: SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True))
    require_keys(got, kind="sgd", peak_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.0)
    got = section(lambda net: SGD(net.parameters(), lr=0.1))
    require_keys(got, momentum=0.0, nesterov=False)
    got = section(lambda net: Adam(net.parameters(), betas=(0.8, 0.9), eps=1e-6))
    require_keys(got, kind="adam", beta1=0.8, beta2=0.9, epsilon=1e-6, weight_decay=None)
    got = section(lambda net: AdamW(net.parameters(), foreach=True, fused=False))
    require(len(got["remarks"]) == 1 and "foreach=True of torch.optim.AdamW changes nothing here" in got["remarks"][0],
            got["remarks"])
    require_keys(section(lambda net: starling.SGD(0.5)), peak_rate=0.5, schedule=None)
    for make in (lambda net: torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=0.25),
                 lambda net: torch.optim.Adagrad(net.parameters(), lr=1e-3, weight_decay=0.25),
                 lambda net: Adam(net.parameters(), weight_decay=0.25)):
        got = section(make)
        require_keys(got, kind="elementwise", peak_rate=1e-3, clip=0.0, weight_decay=0.0, beta1=None,
                     groups=[{"tensors": ["*"], "weight_decay": 0.25}])
        require("decay * w" in got["update"] and "w = new_w" in got["update"], got)


def its_groups_are_those_of_the_names(place):
    two = [{"params": [NET.weight], "weight_decay": 0.5}, {"params": [NET.bias], "lr": 1e-4, "weight_decay": 0}]
    require_keys(section(AdamW(two, lr=1e-3)), peak_rate=1e-3, groups=[
        {"tensors": ["weight"], "weight_decay": 0.5}, {"tensors": ["bias"], "rate_factor": 0.1}])
    got = section(AdamW(NET.parameters(), lr=1e-3), groups={"*": dict(weight_decay=0.5), "b*": dict(lr=2e-3)})
    require_keys(got, groups=[{"tensors": ["*"], "weight_decay": 0.01}, {"tensors": ["*"], "weight_decay": 0.5},
                              {"tensors": ["b*"], "rate_factor": 2.0}])
    require_keys(section(starling.SGD(lr=0.1), groups={"bias": dict(lr=0.0)}),
                 groups=[{"tensors": ["bias"], "rate_factor": 0.0}])


def schedules_have_names_or_are_sampled(place):
    of_ours = starling.AdamW(lr=1e-3, warmup=2, floor=0.5)
    require_keys(section(of_ours, "linear"), schedule="linear", warmup_steps=2, floor=0.5)
    require_keys(section(of_ours, "cosine"), schedule=None)
    require_keys(section(lambda net: SGD(net.parameters(), lr=0.1), "one-cycle", steps=10), schedule="one-cycle",
                 warmup_steps=3, floor=0.0)
    require_keys(section(of_ours, starling.Schedule("step", every=3, factor=0.5, warmup=0)), schedule="step",
                 step_every=3, step_factor=0.5, warmup_steps=0)
    require_keys(section(of_ours, "warm-up-stable-decay", steps=50), decay_steps=5)
    of_ours = starling.AdamW(lr=1e-3)
    require_keys(section(of_ours, lambda step: 0.1 / (step + 1)), schedule="sampled", peak_rate=0.1, warmup_steps=0,
                 fractions=[1.0, 1 / 2, 0.1 / 3 / 0.1, 1 / 4, 0.1 / 5 / 0.1, 0.1 / 6 / 0.1])
    rates = iter([0.5, 0.25, 0.125])
    require_keys(section(of_ours, lambda step: next(rates), steps=3), fractions=[1.0, 0.5, 0.25])  # asked once of each step
    require_keys(section(of_ours, lambda step: 0.25), schedule="constant", peak_rate=0.25)

    def halving(k):
        return 0.5 ** k

    fractions = [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]
    for ours in (starling.SGD(lr=0.5), lambda net: SGD(net.parameters(), lr=0.5)):
        require_keys(section(ours, lambda optimizer: LambdaLR(optimizer, halving)), schedule="sampled", peak_rate=0.5,
                     fractions=fractions)
    optimizer = SGD(NET.parameters(), lr=0.5)
    scheduler = LambdaLR(optimizer, halving)
    for _ in range(2):  # it is left as it was
        require_keys(section(optimizer, scheduler), peak_rate=0.5, fractions=fractions)
    rising = SGD([{"params": [NET.weight]}, {"params": [NET.bias], "lr": 0.1}], lr=1.0)
    require_keys(section(rising, LambdaLR(rising, lambda k: k / 5)), peak_rate=1.0,
                 fractions=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], groups=[{"tensors": ["bias"], "rate_factor": 0.1}])


def a_groups_rate_is_beside_the_one_that_the_optimizer_was_given(place):
    groups, made = {"b*": dict(lr=1e-3)}, []

    def one_cycle(optimizer):
        return OneCycleLR(optimizer, 3e-4, 6, cycle_momentum=False)

    def halving(optimizer):
        return LambdaLR(optimizer, lambda k: 0.5 ** (k + 1))

    def both(scheduler):
        def optimizer(net):
            one = AdamW(net.parameters(), lr=3e-4, weight_decay=0)
            made[:] = [scheduler(one)]
            return one
        return optimizer

    expected = [{"tensors": ["b*"], "rate_factor": 1e-3 / 3e-4}]
    optimizer = AdamW(NET.parameters(), lr=3e-4, weight_decay=0)
    for _ in range(2):  # it is left as it was, without a scheduler
        for schedule in (one_cycle, halving, "linear"):
            require_keys(section(optimizer, schedule, groups), groups=expected)
    optimizer = AdamW(NET.parameters(), lr=Written(3e-4), weight_decay=0)
    for _ in range(2):
        require_keys(section(optimizer, Writing, groups), peak_rate=1.5e-4, groups=expected)
    require_keys(section(both(halving), lambda _: made[0], groups), peak_rate=1.5e-4, groups=expected)
    require_keys(section(both(one_cycle), lambda _: made[0]), groups=None)
    refused(both(one_cycle), {"schedule": lambda _: made[0], "groups": groups}, "groups['b*']'s lr is a rate beside the"
            " optimizer's own, which a scheduler has changed before it was given")
    require_keys(section(both(halving), lambda step: 0.5), peak_rate=0.5)  # which says every rate
    for schedule in (None, "linear", starling.Schedule("cosine")):
        refused(both(halving), {"schedule": schedule}, "a scheduler is attached to the optimizer, which changes its rate,"
                " and is not given: schedule= takes it")


class Written:
    """In the place of a rate that is a tensor."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value


class Writing(LambdaLR):
    """It writes into a rate that is a tensor, as torch's own."""

    def __init__(self, optimizer):
        for group in optimizer.param_groups:
            group["initial_lr"] = float(group["lr"])
        super().__init__(optimizer, lambda k: 0.5 ** (k + 1))

    def _set(self):
        for group in self.optimizer.param_groups:
            group["lr"].value = group["initial_lr"] * self.lr_lambda(self.last_epoch)


class Cycling(LambdaLR):
    def step(self):
        super().step()
        self.optimizer.param_groups[0]["momentum"] = 0.5


class Decaying(LambdaLR):
    """It changes the weight decay once, as it is made."""

    def __init__(self, optimizer):
        super().__init__(optimizer, lambda k: 1.0)
        optimizer.param_groups[0]["weight_decay"] = 0.5


def hooked(when):
    optimizer = SGD(NET.parameters())
    getattr(optimizer, f"register_step_{when}_hook")(lambda *_: None)
    return optimizer


class Other(AdamW):
    pass


def plain(net):
    return SGD(net.parameters(), lr=0.1)


def stepped():
    optimizer = AdamW(NET.parameters())
    optimizer.state[NET.weight] = {"step": 1}
    return optimizer


def moved():
    scheduler = LambdaLR(SGD(NET.parameters()), lambda k: 1.0)
    scheduler.step()
    return scheduler


MOVED = moved()
# How an optimizer is given, further options, and the line.
WRONG = [
    (lambda net: AdamW(net.parameters(), amsgrad=True), {}, "torch.optim.AdamW's amsgrad must be False, is True"),
    (lambda net: AdamW(net.parameters(), maximize=True), {}, "torch.optim.AdamW's maximize must be False, is True"),
    (lambda net: SGD(net.parameters(), differentiable=True), {}, "torch.optim.SGD's differentiable must be False"),
    (lambda net: SGD(net.parameters(), momentum=0.9, dampening=0.1), {}, "torch.optim.SGD's dampening must be 0, is 0.1"),
    (lambda net: torch.optim.Rprop(net.parameters()), {}, "optimizer is a torch.optim.Rprop, whose update a job does not have;"),
    (lambda net: torch.optim.RMSprop(net.parameters(), momentum=0.9, centered=True), {}, "keeps three values for each parameter"),
    (lambda net: torch.optim.Adagrad([{"params": [net.weight], "eps": 1e-3}, {"params": [net.bias]}]), {},
     "torch.optim.Adagrad's eps differs between its groups"),
    (lambda net: AdamW(net.parameters(), lr=0), {}, "torch.optim.AdamW's lr must be a number above 0 and at most 1000, is 0"),
    (lambda net: AdamW(net.parameters(), lr="x"), {}, "torch.optim.AdamW's lr must be a number from 0, is x"),
    (lambda net: Other(net.parameters()), {}, ".Other, whose update a job does not have; expected AdamW, Adam, SGD, RMSprop"),
    (lambda net: AdamW([{"params": net.parameters(), "trust": 1}]), {}, "torch.optim.AdamW has trust, which a job's"),
    (lambda net: AdamW([net.weight]), {}, "parameter bias of the net is not in the torch.optim.AdamW, which would not train"),
    (lambda net: AdamW(Net().parameters()), {}, "has a parameter that the net of build() has not"),
    (lambda net: AdamW([{"params": [net.weight], "betas": (0.5, 0.9)}, {"params": [net.bias]}]), {},
     "torch.optim.AdamW's betas differs between its groups, is (0.5, 0.9) and (0.9, 0.999)"),
    (lambda params: AdamW(3), {}, "optimizer(net) has raised TypeError: 'int' object is not iterable; expected a function of"),
    (lambda net: 3, {}, "optimizer(net) must return an optimizer of torch or of starling, is a int"),
    (stepped(), {}, "the torch.optim.AdamW has made steps already, which the job would lose"),
    (plain, {"schedule": lambda step: -1.0}, "schedule(0) must be a rate from 0 to 1000, is -1.0"),
    (plain, {"schedule": lambda step: 0.0}, "schedule's rates must be above 0 and at most 1000 somewhere, are at most 0"),
    (plain, {"schedule": lambda step: 1 / (3 - step)}, "schedule(3) has raised ZeroDivisionError: division by zero"),
    (plain, {"schedule": lambda step: "x"}, "schedule(0) must be a rate from 0 to 1000, is 'x'"),
    (plain, {"schedule": lambda step: 0.1, "steps": 32769}, "schedule is sampled for at most 32768 steps, the job has 32769"),
    (plain, {"schedule": lambda optimizer: Cycling(optimizer, lambda k: 1.0)},
     "Cycling changes momentum, which is fixed in a job; expected cycle_momentum=False"),
    (plain, {"schedule": lambda optimizer: OneCycleLR(optimizer, 0.1, 6, True, 0.9, 0.9)},
     "OneCycleLR changes momentum, which is fixed in a job; expected cycle_momentum=False"),
    (starling.SGD(0.1), {"schedule": lambda optimizer: OneCycleLR(optimizer, 0.1, 6, True, 0.9, 0.9)},
     "OneCycleLR changes momentum, which is fixed in a job"),
    (plain, {"schedule": Decaying}, "Decaying changes weight_decay, which is fixed in a job"),
    (hooked("pre"), {}, "the torch.optim.SGD has a hook (register_step_pre_hook), but a job makes no step of torch's"),
    (hooked("post"), {}, "the torch.optim.SGD has a hook (register_step_post_hook), but a job makes no step of torch's"),
    (lambda net: SGD([net.weight, net.bias, net.weight]), {}, "parameter weight is in the torch.optim.SGD twice, which"),
    (starling.AdamW(warmup=5), {"schedule": lambda step: 0.1}, "optimizer's warmup=5 has no meaning beside a schedule that"),
    (starling.Adam(floor=0.0), {"schedule": lambda optimizer: LambdaLR(optimizer, lambda k: 1.0)},
     "optimizer's floor=0.0 has no meaning beside a schedule that says the rate of each step"),
    (plain, {"schedule": lambda _: LambdaLR(SGD(NET.parameters()), lambda k: 1.0)}, "schedule is a scheduler of another"),
    (starling.SGD(1e-9), {"groups": {"bias": dict(lr=1.0)}},
     "groups['bias']'s lr must be at most 1e+06 times the optimizer's, 1e-09, is 1"),
    (lambda net: SGD([{"params": [net.weight], "lr": 1e-9}, {"params": [net.bias], "lr": 1.0}]), {},
     "lr of a group of torch's optimizer must be at most 1e+06 times that of the first group which has one, is 1e+09 times"),
    (plain, {"schedule": LambdaLR(SGD(NET.parameters()), lambda k: 1.0)}, "schedule is a scheduler of another optimizer"),
    (MOVED.optimizer, {"schedule": MOVED}, "the LambdaLR has made 1 steps already"),
    (MOVED.optimizer, {"schedule": ChainedScheduler([MOVED])}, "the ChainedScheduler has made 1 steps already"),
]


def refused(optimizer, options, line):
    try:
        got = section(optimizer, **options)
    except Refused as why:
        require(line in str(why) and "\n" not in str(why), f"{line}: {why}")
    else:
        require(False, f"{line}: {got}")


def what_a_job_cannot_have_is_named(place):
    for optimizer, options, line in WRONG:
        refused(optimizer, options, line)


main(torchs_hyperparameters_are_the_jobs, its_groups_are_those_of_the_names, schedules_have_names_or_are_sampled,
     a_groups_rate_is_beside_the_one_that_the_optimizer_was_given, what_a_job_cannot_have_is_named)
