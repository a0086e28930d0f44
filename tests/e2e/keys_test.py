"""Keys on many machines: who has one file or token is one worker and nothing else, and may be shut
out while the job runs. Addresses as people write them."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import STARLING, main, processes_naming, require, wait_until
from ports import free_port


def starling(*arguments, **options):
    return subprocess.run([STARLING, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, **options)


class Parts:
    """One coordinator with split keys, and workers that are started by hand."""

    def __init__(self, place, job, workers, listen="127.0.0.1", at=None):
        place.count += 1
        self.folder = place.path(f"parts-{place.count}")
        os.mkdir(self.folder)
        self.keys = self.path("keys")
        address = f"{listen}:{free_port(listen.strip('[]'))}"
        self.at = at or address
        if at:
            self.at = at.replace("PORT", address.rsplit(":", 1)[1])
        made = starling("keys", "--split", self.keys, "--workers", 4, "--at", self.at)
        require(made.returncode == 0, made.stderr)
        self.out = self.path("out")
        self.coordinator = self.start("coordinator", "--job", job, "--keys",
                                      self.path("keys/coordinator-0"), "--listen", address, "--state",
                                      self.path("state"), "--out", self.out, "--workers", workers,
                                      "--new")
        self.workers = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, *arguments, **options):
        options.setdefault("cwd", self.folder)  # a worker leaves its model where it is
        return subprocess.Popen([STARLING, *map(str, arguments)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **options)

    def worker(self, *arguments, **options):
        self.workers.append(self.start("worker", *arguments, **options))
        return self.workers[-1]

    def token(self, i):
        return self.path(f"keys/worker-{i}.token")

    def events(self, kind):
        import json
        try:
            with open(os.path.join(self.out, "events.jsonl")) as file:
                events = [json.loads(line) for line in file.read().split("\n")[:-1]]
        except OSError:
            return []
        return [e for e in events if e["ev"] == kind]

    def steps(self):
        return max([e["version"] + 1 for e in self.events("step")], default=0)

    def losses(self):
        return sorted((e["version"], e["loss"], e["norm"]) for e in self.events("step"))

    def warnings(self):
        return [e["text"] for e in self.events("warning")]

    def end(self):
        for worker in self.workers:
            said, wrong = worker.communicate(timeout=120)
            require(worker.returncode == 0, f"{worker.returncode}: {said} {wrong}")
        _, wrong = self.coordinator.communicate(timeout=300)
        require(self.coordinator.returncode == 0, wrong)
        return self.events("done")[0]["digest"]

    def stop(self):
        for process in [*self.workers, self.coordinator]:
            process.send_signal(signal.SIGINT)
        return [process.communicate(timeout=300)[1] for process in [*self.workers, self.coordinator]]


def a_worker_needs_one_line_and_nothing_else(place):
    job = place.job(steps=60)
    quiet = place.quiet(job)
    parts = Parts(place, job, workers=3)
    nowhere = place.path("elsewhere")
    os.mkdir(nowhere)
    parts.worker("--join", parts.token(0), cwd=nowhere)
    with open(parts.token(1)) as file:
        token = file.read().strip()
    parts.worker(cwd=nowhere, env={**os.environ, "STARLING_JOIN": token})
    with open(parts.token(2)) as file:
        said = file.read().strip()
    worker = parts.worker("--join", said, cwd=nowhere)
    wait_until(lambda: len(parts.events("worker")) >= 3 or worker.poll() is not None, "three workers")
    require(not processes_naming(said), "the token is in a process's arguments for all to read")
    require(parts.end() == quiet.digest(), "another digest")
    require(sorted(e["name"] for e in parts.events("worker") if e["what"] == "joined") ==
            ["worker-0", "worker-1", "worker-2"], parts.events("worker"))


def a_stolen_file_is_that_worker_and_nothing_else(place):
    parts = Parts(place, place.job(steps=100000), workers=1)
    stolen = parts.path("keys/worker-1")
    with open(stolen) as file:
        lines = [line.split() for line in file.read().splitlines()[1:-1]]
    require(sorted(line[0] for line in lines) == ["coordinator-0", "worker-1"], lines)
    require([line[0] for line in lines if len(line) == 3] == ["worker-1"], "another one's secret")
    job = place.job()
    for arguments in (("coordinator", "--job", job, "--keys", stolen, "--state", place.path("s")),
                      ("worker", "--join", parts.at, "--keys", stolen, "--name", "worker-0"),
                      ("worker", "--join", parts.at, "--keys", stolen, "--name", "coordinator-0"),
                      ("keys", "--token", "worker-0", "--keys", stolen, "--at", parts.at),
                      ("keys", "--add", "worker-9", "--keys", stolen)):
        ended = starling(*arguments)
        require(ended.returncode == 2 and len(ended.stderr.strip().splitlines()) == 1,
                f"{arguments}: {ended.returncode} {ended.stderr}")
    # Under another name it is refused: what counts is the key.
    renamed = place.path("renamed")
    with open(renamed, "w") as file, open(stolen) as source:
        file.write(source.read().replace("worker-1", "worker-0"))
    os.chmod(renamed, 0o600)
    parts.worker("--join", parts.at, "--keys", renamed)
    wait_until(lambda: parts.events("worker"), "it joins")
    require(parts.events("worker")[0]["name"] == "worker-1", parts.events("worker"))
    parts.stop()


def a_refused_key_is_said_on_both_sides(place):
    parts = Parts(place, place.job(steps=100000), workers=1)
    wait_until(lambda: parts.events("start"), "the coordinator")
    stranger = place.path("stranger")
    with open(parts.path("keys/worker-0")) as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("worker-")]
    other = place.path("other-keys")
    starling("keys", "--split", other, "--workers", 1)
    with open(other + "/worker-0") as file:
        pair = [line for line in file.read().splitlines() if line.startswith("worker-")][0]
    with open(stranger, "w") as file:
        file.write("\n".join(lines[:-1] + [pair, lines[-1]]) + "\n")  # the last line has their number
    os.chmod(stranger, 0o600)
    for keys, word in ((stranger, "this key is not on the coordinators' list"),
                       (other, "is not coordinator-0 of these keys")):
        begun = time.monotonic()
        refused = starling("worker", "--join", parts.at, "--keys", keys)
        took = time.monotonic() - begun
        require(refused.returncode == 2 and word in refused.stderr and
                len(refused.stderr.strip().splitlines()) == 1, f"{refused.returncode} {refused.stderr}")
        require(took < 15, f"said after {took:.1f} s")  # 30 s is how long it waits for nobody
    public = pair.split()[1]
    wait_until(lambda: any(public in text and "127.0.0.1" in text for text in parts.warnings()),
               "the coordinator's warning")
    require(sum(public in text for text in parts.warnings()) == 1, parts.warnings())
    parts.stop()


def a_revoked_worker_is_shut_out_while_the_job_runs(place):
    job = place.job(steps=100000)  # longer than anything here takes
    parts = Parts(place, job, workers=3)
    elsewhere = place.path("of-an-earlier-job")
    os.mkdir(elsewhere)
    older = os.path.join(elsewhere, "model.safetensors")
    open(older, "w").close()
    for i in range(3):
        parts.worker("--join", parts.token(i), **({"cwd": elsewhere} if i == 1 else {}))
    wait_until(lambda: parts.steps() > 20, "steps")
    # Half a file, as a slow copy in place has it for a while, revokes nobody.
    with open(parts.path("keys/coordinator-0"), "r+") as file:
        text = file.read()
        file.truncate(text.index("worker-1 "))
        wait_until(lambda: any("it is not whole" in text for text in parts.warnings()), "the half file is noticed")
        file.seek(0)
        file.write(text)
    require(not any("revoked" in text for text in parts.warnings()), parts.warnings())
    revoked = starling("keys", "--revoke", "worker-1", "--keys", parts.keys)
    require(revoked.returncode == 0, revoked.stderr)
    out = parts.workers.pop(1)
    _, said = out.communicate(timeout=300)
    require(out.returncode == 2 and "no longer let in" in said, f"{out.returncode} {said}")
    require(os.listdir(elsewhere) == ["model.safetensors.old"], "an older model is left under the job's name")
    require(any("worker-1 revoked" in text for text in parts.warnings()), parts.warnings())
    without = wait_until(lambda: [e for e in parts.events("epoch") if e["kind"] == "forced"], "an epoch without it")
    require(without[0]["cause"] == "worker-1 revoked", without[0])
    require(sorted(m["name"] for m in without[0]["members"]) == ["worker-0", "worker-2"], without[0])
    again = starling("worker", "--join", parts.at, "--keys", parts.path("keys/worker-1"))
    require(again.returncode == 2, again.stderr)  # its file is gone
    added = starling("keys", "--add", "worker-9", "--keys", parts.keys, "--at", parts.at)
    require(added.returncode == 0, added.stderr)
    wait_until(lambda: any("worker-9 let in" in text for text in parts.warnings()), "the new key")
    parts.worker("--join", parts.token(9))
    wait_until(lambda: len([e for e in parts.events("worker") if e["what"] == "joined"]) == 4, "worker-9")
    now = parts.steps()
    wait_until(lambda: parts.steps() > now + 10, "more steps")
    parts.stop()
    quiet = place.quiet(place.job(steps=parts.steps(), schedule_steps=100000))
    require(parts.losses() == quiet.losses(), "losses or norms of steps differ")
    require({"worker-0", "worker-2", "worker-9"} ==
            set(e["name"] for e in parts.events("worker") if e["what"] == "joined") - {"worker-1"},
            parts.events("worker"))


def a_key_that_two_machines_have_is_told_to_both(place):
    parts = Parts(place, place.job(steps=100000), workers=1)
    parts.worker("--join", parts.at, "--keys", parts.path("keys/worker-0"))
    wait_until(lambda: parts.steps() > 5, "steps")
    copy = place.path("copy-of-worker-0")  # as on another machine: the lock is on the file
    shutil.copy(parts.path("keys/worker-0"), copy)
    second = starling("worker", "--join", parts.at, "--keys", copy)
    require(second.returncode == 2 and "the key of worker-0 is in use by the worker at" in second.stderr
            and "--split" in second.stderr, f"{second.returncode} {second.stderr}")
    require(any("used by two workers" in text for text in parts.warnings()), parts.warnings())
    went_on = parts.steps()
    wait_until(lambda: parts.steps() > went_on + 5, "the first one goes on")
    require("has come with the key of this one, worker-0" in parts.stop()[0], "the first is not told")


def keys_on_a_read_only_file_system_are_taken(place):
    job = place.job(steps=40)
    parts = Parts(place, job, workers=2)
    mounted = place.path("mounted")
    os.mkdir(mounted)
    join = [STARLING, "worker", "--join", parts.at, "--keys", mounted]
    if os.getuid() == 0:
        line = ["unshare", "--mount", "sh", "-c",
                'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"', "sh",
                parts.keys, mounted, *join]
    else:  # files that cannot be written
        line = ["sh", "-c", 'cp "$1"/worker-* "$2"; chmod 400 "$2"/worker-*; shift 2; exec "$@"', "sh",
                parts.keys, mounted, *join]
    for _ in range(2):
        parts.workers.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                              text=True, cwd=parts.folder))
        n = len(parts.workers)
        wait_until(lambda: len(parts.events("worker")) >= n or parts.workers[-1].poll() is not None,
                   "a worker")
    parts.end()
    require(sorted(e["name"] for e in parts.events("worker") if e["what"] == "joined") ==
            ["worker-0", "worker-1"], parts.events("worker"))


def a_job_file_that_differs_is_refused_by_its_keys(place):
    job = place.job(steps=100000)
    parts = Parts(place, job, workers=1)
    other = place.path("other.toml")
    with open(job) as source, open(other, "w") as file:
        file.write(source.read().replace("peak_rate = 1e-3", "peak_rate = 2e-3"))
    refused = starling("worker", "--join", parts.token(0), "--job", other)
    require(refused.returncode == 2 and
            "optimizer.peak_rate is 0.002 here and 0.001 there" in refused.stderr, refused.stderr)
    parts.stop()


def the_folder_of_a_run_has_no_key(place):
    port = free_port()
    run = place.run(place.job(steps=100000), "--workers", 1, "--port", port)
    run.wait_for_step(3)
    require(run.events("start")[0]["address"] == f"tcp://127.0.0.1:{port}", run.events("start"))
    with socket.create_connection(("127.0.0.1", port + 1), 10):
        pass  # the worker's
    keys = run.events("start")[0]["keys"]
    require(keys == run.out + ".keys" and os.stat(keys).st_mode & 0o777 == 0o700, keys)
    require(f"another worker joins by: starling worker --join {run.out}\n" in run.text(), run.text())
    joined = run.join()
    wait_until(lambda: len(run.workers()) == 2, "a second worker")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130, seconds=30)
    joined.wait(300)
    for folder, _, files in os.walk(run.out):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                require(not re.search(rb"starling-keys", file.read()), f"{name} has keys")
    require(not os.path.exists(keys), "keys are left")


def addresses_are_taken_as_people_write_them(place):
    job = place.job(steps=20)
    digest = place.quiet(job).digest()
    run = place.run(job, "--workers", 2, "--host", "localhost")
    require(run.digest() == digest, "localhost")
    parts = Parts(place, job, workers=1, listen="localhost", at="localhost:PORT")
    parts.worker("--join", parts.token(0))
    require(parts.end() == digest, "a coordinator at localhost")
    parts = Parts(place, job, workers=1, listen="0.0.0.0", at="127.0.0.1:PORT")
    parts.worker("--join", parts.token(0), "--listen", f"0.0.0.0:{free_port()}")
    require(parts.end() == digest, "everywhere")
    require("0.0.0.0" not in parts.events("start")[0]["address"], parts.events("start"))
    if os.path.exists("/proc/net/if_inet6"):
        with open("/proc/net/if_inet6") as file:
            v6 = "00000000000000000000000000000001" in file.read()
        if v6:
            for coordinators in (1, 3):
                run = place.run(job, "--workers", 2, "--host", "::1", "--coordinators", coordinators)
                require(run.digest() == digest, "::1")
            parts = Parts(place, job, workers=2, listen="[::1]")
            parts.worker("--join", parts.token(0))
            parts.worker("--join", parts.token(1), "--listen", f"[::1]:{free_port('::1')}")
            require(parts.end() == digest, "a coordinator at [::1]")


def addresses_that_lead_nowhere_are_refused_at_once(place):
    job = place.job()
    keys = place.path("keys")
    starling("keys", "--split", keys, "--workers", 1)
    worker = ("worker", "--keys", keys)
    for arguments, word in (
            ((*worker, "--join", "http://127.0.0.1:7000"), "http://"),
            ((*worker, "--join", "::1:7000"), "brackets"),
            ((*worker, "--join", "foo"), "foo"),
            ((*worker, "--join", "127.0.0.1:99999"), "99999"),
            ((*worker, "--join", "0.0.0.0:7000"), "0.0.0.0"),
            ((*worker, "--join", "127.0.0.1:7000", "--host", "0.0.0.0"), "--host"),
            ((*worker, "--join", "127.0.0.1:7000", "--advertise", "0.0.0.0:7"), "--advertise"),
            (("worker", "--join", "127.0.0.1:7000"), "--keys"),
            (("run", job, "--host", "0.0.0.0", "--out", place.path("out")), "0.0.0.0"),
            (("run", job, "--host", "no.such.host.invalid", "--out", place.path("out")), "not known"),
            (("keys", "--split", place.path("k"), "--at", "0.0.0.0:7000"), "0.0.0.0"),
            (("keys", "--split", place.path("k"), "--coordinators", "3", "--at", "a:1,b:2"), "all 3"),
    ):
        ended = starling(*arguments)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1 and word in lines[0],
                f"{arguments}: {ended.returncode} {ended.stderr}")
    require(not os.path.exists(place.path("k")), "refused keys were made")


def spares_may_have_no_address_and_coordinators_must(place):
    keys = place.path("with-spares")
    at = [f"10.0.0.{i}:7000" for i in range(9)]
    for few in (at[:2], at[:8]):
        wrong = starling("keys", "--split", keys, "--coordinators", 3, "--spares", 4, "--at", ",".join(few))
        require(wrong.returncode == 2 and "the addresses of all 3 coordinators of the keys, in order, and of their 4 "
                "spares as far as they are known" in wrong.stderr and not os.path.exists(keys), wrong.stderr)
    made = starling("keys", "--split", keys, "--coordinators", 3, "--spares", 4, "--workers", 2, "--at", ",".join(at[:3]))
    require(made.returncode == 0 and "3 coordinators and 4 spares" in made.stdout, made.stderr)
    for name in ("worker-1", "coordinator-0", "coordinator-6", "client"):
        with open(os.path.join(keys, name)) as file:
            lines = [line.split() for line in file.read().splitlines()]
        require(lines[1] == ["founders", "3"], lines)
        require([line[0] for line in lines if line[0].startswith("coordinator-")] ==
                [f"coordinator-{i}" for i in range(7)], lines)
    for change in (("--add", "worker-5", "--at", ",".join(at[:5])), ("--revoke", "worker-0"),
                   ("--token", "worker-1", "--at", ",".join(at[:7]))):
        done = starling("keys", "--keys", keys, *change)
        require(done.returncode == 0, done.stderr)
    checked = starling("check", os.path.join(keys, "coordinator-4"))
    require("keys of 3 coordinators (and 4 spares) and 2 workers" in checked.stdout, checked.stdout)
    # Without spares a list that is too short is told as before.
    for coordinators, few in ((3, at[:2]), (1, at[:2])):
        wrong = starling("keys", "--split", place.path("without"), "--coordinators", coordinators, "--at", ",".join(few))
        require(wrong.returncode == 2 and f"expected the addresses of all {coordinators} coordinators of the keys, "
                f"in order, got \"{','.join(few)}\"" in wrong.stderr, wrong.stderr)
    made = starling("keys", "-o", place.path("one-file"), "--coordinators", 1, "--spares", 2)
    require(made.returncode == 0 and "1 coordinators and 2 spares" in made.stdout, made.stderr)


main(spares_may_have_no_address_and_coordinators_must, a_worker_needs_one_line_and_nothing_else, a_stolen_file_is_that_worker_and_nothing_else,
     a_refused_key_is_said_on_both_sides, a_revoked_worker_is_shut_out_while_the_job_runs,
     a_key_that_two_machines_have_is_told_to_both, keys_on_a_read_only_file_system_are_taken,
     a_job_file_that_differs_is_refused_by_its_keys, the_folder_of_a_run_has_no_key, addresses_are_taken_as_people_write_them,
     addresses_that_lead_nowhere_are_refused_at_once)
