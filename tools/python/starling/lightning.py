"""Lightning's Trainer.fit() as a job of Starling's: from starling.lightning import Trainer.

A script is run by every process of the job, so it makes the same module, loaders and Trainer everywhere, and what follows
fit() happens only in the process that a person has started. A step is `accumulate_grad_batches` micro-batches of the
loader's `batch_size` samples, whatever the number of workers."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import math
import os
import sys
from typing import Any, Callable, Mapping, Optional

import torch

from . import child, job, update
from .away import Away, outline
from .calls import Failed, Trained
from .optimizers import AdamW
from .records import Course, history
from .script import Refused, of_main

# What a Trainer is given that changes nothing of what is trained, or is as a job has it.
_HARMLESS = {"enable_progress_bar", "enable_model_summary", "enable_checkpointing", "log_every_n_steps", "deterministic",
             "num_sanity_val_steps", "inference_mode", "barebones", "limit_test_batches", "limit_predict_batches", "benchmark",
             "use_distributed_sampler"}
_MIXED = ("bf16", "bf16-mixed")  # autocast around a step
_ON_GPU = ("gpu", "cuda")
_AS_HERE = {"accelerator": ("auto", "cpu", *_ON_GPU), "devices": ("auto", 1), "strategy": ("auto",), "precision": (None, 32, "32", "32-true", *_MIXED),
            "gradient_clip_algorithm": (None, "norm"), "val_check_interval": (None, 1.0), "num_nodes": (1,),
            "check_val_every_n_epoch": (1,), "logger": (None, True, False), "limit_train_batches": (None, 1.0),
            "limit_val_batches": (None, 1.0), "fast_dev_run": (False,), "overfit_batches": (0.0,), "min_epochs": (None,),
            "min_steps": (None,), "max_time": (None,), "profiler": (None,), "plugins": (None,), "detect_anomaly": (False,),
            "sync_batchnorm": (False,), "reload_dataloaders_every_n_epochs": (0,)}
# Hooks of a module, beside those that begin with on_, which no process would call.
_NOT_OWN = ("backward", "optimizer_step", "optimizer_zero_grad", "lr_scheduler_step", "configure_gradient_clipping", "configure_model",
            "configure_callbacks", "configure_sharded_model", "transfer_batch_to_device", "training_epoch_end",
            "validation_epoch_end")


# Of callbacks: what is called.
_CALLED = ("on_fit_start", "on_train_start", "on_validation_end", "on_train_epoch_end", "on_train_end", "on_fit_end")


class _Here:
    """In the place of Lightning's Trainer, for the module and for callbacks: what they may know."""

    should_stop: bool  # it and the next: for callbacks alone
    callback_metrics: "dict[str, torch.Tensor]"

    def __init__(self, trainer: "Trainer") -> None:
        self.now = (0, 0)  # steps and epochs that are done
        self.max_epochs = trainer.max_epochs
        self.accumulate_grad_batches = trainer.accumulate_grad_batches
        self.training, self.validating, self.sanity_checking = True, False, False
        self.is_global_zero, self.global_rank, self.local_rank, self.world_size = True, 0, 0, 1

    def _now(self, name: str) -> "tuple[int, int]":
        if self.validating:
            raise Refused(f"{name} is read by validation_step(), and a worker that evaluates does not know it")
        return self.now

    def counted(self, steps: int) -> None:
        """When the data are known."""
        self.max_steps, self.estimated_stepping_batches = steps, steps

    @property
    def global_step(self) -> int:
        return self._now("global_step")[0]

    @property
    def current_epoch(self) -> int:
        return self._now("current_epoch")[1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refused(f"trainer.{name} is read, which a job has not, or not the same in every process that computes")


class _NoNumber:
    """In the place of batch_idx of a held-out batch, which whoever computes it does not know."""

    def _refuse(self, *_: Any) -> Any:
        raise Refused("validation_step() reads batch_idx, which is not the same in every process that computes")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __mod__ = __add__ = __mul__ = __floordiv__ = _refuse  # type: ignore
    __hash__ = __index__ = __int__ = __float__ = __bool__ = __str__ = __repr__ = _refuse  # type: ignore


def _with_environment(init: "Callable[..., None]") -> "Callable[..., None]":
    """As Lightning has it: what a Trainer is not given is that of PL_TRAINER_PRECISION and its like, where they are set."""
    names = _HARMLESS | set(_AS_HERE) | set(inspect.signature(init).parameters) - {"self", "job", "others"}

    @functools.wraps(init)
    def made(self: Any, **given: Any) -> None:
        found = {name: os.environ.get(f"PL_TRAINER_{name.upper()}", "") for name in sorted(names)}
        for name, text in found.items():
            if text and name not in given:
                try:
                    given[name] = ast.literal_eval(text)
                except (ValueError, SyntaxError):  # a word
                    given[name] = text
        init(self, **given)

    return made


class Trainer:
    """Takes what Lightning's Trainer takes, and job=, further arguments of starling.train() by name: workers, checkpoint,
    on_step, stop and others. What cannot be as it is there is refused by its name, in one line."""

    @_with_environment
    def __init__(self, *, max_epochs: "Optional[int]" = None, max_steps: int = -1, accumulate_grad_batches: int = 1,
                 gradient_clip_val: "Optional[float]" = None, default_root_dir: "Optional[str]" = None,
                 callbacks: Any = None, job: "Optional[Mapping[str, Any]]" = None, **others: Any) -> None:
        self.max_epochs, self.max_steps, self.accumulate_grad_batches = max_epochs, max_steps, accumulate_grad_batches
        self._clip, self._out, self._job, self._others = gradient_clip_val, default_root_dir, dict(job or {}), others
        self._callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        self.callback_metrics: "dict[str, torch.Tensor]" = {}
        self.trained: "Optional[Trained]" = None  # what the job came to
        self._begun: "Optional[dict[str, torch.Tensor]]" = None
        self._logged: "dict[str, float]" = {}
        # Of training_step(), and of validation_step(): names that it logs, and whether with on_step and with on_epoch.
        self._how: "tuple[dict[str, tuple[bool, bool]], ...]" = ({}, {})
        self._of_steps: "dict[int, Mapping[str, float]]" = {}  # what those of this epoch have measured

    def fit(self, model: Any, train_dataloaders: Any = None, val_dataloaders: Any = None, datamodule: Any = None,
            ckpt_path: Any = None) -> None:
        """Trains by workers that may come and go. Raises starling.Failed."""
        try:
            made = self._made(model, train_dataloaders, val_dataloaders, datamodule, ckpt_path)
        except Refused as why:
            if child.channel() is not None:
                raise
            print(f"starling: {why}; {of_main().path}", file=sys.stderr)
            raise Failed(2) from None
        try:
            self._run(made)
        except Refused as why:  # of a callback, at the end
            if child.channel() is not None:
                raise
            print(f"starling: {why}; {of_main().path}", file=sys.stderr)
            raise Failed(2) from None

    def _run(self, made: job.Job) -> None:
        model, of_epoch = self._model, self._of_epoch
        for step in made:
            for mb in step.mine:
                self._here.now = step.number, step.number // of_epoch
                number = step.number % of_epoch * self.accumulate_grad_batches + mb.number
                loss, measured = self._step(made.net, "training_step", mb.batch(), number)
                mb.done(loss, **measured)
        for one in _lightning_modules(model):
            del one.log, one.log_dict
        model._trainer = None
        self.trained = made.trained
        if self.trained is not None:
            steps = self.trained.steps
            evaluation = {name: value for name, value in (self.trained.evaluation or {}).items() if name != "loss"}
            self._measured(self.trained.metrics)
            self._measured(evaluation, held_out=True)
            self._end_epoch(steps, self.trained.out)
            self._here.now = steps, steps // of_epoch
            self._call(model, "on_train_end", "on_fit_end")
        for one in self._set_up:
            one.teardown("fit")
        model.cpu()  # as Lightning leaves a module

    # ---- The job -----------------------------------------------------------------------------------------------------

    def _made(self, model: Any, train: Any, held_out: Any, datamodule: Any, ckpt_path: Any) -> job.Job:
        """Raises Refused."""
        self._model = model
        if datamodule is None and hasattr(train, "train_dataloader"):
            datamodule, train = train, None
        self._refuse(model, datamodule, ckpt_path)
        self._here = model._trainer = _Here(self)
        self._set_up = [one for one in (datamodule, model) if one is not None]
        for one in self._set_up:
            one.prepare_data()
        for one in self._set_up:
            one.setup("fit")
        model.to(self._device())
        if datamodule is not None:
            train = datamodule.train_dataloader()
            held_out = datamodule.val_dataloader() if _own(datamodule, "val_dataloader") else None
        self._loader = _loader("train_dataloaders", model.train_dataloader() if train is None else train)
        if isinstance(self._loader.dataset, torch.utils.data.IterableDataset):
            raise Refused(f"the DataLoader that is trained on has a {type(self._loader.dataset).__name__}, an IterableDataset, whose"
                          " passes have no length: starling.train(shards=) takes one")
        self._of_epoch = of_epoch = -(-len(self._loader) // self.accumulate_grad_batches)
        steps = min([n for n in (self.max_steps, (self.max_epochs or 0) * of_epoch) if n > 0], default=0)
        if not steps:
            raise Refused("neither max_steps= nor max_epochs= are given, expected one of them")
        self._here.counted(steps)
        for one in _lightning_modules(model):  # plain functions, as a copy of the module has the same
            one.log, one.log_dict = lambda *a, **k: self._log(*a, **k), lambda *a, **k: self._log_all(*a, **k)
        self._names_of_steps = self._names("training_step", self._loader)
        given: "dict[str, Any]" = dict(
            steps=steps, micro_batches=self.accumulate_grad_batches, batch_size=self._loader.batch_size,
            collate=self._loader.collate_fn, out=self._out, clip=self._clip or 0.0, metrics=self._names_of_steps)
        given["optimizer"], given["schedule"] = self._configured(steps, of_epoch)
        if held_out is None and _own(model, "val_dataloader"):
            held_out = model.val_dataloader()
        if held_out is not None and _own(model, "validation_step"):
            loader = _loader("val_dataloaders", held_out)
            if loader.batch_size != self._loader.batch_size:
                raise Refused(f"the DataLoader of held-out data has batch_size={loader.batch_size}, the other one"
                              f" {self._loader.batch_size}: a job has one")
            if loader.collate_fn is not self._loader.collate_fn:
                raise Refused("the DataLoader of held-out data has another collate_fn than the other one: a job has one")
            given.update(validation=loader, evaluate_every=of_epoch, evaluate=self._evaluate,
                         evaluate_metrics=self._names("validation_step", loader))
        if self._callbacks and child.channel() is None:
            given["on_step"] = self._told(steps, of_epoch)
        for name in self._job:
            if name in ("local_steps", "outer"):
                raise Refused(f"job has {name}, with which the Trainer's steps and epochs would be others: starling.train() takes it")
            if name in given and name != "evaluate_every":
                raise Refused(f"job has {name}, which the Trainer and its loaders say")
        return job.Job(self._build, **{**given, **self._job})

    def _device(self) -> str:
        """Where Lightning has a module while it trains. Raises Refused."""
        accelerator = self._others.get("accelerator", "auto")
        if accelerator in _ON_GPU and not torch.cuda.is_available():
            raise Refused(f"Trainer was given accelerator={accelerator!r}, and PyTorch {torch.__version__} sees no GPU: expected"
                          " \"auto\" or \"cpu\"")
        return "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"

    def _refuse(self, model: Any, datamodule: Any, ckpt_path: Any) -> None:
        if not hasattr(type(model), "automatic_optimization"):
            raise Refused(f"fit() was given a {type(model).__name__}, expected a LightningModule; torch.compile() may be of a module"
                          " within it")
        for name, value, without in (("max_epochs", self.max_epochs, (None, -1)), ("max_steps", self.max_steps, (-1,)),
                                     ("accumulate_grad_batches", self.accumulate_grad_batches, ())):
            if value not in without and not (type(value) is int and value > 0):
                raise Refused(f"Trainer was given {name}={value!r}, expected a whole number above 0")
        for name, value in self._others.items():
            # A whole number of batches is no part of them: 1 is not 1.0.
            same = [value == usual and isinstance(value, float) == isinstance(usual, float) for usual in _AS_HERE.get(name, ())]
            if name in _AS_HERE and not any(same) or name not in _HARMLESS | set(_AS_HERE):
                instead = {"devices": ": job={\"workers\": 4}", "logger": ": job={\"log\": \"tensorboard\"}"}.get(name, "")
                raise Refused(f"Trainer was given {name}={value!r}, which a job has not{instead}")
        for one in self._callbacks:
            own = [name for name in dir(type(one)) if (name.startswith("on_") or name in ("setup", "teardown")) and name not in _CALLED
                   and _own(one, name)]
            of_lightning = [kind.__name__ for kind in type(one).__mro__ if _is_lightnings(kind) and kind.__name__ != "Callback"]
            if own or of_lightning:
                what = f"has {own[0]}(), which a job does not call" if own else "is one of Lightning's own, whose Trainer a job has not"
                raise Refused(f"the callback {type(one).__name__} {what}: it calls {', '.join(_CALLED)}, and has"
                              " job={\"stop\": .., \"checkpoint\": ..}")
        if ckpt_path is not None:
            raise Refused("fit() was given ckpt_path, which a job has not: job={\"checkpoint\": folder, \"resume\": True}")
        for one, name in ((one, name) for one in (model, datamodule) for name in dir(type(one))):
            hook = name.startswith("on_") and not name.startswith(("on_test_", "on_predict_", "on_exception"))
            if (hook or name in _NOT_OWN) and _own(one, name):
                raise Refused(f"{type(one).__name__} has a {name}() of its own, which no process would call: training_step(),"
                              " validation_step() and configure_optimizers() are called")
        if not model.automatic_optimization:
            raise Refused(f"{type(model).__name__} has automatic_optimization=False, and the update is the job's")
        if self._begun is not None:
            raise Refused("fit() was called before of this Trainer: a job begins with the parameters that the script has given the"
                          " module, so there is one for each Trainer")

    def _build(self) -> "tuple[Any, Any]":
        self._model.train()
        if self._begun is None:
            self._begun = {name: p.detach().clone() for name, p in self._model.named_parameters()}
            return self._model, self._loader
        net = copy.deepcopy(self._model)  # whose parameters are the job's by now
        for name, p in net.named_parameters():
            p.data = self._begun[name].clone()
        return net, self._loader

    def _configured(self, steps: int, of_epoch: int) -> "tuple[Any, Any]":
        """Of configure_optimizers(). In the processes that compute nobody asks for it."""
        if child.channel() is not None:
            return AdamW(), None
        optimizer, scheduler = _parts(self._model.configure_optimizers())
        if scheduler is None:
            return optimizer, None
        named = dict(scheduler) if isinstance(scheduler, Mapping) else {"scheduler": scheduler}
        made, interval = named.pop("scheduler"), named.pop("interval", "epoch")
        if named.get("frequency", 1) != 1 or interval not in ("epoch", "step"):
            raise Refused(f"the scheduler has interval={interval!r}, frequency={named.get('frequency', 1)}, a job has \"step\" or"
                          " \"epoch\" and 1")
        if interval == "step":
            return optimizer, made
        if len(optimizer.param_groups) > 1:
            raise Refused("a scheduler of epochs with several groups of parameters, which a job has not: interval \"step\"")
        rates = update._of_scheduler(made, -(-steps // of_epoch))[0]
        return optimizer, lambda step: rates[step // of_epoch]

    def _call(self, module: Any, *events: str) -> None:
        for event in events:
            for one in self._callbacks:
                if _own(one, event):
                    getattr(one, event)(self._here, module)

    def _told(self, steps: int, of_epoch: int) -> Any:
        """Has the callbacks begin. Returns the function that is told each step. Raises Refused."""
        here, before, away = self._here, outline(self._model), Away(self._model)
        here.should_stop, here.callback_metrics = False, self.callback_metrics
        self._call(self._model, "on_fit_start", "on_train_start")
        if outline(self._model) != before:
            raise Refused("a callback has changed the module, which the workers do not see: change it before fit()")

        def tell(record: Any) -> None:
            here.now = record.step, (record.step - 1) // of_epoch
            self._of_steps[record.step] = record.metrics
            self._measured(record.metrics)
            if record.evaluation is not None:
                self._measured(record.evaluation.metrics, held_out=True)
                self._call(away, "on_validation_end")
            if record.step % of_epoch == 0 or record.step == steps:
                self._end_epoch(record.step, self._out or "")
                self._call(away, "on_train_epoch_end")
            if here.should_stop:
                raise Refused(f"a callback has set should_stop at step {record.step}: a job ends early by"
                              " job={\"stop\": .., \"checkpoint\": ..}")

        return tell

    def _measured(self, values: "Mapping[str, float]", held_out: bool = False) -> None:
        """By the names that Lightning has for them."""
        for name, value in values.items():
            on_step, on_epoch = self._how[held_out].get(name, (True, True))
            if on_epoch if held_out else on_step:
                self._put(name, value)
                if on_step and on_epoch:
                    self._put(f"{name}_{'epoch' if held_out else 'step'}", value)

    def _end_epoch(self, steps: int, out: str) -> None:
        """Means over the epoch that is over after so many steps, of what is logged with on_epoch. out: of the run, where the
        steps are that were told to a process before."""
        means = {name: on_step for name, (on_step, on_epoch) in self._how[False].items() if on_epoch}
        wanted = range((steps - 1) // self._of_epoch * self._of_epoch + 1, steps + 1)
        if means and not set(wanted) <= set(self._of_steps):
            told = (Course(start, self._names_of_steps).step(event) for start, event in history(out, with_last=True))
            self._of_steps.update({one.step: one.metrics for one in told if one.step in wanted})
        found = [self._of_steps[step] for step in wanted if step in self._of_steps]
        self._of_steps.clear()
        for name, on_step in means.items():
            mean = math.fsum(of_step[name] for of_step in found) / len(wanted) if len(found) == len(wanted) else math.nan
            self._put(name, mean)
            if on_step:
                self._put(f"{name}_epoch", mean)

    def _put(self, name: str, value: float) -> None:
        self.callback_metrics[name] = torch.tensor(value, dtype=torch.float64)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"starling.lightning.Trainer has no {name}: it has fit(), callback_metrics and trained; after fit()"
                             " lightning.Trainer(..) takes the module, which is trained")

    # ---- Steps -------------------------------------------------------------------------------------------------------

    def _log(self, name: str, value: Any, prog_bar: Any = None, logger: Any = None, on_step: "Optional[bool]" = None,
             on_epoch: "Optional[bool]" = None, reduce_fx: Any = "mean", *_: Any, **__: Any) -> None:
        held_out = self._here.validating
        self._how[held_out][name] = (not held_out if on_step is None else on_step, held_out if on_epoch is None else on_epoch)
        if reduce_fx not in ("mean", torch.mean):
            raise Refused(f"{name} is logged with reduce_fx={reduce_fx!r}, a job has the mean")
        try:
            self._logged[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)
        except (TypeError, ValueError, RuntimeError):
            raise Refused(f"{name} is logged as a {type(value).__name__}: expected the number of each batch") from None

    def _log_all(self, values: "Mapping[str, Any]", *order: Any, **how: Any) -> None:
        for name, value in values.items():
            self._log(name, value, *order, **how)

    def _step(self, net: Any, name: str, batch: Any, number: Any) -> "tuple[Any, dict[str, float]]":
        """What it returns as its loss, and what it has logged."""
        self._logged = {}
        step, batch = getattr(net, name), net.transfer_batch_to_device(batch, net.device, 0)
        with self._precision(net):
            given = step(batch, number) if len(inspect.signature(step).parameters) > 1 else step(batch)
        loss = given.get("loss") if isinstance(given, Mapping) else given
        if loss is None and name == "training_step":
            raise Refused("training_step() returns no loss: a job leaves no batch out")
        return loss, self._logged

    def _precision(self, net: Any) -> Any:
        """As Lightning's plugin for mixed precision has it around a step."""
        if self._others.get("precision") not in _MIXED:
            return contextlib.nullcontext()
        return torch.autocast(net.device.type, dtype=torch.bfloat16, cache_enabled=False)

    def _evaluate(self, net: Any, batch: Any) -> Any:
        self._here.training, self._here.validating = False, True
        try:
            loss, measured = self._step(net, "validation_step", batch, _NoNumber())
        finally:
            self._here.training, self._here.validating = True, False
        if loss is None:
            loss = measured.get("val_loss", next(iter(measured.values()), math.nan))
        return loss, measured

    def _names(self, name: str, loader: Any) -> "list[str]":
        """Of what a step logs: that of the first batch, by a copy of the module."""
        data = loader.dataset
        net = copy.deepcopy(self._model).train(name == "training_step")
        net._trainer = self._here  # which a copy of a module has not
        training = name == "training_step"
        number = 0 if training else _NoNumber()
        self._here.training, self._here.validating = training, not training
        self._step(net, name, loader.collate_fn([data[i] for i in range(min(loader.batch_size, len(data)))]), number)
        self._here.training, self._here.validating = True, False
        if "loss" in self._logged and name == "validation_step":
            raise Refused("validation_step() logs \"loss\": expected another name, as \"val_loss\"")
        return list(self._logged)


def _lightning_modules(model: Any) -> "list[Any]":
    return [one for one in model.modules() if hasattr(one, "automatic_optimization")]


def _own(one: Any, name: str) -> bool:
    """Whether a module or a data module has a hook of its own, and not Lightning's."""
    of = next((kind for kind in type(one).__mro__ if name in vars(kind)), None)
    return of is not None and not (_is_lightnings(of) or of.__module__.startswith("torch."))


def _is_lightnings(kind: type) -> bool:
    """But for its demos, which are as modules of one's own."""
    place = kind.__module__
    return place.startswith(("lightning.", "pytorch_lightning.", "lightning_fabric.")) and ".demos." not in place


def _loader(name: str, given: Any) -> Any:
    """Raises Refused."""
    if isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    if not isinstance(given, torch.utils.data.DataLoader):
        raise Refused(f"{name} must be a torch.utils.data.DataLoader, is a {type(given).__name__}")
    if given.batch_size is None:
        raise Refused(f"the DataLoader of {name} has a batch_sampler of its own, and a job makes batches itself: batch_size=")
    return given


def _parts(given: Any) -> "tuple[Any, Any]":
    """Optimizer and scheduler of what configure_optimizers() returns. Raises Refused."""
    scheduler: Any = None
    if isinstance(given, Mapping):
        given, scheduler = given["optimizer"], given.get("lr_scheduler")
    elif isinstance(given, (list, tuple)):
        lists = [list(one) if isinstance(one, (list, tuple)) else [one] for one in given]
        if len(given) == 2 and isinstance(given[0], (list, tuple)):
            optimizers, schedulers = lists
        else:
            optimizers, schedulers = [one for a_list in lists for one in a_list], []
        if len(optimizers) != 1 or len(schedulers) > 1:
            raise Refused(f"configure_optimizers() returns {len(optimizers)} optimizers and {len(schedulers)} schedulers, a job has"
                          " one optimizer and one scheduler at most")
        return optimizers[0], schedulers[0] if schedulers else None
    if given is None:
        raise Refused("configure_optimizers() returns None, a job has an optimizer")
    return given, scheduler
