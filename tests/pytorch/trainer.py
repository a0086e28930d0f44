#!/usr/bin/env python3
"""starling.hf.Trainer and examples/pytorch/hf_trainer.py.

  trainer.py STARLING

Run it with an interpreter that has torch, transformers, accelerate and the starling package. Without accelerate, which
transformers' own Trainer needs, it says so and shows nothing."""

import contextlib
import difflib
import io
import json
import os
import random
import sys

import same_bits
from cases import ROOT, digest_in, environment, run, said, written
from language import base_of, text_in

STARLING = os.path.abspath(sys.argv[1])
os.environ.update(STARLING=STARLING, HF_HUB_OFFLINE="1")
SCRIPT = os.path.join(ROOT, "examples", "pytorch", "hf_trainer.py")
STEPS = 60
CHANGED = (("import os\n", ""),
           ("from starling.hf import Trainer\n", "from transformers import Trainer\n"),
           ('        job={"workers": int(os.environ.get("WORKERS", "2"))},\n', ""))


def arguments(folder, out, kind="gpt2", **changes):
    chosen = {"model_name_or_path": os.path.join(folder, kind), "train_file": os.path.join(folder, "text.txt"),
              "output_dir": out, "block_size": 16, "max_steps": STEPS, "per_device_train_batch_size": 2,
              "gradient_accumulation_steps": 4, "lr_scheduler_type": "cosine", "warmup_steps": 5, "learning_rate": 0.003,
              "logging_steps": 20, "report_to": "none", "save_strategy": "no", **changes}
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))] + ["--use_cpu"]


def any_number_of_workers_gives_one_model_also_through_kills(folder):
    from transformers import AutoModelForCausalLM

    text_in(folder)
    base_of(folder, "gpt2")
    digests = [digest_in(said(SCRIPT, *arguments(folder, os.path.join(folder, f"out-{w}")), WORKERS=str(w)))
               for w in (1, 3)]
    job = same_bits.Run("", 3, STEPS, arguments(folder, os.path.join(folder, "killed")), script=SCRIPT,
                        **environment(WORKERS="3"))
    job.out = os.path.join(folder, "killed")
    for kind in ("child", "worker"):
        done = same_bits.disturb(job, STEPS, 1, random.Random(1), kinds=[kind])
        assert done[kind] == 1, f"{kind}: {done}: {job.text()}"
    code, text = job.wait(), job.text()
    job.close()
    assert code == 0, text[-2000:]
    assert {digest_in(text), *digests} == {digests[0]}, (digests, digest_in(text))
    AutoModelForCausalLM.from_pretrained(os.path.join(folder, "out-1"))


def plain_script(folder):
    """The example as it is without Starling."""
    with open(SCRIPT, encoding="utf-8") as file:
        text = file.read()
    plain = text
    for ours, theirs in CHANGED:
        assert plain.count(ours) == 1, ours
        plain = plain.replace(ours, theirs)
    changed = [line for line in difflib.ndiff(plain.splitlines(), text.splitlines()) if line[0] in "+-"]
    with open(os.path.join(ROOT, "docs", "pytorch.md"), encoding="utf-8") as file:
        shown = file.read()
    assert len(changed) <= 10 and all(line[0] + line[2:] in shown for line in changed), changed
    return written(folder, "plain.py", plain)


def losses_are_those_of_transformers_own_trainer(folder):
    """With as many samples as a step has, no dropout and a constant rate nothing but rounding differs."""
    base_of(folder, "llama")
    written(folder, "text.txt", "the same bits whoever computes, " * 4)  # 8 samples of 16 tokens
    how = dict(kind="llama", max_steps=30, lr_scheduler_type="constant", warmup_steps=0, logging_steps=1,
               weight_decay=0.1, max_grad_norm=0.5)
    losses = []
    for script, out in ((plain_script(folder), "plain"), (SCRIPT, "ours")):
        said(script, *arguments(folder, os.path.join(folder, out), **how), WORKERS="2")
        with open(os.path.join(folder, out, "trainer_state.json"), encoding="utf-8") as file:
            losses.append([entry["loss"] for entry in json.load(file)["log_history"] if "loss" in entry])
    furthest = max(abs(a - b) for a, b in zip(*losses))
    print(f"       losses from {losses[1][0]:.4f} to {losses[1][-1]:.4f}, within {furthest:.1e} of transformers' own")
    assert len(losses[0]) == len(losses[1]) == 30 and losses[1][-1] < losses[1][0] - 1 and furthest < 1e-4, losses


def trainer(cls, folder, others=None, **changes):
    import torch
    from transformers import TrainingArguments

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    data = [{"x": torch.ones(4), "labels": torch.ones(1)}] * 8
    given = {"output_dir": os.path.join(folder, "out"), "lr_scheduler_type": "cosine", "max_steps": 4, "use_cpu": True,
             "report_to": "none", "remove_unused_columns": False, **changes}
    return cls(model=net, args=TrainingArguments(**given), train_dataset=data, **others or {})


def what_a_job_has_not_is_refused_by_its_name(folder):
    import torch
    from transformers import EarlyStoppingCallback, TrainerCallback

    from starling import Failed
    from starling.hf import Trainer

    class Stepping(TrainerCallback):
        def on_step_end(self, args, state, control, **others):
            pass

    class Own(Trainer):
        def training_step(self, *_):
            pass

    rows = [({"lr_scheduler_type": "polynomial"}, None, Trainer, "lr_scheduler_type is polynomial, a job has cosine"),
            ({"optim": "adafactor"}, None, Trainer, "optim is adafactor, the job has adamw_torch"),
            ({"eval_strategy": "steps", "eval_steps": 2}, {"eval_dataset": [1]}, Trainer, "call evaluate() after train()"),
            ({"bf16": True}, None, Trainer, "TrainingArguments have bf16=True, which a job has not"),
            ({"neftune_noise_alpha": 5.0}, None, Trainer, "neftune_noise_alpha=5.0, which a job has not"),
            ({"resume_from_checkpoint": "elsewhere"}, None, Trainer, "resume_from_checkpoint must be True or False"),
            ({}, {"callbacks": [EarlyStoppingCallback()]}, Trainer, "the callback EarlyStoppingCallback has "),
            ({}, {"callbacks": [Stepping()]}, Trainer, "the callback Stepping has on_step_end(), which a job does not call"),
            ({}, {"optimizers": (torch.optim.SGD([torch.zeros(1)]), None)}, Trainer, "Trainer was given optimizers"),
            ({}, {"job": {"steps": 3}}, Trainer, "job has steps, which TrainingArguments say"),
            ({}, None, Own, "Own has a training_step() of its own")]
    for changes, others, cls, wanted in rows:
        told = io.StringIO()
        try:
            with contextlib.redirect_stderr(told):
                trainer(cls, folder, others, **changes).train()
        except Failed as failed:
            assert failed.code == 2, failed
        else:
            raise AssertionError(f"trained with {changes} {others}")
        lines = [line for line in told.getvalue().splitlines() if line.startswith("starling: ")]
        assert len(lines) == 1 and wanted in lines[0], f"expected {wanted}: {told.getvalue()}"


def a_subclass_has_its_loss_its_collator_and_callbacks_that_read(folder):
    import torch
    from transformers import TrainerCallback

    from starling.hf import Trainer

    class Own(Trainer):
        def compute_loss(self, model, inputs, **_):
            return (model(inputs["x"]) - inputs["labels"]).square().mean() * 3

    class Reading(TrainerCallback):
        def __init__(self):
            self.logs, self.ends = [], 0

        def on_log(self, args, state, control, logs=None, **_):
            self.logs.append((state.global_step, logs["loss"]))

        def on_train_end(self, args, state, control, **_):
            self.ends += 1

    def collate(samples):
        return {name: torch.stack([sample[name] for sample in samples]) * 2 for name in samples[0]}

    reading = Reading()
    one = trainer(Own, folder, {"data_collator": collate, "callbacks": [reading]}, logging_steps=2, max_steps=6)
    given = one._given(None, {})
    net, data = one._build()
    assert net.training and given["steps"] == 6 and given["checkpoint_every"] == 500
    batch = given["collate"]([data[0]])
    value = one._loss(net, batch)
    assert torch.equal(batch["x"], torch.full((1, 4), 2.0))
    assert torch.equal(value, (net(batch["x"]) - 2.0).square().mean() * 3)
    before = net[0].weight.detach().clone()
    with torch.no_grad():
        net[0].weight.zero_()
    again, _ = one._build()  # for first parameters, when the net has others by now
    assert torch.equal(again[0].weight, before) and again is not net
    out = os.path.join(folder, "events")
    os.mkdir(out)
    written(out, "events.jsonl", "".join(json.dumps({"ev": "step", "version": i, "loss": float(i), "norm": 1.0}) + "\n"
                                         for i in range(6)))
    assert one._tell(out, given) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert reading.logs == [(2, 0.5), (4, 2.5), (6, 4.5)] and reading.ends == 1, vars(reading)


if __name__ == "__main__":
    try:
        import accelerate  # noqa: F401
    except ImportError:
        print("skipped: there is no accelerate here (pip install accelerate)\n0 passed, 0 failed")
        sys.exit(0)
    sys.exit(run(what_a_job_has_not_is_refused_by_its_name, a_subclass_has_its_loss_its_collator_and_callbacks_that_read,
                 losses_are_those_of_transformers_own_trainer, any_number_of_workers_gives_one_model_also_through_kills))
