"""Workers that are heard but get nowhere, and workers that come back after they were given up."""
import contextlib
import ctypes
import os
import platform
import signal
import time

from harness import Failed, left_out_and_back, main, require, same_so_far, wait_until

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, PTRACE_CONT = 0x4206, 0x4207, 17, 7
WALL = 0x40000000
OUTLASTS = 1000000  # steps: more than the test waits for
FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]
FUTEX_WAIT_BITSET, FUTEX_COMMAND = 9, 0x7f
EPOLL_WAIT = {"x86_64": (232, 281), "aarch64": (22,)}[platform.machine()]


def ptrace(request, thread):
    if LIBC.ptrace(request, thread, None, None) != 0:
        raise Failed(f"ptrace {request:#x} of thread {thread}: {os.strerror(ctypes.get_errno())}")


def compute_threads(pid):
    """Those that let others go first (actors/scheduling.h)."""
    found = []
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/task/{thread}/stat") as file:
                if int(file.read().rsplit(")", 1)[1].split()[16]) > 0:  # nice
                    found.append(thread)
    return found


def waits_for_work(thread):
    """A stopped thread is in a wait on a condition variable, so that it holds no lock."""
    with open(f"/proc/{thread}/syscall") as file:
        fields = file.read().split()
    return (len(fields) > 2 and int(fields[0]) == FUTEX and
            int(fields[2], 16) & FUTEX_COMMAND == FUTEX_WAIT_BITSET)


def waits_for_frames(thread):
    """A stopped thread waits for events of its sockets."""
    with open(f"/proc/{thread}/syscall") as file:
        return file.read().split()[0] in map(str, EPOLL_WAIT)


def communication_thread(pid):
    """That of the present epoch: of those that wait for events of sockets, in one of many looks, the last one. ZeroMQ's
    own are older."""
    waiting = set()
    for _ in range(100):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            with contextlib.suppress(OSError):
                if waits_for_frames(thread):
                    waiting.add(thread)
        time.sleep(0.005)
    return max(waiting, default=None)


def stop_without_lock(thread, waits=waits_for_work):
    """Or it has ended by itself."""
    def stopped():
        try:
            ptrace(PTRACE_INTERRUPT, thread)
            os.waitpid(thread, WALL)
            if waits(thread):
                return True
            ptrace(PTRACE_CONT, thread)
            return False
        except (Failed, OSError):
            if os.path.exists(f"/proc/{thread}"):
                raise
            return True

    ptrace(PTRACE_SEIZE, thread)
    wait_until(stopped, f"thread {thread} waits for work")


@contextlib.contextmanager
def held(threads, waits=waits_for_work):
    """These threads of another process do nothing, as if in a file system that does not answer. All
    others of that process go on: a held thread has no lock that another thread would wait for, such
    as that of the heap."""
    seized = []
    try:
        for thread in threads:
            seized.append(thread)
            stop_without_lock(thread, waits)
        yield
    finally:
        for thread in seized:
            with contextlib.suppress(Failed, ChildProcessError):
                ptrace(PTRACE_DETACH, thread)


def job_of(place, **changes):
    job = place.job(steps=OUTLASTS, **changes)
    with open(job, "a") as file:
        file.write("standstill_ms = 2000\nstandstill_steps = 5\n")
    return job


def a_worker_whose_compute_threads_hang_is_left_out_and_comes_back(place):
    job = job_of(place, lease_ms=10000)  # on a busy machine, too, only this rule leaves it out
    run = place.run(job, "--workers", 3, "--threads", 1)
    run.wait_for_step(30)
    victim = run.workers()[1]
    threads = wait_until(lambda: compute_threads(victim["pid"]), "compute threads")
    with held(threads):
        before = run.steps()
        wait_until(lambda: run.workers("fenced"), "it is left out")
        wait_until(lambda: run.steps() > before + 20, "the others go on")
        require(run.process.poll() is None, f"the run ended:\n{run.text()}")
    wait_until(lambda: len(run.workers()) == 4, "it begins a new life")
    left_out_and_back(run, 3)
    same_so_far(place, run, job)
    require([w["name"] for w in run.workers("fenced")] == [victim["name"]], "another was left out")
    warnings = [w["text"] for w in run.events("warning")]
    causes = [e["cause"] for e in run.events("epoch")]
    require(any(f"{victim['name']} is heard but gets nowhere with its share of step" in w
                for w in warnings), f"no warning names it: {warnings}; epochs by {causes}")
    require(any(c.startswith(f"{victim['name']} got nowhere for") for c in causes), f"{causes}")


def a_worker_whose_communication_thread_hangs_is_left_out_and_comes_back(place):
    job = place.job(steps=OUTLASTS, lease_ms=2000)  # a connection is silent after three leases
    run = place.run(job, "--workers", 3)
    run.wait_for_step(30)
    victim = run.workers()[1]
    thread = wait_until(lambda: communication_thread(victim["pid"]), "a communication thread")
    with held([thread], waits_for_frames):
        at = run.events()[-1]["t"]
        wait_until(lambda: run.workers("fenced"), "it is left out")
        print(f"left out {run.workers('fenced')[0]['t'] - at:.1f} s after its thread hung", flush=True)
        before = run.steps()
        wait_until(lambda: run.steps() > before + 20, "the others go on")
    wait_until(lambda: len(run.workers()) >= 4, "it begins a new life")
    left_out_and_back(run, 3)
    same_so_far(place, run, job)
    warnings = [w["text"] for w in run.events("warning")]
    require(any(w.startswith(f"{victim['name']} is left out: nothing comes over its connections")
                for w in warnings), f"no warning names it: {warnings}")


def a_worker_frozen_for_longer_than_it_waits_for_coordinators_comes_back(place):
    job = place.job(steps=OUTLASTS, lease_ms=2000, coordinator_timeout_ms=6000)
    run = place.run(job, "--workers", 3)
    run.wait_for_step(30)
    frozen = run.workers()[1]
    run.kill(frozen, signal.SIGSTOP)
    try:
        wait_until(lambda: run.workers("fenced"), "it is left out")
        begun = run.events("worker")[-1]["t"]
        wait_until(lambda: run.events()[-1]["t"] > begun + 7, "longer than its patience passes")
    finally:
        run.kill(frozen, signal.SIGCONT)
    wait_until(lambda: len(run.workers()) == 4, "its guard begins a new life")
    left_out_and_back(run, 3)
    same_so_far(place, run, job)


main(a_worker_whose_compute_threads_hang_is_left_out_and_comes_back,
     a_worker_whose_communication_thread_hangs_is_left_out_and_comes_back,
     a_worker_frozen_for_longer_than_it_waits_for_coordinators_comes_back)
