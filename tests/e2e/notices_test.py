"""Notices: SIGTERM, and what three clouds say to a worker through their metadata services.

The services are imitations on this machine (metadata.py); the workers are real ones.
"""
import signal
import time

from harness import LEFT, LONG_LEASE_MS, main, require, same, wait_until
from metadata import Aws, Azure, Gcp

JOB = """
[job]
name = "notices"
steps = {steps}
micro_batches = 32
[model]
kind = "synthetic"
parameters = 100_000
compute_ms = {compute_ms}
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[elastic]
lease_ms = {lease_ms}
start_timeout_ms = 120000
"""


def job(place, name, steps, compute_ms=5):
    path = place.path(name + ".toml")
    with open(path, "w") as file:
        file.write(JOB.format(steps=steps, compute_ms=compute_ms, lease_ms=LONG_LEASE_MS))
    return path


def quiet_run(place, steps):
    return place.run(job(place, "quiet", steps, compute_ms=0), "--workers", 1).end()


def all_joined(run, workers):
    wait_until(lambda: any(len(e["members"]) == workers for e in run.events("epoch")),
               f"{workers} members")


def nobody_was_stopped(run):
    require(not [e for e in run.events("epoch") if e["kind"] == "forced"],
            f"an epoch was forced:\n{run.text()}")
    require(not run.workers("lost"), f"a leave was taken for a loss:\n{run.text()}")


def left_in_time(run, worker, source, seconds):
    """It ends by itself, with exit code 0, while the job goes on."""
    require(worker.wait(seconds) == LEFT, f"the worker ended with {worker.returncode}:\n{run.text()}")
    require(run.process.poll() is None, "it left only when the job ended")
    told = [e for e in run.events("notice") if e["source"] == source and e["leave"]]
    require(len(told) == 1, f"{len(told)} notices of {source} in the events")
    require(0 < told[0]["seconds"] <= seconds, f"notice of {told[0]['seconds']} s")


# Goal: a notice of each cloud, in the middle of a run, is an announced leave.
# Method: three workers join, each with a service of its own that has nothing to tell at first.
def a_notice_of_each_cloud_is_a_leave(place):
    quiet = quiet_run(place, 250)
    run = place.run(job(place, "told", 250, compute_ms=10), "--workers", 2)
    with Aws() as aws, Gcp() as gcp, Azure() as azure:
        run.wait_for_step(5)
        workers = {s: run.join(*s.options) for s in (aws, gcp)}
        workers[azure] = run.join(*azure.options, "--acknowledge")
        all_joined(run, 5)
        wait_until(lambda: aws.count("404") and gcp.count("waits") and azure.count("none"),
                   "every service is asked")
        require(not run.events("notice"), "a notice that nobody gave")
        aws.tell(notice=110)
        left_in_time(run, workers[aws], "aws", 110)
        gcp.tell(notice=True)
        left_in_time(run, workers[gcp], "gcp", 30)
        require(not azure.started, "a worker that had no notice said that it need not be waited for")
        azure.tell(notice=40)
        left_in_time(run, workers[azure], "azure", 40)
        require(azure.started == ["e-mine"], f"the cloud was told of {azure.started}")
        same(run, quiet)
    nobody_was_stopped(run)
    require(len(run.workers("left")) == 3, "not three workers left")
    require(gcp.count("none") <= gcp.count("waits") + 2, "GCP's service is asked in a loop, not waited for")
    require(gcp.count("maintenance"), "GCP's service is not asked for maintenance")


# Goal: a service that fails gives no notice and no harm, and its notice after that counts.
# Method: as above; each worker meets every fault before its notice.
def faulty_services_are_outlived(place):
    quiet = quiet_run(place, 400)
    run = place.run(job(place, "faulty", 400, compute_ms=12), "--workers", 2)
    with Aws() as aws, Gcp() as gcp, Azure() as azure:
        for service in (aws, gcp, azure):
            service.faults = ["500", "malformed", "silent"]
        aws.faults.append("expired")
        run.wait_for_step(5)
        workers = {s: run.join(*s.options) for s in (aws, gcp, azure)}
        wait_until(lambda: not aws.faults and aws.count("token") == 2 and aws.count("404"),
                   "AWS's service is asked with a second token")
        wait_until(lambda: not gcp.faults and gcp.count("none"), "GCP's service is asked")
        wait_until(lambda: not azure.faults and azure.count("none"), "Azure's service is asked")
        require(not run.events("notice"), "a fault was taken for a notice")
        for service in (aws, gcp, azure):
            service.tell(notice=60)
        for service, worker in workers.items():
            left_in_time(run, worker, service.cloud, 60)
        same(run, quiet)
    nobody_was_stopped(run)
    for service in (aws, gcp, azure):
        lines = [l for l in run.text().splitlines() if f"cloud={service.cloud}" in l]
        require(len(lines) == 2, f"expected a line for what was not understood and one for silence, "
                f"each once, got {lines}")


# `starling run` passes the options on; hints change nothing.
def hints_are_shown_and_nobody_leaves(place):
    quiet = quiet_run(place, 300)
    with Aws() as aws, Gcp() as gcp, Azure() as azure:
        aws.tell(hint=True)
        gcp.tell(hint="MIGRATE_ON_HOST_MAINTENANCE")
        azure.tell(hint=True)
        run = place.run(job(place, "hinted", 300), "--workers", 3, *aws.options)
        run.wait_for_step(5)
        run.join(*azure.options)
        run.join(*gcp.options)
        wait_until(lambda: len(run.events("notice")) == 5, "every worker's hint")
        same(run, quiet)
    nobody_was_stopped(run)
    require(not run.workers("left"), "a hint made a worker leave")
    told = sorted((e["source"], e["leave"], e["seconds"]) for e in run.events("notice"))
    require(told == [("aws", False, None)] * 3 + [("azure", False, None), ("gcp", False, None)], f"told {told}")


def a_service_that_is_not_there_is_no_error(place):
    quiet = quiet_run(place, 60)
    run = place.run(job(place, "alone", 60), "--workers", 3, "--notices", "aws",
                    "--metadata", "http://127.0.0.1:1")
    same(run, quiet)
    lines = [l for l in run.text().splitlines() if "no notices from the metadata service" in l]
    require(len(lines) == 3, f"not one line of each worker: {lines}")
    same(place.run(job(place, "elsewhere", 60), "--workers", 3, "--notices", "none").end(), quiet)


def sigterm_is_a_notice_as_well(place):
    quiet = quiet_run(place, 400)
    run = place.run(job(place, "signalled", 400), "--workers", 3)
    run.wait_for_step(5)
    worker = run.join("--notice", "60")
    all_joined(run, 4)
    worker.send_signal(signal.SIGTERM)
    left_in_time(run, worker, "SIGTERM", 60)
    same(run, quiet)
    nobody_was_stopped(run)


# Goal: who alone has the state stays until its notice ends, and no longer.
def the_last_worker_stays_until_its_notice_ends(place):
    with Aws() as aws:
        run = place.run(job(place, "last", 100000), "--workers", 1, *aws.options)
        run.wait_for_step(5)
        aws.tell(notice=12)
        wait_until(lambda: run.events("notice"), "the notice")
        told = time.monotonic()
        seconds = run.events("notice")[0]["seconds"]
        steps = run.steps()
        run.end(code=4)
        require(time.monotonic() - told > seconds - 1, "it went before its notice ended")
        require(run.steps() > steps, "it did nothing while it waited")
        require(any("worker-0 is to leave, and no worker that stays has the state" in w["text"] for w in run.events("warning")),
                run.events("warning"))


def a_base_that_is_none_is_refused(place):
    run = place.run(job(place, "refused", 10), "--workers", 1, "--notices", "gcp",
                    "--metadata", "metadata.google.internal")
    run.end(code=2)
    require("'metadata.google.internal' is no base of a metadata service" in run.text(), run.text())


main(a_notice_of_each_cloud_is_a_leave, faulty_services_are_outlived,
     hints_are_shown_and_nobody_leaves, a_service_that_is_not_there_is_no_error,
     sigterm_is_a_notice_as_well, the_last_worker_stays_until_its_notice_ends,
     a_base_that_is_none_is_refused)
