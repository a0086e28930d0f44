"""The processes that compute for a worker are forks of one that has done the script's first imports."""
import os
import signal

from harness import PATIENCE, children_of, main, require, wait_until
from scripts import HEAD, PATHS, events, result, started, written

SCRIPT = "import slow_to_import\n" + HEAD + """
import time
def paced(net, batch):
    time.sleep(float(os.environ["PACE"]))
    return loss(net, batch)
train(paced, steps=30, threads=2, recheck=0)
"""
PACKAGE = """
import os
with open(os.environ["IMPORTED"], "a") as file:
    file.write(f"{os.getpid()}\\n")
"""


def variables(place, name, **more):
    written(place, "site-packages/slow_to_import.py", PACKAGE)
    paths = [*PATHS, place.path("site-packages")]
    return dict(OUT=place.path(name), IMPORTED=place.path(name + "-imported"), PACE="0.01", PYTHONPATH=os.pathsep.join(paths), **more)


def imports(place, name):
    with open(place.path(name + "-imported")) as file:
        return file.read().split()


def a_lost_process_is_replaced_without_its_imports(place):
    script = written(place, "train.py", SCRIPT)
    digest = result(script, **variables(place, "quiet"))
    # The process that was started by hand, and the one that the worker forks.
    require(len(imports(place, "quiet")) == 2, f"imported by {imports(place, 'quiet')}")
    run = started(script, **{**variables(place, "killed"), "PACE": "0.2"})
    out = place.path("killed")
    wait_until(lambda: len(events(out, "step")) > 1 or run.poll() is not None, "some steps")
    worker = events(out, "worker")[0]["pid"]
    for _ in range(2):
        both = children_of(worker)
        require(len(both) == 2, f"processes {both}")
        os.kill(both[0], signal.SIGKILL)
        wait_until(lambda: len(set(children_of(worker)) - set(both)) == 1 or run.poll() is not None, "another process")
    require(len(imports(place, "killed")) == 2, f"imported by {imports(place, 'killed')}")
    (warm,) = children_of(worker, warm=True)
    os.kill(warm, signal.SIGKILL)
    both = children_of(worker)
    os.kill(both[0], signal.SIGKILL)
    wait_until(lambda: len(set(children_of(worker)) - set(both)) == 1 or run.poll() is not None, "another process")
    said = "".join(run.communicate(timeout=PATIENCE))
    require(f"RESULT {digest}" in said, f"expected {digest}: {said[-3000:]}")
    require(len(imports(place, "killed")) == 3, f"imported by {imports(place, 'killed')}")
    require(said.count("another one takes its place") == 3, said[-3000:])


def nothing_is_left_of_a_worker_that_is_killed(place):
    """Its processes, the one that they were forked from, and what a script's process has forked."""
    forking = SCRIPT.replace("train(paced", """
import subprocess
def forks(net, batch):
    if not hasattr(net, "forked"):
        net.__dict__["forked"] = subprocess.Popen(["sleep", "1000"])
    return paced(net, batch)
train(forks""")
    script = written(place, "forks.py", forking)
    run = started(script, **{**variables(place, "forks"), "PACE": "0.2"})
    out = place.path("forks")
    wait_until(lambda: len(events(out, "step")) > 1 or run.poll() is not None, "some steps")
    worker = events(out, "worker")[0]["pid"]
    below = [*children_of(worker), *children_of(worker, warm=True)]
    below += [pid for one in below for pid in children_of(one)]
    require(len(below) == 5, f"processes {below}")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in below), "the end of all of them")
    run.kill()
    run.communicate()


main(a_lost_process_is_replaced_without_its_imports, nothing_is_left_of_a_worker_that_is_killed)
