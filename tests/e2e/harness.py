"""Starts the `starling` command, watches events.jsonl, disturbs it, and says what must hold.

Every test script is called with the path of the command; it makes its own folder and job, and ends
with exit code 0 only if all its tests held and no process of it is left; with 77 if it could show none here.
"""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

STARLING = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "starling"
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A shell's job in the background has it ignored, and so would every process that is begun here.
signal.signal(signal.SIGINT, signal.default_int_handler)

MINUTE = 60.0
# However busy the machine is: only a failing test waits so long.
PATIENCE = 3 * MINUTE
# A lease for tests in which nobody may be left out for being late.
LONG_LEASE_MS = 10000
# Of jobs that do not say theirs: "emulated" runs every test on the device whose memory the host cannot read.
ISA = os.environ.get("STARLING_E2E_ISA", "auto")
LEFT = 143  # the worker has left, as it was told to
NOT_HERE = 6  # the job is done, and the model that was to be saved is elsewhere


SKIPPED = 77  # exit code where every test was skipped; ctest knows it


class Failed(Exception):
    pass


class Skipped(Exception):
    """This machine cannot show what the test is of; says why."""


def require(condition, text):
    if not condition:
        raise Failed(text)


def wait_until(condition, what, seconds=PATIENCE, of=None):
    """`seconds`: less than PATIENCE means nothing to a busy machine. `of`: a process without which it never comes."""
    seconds = max(seconds, PATIENCE)
    end = time.monotonic() + seconds
    while True:
        over = of is not None and of.poll() is not None
        value = condition()
        if value:
            return value
        require(not over, f"{what}: not before the end, exit code {of and of.returncode}")
        require(time.monotonic() < end, f"{what}: not within {seconds:.0f} s")
        time.sleep(0.005)


def alive(pid):
    """A process whose first thread has ended has its files and locks until the last one has."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rsplit(")", 1)[1].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def children_of(pid, warm=False):
    """Without those that only do a script's imports and are forked; warm: those alone."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/stat") as file:
                name, rest = file.read().rsplit(")", 1)
                if int(rest.split()[1]) == pid and alive(entry) and name.endswith("(starling-warm") == warm:
                    found.append(int(entry))
    return found


def processes_naming(text):
    """Processes, not zombies, whose command line has this text."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if text.encode() in file.read() and int(entry) != os.getpid() and alive(entry):
                    found.append(int(entry))
    return found


JOB = """
[job]
name = "e2e"
steps = {steps}
micro_batches = {micro_batches}
sequences = {sequences}
replicas = {replicas}
precision = "{precision}"
recompute = {recompute}
isa = "{isa}"
offload = "{offload}"
{more}
[model]
kind = "gpt"
layers = 2
heads = 2
width = {width}
context = {context}
vocabulary = 256
[optimizer]
kind = "adamw"
peak_rate = 1e-3
warmup_steps = 5
schedule_steps = {schedule_steps}
[data]
kind = "text"
path = "text.txt"
[elastic]
lease_ms = {lease_ms}
start_timeout_ms = {start_timeout_ms}
state_timeout_ms = {state_timeout_ms}
coordinator_timeout_ms = {coordinator_timeout_ms}
"""


class Place:
    """A folder of its own with a text and job files; goes away at the end."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="starling-e2e-")
        words = ["".join(random.Random(i).choices("abcdefghijklmnop", k=2 + i % 7)) for i in range(300)]
        with open(self.path("text.txt"), "w") as file:
            file.write(" ".join(random.Random(7).choices(words, k=20000)))
        self.count = 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def job(self, **changes):
        values = dict(steps=200, schedule_steps=0, micro_batches=8, sequences=2, context=32,
                      replicas=2, width=32, lease_ms=1000, start_timeout_ms=120000,
                      state_timeout_ms=60000, coordinator_timeout_ms=30000,
                      precision="fp32", recompute="false", isa=ISA, offload="none", more="")
        values.update(changes)
        self.count += 1
        path = self.path(f"job-{self.count}.toml")
        with open(path, "w") as file:
            file.write(JOB.format(**values))
        return path

    def waiting_job(self, compute_ms=15, **changes):
        """A job whose passes wait and compute next to nothing, for runs that last as long as what is done to them: such
        a run leaves the processors to the tests beside it."""
        path = self.job(**changes)
        with open(path) as file:
            before, rest = file.read().split("[model]\n")
        optimizer, elastic = rest[rest.index("[optimizer]"):].split("[data]\n")
        with open(path, "w") as file:
            file.write(f'{before}[model]\nkind = "synthetic"\nparameters = 30_000\ncompute_ms = {compute_ms}\n'
                       f'{optimizer}{elastic[elastic.index("[elastic]"):]}')
        return path

    def run(self, job, *options):
        self.count += 1
        return Run(job, self.path(f"out-{self.count}"), options)

    def quiet(self, job):
        """The run that others are compared with: of one worker, undisturbed, at its end."""
        return self.begin_quiet(job).end()

    def begin_quiet(self, job):
        """The same, begun. It does not wait: compute_ms is in no bit of the result."""
        with open(job) as file:
            text = file.read()
        hasty = re.sub(r"compute_ms = \d+", "compute_ms = 0", text)
        if hasty != text:
            job += ".quiet"
            with open(job, "w") as file:
                file.write(hasty)
        return self.run(job, "--workers", 1)

    def close(self):
        left = processes_naming(self.folder)
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        require(not left, f"processes left behind: {left}")


class Run:
    """One `starling run` in the background."""

    def __init__(self, job, out, options, before=None):
        self.out = out
        self.log = open(out + ".log", "w+")
        self.joiners = []
        # A test that kills a worker has one less, unless it says otherwise.
        keeps = () if "--respawn" in options else ("--respawn", 0)
        self.process = subprocess.Popen([STARLING, "run", job, "--out", out, *map(str, (*keeps, *options))],
                                        stdout=self.log, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, start_new_session=True,
                                        preexec_fn=before)

    def text(self):
        with open(self.out + ".log") as file:
            return file.read()

    def events(self, kind=None):
        try:
            with open(os.path.join(self.out, "events.jsonl")) as file:
                lines = file.read().split("\n")[:-1]
        except OSError:
            return []
        events = [json.loads(line) for line in lines]
        return [e for e in events if kind is None or e["ev"] == kind]

    def workers(self, what="joined"):
        return [e for e in self.events("worker") if e["what"] == what]

    def steps(self):
        steps = self.events("step")
        return steps[-1]["version"] + 1 if steps else 0

    def wait_for_step(self, step):
        def there():
            require(self.process.poll() is None, f"ended before step {step}:\n{self.text()}")
            return self.steps() >= step
        wait_until(there, f"step {step}")

    def kill(self, worker, number=signal.SIGKILL):
        os.kill(worker["pid"], number)

    def kill_together(self, workers):
        """Nothing that follows from the first death can be done before the last one."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for worker in workers:
                self.kill(worker, number)

    def kill_everything(self):
        """All processes at once, the run's own too, and every file of theirs."""
        self.kill_together([{"pid": self.process.pid}, *self.workers()])
        self.process.wait()
        shutil.rmtree(self.out)

    def join(self, *options):
        joiner = subprocess.Popen(
            [STARLING, "worker", "--join", self.out, *options],
            stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            cwd=os.path.dirname(self.out))  # where it saves the model
        self.joiners.append(joiner)
        return joiner

    def end(self, code=0, seconds=PATIENCE):
        """Waits for the end with this exit code."""
        seconds = max(seconds, PATIENCE)
        try:
            got = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(MINUTE)
            raise Failed(f"no end within {seconds:.0f} s:\n{self.text()[-3000:]}") from None
        # Where all who were there at the end are joiners, they have the model, and the run says so.
        elsewhere = code == 0 and got == NOT_HERE and self.joiners and "the model is not here" in self.text()
        require(got == code or elsewhere, f"exit code {got}, expected {code}:\n{self.text()[-3000:]}")
        left = [e["pid"] for e in self.workers() if e["pid"] not in
                [j.pid for j in self.joiners] and alive(e["pid"])]
        require(not left or self.joiners, f"workers left behind: {left}")
        return self

    def digest(self):
        self.end()
        for joiner in self.joiners:
            require(joiner.wait(PATIENCE) in (0, LEFT), f"a joiner ended with {joiner.returncode}:\n{self.text()}")
        done = self.events("done")
        require(len(done) == 1, f"{len(done)} `done` events")
        return done[0]["digest"]

    def losses(self):
        return sorted((e["version"], e["loss"], e["norm"]) for e in self.events("step"))

    def verify_ledger(self, *options):
        checked = subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "verify_ledger.py"),
                                  self.out, *options], capture_output=True, text=True)
        require(checked.returncode == 0, checked.stdout + checked.stderr)


def written(place, name, content):
    path = place.path(name)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def edited(place, job, *changes):
    """A job file with lines changed: (pattern, replacement) pairs."""
    with open(job) as file:
        text = file.read()
    for pattern, replacement in changes:
        require(re.search(pattern, text), f"{pattern} is not in the job file")
        text = re.sub(pattern, lambda _: replacement, text, count=1)
    place.count += 1
    path = place.path(f"edited-{place.count}.toml")
    with open(path, "w") as file:
        file.write(text)
    return path


def with_checkpoints(job, folder, every):
    """The job file, with a [checkpoint] section."""
    with open(job, "a") as file:
        file.write(f'\n[checkpoint]\ndir = "{folder}"\nevery = {every}\n')
    return job


def kill_join_and_leave(run, step, *join_options):
    """From that step on: a worker is killed, another one joins, a third one announces its leave and goes."""
    run.wait_for_step(step)
    run.kill(run.workers()[0])
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    before = len(run.workers())
    run.join(*join_options)
    wait_until(lambda: len(run.workers()) > before, "the join")
    leaver = run.workers()[1]
    run.kill(leaver, signal.SIGTERM)
    wait_until(lambda: not alive(leaver["pid"]), "the leaver's end")


def same_digest_by_any_group(place, job, name, step):
    """By 1, 2, 3, 4 and 7 workers of one to three threads; of three and more, with a kill, a join and a leave from that step on."""
    digest = place.quiet(job).digest()
    for workers, threads in zip((1, 2, 3, 4, 7), (2, 3, 1, 2, 1)):
        run = place.run(job, "--workers", workers, "--threads", threads)
        if workers > 2:
            kill_join_and_leave(run, step)
        require(run.digest() == digest, f"{name}: another digest by {workers} workers")
        print(f"{name}: {workers} workers of {threads} threads, digest {digest}", flush=True)


def left_out_and_back(run, world, how="fenced"):
    """Waits until a worker was left out of this many, or lost, and as many compute again."""
    wait_until(lambda: run.workers(how), f"a worker is {how}")

    def back():
        events = run.events()
        gone = next(i for i, e in enumerate(events) if e["ev"] == "worker" and e["what"] == how)
        return any(e["ev"] == "step" and e["world"] == world for e in events[gone:])
    wait_until(back, f"{world} workers compute again")


@contextlib.contextmanager
def environment(**variables):
    """What is started within has these too; none of them is set already."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def sabotage(order):
    return environment(STARLING_SABOTAGE=order)


def same(run, quiet):
    """P1 and P2: the bits of an undisturbed run, every micro-batch once."""
    digest, expected = run.digest(), quiet.digest()
    require(digest == expected, f"digest {digest}, undisturbed {expected}:\n{run.text()[-2000:]}")
    require(run.losses() == quiet.losses(), "losses or norms of steps differ")
    run.verify_ledger()


def same_so_far(place, run, job):
    """Ends a run whose steps outlast whatever was to be seen: P1 and P2 of the steps that it made, beside an
    undisturbed run of as many."""
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)
    for joiner in run.joiners:
        require(joiner.wait(PATIENCE) in (130, LEFT), f"a joiner ended with {joiner.returncode}:\n{run.text()}")
    quiet = place.begin_quiet(job)
    quiet.wait_for_step(run.steps())
    quiet.process.send_signal(signal.SIGINT)
    quiet.end(code=130)
    steps = run.steps()
    require(run.losses() == quiet.losses()[:steps], "losses or norms of steps differ")
    run.verify_ledger("--partial")


def drawn_runs(place, runs, seed, one):
    """For the programs of the long suite: calls one(number, dice) -> text so many times, each with dice of its own from
    the seed, prints how each ended and `N passed, N failed`, and ends the process with 1 if any failed."""
    passed = failed = 0
    for i in range(runs):
        dice, begun = random.Random(seed * 1000003 + i), time.monotonic()
        try:
            print(f"ok      {i}: {one(i, dice)} ({time.monotonic() - begun:.1f} s)", flush=True)
            passed += 1
        except (Failed, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {i}, seed {seed}: {error}", flush=True)
    try:
        place.close()
    except Failed as error:
        failed += 1
        print(f"FAILED  {error}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def main(*tests, long=()):
    """Those of `long` take minutes: the ordinary suite names them, and STARLING_LONG=1 runs them alone."""
    if os.environ.get("STARLING_LONG"):
        tests = long
    else:
        for test in long:
            print(f"LONG    {test.__name__}: by tools/test.sh --long", flush=True)
    failed = skipped = 0
    for test in tests:
        begun = time.monotonic()
        place = Place()
        try:
            try:
                test(place)
            finally:
                place.close()
            print(f"ok      {test.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Skipped as why:
            skipped += 1
            print(f"SKIPPED {test.__name__}: {why}", flush=True)
        except Exception as error:  # whatever it is, the next test is run
            failed += 1
            if not isinstance(error, Failed):
                traceback.print_exc()
            cause = f"{error.__context__}; then " if error.__context__ else ""
            print(f"FAILED  {test.__name__}: {cause}{error}", flush=True)
    sys.exit(1 if failed else SKIPPED if skipped == len(tests) else 0)
