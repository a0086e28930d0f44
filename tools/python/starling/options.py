"""What train() and Job are told: looked at in one place, before anything begins, and made the text of a job file.
Needs no torch."""

from __future__ import annotations

import json
import math
import operator
import os
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence, Set

from . import torch_updates, update
from .best import KEEP_MAX
from .optimizers import OPTIMIZERS, SGD
from .sampling import Sampler
from .script import Refused, Script
from .validation import EVERY, Validation

# What job files and the command allow (core/job/job_reader.cpp, tools/starling/main.cpp).
_WHOLE = {"steps": (1, 2**32 - 1), "micro_batches": (1, 4096), "batch_size": (1, 65536), "workers": (1, 64),
          "seed": (0, 2**63 - 1), "replicas": (0, 16), "checkpoint_every": (1, 2**32 - 1),
          "checkpoint_every_seconds": (1, 1000000), "keep": (1, 1000), "lease_ms": (10, 60000),
          "threads": (1, 256), "recheck": (0, 1000000), "num_workers": (0, 256), "shards": (1, 1000000),
          "local_steps": (1, 4096), "grid_bits": (4, 15)}
_UNSAID = ("steps", "batch_size", "num_workers", "shards", "checkpoint_every_seconds", "local_steps", "grid_bits")  # may be None
_WORDS = {"isa": ("auto", "reference", "avx2", "avx512", "cuda"), "on_mismatch": ("warn", "stop")}
_PATHS = ("out", "checkpoint")
_METRICS_MAX, _METRIC_BYTES_MAX = 8, 64
_BELOW_ONE = 0.999999
_OF_OPTIMIZERS = {"rate": (0.0, 1000.0), "floor": (0.0, 1.0), "epsilon": (0.0, 1.0), "weight_decay": (0.0, 1000.0),
                  "clip": (0.0, 1e30), "momentum": (0.0, _BELOW_ONE)}
_NEEDED = ("build", "loss")  # of the functions; the others may be left out
_ABOVE_ZERO = ("rate", "epsilon")


def _shown(value: Any) -> str:
    try:
        text = f"the class {value.__qualname__}" if isinstance(value, type) else " ".join(repr(value).split())
    except Exception:  # the value's own __repr__ may raise anything
        text = f"a {type(value).__name__}"
    return text if len(text) <= 64 else text[:61] + "..."


def _wrong(name: str, expected: str, value: Any) -> Refused:
    return Refused(f"{name} must be {expected}, is {_shown(value)}")


def _whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except Exception:  # the value's own __index__ may raise anything
        number = least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise _wrong(name, f"a whole number from {least} to {most}", value)
    return number


def _number(name: str, value: Any, least: float, most: float, above: bool = False) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except Exception:  # the value's own __float__ may raise anything
        number = math.nan
    if not least <= number <= most or above and number == least:
        raise _wrong(name, f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'}"
                           f" {most:g}", value)
    return number


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "True or False", value)
    return value


def _text(name: str, value: str) -> str:
    """What a process can be told as an argument, and a job file has."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(name, "UTF-8", value) from None
    if "\0" in value:
        raise _wrong(name, "without a character 0", value)
    return value


def _texts(name: str, value: Any, what: str) -> "list[str]":
    # A set has another order in each process.
    if isinstance(value, (str, bytes, Mapping, Set)) or not hasattr(value, "__iter__"):
        raise _wrong(name, f"a list of {what}", value)
    words = [os.fspath(w) if isinstance(w, os.PathLike) else str(w) if isinstance(w, (int, float)) else w for w in value]
    if not all(isinstance(word, str) for word in words):
        raise _wrong(name, f"a list of {what}", value)
    return [_text(name, word) for word in words]


def _optimizer(value: Any, steps: int, argument: str = "optimizer") -> "dict[str, Any]":
    """As a job file has it."""
    if not isinstance(value, OPTIMIZERS):
        kind = value if isinstance(value, type) else type(value)
        own = f"{kind.__module__}.{kind.__qualname__}"
        torchs = kind.__module__.startswith("torch.")
        like = kind.__name__ if kind.__name__ in ("AdamW", "Adam", "SGD", "Elementwise") else ""
        made = isinstance(value, type) and issubclass(value, OPTIMIZERS)
        cure = f": starling.{like}(..) makes one" if like and (made or torchs) else ""
        given = f"the class {own}" if isinstance(value, type) else f"a {own}" if torchs else _shown(value)
        if torchs and isinstance(value, type):
            known = like or kind.__name__ in torch_updates.NAMES
            cure = f": lambda net: torch.optim.{kind.__name__}(net.parameters()) makes one" if known else ""
        torchs_too = "" if argument == "outer" else ", or one of torch as lambda net: torch.optim.AdamW(net.parameters())"
        raise Refused(f"{argument} must be starling.AdamW(..), Adam(..), SGD(..) or Elementwise(..), whose state the workers"
                      f" share{torchs_too}; is {given}{cure}")
    for one in fields(value):
        name, given = f"{argument}'s {one.name}", getattr(value, one.name)
        if one.name == "update":
            if not callable(given):
                raise _wrong(name, "a function", given)
        elif one.name == "moments":
            _whole(name, given, 1, 2)
        elif one.name == "nesterov":
            _flag(name, given)
        elif one.name == "betas":
            if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) != 2:
                raise _wrong(name, "two numbers", given)
            for beta in given:
                _number(name, beta, 0.0, _BELOW_ONE)
        elif one.name == "warmup":
            if _whole(name, given, 0, 2**32 - 1) >= steps:
                raise _wrong(name, f"below the job's {steps} steps", given)
        else:
            _number(name, given, *_OF_OPTIMIZERS[one.name], above=one.name in _ABOVE_ZERO)
    return value._fields()


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(v)}" for key, v in value.items()) + " }"
    if isinstance(value, float):
        text = repr(value)
        return text if any(c in text for c in ".en") else text + ".0"
    if isinstance(value, (int, str)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "[" + ", ".join(_toml(v) for v in value) + "]"


def _names(name: str, value: Any) -> "list[str]":
    """Of metrics."""
    names = _texts(name, value, "names")
    if len(names) > _METRICS_MAX or not all(0 < len(m.encode()) <= _METRIC_BYTES_MAX for m in names):
        raise _wrong(name, f"at most {_METRICS_MAX} names of 1 to {_METRIC_BYTES_MAX} bytes", names)
    if len(set(names)) != len(names):
        raise _wrong(name, "names that differ", names)
    return names


def _job_text(sections: "Mapping[str, Mapping[str, Any]]") -> str:
    lines = []
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in keys.items()), ""]
    return "\n".join(lines)


def _chosen(**keys: Any) -> "dict[str, Any]":
    return {key: value for key, value in keys.items() if value}


def name_of(script: Script) -> str:
    """Of its job."""
    stem = script.module.removesuffix(".__main__").rpartition(".")[2] or Path(script.path).stem
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in stem)[:64]


@dataclass
class Options:
    """What was said of a job, by the names of the arguments."""

    steps: Optional[int]
    micro_batches: int
    batch_size: Optional[int]  # None: what the data say
    optimizer: Any
    workers: int
    out: Optional[str]
    seed: int
    replicas: int
    checkpoint: Optional[str]
    checkpoint_every: int
    keep: int
    resume: bool
    lease_ms: int
    metrics: "Sequence[str]"
    isa: str
    threads: int
    recheck: int
    on_mismatch: str
    command: "Sequence[str]"
    epochs: Optional[float] = None  # instead of steps
    validation: Optional[Validation] = None
    held_out: int = 0  # samples of it, when it was opened
    sampler: "Optional[Sampler]" = None  # None: a pass has each sample once, in a drawn order
    schedule: Any = None
    groups: Any = None
    clip: Optional[float] = None
    num_workers: Optional[int] = None
    shards: Optional[int] = None  # None: it has no IterableDataset
    checkpoint_every_seconds: Optional[int] = None  # None: by steps alone
    local_steps: Optional[int] = None  # None: a micro-batch is one pass, and `optimizer` that of the job's steps
    outer: Any = None
    grid_bits: Optional[int] = None  # None: as many as there are
    updates: "Mapping[str, Any]" = field(default_factory=dict)  # [optimizer] of the job file, or [local], by settle()
    remarks: "Sequence[str]" = ()  # of settle(), for people

    def check(self, init: Any, **calls: "Optional[Callable[..., Any]]") -> None:
        """Raises Refused, with the argument's name, where something cannot be; what is meant gets its plain type."""
        for name, call in calls.items():
            if not callable(call) and (call is not None or name in _NEEDED):
                raise _wrong(name, "a function", call)
        if init is not None and not isinstance(init, Mapping):
            raise _wrong("init", "a state_dict", init)
        if (self.steps is None) == (self.epochs is None):
            given = "neither steps= nor epochs= is" if self.steps is None else "both steps= and epochs= are"
            raise Refused(f"{given} given, expected one of them")
        if self.epochs is not None:
            self.epochs = _number("epochs", self.epochs, 0.0, 1e9, above=True)
        for name, (least, most) in _WHOLE.items():
            if name in _UNSAID and getattr(self, name) is None:
                continue
            setattr(self, name, _whole(name, getattr(self, name), least, most))
        for name, words in _WORDS.items():
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in words:
                raise _wrong(name, f"one of {', '.join(words)}", getattr(self, name))
        for name in _PATHS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, (str, os.PathLike)):
                raise _wrong(name, "a folder", value)
            setattr(self, name, None if value is None else _text(name, os.fsdecode(value)) or None)
        self._check_local()
        self._check_shards(calls)
        self.resume = _flag("resume", self.resume)
        self.metrics = _names("metrics", self.metrics)
        self._check_validation()
        self.command = _texts("command", self.command, "words, as (\"--coordinators\", \"3\")")
        steps = self.steps * self.passes if self.steps is not None else _WHOLE["steps"][1]
        if self.clip is not None:
            self.clip = _number("clip", self.clip, *_OF_OPTIMIZERS["clip"])
        if not update.comes_later(self.optimizer):
            _optimizer(self.optimizer, steps)
        update.look_at(self.schedule, self.groups, steps)

    @property
    def passes(self) -> int:
        """Of a micro-batch, each of batch_size samples and followed by a local step where there are several."""
        return 1 if self.local_steps is None else self.local_steps

    def _check_local(self) -> None:
        if self.local_steps is None:
            if self.outer is not None:
                raise Refused("outer= is the optimizer of steps that are made of local ones: it goes with local_steps=")
            return
        self.outer = SGD(rate=0.7, momentum=0.9, nesterov=True, floor=1.0, weight_decay=0.0, clip=0.0) \
            if self.outer is None else self.outer
        _optimizer(self.outer, self.steps or _WHOLE["steps"][1], "outer")
        if self.batch_size is not None and self.batch_size * self.local_steps > _WHOLE["batch_size"][1]:
            raise Refused(f"local_steps={self.local_steps} of batch_size={self.batch_size} are a micro-batch of"
                          f" {self.batch_size * self.local_steps} samples, expected at most {_WHOLE['batch_size'][1]}")
        if self.micro_batches * self.local_steps > 1 << 20:
            raise Refused(f"local_steps={self.local_steps} of micro_batches={self.micro_batches} are"
                          f" {self.micro_batches * self.local_steps} passes of a step, expected at most {1 << 20}")
        if self.steps is not None and self.steps * self.local_steps > _WHOLE["steps"][1]:
            raise Refused(f"local_steps={self.local_steps} in steps={self.steps} are {self.steps * self.local_steps}, expected at"
                          f" most {_WHOLE['steps'][1]}")

    def _check_shards(self, calls: "Mapping[str, Optional[Callable[..., Any]]]") -> None:
        if self.shards is None:
            return
        if self.shards < self.micro_batches * self.passes:
            local = "" if self.local_steps is None else f" of local_steps={self.local_steps}"
            raise Refused(f"shards={self.shards} and micro_batches={self.micro_batches}{local}: each"
                          f" {'pass' if local else 'micro-batch'} of a step reads shards of its own; expected as many shards at"
                          " least")
        if self.epochs is not None or calls.get("on_epoch") is not None:
            raise Refused(f"{'on_epoch' if self.epochs is None else 'epochs'}= with shards=: passes over an IterableDataset have"
                          f" no length that is known beforehand; expected {'on_step' if self.epochs is None else 'steps'}=")

    def _check_validation(self) -> None:
        if self.validation is None:
            return
        self.validation.check()
        if not self.validation.given():
            self.validation = None
            return
        every = EVERY if self.validation.every is None else self.validation.every
        self.validation.every = _whole("evaluate_every", every, *_WHOLE["steps"])
        named = self.validation.metrics
        self.validation.metrics = self.metrics if named is None else _names("evaluate_metrics", named)
        if "loss" in self.validation.metrics:
            raise _wrong("evaluate_metrics", "other names than that of the loss", self.validation.metrics)

    def evaluated(self) -> "list[str]":
        """Names of what an evaluation measures beside the loss."""
        return [] if self.validation is None else list(self.validation.metrics or ())

    def evaluates_every(self) -> int:
        """0: it has no held-out data."""
        return 0 if self.validation is None else int(self.validation.every or EVERY)

    def scalars_evaluated(self) -> "list[str]":
        """Names of what log= writes of an evaluation."""
        return [] if self.validation is None else [f"validation.{name}" for name in ("loss", *self.evaluated())]

    def count(self, samples: int) -> Optional[str]:
        """Makes epochs steps, of data with so many samples: as many as hold them, so that each sample is taken that
        often at least. Returns a line that says so. Raises Refused."""
        if self.epochs is None:
            return None
        assert self.batch_size is not None
        per_step = self.micro_batches * self.passes * self.batch_size
        steps = math.ceil(Fraction(repr(self.epochs)) * samples / per_step)
        if steps > _WHOLE["steps"][1]:
            raise Refused(f"epochs={self.epochs:g} of {samples} samples are {steps} steps, expected at most"
                          f" {_WHOLE['steps'][1]}")
        self.steps = steps
        self._check_local()
        if not update.comes_later(self.optimizer):
            _optimizer(self.optimizer, steps * self.passes)
        return (f"epochs={self.epochs:g} of {samples} samples: {steps} steps of {per_step}, which are"
                f" {steps * per_step / samples:.7g} epochs")

    def settle(self, net: Any) -> None:
        """Says how the net's parameters are updated. Raises Refused for an optimizer, schedule or groups that a job
        cannot have, and for a warm-up that is longer than the job."""
        from . import module
        from .command import has_gpu

        assert self.steps is not None  # counted
        steps = self.steps * self.passes
        try:
            self.updates, self.remarks = update.section(self.optimizer, self.schedule, self.groups, self.clip, steps, net,
                                                        lambda one: _optimizer(one, steps))
        except Refused as why:
            local = f" (of local steps there are {self.steps} times {self.local_steps})"
            raise Refused(f"{why}{'' if self.local_steps is None else local}") from None
        kinds = {self.updates["kind"]} | ({self.outer._fields()["kind"]} if self.local_steps is not None else set())
        if self.isa == "auto" and kinds <= {"adamw", "adam", "sgd"} and module.on_gpu(net) and has_gpu():
            self.isa = "cuda"  # the same digest, and nothing that grows with the net passes the host's memory

    def plain(self) -> "dict[str, Any]":
        """What people compare runs by, after settle()."""
        optimizer = {f"optimizer.{key}": _toml(value) if key == "groups" else value
                     for key, value in self.updates.items() if key != "fractions"}
        local = {} if self.local_steps is None else \
            {"local_steps": self.local_steps} | {f"outer.{key}": value for key, value in self.outer._fields().items()}
        return {name: getattr(self, name) for name in ("steps", "micro_batches", "batch_size", "seed", "workers")} | optimizer | local

    def words(self, end: Optional[int]) -> "list[str]":
        """Further ones of the command line; where the job ends after so many steps none says another number."""
        words = list(self.command)
        while end is not None and "--steps" in words:
            at = words.index("--steps")
            del words[at:at + 2]
        return words if end is None else [word for word in words if not word.startswith("--steps=")]

    def samples_of(self, data: Any) -> int:
        """Of a pass over the data."""
        return len(data) if self.sampler is None else self.sampler.length

    def job(self, net: Any, data: Any, script: Script, end: Optional[int] = None, tended: bool = False) -> str:
        """The text of a job file, after settle(). end: it ends after so many steps, and the rate's schedule stays that
        of `steps`. tended: this process removes checkpoints."""
        from . import module, statistics, streams

        streamed = isinstance(data, streams.Streams)
        patience_s = data.patience_s if streamed else 0
        half = {"precision": "bf16"} if module.precision(net) == "bf16" else {}
        moving = [name for name, _ in statistics.of(net)]
        sections: "dict[str, dict[str, Any]]" = {
            "job": {"name": name_of(script), "seed": self.seed, "steps": self.steps if end is None else end,
                    "micro_batches": self.micro_batches, "sequences": self.batch_size and self.batch_size * self.passes,
                    "replicas": self.replicas, "isa": self.isa, **half},
            "model": {"kind": "python", "script": script.path, "samples": self.samples_of(data),
                      "tensors": module.tensor_texts(net),
                      **_chosen(own_order=streamed or self.sampler is not None, patience_s=patience_s,
                                metrics=list(self.metrics), module=script.module, arguments=script.arguments, text=script.text, call=script.call, at=script.at, earlier=script.earlier,
                                started=script.started)},
            **self._optimizers(moving, end),
            **({} if self.grid_bits is None else {"numbers": {"grid_bits": self.grid_bits, "rounding": "stochastic"}}),
            # Importing what a script needs takes workers of one machine their time.
            "elastic": {"lease_ms": self.lease_ms, "start_timeout_ms": 120000, "recheck": self.recheck,
                        "on_mismatch": self.on_mismatch},
        }
        if self.validation is not None:
            assert self.batch_size is not None
            sections["evaluate"] = self.validation.section(self.held_out, self.batch_size)
        if self.checkpoint:
            # An address is refused by the program, which has to see it as it was given.
            folder = self.checkpoint if "://" in self.checkpoint else os.path.abspath(self.checkpoint)
            sections["checkpoint"] = {"dir": folder, "every": self.checkpoint_every,
                                      **_chosen(every_seconds=self.checkpoint_every_seconds),
                                      **({"keep": KEEP_MAX, "tended": True} if tended else {"keep": self.keep})}
        return _job_text(sections)

    def _optimizers(self, moving: "Sequence[str]", end: Optional[int]) -> "dict[str, dict[str, Any]]":
        """Sections. moving: names of statistics."""
        assert self.steps is not None
        statistics = [{"tensors": list(moving), "statistics": True}] if moving else []
        length = {} if end is None else {"schedule_steps": self.steps}
        if self.local_steps is None:
            return {"optimizer": {**self.updates, **_chosen(groups=self.updates.get("groups", []) + statistics), **length}}
        inner = {} if end is None else {"schedule_steps": self.steps * self.local_steps}
        return {"optimizer": {**self.outer._fields(), **_chosen(groups=statistics), **length},
                "local": {"steps": self.local_steps, **self.updates, **inner}}
