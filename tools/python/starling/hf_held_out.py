"""The eval_dataset of a Trainer as held-out data of a job: the losses of its batches spread over the workers, or, where
compute_metrics() wants all predictions, all of it evaluated by one of them."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import torch

from . import proof
from .script import Refused
from .validation import BATCHES_MAX


def is_own(trainer: Any, name: str) -> bool:
    """Whether a subclass has the method of its own, or it was put into the Trainer itself."""
    from transformers import Trainer

    return name in vars(trainer) or getattr(type(trainer), name, None) is not getattr(Trainer, name, None)


class Part(int):
    """One of the parts of which the job makes a batch of held-out data, which is nothing but its number."""


class Parts:
    """In the place of the Dataset: `size` for each of the job's batches."""

    def __init__(self, held_out: "HeldOut", count: int) -> None:
        self._held_out, self._count = held_out, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Part:
        return Part(number)

    def identity(self) -> bytes:
        return self._held_out.identity()


class HeldOut:
    """trainer  whose eval_dataset it is
    size     parts of one of the job's batches"""

    def __init__(self, trainer: Any, size: int) -> None:
        self._trainer, self._size = trainer, size
        given = trainer.eval_dataset
        self.sets: "Optional[list[str]]" = [str(name) for name in given] if isinstance(given, Mapping) else None
        self._all = list(given.values()) if isinstance(given, Mapping) else [given]
        for data in self._all:
            if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
                raise Refused(f"eval_dataset must have __len__ and __getitem__, is a {type(data).__name__}")
        whole = [is_own(trainer, name) for name in ("evaluation_loop", "get_eval_dataloader", "_get_eval_sampler")]
        self.whole = any(whole) or self.sets is not None or trainer.compute_metrics is not None
        self._measures = self.sets is not None or trainer.compute_metrics is not None or whole[0]
        self._batch = trainer.args.per_device_eval_batch_size
        samples = len(self._all[0])
        self._batches = samples // self._batch if trainer.args.dataloader_drop_last else -(-samples // self._batch)
        self._taken = min(samples, self._batches * self._batch)
        if not self._taken:
            raise Refused(f"eval_dataset has {samples} samples, expected at least "
                          + ("1" if not samples else f"those of a batch, per_device_eval_batch_size={self._batch}"))
        self._together = -(-self._batches // BATCHES_MAX)  # batches in one of the job's
        self._jobs = 1 if self.whole else -(-self._batches // self._together)
        self.data = Parts(self, self._jobs * size)

    def identity(self) -> bytes:
        """Of some samples of all sets, as of those that are trained on."""
        from . import module

        def seed(number: int) -> None:
            module.seed_everything(0, number)

        found = [proof.of_data(*self._read(data), self._batch, seed) + len(data).to_bytes(8, "little") for data in self._all]
        return b"".join(found)

    def _read(self, data: Any) -> "tuple[Any, Any]":
        """The samples, and what makes a batch of them."""
        samples, batch = self._trainer.samples_of(data, "evaluation")
        return samples, batch

    def names(self) -> "Sequence[str]":
        """Of what an evaluation measures beside the loss: those that it gives for one batch."""
        if not self._measures:
            return ()
        firsts = [torch.utils.data.Subset(data, range(min(self._batch, len(data)))) for data in self._all]
        return sorted(self._whole(firsts)[1])

    def evaluate(self, net: Any, parts: "Sequence[Part]", names: "Sequence[str]") -> Any:
        """As a job's evaluate()."""
        if not self.whole:
            return self._part(net, parts[0] // self._size)
        if net is not self._trainer.model:
            raise Refused("the Trainer's model is another one than the job's")
        loss, measured = self.all()
        if not set(names) <= set(measured):
            raise Refused(f"the evaluation measures {', '.join(sorted(measured)) or 'nothing'} beside the loss, and the job"
                          f" {', '.join(names)}: say job={{\"evaluate_metrics\": [..]}}")
        return loss, {name: measured[name] for name in names}

    def all(self) -> "tuple[float, dict[str, float]]":
        """Loss and all else, of the Trainer's model, by this process."""
        return self._whole([None] * len(self._all))

    def _part(self, net: Any, number: int) -> float:
        """So that the mean over the job's batches is transformers' mean, which has each batch's loss once for each of its
        samples."""
        data, collate = self._read(self._all[0])
        total = 0.0
        first = number * self._together
        for at in range(first, min(first + self._together, self._batches)):
            samples = [data[i] for i in range(at * self._batch, min((at + 1) * self._batch, self._taken))]
            with self._trainer.mixed(net):
                loss = self._trainer.prediction_step(net, collate(samples), True)[0]
            if loss is None:
                raise Refused("prediction_step() gives no loss for a batch of eval_dataset: has it labels?")
            total += float(loss) * len(samples)
        return float(total * self._jobs / self._taken)

    def _whole(self, datasets: "Sequence[Any]") -> "tuple[float, dict[str, float]]":
        """The loss and all else. datasets: None, the Trainer's own, for each set."""
        trainer, measured, losses = self._trainer, {}, []  # type: Any, dict[str, float], list[float]
        for i, given in enumerate(datasets):
            name = None if self.sets is None else self.sets[i]
            prefix = "eval" if name is None else f"eval_{name}"
            loader = trainer.get_eval_dataloader(name if given is None else given)
            metrics = dict(trainer.evaluation_loop(loader, "Evaluation", metric_key_prefix=prefix,
                                                   prediction_loss_only=True if trainer.compute_metrics is None else None).metrics)
            metrics.pop(f"{prefix}_model_preparation_time", None)
            if f"{prefix}_loss" not in metrics:
                raise Refused("an evaluation of eval_dataset gives no loss: has it labels?")
            losses.append(metrics[f"{prefix}_loss"])
            if name is None:
                del metrics["eval_loss"]
            measured.update({key.removeprefix("eval_"): value for key, value in metrics.items()})
        return sum(losses) / len(losses), measured
