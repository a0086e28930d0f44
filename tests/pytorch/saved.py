#!/usr/bin/env python3
"""The model that a script's job leaves is the whole net's, as other programs read it.

  saved.py STARLING

Run it with an interpreter that has torch, transformers and the starling package."""

import os
import subprocess
import sys

import torch

from cases import run, said, written

os.environ["STARLING"] = os.path.abspath(sys.argv[1])

HEAD = """
import os, sys
import torch, starling
from torch import nn
from torch.utils.data import TensorDataset

OUT = sys.argv[1]

def train(build, loss, **options):
    options = dict(steps=10, micro_batches=4, batch_size=4, lease_ms=10000, workers=2, out=OUT) | options
    return starling.train(build, loss, **options)
"""

WHOLE = HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((3,), 0.5, dtype=torch.bfloat16))
        self.register_buffer("seen", torch.tensor(7))
        self.register_buffer("unused", torch.zeros(2), persistent=False)
        self.small = nn.Parameter(torch.ones(2, 2, dtype=torch.float16), requires_grad=False)

    def forward(self, x):
        return self.head(self.frozen(self.embed(x)))

def build():
    net = Net()
    if len(sys.argv) > 2:
        net = torch.compile(net, backend="eager")
    x = torch.arange(64) % 16
    return net, TensorDataset(x, (x + 1) % 16)

def loss(net, batch):
    return nn.functional.cross_entropy(net(batch[0]), batch[1])

if __name__ == "__main__":
    train(build, loss)
    torch.manual_seed(123)
    net = Net()
    net.load_state_dict(starling.load(OUT))
    assert torch.equal(net.head.weight, net.embed.weight) and net.scale.dtype == torch.bfloat16
    wrapped = torch.compile(Net(), backend="eager")
    starling.load(OUT, wrapped)
    assert torch.equal(wrapped.frozen.weight, net.frozen.weight)
    second = train(build, loss, init=starling.load(OUT), out=OUT + "-second")
    print("digest", second.digest)
"""

GPT2 = HEAD + """
from transformers import AutoModelForCausalLM

def build():
    tokens = torch.arange(8 * 16).reshape(16, 8) % 64
    return AutoModelForCausalLM.from_pretrained(sys.argv[2]), TensorDataset(tokens)

def loss(net, batch):
    return net(input_ids=batch[0], labels=batch[0]).loss

if __name__ == "__main__":
    train(build, loss)
"""


def keys(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return sorted(file.keys())


def a_saved_model_is_the_whole_state_dict(folder):
    script = written(folder, "whole.py", WHOLE)
    digests = []
    for compiled in ([], ["compiled"]):
        out = os.path.join(folder, "-".join(["out", *compiled]))
        digests.append(said(script, out, *compiled).split()[-1])
        found = keys(os.path.join(out, "model.safetensors"))
        assert found == ["embed.weight", "frozen.bias", "frozen.weight", "head.weight", "scale", "seen", "small"], found
        checked = subprocess.run([os.environ["STARLING"], "check", os.path.join(out, "model.safetensors")],
                                 capture_output=True, text=True)
        assert checked.returncode == 0 and "head.weight (tied to embed.weight)" in checked.stdout, checked
    assert digests[0] == digests[1], digests
    other_formats_hold_it(os.path.join(folder, "out"), os.path.join(folder, "other"))


def other_formats_hold_it(out, other):
    """As docs/pytorch.md has it: a file of torch.save, a folder of torch's distributed checkpoints."""
    import torch.distributed.checkpoint as distributed

    import starling

    state = starling.load(out)
    torch.save(state, other + ".pt")
    distributed.save({"model": state}, checkpoint_id=other, no_dist=True)
    read = {"model": {name: torch.empty_like(tensor) for name, tensor in state.items()}}
    distributed.load(read, checkpoint_id=other, no_dist=True)
    for found in (torch.load(other + ".pt", weights_only=True), read["model"]):
        assert sorted(found) == sorted(state)
        assert all(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in state.items())


def transformers_reads_a_saved_model(folder):
    from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    import starling

    base, out = os.path.join(folder, "base"), os.path.join(folder, "out")
    torch.manual_seed(3)
    GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2, bos_token_id=0,
                               eos_token_id=0)).save_pretrained(base)
    for name in ("tokenizer.json", "tokenizer_config.json", "notes.txt"):
        written(base, name, f'{{"name": "{name}"}}')
    said(written(folder, "gpt2.py", GPT2), out, base)
    there = set(os.listdir(out))
    assert {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} <= there, there
    assert "notes.txt" not in there, there
    assert AutoConfig.from_pretrained(out).architectures == ["GPT2LMHeadModel"]
    read, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    net = AutoModelForCausalLM.from_pretrained(base)
    before = net.transformer.wte.weight.clone()
    starling.load(out, net)
    tokens = torch.arange(8)[None]
    assert not torch.equal(before, net.transformer.wte.weight)
    assert torch.equal(read(tokens).logits, net(tokens).logits)


if __name__ == "__main__":
    sys.exit(run(a_saved_model_is_the_whole_state_dict, transformers_reads_a_saved_model))
