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


# What a package finds as it is imported, and what the script finds then; a process that a person starts has it right.
LOOKS = "import starling, random\n" + SCRIPT.replace("train(paced", """
with open(os.environ["SEEN"], "a") as file:
    is_main = slow_to_import.__main__ is sys.modules["__main__"]
    file.write(f"{is_main} {slow_to_import.SEEN} {float(torch.rand(1)[0])} {random.random()} {sys.path}\\n")
train(paced""")
ALIKE = """
import __main__, random, sys
SEEN = [sys.argv[1:], __main__.__file__, __name__, os.environ.get("SET_BY_A_PACKAGE")]
"""
# What each process has to itself though it is a fork.
FORKED = {"does nothing else": "", "draws": "import torch\ntorch.rand(1)", "draws from random": "random.random()"}
OWN = {
    "imports what lies beside the script": "try:\n    import optional\nexcept ImportError:\n    optional = None\nSEEN.append(str(optional))",
    "starts a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    "starts a program": "import subprocess\nPROGRAM = subprocess.Popen(['true'])",
    "opens a file": "FILE = open(__file__)", "makes a lock": "import multiprocessing\nLOCK = multiprocessing.RLock()",
}


def variables(place, name, package="", **more):
    written(place, "site-packages/slow_to_import.py", PACKAGE + package)
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


def an_import_finds_what_it_finds_in_a_process_of_its_own(place):
    """Where a fork would not, nothing is forked."""
    script = written(place, "train.py", LOOKS)
    written(place, "optional.py", "")
    for number, (what, package) in enumerate({**FORKED, **OWN}.items()):
        name = str(number)
        result(script, "--rate", "3", **variables(place, name, ALIKE + package, SEEN=place.path(name + "-seen")))
        with open(place.path(name + "-seen")) as file:
            seen = file.read().splitlines()
        require(len(seen) == 3 and len(set(seen)) == 1, f"an import that {what}: {seen}")
        wanted = 4 if what in OWN else 2  # by hand, where others are forked from, and each of two by itself
        require(len(imports(place, name)) == wanted, f"an import that {what}: imported by {imports(place, name)}")


def what_a_modules_packages_do_comes_before_its_imports(place):
    written(place, "pkg/__init__.py", "import os\nos.environ['SET_BY_A_PACKAGE'] = '1'\n")
    written(place, "pkg/train.py", LOOKS)
    result("-m", "pkg.train", folder=place.folder, **variables(place, "module", ALIKE, SEEN=place.path("seen")))
    with open(place.path("seen")) as file:
        seen = file.read().splitlines()
    require(len(seen) == 3 and len(set(seen)) == 1 and "'1'" in seen[0], f"{seen}")


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


main(a_lost_process_is_replaced_without_its_imports, an_import_finds_what_it_finds_in_a_process_of_its_own,
     what_a_modules_packages_do_comes_before_its_imports, nothing_is_left_of_a_worker_that_is_killed)
