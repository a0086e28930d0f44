"""docs/ray.md, followed literally on a Ray cluster of this machine: three nodes, of which one is taken away with all
that runs there and another one's raylet ends, and two are added."""
import contextlib
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from followed import Followed, programs
from harness import SOURCE, Skipped, children_of, main, processes_naming, require

PYTHON = os.environ.get("STARLING_RAY_PYTHON", os.path.join(SOURCE, "build", "engines", "bin", "python"))
MINUTES = 60


class Ray:
    """Raylets, which end when it is left. `folder`: of programs that are first in everybody's PATH."""

    def __init__(self, folder):
        self.environment = {**os.environ, "PATH": f"{folder}:{os.path.dirname(PYTHON)}:{os.environ['PATH']}"}
        self.process = subprocess.Popen(
            [PYTHON, os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_cluster.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.environment)
        self.raylets = []
        self.environment["RAY_ADDRESS"] = self.answer("address")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait(MINUTES)

    def answer(self, word):
        for line in self.process.stdout:
            if line.split()[0] == word:
                return line.split()[-1]
        raise AssertionError(f"Ray's cluster ended and did not say {word}")

    def tell(self, order, word):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.answer(word)

    def add_node(self):
        self.raylets.append(int(self.tell("add", "pid")))

    def take_node(self, number):
        """At once, with all that runs on it, as a machine that is gone."""
        found, rest = [], [self.raylets[number]]
        while rest:
            found.append(rest.pop())
            rest += children_of(found[-1])
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_raylet(self, number):
        self.tell(f"remove {number}", "removed")


def what_ray_loses_changes_no_bit(place):
    if not os.path.exists(PYTHON):
        raise Skipped(f"needs a Python with Ray, {PYTHON} or STARLING_RAY_PYTHON")
    with Ray(programs(place)) as ray:
        job = Followed(place, "ray.md", steps=None)
        for _ in range(3):
            ray.add_node()
        job.follow("1. The job, the keys and the coordinator", ray.environment)
        driver = job.start("2. The workers", ray.environment)
        job.wait(lambda: len(job.workers("joined")) == 3, "three workers")
        job.wait_for_step(50)

        ray.take_node(0)
        job.wait(lambda: len(job.workers("lost", "fenced")) == 1, "the node's loss is noticed")
        job.wait_for_step(job.steps() + 20)  # without it
        ray.add_node()
        job.wait(lambda: len(job.workers("joined")) == 4, "its actor has begun again")
        job.wait_for_step(job.steps() + 20)

        ray.end_raylet(1)
        job.wait(lambda: len(job.workers("left")) == 1, "the worker of an actor that was killed leaves in order")
        job.wait_for_step(job.steps() + 20)
        ray.add_node()
        job.wait(lambda: len(job.workers("joined")) == 5, "its actor has begun again")
        job.wait_for_step(job.steps() + 20)

        forced = [event for event in job.events("epoch") if event["kind"] == "forced"]
        require(len(forced) == 1, f"more than the node's loss was a surprise: {forced}")
        newest = job.newest_checkpoint()
        os.killpg(driver.pid, signal.SIGINT)
        driver.wait(MINUTES)
        job.wait(lambda: job.newest_checkpoint() > newest, "a last checkpoint")
        job.wait(lambda: not processes_naming(job.home), "all workers end")
        with open(job.path("coordinator.pid")) as file:
            os.kill(int(file.read()), signal.SIGTERM)
        job.compare_with_an_undisturbed_run()


main(what_ray_loses_changes_no_bit)
