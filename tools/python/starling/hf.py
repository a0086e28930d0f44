"""`transformers.Trainer` whose train() is a job of Starling's: from starling.hf import Trainer.

A script is run by every process of the job, so it makes the same Trainer everywhere, and what follows train() happens
only in the process that a person has started. A step is `gradient_accumulation_steps` micro-batches of
`per_device_train_batch_size` samples, whatever the number of workers."""

from __future__ import annotations

import copy
import math
import os
import sys
import time
from typing import Any, Mapping, Optional

import torch
import transformers
from transformers.trainer_callback import CallbackHandler
from transformers.trainer_utils import TrainOutput

from . import child, job
from .optimizers import AdamW
from .records import Course, history
from .script import Refused, of_main

# A job's schedule, and the floor of the rate at its end, 1: none.
_SCHEDULES = {"cosine": ("cosine", 0.0), "linear": ("linear", 0.0), "constant": ("cosine", 1.0),
              "constant_with_warmup": ("cosine", 1.0)}
_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused")
_MAPPED = {"output_dir", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps",
           "learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "weight_decay", "adam_beta1", "adam_beta2",
           "adam_epsilon", "max_grad_norm", "seed", "save_strategy", "save_steps", "save_total_limit", "logging_steps",
           "logging_strategy", "resume_from_checkpoint", "dataloader_drop_last"}
# Read by what the Trainer does itself, in __init__, compute_loss() and evaluate(), or of no effect on what is trained.
_OTHERS = {"label_smoothing_factor", "label_names", "remove_unused_columns", "full_determinism", "use_cpu", "use_cache",
           "average_tokens_across_devices", "skip_memory_metrics", "disable_tqdm", "report_to", "run_name", "project",
           "log_level", "log_level_replica", "log_on_each_node", "logging_dir", "logging_first_step",
           "logging_nan_inf_filter", "per_device_eval_batch_size", "prediction_loss_only", "eval_accumulation_steps",
           "eval_do_concat_batches", "eval_use_gather_object", "include_for_metrics", "batch_eval_metrics", "do_train",
           "do_eval", "do_predict", "local_rank", "dataloader_num_workers", "dataloader_pin_memory",
           "dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_in_order", "ddp_timeout",
           "bf16_full_eval", "fp16_full_eval", "accelerator_config"}
# What a subclass may not have of its own: Starling does it.
_NOT_OWN = ("training_step", "create_optimizer", "create_scheduler", "create_optimizer_and_scheduler",
            "get_train_dataloader", "get_optimizer_cls_and_kwargs", "_inner_training_loop")
_CALLED = ("on_init_end", "on_train_begin", "on_log", "on_train_end")  # events of callbacks


class Trainer(transformers.Trainer):
    """Takes what transformers.Trainer takes, and job=, further arguments of starling.train() by name: workers,
    threads, lease_ms, recheck, command and others. What cannot be as it is there is refused by its name, in one line."""

    def __init__(self, *arguments: Any, job: "Optional[Mapping[str, Any]]" = None, **named: Any) -> None:
        self._job = dict(job or {})
        self._begun: "Optional[dict[str, torch.Tensor]]" = None  # trained parameters as they were
        self._asked = dict(named)
        super().__init__(*arguments, **named)

    def train(self, resume_from_checkpoint: Any = None, **others: Any) -> TrainOutput:
        """Trains by workers that may come and go. Raises starling.Failed."""
        begun = time.monotonic()
        try:
            given = self._given(resume_from_checkpoint, others)
        except Refused as why:
            if child.channel() is not None:
                raise
            print(f"starling: {why}; {of_main().path}", file=sys.stderr)
            raise job.Failed(2) from None
        trained = job.train(self._build, self._loss, **given)
        if child.channel() is not None:  # of an earlier call
            return TrainOutput(trained.steps, trained.loss, {})
        self.model.train()
        if self.processing_class is not None:
            self.processing_class.save_pretrained(trained.out)
        losses = self._tell(trained.out, given)
        runtime = time.monotonic() - begun
        metrics = {"train_runtime": runtime, "train_loss": math.fsum(losses) / max(1, len(losses)),
                   "train_steps_per_second": len(losses) / runtime}
        return TrainOutput(trained.steps, metrics["train_loss"], metrics)

    def _build(self) -> "tuple[torch.nn.Module, Any]":
        dataset, _ = self._data()
        self.model.train()
        if self._begun is None:
            self._begun = {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}
            return self.model, dataset
        net = copy.deepcopy(self.model)  # whose parameters are the job's by now
        for name, p in net.named_parameters():
            if name in self._begun:
                p.data = self._begun[name].clone()
        return net, dataset

    def _loss(self, net: torch.nn.Module, batch: Any) -> torch.Tensor:
        return self.compute_loss(net, self._prepare_inputs(batch))

    def _data(self) -> "tuple[Any, Any]":
        """The samples, and what makes a batch of them, without columns that the model does not take."""
        dataset, collate = self.train_dataset, self.data_collator
        if hasattr(dataset, "column_names") and hasattr(dataset, "set_format"):  # of the package datasets
            return self._remove_unused_columns(dataset, description="training"), collate
        return dataset, self._get_collator_with_removed_columns(collate, description="training")

    def _steps_of_a_pass(self) -> int:
        args = self.args
        size = args.per_device_train_batch_size
        batches = len(self.train_dataset) // size if args.dataloader_drop_last else -(-len(self.train_dataset) // size)
        return max(1, -(-batches // args.gradient_accumulation_steps))

    def _steps(self) -> int:
        args = self.args
        return args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * self._steps_of_a_pass())

    def _begin_state(self) -> None:
        """What transformers writes into `state` when it begins to train."""
        state, args, steps = self.state, self.args, self._steps()
        state.compute_steps(args, steps)
        state.max_steps, state.train_batch_size = steps, args.per_device_train_batch_size
        passes = -(-steps // self._steps_of_a_pass()) if args.max_steps > 0 else math.ceil(args.num_train_epochs)
        state.num_train_epochs = passes

    def _given(self, resume: Any, others: "Mapping[str, Any]") -> "dict[str, Any]":
        """Of starling.train(). Raises Refused."""
        args = self.args
        self._refuse(others)
        resume = args.resume_from_checkpoint if resume is None else resume
        resume = {"true": True, "false": False}.get(resume.lower(), resume) if isinstance(resume, str) else resume  # of a command line
        if resume not in (None, True, False):
            raise Refused(f"resume_from_checkpoint must be True or False, is {resume!r}: a job goes on from the"
                          f" checkpoints in its own output_dir, {args.output_dir}")
        steps = self._steps()
        schedule, floor = _SCHEDULES[str(args.lr_scheduler_type.value)]
        warmup = 0 if args.lr_scheduler_type == "constant" else args.get_warmup_steps(steps)
        given: "dict[str, Any]" = dict(
            steps=steps, micro_batches=args.gradient_accumulation_steps, batch_size=args.per_device_train_batch_size,
            optimizer=AdamW(args.learning_rate, warmup, floor, (args.adam_beta1, args.adam_beta2), args.adam_epsilon,
                            args.weight_decay),
            schedule=schedule, clip=args.max_grad_norm or 0.0,
            seed=args.seed, out=args.output_dir, collate=self._data()[1])
        if args.save_strategy == "epoch":
            given["checkpoint_every"] = max(1, math.ceil(steps / args.num_train_epochs))
        if args.save_strategy == "steps":
            given["checkpoint_every"] = int(args.save_steps) if args.save_steps >= 1 else math.ceil(steps * args.save_steps)
        if "checkpoint_every" in given:
            given.update(checkpoint=os.path.join(args.output_dir, "checkpoints"), resume=bool(resume),
                         keep=args.save_total_limit or 2)
        for name in self._job:
            if name in given:
                raise Refused(f"job has {name}, which TrainingArguments say")
        return {**given, **self._job}

    def _refuse(self, others: "Mapping[str, Any]") -> None:
        """Raises Refused for what would not be as in transformers."""
        args = self.args
        usual = transformers.TrainingArguments(output_dir=args.output_dir or "out", use_cpu=args.use_cpu)
        if str(args.lr_scheduler_type.value) not in _SCHEDULES:
            raise Refused(f"lr_scheduler_type is {args.lr_scheduler_type.value}, a job has {', '.join(_SCHEDULES)}")
        if str(getattr(args.optim, "value", args.optim)) not in _OPTIMIZERS:
            raise Refused(f"optim is {getattr(args.optim, 'value', args.optim)}, the job has {_OPTIMIZERS[0]}")
        if args.save_strategy not in ("no", "steps", "epoch"):
            raise Refused(f"save_strategy is {args.save_strategy.value}, a job has no, steps, epoch")
        for name, default in vars(usual).items():
            value = getattr(args, name, default)
            if name.startswith("_") or name in _MAPPED | _OTHERS or value == default:
                continue
            if name in type(usual).__dataclass_fields__:
                instead = ": call evaluate() after train()" if name.startswith("eval") else ""
                raise Refused(f"TrainingArguments have {name}={getattr(value, 'value', value)!r}, which a job has not"
                              f"{instead}")
        for name in ("optimizers", "optimizer_cls_and_kwargs", "model_init"):
            if self._asked.get(name) not in (None, (None, None)):
                raise Refused(f"Trainer was given {name}, but the optimizer is the job's and the model is made before it")
        for name in _NOT_OWN:
            if getattr(type(self), name, None) is not getattr(transformers.Trainer, name, None):
                raise Refused(f"{type(self).__name__} has a {name}() of its own, which no process would call:"
                              " compute_loss() and the data collator are called")
        for name, value in others.items():
            if value is not None:
                raise Refused(f"train() was given {name}, which a job has not")
        for callback in self._callbacks():
            own = [name for name in dir(transformers.TrainerCallback) if name.startswith("on_") and name not in _CALLED
                   and getattr(type(callback), name) is not getattr(transformers.TrainerCallback, name)]
            if own and not type(callback).__module__.startswith("transformers.integrations."):
                raise Refused(f"the callback {type(callback).__name__} has {own[0]}(), which a job does not call: it calls"
                              f" {', '.join(_CALLED[1:])}, at its end")
        if args.weight_decay:
            wanted = set(self.get_decay_parameter_names(self.model))
            for name, p in self.model.named_parameters():
                if p.requires_grad and (name in wanted) != (p.dim() >= 2):
                    raise Refused(f"weight_decay of {name}, which has {p.dim()} dimensions, would differ from"
                                  " transformers': a job has it for parameters of two or more")

    def _callbacks(self) -> "list[Any]":
        """Without those that every Trainer has for its own loop, among them the progress bar."""
        return [one for one in self.callback_handler.callbacks
                if type(one).__module__ not in ("transformers.trainer_callback", "transformers.utils.notebook")
                or isinstance(one, transformers.EarlyStoppingCallback)]

    def _tell(self, out: str, given: "Mapping[str, Any]") -> "list[float]":
        """What was is told to the callbacks and is in `state`, as if it was now. Returns the steps' losses."""
        state, args = self.state, self.args
        steps = {event["version"]: Course(start, ()).step(event) for start, event in history(out, with_last=True)}
        losses = [steps[i].loss for i in sorted(steps)]
        missing = given["steps"] - len(steps)
        if missing > 0:
            print(f"starling: {out} tells nothing of {missing} steps of {given['steps']}: log_history and train_loss are those"
                  " of the others", file=sys.stderr)
        a_pass = len(self.train_dataset) / (given["micro_batches"] * given["batch_size"])
        every = 0 if args.logging_strategy == "no" else args.logging_steps
        every = math.ceil(given["steps"] * every) if 0 < every < 1 else int(every)
        self._begin_state()
        state.logging_steps = every or given["steps"]
        callbacks = [transformers.trainer_callback.DefaultFlowCallback(), *self._callbacks()]
        handler = CallbackHandler(callbacks, self.model, self.processing_class, None, None)
        self.control = handler.on_train_begin(args, state, self.control)
        for number in sorted(steps):
            state.global_step, state.epoch = number + 1, (number + 1) / a_pass
            if every and (number + 1) % every == 0:
                window = [steps[i].loss for i in range(number + 1 - every, number + 1) if i in steps]
                if len(window) < every:
                    continue
                logs = {"loss": math.fsum(window) / every, "grad_norm": steps[number].norm, "epoch": state.epoch}
                if steps[number].rate is not None:
                    logs["learning_rate"] = steps[number].rate
                state.log_history.append({**logs, "step": number + 1})
                self.control = handler.on_log(args, state, self.control, logs)
        self.control = handler.on_train_end(args, state, self.control)
        return losses
