#!/usr/bin/env python3
"""starling.hf.Trainer and examples/pytorch/hf_trainer.py.

  trainer.py STARLING

Run it with an interpreter that has torch, transformers, accelerate and the starling package. Without accelerate, which
transformers' own Trainer needs, it says so and shows nothing."""

import contextlib
import io
import json
import os
import random
import signal
import sys
import time
from unittest import mock

import same_bits
from cases import ROOT, digest_in, environment, run, said, without_starling, written
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

    how = evaluated(folder, text_in(folder), 15)
    base_of(folder, "gpt2")
    digests = [digest_in(said(SCRIPT, *arguments(folder, os.path.join(folder, f"out-{w}"), dataloader_num_workers=loaders, **how),
                              WORKERS=str(w))) for w, loaders in ((1, 0), (3, 2))]
    job = same_bits.Run("", 3, STEPS, arguments(folder, os.path.join(folder, "killed"), dataloader_num_workers=1, **how), script=SCRIPT,
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
    found = [logged(os.path.join(folder, out), "eval_loss", "eval_accuracy") for out in ("out-1", "out-3", "killed")]
    assert len(found[0]) == 4 and found[0] == found[1] == found[2], found


def evaluated(folder, text, every):
    """Further arguments: a part of the text is held out."""
    with open(text, encoding="utf-8") as file:
        held = file.read()[:700]
    return {"validation_file": written(folder, "held-out.txt", held), "eval_strategy": "steps", "eval_steps": every,
            "per_device_eval_batch_size": 3}


def logged(out, *names):
    """Of a folder's log_history: step and these values, where the first of them is."""
    with open(os.path.join(out, "trainer_state.json"), encoding="utf-8") as file:
        return [[entry["step"], *(entry[name] for name in names)] for entry in json.load(file)["log_history"] if names[0] in entry]


def plain_script(folder):
    """The example as it is without Starling."""
    return without_starling(folder, SCRIPT, CHANGED)


def losses_are_those_of_transformers_own_trainer(folder):
    """With as many samples as a step has, no dropout and a constant rate nothing but rounding differs."""
    base_of(folder, "llama")
    text = written(folder, "text.txt", "the same bits whoever computes, " * 4)  # 8 samples of 16 tokens
    how = dict(evaluated(folder, text, 10), kind="llama", max_steps=30, lr_scheduler_type="constant", warmup_steps=0, logging_steps=1,
               weight_decay=0.1, max_grad_norm=0.5)
    losses, held_out = [], []
    for script, out in ((plain_script(folder), "plain"), (SCRIPT, "ours")):
        said(script, *arguments(folder, os.path.join(folder, out), **how), WORKERS="2")
        losses.append([loss for _, loss in logged(os.path.join(folder, out), "loss")])
        held_out.append(logged(os.path.join(folder, out), "eval_loss", "eval_accuracy"))
    furthest = max(abs(a - b) for a, b in zip(*losses))
    print(f"       losses from {losses[1][0]:.4f} to {losses[1][-1]:.4f}, within {furthest:.1e} of transformers' own")
    assert len(losses[0]) == len(losses[1]) == 30 and losses[1][-1] < losses[1][0] - 1 and furthest < 1e-4, losses
    states = []
    for out in ("plain", "ours"):
        with open(os.path.join(folder, out, "trainer_state.json"), encoding="utf-8") as file:
            states.append({key: value for key, value in json.load(file).items() if key != "log_history"})
    assert states[0] == states[1] and states[0]["total_flos"] > 0, states
    assert [step for step, *_ in held_out[0]] == [step for step, *_ in held_out[1]] == [10, 20, 30], held_out
    assert all(abs(a - b) < 1e-4 for one, other in zip(*held_out) for a, b in zip(one, other)), held_out


def the_order_is_that_of_transformers_sampler(folder):
    """Of four steps in an epoch, each of which has the samples that it has there; a sampler that draws has one digest."""
    base_of(folder, "llama")
    text = written(folder, "text.txt", "".join(f"{i} green bottles, " * 2 for i in range(18))[:512])  # 32 samples of 16 tokens
    how = dict(kind="llama", max_steps=12, lr_scheduler_type="constant", warmup_steps=0, logging_steps=1, train_sampling_strategy="sequential")
    losses = []
    for script, out in ((plain_script(folder), "plain"), (SCRIPT, "ours")):
        said(script, *arguments(folder, os.path.join(folder, out), train_file=text, **how), WORKERS="2")
        losses.append([loss for _, loss in logged(os.path.join(folder, out), "loss")])
    furthest = max(abs(a - b) for a, b in zip(*losses))
    assert len(losses[0]) == len(losses[1]) == 12 and furthest < 1e-4, (furthest, losses)
    grouped = [logged(place, "loss") for place in (os.path.join(folder, f"grouped-{workers}") for workers in "13") if said(
        SCRIPT, *arguments(folder, place, train_file=text, **{**how, "train_sampling_strategy": "group_by_length"}), WORKERS=place[-1])]
    assert grouped[0] == grouped[1] and [loss for _, loss in grouped[0]] != losses[1], grouped


def in_bf16_they_are_those_of_transformers_too(folder):
    """bf16=True is autocast: weights stay float32. A rounding to eight bits is one in 256 of a value."""
    base_of(folder, "llama")
    text = written(folder, "text.txt", "the same bits whoever computes, " * 4)
    how = dict(evaluated(folder, text, 10), kind="llama", max_steps=20, lr_scheduler_type="constant", warmup_steps=0,
               logging_steps=1, weight_decay=0.1, bf16="True")
    found = []
    for name, script, workers in (("plain", plain_script(folder), 1), ("one", SCRIPT, 1), ("three", SCRIPT, 3)):
        said(script, *arguments(folder, os.path.join(folder, name), **how), WORKERS=str(workers))
        found.append([logged(os.path.join(folder, name), of) for of in ("loss", "eval_loss")])
    plain, one, three = found
    assert one == three and len(one[0]) == 20 and len(one[1]) == 2, (one, three)
    furthest = max(abs(a - b) for mine, theirs in zip(one, plain) for (_, a), (_, b) in zip(mine, theirs))
    assert furthest < 2e-2 and one[0][-1][1] < one[0][0][1] - 0.5, (furthest, one, plain)
    in_single = os.path.join(folder, "single")
    said(SCRIPT, *arguments(folder, in_single, **{**how, "bf16": "False"}), WORKERS="1")
    assert logged(in_single, "loss") != one[0], "bf16=True changes nothing"
    print(f"       within {furthest:.1e} of transformers' own")


def the_state_that_is_saved_is_that_of_transformers_own_trainer(folder):
    """But for what depends on the course of the training, and the operations, which nobody counts here."""
    text_in(folder)
    base_of(folder, "gpt2")
    for number, how in enumerate((dict(max_steps=9, logging_steps=0.3), dict(max_steps=-1, num_train_epochs=0.3, save_steps=0.5),
                                  dict(max_steps=100, dataloader_drop_last=True))):
        states = []
        for script, out in ((plain_script(folder), "plain"), (SCRIPT, "ours")):
            place = os.path.join(folder, f"{out}-{number}")
            said(script, *arguments(folder, place, **how), WORKERS="1")
            with open(os.path.join(place, "trainer_state.json"), encoding="utf-8") as file:
                states.append({name: value for name, value in json.load(file).items()
                               if name not in ("log_history", "total_flos")})
        epochs = [state.pop("epoch") for state in states]  # added up there, and one quotient here
        assert abs(epochs[0] - epochs[1]) < 1e-12, f"{how}: {epochs}"
        assert states[0] == states[1] and states[1]["num_train_epochs"] > 0, f"{how}: {states}"


def the_rate_is_transformers_linear_one_step_later(folder):
    """Linear is what a Trainer has if nothing is said."""
    import torch
    from transformers import get_linear_schedule_with_warmup

    text_in(folder)
    base_of(folder, "gpt2")
    for warmup in (0, 4):
        out = os.path.join(folder, f"linear-{warmup}")
        said(SCRIPT, *arguments(folder, out, max_steps=12, lr_scheduler_type="linear", warmup_steps=warmup), WORKERS="2")
        with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
            rates = {event["version"]: event["rate"] for event in map(json.loads, file) if event["ev"] == "step"}
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.003)
        theirs = get_linear_schedule_with_warmup(optimizer, warmup, 12)
        for step in range(12):
            optimizer.step()
            theirs.step()
            assert abs(rates[step] - theirs.get_last_lr()[0]) < 1e-15, (warmup, step, rates, theirs.get_last_lr())


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

    from starling.hf import Trainer

    class Stepping(TrainerCallback):
        def on_optimizer_step(self, args, state, control, **others):
            pass

    class Freezing(TrainerCallback):
        def on_train_begin(self, args, state, control, model=None, **others):
            model[0].requires_grad_(False)

    class Evaluating(Trainer):
        def evaluate(self, *_, **__):
            return {}

    class Own(Trainer):
        def training_step(self, *_):
            pass

    class Sampling(Trainer):
        def _get_train_sampler(self, *_):
            return [0, 999]

    def having(name, value):
        def made(**given):
            one = Trainer(**given)
            setattr(one, name, value)
            return one
        return made

    def by_place(model, args, train_dataset):
        return Trainer(model, args, None, train_dataset, *[None] * 6, (torch.optim.SGD(model.parameters()), None))

    held = [{"x": torch.ones(4), "labels": torch.ones(1)}] * 3
    rows = [({}, None, Sampling, "sampler= is a list, expected starling.Weighted(weights)"),
            ({}, None, having("loss_is_scaled_for_ga", True), "loss_is_scaled_for_ga=True, but a step's loss is the mean over its micro-batches"),
            ({}, None, having("optimizer", torch.optim.SGD([torch.zeros(1)])), "the Trainer has optimizer, but the optimizer is the job's"),
            ({}, None, by_place, "the Trainer has optimizer, but the optimizer is the job's"),
            ({}, None, having("get_train_dataloader", list), "Trainer has a get_train_dataloader() of its own"),
            ({}, None, having("train_dataset", iter(())), "train_dataset must have __len__ and __getitem__, is a tuple_iterator"),
            ({"lr_scheduler_type": "polynomial"}, None, Trainer, "lr_scheduler_type is polynomial, a job has cosine"),
            ({"optim": "adafactor"}, None, Trainer, "optim is adafactor, the job has adamw_torch"),
            ({"eval_strategy": "steps", "eval_delay": 2}, {"eval_dataset": held}, Trainer, "eval_delay=2, which a job has not"),
            ({"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, "save_total_limit": 3},
             {"eval_dataset": held}, Trainer, "save_total_limit=3 with load_best_model_at_end"),
            ({"eval_strategy": "epoch"}, {"eval_dataset": held}, Evaluating, "Evaluating has an evaluate() of its own"),
            ({"eval_strategy": "epoch", "metric_for_best_model": "f1"}, {"eval_dataset": held}, Trainer,
             "metric_for_best_model is f1, an evaluation measures loss"),
            ({"fp16": True}, None, Trainer, "TrainingArguments have fp16=True, which a job has not"),
            ({"neftune_noise_alpha": 5.0}, None, Trainer, "neftune_noise_alpha=5.0, which a job has not"),
            ({"resume_from_checkpoint": "elsewhere"}, None, Trainer, "resume_from_checkpoint must be True or False"),
            ({"save_strategy": "no"}, {"callbacks": [EarlyStoppingCallback()]}, Trainer,
             "the callback EarlyStoppingCallback needs checkpoints"),
            ({}, {"callbacks": [Stepping()]}, Trainer, "Stepping has on_optimizer_step(), which a job does not call"),
            ({}, {"callbacks": [Freezing()]}, Trainer, "a callback has changed the model in on_train_begin"),
            ({}, {"optimizers": (torch.optim.SGD([torch.zeros(1)]), None)}, Trainer, "Trainer was given optimizers"),
            ({}, {"job": {"steps": 3}}, Trainer, "job has steps, which TrainingArguments say"),
            ({}, {"job": {"worker": 3}}, Trainer, "job has worker, which starling.train() does not take: workers?"),
            ({}, None, Own, "Own has a training_step() of its own")]
    for changes, others, cls, wanted in rows:
        is_refused(cls, folder, others, changes, wanted)


def epochs_are_those_of_a_sampler_of_its_own(folder):
    import torch

    from starling.hf import Trainer

    class Half(Trainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SubsetRandomSampler(range(0, 8, 2))

    for cls, steps in ((Trainer, 12), (Half, 6)):
        one = trainer(cls, folder, max_steps=-1, num_train_epochs=3, per_device_train_batch_size=2)
        assert one._plan().steps == steps == 3 * len(one.get_train_dataloader()), (cls, one._plan())


def is_refused(cls, folder, others, changes, wanted):
    from starling import Failed

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


def what_accelerate_takes_from_the_environment_is_heeded_or_refused(folder):
    """`accelerate launch` has no other way to say it, and TrainingArguments do not show it."""
    import torch
    from transformers import TrainingArguments

    from starling.hf import Trainer

    class Own(Trainer):
        def compute_loss(self, model, inputs, **_):
            return model(inputs["x"]).square().mean()

    types = []
    for value in ("no", "bf16"):
        with mock.patch.dict(os.environ, ACCELERATE_MIXED_PRECISION=value):
            one = trainer(Own, folder)
            one.model[0].register_forward_hook(lambda module, given, made: types.append(made.dtype))
            assert one._loss(one.model, {"x": torch.ones(1, 4)})[0].dtype == torch.float32
    assert types == [torch.float32, torch.bfloat16], types
    for name, value, wanted in (("ACCELERATE_MIXED_PRECISION", "fp16", "ACCELERATE_MIXED_PRECISION is fp16 in the environment"),
                                ("ACCELERATE_DYNAMO_BACKEND", "eager", "ACCELERATE_DYNAMO_BACKEND is EAGER in the environment")):
        with mock.patch.dict(os.environ, {name: value}):
            is_refused(Trainer, folder, None, {}, wanted)
    with mock.patch.object(TrainingArguments, "world_size", 2):
        is_refused(Trainer, folder, None, {}, 'launched as 2 processes (WORLD_SIZE in the environment): start it once, with job={"workers": 2}')


def what_transformers_does_around_a_loss_is_done(folder):
    """The context in which it computes a loss, the tokens that it gives a model when a training begins, and the sampler of
    held-out data."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments

    from starling.hf import Trainer
    from starling.hf_held_out import HeldOut

    class Own(Trainer):
        def compute_loss_context_manager(self):
            return torch.autocast("cpu", torch.bfloat16)

        def _get_eval_sampler(self, _):
            return torch.utils.data.SubsetRandomSampler([1, 3])

        def compute_loss(self, model, inputs, return_outputs=False, **_):
            value = model(inputs["x"]).square().mean()
            return (value, {"loss": value, "logits": value.reshape(1)}) if return_outputs else value

    held = [{"x": torch.full((4,), float(i)), "labels": torch.ones(1)} for i in range(4)]
    one = trainer(Own, folder, {"eval_dataset": held}, per_device_eval_batch_size=2, label_names=["labels"])
    in_bf16 = one._loss(one.model, {"x": torch.ones(1, 4)})[0]
    assert in_bf16.dtype == torch.bfloat16, in_bf16.dtype
    held_out = HeldOut(one, 2)
    assert list(held_out.names()) == []
    found = held_out.evaluate(one.model.eval(), [0, 1], [])[0]
    wanted = one.evaluate()["eval_loss"]
    assert abs(found - wanted) < 1e-6 and len(held_out.data) == 2, (found, wanted)

    base = base_of(folder, "gpt2")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.pad_token_id = 7
    model = AutoModelForCausalLM.from_pretrained(base)
    assert model.config.pad_token_id != 7
    Trainer(model=model, args=TrainingArguments(output_dir=os.path.join(folder, "out"), use_cpu=True, report_to="none"),
            train_dataset=held, processing_class=tokenizer)._begin()
    assert model.config.pad_token_id == 7, model.config


def a_subclass_has_its_loss_its_collator_and_callbacks_that_read(folder):
    import torch
    from transformers import TrainerCallback

    from starling.hf import StateInWorker, Trainer
    from starling.script import Refused

    class Own(Trainer):
        def compute_loss(self, model, inputs, **_):
            return (model(inputs["x"]) - inputs["labels"]).square().mean() * 3

    class Reading(TrainerCallback):
        def __init__(self):
            self.logs, self.ends = [], 0

        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                self.logs.append((state.global_step, logs["loss"]))

        def on_train_end(self, args, state, control, **_):
            self.ends += 1

    def collate(samples):
        return {name: torch.stack([sample[name] for sample in samples]) * 2 for name in samples[0]}

    reading = Reading()
    one = trainer(Own, folder, {"data_collator": collate, "callbacks": [reading]}, logging_steps=2, max_steps=6)
    given = one._given(None, {})
    one._begin()
    in_worker = trainer(Own, folder)
    in_worker.state.__class__ = StateInWorker
    assert in_worker.state.max_steps == 0
    try:
        raise AssertionError(f"a worker knows step {in_worker.state.global_step}")
    except Refused as why:
        assert "state.global_step is read by what the workers compute" in str(why), why
    net, data = one._build()
    assert net.training and given["steps"] == 6 and given["checkpoint_every"] == 500
    batch = given["collate"]([data[0]])
    value, measured = one._loss(net, batch)
    assert measured == {"flos": 0.0}, measured
    assert torch.equal(batch["x"], torch.full((1, 4), 2.0))
    assert torch.equal(value, (net(batch["x"]) - 2.0).square().mean() * 3)
    before = net[0].weight.detach().clone()
    with torch.no_grad():
        net[0].weight.zero_()
    again, _ = one._build()  # for first parameters, when the net has others by now
    assert torch.equal(again[0].weight, before)
    out = os.path.join(folder, "events")
    os.mkdir(out)
    written(out, "events.jsonl", events(0, range(6)))
    assert told_in(one, out) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert reading.logs == [(2, 0.5), (4, 2.5), (6, 4.5)] and reading.ends == 1, vars(reading)


def told_in(one, out, *first):
    """The losses of the steps of which a folder knows, after they were told to a trainer's callbacks. first: records that
    come before."""
    from starling.hf import Loop, training

    one.args.output_dir = out
    with training(one, one._callbacks()):
        loop = Loop(one, one._plan(), stops=False)
        loop.begin()
        for record in first:
            loop.step(record)
        loop.catch_up()
        loop.end()
    return list(loop.losses.values())


def events(begins, losses):
    """Of a run that goes on after so many steps, a line each."""
    start = {"ev": "start", "from": begins, "job": "", "samples": 8, "micro_batches": 1, "sequences": 8, "steps": 6}
    steps = [{"ev": "step", "version": begins + i, "loss": float(loss), "norm": 1.0, "skipped": False, "world": 2,
              "ms": 1.0, "time": ""} for i, loss in enumerate(losses)]
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in [start, *steps])


def what_a_callback_asks_and_a_job_cannot_is_refused(folder):
    from transformers import TrainerCallback

    from starling.hf import Trainer
    from starling.script import Refused

    class Asking(TrainerCallback):
        def __init__(self, flag):
            self.flag = flag

        def on_step_end(self, args, state, control, model=None, **_):
            if state.global_step == 3:
                _ = model.parameters() if self.flag == "model" else setattr(control, self.flag, True)

    out = os.path.join(folder, "events")
    os.mkdir(out)
    written(out, "events.jsonl", events(0, range(6)))
    for flag, wanted in (("should_training_stop", "should_training_stop at step 3, which needs checkpoints"),
                         ("should_epoch_stop", "should_epoch_stop at step 3, and a job has no epoch"),
                         ("should_evaluate", "should_evaluate at step 3, at which the job does not evaluate"),
                         ("should_save", "should_save at step 3, at which the job writes no checkpoint"),
                         ("model", "reads model.parameters while the job trains"), ("should_log", "")):
        one = trainer(Trainer, folder, {"callbacks": [Asking(flag)]}, logging_steps=2, max_steps=6)
        try:
            told_in(one, out)
            assert not wanted and [(e["step"], e["loss"]) for e in one.state.log_history] == [
                (2, 0.5), (3, 2.0), (4, 3.0), (6, 4.5)], (flag, one.state.log_history)
        except Refused as why:
            assert wanted and wanted in str(why), (flag, why)


def a_run_that_goes_on_tells_of_all_steps(folder):
    from starling.hf import Trainer
    from starling.records import StepRecord

    out = os.path.join(folder, "events")
    os.makedirs(os.path.join(out, "run-1"))
    written(out, os.path.join("run-1", "events.jsonl"), events(0, (0, 1, 2, 30, 40)))
    written(out, "events.jsonl", events(3, (3, 4, 5)))
    one = trainer(Trainer, folder, logging_steps=2, max_steps=6)
    assert told_in(one, out) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [(e["step"], e["loss"]) for e in one.state.log_history] == [(2, 0.5), (4, 2.5), (6, 4.5)], one.state.log_history
    # Of a run that goes on the first that a process is told is not the first step.
    one = trainer(Trainer, folder, logging_steps=2, max_steps=6)
    fourth = StepRecord(4, 3.0, 1.0, None, 0.0, 8)
    assert told_in(one, out, fourth) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [(e["step"], e["loss"]) for e in one.state.log_history] == [(2, 0.5), (4, 2.5), (6, 4.5)], one.state.log_history
    os.rename(os.path.join(out, "run-1"), os.path.join(folder, "elsewhere"))
    one, told = trainer(Trainer, folder, logging_steps=2, max_steps=6), io.StringIO()
    with contextlib.redirect_stderr(told):
        assert told_in(one, out) == [3.0, 4.0, 5.0]
    assert f"{out} tells nothing of 3 steps of 6" in told.getvalue(), told.getvalue()
    assert [(e["step"], e["loss"]) for e in one.state.log_history] == [(6, 4.5)], one.state.log_history


def a_trainer_that_goes_on_tells_what_an_undisturbed_one_does(folder):
    """Killed between two checkpoints and two lines of its log."""
    text = text_in(folder)
    base_of(folder, "gpt2")
    how = dict(evaluated(folder, text, 40), max_steps=200, save_strategy="steps", save_steps=7, logging_steps=5)
    quiet, out = os.path.join(folder, "quiet"), os.path.join(folder, "killed")
    wanted = said(SCRIPT, *arguments(folder, quiet, **how), WORKERS="1")
    job = same_bits.Run("", 1, 200, arguments(folder, out, **how), script=SCRIPT, **environment(WORKERS="1"))
    while not os.path.exists(os.path.join(out, "checkpoints", "step-000000007", "manifest.json")):
        assert job.process.poll() is None, job.text()
        time.sleep(0.05)
    job.process.send_signal(signal.SIGTERM)
    code, text = job.wait(), job.text()
    job.close()
    assert code in (143, 0), f"{code}: {text[-2000:]}"  # 0: it was faster than the signal
    again = said(SCRIPT, *arguments(folder, out, resume_from_checkpoint="True", **how), WORKERS="1")
    states = [logged(place, "loss", "epoch", "learning_rate", "grad_norm") + logged(place, "eval_loss", "eval_accuracy")
              for place in (quiet, out)]
    assert digest_in(wanted) == digest_in(again) and states[0] == states[1] and len(states[0]) == 45, states
    told = [[line for line in text.splitlines() if line.startswith(("steps 200, loss ", "accuracy "))] for text in (wanted, again)]
    assert told[0] == told[1] and len(told[0]) == 2, told


TWICE = """
import os
import torch, transformers
import starling
from starling.hf import Trainer

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    def forward(self, x, labels=None):
        return {"loss": torch.nn.functional.cross_entropy(self.layers(x), labels)}

x = torch.randn(32, 8, generator=torch.Generator().manual_seed(2))
data = [{"x": row, "labels": int(row[0] > 0)} for row in x]
out, net = os.environ["OUT"], Net()
if os.environ.get("FROM"):
    starling.load(os.environ["FROM"], net)
trainer = Trainer(model=net, train_dataset=data, job={"workers": int(os.environ["WORKERS"]), "lease_ms": 10000},
                  args=transformers.TrainingArguments(out + "-1", max_steps=4, learning_rate=0.03, use_cpu=True, report_to="none",
                                                      save_strategy="no", remove_unused_columns=False, disable_tqdm=True))
if not os.environ.get("FROM"):
    trainer.train()
trainer.args.output_dir = out + "-2"
trainer.train()
kept = starling.load(out + "-2")
assert all(torch.equal(kept[name], value) for name, value in trainer.model.state_dict().items()), "the Trainer has another model"
"""


def train_once_more_goes_on_from_the_trained_model(folder):
    script = written(folder, "twice.py", TWICE)
    out = os.path.join(folder, "one")
    twice = digest_in(said(script, OUT=out, WORKERS="1"))
    apart = digest_in(said(script, OUT=os.path.join(folder, "apart"), FROM=out + "-1", WORKERS="1"))
    assert twice == apart, f"{twice}, and {apart} of a Trainer that was given the trained model"
    two = digest_in(said(script, OUT=os.path.join(folder, "two"), WORKERS="2"))
    assert two == twice, f"{twice} by one worker, {two} by two"
    again = said(script, OUT=out, WORKERS="1", STARLING_RESUME="1")
    assert digest_in(again) == twice, again


if __name__ == "__main__":
    try:
        import accelerate  # noqa: F401
    except ImportError:
        print("skipped: there is no accelerate here (pip install accelerate)\n0 passed, 0 failed")
        sys.exit(0)
    sys.exit(run(what_a_job_has_not_is_refused_by_its_name, what_accelerate_takes_from_the_environment_is_heeded_or_refused,
                 what_transformers_does_around_a_loss_is_done, train_once_more_goes_on_from_the_trained_model,
                 a_subclass_has_its_loss_its_collator_and_callbacks_that_read,
                 what_a_callback_asks_and_a_job_cannot_is_refused, a_run_that_goes_on_tells_of_all_steps,
                 a_trainer_that_goes_on_tells_what_an_undisturbed_one_does,
                 losses_are_those_of_transformers_own_trainer, the_order_is_that_of_transformers_sampler,
                 epochs_are_those_of_a_sampler_of_its_own, in_bf16_they_are_those_of_transformers_too,
                 the_state_that_is_saved_is_that_of_transformers_own_trainer, the_rate_is_transformers_linear_one_step_later,
                 any_number_of_workers_gives_one_model_also_through_kills))
