"""Shares by measured speed: who is slow computes less and stays, who stalls is left out, same bits."""
import collections
import signal
import threading

from harness import main, require, same, wait_until

JOB = """
[job]
name = "shares"
steps = {steps}
micro_batches = {micro_batches}
[model]
kind = "synthetic"
parameters = 100_000
compute_ms = {compute_ms}
slow = {slow}
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[elastic]
lease_ms = 1000
start_timeout_ms = 120000
shares = "{shares}"
"""


def job(place, name, steps, micro_batches, compute_ms=0, slow=(), shares="speed"):
    path = place.path(name + ".toml")
    with open(path, "w") as file:
        file.write(JOB.format(steps=steps, micro_batches=micro_batches, compute_ms=compute_ms,
                              slow=list(slow), shares=shares))
    return path


def named(run, name):
    return next(e for e in run.workers() if e["name"] == name)


def computed(run, first=0):
    """How many micro-batches each worker computed, by step from this one on."""
    return [collections.Counter(w for _, w in e["workers"]) for e in run.events("ledger")
            if e["version"] >= first]


class Hindered:
    """Stops a process nine tenths of the time, far below the lease each time."""

    def __init__(self, run, worker):
        self.run, self.worker, self.over = run, worker, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.hinder)
        self.thread.start()

    def hinder(self):
        while not self.over.is_set():
            self.run.kill(self.worker, signal.SIGSTOP)
            self.over.wait(0.09)
            self.run.kill(self.worker, signal.SIGCONT)
            self.over.wait(0.01)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def a_slow_worker_computes_less_and_stays_a_stalled_one_goes(place):
    quiet = place.run(job(place, "quiet", 24, 16), "--workers", 1)
    quiet.end()
    # One micro-batch of the slow one takes longer than the lease.
    run = place.run(job(place, "slow", 24, 16, compute_ms=40, slow=[1, 30]), "--workers", 4)
    run.wait_for_step(6)
    slow, stalled = named(run, "worker-1"), named(run, "worker-2")
    require(len(run.events("epoch")) == 1, "a worker was left out that was only slow")
    run.kill(stalled, signal.SIGSTOP)
    try:
        wait_until(lambda: [e for e in run.workers("fenced") if e["id"] == stalled["id"]],
                   "the stalled one is left out")
    finally:
        run.kill(stalled, signal.SIGCONT)
    same(run, quiet)
    gone = [e["id"] for what in ("fenced", "lost") for e in run.workers(what)]
    require(gone == [stalled["id"]], f"left out or lost: {gone}, stalled was {stalled['id']}")
    shares = computed(run, first=2)
    of_slow, equal = sum(c[slow["id"]] for c in shares), len(shares) * 16 / 4
    require(of_slow < equal / 2, f"thirty times slower, computed {of_slow}; an equal share is {equal}")


def who_was_slow_for_a_while_gets_its_share_again(place):
    quiet = place.run(job(place, "quiet", 1000, 8), "--workers", 1)
    quiet.end()
    run = place.run(job(place, "hindered", 1000, 8, compute_ms=10), "--workers", 4)
    run.wait_for_step(10)
    worker = named(run, "worker-3")["id"]
    with Hindered(run, named(run, "worker-3")):
        wait_until(lambda: any(c[worker] == 0 for c in computed(run, first=10)),
                   "it computes nothing any more")
    after = run.steps()
    wait_until(lambda: any(c[worker] >= 2 for c in computed(run, first=after)),
               "it computes its quarter again")
    same(run, quiet)
    require(not run.workers("fenced") and len(run.events("epoch")) == 1,
            "a worker was left out that was only slow")


def equal_shares_stay_equal(place):
    run = place.run(job(place, "equal", 10, 16, compute_ms=2, slow=[1, 5], shares="equal"),
                    "--workers", 4).end()
    for share in computed(run):
        require(sorted(share.values()) == [4, 4, 4, 4], f"equal shares of 16: {share}")


main(a_slow_worker_computes_less_and_stays_a_stalled_one_goes,
     who_was_slow_for_a_while_gets_its_share_again, equal_shares_stay_equal)
