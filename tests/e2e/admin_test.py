"""`starling admin`: a worker is drained or evicted, a checkpoint asked for, a run stopped; and who may not."""
import os
import shutil
import signal
import subprocess

from cluster import Cluster
from harness import STARLING, alive, main, require, wait_until, with_checkpoints


def admin(*words, code=0, seconds=120):
    asked = subprocess.run([STARLING, "admin", *map(str, words)], capture_output=True, text=True, timeout=seconds)
    require(asked.returncode == code, f"admin {words}: {asked.returncode}, expected {code}: {asked.stdout}{asked.stderr}")
    require(code == 0 or (asked.stdout == "" and asked.stderr.count("\n") == 1), f"{asked.stdout}{asked.stderr}")
    return asked.stdout if code == 0 else asked.stderr


def acts(run):
    return [(e["by"], e["action"], e["worker"]) for e in run.events("admin")]


def process_of(run, name):
    return next(e["pid"] for e in run.workers() if e["name"] == name)


def a_drained_or_evicted_worker_ends_with_the_code_that_its_engine_wants(place):
    run = place.run(place.waiting_job(steps=100000), "--workers", 3)
    run.wait_for_step(5)
    for action in "drain", "evict":
        before = len(run.workers())
        worker = subprocess.Popen([STARLING, "worker", "--join", run.out, "--save", "none", "--quiet", "--drained-code", "7"])
        wait_until(lambda before=before: len(run.workers()) > before, "it joins")
        name = run.events("worker")[-1]["name"]
        wait_until(lambda name=name: name in {m["name"] for m in run.events("epoch")[-1]["members"]}, "it is a member")
        admin(action, name, run.out)
        require(worker.wait(120) == 7, f"{action}: {worker.returncode}")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def a_drained_worker_hands_over_and_is_not_begun_again(place):
    job = place.waiting_job(steps=300)
    quiet = place.quiet(job).digest()
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    # An admin of its own is let in while the run goes on.
    keys = run.events("start")[0]["keys"]
    added = subprocess.run([STARLING, "keys", "--keys", keys, "--add", "admin-ann"], capture_output=True, text=True)
    require(added.returncode == 0, added.stderr)
    said = admin("drain", "worker-2", run.out, "--keys", os.path.join(keys, "admin-ann"))  # whose name is known from it
    # Her own file is no list of anybody's.
    revoked = subprocess.run([STARLING, "keys", "--keys", os.path.join(keys, "admin-ann"), "--revoke", "admin-ann"], capture_output=True, text=True)
    require(revoked.returncode == 2 and "lets nobody in or out" in revoked.stderr, revoked.stderr)
    shutil.copy(os.path.join(keys, "admin-ann"), place.path("kept"))
    revoked = subprocess.run([STARLING, "keys", "--keys", keys, "--revoke", "admin-ann"], capture_output=True, text=True)
    require(revoked.returncode == 0, revoked.stderr)
    wait_until(lambda: any("admin-ann revoked" in e["text"] for e in run.events("warning")), "the coordinator shuts it out")
    refused = admin("drain", "worker-3", run.out, "--keys", place.path("kept"), "--wait", 5, code=2)
    require("this key is not on the coordinators' list" in refused, refused)
    require(said == "worker-2 has left\n", said)
    wait_until(lambda: not alive(process_of(run, "worker-2")), "its process ends")
    at = run.steps()
    run.wait_for_step(at + 20)
    epochs = run.events("epoch")
    require(all(epoch["kind"] != "forced" for epoch in epochs), [epoch["kind"] for epoch in epochs])
    require({m["name"] for m in epochs[-1]["members"]} == {"worker-0", "worker-1", "worker-3"}, epochs[-1])
    exposed = [e for e in run.events("exposure") if e["epoch"] == epochs[-1]["id"]]
    require(all(e["segments"] == 0 for e in exposed[-1:]), exposed)
    require([e["name"] for e in run.workers("left")] == ["worker-2"], run.workers("left"))
    require(acts(run) == [("admin-ann", "drain", "worker-2")], acts(run))
    run.end()
    require(run.digest() == quiet, "the digest of an undisturbed run")


def an_evicted_worker_that_hangs_is_out_at_once_and_ends_when_it_wakes(place):
    job = place.waiting_job(steps=200, lease_ms=60_000)  # the others would wait for it for a minute
    quiet = place.quiet(job).digest()
    run = place.run(job, "--workers", 3)
    run.wait_for_step(20)
    hung = process_of(run, "worker-1")
    os.kill(hung, signal.SIGSTOP)
    at = run.steps()
    said = admin("evict", "worker-1", run.out)
    require(said == "worker-1 is out\n", said)
    run.wait_for_step(at + 20)
    require("worker-1 evicted by admin" in [epoch["cause"] for epoch in run.events("epoch")], run.events("epoch"))
    require(alive(hung), "it is stopped, and nobody kills it")
    os.kill(hung, signal.SIGCONT)
    wait_until(lambda: not alive(hung), "it ends when it hears that it is out")
    run.end()
    require(len([e for e in run.workers() if e["name"] == "worker-1"]) == 1, "its guard has begun another life")
    require(run.digest() == quiet, "the digest of an undisturbed run")


def what_was_begun_goes_on_without_who_has_asked(place):
    """Two that hang at once are evicted, and nobody waits for it."""
    job = place.waiting_job(steps=300, lease_ms=60_000)
    quiet = place.quiet(job).digest()
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    hung = [process_of(run, name) for name in ("worker-1", "worker-2")]
    for pid in hung:
        os.kill(pid, signal.SIGSTOP)
    asking = [subprocess.Popen([STARLING, "admin", "evict", name, run.out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for name in ("worker-1", "worker-2")]
    wait_until(lambda: len(acts(run)) == 2, "both are begun")
    for process in asking:
        process.kill()
        process.wait()
    run.wait_for_step(run.steps() + 20)
    for pid in hung:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(alive(pid) for pid in hung), "they end when they hear that they are out")
    run.end()
    require(run.digest() == quiet, "the digest of an undisturbed run")


def a_run_whose_checkpoint_cannot_be_written_is_not_stopped(place):
    kept = place.path("kept")
    run = place.run(with_checkpoints(place.waiting_job(steps=100_000), kept, 100_000), "--workers", 2)
    run.wait_for_step(20)
    os.rename(kept, kept + ".away")
    with open(kept, "w"):
        pass
    said = admin("stop", run.out, code=3)
    require("the run is not stopped: the checkpoint of step" in said and said.endswith("--now stops it without a checkpoint\n"), said)
    tried = len(run.events("warning"))
    run.wait_for_step(run.steps() + 50)
    require(len(run.events("warning")) <= tried + 1, "nobody asks for it any more")
    admin("stop", run.out, "--now")
    run.end(128 + signal.SIGTERM)


def a_checkpoint_and_a_stop_and_the_run_goes_on_from_there(place):
    job, kept = place.waiting_job(steps=300), place.path("kept")
    quiet = place.quiet(job).digest()
    job = with_checkpoints(job, kept, 100_000)
    run = place.run(job, "--workers", 3)
    run.wait_for_step(20)
    said = admin("checkpoint", run.out)
    asked = int(said.split()[4])
    require(said == f"the checkpoint of step {asked} is complete\n" and asked >= 20, said)
    said = admin("stop", run.out).splitlines()
    last = int(said[0].split()[4])
    require(last > asked and said[-1].startswith("the run "), said)
    run.end(128 + signal.SIGTERM)
    ended = run.events("ended")[0]
    require(ended["reason"] == "stopped by admin" and ended["checkpoint"] == last, ended)
    require([act[1] for act in acts(run)] == ["checkpoint", "checkpoint", "stop"], acts(run))
    again = place.run(job, "--workers", 2, "--resume")
    again.end()
    require(again.events("start")[0]["from"] == last and again.digest() == quiet, "it went on from that checkpoint")


def without_checkpoints_a_stop_says_so(place):
    run = place.run(place.waiting_job(steps=100_000), "--workers", 2)
    run.wait_for_step(5)
    require("the job writes no checkpoints" in admin("checkpoint", run.out, code=2), "why not")
    said = admin("stop", run.out).splitlines()
    require(said[0].startswith("no checkpoint: the job writes no checkpoints"), said)
    run.end(128 + signal.SIGTERM)


def another_rate_begins_at_one_step_at_all_workers(place):
    """The reference goes on from the checkpoint of that step under another job, and nothing disturbs it."""
    kept, all_of = place.path("kept"), place.path("all")
    job = with_checkpoints(place.waiting_job(steps=160, micro_batches=6), kept, 100_000)
    run = place.run(job, "--workers", 3)
    run.wait_for_step(20)
    said = admin("rate", "5e-4", run.out)
    at = int(said.split()[-1])
    require(said == f"the peak rate is 5e-04 after step {at}\n" and at >= 20, said)
    run.wait_for_step(at + 20)
    os.kill(process_of(run, "worker-1"), signal.SIGKILL)
    run.wait_for_step(at + 60)
    require(acts(run) == [("admin", "rate", "")] and run.events("admin")[0]["peak_rate"] == 5e-4, run.events("admin"))
    wait_until(lambda: run.events("checkpoint"), "a checkpoint has the change")
    # Everybody dies: those that go on know the rate from the checkpoint, and their next lives from the log.
    lost = {e["id"] for e in run.workers("lost")}
    told = run.events("step")
    run.kill_together([{"pid": run.process.pid}, *(w for w in run.workers() if w["id"] not in lost)])
    run.process.wait()
    again = place.run(job, "--workers", 2, "--resume", "--respawn", 3)
    again.wait_for_step(run.steps() + 5)
    again.kill_together(again.workers())
    again.end()
    require(len(again.events("restart")) == 1, again.events("restart"))
    require(f"the peak rate is 5e-04, as it was changed after step {at}; starling admin rate gives" in again.text(), again.text())
    rates = {e["version"]: e["rate"] for e in told + again.events("step")}
    every = with_checkpoints(place.waiting_job(steps=160, micro_batches=6), all_of, 1)
    with open(every, "a") as file:
        file.write("keep = 1000\n")
    quiet = place.run(every, "--workers", 3)
    quiet.end()
    before = {e["version"]: e["rate"] for e in quiet.events("step")}
    require(all(rates[v] == before[v] for v in range(at)), "the rates before")
    require(all(abs(rates[v] / before[v] - 0.5) < 1e-12 for v in range(at, 160)), "half the rate from there on")
    for folder in os.listdir(all_of):
        if folder.startswith("step-") and int(folder[5:]) > at:
            shutil.rmtree(os.path.join(all_of, folder))
    reference = place.run(every, "--workers", 3, "--resume", "--peak-rate", "5e-4")
    reference.end()
    require(reference.events("start")[0]["from"] == at, reference.events("start"))
    require(again.digest() == reference.digest() != quiet.digest(), "the digest of a run that changed the rate at that step")


def the_same_command_line_keeps_a_rate_and_another_one_takes_its_place(place):
    job = with_checkpoints(place.waiting_job(steps=100_000, schedule_steps=100_000), place.path("kept"), 100_000)

    def begun(peak_rate, *options):
        """A run that has done ten steps."""
        run = place.run(job, "--workers", 2, "--peak-rate", peak_rate, *options)
        run.wait_for_step(wait_until(lambda: run.events("start"), "the start")[0]["from"] + 10)
        return run

    def peak(run):
        return round(run.events("step")[-1]["rate"], 5)  # of a schedule that has hardly begun to fall

    run = begun("2e-3")
    admin("rate", "5e-4", run.out)
    admin("stop", run.out)
    run.end(128 + signal.SIGTERM)
    require(admin("stop", run.out) == "the run is over: stopped by admin\n", "twice")
    same = begun("2e-3", "--resume")
    require(peak(same) == 5e-4 and "the peak rate is 5e-04, as it was changed after step" in same.text(), same.text())
    admin("stop", same.out)
    same.end(128 + signal.SIGTERM)
    other = begun("3e-3", "--resume", "--coordinators", 3)
    require(peak(other) == 3e-3 and "the peak rate is 0.003 from here on, and no longer 5e-04, as it was" in other.text(), other.text())
    admin("stop", other.out, "--now")
    other.end(128 + signal.SIGTERM)
    # Rates are compared, so that two runs that differ in nothing else yet do.
    told = subprocess.run([STARLING, "audit", run.out, same.out], capture_output=True, text=True)
    require(told.returncode in (0, 1), told.stderr)


def a_rate_outlives_the_leader_that_was_asked(place):
    with Cluster(place, place.waiting_job(steps=100_000), coordinators=3, workers=3) as cluster:
        cluster.start_all()
        cluster.wait_for_step(0, 10)
        leader = next(i for i in range(3) if cluster.events(i, "leader"))
        run = ",".join(cluster.addresses)
        said = admin("rate", "0.01", run, "--keys", cluster.keys)
        at = int(said.split()[-1])
        cluster.coordinators[leader].send_signal(signal.SIGKILL)
        cluster.coordinators[leader].wait()
        cluster.workers[1].send_signal(signal.SIGKILL)
        other = (leader + 1) % 3
        cluster.wait_for_step(other, at + 30)
        require(admin("rate", "0.01", run, "--keys", cluster.keys) == said, "it is the rate that there is")
        steps = [e for e in cluster.events(other, "step") if e["version"] >= at]
        require(steps and all(e["rate"] > 0.005 for e in steps), steps[:3])
        admin("stop", run, "--keys", cluster.keys, "--now")


def what_makes_no_sense_is_one_line(place):
    run = place.run(place.waiting_job(steps=100_000), "--workers", 2)
    run.wait_for_step(5)
    keys = run.events("start")[0]["keys"]
    address = run.events("start")[0]["address"]
    for words, part in (
            (("drain", run.out), "expects the name of a worker and the run"),
            (("checkpoint", "worker-1", run.out), "admin checkpoint expects the run"),
            (("drain", "worker-7", run.out), "no worker named \"worker-7\" is in the epoch that runs; its members are worker-0, worker-1"),
            (("drain", "worker-1", address), "--keys is needed beside addresses"),
            (("drain", "worker-1", place.path("nowhere")), "is neither the folder of a run nor addresses of coordinators"),
            (("drain", run.out, "worker-1"), "the name of the worker comes first"),
            (("checkpoint", "starling-join-1.abc"), "a join token is a worker's"),
            (("drain", "worker-1", place.folder), "no run is in the folder"),
            (("drain", "worker-1", address, "--keys", keys, "--name", "worker-0"), "expects the key of an admin"),
            (("checkpoint", run.out, "--now"), "--now belongs to admin stop"),
            (("rate", run.out), "admin rate expects a peak rate and the run"),
            (("rate", "fast", run.out), "expects a number above 0, at most 1000.0, and then the run, is \"fast\""),
            (("rate", "0", run.out), "expects a number above 0"),
            (("rate", "nan", run.out), "expects a number above 0"),
            (("rate", "1e4", run.out), "expects a number above 0"),
            (("rate", run.out, "1e-3"), "expects a number above 0"),
            (("sleep", run.out), "sleep")):
        said = admin(*words, code=2)
        require(part in said, f"{words}: {part!r} is not in {said}")
    require(acts(run) == [], acts(run))
    # One of two may go, and the other may not.
    admin("drain", "worker-0", address, "--keys", keys)
    require("no worker would stay" in admin("drain", "worker-1", run.out, code=2), "it holds everything")
    require("no worker would stay" in admin("evict", "worker-1", run.out, code=2), "it holds everything")
    admin("stop", run.out, "--now")
    run.end(128 + signal.SIGTERM)
    require("is over: stopped by admin" in admin("drain", "worker-1", run.out, code=2), "nothing is there to steer")


def a_leader_that_dies_keeps_nobody_from_steering(place):
    with Cluster(place, place.waiting_job(steps=100_000), coordinators=3, workers=4) as cluster:
        cluster.start_all()
        cluster.wait_for_step(0, 10)
        leader = next(i for i in range(3) if cluster.events(i, "leader"))
        cluster.coordinators[leader].send_signal(signal.SIGKILL)
        cluster.coordinators[leader].wait()
        run = ",".join(cluster.addresses)
        said = admin("drain", "worker-3", run, "--keys", cluster.keys)
        require(said == "worker-3 has left\n", said)
        code = cluster.workers[3].wait(60)
        require(code == 0, f"exit code {code}: {cluster.text()[-2000:]}")
        told = [(e["by"], e["action"], e["worker"]) for i in range(3) if i != leader for e in cluster.events(i, "admin")]
        require(told == [("admin", "drain", "worker-3")], told)
        admin("stop", run, "--keys", cluster.keys, "--now")
        for process in [*cluster.workers[:3], *(cluster.coordinators[i] for i in range(3) if i != leader)]:
            require(process.wait(60) == 128 + signal.SIGTERM, f"exit code {process.returncode}: {cluster.text()[-2000:]}")


main(a_drained_or_evicted_worker_ends_with_the_code_that_its_engine_wants, a_drained_worker_hands_over_and_is_not_begun_again,
     an_evicted_worker_that_hangs_is_out_at_once_and_ends_when_it_wakes, what_was_begun_goes_on_without_who_has_asked,
     a_run_whose_checkpoint_cannot_be_written_is_not_stopped,
     a_checkpoint_and_a_stop_and_the_run_goes_on_from_there, without_checkpoints_a_stop_says_so,
     another_rate_begins_at_one_step_at_all_workers,
     the_same_command_line_keeps_a_rate_and_another_one_takes_its_place, a_rate_outlives_the_leader_that_was_asked,
     what_makes_no_sense_is_one_line, a_leader_that_dies_keeps_nobody_from_steering)
