"""Disks that hang or are full under what coordinators write: the training goes on, or ends cleanly."""
import contextlib
import os
import resource
import subprocess

from cluster import Cluster
from harness import NOT_HERE, SOURCE, main, processes_naming, require, same, wait_until

MIB = 1 << 20


def faulty_disk(place):
    """A folder for the faults, and the environment that brings them about."""
    library = place.path("disk.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library,
                    os.path.join(SOURCE, "tests", "e2e", "disk.c"), "-ldl"], check=True)
    faults = place.path("faults")
    os.mkdir(faults)
    return faults, {"LD_PRELOAD": library, "DISK_FAULTS": faults}


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(l.split()[1]) * 1024 for l in file if l.startswith("VmRSS"))


WIDE = """
[job]
name = "wide"
steps = 1500
micro_batches = 1024
sequences = 1
replicas = 1
[model]
kind = "synthetic"
parameters = 1000
compute_ms = 0
[optimizer]
kind = "sgd"
peak_rate = 1e-3
[elastic]
state_timeout_ms = 120000
coordinator_timeout_ms = 120000
start_timeout_ms = 120000
"""


def a_log_whose_disk_hangs_costs_no_step_and_a_bounded_memory(place):
    faults, environment = faulty_disk(place)
    job = place.path("wide.toml")
    with open(job, "w") as file:
        file.write(WIDE)
    with Cluster(place, job, coordinators=1, workers=6, environment=environment) as cluster:
        coordinator = cluster.start_coordinator(0)
        for _ in range(6):
            cluster.start_worker()
        cluster.wait_for_step(0, 10)
        before = resident(coordinator.pid)
        open(os.path.join(faults, "hang"), "w").close()
        cluster.start_worker()  # has to be written, and cannot be
        now = cluster.steps(0)
        curve = []
        for twenty in range(1, 6):
            cluster.wait_for_step(0, now + 20 * twenty)
            curve.append((resident(coordinator.pid) - before) // MIB)
        print(f"        MiB more after each twenty steps: {curve}")
        # Told by six workers with 1024 rows each: 15 MB of rows in these steps, none of which stays. Said
        # again every 100 ms to a coordinator that does not answer they were 36 MB a second.
        require(max(curve) < 40, f"the coordinator has grown by {max(curve)} MiB")
        require(not any(e["what"] == "joined" and e["name"] == "worker-6"
                        for e in cluster.events(0, "worker")), "the disk did not hang")
        os.remove(os.path.join(faults, "hang"))
        wait_until(lambda: any(e["what"] == "joined" and e["name"] == "worker-6"
                               for e in cluster.events(0, "worker")), "worker-6 joins", 60)


def a_log_whose_disk_is_full_ends_the_run_cleanly(place):
    faults, environment = faulty_disk(place)
    os.environ.update(environment)
    try:
        run = place.run(place.job(steps=100000), "--workers", 2)
    finally:
        for name in environment:
            del os.environ[name]
    run.wait_for_step(20)
    open(os.path.join(faults, "full"), "w").close()
    run.join()
    run.process.wait(300)
    require(run.process.returncode == 3, f"exit code {run.process.returncode}:\n{run.text()[-2000:]}")
    failed = run.events("failed")
    require(len(failed) == 1 and failed[0]["code"] == 3 and "cannot write its log" in failed[0]["reason"],
            f"{failed}\n{run.text()[-2000:]}")
    for joiner in run.joiners:
        joiner.terminate()
        joiner.wait(300)
    require(not processes_naming(run.out), "processes are left")


@contextlib.contextmanager
def files_up_to(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def events_on_a_full_disk_do_not_end_the_run(place):
    job = place.job(steps=1100)
    quiet = place.quiet(job)
    with files_up_to(300 * 1024):  # the log is 256 KiB from the beginning
        run = place.run(job, "--workers", 2)
    run.end()
    require("warning: " in run.text() and "File too large" in run.text(), run.text()[-2000:])
    require("is incomplete" in run.text(), run.text()[-2000:])
    require(quiet.digest() in run.text(), "not the undisturbed digest:\n" + run.text()[-2000:])
    run.events()  # every line is whole


def a_model_that_cannot_be_written_is_not_here(place):
    job = place.job(steps=10, width=128)
    with files_up_to(1 << 20):  # the model is larger, all else is smaller
        run = place.run(job, "--workers", 2)
    run.end(code=NOT_HERE)
    require(len(run.events("done")) == 1 and "File too large" in run.text(), run.text()[-2000:])
    require("could not save it" in run.text(), run.text()[-2000:])
    require(not os.path.exists(os.path.join(run.out, "model.safetensors")), "a part of a model")


main(a_log_whose_disk_hangs_costs_no_step_and_a_bounded_memory,
     a_log_whose_disk_is_full_ends_the_run_cleanly,
     events_on_a_full_disk_do_not_end_the_run,
     a_model_that_cannot_be_written_is_not_here)
