"""Elastic training of PyTorch models: workers come and go, the result keeps its bits.

    import torch, starling

    def build():                       # in every worker; seeded by the job
        return Net(), MyDataset()      # nn.Module, map-style Dataset

    def loss(net, batch):              # of one micro-batch: its mean
        x, y = batch
        return torch.nn.functional.cross_entropy(net(x), y)

    if __name__ == "__main__":
        starling.train(build, loss, steps=1000, workers=4, out="out")

train() runs the whole job on this machine; join() makes this machine a worker of a job that runs
elsewhere; Job is for those who keep their own loop; load() gives the trained net's state_dict.

Importing it seeds random, numpy and torch with 0, as every worker's process does before it runs the script: what the
top of a script draws afterwards is the same everywhere.
"""

import contextlib
import os
import sys

from . import _strangers  # before torch: what is said has nothing to do with it
from .calls import Failed, Trained
from .job import Job, MicroBatch, Step, join, train
from .model_file import load
from .formula import select
from .optimizers import SGD, Adam, AdamW, Elementwise, Schedule
from .records import CheckpointRecord, EpochRecord, EvaluationRecord, StepEvent, StepRecord
from .sampling import Grouped, Weighted
from .script import COMMAND
from .statistics import moving

__version__ = "0.1.0"
__all__ = [
    "Adam", "AdamW", "CheckpointRecord", "Elementwise", "EpochRecord", "EvaluationRecord", "Failed", "Grouped", "Job", "MicroBatch", "SGD", "Schedule",
    "Step", "StepEvent", "StepRecord", "Trained", "Weighted", "join", "load", "moving", "select", "train",
]


def _begin_alike() -> None:
    command = os.path.basename(sys.argv[0] if sys.argv else "") == "starling"  # which need not wait for torch
    if not command and ["-m", "starling"] not in (COMMAND[-3:-1], COMMAND[-4:-2]):  # SCRIPT, or --warm SCRIPT: they seed later
        with contextlib.suppress(ImportError):
            from .module import seed_everything_to_begin_with

            seed_everything_to_begin_with()


_begin_alike()
