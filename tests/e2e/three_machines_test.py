"""docs/three-machines.md, followed literally: its commands, on three machines that are network
namespaces behind one bridge, from nothing to a model on machine 1 after losing machine 2 and the
coordinator that leads."""
import json
import os
import re
import shutil
import signal
import subprocess

from harness import SOURCE, STARLING, Skipped, main, require, wait_until

PAGE = os.path.join(SOURCE, "docs", "three-machines.md")
SCP = """#!/bin/sh
# Copies to another "machine", whose home folder is beside ours.
for last; do :; done
host=${last%%:*}
while [ $# -gt 1 ]; do cp -p "$1" "@HOME@/$host/${last#*:}" || exit 1; shift; done
"""


STEPS = 600  # instead of the page's, which last until somebody has found the plug


def blocks_of(page):
    """(machine, commands) of each code block that is introduced with "On machine N:"."""
    with open(page) as file:
        text = file.read()
    require(text.count("\nsteps = 20000\n") == 1, "the page's number of steps was changed")
    text = text.replace("\nsteps = 20000\n", f"\nsteps = {STEPS}\n")
    return [(int(n), body) for n, body in
            re.findall(r"On machine ([123]):\n\n```\n(.*?)\n```\n", text, re.DOTALL)]


class Machines:
    """Three homes, and three network namespaces that exist for as long as a process is in them."""

    def __init__(self, place):
        self.folder = place.path("machines")
        self.bin = os.path.join(self.folder, "bin")
        os.makedirs(self.bin)
        os.symlink(STARLING, os.path.join(self.bin, "starling"))
        with open(os.path.join(self.bin, "scp"), "w") as file:
            file.write(SCP.replace("@HOME@", self.folder))
        os.chmod(os.path.join(self.bin, "scp"), 0o755)
        self.holders = [self.namespace() for _ in range(4)]  # the last one is the switch
        switch = self.holders[3].pid
        self.inside(switch, "ip link add name br0 type bridge && ip link set br0 up")
        for n in (1, 2, 3):
            os.mkdir(self.home(n))
            self.inside(self.holders[n - 1].pid, f"""
                ip link set lo up
                ip link add eth0 type veth peer name m{n} netns {switch}
                ip addr add {self.address(n)}/24 dev eth0
                ip link set eth0 up""")
            self.inside(switch, f"ip link set m{n} master br0 && ip link set m{n} up")

    @staticmethod
    def address(n):
        return f"10.77.0.{n}"

    def home(self, n):
        return os.path.join(self.folder, self.address(n))

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

    def run(self, n, commands):
        """As somebody would type them on machine n; what goes on in the background goes on."""
        environment = {**os.environ, "PATH": self.bin + ":" + os.environ["PATH"]}
        done = subprocess.run(["nsenter", "--target", str(self.holders[n - 1].pid), "--net", "bash",
                               "-e", "-c", commands], cwd=self.home(n), env=environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)
        require(done.returncode == 0, f"machine {n}: {commands}\n{done.stdout}")
        return done.stdout

    def unplug(self, n):
        self.inside(self.holders[3].pid, f"ip link set m{n} down")

    def processes(self, n):
        """Of machine n, without the one that only holds the namespace."""
        net = os.readlink(f"/proc/{self.holders[n - 1].pid}/ns/net")
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/net") == net:
                    found.append(int(entry))
            except OSError:
                pass
        return [pid for pid in found if pid != self.holders[n - 1].pid]

    def text(self, n, name):
        try:
            with open(os.path.join(self.home(n), name)) as file:
                return file.read()
        except OSError:
            return ""

    def events(self, n):
        return [json.loads(line) for line in self.text(n, "out/events.jsonl").split("\n")[:-1]]

    def steps(self, n):
        return max([e["version"] + 1 for e in self.events(n) if e["ev"] == "step"], default=0)

    def logs(self):
        names = [(n, name) for n in (1, 2, 3) for name in ("coordinator.log", "worker.log")]
        return "\n".join(f"-- {n} {name}\n{self.text(n, name)[-1500:]}" for n, name in names)

    def close(self):
        for n in (1, 2, 3):
            for pid in self.processes(n):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        for holder in self.holders:
            holder.kill()
            holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def why_impossible():
    if not shutil.which("ip") or not shutil.which("nsenter"):
        return "no `ip` or `nsenter` here"
    tried = subprocess.run(["unshare", "--net", "ip", "link", "add", "name", "probe", "type",
                            "bridge"],
                           capture_output=True, text=True)
    return "" if tried.returncode == 0 else tried.stderr.strip()


def the_page_leads_to_a_model_though_a_machine_and_the_leader_are_lost(place):
    why = why_impossible()
    if why:
        raise Skipped(why)
    blocks = blocks_of(PAGE)
    starts = {n: next(b for m, b in blocks if m == n and "starling coordinator" in b).replace(" --new", "")
              for n in (1, 2, 3)}
    require(starts[1] in open(PAGE).read(), "how to start a coordinator again is not on the page")
    machines = Machines(place)
    try:
        before = [b for b in blocks if "ls -l" not in b[1]]
        require(len(before) == 7, f"{len(before)} blocks: was the page changed?")
        for n, commands in before:
            machines.run(n, commands)
        wait_until(lambda: machines.steps(1) > 100, "steps", 200)
        follow(machines, blocks, starts)
    except Exception as error:
        raise type(error)(f"{error}\n{machines.logs()}") from None
    finally:
        machines.close()


def follow(machines, blocks, starts):
    machines.unplug(2)
    lost = machines.steps(1)
    wait_until(lambda: machines.steps(1) > lost + 50, "steps without machine 2", 200)
    # Whoever leads now is killed, and started again as the page says.
    where = wait_until(lambda: leading(machines), "a leader on machine 1 or 3")
    machines.run(where, "kill -9 $(cat coordinator.pid)")
    other = 4 - where
    went_on = machines.steps(other)
    machines.run(where, starts[where])
    wait_until(lambda: machines.steps(other) > went_on + 50, "steps after the leader's loss", 200)
    wait_until(lambda: "digest" in machines.text(1, "worker.log"), "the worker's last word", 400)
    for n, commands in blocks:
        if "ls -l" in commands:
            shown = machines.run(n, commands)
            require("model.safetensors" in shown and "digest" in shown, shown)
    digest = re.search(r"digest ([0-9a-f]{32})", machines.text(1, "worker.log"))[1]
    require(digest == undisturbed(machines), f"{digest}: not the bits of an undisturbed run")


def leading(machines):
    """1 or 3: the machine whose coordinator leads, by the highest term that is told there; None while
    that is machine 2, whose place nobody has taken yet."""
    told = [(e["term"], e["coordinator"]) for n in (1, 2, 3) for e in machines.events(n)
            if e["ev"] == "leader"]
    place = max(told)[1] if told else 1
    return None if place == 1 else place + 1


def undisturbed(machines):
    out = os.path.join(machines.folder, "quiet")
    done = subprocess.run([STARLING, "run", os.path.join(machines.home(1), "job.toml"), "--out", out],
                          capture_output=True, text=True, timeout=300)
    require(done.returncode == 0, done.stderr)
    return re.search(r"digest ([0-9a-f]{32})", done.stdout)[1]


main(the_page_leads_to_a_model_though_a_machine_and_the_leader_are_lost)
