"""Coordinators that die: no step stops, and they come back."""
import os
import shutil
import signal
import socket
import subprocess

from harness import STARLING, Failed, main, processes_naming, require, same, wait_until
from ports import free_ports


def starling(*arguments):
    return subprocess.run([STARLING, *arguments], capture_output=True, text=True)


def coordinators_of(run):
    return [p for p in processes_naming(run.out + "/coordinator-")]


def a_killed_coordinator_stops_no_step_and_comes_back(place):
    job = place.waiting_job(steps=250)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 3, "--coordinators", 3)
    run.wait_for_step(50)
    first = coordinators_of(run)
    require(len(first) == 3, f"{len(first)} coordinators, expected 3")
    for pid in first:  # one after the other, so the leader is among them
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(coordinators_of(run)) == 3, "it is started again", 10)
        now = run.steps()
        wait_until(lambda: run.steps() > now + 20, "steps go on", 10)
    require(not set(first) & set(coordinators_of(run)), "a killed coordinator lives")
    run.kill(run.workers()[1])
    same(run, quiet)
    require(len(run.workers("lost")) == 1, "the loss was not noticed once")


def each_coordinator_has_a_port_of_its_own_that_nobody_dials_from(place):
    """Or a connection, or another run's worker, could have the port while its coordinator begins."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first_dialled = int(file.read().split()[0])
    run = place.run(place.job(steps=100000), "--workers", 1, "--coordinators", 3)
    run.wait_for_step(5)
    ports = [int(address.rsplit(":", 1)[1]) for address in run.events("start")[0]["address"].split(",")]
    require(len(set(ports)) == 3 and max(ports) < first_dialled, f"ports {ports}, dialled from {first_dialled}")
    pid = processes_naming(f"{run.out}/coordinator-0")[0]
    os.kill(pid, signal.SIGKILL)
    while processes_naming(f"{run.out}/coordinator-0") in ([], [pid]):
        try:
            with socket.socket() as other:
                other.bind(("127.0.0.1", ports[0]))
        except OSError:
            continue
        raise Failed("its port could be had while it began again")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def wiped_coordinators_are_repaired_while_workers_are_killed(place):
    """Each in turn comes back with an empty folder, and a worker is killed at once after it."""
    job = place.waiting_job(steps=500)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 5, "--coordinators", 3)
    run.wait_for_step(50)
    repaired = lambda: sum("is repaired" in e["text"] for e in run.events("warning"))
    for number in range(3):
        folder = f"{run.out}/coordinator-{number}"
        pid = processes_naming(folder)[0]
        os.kill(pid, signal.SIGSTOP)  # it writes nothing more, and is not started again yet
        shutil.rmtree(folder)
        os.kill(pid, signal.SIGKILL)
        run.kill(run.workers()[number])
        wait_until(lambda: repaired() == number + 1, "it is repaired", 30)
        now = run.steps()
        wait_until(lambda: run.steps() > now + 20, "steps go on", 30)
    same(run, quiet)
    require(len(run.workers("lost")) == 3, "three workers were killed")


def group_by_hand(place, number, *options):
    """Coordinator `number` of three, started by hand."""
    keys, peers = place.path("keys"), place.path("peers")
    if not os.path.exists(keys):
        starling("keys", "--out", keys, "--coordinators", "3")
        with open(peers, "w") as file:
            file.write(",".join(f"127.0.0.1:{port}" for port in free_ports(3)))
        place.by_hand = place.job(steps=100000)
    with open(peers) as file:
        addresses = file.read()
    return subprocess.Popen(
        [STARLING, "coordinator", "--job", place.by_hand, "--keys", keys,
         "--name", f"coordinator-{number}", "--listen", addresses.split(",")[number],
         "--peers", addresses, "--state", place.path(f"state-{number}"), *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(process, code, word):
    try:
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    require(process.returncode == code and word in said, f"{process.returncode}: {said}")


def a_first_start_is_said(place):
    # Nobody has a log, and nobody said that the group begins.
    for process in [group_by_hand(place, number) for number in range(3)]:
        ended(process, 3, "--new")
    # It is said now; a later start must not say it again.
    group = [group_by_hand(place, number, "--new") for number in range(3)]
    def leader():  # who leads has promised something for certain
        for n in range(3):
            events = place.path(f"state-{n}/events.jsonl")
            if os.path.exists(events) and '"ev":"leader"' in open(events).read():
                return str(n)
    number = int(wait_until(leader, "one of them leads"))
    for process in group:
        process.terminate()
        process.communicate(timeout=300)
    ended(group_by_hand(place, number, "--new"), 2, "has a log already; leave out --new")
    # Neither must one that has lost its log while the others have theirs.
    shutil.rmtree(place.path(f"state-{number}"))
    others = [group_by_hand(place, n) for n in range(3) if n != number]
    try:
        ended(group_by_hand(place, number, "--new"), 2, "is started with --new, but the group has begun")
    finally:
        for process in others:
            process.terminate()
            process.communicate(timeout=300)


main(a_killed_coordinator_stops_no_step_and_comes_back, each_coordinator_has_a_port_of_its_own_that_nobody_dials_from,
     wiped_coordinators_are_repaired_while_workers_are_killed, a_first_start_is_said)
