"""A classifier with dropout, trained by workers that may come and go:

    tools/dev/wheel.sh                                   # docs/pytorch.md; `pip install starling` is not it
    pip install torch build/wheel/starling_elastic-*.whl
    python train.py --workers 4 --out out

The digest that is printed at the end is the same for any number of workers, and whatever happens to them."""

import argparse

import torch
from torch.utils.data import TensorDataset

import starling


def build():
    """The net and its data; runs in every worker, with the same random numbers."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(4096, 32, generator=generator)
    y = (x[:, :8].sum(1) > 0).long() + 2 * (x[:, 8:16].sum(1) > 0).long()
    net = torch.nn.Sequential(
        torch.nn.Linear(32, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Dropout(0.1),
        torch.nn.Linear(128, 4))
    return net, TensorDataset(x, y)


def loss(net, batch):
    """Of one micro-batch: its mean."""
    x, y = batch
    return torch.nn.functional.cross_entropy(net(x), y)


def accuracy(net):
    """Of the trained net, on what it was trained with."""
    x, y = build()[1].tensors
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out")
    options, _ = parser.parse_known_args()
    trained = starling.train(build, loss, steps=options.steps, micro_batches=8, batch_size=16,
                             optimizer=starling.AdamW(3e-3, warmup=20), workers=options.workers,
                             out=options.out, evaluate=accuracy)
    print(f"loss {trained.loss:.4f}, accuracy {trained.evaluation:.3f}, digest {trained.digest}")
