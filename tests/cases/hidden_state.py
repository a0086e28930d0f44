"""State that a script keeps beside its parameters changes no result unseen: the script is refused, or the run says it."""
import os
import subprocess

from harness import STARLING, require
from scripts import HEAD, ended, written

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
    "a parameter through .data": """
def clamped(net, batch):
    value = loss(net, batch)
    net.bias.data.copy_(torch.zeros(1))
    return value
train(clamped)
""",
}


def _digest(said):
    return next((line for line in said.splitlines() if line.startswith("RESULT ")), None)


def what_stays_in_a_process_is_refused_or_told(place):
    unseen = []
    for number, (kind, text) in enumerate(KINDS.items()):
        script = written(place, f"{number}.py", HEAD + text)
        digests, told = [], False
        for workers in (2, 1):
            out = place.path(f"out-{number}-{workers}")
            code, said = ended(script, OUT=out, WORKERS=str(workers))
            audit = subprocess.run([STARLING, "audit", out], capture_output=True, text=True) if os.path.isdir(out) else None
            told |= code != 0 or audit is not None and audit.returncode != 0
            digests.append(_digest(said))
            if told:
                break
        print(f"        {kind}: {'told' if told else 'the same bits' if len(set(digests)) == 1 else 'UNSEEN'}", flush=True)
        unseen += [kind] if not told and len(set(digests)) > 1 else []
    require(not unseen, f"another digest with two workers, and nothing is said: {unseen}")
