"""LoRA of a causal language model of transformers: its folder and a text in, the folder of an adapter out.

    pip install torch transformers peft build/wheel/starling_elastic-*.whl
    python lora.py --model gpt2/ --data book.txt --workers 4 --out adapter

    base = AutoModelForCausalLM.from_pretrained("gpt2/")
    net = PeftModel.from_pretrained(base, "adapter")

Only the adapter's parameters are shared between workers, so a step's bytes are few. Every worker reads the folder; one
whose base differs from the others' in one bit is refused. Any worker may be lost at any time: same adapter."""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import TensorDataset
from transformers import AutoModelForCausalLM, AutoTokenizer

import starling


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of the model and its tokenizer")
    parser.add_argument("--data", required=True, help="a text file")
    parser.add_argument("--out", help="folder of the adapter (default: a new one below runs/)")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=16.0)
    parser.add_argument("--dropout", type=float, default=0.05, help="of the adapter")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=4, help="of a step, whoever computes them")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


options = arguments()


def build():
    """The net and its data; runs in every worker, with the same random numbers."""
    base = AutoModelForCausalLM.from_pretrained(options.model)  # in eval() mode
    net = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=options.rank, lora_alpha=options.alpha,
                                          lora_dropout=options.dropout))
    for name, module in net.named_modules():
        if "lora_" in name:
            module.train()  # dropout in the adapter alone
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    with open(options.data, encoding="utf-8") as file:
        tokens = torch.tensor(tokenizer(file.read(), verbose=False)["input_ids"])
    count = len(tokens) // options.length
    return net, TensorDataset(tokens[:count * options.length].view(count, options.length))


def loss(net, batch):
    """Of one micro-batch: its mean."""
    (tokens,) = batch
    return net(input_ids=tokens, labels=tokens).loss


if __name__ == "__main__":
    trained = starling.train(build, loss, steps=options.steps, micro_batches=options.micro_batches,
                             batch_size=options.batch, optimizer=starling.AdamW(options.lr, weight_decay=0.0),
                             workers=options.workers, out=options.out)
    print(f"loss {trained.loss:.4f}, digest {trained.digest}, adapter in {trained.out}")
