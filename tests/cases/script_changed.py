"""A script that was changed since its checkpoint goes on, if it computes the same; the run says so, and its audit too."""
import signal
import subprocess

from harness import PATIENCE, STARLING, require, wait_until
from scripts import HEAD, ended, events, started, written

SLOW = HEAD + """
import time
def slow(net, batch):
    time.sleep(0.02)
    return loss(net, batch)
train(slow, steps=40, checkpoint="checkpoints", checkpoint_every=5)
"""


def _begun(place):
    """A script whose run was ended after a checkpoint or two, and the newest of them."""
    script = written(place, "train.py", SLOW)
    out = place.path("out")
    process = started(script, folder=place.folder, OUT=out)
    wait_until(lambda: len(events(out, "step")) > 11, "some steps")
    process.send_signal(signal.SIGTERM)
    said = "".join(process.communicate(timeout=PATIENCE))
    found = events(out, "checkpoint")
    require(len(found) > 1, f"checkpoints: {found}; {said[-2000:]}")
    return script, found[-1]["version"]


def a_comment_more_is_said_and_goes_on(place):
    script, newest = _begun(place)
    written(place, "train.py", SLOW + "# a comment\n")
    out = place.path("again")
    code, said = ended(script, folder=place.folder, OUT=out, STARLING_RESUME="1")
    require(code == 0, f"exit code {code}: {said[-2000:]}")
    warnings = [e["text"] for e in events(out, "warning") if "the script has changed (" in e["text"]]
    require(len(warnings) == 1 and f"step {newest} " in warnings[0] and warnings[0] in said, f"{warnings}: {said[-2000:]}")
    audit = subprocess.run([STARLING, "audit", out], capture_output=True, text=True)
    require(audit.returncode == 1 and "the script has changed (" in audit.stdout, audit.stdout)
    require("no checkpoint was read" not in audit.stdout and "0 of them after a loss" in audit.stdout, audit.stdout)


def another_gradient_is_refused_by_the_checkpoint_that_it_goes_on_from(place):
    script, newest = _begun(place)
    written(place, "train.py", SLOW.replace("return loss(net, batch)", "return loss(net, batch) * 2"))
    code, said = ended(script, folder=place.folder, OUT=place.path("again"), STARLING_RESUME="1")
    require(code == 2 and f"computes other bits than the checkpoint of step {newest}: " in said,
            f"exit code {code}: {said[-2000:]}")
    require("another text of the script itself; put the text back as it was, or begin anew in another folder" in said,
            said[-2000:])
