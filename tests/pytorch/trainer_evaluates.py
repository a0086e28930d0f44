#!/usr/bin/env python3
"""starling.hf.Trainer with held-out data: the callbacks are called as transformers' own Trainer calls them, the losses are
those that it finds, and have the same bits for every number of workers and through a kill.

  trainer_evaluates.py STARLING

Run it with an interpreter that has torch, transformers, accelerate and the starling package."""

import json
import os
import random
import subprocess
import sys
import time

import same_bits
from cases import digest_in, environment, run, said, written

os.environ.update(STARLING=os.path.abspath(sys.argv[1]), HF_HUB_OFFLINE="1")
STEPS = 30
SCRIPT = """
import json, os, sys, time
import torch, transformers
import starling
if os.environ.get("PLAIN"):
    from transformers import Trainer
else:
    from starling.hf import Trainer

MODE = os.environ.get("MODE", "losses")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    def forward(self, x, labels=None):
        if self.training:
            time.sleep(float(os.environ.get("PACE", "0")))
        logits = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

class Data(torch.utils.data.Dataset):
    def __init__(self, first, count):
        x = torch.randn(96, 8, generator=torch.Generator().manual_seed(2))[first:first + count]
        self.x, self.labels = x, (x[:, 0] * x[:, 1] > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.labels[i]}

class Telling(transformers.TrainerCallback):
    told = []

for name in ("train_begin", "epoch_begin", "step_begin", "step_end", "log", "evaluate", "save", "epoch_end", "train_end"):
    def tell(self, args, state, control, name=name, logs=None, metrics=None, **_):
        about = logs or metrics or {}
        self.told.append([name, state.global_step, state.epoch, sorted(k for k in about if not k.endswith(("_runtime", "_second")))])
    setattr(Telling, "on_" + name, tell)

class Enough(transformers.TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **_):
        control.should_training_stop = metrics["eval_loss"] < 0.62

if __name__ == "__main__":
    out = os.environ["OUT"]
    named = {}
    if MODE == "metrics":
        named = dict(compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean()),
                                                "count": len(p.label_ids)})
    elif MODE == "sets":
        named = dict(eval_dataset={"a": Data(80, 5), "b": Data(85, 11)})
    args = dict(per_device_train_batch_size=4, per_device_eval_batch_size=3, gradient_accumulation_steps=3, max_steps=30,
                learning_rate=0.03, lr_scheduler_type="constant", use_cpu=True, report_to="none", logging_steps=4,
                weight_decay=0.0, eval_strategy="steps", eval_steps=5, save_strategy="no", remove_unused_columns=False,
                disable_tqdm=True)
    if MODE == "epochs":
        args.update(eval_strategy="epoch", save_strategy="epoch", logging_strategy="epoch", max_steps=-1, num_train_epochs=2.5,
                    logging_first_step=True, eval_on_start=True, metric_for_best_model="loss")
    if MODE in ("stop", "early"):
        args.update(save_strategy="steps", save_steps=5, max_steps=200, metric_for_best_model="loss", greater_is_better=False)
        args.update(load_best_model_at_end=MODE == "early")
    callbacks = [Telling(), *([Enough()] if MODE == "stop" else []),
                 *([transformers.EarlyStoppingCallback(2, 0.02)] if MODE == "early" else [])]
    job = {} if os.environ.get("PLAIN") else {"job": {"workers": int(os.environ["WORKERS"]), "lease_ms": 10000}}
    named = {"eval_dataset": Data(80, 16), **named}
    trainer = Trainer(model=Net(), args=transformers.TrainingArguments(output_dir=out, **args), train_dataset=Data(0, 80),
                      callbacks=callbacks, **named, **job)
    trainer.train(resume_from_checkpoint=bool(os.environ.get("AGAIN")))
    trainer.save_state()
    with open(os.path.join(out, "told.txt"), "w") as file:
        told = list(Telling.told)  # evaluate() adds to it
        json.dump({"told": told, "own": trainer.evaluate()}, file)
"""


def trained(folder, name, mode, **more):
    """The trainer_state, what was told, what transformers' own loop finds at the end, and all that was said."""
    out = os.path.join(folder, name)
    text = said(written(folder, "train.py", SCRIPT), MODE=mode, OUT=out, **more)
    return of_run(out) + (text,)


def of_run(out):
    with open(os.path.join(out, "trainer_state.json"), encoding="utf-8") as file:
        state = json.load(file)
    with open(os.path.join(out, "told.txt"), encoding="utf-8") as file:
        told = json.load(file)
    return state, told["told"], told["own"]


def evaluations(state):
    return [entry for entry in state["log_history"] if any(key.startswith("eval_") for key in entry)]


def callbacks_are_called_as_by_transformers(folder):
    for mode in ("epochs", "sets"):
        states, told = {}, {}
        for name in ("PLAIN", "OURS"):
            states[name], told[name], own, _ = trained(folder, f"{name}-{mode}", mode, WORKERS="1",
                                                       **({name: "1"} if name == "PLAIN" else {}))
        for one, other in zip(told["PLAIN"], told["OURS"]):
            assert one == other, (mode, one, other)
        assert len(told["PLAIN"]) == len(told["OURS"]), told
        differ = [key for key, value in states["PLAIN"].items()
                  if key not in ("log_history", "best_metric", "best_global_step", "best_model_checkpoint")
                  and states["OURS"][key] != value]
        assert not differ, [(key, states["PLAIN"][key], states["OURS"][key]) for key in differ]
        last = {key: value for entry in evaluations(states["OURS"])[-2:] for key, value in entry.items()}
        for key, value in own.items():
            if key.endswith("_loss"):
                assert abs(last[key] - value) < 1e-6, (mode, key, last, own)


def the_bits_are_the_same_for_every_number_of_workers_and_through_a_kill(folder):
    for mode in ("losses", "metrics"):
        one, _, own, text = trained(folder, f"one-{mode}", mode, WORKERS="1")
        found = evaluations(one)
        assert [entry["step"] for entry in found] == [5, 10, 15, 20, 25, 30], found
        for key in ("eval_loss", *(["eval_accuracy", "eval_count"] if mode == "metrics" else [])):
            assert abs(found[-1][key] - own[key]) < 1e-6, (key, found[-1], own)
        out = os.path.join(folder, f"three-{mode}")
        job = same_bits.Run("", 3, STEPS, [], script=os.path.join(folder, "train.py"),
                            **environment(WORKERS="3", MODE=mode, OUT=out, PACE="0.02"))
        job.out = out
        done = same_bits.disturb(job, STEPS, 1, random.Random(1), kinds=["worker"])
        code, text_of_three = job.wait(), job.text()
        job.close()
        assert code == 0 and done["worker"] == 1, f"{code}: {done}: {text_of_three[-2000:]}"
        assert evaluations(of_run(out)[0]) == found, (evaluations(of_run(out)[0]), found)
        assert digest_in(text_of_three) == digest_in(text)


def a_callback_ends_the_training_at_one_step(folder):
    for mode in ("stop", "early"):
        ends = []
        for workers in ("1", "3"):
            state, told, own, text = trained(folder, f"{mode}-{workers}", mode, WORKERS=workers)
            if mode == "early":  # it has the best model, which is not the last
                assert 0 < state["best_global_step"] < state["global_step"], state
                assert abs(own["eval_loss"] - state["best_metric"]) < 1e-6 < abs(evaluations(state)[-1]["eval_loss"] - own["eval_loss"])
                assert os.path.exists(os.path.join(state["best_model_checkpoint"], "manifest.json")), state
            assert [entry[1] for entry in told if entry[0] == "step_end"] == list(range(1, state["global_step"] + 1)), told
            ends.append((state["global_step"], state["best_metric"], state["best_global_step"], evaluations(state),
                         digest_in(text)))
        assert ends[0] == ends[1] and ends[0][0] < 200 and ends[0][0] % 5 == 0, ends


def a_run_that_goes_on_stops_where_an_undisturbed_one_does(folder):
    """The process that was started is killed, with what it knows of the callbacks."""
    out = os.path.join(folder, "killed")
    *wanted, text = trained(folder, "quiet", "early", WORKERS="1")
    process = subprocess.Popen([sys.executable, os.path.join(folder, "train.py")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=environment(MODE="early", OUT=out, WORKERS="1", PACE="0.05"))
    while not os.path.exists(os.path.join(out, "checkpoints", "step-000000010", "manifest.json")):
        assert process.poll() is None, process.returncode
        time.sleep(0.05)
    process.kill()
    process.wait()
    state, told, own, again = trained(folder, "killed", "early", WORKERS="2", AGAIN="1")
    assert digest_in(text) == digest_in(again) and told == wanted[1], (told, wanted[1])
    assert evaluations(state) == evaluations(wanted[0]) and state["best_metric"] == wanted[0]["best_metric"], state
    assert own["eval_loss"] == wanted[2]["eval_loss"], (own, wanted[2])


def the_parts_of_an_evaluation_make_that_of_transformers(folder):
    """Whatever the sizes of batches are, also where there are more batches than a job takes."""
    import torch
    import transformers

    from starling import hf_held_out
    from starling.hf import Trainer, training

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x, labels=None):
            logits = self.layer(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    def data(count):
        x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count))
        return [{"x": row, "labels": (row.sum() > 0).long()} for row in x]

    most, hf_held_out.BATCHES_MAX = hf_held_out.BATCHES_MAX, 4
    try:
        for count, size, drop in ((8, 4, False), (9, 4, False), (11, 4, True), (37, 2, False), (37, 2, True), (5, 8, False)):
            args = transformers.TrainingArguments(output_dir=folder, use_cpu=True, per_device_eval_batch_size=size,
                                                  remove_unused_columns=False, dataloader_drop_last=drop, report_to="none",
                                                  disable_tqdm=True)
            one = Trainer(model=Net(), args=args, train_dataset=data(8), eval_dataset=data(count))
            with training(one):
                held = hf_held_out.HeldOut(one, 3)
                parts = [held.data[i] for i in range(len(held.data))]
                jobs = [parts[i:i + 3] for i in range(0, len(parts), 3)]
                losses = [held.evaluate(one.model.eval(), batch, ()) for batch in jobs]
                wanted = one.evaluate()["eval_loss"]
            assert len(jobs) <= 4 and len(parts) % 3 == 0, (count, size, len(jobs), len(parts))
            assert abs(sum(losses) / len(losses) - wanted) < 1e-6, (count, size, drop, losses, wanted)
            other = Trainer(model=one.model, args=args, train_dataset=data(8), eval_dataset=data(count + 1))
            assert hf_held_out.HeldOut(other, 3).identity() != held.identity() == hf_held_out.HeldOut(one, 3).identity()
    finally:
        hf_held_out.BATCHES_MAX = most


if __name__ == "__main__":
    try:
        import accelerate  # noqa: F401
    except ImportError:
        print("skipped: there is no accelerate here (pip install accelerate)\n0 passed, 0 failed")
        sys.exit(0)
    sys.exit(run(the_parts_of_an_evaluation_make_that_of_transformers, callbacks_are_called_as_by_transformers,
                 a_callback_ends_the_training_at_one_step, a_run_that_goes_on_stops_where_an_undisturbed_one_does,
                 the_bits_are_the_same_for_every_number_of_workers_and_through_a_kill))
