"""Coordinators and workers started one by one, as on many machines."""
import json
import os
import signal
import subprocess

from harness import STARLING, require, wait_until
from ports import free_ports


class Cluster:
    """Ends what it has started when it is left."""

    def __init__(self, place, job, coordinators, workers, environment=None, spares=0):
        self.place, self.job, self.wanted = place, job, workers
        self.environment = {**os.environ, **(environment or {})}
        place.count += 1
        self.name = f"cluster-{place.count}"
        self.keys = place.path(self.name + ".keys")
        subprocess.run([STARLING, "keys", "--out", self.keys, "--coordinators", str(coordinators), "--spares", str(spares)],
                       check=True, stdout=subprocess.DEVNULL)
        everywhere = [f"127.0.0.1:{port}" for port in free_ports(coordinators + spares)]
        self.addresses, self.of_spares = everywhere[:coordinators], everywhere[coordinators:]
        self.coordinators, self.workers, self.begun, self.workers_begun = {}, [], set(), 0
        self.log = open(place.path(self.name + ".log"), "w+")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        everything = list(self.coordinators.values()) + self.workers
        for process in everything:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in everything:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def text(self):
        with open(self.log.name) as file:
            return file.read()

    def start(self, *arguments):
        return subprocess.Popen([STARLING, *map(str, arguments)], stdout=self.log, cwd=self.place.folder,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.environment)

    def folder(self, i):
        return self.place.path(f"{self.name}-{i}")

    def command(self, i, job=None):
        return ("coordinator", "--job", job or self.job, "--keys", self.keys, "--name", f"coordinator-{i}",
                "--listen", (self.addresses + self.of_spares)[i], "--peers", ",".join(self.addresses), "--workers",
                self.wanted, "--state", self.folder(i))

    def start_coordinator(self, i, job=None):
        first = ("--new",) if i not in self.begun else ()  # what an empty folder is, is said
        self.begun.add(i)
        self.coordinators[i] = self.start(*self.command(i, job), *first)
        return self.coordinators[i]

    def add_coordinator(self, i, *options):
        """A spare, at an address that nobody knows yet; it knows those of the ones before it."""
        command = list(self.command(i))
        command[command.index("--peers") + 1] = ",".join((self.addresses + self.of_spares)[:i])
        self.coordinators[i] = self.start(*command, "--add", *options)
        return self.coordinators[i]

    def start_worker(self, *options, everywhere=False):
        """everywhere: it is told the addresses of spares, too."""
        addresses = self.addresses + (self.of_spares if everywhere else [])
        self.workers_begun += 1
        self.workers.append(self.start("worker", "--join", ",".join(addresses), "--keys", self.keys,
                                       "--job", self.job, "--name", f"worker-{self.workers_begun - 1}", *options))
        return self.workers[-1]

    def start_all(self):
        for i in range(len(self.addresses)):
            self.start_coordinator(i)
        for _ in range(self.wanted):
            self.start_worker()
        return self

    def events(self, i, kind=None):
        try:
            with open(os.path.join(self.folder(i), "events.jsonl")) as file:
                events = [json.loads(line) for line in file.read().split("\n")[:-1]]
        except OSError:
            return []
        return [e for e in events if kind is None or e["ev"] == kind]

    def steps(self, i):
        return max((e["version"] + 1 for e in self.events(i, "step")), default=0)

    def wait_for_step(self, i, step, seconds=120):
        wait_until(lambda: self.steps(i) >= step, f"step {step} at coordinator {i}", seconds)

    def end(self, seconds=120):
        """All of the processes, with 0."""
        for process in self.workers + list(self.coordinators.values()):
            code = process.wait(seconds)
            require(code == 0, f"exit code {code}:\n{self.text()[-3000:]}")
