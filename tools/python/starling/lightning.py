"""Lightning's Trainer.fit() as a job of Starling's: from starling.lightning import Trainer.

A script is run by every process of the job, so it makes the same module, loaders and Trainer everywhere, and what follows
fit() happens only in the process that a person has started. A step is `accumulate_grad_batches` micro-batches of the
loader's `batch_size` samples, whatever the number of workers."""

from __future__ import annotations

import copy
import inspect
import math
import sys
from typing import Any, Mapping, Optional

import torch

from . import child, job, update
from .away import Away, outline
from .calls import Failed, Trained
from .optimizers import AdamW
from .script import Refused, of_main

# What a Trainer is given that changes nothing of what is trained, or is as a job has it.
_HARMLESS = {"enable_progress_bar", "enable_model_summary", "enable_checkpointing", "log_every_n_steps", "deterministic",
             "num_sanity_val_steps", "inference_mode", "num_nodes", "barebones"}
_AS_HERE = {"accelerator": ("auto", "cpu"), "devices": ("auto", 1), "strategy": ("auto",), "precision": (None, 32, "32", "32-true"),
            "gradient_clip_algorithm": (None, "norm"), "val_check_interval": (None, 1.0),
            "check_val_every_n_epoch": (1,), "logger": (None, True, False)}
# Hooks of a module, beside those that begin with on_, which no process would call.
_NOT_OWN = ("backward", "optimizer_step", "optimizer_zero_grad", "lr_scheduler_step", "configure_gradient_clipping", "configure_model",
            "configure_callbacks", "configure_sharded_model", "transfer_batch_to_device")


# Of callbacks: what is called.
_CALLED = ("on_fit_start", "on_train_start", "on_validation_end", "on_train_epoch_end", "on_train_end", "on_fit_end")


class _Here:
    """In the place of Lightning's Trainer, for the module and for callbacks: what they may know."""

    should_stop: bool  # it and the next: for callbacks alone
    callback_metrics: "dict[str, float]"

    def __init__(self, trainer: "Trainer", steps: int) -> None:
        self.now = (0, 0)  # steps and epochs that are done
        self.max_steps, self.max_epochs, self.estimated_stepping_batches = steps, trainer.max_epochs, steps
        self.accumulate_grad_batches = trainer.accumulate_grad_batches
        self.training, self.validating, self.sanity_checking = True, False, False
        self.is_global_zero, self.global_rank, self.local_rank, self.world_size = True, 0, 0, 1

    def _now(self, name: str) -> "tuple[int, int]":
        if self.validating:
            raise Refused(f"{name} is read by validation_step(), and a worker that evaluates does not know it")
        return self.now

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


class Trainer:
    """Takes what Lightning's Trainer takes, and job=, further arguments of starling.train() by name: workers, checkpoint,
    on_step, stop and others. What cannot be as it is there is refused by its name, in one line."""

    def __init__(self, *, max_epochs: "Optional[int]" = None, max_steps: int = -1, accumulate_grad_batches: int = 1,
                 gradient_clip_val: "Optional[float]" = None, default_root_dir: "Optional[str]" = None,
                 callbacks: Any = None, job: "Optional[Mapping[str, Any]]" = None, **others: Any) -> None:
        self.max_epochs, self.max_steps, self.accumulate_grad_batches = max_epochs, max_steps, accumulate_grad_batches
        self._clip, self._out, self._job, self._others = gradient_clip_val, default_root_dir, dict(job or {}), others
        self._callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] if callbacks else []
        self.callback_metrics: "dict[str, float]" = {}
        self.trained: "Optional[Trained]" = None  # what the job came to
        self._begun: "Optional[dict[str, torch.Tensor]]" = None
        self._logged: "dict[str, float]" = {}

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
        batches, model = len(self._loader), self._model
        for step in made:
            for mb in step.mine:
                number = step.number * self.accumulate_grad_batches + mb.number
                self._here.now = step.number, number // batches
                loss, measured = self._step(made.net, "training_step", mb.batch(), number % batches)
                mb.done(loss, **measured)
        for one in _lightning_modules(model):
            del one.log, one.log_dict
        model._trainer = None
        self.trained = made.trained
        if self.trained is not None:
            self.callback_metrics.update({**self.trained.metrics, **(self.trained.evaluation or {})})
            self.callback_metrics.pop("loss", None)
            steps, of_epoch = self.trained.steps, -(-batches // self.accumulate_grad_batches)
            self._here.now = steps, steps // of_epoch
            self._call(model, "on_train_end", "on_fit_end")

    # ---- The job -----------------------------------------------------------------------------------------------------

    def _made(self, model: Any, train: Any, held_out: Any, datamodule: Any, ckpt_path: Any) -> job.Job:
        """Raises Refused."""
        self._model = model
        self._refuse(model, ckpt_path)
        if datamodule is not None:
            datamodule.prepare_data()
            datamodule.setup("fit")
            train = datamodule.train_dataloader()
            held_out = datamodule.val_dataloader() if _own(datamodule, "val_dataloader") else None
        self._loader = _loader("train_dataloaders", model.train_dataloader() if train is None else train)
        if not isinstance(self._loader.sampler, torch.utils.data.RandomSampler) or self._loader.sampler.replacement:
            raise Refused(f"the DataLoader that is trained on has a {type(self._loader.sampler).__name__}, and a job an order of"
                          " its own, in which each pass has all samples: shuffle=True")
        of_epoch = -(-len(self._loader) // self.accumulate_grad_batches)
        steps = min([n for n in (self.max_steps, (self.max_epochs or 0) * of_epoch) if n > 0], default=0)
        if not steps:
            raise Refused("neither max_steps= nor max_epochs= are given, expected one of them")
        self._here = _Here(self, steps)
        model._trainer = self._here
        for one in _lightning_modules(model):  # plain functions, as a copy of the module has the same
            one.log, one.log_dict = lambda *a, **k: self._log(*a, **k), lambda *a, **k: self._log_all(*a, **k)
        given: "dict[str, Any]" = dict(
            steps=steps, micro_batches=self.accumulate_grad_batches, batch_size=self._loader.batch_size,
            collate=self._loader.collate_fn, out=self._out, clip=self._clip or 0.0, metrics=self._names("training_step", self._loader))
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
            given.update(validation=loader.dataset, evaluate_every=of_epoch, evaluate=self._evaluate,
                         evaluate_metrics=self._names("validation_step", loader))
        if self._callbacks and child.channel() is None:
            given["on_step"] = self._told(steps, of_epoch)
        for name in self._job:
            if name in given and name != "evaluate_every":
                raise Refused(f"job has {name}, which the Trainer and its loaders say")
        return job.Job(self._build, **{**given, **self._job})

    def _refuse(self, model: Any, ckpt_path: Any) -> None:
        for name, value in self._others.items():
            if name in _AS_HERE and value not in _AS_HERE[name] or name not in _HARMLESS | set(_AS_HERE):
                instead = {"devices": ": job={\"workers\": 4}", "logger": ": job={\"log\": \"tensorboard\"}"}.get(name, "")
                raise Refused(f"Trainer was given {name}={value!r}, which a job has not{instead}")
        for one in self._callbacks:
            own = [name for name in dir(type(one)) if (name.startswith("on_") or name in ("setup", "teardown")) and name not in _CALLED
                   and _own(one, name)]
            if own or type(one).__module__.startswith(("lightning.", "pytorch_lightning.")):
                what = f"has {own[0]}(), which a job does not call" if own else "is one of Lightning's own, whose Trainer a job has not"
                raise Refused(f"the callback {type(one).__name__} {what}: it calls {', '.join(_CALLED)}, and has"
                              " job={\"stop\": .., \"checkpoint\": ..}")
        if ckpt_path is not None:
            raise Refused("fit() was given ckpt_path, which a job has not: job={\"checkpoint\": folder, \"resume\": True}")
        for name in dir(type(model)):
            if (name.startswith("on_") or name in _NOT_OWN) and _own(model, name):
                raise Refused(f"{type(model).__name__} has a {name}() of its own, which no process would call: training_step(),"
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
            return self._model, self._loader.dataset
        net = copy.deepcopy(self._model)  # whose parameters are the job's by now
        for name, p in net.named_parameters():
            p.data = self._begun[name].clone()
        return net, self._loader.dataset

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
            self.callback_metrics.update(record.metrics)
            if record.evaluation is not None:
                self.callback_metrics.update(record.evaluation.metrics)
                self._call(away, "on_validation_end")
            if record.step % of_epoch == 0 or record.step == steps:
                self._call(away, "on_train_epoch_end")
            if here.should_stop:
                raise Refused(f"a callback has set should_stop at step {record.step}: a job ends early by"
                              " job={\"stop\": .., \"checkpoint\": ..}")

        return tell

    # ---- Steps -------------------------------------------------------------------------------------------------------

    def _log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **__: Any) -> None:
        if reduce_fx not in ("mean", torch.mean):
            raise Refused(f"{name} is logged with reduce_fx={reduce_fx!r}, a job has the mean")
        try:
            self._logged[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)
        except (TypeError, ValueError, RuntimeError):
            raise Refused(f"{name} is logged as a {type(value).__name__}: expected the number of each batch") from None

    def _log_all(self, values: "Mapping[str, Any]", *_: Any, **how: Any) -> None:
        for name, value in values.items():
            self._log(name, value, **how)

    def _step(self, net: Any, name: str, batch: Any, number: Any) -> "tuple[Any, dict[str, float]]":
        """What it returns as its loss, and what it has logged."""
        self._logged = {}
        step = getattr(net, name)
        given = step(batch, number) if len(inspect.signature(step).parameters) > 1 else step(batch)
        loss = given.get("loss") if isinstance(given, Mapping) else given
        if loss is None and name == "training_step":
            raise Refused("training_step() returns no loss: a job leaves no batch out")
        return loss, self._logged

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
    return of is not None and not of.__module__.startswith(("lightning.", "pytorch_lightning.", "lightning_fabric.", "torch."))


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
