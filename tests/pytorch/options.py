"""A job of models.py's MLP with the option that OPTION names: plain, init, resume, evaluate, metrics, sgd, adam."""

import os

import torch

import models
import starling

OPTION = os.environ["OPTION"]
STEPS = int(os.environ.get("STEPS", "20"))
OUT = os.environ["OUT"]


def start():
    torch.manual_seed(99)
    return models.build()[0].state_dict()


def evaluate(net):
    x, y = models.build()[1].tensors
    assert not net.training
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(net(x), y).item()


def measured(net, batch):
    x, y = batch
    scores = net(x)
    right = (scores.argmax(1) == y).float().mean()
    return torch.nn.functional.cross_entropy(scores, y), {"wrong": 1 - right, "right": right}


OPTIONS = {
    "plain": dict(),
    "init": dict(init=start()),
    "first": dict(checkpoint=OUT + "/../checkpoints", checkpoint_every=5, seed=3),
    "resume": dict(checkpoint=OUT + "/../checkpoints", checkpoint_every=5, seed=3, resume=True),
    "evaluate": dict(evaluate=evaluate),
    "metrics": dict(metrics=["right", "wrong"]),
    "sgd": dict(optimizer=starling.SGD(0.05)),
    "adam": dict(optimizer=starling.Adam(1e-3)),
}

if __name__ == "__main__":
    trained = starling.train(models.build, measured if OPTION == "metrics" else models.loss, steps=STEPS, micro_batches=models.MICRO_BATCHES,
                             batch_size=models.BATCH, workers=int(os.environ.get("WORKERS", "2")), out=OUT, lease_ms=5000, **OPTIONS[OPTION])
    print(f"digest {trained.digest} loss {trained.loss:.6f} steps {trained.steps} metrics {trained.metrics} evaluation {trained.evaluation}")
