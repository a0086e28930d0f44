"""State that a script keeps beside its parameters does not change the result unseen: the run or its audit says so."""
import subprocess

from harness import STARLING, require
from scripts import HEAD, ended, written

COUNTER = """
class Counting(Net):
    def forward(self, x):
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return super().forward(x) * min(1.0, self.calls / 50)

train(build=lambda: (Counting(), build()[1]), workers=int(os.environ.get("WORKERS", 1)))
"""


def a_module_that_counts_its_passes(place):
    script = written(place, "train.py", HEAD + COUNTER)
    digests, noticed = [], False
    for workers in (1, 2):
        out = place.path(f"out-{workers}")
        code, said = ended(script, OUT=out, WORKERS=str(workers))
        digests += [line for line in said.splitlines() if line.startswith("RESULT ")]
        audit = subprocess.run([STARLING, "audit", out], capture_output=True, text=True)
        noticed |= code != 0 or audit.returncode != 0
    require(noticed or len(digests) == 2 and digests[0] == digests[1], f"{digests}, and nothing was said")
