#!/usr/bin/env python3
"""starling.lightning.Trainer: the losses of Lightning's own, the same bits for 1 and 3 workers, and what is refused.

  lightning_trainer.py STARLING

Run it with an interpreter that has torch, lightning and the starling package. Without lightning it says so and shows
nothing."""

import contextlib
import io
import json
import os
import sys
from unittest import mock

from cases import digest_in, run, said, written

os.environ.update(STARLING=os.path.abspath(sys.argv[1]))
MODULE = """
import json, os
import torch, lightning
import starling

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

        self.factor = 100.0

    def setup(self, stage):
        self.factor = 1.0 if stage == "fit" else 0.0

    def _loss(self, batch):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layers(x), y)

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch) * (1 + 0.1 * self.current_epoch) * self.factor
        assert batch_idx < 6, batch_idx
        self.log("train_loss", loss)
        self.log("mean", loss, on_step=False, on_epoch=True)
        self.log("both", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log_dict({"val_loss": self._loss(batch)}, prog_bar=True)

    def on_test_epoch_end(self):
        pass  # of no fit()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

def data(first, count):
    x = torch.randn(80, 8, generator=torch.Generator().manual_seed(2))[first:first + count]
    return torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())

def loaders():
    return (torch.utils.data.DataLoader(data(0, int(os.environ.get("SAMPLES", "32"))), batch_size=8, shuffle=True),
            torch.utils.data.DataLoader(data(32, 40), batch_size=8))
"""
SCRIPT = """
from module import *
if os.environ.get("PLAIN"):
    from lightning import Trainer
    more = dict(logger=False, enable_checkpointing=False, num_sanity_val_steps=0, accelerator="cpu")
else:
    from starling.lightning import Trainer
    more = dict(job={"workers": int(os.environ["WORKERS"]), "lease_ms": 10000})

class Telling(lightning.Callback):
    told, means = [], []

for name in ("fit_start", "train_start", "validation_end", "train_epoch_end", "train_end", "fit_end"):
    def tell(self, trainer, pl_module, name=name):
        self.told.append([name, trainer.global_step, trainer.current_epoch, sorted(trainer.callback_metrics)])
        if name == "train_epoch_end":
            self.means.append([trainer.callback_metrics[name].item() for name in ("mean", "both", "both_epoch")])
    setattr(Telling, "on_" + name, tell)

if __name__ == "__main__":
    net = Net()
    more.update(precision=os.environ.get("PRECISION"))
    trainer = Trainer(max_epochs=6, accumulate_grad_batches=4, gradient_clip_val=1.0, default_root_dir=os.environ["OUT"],
                      enable_progress_bar=False, enable_model_summary=False, callbacks=[Telling()], **more)
    trainer.fit(net, *loaders())
    with torch.no_grad():
        loss = float(net._loss(data(32, 40)[:]))
    ended = [trainer.callback_metrics[name].item() for name in ("val_loss", "mean", "both", "both_epoch")]
    print("FOUND", json.dumps([*ended, loss, *sum(Telling.means, [])]))
    print("TOLD", json.dumps(Telling.told))
"""


def trained(folder, **more):
    written(folder, "module.py", MODULE)
    text = said(written(folder, "train.py", SCRIPT), **more)
    return json.loads(text[text.index("FOUND") + 6:].split("\n")[0]), text


def told(text):
    return json.loads(text[text.index("TOLD") + 5:].split("\n")[0])


def losses_are_lightnings_and_bits_those_of_any_number_of_workers(folder):
    plain, text_of_plain = trained(folder, PLAIN="1", OUT=os.path.join(folder, "plain"))
    one, text = trained(folder, WORKERS="1", OUT=os.path.join(folder, "one"))
    three, text_of_three = trained(folder, WORKERS="3", OUT=os.path.join(folder, "three"))
    assert one == three and digest_in(text) == digest_in(text_of_three), (one, three)
    assert told(text_of_plain) == told(text) == told(text_of_three), (told(text_of_plain), told(text))
    assert len(plain) == 5 + 3 * 6 and all(abs(a - b) < 1e-5 for a, b in zip(plain, one)) and abs(one[0] - one[4]) < 1e-6, (plain, one)


def in_mixed_precision_they_are_lightnings_too(folder):
    """But for the last bit of eight."""
    plain, _ = trained(folder, PLAIN="1", PRECISION="bf16-mixed", OUT=os.path.join(folder, "plain"))
    one, text = trained(folder, WORKERS="1", PRECISION="bf16-mixed", OUT=os.path.join(folder, "one"))
    three, text_of_three = trained(folder, WORKERS="3", PRECISION="bf16", OUT=os.path.join(folder, "three"))
    assert one == three and digest_in(text) == digest_in(text_of_three), (one, three)
    assert len(plain) == len(one) and all(abs(a - b) < 1e-2 for a, b in zip(plain, one)), (plain, one)
    single, _ = trained(folder, WORKERS="1", OUT=os.path.join(folder, "single"))
    assert single != one, "precision changes nothing"


def a_loader_that_does_not_shuffle_has_lightnings_order(folder):
    """Of several steps in an epoch, each of which has the samples that it has in Lightning."""
    text = MODULE.replace("< 6", "< 12").replace("shuffle=True", "shuffle=False")
    found = []
    for name, more in (("plain", {"PLAIN": "1"}), ("one", {"WORKERS": "1"}), ("three", {"WORKERS": "3"})):
        written(folder, "module.py", text)
        said_then = said(written(folder, "train.py", SCRIPT), SAMPLES="64", OUT=os.path.join(folder, name), **more)
        found.append(json.loads(said_then[said_then.index("FOUND") + 6:].split("\n")[0]))
    plain, one, three = found
    assert one == three and len(one) == 5 + 3 * 6 and all(abs(a - b) < 1e-5 for a, b in zip(plain, one)), (plain, one, three)


def an_epoch_is_lightnings_where_steps_do_not_divide_it(folder):
    """Ten batches and four of them in a step: an epoch has three steps, as in Lightning. A run that goes on has the means of
    its last epoch too, of which a process before was told a part."""
    written(folder, "module.py", MODULE.replace("< 6", "< 12").replace('self.log("mean", loss', 'self.log("mean", self.current_epoch'))
    epochs = []
    for out in ("plain", "ours"):
        where = os.path.join(folder, out)
        text = said(written(folder, "train.py", SCRIPT), SAMPLES="80", OUT=where, WORKERS="1", **{"PLAIN": "1"} if out == "plain" else {})
        epochs.append(json.loads(text[text.index("FOUND") + 6:].split("\n")[0])[5::3])
    assert epochs[0] == epochs[1] == [0, 1, 2, 3, 4, 5], epochs
    with open(os.path.join(where, "told.json"), encoding="utf-8") as file:
        assert json.load(file)["on_step"] == 18
    again = said(os.path.join(folder, "train.py"), SAMPLES="80", OUT=where, WORKERS="1", STARLING_RESUME="1")
    assert json.loads(again[again.index("FOUND") + 6:].split("\n")[0])[1] == 5, again


def what_lightning_takes_from_the_environment_is_heeded(folder):
    """PL_TRAINER_NAME, where the script does not give it."""
    from starling.lightning import Trainer

    given = dict(PL_TRAINER_PRECISION="bf16-mixed", PL_TRAINER_MAX_EPOCHS="3", PL_TRAINER_GRADIENT_CLIP_VAL="0.5", PL_TRAINER_MAX_STEPS="")
    with mock.patch.dict(os.environ, given):
        one = Trainer(max_epochs=2, default_root_dir=folder)
    assert (one.max_epochs, one.max_steps, one._clip, one._others) == (2, -1, 0.5, {"precision": "bf16-mixed"}), vars(one)


def what_a_job_has_not_is_refused_by_its_name(folder):
    written(folder, "module.py", MODULE)
    sys.path.insert(0, folder)
    import lightning
    import module
    import torch
    from lightning.pytorch.callbacks import Callback, EarlyStopping, WeightAveraging

    from starling import Failed
    from starling.lightning import Trainer

    class Ending(module.Net):
        def on_train_epoch_end(self):
            pass

    class Numbered(module.Net):
        def validation_step(self, batch, batch_idx):
            if batch_idx == 0:
                self.log("val_loss", self._loss(batch))

    class Late(module.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self._loss(batch) * self.current_epoch)

    class Legacy(module.Net):
        def validation_epoch_end(self, outputs):
            pass

    class Turned(lightning.LightningDataModule):
        def train_dataloader(self):
            return shuffled

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch

    class Two(module.Net):
        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), 0.1), torch.optim.SGD(self.parameters(), 0.1)]

    class Sum(module.Net):
        def training_step(self, batch, batch_idx):
            self.log("n", 1.0, reduce_fx="sum")

    class Nosy(module.Net):
        def training_step(self, batch, batch_idx):
            return self.trainer.optimizers

    class Batches(Callback):
        def on_train_batch_end(self, *_):
            pass

    class Averaging(WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            return True

    class Freezing(Callback):
        def on_train_start(self, trainer, pl_module):
            pl_module.layers[0].requires_grad_(False)

    shuffled, held_out = module.loaders()
    samples, Own = module.data(0, 32), type("Own", (torch.utils.data.DataLoader,), {"__iter__": None})
    part = torch.utils.data.DataLoader(samples, 8, sampler=torch.utils.data.distributed.DistributedSampler(samples, 2, 0))
    own = Own(samples, 8, shuffle=True)
    drawn = torch.utils.data.DataLoader(samples, 8, sampler=torch.utils.data.SubsetRandomSampler([1, 2]))
    rows = [({"precision": "16-mixed"}, module.Net, shuffled, "precision='16-mixed', which a job has not"),
            ({"devices": 4}, module.Net, shuffled, "devices=4, which a job has not: job={\"workers\""),
            ({"callbacks": [Batches()]}, module.Net, shuffled, "Batches has on_train_batch_end(), which a job does not call"),
            ({"callbacks": [EarlyStopping("val_loss")]}, module.Net, shuffled, "EarlyStopping "),
            ({"callbacks": [Averaging()]}, module.Net, shuffled, "Averaging is one of Lightning's own"),
            ({"environment": {"PL_TRAINER_PRECISION": "16-mixed"}}, module.Net, shuffled, "precision='16-mixed', which a job has not"),
            ({"environment": {"PL_TRAINER_DEVICES": "2"}}, module.Net, shuffled, "devices=2, which a job has not"),
            ({}, lambda: torch.compile(module.Net()), shuffled, "fit() was given a OptimizedModule, expected a LightningModule"),
            ({"accelerator": "tpu"}, module.Net, shuffled, "accelerator='tpu', which a job has not"),
            ({"callbacks": [Freezing()]}, module.Net, shuffled, "a callback has changed the module"),
            ({"limit_train_batches": 3}, module.Net, shuffled, "limit_train_batches=3"),
            ({"limit_val_batches": 1}, module.Net, shuffled, "limit_val_batches=1,"),
            ({"val_check_interval": 1}, module.Net, shuffled, "val_check_interval=1,"),
            ({"num_nodes": 2}, module.Net, shuffled, "num_nodes=2,"),
            ({}, Legacy, shuffled, "Legacy has a validation_epoch_end() of its own"),
            ({}, module.Net, Turned(), "Turned has a on_after_batch_transfer() of its own"),
            ({}, module.Net, part, "the sampler is a DistributedSampler: leave it out"),
            ({}, module.Net, own, "Own is a DataLoader with an iteration of its own"),
            ({"held_out": drawn}, module.Net, shuffled, "validation is a DataLoader with a SubsetRandomSampler"),
            ({"max_epochs": None}, module.Net, shuffled, "neither max_steps= nor max_epochs="),
            ({"max_epochs": 0, "max_steps": 4}, module.Net, shuffled, "max_epochs=0, expected a whole number above 0"),
            ({"max_steps": 0}, module.Net, shuffled, "max_steps=0, expected a whole number above 0"),
            ({"max_epochs": 1.5}, module.Net, shuffled, "max_epochs=1.5, expected a whole number above 0"),
            ({"accumulate_grad_batches": 0}, module.Net, shuffled, "accumulate_grad_batches=0, expected a whole number above 0"),
            ({"accumulate_grad_batches": {0: 2}}, module.Net, shuffled, "accumulate_grad_batches={0: 2}, expected a whole number"),
            ({}, module.Net, [1, 2], "must be a torch.utils.data.DataLoader"),
            ({}, Ending, shuffled, "Ending has a on_train_epoch_end() of its own"), ({}, Numbered, shuffled, "reads batch_idx"),
            ({}, Late, shuffled, "current_epoch is read by validation_step()"),
            ({}, Two, shuffled, "returns 2 optimizers"), ({}, Sum, shuffled, "reduce_fx='sum'"),
            ({}, Nosy, shuffled, "trainer.optimizers is read"), ({"job": {"steps": 3}}, module.Net, shuffled, "job has steps")]
    if not torch.cuda.is_available():
        rows.append(({"accelerator": "gpu"}, module.Net, shuffled, "accelerator='gpu', and PyTorch"))
    for changes, kind, loader, wanted in rows:
        told = io.StringIO()
        try:
            with contextlib.redirect_stderr(told), mock.patch.dict(os.environ, changes.pop("environment", {})):
                held = changes.pop("held_out", held_out)
                Trainer(**{"max_epochs": 2, "default_root_dir": os.path.join(folder, "out"), **changes}).fit(kind(), loader, held)
        except Failed as failed:
            assert failed.code == 2, failed
        else:
            raise AssertionError(f"trained with {changes} {kind}")
        lines = [line for line in told.getvalue().splitlines() if line.startswith("starling: ")]
        assert len(lines) == 1 and wanted in lines[0], f"expected {wanted}: {told.getvalue()}"


if __name__ == "__main__":
    try:
        import lightning  # noqa: F401
    except ImportError:
        print("skipped: there is no lightning here (pip install lightning)\n0 passed, 0 failed")
        sys.exit(0)
    sys.exit(run(what_a_job_has_not_is_refused_by_its_name, what_lightning_takes_from_the_environment_is_heeded,
                 an_epoch_is_lightnings_where_steps_do_not_divide_it, a_loader_that_does_not_shuffle_has_lightnings_order,
                 losses_are_lightnings_and_bits_those_of_any_number_of_workers,
                 in_mixed_precision_they_are_lightnings_too))
