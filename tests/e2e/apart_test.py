"""Two workers that cannot hear each other while both are heard by everybody else: five machines that
are network namespaces behind one bridge, two of whose ports are isolated from each other."""
import contextlib
import json
import os
import shutil
import signal
import subprocess

from harness import MINUTE, STARLING, Failed, Skipped, main, require, wait_until

WORKERS = 5
LEASE_MS = 1000
SECONDS_APART = float(os.environ.get("STARLING_APART_S", "0"))  # 0: until one of the two was left out


def why_impossible():
    if not all(map(shutil.which, ("ip", "bridge", "nsenter", "unshare"))):
        return "no `ip`, `bridge`, `nsenter` or `unshare` here"
    tried = subprocess.run(["unshare", "--net", "sh", "-ec", """
        ip link add name probe type bridge
        ip link add name port type veth peer name end
        ip link set port master probe
        bridge link set dev port isolated on"""], capture_output=True, text=True)
    return "" if tried.returncode == 0 else tried.stderr.strip() or "not permitted"


class Machines:
    """Machine 0 has the coordinator, machine n worker n-1."""

    def __init__(self, place, job):
        self.place, self.log = place, open(place.path("log"), "w+")
        self.processes = []
        self.holders = [self.namespace() for _ in range(WORKERS + 2)]  # the last one is the switch
        self.switch = self.holders[-1].pid
        self.inside(self.switch, "ip link add name br0 type bridge && ip link set br0 up")
        for n in range(WORKERS + 1):
            self.inside(self.holders[n].pid, f"""
                ip link set lo up
                ip link add eth0 type veth peer name m{n} netns {self.switch}
                ip addr add {self.address(n)}/24 dev eth0
                ip link set eth0 up""")
            self.inside(self.switch, f"ip link set m{n} master br0 && ip link set m{n} up")
        keys, self.out = place.path("keys"), place.path("out")
        subprocess.run([STARLING, "keys", "--split", keys, "--workers", str(WORKERS), "--at",
                        f"{self.address(0)}:7000"], check=True, stdout=subprocess.DEVNULL)
        self.coordinator = self.start(0, "coordinator", "--job", job, "--keys", f"{keys}/coordinator-0",
                                      "--listen", f"{self.address(0)}:7000", "--workers", WORKERS,
                                      "--out", self.out, "--state", place.path("state"), "--new")
        for n in range(WORKERS):
            self.start(n + 1, "worker", "--join", f"{keys}/worker-{n}.token", "--save", "none")

    @staticmethod
    def address(n):
        return f"10.78.0.{n + 1}"

    @staticmethod
    def namespace():
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo in; exec sleep 3600"],
                                  stdout=subprocess.PIPE, text=True)
        require(holder.stdout.readline() == "in\n", "no network namespace")
        return holder

    @staticmethod
    def inside(pid, commands):
        done = subprocess.run(["nsenter", "--target", str(pid), "--net", "sh", "-e", "-c", commands],
                              capture_output=True, text=True, timeout=300)
        require(done.returncode == 0, f"{commands}: {done.stderr}")

    def start(self, n, *arguments):
        process = subprocess.Popen(["nsenter", "--target", str(self.holders[n].pid), "--net", STARLING,
                                    *map(str, arguments)], stdout=self.log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, cwd=self.place.folder)
        self.processes.append(process)
        return process

    def set_apart(self, workers, apart):
        for n in workers:
            self.inside(self.switch,
                        f"bridge link set dev m{n + 1} isolated {'on' if apart else 'off'}")

    def text(self):
        with open(self.log.name) as file:
            return file.read()

    def events(self, kind):
        try:
            with open(os.path.join(self.out, "events.jsonl")) as file:
                events = [json.loads(line) for line in file.read().split("\n")[:-1]]
        except OSError:
            return []
        return [e for e in events if e["ev"] == kind]

    def steps(self):
        return max([e["version"] + 1 for e in self.events("step")], default=0)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        for holder in self.holders:
            holder.kill()
            holder.wait()


def of_two_who_cannot_hear_each_other_one_is_left_out_and_the_others_go_on(place):
    why = why_impossible()
    if why:
        raise Skipped(why)
    job = place.waiting_job(steps=int(os.environ.get("STARLING_APART_STEPS", "400")), lease_ms=LEASE_MS)
    quiet = place.quiet(job)
    machines = Machines(place, job)
    try:
        wait_until(lambda: machines.steps() > 30, "steps")
        machines.set_apart((1, 2), True)
        cut = machines.events("step")[-1]["t"]

        def left_out():
            return [e for e in machines.events("worker") if e["what"] == "fenced" and e["t"] > cut]

        out = wait_until(left_out, "one of them is left out")
        epoch = [e for e in machines.events("epoch") if e["t"] > cut][-1]
        print(f"left out {out[0]['t'] - cut:.1f} s after the cut; steps go on after "
              f"{out[0]['t'] - cut + (epoch.get('resume_ms') or 0) / 1000:.1f} s", flush=True)
        before = machines.steps()
        wait_until(lambda: machines.steps() > before + 20, "the others go on")
        if SECONDS_APART:
            end = cut + SECONDS_APART
            wait_until(lambda: machines.events("step")[-1]["t"] > end or machines.events("done"),
                       "a long cut", 2 * SECONDS_APART)
        machines.set_apart((1, 2), False)
        wait_until(lambda: machines.events("done"), "the end")
        names = {e["name"] for e in machines.events("worker")
                 if e["what"] == "fenced" and e["name"] in ("worker-1", "worker-2")}
        require(names, f"another was left out: {left_out()}")
        told = [e["text"] for e in machines.events("warning") if "is left out: " in e["text"]]
        require(any(t.split()[0] in names for t in told), f"nobody is told: {told}")
        require("left out of the group, as " in machines.text(), "the worker is not told why")
        done = machines.events("done")[0]
        require(done["digest"] == quiet.digest(), f"{done}: not the bits of an undisturbed run")
    except Failed as error:
        raise Failed(f"{error}\n{machines.text()[-3000:]}") from None
    finally:
        machines.close()


main(of_two_who_cannot_hear_each_other_one_is_left_out_and_the_others_go_on)
