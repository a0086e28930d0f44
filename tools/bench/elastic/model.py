"""What the three scripts beside this train: one net, its data and its loss; and, for compare_elastic.py, what they
note down while they do. With neither Starling nor torchft nor Horovod, on one machine:

    python model.py

What is noted lies in NOTES, one file a process, one line each: "pass TIME SAMPLES" when a micro-batch is begun,
"step TIME NUMBER WORKERS COUNTED SAMPLES" when a step has passed, "end TIME HASH" of the final parameters. TIME is
the machine's monotonic clock. Lines that call these functions end in "# noted"; nobody needs them to train."""

import hashlib
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

WORKERS = 4  # and as many micro-batches a step
BATCH = 8
STEPS = int(os.environ.get("STEPS", "200"))
OUT = os.environ.get("OUT")
COMPUTE_S = 0.025  # of a micro-batch, by sleeping: the cores of a small machine are not what is compared
NOTES = os.environ.get("NOTES")

_file = None
_samples = []  # of the micro-batches since the last step


def build():
    """The net and its data, more than are used in one run; the caller has seeded torch for the net."""
    generator = torch.Generator().manual_seed(7)
    n = STEPS * WORKERS * BATCH * 5 // 4
    x = torch.randn(n, 64, generator=generator)
    y = (x[:, :32].sum(1) > 0).long() + 2 * (x[:, 32:].sum(1) > 0).long()
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Dropout(0.1),
        torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Dropout(0.1),
        torch.nn.Linear(512, 4))
    return net, TensorDataset(x, y, torch.arange(n))


def loss(net, batch):
    """Of one micro-batch: its mean."""
    x, y, samples = batch
    _begun(samples)
    time.sleep(COMPUTE_S)
    return torch.nn.functional.cross_entropy(net(x), y)


def _note(*words):
    global _file
    if not NOTES:
        return
    if _file is None:
        _file = open(os.path.join(NOTES, str(os.getpid())), "w", buffering=1, encoding="utf-8")
    _file.write(" ".join(map(str, words)) + "\n")


def _begun(samples):
    _samples.append(",".join(map(str, samples.tolist())))
    _note("pass", time.monotonic(), _samples[-1])


def passed(number, workers, counted=True):
    """A step has passed: so many now, of so many workers; whether this worker's gradient was one of them."""
    _note("step", time.monotonic(), number, workers, int(counted), _samples[-1])
    _samples.clear()


def ready():
    """Waits until all that are there at the beginning are, so that an undisturbed run has all its workers in every
    step."""
    if NOTES:
        _note("ready", time.monotonic())
        while not os.path.exists(os.path.join(NOTES, "go")):
            time.sleep(0.005)


def finished(net):
    """The end: a hash of the final parameters."""
    raw = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    _note("end", time.monotonic(), hashlib.sha256(raw).hexdigest()[:16])


def plain():
    torch.manual_seed(1)
    net, data = build()
    loader = DataLoader(data, WORKERS * BATCH, shuffle=True)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for step, batch in enumerate(loader):
        if step == STEPS:
            break
        optimizer.zero_grad()
        loss(net, batch).backward()
        optimizer.step()


if __name__ == "__main__":
    plain()
