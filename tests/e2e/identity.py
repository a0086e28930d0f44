"""Workers that show tokens of an OIDC provider: a group of processes for them, and what must hold whatever provider it is
(identity_test.py has one of its own, tests/engines/oidc_test.py a real one)."""
import base64
import json
import os
import re
import signal
import subprocess
import time

from harness import LONG_LEASE_MS, STARLING, require, wait_until, written
from ports import free_ports

AUDIENCE = "starling"


def encoded(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(part):
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def unsigned(token):
    """The same claims, as the token of anybody: alg "none", no signature."""
    return f"{encoded({**decoded(token.split('.')[0]), 'alg': 'none'})}.{token.split('.')[1]}."


def job_with_identity(place, job, issuer, more=""):
    with open(job) as file:
        text = file.read()
    place.count += 1
    return written(place, f"identity-{place.count}.toml",
                   f'{text}\n[identity]\nissuer = "{issuer}"\naudience = "{AUDIENCE}"\n{more}')


class Group:
    """Coordinators with split keys, and workers of which none has any. Ends what it has started. `coordinator`: the first."""

    def __init__(self, place, job, workers, *options, coordinators=1):
        place.count += 1
        self.place, self.job, self.wanted, self.options = place, job, workers, options
        self.folder = place.path(f"group-{place.count}")
        os.mkdir(self.folder)
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(coordinators)]
        self.address, self.workers, self.count = self.addresses[0], [], 0
        made = subprocess.run([STARLING, "keys", "--split", self.path("keys"), "--workers", "1", "--coordinators",
                               str(coordinators), "--at", ",".join(self.addresses)], capture_output=True, text=True)
        require(made.returncode == 0, made.stderr)
        self.join = self.path("join.public")
        os.rename(self.path("keys/join.public"), self.join)
        self.coordinator, self.others = None, {}
        for number in range(coordinators):
            self.start_coordinator("--new", number=number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        everything = [*self.workers, self.coordinator, *self.others.values()]
        for process in everything:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in everything:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, log, *arguments):
        with open(self.path(log), "a") as file:
            return subprocess.Popen([STARLING, *map(str, arguments)], stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                                    cwd=self.folder)

    def start_coordinator(self, *more, number=0):
        ending = f"-{number}" if number else ""
        process = self.start(
            f"coordinator{ending}.log", "coordinator", "--job", self.job, "--keys", self.path(f"keys/coordinator-{number}"),
            "--listen", self.addresses[number], "--peers", ",".join(self.addresses), "--state", self.path(f"state{ending}"),
            "--out", self.path(f"out{ending}"), "--workers", self.wanted, "--log", "info", *self.options, *more)
        if number:
            self.others[number] = process
        else:
            self.coordinator = process

    def kill_coordinator(self):
        self.coordinator.kill()
        self.coordinator.wait()

    def worker(self, token, *options):
        """Starts one that shows this token; its number is that of its log."""
        self.count += 1
        self.show(self.count - 1, token)
        self.workers.append(self.start(f"worker-{self.count - 1}.log", "worker", "--join", self.join, "--identity-token",
                                       self.path(f"token-{self.count - 1}"), *options))
        return self.workers[-1]

    def show(self, number, token):
        """What the worker of that number reads from now on, replaced in one step as kubelet does."""
        with open(self.path("token.part"), "w") as file:
            file.write(token + "\n")
        os.rename(self.path("token.part"), self.path(f"token-{number}"))

    def text(self, log):
        with open(self.path(log)) as file:
            return file.read()

    def said(self, number):
        """Lines of that worker. On a busy machine it says first that it waits, which is left out."""
        return [line for line in self.text(f"worker-{number}.log").splitlines() if not line.endswith(", waiting")]

    def events(self, kind):
        try:
            with open(self.path("out/events.jsonl")) as file:
                events = [json.loads(line) for line in file.read().split("\n")[:-1]]
        except OSError:
            return []
        return [e for e in events if e["ev"] == kind]

    def steps(self):
        return max([e["version"] + 1 for e in self.events("step")], default=0)

    def joined(self):
        return [e["name"] for e in self.events("worker") if e["what"] == "joined"]

    def warnings(self):
        return [e["text"] for e in self.events("warning")]

    def wait_for_step(self, step):
        def there():
            require(self.coordinator.poll() is None, f"no step {step}: {self.text('coordinator.log')}")
            return self.steps() >= step
        wait_until(there, f"step {step}")

    def digest(self):
        for number, worker in enumerate(self.workers):
            require(worker.wait(300) == 0, f"{worker.returncode}: {self.text(f'worker-{number}.log')}")
        for process in (self.coordinator, *self.others.values()):
            require(process.wait(300) == 0, self.text("coordinator.log"))
        return self.events("done")[0]["digest"]


def a_good_token_lets_a_worker_in(place, provider):
    job = place.job(steps=40)
    digest = place.quiet(job).digest()
    with Group(place, job_with_identity(place, job, provider.issuer), 2) as group:
        before = set(os.listdir(group.folder))
        group.worker(provider.token())
        group.worker(provider.token())
        require(group.digest() == digest, "another digest")
        require(len(set(group.joined())) == 2 and all(re.fullmatch(r"worker-[1-9]\d{11}", n) for n in group.joined()), group.joined())
        new = {name for name in set(os.listdir(group.folder)) - before if not re.fullmatch(r"(worker|token)-\d(\.log)?", name)}
        require(new <= {"out", "state", "model.safetensors", "config.json"}, f"a worker leaves {new}")
        log = group.text("coordinator.log")
        require(all(f"identity: let in {name} from 127.0.0.1, of " in log for name in group.joined()), log)
        require(not group.warnings(), group.warnings())


def bad_tokens_are_refused_on_both_sides(place, provider, bad):
    """`bad`: lines by tokens. All are shown at once."""
    with Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer), 1) as group:
        group.worker(provider.token())
        group.wait_for_step(3)
        time.sleep(6)  # from then on an unknown key has the provider asked at once, and the worker says nothing first
        for token in bad:
            group.worker(token)
        for number, line in enumerate(bad.values(), 1):
            worker = group.workers[number]
            require(worker.wait(120) == 2, f"{worker.returncode}: {group.text(f'worker-{number}.log')}")
            said = group.said(number)
            require(len(said) == 1 and re.fullmatch(f"starling: identity: {line}", said[0]), f"expected {line}, said {said}")
        wait_until(lambda: len(group.warnings()) >= len(bad), "the coordinator's lines")
        for line in bad.values():
            told = [t for t in group.warnings() if re.fullmatch(f"refused a worker by its token, identity: {line}; it came from 127.0.0.1", t)]
            require(len(told) == 1, f"{line}: told {told} of {group.warnings()}")
        require(len(group.joined()) == 1, group.joined())
        now = group.steps()
        group.wait_for_step(now + 3)
        print(*(line for line in group.warnings()), sep="\n", flush=True)


def a_coordinator_that_comes_back_lets_its_workers_in_again(place, provider):
    job = place.job(steps=300, lease_ms=LONG_LEASE_MS)
    digest = place.quiet(job).digest()
    with Group(place, job_with_identity(place, job, provider.issuer), 2) as group:
        group.worker(provider.token())
        group.worker(provider.token())
        group.wait_for_step(20)
        group.kill_coordinator()
        for number in range(2):  # by then they have been renewed
            group.show(number, provider.token())
        provider.stop()
        group.start_coordinator()
        require(group.digest() == digest, "another digest")
        provider.start()
        require("the provider is away, and its keys of before count: " in group.text("coordinator.log"), group.text("coordinator.log"))
        require(len(group.joined()) == 2, f"{group.joined()}: a worker began another life")
        require(group.text("coordinator.log").count("identity: let in worker-") >= 4, group.text("coordinator.log"))


def while_the_provider_is_away_workers_stay_and_newcomers_wait(place, provider):
    token = provider.token()
    provider.stop()
    with Group(place, job_with_identity(place, place.waiting_job(steps=100000), provider.issuer), 1) as group:
        group.worker(token, "--wait", 120)
        line = "the coordinators at .* do not let in this worker yet: identity: the keys of .* cannot be had: .*, waiting"
        wait_until(lambda: re.search(line, group.text("worker-0.log")), "the worker says why it waits", of=group.workers[0])
        require(len(group.text("worker-0.log").splitlines()) == 1, group.text("worker-0.log"))
        wait_until(lambda: group.warnings(), "the coordinator says it")
        require(len(group.warnings()) == 1 and "cannot be had" in group.warnings()[0], group.warnings())
        provider.start()
        group.wait_for_step(3)
        provider.stop()
        now = group.steps()
        group.wait_for_step(now + 10)
        group.worker(token)  # the keys are known for an hour
        wait_until(lambda: len(group.joined()) == 2, "another worker")
        provider.start()
