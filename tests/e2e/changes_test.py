"""Workers that join and leave while a job runs."""
import signal

from harness import alive, main, require, same, wait_until


def joining_workers_change_no_bit_and_stop_nobody(place):
    job = place.job(steps=500)
    quiet = place.run(job, "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 2)
    run.wait_for_step(20)
    run.join("--threads", "2")
    run.join()
    wait_until(lambda: any(len(e["members"]) == 4 for e in run.events("epoch")), "four members", 20)
    same(run, quiet)
    require(not [e for e in run.events("epoch") if e["kind"] == "forced"],
            f"a join forced an epoch:\n{run.text()}")
    ids = {w["id"] for w in run.workers()}
    worked = {w for e in run.events("ledger") for _, w in e["workers"]}
    require(worked == ids, f"of workers {ids} only {worked} computed anything")


def a_leaving_worker_hands_over_and_goes(place):
    job = place.job(steps=500)
    quiet = place.run(job, "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    leaver = run.workers()[2]
    run.kill(leaver, signal.SIGTERM)
    wait_until(lambda: not alive(leaver["pid"]), "the leaver's end", 20)
    require(run.process.poll() is None, "it left only when the job ended")
    same(run, quiet)
    require(not [e for e in run.events("epoch") if e["kind"] == "forced"],
            f"a leave forced an epoch:\n{run.text()}")
    require(run.workers("left") and not run.workers("lost"), "the leave was taken for a loss")


def a_join_a_kill_and_a_leave_together(place):
    job = place.job(steps=500)
    quiet = place.run(job, "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    run.join()
    first, second = run.workers()[:2]
    run.kill(first, signal.SIGTERM)
    run.kill(second)
    same(run, quiet)


main(joining_workers_change_no_bit_and_stop_nobody, a_leaving_worker_hands_over_and_goes,
     a_join_a_kill_and_a_leave_together)
