"""The loop of transformers' Trainer as its callbacks and its TrainerState know it, told from the records of a job: its
state is a function of the records, so that it is the same for any number of workers and where a run goes on."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from dataclasses import dataclass
from typing import Any, Iterator, Optional, Sequence

from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback, ExportableState, TrainerControl, TrainerState

from .away import Away, outline
from .best import path_of
from .records import Course, StepRecord, history
from .script import Refused

FLOS = "flos"  # the metric of the loss by which total_flos is counted
# Of callbacks: what is called.
CALLED = ("on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end", "on_log", "on_evaluate",
          "on_save", "on_epoch_end", "on_train_end", "on_predict")


@dataclass
class Plan:
    """How transformers counts steps: an epoch is a pass over the data with a short batch at its end.

    steps    in all
    epochs   in all, the last one begun
    batches  of an epoch
    per_step  micro-batches of a step
    every    a checkpoint is written after so many steps; 0: none
    evaluate_every  the held-out data are evaluated after so many steps, and at the end; 0: never
    evaluated  names of what is measured beside the loss
    sets     names of the sets of held-out data; None where there is one, which has no name"""

    steps: int
    epochs: int
    batches: int
    per_step: int
    every: int = 0
    evaluate_every: int = 0
    evaluated: "Sequence[str]" = ()
    sets: "Optional[Sequence[str]]" = None

    def steps_of_epoch(self) -> int:
        return max(1, -(-self.batches // self.per_step))

    def epoch(self, step: int) -> float:
        """After so many steps."""
        whole, more = divmod(step, self.steps_of_epoch())
        return whole + more * self.per_step / self.batches if more else float(whole)

    def evaluates(self, step: int) -> bool:
        return self.evaluate_every > 0 and (step % self.evaluate_every == 0 or step == self.steps)


class StateInWorker(TrainerState):
    """The state in a process that computes, which does not know how far the training is."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("global_step", "epoch", "log_history", "best_metric", "best_global_step", "best_model_checkpoint",
                    "total_flos", "num_input_tokens_seen"):
            raise Refused(f"state.{name} is read by what the workers compute, which do not know it: callbacks do, in the process"
                          " that was started by hand")
        return super().__getattribute__(name)


def checkpoint_of(args: Any, step: int) -> str:
    return path_of(os.path.join(args.output_dir, "checkpoints"), step)


@contextlib.contextmanager
def training(trainer: Any, callbacks: "Sequence[Any]" = ()) -> "Iterator[None]":
    """While it trains: these are its callbacks, and no progress bar is among them."""
    before = trainer.callback_handler
    trainer.callback_handler = CallbackHandler([DefaultFlowCallback(), *callbacks], trainer.model, trainer.processing_class,
                                               None, None)
    trainer.is_in_train = True
    try:
        yield
    finally:
        trainer.callback_handler, trainer.is_in_train = before, False


class Loop:
    """trainer    whose state and control it leads, and whose callbacks it calls, within training()
    stops      whether the job can end with the step at which a callback says so"""

    def __init__(self, trainer: Any, plan: Plan, stops: bool) -> None:
        self._trainer, self._plan, self._stops = trainer, plan, stops
        self._logged = 0  # the step of the last log
        self.losses: "dict[int, float]" = {}  # of the steps that were told

    # ---- Begin and end -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Raises Refused."""
        trainer = self._trainer
        trainer.control = TrainerControl()
        trainer.state = state = TrainerState(stateful_callbacks=[*self._stateful()])
        state.train_batch_size = trainer.args.per_device_train_batch_size
        state.compute_steps(trainer.args, self._plan.steps)
        state.init_training_references(trainer, self._plan.steps, self._plan.epochs, None)
        before = outline(trainer.model)
        self._call("on_train_begin")
        if outline(trainer.model) != before:
            raise Refused("a callback has changed the model in on_train_begin, which the workers do not see: change it before"
                          " the Trainer is made")
        trainer.callback_handler.model = Away(trainer.model)

    def end(self) -> None:
        """When the trained model is there."""
        self._trainer.callback_handler.model = self._trainer.model
        self._call("on_train_end")

    def _stateful(self) -> "Iterator[Any]":
        return (one for one in [*self._trainer.callback_handler.callbacks, self._trainer.control] if isinstance(one, ExportableState))

    def _call(self, event: str, *more: Any) -> None:
        trainer = self._trainer
        trainer.control = getattr(trainer.callback_handler, event)(trainer.args, trainer.state, trainer.control, *more)

    # ---- Steps -------------------------------------------------------------------------------------------------------

    def _from_folder(self, before: float = math.inf) -> None:
        """Tells the steps of which the folder of the run knows and that were not told, up to this one."""
        for start, event in history(self._trainer.args.output_dir, with_last=True):
            record = Course(start, [FLOS], self._plan.evaluated).step(event)
            if record.step < before:
                self._tell(record)

    def catch_up(self) -> None:
        """When the job is done."""
        self._from_folder()
        steps = self._trainer.state.global_step
        if len(self.losses) < steps:
            print(f"starling: {self._trainer.args.output_dir} tells nothing of {steps - len(self.losses)} steps of {steps}:"
                  " log_history and train_loss are those of the others", file=sys.stderr)

    def step(self, record: StepRecord) -> bool:
        """The next step; nothing of one that was told before. Of a run that goes on it may be the first that was not told
        to the process before. Returns whether a callback has the training end with it. Raises Refused for what a callback
        asks of the loop that a job cannot do."""
        if record.step > self._trainer.state.global_step + 1:
            self._from_folder(record.step)
        return self._tell(record)

    def _tell(self, record: StepRecord) -> bool:
        trainer, plan = self._trainer, self._plan
        state = trainer.state
        if record.step <= state.global_step:
            return False
        if state.global_step % plan.steps_of_epoch() == 0:
            self._call("on_epoch_begin")
        self._call("on_step_begin")
        state.global_step, state.epoch = record.step, plan.epoch(record.step)
        self.losses[record.step] = record.loss
        flos = record.metrics.get(FLOS, 0.0) * plan.per_step
        state.total_flos += flos if math.isfinite(flos) else 0.0
        self._call("on_step_end")
        self._log_evaluate_save(record)
        if trainer.control.should_training_stop or record.step % plan.steps_of_epoch() == 0:
            self._call("on_epoch_end")
            self._log_evaluate_save(record)
        if trainer.control.should_epoch_stop:
            raise Refused(f"a callback has set should_epoch_stop at step {record.step}, and a job has no epoch to leave")
        if not trainer.control.should_training_stop or record.step >= plan.steps:
            return False
        if not self._stops:
            raise Refused(f"a callback has set should_training_stop at step {record.step}, which needs checkpoints, as workers"
                          " are further by then: save_strategy=\"steps\"")
        return True

    def _log_evaluate_save(self, record: StepRecord) -> None:
        """As transformers' _maybe_log_save_evaluate()."""
        trainer = self._trainer
        if trainer.control.should_log and record.step > self._logged:
            window = [self.losses[i] for i in range(self._logged + 1, record.step + 1) if i in self.losses]
            if len(window) == record.step - self._logged:
                logs = {"loss": math.fsum(window) / len(window), "grad_norm": record.norm}
                if record.rate is not None:
                    logs["learning_rate"] = record.rate
                trainer.log(logs)
            self._logged = record.step
        if trainer.control.should_evaluate:
            self._evaluate(record)
        if trainer.control.should_save:
            self._save(record.step)

    def _evaluate(self, record: StepRecord) -> None:
        trainer, plan = self._trainer, self._plan
        if record.evaluation is None:
            trainer.control.should_evaluate = False
            if plan.evaluates(record.step):  # a disk took no lines
                print(f"starling: nothing is known of the evaluation of step {record.step}", file=sys.stderr)
                return
            raise Refused(f"a callback has set should_evaluate at step {record.step}, at which the job does not evaluate: eval_steps")
        values = {f"eval_{name}": value for name, value in record.evaluation.values().items()}
        found: "dict[str, float]" = {}
        for own in self.by_set(values):
            self.tell_evaluation(own)
            found.update(own)
        trainer._determine_best_metric(found, None)

    def by_set(self, values: "dict[str, float]") -> "Iterator[dict[str, float]]":
        """Of each set of held-out data what is measured on it."""
        if self._plan.sets is None:
            yield values
            return
        prefixes = sorted((f"eval_{name}_" for name in self._plan.sets), key=len, reverse=True)
        of = {key: next((p for p in prefixes if key.startswith(p)), None) for key in values}
        for name in self._plan.sets:
            yield {key: value for key, value in values.items() if of[key] == f"eval_{name}_"}

    def tell_evaluation(self, metrics: "dict[str, float]") -> None:
        self._trainer.log(metrics)
        self._call("on_evaluate", metrics)

    def _save(self, step: int) -> None:
        trainer, plan = self._trainer, self._plan
        if step != plan.steps and not (plan.every and step % plan.every == 0):
            raise Refused(f"a callback has set should_save at step {step}, at which the job writes no checkpoint: save_steps")
        trainer.state.stateful_callbacks = TrainerState(stateful_callbacks=[*self._stateful()]).stateful_callbacks
        if trainer.args.load_best_model_at_end and trainer.state.best_global_step:
            trainer.state.best_model_checkpoint = checkpoint_of(trainer.args, trainer.state.best_global_step)
        self._call("on_save")
