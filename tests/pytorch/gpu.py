#!/usr/bin/env python3
"""Scripts whose net lies on a GPU: nets of bfloat16, Hugging Face's Trainer, Lightning's, streams that draw, a LoRA of a
bfloat16 model, an update of one's own. Each has one digest for 1 and 2 workers on the one GPU, with its state there or in
the host's memory, and the losses of a loop of PyTorch alone.

  gpu.py STARLING [--device cpu] [--only NAME,NAME]

Run it with an interpreter that has torch and the starling package; cases whose package is not there say so. Without a GPU
it says so and shows nothing; --device cpu tries the cases themselves. Exit code 1 if one fails."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys

import cases

NETS = """
import copy, os, sys
import torch, starling
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

DEVICE, KIND, STEPS, LANES, SIZE = os.environ["DEVICE"], os.environ["KIND"], 24, 4, 8
torch.manual_seed(1)
X = torch.randn(256, 16)
Y = (X @ torch.randn(16) + 0.1 * torch.randn(256))
HELD = TensorDataset(X[192:], Y[192:])

class Drawn(IterableDataset):
    identity = "drawn"
    def set_epoch(self, epoch):
        self.epoch = epoch
    def shard_sizes(self):
        return [32] * 6
    def __iter__(self):
        part = get_worker_info()
        for i in range(part.id, 192, part.num_workers):
            noise = torch.randn(16, device=DEVICE).cpu() + torch.randn(16)
            yield X[i] + 0.01 * noise, Y[i]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.mix = torch.nn.Linear(16, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)
        self.drop = torch.nn.Dropout(0.1 if KIND in ("stream", "dropout") else 0.0)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.head = torch.nn.Linear(64, 1)
        if KIND == "averaged":
            self.average = starling.moving(copy.deepcopy(self.first).requires_grad_(False))
    def forward(self, x):
        x = torch.relu(self.norm(self.first(x.to(self.first.weight.dtype))))
        return self.head(x + self.drop(self.mix(x))) * self.scale

def build():
    net = Net()
    if KIND == "bfloat16":
        net = net.to(torch.bfloat16)
    if KIND == "mixed":
        net = net.to(torch.bfloat16)
        net.mix.float().requires_grad_(False)
        net.norm.register_forward_hook(lambda m, a, y: y.float())
        net.head.register_forward_pre_hook(lambda m, a: (a[0].bfloat16(),))
    return net.to(DEVICE)

def loss(net, batch):
    if KIND == "pinned" and torch.is_grad_enabled():
        assert all(one.is_pinned() == (DEVICE == "cuda") for one in batch)
    x, y = (one.to(DEVICE) for one in batch)
    if KIND == "averaged" and torch.is_grad_enabled():
        with torch.no_grad():
            for mean, p in zip(net.average.parameters(), net.first.parameters()):
                mean.lerp_(p, 0.1)
    return ((net(x)[:, 0].float() - y) ** 2).mean()

def nadam(net):
    return torch.optim.NAdam(net.parameters(), lr=2e-3)

def sgd(net):
    return torch.optim.SGD([{"params": [net.first.weight], "lr": 0.02}, {"params": [p for p in net.parameters() if p is not net.first.weight
                            and p.requires_grad]}], lr=0.01, momentum=0.9)

if __name__ == "__main__":
    data = {"data": Drawn(), "shards": 6} if KIND == "stream" else {"data": TensorDataset(X[:192], Y[:192])}
    if KIND == "pinned":
        data = {"data": DataLoader(TensorDataset(X[:192], Y[:192]), SIZE, shuffle=True, num_workers=2, pin_memory=True)}
    if KIND == "best":
        data.update(validation=HELD, evaluate_every=4, best=lambda e: e.loss, checkpoint=os.environ["OUT"] + "-points", checkpoint_every=4)
    chosen = {"nadam": nadam, "sgd": sgd}.get(KIND, starling.AdamW(5e-3, warmup=0, floor=1.0))
    trained = starling.train(build, loss, steps=STEPS, micro_batches=LANES, batch_size=SIZE, optimizer=chosen, clip=1.0,
                             workers=int(os.environ["WORKERS"]), threads=int(os.environ.get("THREADS", "1")),
                             isa=os.environ.get("ISA", "auto"), out=os.environ["OUT"], recheck=STEPS, lease_ms=10000, **data)
    net = build()
    starling.load(trained.out, net)
    with torch.no_grad():
        print("HELD", float(loss(net.eval(), HELD[:])))
    print("RESULT digest", trained.digest)
"""


def events(out):
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def of_device(how):
    """Of a CPU a state in the host's memory is no other one."""
    return {name: value for name, value in how.items() if DEVICE != "cpu" or name != "ISA"}


def job(folder, script, name, **how):
    """Digest, losses, and what was said."""
    out = os.path.join(folder, name)
    text = cases.said(script, OUT=out, DEVICE=DEVICE, **of_device(how))
    assert not [e for e in events(out) if e["ev"] == "mismatch"], text
    return cases.digest_in(text), [e["loss"] for e in events(out) if e["ev"] == "step"], text


def nets(folder, kind, falls=0.7, more=({"WORKERS": "2"}, {"WORKERS": "1", "ISA": "avx2"}, {"WORKERS": "2", "THREADS": "2"})):
    script = cases.written(folder, "train.py", NETS)
    digest, losses, text = job(folder, script, f"{kind}-one", KIND=kind, WORKERS="1")
    assert losses[-1] < falls * losses[0], losses
    for i, how in enumerate(more):
        assert job(folder, script, f"{kind}-{i}", KIND=kind, **how)[0] == digest, f"another digest with {how}"
    return losses, text


def bfloat16_nets_have_one_digest(folder):
    nets(folder, "bfloat16")


def some_parameters_in_bfloat16_and_some_frozen(folder):
    nets(folder, "mixed")


def dropout_draws_the_same_everywhere(folder):
    nets(folder, "dropout")


def streams_that_draw_on_the_gpu(folder):
    nets(folder, "stream")


def groups_of_sgd_with_momentum(folder):
    nets(folder, "sgd")


def an_update_of_ones_own_keeps_its_state_on_the_host(folder):
    nets(folder, "nadam", 0.9, ({"WORKERS": "2"},))


def an_average_of_weights_moves(folder):
    nets(folder, "averaged")


def batches_of_loader_processes_are_pinned(folder):
    nets(folder, "pinned")


def the_best_evaluation_is_kept(folder):
    nets(folder, "best")


HF = """
import os, sys
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
if os.environ.get("PLAIN"):
    from transformers import Trainer
    more = {}
else:
    from starling.hf import Trainer
    more = {"job": {"workers": int(os.environ["WORKERS"]), "isa": os.environ.get("ISA", "auto"), "lease_ms": 10000}}
torch.manual_seed(1)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (16, 32))]
if __name__ == "__main__":
    model = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, vocab_size=64, max_position_embeddings=32))
    args = TrainingArguments(output_dir=os.environ["OUT"], max_steps=20, per_device_train_batch_size=4, gradient_accumulation_steps=4,
                             bf16=bool(os.environ.get("BF16")), learning_rate=3e-3, lr_scheduler_type="constant", logging_steps=1,
                             report_to="none", save_strategy="no", eval_strategy="steps", eval_steps=10, per_device_eval_batch_size=4,
                             use_cpu=os.environ["DEVICE"] == "cpu", disable_tqdm=True)
    trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:8], **more)
    trainer.train()
    assert next(trainer.model.parameters()).device.type == os.environ["DEVICE"]
    with torch.no_grad():
        print("EVALUATED", trainer.evaluate()["eval_loss"])
    trainer.save_state()
"""


def hugging_faces_trainer(folder):
    script = cases.written(folder, "hf.py", HF)
    for mixed in ({}, {"BF16": "1"}):
        found, digests = [], []
        for name, how in (("plain", {"PLAIN": "1"}), ("one", {"WORKERS": "1"}), ("two", {"WORKERS": "2"}), ("host", {"WORKERS": "2", "ISA": "avx2"})):
            out = os.path.join(folder, f"{name}{len(mixed)}")
            text = cases.said(script, OUT=out, DEVICE=DEVICE, **of_device(how), **mixed)
            digests += [] if name == "plain" else [cases.digest_in(text)]
            with open(os.path.join(out, "trainer_state.json"), encoding="utf-8") as file:
                logged = json.load(file)["log_history"]
            found.append([[e[key] for e in logged if key in e] for key in ("loss", "eval_loss")])
        plain, one = found[:2]
        assert len(set(digests)) == 1 and found[1] == found[2] == found[3], (digests, found)
        furthest = max(abs(a - b) for mine, theirs in zip(one, plain) for a, b in zip(mine, theirs))
        assert len(one[0]) == 20 and furthest < (3e-2 if mixed else 1e-3), (furthest, one, plain)
        print(f"       {'bf16' if mixed else 'float32'}: within {furthest:.1e} of transformers' own")


LIGHTNING = """
import json, os
import torch, lightning
torch.manual_seed(1)
X = torch.randn(80, 8)

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    def _loss(self, batch):
        assert batch["x"].device == self.device and self.device.type == os.environ["DEVICE"], (batch["x"].device, self.device)
        return torch.nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"])
    def training_step(self, batch):
        loss = self._loss(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss
    def validation_step(self, batch):
        self.log("val_loss", self._loss(batch))
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.02)

if os.environ.get("PLAIN"):
    from lightning import Trainer
    more = dict(logger=False, enable_checkpointing=False, num_sanity_val_steps=0)
else:
    from starling.lightning import Trainer
    more = dict(job={"workers": int(os.environ["WORKERS"]), "isa": os.environ.get("ISA", "auto"), "lease_ms": 10000})
if __name__ == "__main__":
    rows = [{"x": x, "y": (x[0] > 0).long()} for x in X]
    net = Net()
    trainer = Trainer(max_epochs=6, accumulate_grad_batches=4, default_root_dir=os.environ["OUT"], enable_progress_bar=False,
                      enable_model_summary=False, precision=os.environ.get("PRECISION"),
                      accelerator={"cuda": "gpu"}.get(os.environ["DEVICE"], "cpu"), devices=1, **more)
    trainer.fit(net, torch.utils.data.DataLoader(rows[:32], 8, shuffle=True), torch.utils.data.DataLoader(rows[32:72], 8))
    assert net.device.type == "cpu" and next(net.parameters()).device.type == "cpu"
    print("FOUND", json.dumps([trainer.callback_metrics[name].item() for name in ("train_loss", "val_loss")]))
"""


def lightnings_trainer(folder):
    script = cases.written(folder, "lightning_net.py", LIGHTNING)
    for precision in ({}, {"PRECISION": "bf16-mixed"}):
        found, digests = [], []
        for name, how in (("plain", {"PLAIN": "1"}), ("one", {"WORKERS": "1"}), ("two", {"WORKERS": "2"}), ("host", {"WORKERS": "2", "ISA": "avx2"})):
            text = cases.said(script, OUT=os.path.join(folder, f"{name}{len(precision)}"), DEVICE=DEVICE, **of_device(how), **precision)
            digests += [] if name == "plain" else [cases.digest_in(text)]
            found.append(json.loads(text[text.index("FOUND") + 6:].split("\n")[0]))
        plain, one = found[:2]
        assert len(set(digests)) == 1 and found[1] == found[2] == found[3], (digests, found)
        furthest = max(abs(a - b) for a, b in zip(one, plain))
        assert furthest < (2e-2 if precision else 1e-4), (one, plain)
        print(f"       {precision.get('PRECISION', 'float32')}: within {furthest:.1e} of Lightning's own")


LORA = """
import os
import torch, peft, starling
from torch.utils.data import TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

def build():
    torch.manual_seed(1)
    base = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, vocab_size=64, max_position_embeddings=32)).to(torch.bfloat16)
    net = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.05))
    return net.to(os.environ["DEVICE"]), TensorDataset(torch.randint(0, 64, (16, 32), generator=torch.Generator().manual_seed(1)))

def loss(net, batch):
    tokens = batch[0].to(os.environ["DEVICE"])
    return net(input_ids=tokens, labels=tokens).loss

if __name__ == "__main__":
    trained = starling.train(build, loss, steps=60, micro_batches=4, batch_size=4, optimizer=starling.AdamW(1e-1, warmup=0, floor=1.0),
                             workers=int(os.environ["WORKERS"]), isa=os.environ.get("ISA", "auto"), out=os.environ["OUT"],
                             recheck=60, lease_ms=10000)
    print("TYPES", *sorted({str(p.dtype) for p in build()[0].parameters() if p.requires_grad}), "loss", trained.loss)
    print("RESULT digest", trained.digest)
"""


def lora_of_a_bfloat16_model(folder):
    script = cases.written(folder, "lora.py", LORA)
    digest, losses, text = job(folder, script, "one", WORKERS="1")
    assert losses[-1] < 0.97 * losses[0], losses
    print("       " + next(line for line in text.splitlines() if line.startswith("TYPES")))
    for i, how in enumerate(({"WORKERS": "2"}, {"WORKERS": "2", "ISA": "avx2"})):
        assert job(folder, script, str(i), **how)[0] == digest, f"another digest with {how}"


CASES = {bfloat16_nets_have_one_digest: (), some_parameters_in_bfloat16_and_some_frozen: (), dropout_draws_the_same_everywhere: (),
         streams_that_draw_on_the_gpu: (), groups_of_sgd_with_momentum: (), an_update_of_ones_own_keeps_its_state_on_the_host: (),
         batches_of_loader_processes_are_pinned: (), an_average_of_weights_moves: (), the_best_evaluation_is_kept: (),
         hugging_faces_trainer: ("transformers", "accelerate"), lightnings_trainer: ("lightning",),
         lora_of_a_bfloat16_model: ("transformers", "peft")}


def main():
    chosen = []
    for case, packages in CASES.items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            print(f"skipped {case.__name__}: no {missing[0]} here")
        elif not ARGUMENTS.only or case.__name__ in ARGUMENTS.only.split(","):
            chosen.append(case)
    return cases.run(*chosen)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--only")
    ARGUMENTS = parser.parse_args()
    DEVICE = ARGUMENTS.device
    os.environ["STARLING"] = os.path.abspath(ARGUMENTS.starling)
    if DEVICE == "cuda" and subprocess.run([sys.executable, "-c", "import torch; exit(not torch.cuda.is_available())"]).returncode:
        print("skipped: PyTorch sees no GPU here\n0 passed, 0 failed")
        sys.exit(0)
    sys.exit(main())
