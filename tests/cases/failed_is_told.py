"""A run that ends before it has begun says why in its events: `failed`, with its exit code and the reason of a worker."""
import signal
import subprocess

from harness import PATIENCE, STARLING, require, wait_until
from scripts import HEAD, ended, events, started, written

RAISES = HEAD + """
def wrong(net, batch):
    raise ValueError("no such colour")
train(wrong, **options)
"""
COUNTS = HEAD + """
class Counting(TensorDataset):
    def __getitem__(self, i):
        Counting.read = getattr(Counting, "read", 0) + 1
        x, y = super().__getitem__(i)
        return x + Counting.read, y
def counting():
    net, data = build()
    return net, Counting(*data.tensors)
train(build=counting, **options)
"""
SLOW = HEAD + """
import time
def slow(net, batch):
    time.sleep(0.02)
    return loss(net, batch) * float(os.environ.get("SCALE", "1"))
train(slow, steps=40, checkpoint="checkpoints", checkpoint_every=5)
"""


def _failed(out, code, *parts):
    found = events(out, "failed")
    require(len(found) == 1 and found[0]["code"] == code, f"exit code {code}: {found}")
    require(all(part in found[0]["reason"] for part in parts), f"{parts}: {found}")
    require("\n" not in found[0]["reason"], f"one line: {found}")
    audit = subprocess.run([STARLING, "audit", out], capture_output=True, text=True)
    require(audit.returncode == 1 and f" with exit code {code} (" in audit.stdout,
            f"{audit.returncode}: {audit.stdout} {audit.stderr}")


def a_loss_that_raises_at_the_first_gradient(place):
    for coordinators in 1, 3:
        out = place.path(f"out-{coordinators}")
        options = f"options = dict(workers=2, command=('--coordinators', '{coordinators}'))"
        code, said = ended(written(place, "raises.py", options + RAISES), OUT=out)
        require(code == 2, f"exit code {code}: {said[-2000:]}")
        _failed(out, 2, "ValueError: no such colour")


def a_dataset_with_a_counter(place):
    out = place.path("out")
    code, said = ended(written(place, "counts.py", "options = dict(workers=2)" + COUNTS), OUT=out)
    require(code == 2, f"exit code {code}: {said[-2000:]}")
    _failed(out, 2, "samples of Counting are others when they are read again")


def another_loss_at_resume(place):
    script = written(place, "train.py", SLOW)
    process = started(script, folder=place.folder, OUT=place.path("out"))
    wait_until(lambda: len(events(place.path("out"), "step")) > 6, "some steps")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    out = place.path("again")
    code, said = ended(script, folder=place.folder, OUT=out, STARLING_RESUME="1", SCALE="2")
    require(code == 2, f"exit code {code}: {said[-2000:]}")
    _failed(out, 2, "computes other bits")
