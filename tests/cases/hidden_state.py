"""State that a script keeps beside its parameters is refused or named in `mismatch` events."""
import json
import os
import signal
import subprocess

from harness import PATIENCE, STARLING, require, wait_until
from scripts import HEAD, KEPT, ended, events, started, written

# What stays in a process from one micro-batch to the next: a net, data or a loss that is another one then.
KINDS = {
    "a counter of a module": """
class Counting(Net):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x) * min(1.0, self.calls / 50)
train(build=lambda: (Counting(), build()[1]))
""",
    "an average in a plain tensor": """
average = torch.zeros(1)
def smoothed(net, batch):
    value = loss(net, batch)
    average.mul_(0.9).add_(value.detach() * 0.1)
    return value * (1.0 + float(average))
train(smoothed)
""",
    "a list of the script": """
seen = []
def with_history(net, batch):
    value = loss(net, batch)
    seen.append(float(value.detach()))
    return value + seen[-2:][0] * net.bias.sum()
train(with_history)
""",
    "a buffer through .data": """
class Buffered(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
    def forward(self, x):
        self.calls.data += 0.1
        return super().forward(x) * float(self.calls)
train(build=lambda: (Buffered(), build()[1]))
""",
    "the mode of a net": """
class Moded(Net):
    def forward(self, x):
        return super().forward(x) * (2.0 if self.training else 1.0)
def judged(net, batch):
    value = loss(net, batch)
    net.train(not net.training)
    return value
train(judged, build=lambda: (Moded(), build()[1]))
""",
    "a generator of torch in the Dataset": """
class Noisy(TensorDataset):
    noise = torch.Generator().manual_seed(3)
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x + torch.randn(4, generator=self.noise), y
train(build=lambda: (Net(), Noisy(*build()[1].tensors)))
""",
    "a generator of Python in the Dataset": """
import random
class Noisy(TensorDataset):
    noise = random.Random(3)
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return x * self.noise.random(), y
train(build=lambda: (Net(), Noisy(*build()[1].tensors)))
""",
    "a counter of evaluate": """
batches = []
def counting(net, batch):
    batches.append(1)
    return loss(net, batch) + 0.01 * len(batches)
train(validation=lambda: build()[1], evaluate_every=2, evaluate=counting)
""",
    "a counter of a metric": """
measured = []
def counting(net, batch):
    measured.append(1)
    return loss(net, batch), {"calls": float(len(measured))}
train(counting, metrics=["calls"])
""",
    "a parameter through .data": """
def clamped(net, batch):
    value = loss(net, batch)
    net.bias.data.copy_(torch.zeros(1))
    return value
train(clamped)
""",
}


def _told(place, script, out, workers):
    """How it was told; nothing: it was not. Within the steps of this job, which are 8."""
    code, said = ended(script, OUT=out, WORKERS=str(workers))
    if code:
        return "refused"
    differences = events(out, "mismatch")
    audit = subprocess.run([STARLING, "audit", out], capture_output=True, text=True)
    require(bool(differences) == (audit.returncode != 0), f"{differences}, audit: {audit.stdout}{audit.stderr}")
    require(not differences or "another gradient" in said, f"no warning:\n{said[-2000:]}")
    require(all(d.get("wrong") is None for d in differences), f"a worker is accused: {differences}")
    return f"first in step {differences[0]['version']}" if differences else None


def what_stays_in_a_process_is_refused_or_told(place):
    unseen = []
    for number, (kind, text) in enumerate(KINDS.items()):
        script = written(place, f"{number}.py", HEAD + text)
        for workers in (2, 1):
            told = _told(place, script, place.path(f"out-{number}-{workers}"), workers)
            print(f"        {kind}, {workers} workers: {told or 'UNSEEN'}", flush=True)
            unseen += [] if told else [(kind, workers)]
    require(not unseen, f"nothing is said: {unseen}")


def a_script_without_such_state_has_no_difference(place):
    for workers in (2, 1):
        script = written(place, "pure.py", HEAD + "train(steps=40)\n")
        told = _told(place, script, place.path(f"out-{workers}"), workers)
        require(told is None, f"{workers} workers: {told}")


def a_difference_ends_a_run_that_wants_it(place):
    text = KINDS["a counter of a module"].replace("train(", 'train(on_mismatch="stop", ')
    script = written(place, "stop.py", HEAD + text)
    code, said = ended(script, OUT=place.path("out"), WORKERS="2")
    require(code == 1 and "another gradient" in said, f"{code}: {said[-2000:]}")


def a_step_that_is_computed_twice_in_two_ways_leaves_its_checkpoints_in_doubt(place):
    """Its one worker is killed, and computes the steps since the last checkpoint again, without what it had kept."""
    script = written(place, "twice.py", HEAD + """
import time
passes = []
def hidden(net, batch):
    passes.append(1)
    time.sleep(0.03)
    return loss(net, batch) * (2.0 if len(passes) > 20 else 1.0)
train(hidden, steps=1000, recheck=0, checkpoint=os.environ["CK"], checkpoint_every=8)
""")
    out, folder = place.path("twice"), place.path("of-twice")
    process = started(script, OUT=out, WORKERS="1", CK=folder)
    wait_until(lambda: len(events(out, "step")) > 12 and events(out, "checkpoint"), "steps after a checkpoint")
    os.kill(events(out, "worker")[0]["pid"], signal.SIGKILL)
    said = "".join(process.communicate(timeout=PATIENCE))
    require(process.returncode == 5 and "two records of version" in said, f"{process.returncode}: {said[-2000:]}")
    for name in os.listdir(folder):
        if not name.startswith("step-"):
            continue
        with open(os.path.join(folder, name, "manifest.json")) as file:
            require(json.load(file).get("doubted_from") == 0, f"{name} is not in doubt")


def what_a_process_of_later_does_differently_is_told_in_its_first_steps(place):
    """A file that the script reads after some passes is another one when a worker's next process reads it."""
    setting = place.path("setting")
    with open(setting, "w") as file:
        file.write("1.0")
    script = written(place, "late.py", HEAD + """
import time
passes, factor = [], []
def late(net, batch):
    passes.append(1)
    time.sleep(0.01)
    if len(passes) == 4:
        factor.append(float(open(os.environ["SETTING"]).read()))
    return loss(net, batch) * (factor[0] if factor else 1.0)
train(late, steps=1000000, recheck=1000000)
""")
    out = place.path("late")
    process = started(script, OUT=out, WORKERS="2", SETTING=setting)
    wait_until(lambda: len(events(out, "step")) > 40, "more steps than are watched")
    require(not events(out, "mismatch"), f"before anything differs: {events(out, 'mismatch')}")
    with open(setting, "w") as file:
        file.write("3.0")
    os.kill(next(e["pid"] for e in events(out, "worker") if e["name"] == "worker-1"), signal.SIGKILL)
    wait_until(lambda: events(out, "mismatch"), "a mismatch")
    back = [e for e in events(out, "worker") if e["what"] == "joined"][-1]
    before = max(e["version"] for e in events(out, "step") if e["t"] < back["t"])
    told = events(out, "mismatch")[0]["version"]
    require(before < told <= before + 40, f"told in step {told}, the new process joined after step {before}")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)


def a_run_that_goes_on_after_a_difference_is_in_doubt(place):
    """Its own processes compute as the undisturbed ones do: only the checkpoint can say so."""
    script = written(place, "goes_on.py", KEPT + """
passes = []
def hidden(net, batch):
    passes.append(1)
    return loss(net, batch) * (2.0 if "HIDDEN" in os.environ and len(passes) > 6 else 1.0)
train(until_kept(os.environ["CK"], hidden), steps=20, checkpoint=os.environ["CK"], checkpoint_every=4, resume="RESUME" in os.environ)
""")
    folders = {"CK": place.path("checkpoints")}
    code, said = ended(script, OUT=place.path("first"), HIDDEN="1", **folders)
    require(code == 0 and events(place.path("first"), "mismatch"), f"{code}: {said[-2000:]}")
    require("the result is in doubt from step" in said, f"the end looks like a good one: {said[-2000:]}")
    code, said = ended(script, OUT=place.path("second"), RESUME="1", **folders)
    require(code == 0 and not events(place.path("second"), "mismatch"), f"{code}: {said[-2000:]}")
    require(events(place.path("second"), "start")[0]["from"] >= 4, "it has not gone on from a checkpoint")
    require("in doubt" in said and events(place.path("second"), "tainted"), f"nothing says so: {said[-2000:]}")
    audit = subprocess.run([STARLING, "audit", place.path("second")], capture_output=True, text=True)
    require(audit.returncode == 1 and "not shown" in audit.stdout, f"audit: {audit.stdout}{audit.stderr}")
