"""A worker with a token and nothing else: before a coordinator answers, where its files lie elsewhere, and after the end."""
import os
import re
import signal
import subprocess
import time

from harness import LEFT, STARLING, main, require, wait_until
from ports import free_port

ALONE = 3  # exit code: no coordinator, or one whose job has ended without a model


class Group:
    """One coordinator, started by hand, and tokens."""

    def __init__(self, place, job):
        self.job, self.place, self.at = job, place, f"127.0.0.1:{free_port()}"
        self.keys = place.path(f"keys-{place.count}")
        subprocess.run([STARLING, "keys", "--split", self.keys, "--workers", "2", "--at", self.at], check=True,
                       stdout=subprocess.DEVNULL)
        self.log = place.path(f"coordinator-{place.count}.log")

    def coordinator(self, *options):
        with open(self.log, "a") as log:
            return subprocess.Popen([STARLING, "coordinator", "--job", self.job, "--keys", f"{self.keys}/coordinator-0",
                                     "--listen", self.at, "--workers", "1", "--state", self.place.path("state"),
                                     "--out", self.place.path("out"), *options], stdout=log, stderr=log)

    def worker(self, number, *options, folder="."):
        folder = self.place.path(folder)
        os.makedirs(folder, exist_ok=True)
        return subprocess.Popen([STARLING, "worker", "--join", f"{self.keys}/worker-{number}.token", "--save", "none",
                                 *options], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def ended(process, code):
    said, _ = process.communicate(timeout=300)
    require(process.returncode == code, f"exit code {process.returncode}, expected {code}: {said}")
    return said


def a_worker_that_nobody_answers_waits_as_long_as_it_is_told_to(place):
    group = Group(place, place.job())
    begun = time.monotonic()
    said = ended(group.worker(0, "--wait", "2"), ALONE)
    require("no coordinator answered for 2000 ms" in said, said)
    require(time.monotonic() - begun >= 2, "it has not waited")


def a_worker_that_is_told_to_leave_before_anybody_answers_has_left(place):
    """An engine that takes it away starts it again by that code."""
    worker = Group(place, place.job()).worker(0, "--wait", "300")
    wait_until(lambda: "nobody" in os.read(worker.stdout.fileno(), 4096).decode(), "it says that it waits")
    worker.send_signal(signal.SIGTERM)
    ended(worker, LEFT)


def data_that_lie_elsewhere_here_need_not_be_where_the_job_says(place):
    job = place.job(steps=20)
    group = Group(place, job)
    with group.coordinator("--new") as coordinator:
        wait_until(lambda: "listens" in open(group.log).read(), "it listens", of=coordinator)
        os.mkdir(place.path("scratch"))
        os.rename(place.path("text.txt"), place.path("scratch/moved.txt"))
        ended(group.worker(0, "--data", "moved.txt", folder="scratch"), 0)
        require(coordinator.wait(300) == 0, open(group.log).read())


def who_comes_after_all_have_left_is_not_one_that_has_left(place):
    """Or its engine would start it again, and again."""
    job = place.job(steps=1000000, start_timeout_ms=1000)
    with open(job, "a") as file:
        file.write(f'[checkpoint]\ndir = "{place.path("checkpoints")}"\nevery = 1000\n')
    group = Group(place, job)
    with group.coordinator("--new") as coordinator:
        first = group.worker(0, "--notice", "3")
        wait_until(lambda: re.search(r"step \d+/", open(group.log).read()), "steps")
        first.send_signal(signal.SIGTERM)
        ended(first, LEFT)
        require(coordinator.wait(300) == LEFT, open(group.log).read())
    with group.coordinator() as again:  # as an engine starts it: it tells of the end
        try:
            said = ended(group.worker(1), ALONE)
        finally:
            again.kill()
    require("checkpoint" in said, said)


main(a_worker_that_nobody_answers_waits_as_long_as_it_is_told_to,
     a_worker_that_is_told_to_leave_before_anybody_answers_has_left,
     data_that_lie_elsewhere_here_need_not_be_where_the_job_says,
     who_comes_after_all_have_left_is_not_one_that_has_left)
