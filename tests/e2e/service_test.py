"""What a service manager (systemd, Type=notify) hears of coordinators and workers, by a socket of the test's own."""
import os
import signal
import socket
import time

from cluster import Cluster
from harness import LEFT, children_of, main, require, wait_until

WATCHDOG_S = 3  # a service says three times in it that it is alive


class Manager:
    """Hears what a service says of itself."""

    def __init__(self, place, name):
        self.path = place.path(name + ".notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.said = []

    def variables(self):
        return {"NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": str(WATCHDOG_S * 1_000_000)}

    def heard(self, text):
        try:
            while True:
                self.said.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return sum(one.startswith(text) for one in self.said)

    def wait_for(self, text, count=1):
        wait_until(lambda: self.heard(text) >= count, f"{text}, {count} times, of {self.path}: {self.said[-5:]}")


def start(cluster, manager, begin):
    before = cluster.environment
    cluster.environment = {**before, **manager.variables()}
    process = begin()
    cluster.environment = before
    return process


def services_say_that_they_are_ready_and_alive(place):
    job = place.waiting_job(steps=100_000)
    with Cluster(place, job, coordinators=1, workers=2) as cluster:
        managers = [Manager(place, name) for name in ("worker", "coordinator")]
        worker = start(cluster, managers[0], lambda: cluster.start_worker("--notice", 8))
        managers[0].wait_for("READY=1")  # it needs no coordinator for that: `systemctl start` waits for it
        managers[0].wait_for("WATCHDOG=1", 3)  # it waits, and hangs not
        start(cluster, managers[1], lambda: cluster.start_coordinator(0))
        managers[1].wait_for("READY=1")
        cluster.start_worker()
        cluster.wait_for_step(0, 20)
        for manager in managers:
            manager.wait_for("WATCHDOG=1", manager.heard("WATCHDOG=1") + 3)
            manager.wait_for("STATUS=step ", 2)
        status = next(one for one in managers[1].said if one.startswith("STATUS=step "))
        require(status.endswith(" of 100000, 2 workers"), status)

        # What hangs says nothing: its manager kills it. Goes on, and it says so again.
        hangs = children_of(worker.pid)[0]
        os.kill(hangs, signal.SIGSTOP)
        wait_until(lambda: len(cluster.events(0, "worker")) >= 3, "it is left out")
        time.sleep(WATCHDOG_S / 3)
        before = managers[0].heard("WATCHDOG=1")
        time.sleep(WATCHDOG_S)
        require(managers[0].heard("WATCHDOG=1") == before, "a process that is stopped said that it is alive")
        os.kill(hangs, signal.SIGCONT)
        managers[0].wait_for("WATCHDOG=1", before + 2)
        wait_until(lambda: sum(event["what"] == "joined" for event in cluster.events(0, "worker")) == 3, "its next life")
        cluster.wait_for_step(0, cluster.steps(0) + 20)

        worker.send_signal(signal.SIGTERM)
        managers[0].wait_for("STOPPING=1")
        require(worker.wait(120) == LEFT, f"it ended with {worker.returncode}: {cluster.text()[-2000:]}")


def the_processes_of_a_run_leave_its_manager_alone(place):
    manager = Manager(place, "run")
    os.environ.update(manager.variables())
    try:
        run = place.run(place.job(steps=20), "--workers", 2, "--coordinators", 3)
        run.end()
    finally:
        for name in manager.variables():
            del os.environ[name]
    require(not manager.heard(""), f"heard {manager.said}")


main(services_say_that_they_are_ready_and_alive, the_processes_of_a_run_leave_its_manager_alone)
