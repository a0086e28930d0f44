#!/usr/bin/env python3
"""A process that computes has deterministic algorithms, of torch's compiler too, and does not import that by itself: it takes
seconds, and is no import of the script, so each process that takes a lost one's place would do it.

  compiler.py STARLING

Run it with an interpreter that has torch and the starling package."""

import os
import sys

from cases import run, said, written

SCRIPT = """import os, sys
IMPORT
import torch, starling
from torch.utils.data import TensorDataset

CONFIG = "torch._inductor.config"

def build():
    x = torch.rand(16, 4)
    return torch.nn.Linear(4, 1), TensorDataset(x, x.sum(1, keepdim=True))

def loss(net, batch):
    if not os.path.exists(os.environ["SEEN"]):  # in the first pass
        is_imported = CONFIG in sys.modules
        from torch._inductor import config
        with open(os.environ["SEEN"], "w") as file:
            file.write(f"{is_imported} {config.deterministic} {torch.get_deterministic_debug_mode()}")
    return torch.nn.functional.mse_loss(net(batch[0]), batch[1])

if __name__ == "__main__":
    starling.train(build, loss, steps=1, micro_batches=1, batch_size=4, workers=1, out=os.environ["OUT"])
"""


def seen(folder, name, line):
    path = os.path.join(folder, name)
    said(written(folder, name + ".py", SCRIPT.replace("IMPORT", line)), OUT=path, SEEN=path + "-seen")
    with open(path + "-seen", encoding="utf-8") as file:
        return file.read()


def what_does_not_use_it_does_not_import_it(folder):
    found = seen(folder, "without", "")
    assert found == "False True 1", found


def where_it_was_imported_before_it_is_deterministic_too(folder):
    found = seen(folder, "imported", "import torch._inductor.config")
    assert found == "True True 1", found


if __name__ == "__main__":
    os.environ["STARLING"] = os.path.abspath(sys.argv[1])
    sys.exit(run(what_does_not_use_it_does_not_import_it, where_it_was_imported_before_it_is_deterministic_too))
