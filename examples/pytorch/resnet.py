"""A ResNet-18 with BatchNorm, trained to name the digit in a small picture:

    pip install torch safetensors build/wheel/starling_elastic-*.whl
    python resnet.py --workers 3 --out out

    net = resnet.ResNet18(8, 1, 10)  # --width, channels of a picture, classes: the largest y and 1
    starling.load("out", net)

The running statistics are trained beside the parameters, so they too have the same bits for any number of workers. A file
of your own has x [n, C, H, W], or [n, H*H] for pictures of one channel, and y [n], the classes."""

import argparse
import math
import os

import safetensors.torch
import torch
from torch import nn
from torch.utils.data import TensorDataset

import starling

DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mlp", "digits.safetensors")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=DIGITS, help="a safetensors file (default: examples/mlp/digits.safetensors)")
    parser.add_argument("--out", help="folder of the model (default: a new one below runs/)")
    parser.add_argument("--width", type=int, default=8, help="channels of the first block; 64 is the paper's")
    parser.add_argument("--held-out", type=float, default=0.2, help="share of the pictures, the last of the file, that are only evaluated")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16, help="pictures of a micro-batch, over which BatchNorm takes its means")
    parser.add_argument("--micro-batches", type=int, default=4, help="of a step, whoever computes them")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if not 0 < options.held_out < 1:
        parser.error(f"--held-out is {options.held_out}, expected a share above 0 and below 1")
    return options


class Residual(nn.Module):
    """Two convolutions beside a short way: He et al., 2016, "Deep Residual Learning for Image Recognition"."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Identity() if before == after else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class ResNet18(nn.Module):
    """For small pictures: the first convolution has stride 1 and no pooling."""

    def __init__(self, width, channels, classes):
        super().__init__()
        blocks, before = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
        for stage in range(4):
            after = width << stage
            blocks += [Residual(before, after, 1 if stage == 0 else 2), Residual(after, after, 1)]
            before = after
        self.body = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(before, classes)

    def forward(self, x):
        return self.head(self.body(x))


def pictures():
    """All of the file: x [n, C, H, W], y [n]."""
    found = safetensors.torch.load_file(options.data)
    x, y = found["x"].float(), found["y"]
    if x.dim() == 2:
        side = math.isqrt(x.shape[1])
        if side * side == x.shape[1]:
            x = x.view(-1, 1, side, side)
    if x.dim() != 4 or y.is_floating_point() or y.shape != x.shape[:1]:
        raise ValueError(f"{options.data}: x has the shape {list(x.shape)} and y, of {y.dtype}, {list(y.shape)}: expected"
                         " [n, C, H, W] or [n, H*H], and classes [n]")
    return x, y.long()


def parts():
    """Those that are trained with, and those that are held out."""
    x, y = pictures()
    count = int(len(x) * (1 - options.held_out))
    return TensorDataset(x[:count], y[:count]), TensorDataset(x[count:], y[count:])


def build():
    """The net and its data; runs in every worker, with the same random numbers."""
    x, y = pictures()
    return ResNet18(options.width, x.shape[1], int(y.max()) + 1), parts()[0]


def loss(net, batch):
    """Of one micro-batch: its mean, and the share of its pictures that are named rightly."""
    x, y = batch
    named = net(x)
    return nn.functional.cross_entropy(named, y), {"accuracy": (named.argmax(1) == y).float().mean()}


def schedule(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, options.steps, cycle_momentum=False)


if __name__ == "__main__":
    options = arguments()
    trained = starling.train(
        build, loss, steps=options.steps, micro_batches=options.micro_batches, batch_size=options.batch,
        optimizer=lambda net: torch.optim.SGD(net.parameters(), options.lr, momentum=0.9, weight_decay=5e-4),
        schedule=schedule, metrics=["accuracy"], validation=lambda: parts()[1], evaluate_every=20,
        workers=options.workers, out=options.out)
    print(f"held out: loss {trained.evaluation['loss']:.4f}, accuracy {trained.evaluation['accuracy']:.3f}")
    print(f"digest {trained.digest}, model in {trained.out}")
