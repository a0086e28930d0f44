"""What train() and Job are told is looked at before anything begins: one line, by the argument's name, exit code 2."""
import contextlib
import io
import os
import sys
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, environment, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

import starling  # noqa: E402


def never(*_):
    raise AssertionError("something has begun")


class Theirs:
    """As an optimizer of torch."""

    def __init__(self, module, name):
        self.kind = type(name, (), {"__module__": module})


class Raising:
    def __index__(self):
        raise RuntimeError("no index")

    def __float__(self):
        raise RuntimeError("no number")

    def __repr__(self):
        raise RuntimeError("no text")


ADAM = Theirs("torch.optim.adam", "Adam").kind
WRONG = [
    ({"batch_size": 0}, "batch_size must be a whole number from 1 to 65536, is 0"),
    ({"steps": 10.0}, "steps must be a whole number from 1 to 4294967295, is 10.0"),
    ({"steps": None}, "neither steps= nor epochs= is given, expected one of them"),
    ({"epochs": 1}, "both steps= and epochs= are given, expected one of them"),
    ({"steps": None, "epochs": 0}, "epochs must be a number above 0 and at most 1e+09, is 0"),
    ({"steps": None, "epochs": "3"}, "epochs must be a number above 0 and at most 1e+09, is '3'"),
    ({"steps": "10"}, "steps must be a whole number from 1 to 4294967295, is '10'"),
    ({"micro_batches": True}, "micro_batches must be a whole number from 1 to 4096, is True"),
    ({"workers": 65}, "workers must be a whole number from 1 to 64, is 65"),
    ({"threads": 0}, "threads must be a whole number from 1 to 256, is 0"),
    ({"seed": -1}, "seed must be a whole number from 0 to"),
    ({"replicas": None}, "replicas must be a whole number from 0 to 16, is None"),
    ({"lease_ms": 1}, "lease_ms must be a whole number from 10 to 60000, is 1"),
    ({"recheck": -1}, "recheck must be a whole number from 0 to 1000000, is -1"),
    ({"checkpoint_every": 0}, "checkpoint_every must be a whole number from 1 to"),
    ({"checkpoint_every_seconds": 0}, "checkpoint_every_seconds must be a whole number from 1 to 1000000, is 0"),
    ({"keep": 0}, "keep must be a whole number from 1 to 1000, is 0"),
    ({"keep": 1001}, "keep must be a whole number from 1 to 1000, is 1001"),
    ({"isa": "sse"}, "isa must be one of auto, reference, avx2, avx512, cuda, is 'sse'"),
    ({"on_mismatch": True}, "on_mismatch must be one of warn, stop, is True"),
    ({"resume": "yes"}, "resume must be True or False, is 'yes'"),
    ({"out": 3}, "out must be a folder, is 3"),
    ({"checkpoint": ["c"]}, "checkpoint must be a folder, is ['c']"),
    ({"metrics": "accuracy"}, "metrics must be a list of names, is 'accuracy'"),
    ({"metrics": [1.5, None]}, "metrics must be a list of names, is [1.5, None]"),
    ({"metrics": list("123456789")}, "metrics must be at most 8 names"),
    ({"metrics": {"a", "b"}}, "metrics must be a list of names, is {"),  # in another order in each process
    ({"metrics": ["a", "a"]}, "metrics must be names that differ, is ['a', 'a']"),
    ({"metrics": ["\ud800"]}, "metrics must be UTF-8, is '\\ud800'"),
    ({"out": "a\0b"}, "out must be without a character 0, is 'a\\x00b'"),
    ({"checkpoint": "\ud800"}, "checkpoint must be UTF-8, is '\\ud800'"),
    ({"command": ["a\0"]}, "command must be without a character 0"),
    ({"isa": ["auto"]}, "isa must be one of auto, reference, avx2, avx512, cuda, is ['auto']"),
    ({"workers": Raising()}, "workers must be a whole number from 1 to 64, is a Raising"),
    ({"optimizer": starling.SGD(Raising())}, "optimizer's rate must be a number above 0 and at most 1000, is a Raising"),
    ({"optimizer": starling.Adam(betas={0.9: 1, 0.99: 2})}, "optimizer's betas must be two numbers, is {0.9"),
    ({"optimizer": starling.Adam(betas={0.9, 0.99})}, "optimizer's betas must be two numbers, is {"),
    ({"log": "tensorbord"}, 'log must be "tensorboard", "wandb", "csv", a function, or a list of these, is \'tensorbord\''),
    ({"log": "tensorboard"}, 'log="tensorboard" needs the package tensorboard: pip install tensorboard ('),  # the stand-in
    ({"command": "--coordinators 3"}, "command must be a list of words"),
    ({"init": [1]}, "init must be a state_dict, is [1]"),
    ({"optimizer": ADAM}, "is the class torch.optim.adam.Adam: lambda net: torch.optim.Adam(net.parameters()) makes one"),
    ({"optimizer": ADAM()}, "is a torch.optim.adam.Adam: starling.Adam(..) makes one"),
    ({"optimizer": Theirs("torch.optim.rmsprop", "RMSprop").kind}, "is the class torch.optim.rmsprop.RMSprop: lambda net: torch"),
    ({"optimizer": Theirs("torch.optim.rprop", "Rprop").kind}, "is the class torch.optim.rprop.Rprop; "),
    ({"optimizer": starling.SGD}, "SGD: starling.SGD(..) makes one"),
    ({"optimizer": "sgd"}, "optimizer must be starling.AdamW(..), Adam(..), SGD(..) or Elementwise(..), whose state"),
    ({"optimizer": None}, "workers share, or one of torch as lambda net: torch.optim.AdamW(net.parameters()); is None"),
    ({"optimizer": starling.SGD(lr=-1)}, "optimizer's rate must be a number above 0 and at most 1000, is -1"),
    ({"optimizer": starling.Adam(eps="x")}, "optimizer's epsilon must be a number above 0 and at most 1, is 'x'"),
    ({"outer": starling.SGD()}, "outer= is the optimizer of steps that are made of local ones: it goes with local_steps="),
    ({"grid_bits": 16}, "grid_bits must be a whole number from 4 to 15, is 16"),
    ({"local_steps": 0}, "local_steps must be a whole number from 1 to 4096, is 0"),
    ({"local_steps": 4, "outer": starling.SGD(rate=0)}, "outer's rate must be a number above 0 and at most 1000, is 0"),
    ({"local_steps": 4, "outer": ADAM()}, "outer must be starling.AdamW(..)"),
    ({"local_steps": 1024, "batch_size": 128}, "local_steps=1024 of batch_size=128 are a micro-batch of 131072 samples, expected at"),
    ({"local_steps": 4096, "micro_batches": 512}, "local_steps=4096 of micro_batches=512 are 2097152 passes of a step"),
    ({"local_steps": 4096, "steps": 2**31}, "local_steps=4096 in steps=2147483648 are"),
    ({"local_steps": 4, "shards": 31}, "shards=31 and micro_batches=8 of local_steps=4: each pass of a step reads shards of its own"),
    ({"local_steps": 4, "optimizer": starling.AdamW(warmup=40)}, "optimizer's warmup must be below the job's 40 steps, is 40"),
    ({"clip": "1"}, "clip must be a number from 0 to 1e+30, is '1'"),
    ({"schedule": "linea"}, "a scheduler of torch or a function of the step, is 'linea'"),
    ({"schedule": 0.1}, "schedule must be one of constant, linear, cosine, step, one-cycle, warm-up-stable-decay, inverse"),
    ({"schedule": "step"}, 'schedule "step" wants the steps between two falls: starling.Schedule("step", every=100)'),
    ({"schedule": starling.Schedule("step", every=0)}, "schedule's every must be a whole number from 1 to 4294967295, is 0"),
    ({"schedule": starling.Schedule("linear", start=0.1)}, "schedule's start does not apply to 'linear', only to 'one-cycle'"),
    ({"schedule": starling.Schedule("one-cycle", start=2)}, "schedule's start must be a number from 0 to 1, is 2"),
    ({"groups": ["*.bias"]}, "groups must be a dict of names or patterns of parameters, as {"),
    ({"groups": {"*": {}}}, "groups['*'] must be a dict with lr, weight_decay or both, is {}"),
    ({"groups": {"*": {"momentum": 0}}}, "groups['*'] must be a dict with lr, weight_decay or both, is {'momentum': 0}"),
    ({"groups": {"*": {"lr": -1}}}, "groups['*']'s lr must be a number from 0 to 1000, is -1"),
    ({"groups": {3: {"lr": 1}}}, "groups must have names or patterns of parameters, has 3"),
    ({"optimizer": starling.SGD(-1.0)}, "optimizer's rate must be a number above 0 and at most 1000, is -1.0"),
    ({"optimizer": starling.SGD("1")}, "optimizer's rate must be a number above 0 and at most 1000, is '1'"),
    ({"optimizer": starling.SGD(momentum=1)}, "optimizer's momentum must be a number from 0 to 0.999999, is 1"),
    ({"optimizer": starling.SGD(nesterov=1)}, "optimizer's nesterov must be True or False, is 1"),
    ({"optimizer": starling.Adam(betas=0.9)}, "optimizer's betas must be two numbers, is 0.9"),
    ({"optimizer": starling.Adam(betas=(0.9, 1.5))}, "optimizer's betas must be a number from 0 to 0.999999, is 1.5"),
    ({"optimizer": starling.AdamW(warmup=10)}, "optimizer's warmup must be below the job's 10 steps, is 10"),
    ({"optimizer": starling.AdamW(epsilon=0)}, "optimizer's epsilon must be a number above 0 and at most 1, is 0"),
    ({"optimizer": starling.AdamW(clip=float("nan"))}, "optimizer's clip must be a number from 0 to 1e+30, is nan"),
]


def _said(begin):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            begin()
    except starling.Failed as failed:
        require(failed.code == 2, f"exit code {failed.code}")
        return said.getvalue()
    raise AssertionError("it has begun")


def wrong_arguments_are_named_before_anything_begins(place):
    for options, line in WRONG:
        options = {"steps": 10, **options}
        for begin in (lambda: starling.train(never, never, **options), lambda: list(starling.Job(never, **options))):
            said = _said(begin)
            require(said.startswith("starling: ") and said.count("\n") == 1 and line in said, f"{line}: {said}")
            require(said.endswith(f"; {os.path.abspath(__file__)}\n"), said)


def what_is_no_function_is_named(place):
    require("build must be a function, is 3" in _said(lambda: starling.train(3, never, steps=1)), "build")
    require("loss must be a function, is 'mse'" in _said(lambda: starling.train(never, "mse", steps=1)), "loss")
    require("loss must be a function, is None" in _said(lambda: starling.train(never, None, steps=1)), "no loss")
    for name in "collate", "evaluate", "on_step", "on_epoch", "on_checkpoint", "stop":
        said = _said(lambda: starling.train(never, never, steps=1, **{name: 5}))
        require(f"{name} must be a function, is 5" in said, said)


def a_script_that_a_launcher_starts_many_times_is_refused(place):
    with environment(WORLD_SIZE="4", RANK="2"):
        said = _said(lambda: starling.train(never, never, steps=10))
    require("the script was launched as 4 processes (WORLD_SIZE in the environment)" in said and "workers=4" in said, said)


def what_is_meant_gets_its_plain_type(place):
    from starling.options import Options

    class Number:
        def __index__(self):
            return 7

    options = Options(Number(), 1, 1, starling.AdamW(1, 0), 1, Path("out"), 1, 2, "", 100, 2, False, 1000, ("a",), "auto", 1,
                      256, "warn", ["--steps", 120, Path("x")])
    options.check(None)
    require((options.steps, options.out, options.checkpoint) == (7, "out", None), f"{options}")
    require(type(options.steps) is int and options.command == ["--steps", "120", "x"], f"{options}")


def a_checkpoint_has_its_folder_and_how_many_stay(place):
    import torch

    from starling.options import Options
    from starling.script import Script

    net = torch.nn.Module()
    net.weight = torch.nn.Parameter(torch.zeros(4))
    for folder in "c", "":
        options = Options(10, 1, 1, starling.AdamW(1, 0), 1, None, 1, 2, folder, 50, 7, False, 1000, (), "auto", 1, 256,
                          "warn", ())
        options.check(None)
        text = options.job(net, [0], Script("/train.py"))
        options.checkpoint_every_seconds = 600
        require(("every_seconds = 600\n" in options.job(net, [0], Script("/train.py"))) == bool(folder), "by time, too")
        section = f'[checkpoint]\ndir = "{os.path.abspath("c")}"\nevery = 50\nkeep = 7\n'
        require((section in text) == bool(folder) and ("keep" in text) == bool(folder), text)


def epochs_are_as_many_steps_as_hold_them(place):
    from starling.options import Options
    from starling.script import Refused

    def counted(epochs, samples, warmup=0):
        options = Options(None, 4, 16, starling.AdamW(1, warmup), 1, None, 1, 2, "", 100, 2, False, 1000, (), "auto", 1, 256,
                          "warn", (), epochs)
        options.check(None)
        line = options.count(samples)
        return options.steps, line

    for epochs, samples, steps in ((1, 640, 10), (1, 641, 11), (3, 100, 5), (0.1, 6400, 10), (2.5, 64, 3), (1e-6, 5, 1)):
        require(counted(epochs, samples)[0] == steps, f"{epochs} of {samples}: {counted(epochs, samples)}")
    require(counted(3, 100)[1] == "epochs=3 of 100 samples: 5 steps of 64, which are 3.2 epochs", counted(3, 100)[1])
    for arguments, line in (((1, 640, 10), "warmup must be below the job's 10 steps, is 10"),
                            ((1e9, 2**40), "steps, expected at most 4294967295")):
        try:
            raise AssertionError(f"{counted(*arguments)}")
        except Refused as why:
            require(line in str(why), str(why))


main(epochs_are_as_many_steps_as_hold_them, wrong_arguments_are_named_before_anything_begins, what_is_no_function_is_named,
     a_script_that_a_launcher_starts_many_times_is_refused, what_is_meant_gets_its_plain_type,
     a_checkpoint_has_its_folder_and_how_many_stay)
