"""`transformers.Trainer` whose train() is a job of Starling's: from starling.hf import Trainer.

A script is run by every process of the job, so it makes the same Trainer everywhere, and what follows train() happens
only in the process that a person has started. A step is `gradient_accumulation_steps` micro-batches of
`per_device_train_batch_size` samples, whatever the number of workers."""

from __future__ import annotations

import contextlib
import copy
import difflib
import inspect
import math
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, Mapping, Optional

import torch
import transformers
from accelerate.utils import convert_outputs_to_fp32
from transformers import PreTrainedTokenizerBase, ProcessorMixin, trainer_utils
from transformers.trainer_utils import TrainOutput

from . import child, job
from .away import out_of_reach
from .best import KEEP_MAX
from .calls import Failed, Trained
from .command import program
from .hf_held_out import HeldOut, Part, is_own
from .hf_loop import CALLED, FLOS, Loop, Plan, StateInWorker, checkpoint_of, training
from .model_file import load
from .optimizers import AdamW
from .script import Refused, of_main

# A job's schedule, and the floor of the rate at its end, 1: none.
_SCHEDULES = {"cosine": ("cosine", 0.0), "linear": ("linear", 0.0), "constant": ("cosine", 1.0),
              "constant_with_warmup": ("cosine", 1.0)}
_OF_JOB = [*inspect.signature(job.train).parameters][2:]  # without build and loss
_WITH_TOKENS = (PreTrainedTokenizerBase, ProcessorMixin)
_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused")
_MAPPED = {"output_dir", "per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps",
           "learning_rate", "lr_scheduler_type", "warmup_steps", "optim", "weight_decay", "adam_beta1", "adam_beta2",
           "adam_epsilon", "max_grad_norm", "seed", "save_strategy", "save_steps", "save_total_limit", "logging_steps",
           "logging_strategy", "logging_first_step", "resume_from_checkpoint", "dataloader_drop_last", "eval_strategy",
           "eval_steps", "eval_on_start", "per_device_eval_batch_size", "metric_for_best_model", "greater_is_better",
           "load_best_model_at_end", "dataloader_num_workers", "bf16", "train_sampling_strategy", "group_by_length", "length_column_name"}
# Read by what the Trainer does itself, in __init__, compute_loss() and evaluate(), or of no effect on what is trained.
_OTHERS = {"label_smoothing_factor", "label_names", "remove_unused_columns", "full_determinism", "use_cpu", "use_cache",
           "average_tokens_across_devices", "skip_memory_metrics", "disable_tqdm", "report_to", "run_name", "project",
           "log_level", "log_level_replica", "log_on_each_node", "logging_dir", "logging_nan_inf_filter",
           "prediction_loss_only", "eval_accumulation_steps",
           "eval_do_concat_batches", "eval_use_gather_object", "include_for_metrics", "batch_eval_metrics", "do_train",
           "do_eval", "do_predict", "local_rank", "dataloader_pin_memory",
           "dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_in_order", "ddp_timeout",
           "bf16_full_eval", "fp16_full_eval", "accelerator_config"}
# What a subclass, or a Trainer that was made, may not have of its own: Starling does it.
_NOT_OWN = ("training_step", "create_optimizer", "create_scheduler", "create_optimizer_and_scheduler",
            "get_train_dataloader", "get_optimizer_cls_and_kwargs", "_inner_training_loop", "_run_epoch",
            "_prepare_for_training", "get_batch_samples", "_get_num_items_in_batch", "_clip_grad_norm",
            "_get_grad_norm", "_get_learning_rate", "_maybe_log_save_evaluate", "_save_checkpoint", "_load_best_model")


class Trainer(transformers.Trainer):
    """Takes what transformers.Trainer takes, and job=, further arguments of starling.train() by name: workers,
    threads, lease_ms, recheck, command and others. What cannot be as it is there is refused by its name, in one line."""

    def __init__(self, *arguments: Any, job: "Optional[Mapping[str, Any]]" = None, **named: Any) -> None:
        self._job = dict(job or {})
        self._begun: "dict[str, torch.Tensor]" = {}  # trained parameters as they were at the beginning
        self._begun_in = ""                          # of the training with this output_dir
        self._handed = False                         # the model's parameters are the job's
        self._not_here = ""                          # why this process has not the model of the call before
        self._asked = dict(named)
        self._held_out: "Optional[HeldOut]" = None
        given = named.get("args", arguments[1] if len(arguments) > 1 else None)
        # Now, as others make accelerate forget its state, which the Accelerator that is made next knows anew.
        self._usual = transformers.TrainingArguments(output_dir="out", use_cpu=bool(given and given.use_cpu))
        super().__init__(*arguments, **named)

    def train(self, resume_from_checkpoint: Any = None, **others: Any) -> TrainOutput:
        """Trains by workers that may come and go. Raises starling.Failed."""
        begun = time.monotonic()
        if child.channel() is not None:
            return self._in_worker(resume_from_checkpoint, others)
        try:
            with training(self, self._callbacks()):
                given = self._given(resume_from_checkpoint, others)
                self._begin()
                loop = self._loop(given)
                loop.begin()
                if self.args.eval_on_start:
                    self._evaluate_here(loop)
                return self._ended(loop, job.train(self._build, self._loss, **given), begun)
        except Refused as why:
            print(f"starling: {why}; {of_main().path}", file=sys.stderr)
            raise Failed(2) from None

    def _in_worker(self, resume: Any, others: "Mapping[str, Any]") -> TrainOutput:
        """The result of an earlier call; the job's own does not return here."""
        args = self.args
        # A process that computes has none beside it.
        args.dataloader_num_workers, args.dataloader_prefetch_factor, args.dataloader_persistent_workers = 0, None, False
        self.state.__class__ = StateInWorker
        with training(self):
            given = self._given(resume, others)
            self._begin()
            trained = job.train(self._build, self._loss, **given)
        # What comes next in the script goes on from its model.
        try:
            load(trained.out, self.model)
        except (OSError, ValueError) as why:
            self._not_here = f"the model of the train() before is not here, and this one goes on from it: {why}"
        return TrainOutput(trained.steps, trained.loss, {})

    def _begin(self) -> None:
        """A training in another output_dir goes on from the model as it is; one in the same has its begin. Raises
        Refused."""
        out = os.path.abspath(self.args.output_dir)
        if self._begun_in == out:
            return
        if self._not_here:
            raise Refused(self._not_here)
        if isinstance(self.processing_class, _WITH_TOKENS) and hasattr(self.model, "config"):
            trainer_utils.align_special_tokens(self.model, self.processing_class)  # as transformers' train() does
        self._begun = {name: p.detach().clone() for name, p in self.model.named_parameters() if p.requires_grad}
        self._begun_in = out

    def _loop(self, given: "dict[str, Any]") -> Loop:
        """Has the job tell it each step."""
        own = [one for one in self._callbacks() if not type(one).__module__.startswith("transformers.integrations.")]
        by_command = bool(os.environ.get("STARLING_WRITE_JOB"))
        for one in own:
            if isinstance(one, transformers.EarlyStoppingCallback):
                if by_command:
                    raise Refused(f"the callback {type(one).__name__} is asked in the process that `python` starts, and a"
                                  " command that takes a script has none: run the script itself")
                if "checkpoint" not in given:
                    raise Refused(f"the callback {type(one).__name__} needs checkpoints, as workers are further when it is"
                                  " asked: save_strategy=\"steps\"")
        stops = bool(own) and "checkpoint" in given
        if by_command:
            if own:
                print(f"starling: callbacks are called in the process that `python` starts, not of this command:"
                      f" {', '.join(type(one).__name__ for one in own)}", file=sys.stderr)
            return Loop(self, self._plan(), stops)
        loop, name = Loop(self, self._plan(), stops), "stop" if stops else "on_step"
        others = given.get(name)

        def each(record: Any) -> bool:
            return any([loop.step(record), others is not None and others(record)])

        given[name] = each
        return loop

    def _ended(self, loop: Loop, trained: Trained, begun: float) -> TrainOutput:
        """Tells the rest, with the trained model."""
        self.model.train()
        if self.processing_class is not None:
            self.processing_class.save_pretrained(trained.out)
        with out_of_reach(self.model):
            loop.catch_up()
        losses, runtime = list(loop.losses.values()), time.monotonic() - begun
        a_step = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
        metrics = {"train_runtime": runtime, "train_samples_per_second": len(losses) * a_step / runtime,
                   "train_steps_per_second": len(losses) / runtime, "total_flos": self.state.total_flos,
                   "train_loss": math.fsum(losses) / max(1, len(losses))}
        self.log(dict(metrics))
        self._take_best(trained)
        loop.end()
        return TrainOutput(trained.steps, metrics["train_loss"], metrics)

    def _take_best(self, trained: Trained) -> None:
        """The best model's checkpoint, and what it has where it is wanted."""
        step = self.state.best_global_step
        if not step:
            return
        best = checkpoint_of(self.args, step)
        here = step == trained.steps  # of which the job writes no checkpoint
        self.state.best_model_checkpoint = trained.out if here else best if os.path.isdir(best) else None
        if here or not self.args.load_best_model_at_end:
            return
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "best")
            done = subprocess.run([program(), "export", best, model], stdout=subprocess.DEVNULL)
            if done.returncode != 0:  # and has said why
                raise Failed(done.returncode)
            load(model, self.model)
        self._not_here = ("load_best_model_at_end has put the best model into the Trainer, and train() once more would go on"
                          " from it, which workers do not have: save it, and train it by another script")

    def _evaluate_here(self, loop: Loop) -> None:
        """Before the first step, by this process."""
        assert self._held_out is not None
        loss, measured = self._held_out.all()
        for metrics in loop.by_set({"eval_loss": loss, **{f"eval_{name}": value for name, value in measured.items()}}):
            loop.tell_evaluation(metrics)

    def _build(self) -> "tuple[torch.nn.Module, Any]":
        dataset, _ = self._data()
        self.model.train()
        if self._handed:
            net = copy.deepcopy(self.model)
            for name, p in net.named_parameters():
                if name in self._begun:
                    p.data = self._begun[name].clone()
            return net, dataset
        self._handed = child.channel() is not None
        for name, p in self.model.named_parameters():
            if name in self._begun:
                p.data.copy_(self._begun[name])
        return self.model, dataset

    def _loss(self, net: torch.nn.Module, batch: Any) -> "tuple[torch.Tensor, dict[str, float]]":
        flos = float(self.floating_point_ops(batch)) if isinstance(batch, Mapping) else 0.0
        inputs = self._prepare_inputs(batch)
        with self.mixed(net), self.compute_loss_context_manager():
            return self.compute_loss(net, inputs), {FLOS: flos}

    @contextlib.contextmanager
    def mixed(self, net: torch.nn.Module) -> "Iterator[None]":
        """With bf16=True, or ACCELERATE_MIXED_PRECISION=bf16, the net's passes are as accelerate prepares them: in autocast, and
        what they give in float32."""
        if self.accelerator.mixed_precision != "bf16":
            yield
            return
        own, forward = net.__dict__.get("forward"), net.forward
        in_bf16 = torch.autocast(self.args.device.type, dtype=torch.bfloat16)
        net.forward = convert_outputs_to_fp32(in_bf16(forward))  # type: ignore[method-assign]
        try:
            yield
        finally:
            if own is None:
                del net.forward
            else:
                net.forward = own  # type: ignore[method-assign]

    def samples_of(self, dataset: Any, description: str) -> "tuple[Any, Any]":
        """The samples, and what makes a batch of them, without columns that the model does not take."""
        collate = self.data_collator
        if hasattr(dataset, "column_names") and hasattr(dataset, "set_format"):  # of the package datasets
            return self._remove_unused_columns(dataset, description=description), collate
        return dataset, self._get_collator_with_removed_columns(collate, description=description)

    def _data(self) -> "tuple[Any, Any]":
        return self.samples_of(self.train_dataset, "training")

    def _plan(self) -> Plan:
        args = self.args
        size = args.per_device_train_batch_size
        sampler = self._get_train_sampler() if is_own(self, "_get_train_sampler") else None  # transformers' own have all samples
        samples = len(sampler if hasattr(sampler, "__len__") else self.train_dataset)
        batches = samples // size if args.dataloader_drop_last else -(-samples // size)
        plan = Plan(0, 0, max(1, batches), args.gradient_accumulation_steps)
        of_epoch = plan.steps_of_epoch()
        plan.steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * of_epoch)
        plan.epochs = -(-plan.steps // of_epoch) if args.max_steps > 0 else math.ceil(args.num_train_epochs)

        def every(strategy: Any, given: "Optional[float]") -> int:
            if strategy not in ("epoch", "steps"):
                return 0
            number = of_epoch if strategy == "epoch" else given or 0
            return int(number) if number >= 1 else math.ceil(plan.steps * number)

        plan.every = every(args.save_strategy, args.save_steps)
        plan.evaluate_every = every(args.eval_strategy, args.eval_steps)
        if self._held_out is not None:
            plan.sets, plan.evaluated = self._held_out.sets, self._evaluated
        return plan

    def _given(self, resume: Any, others: "Mapping[str, Any]") -> "dict[str, Any]":
        """Of starling.train(). Raises Refused."""
        args = self.args
        self._refuse(others)
        resume = args.resume_from_checkpoint if resume is None else resume
        resume = {"true": True, "false": False}.get(resume.lower(), resume) if isinstance(resume, str) else resume  # of a command line
        if resume not in (None, True, False):
            raise Refused(f"resume_from_checkpoint must be True or False, is {resume!r}: a job goes on from the"
                          f" checkpoints in its own output_dir, {args.output_dir}")
        self._look_at_held_out()
        plan = self._plan()
        steps = plan.steps
        schedule, floor = _SCHEDULES[str(args.lr_scheduler_type.value)]
        warmup = 0 if args.lr_scheduler_type == "constant" else args.get_warmup_steps(steps)
        given: "dict[str, Any]" = dict(
            steps=steps, micro_batches=args.gradient_accumulation_steps, batch_size=args.per_device_train_batch_size,
            optimizer=AdamW(args.learning_rate, warmup, floor, (args.adam_beta1, args.adam_beta2), args.adam_epsilon,
                            args.weight_decay),
            schedule=schedule, clip=args.max_grad_norm or 0.0,
            seed=args.seed, out=args.output_dir, collate=self._data()[1], metrics=[FLOS], sampler=self._get_train_sampler())
        if args.dataloader_num_workers:
            given["num_workers"] = args.dataloader_num_workers
        if plan.every:
            given.update(checkpoint=os.path.join(args.output_dir, "checkpoints"), checkpoint_every=plan.every,
                         resume=bool(resume), keep=KEEP_MAX if args.load_best_model_at_end else args.save_total_limit or 2)
        if plan.evaluate_every:
            given.update(self._of_held_out(plan, given["collate"]))
        for name in self._job:
            if name in ("local_steps", "outer"):
                raise Refused(f"job has {name}, with which TrainingArguments' steps and epochs would be others: starling.train()"
                              " takes it")
            if name not in _OF_JOB:
                near = difflib.get_close_matches(name, _OF_JOB, 1)
                raise Refused(f"job has {name}, which starling.train() does not take" + (f": {near[0]}?" if near else ""))
            if name in given and name != "evaluate_metrics":
                raise Refused(f"job has {name}, which TrainingArguments say")
        return {**given, **self._job}

    def _look_at_held_out(self) -> None:
        """Raises Refused."""
        args = self.args
        self._held_out = None
        if args.eval_strategy == "no" and not args.eval_on_start:
            return
        if is_own(self, "evaluate"):
            raise Refused(f"{type(self).__name__} has an evaluate() of its own, which no worker would call: evaluation_loop(),"
                          " prediction_step() and compute_metrics() are called")
        self._held_out = HeldOut(self, args.per_device_train_batch_size)
        given = self._job.get("evaluate_metrics")
        self._evaluated = list(self._held_out.names() if given is None else given)
        if args.load_best_model_at_end:
            plan = self._plan()
            if args.save_total_limit is not None:
                raise Refused(f"save_total_limit={args.save_total_limit} with load_best_model_at_end: a job keeps so many of the"
                              " newest checkpoints, and the best may be older; leave save_total_limit out")
            if plan.steps > KEEP_MAX * plan.every:
                raise Refused(f"load_best_model_at_end with {plan.steps // plan.every} checkpoints, of which a job keeps"
                              f" {KEEP_MAX} at most: save_steps")
        wanted = (args.metric_for_best_model or "loss").removeprefix("eval_")
        if wanted not in ("loss", *self._evaluated):
            raise Refused(f"metric_for_best_model is {args.metric_for_best_model}, an evaluation measures"
                          f" {', '.join(['loss', *self._evaluated])}")

    def _of_held_out(self, plan: Plan, collate: Any) -> "dict[str, Any]":
        """Of starling.train()."""
        held_out, names = self._held_out, self._evaluated
        assert held_out is not None
        return dict(validation=held_out.data, evaluate_every=plan.evaluate_every, evaluate_metrics=names,
                    evaluate=lambda net, parts: held_out.evaluate(net, parts, names),
                    collate=lambda samples: samples if isinstance(samples[0], Part) else collate(samples))

    def _refuse(self, others: "Mapping[str, Any]") -> None:
        """Raises Refused for what would not be as in transformers."""
        args = self.args
        if str(args.lr_scheduler_type.value) not in _SCHEDULES:
            raise Refused(f"lr_scheduler_type is {args.lr_scheduler_type.value}, a job has {', '.join(_SCHEDULES)}")
        if str(getattr(args.optim, "value", args.optim)) not in _OPTIMIZERS:
            raise Refused(f"optim is {getattr(args.optim, 'value', args.optim)}, the job has {_OPTIMIZERS[0]}")
        if args.save_strategy not in ("no", "steps", "epoch"):
            raise Refused(f"save_strategy is {args.save_strategy.value}, a job has no, steps, epoch")
        for name, default in vars(self._usual).items():
            value = getattr(args, name, default)
            if name.startswith("_") or name in _MAPPED | _OTHERS or value == default:
                continue
            if name in type(self._usual).__dataclass_fields__:
                raise Refused(f"TrainingArguments have {name}={getattr(value, 'value', value)!r}, which a job has not")
        self._refuse_by_environment()
        for name in ("optimizers", "optimizer_cls_and_kwargs", "model_init"):
            if self._asked.get(name) not in (None, (None, None)):
                raise Refused(f"Trainer was given {name}, but the optimizer is the job's and the model is made before it")
        for name in ("optimizer", "lr_scheduler", "optimizer_cls_and_kwargs", "model_init"):  # by place, or put there later
            if getattr(self, name, None) is not None:
                raise Refused(f"the Trainer has {name}, but the optimizer is the job's and the model is made before it")
        if getattr(self, "loss_is_scaled_for_ga", None):
            raise Refused("the Trainer has loss_is_scaled_for_ga=True, but a step's loss is the mean over its micro-batches")
        for name in _NOT_OWN:
            if is_own(self, name):
                raise Refused(f"{type(self).__name__} has a {name}() of its own, which no process would call:"
                              " compute_loss() and the data collator are called")
        streamed = isinstance(self.train_dataset, torch.utils.data.IterableDataset)
        if streamed or not hasattr(self.train_dataset, "__len__") or not hasattr(self.train_dataset, "__getitem__"):
            raise Refused(f"train_dataset must have __len__ and __getitem__, is a {type(self.train_dataset).__name__}")
        for name, value in others.items():
            if value is not None:
                raise Refused(f"train() was given {name}, which a job has not")
        for callback in self._callbacks():
            own = [name for name in dir(transformers.TrainerCallback) if name.startswith("on_") and name not in CALLED
                   and getattr(type(callback), name) is not getattr(transformers.TrainerCallback, name)]
            if own and not type(callback).__module__.startswith("transformers.integrations."):
                raise Refused(f"the callback {type(callback).__name__} has {own[0]}(), which a job does not call: it calls"
                              f" {', '.join(CALLED[1:-1])}")
        if args.weight_decay:
            wanted = set(self.get_decay_parameter_names(self.model))
            for name, p in self.model.named_parameters():
                if p.requires_grad and (name in wanted) != (p.dim() >= 2):
                    raise Refused(f"weight_decay of {name}, which has {p.dim()} dimensions, would differ from"
                                  " transformers': a job has it for parameters of two or more")

    def _refuse_by_environment(self) -> None:
        """`accelerate launch` says by the environment what TrainingArguments do not show. Raises Refused."""
        precision, compiled = self.accelerator.mixed_precision, self.accelerator.state.dynamo_plugin.backend.value
        if precision not in ("no", "bf16"):
            raise Refused(f"ACCELERATE_MIXED_PRECISION is {precision} in the environment, a job has no, bf16")
        if compiled != "NO":
            raise Refused(f"ACCELERATE_DYNAMO_BACKEND is {compiled} in the environment, which a job has not")
        if self.args.world_size > 1:
            raise Refused(f"the script was launched as {self.args.world_size} processes (WORLD_SIZE in the environment): start it"
                          f" once, with job={{\"workers\": {self.args.world_size}}}")

    def _callbacks(self) -> "list[Any]":
        """Without those that every Trainer has for its own loop, among them the progress bar."""
        return [one for one in self.callback_handler.callbacks
                if type(one).__module__ not in ("transformers.trainer_callback", "transformers.utils.notebook")
                or isinstance(one, transformers.EarlyStoppingCallback)]
