"""Scripts over the starling package itself, with the stand-in for torch (tests/stand_in/torch)."""
import json
import os
import subprocess
import sys

from harness import PATIENCE, SOURCE, STARLING, require

PATHS = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

# A net, data and a loss; what a case adds comes after it.
HEAD = """
import os, sys
import torch, starling
from torch.utils.data import TensorDataset

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4))
        self.bias = torch.nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return (self.weight * x).sum(-1) + self.bias

def build():
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(64, 4, generator=draw)
    return Net(), TensorDataset(x, x.sum(-1) + 1.0)

def loss(net, batch):
    wrong = net(batch[0]) - batch[1]
    return (wrong * wrong).mean()

def train(loss=loss, build=build, **options):
    options = dict(steps=8, micro_batches=4, batch_size=4, lease_ms=10000, seed=5,
                   workers=int(os.environ.get("WORKERS", 1)), out=os.environ.get("OUT")) | options
    print("RESULT", starling.train(build, loss, **options).digest)
"""
# A loss whose later passes wait for a checkpoint in the folder: a run of few steps may end before one is complete. Of 20
# steps the fifth has come by then, also where each micro-batch is computed twice.
KEPT = HEAD + """
import glob, time
def until_kept(folder, loss=loss):
    passes = []
    def kept(net, batch):
        passes.append(1)
        while len(passes) > 60 and not glob.glob(os.path.join(folder, "*", "manifest.json")):
            time.sleep(0.01)
        return loss(net, batch)
    return kept
"""


def written(place, name, text):
    os.makedirs(os.path.dirname(place.path(name)), exist_ok=True)
    with open(place.path(name), "w") as file:
        file.write(text)
    return place.path(name)


def started(*arguments, folder=None, **variables):
    """`python ARGUMENTS`, in the background, as a person starts it, with these variables."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING": STARLING,
                 "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.Popen([sys.executable, *map(str, arguments)], env=variables, cwd=folder, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(*arguments, folder=None, **variables):
    """Exit code, and all that was said."""
    process = started(*arguments, folder=folder, **variables)
    said = "".join(process.communicate(timeout=PATIENCE))
    return process.returncode, said


def result(*arguments, folder=None, **variables):
    """The digest that a script ends with."""
    code, said = ended(*arguments, folder=folder, **variables)
    lines = [line.split()[1] for line in said.splitlines() if line.startswith("RESULT ")]
    require(code == 0 and len(lines) == 1, f"exit code {code}: {said[-3000:]}")
    return lines[0]


def events(out, kind):
    try:
        with open(os.path.join(out, "events.jsonl")) as file:
            found = [json.loads(line) for line in file.read().split("\n")[:-1]]
    except OSError:
        return []
    return [e for e in found if e["ev"] == kind]
