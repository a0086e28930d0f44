"""Workers that join and leave while a job runs."""
import signal
import socket

from harness import LONG_LEASE_MS, alive, main, require, same, same_so_far, wait_until


def joined(run):
    """A new worker that the leader knows, and no plan yet if what follows is quick."""
    before = {w["id"] for w in run.workers()}
    run.join()
    wait_until(lambda: len(run.workers()) > len(before), "a join")
    return next(w for w in run.workers() if w["id"] not in before)


def joining_workers_change_no_bit_and_stop_nobody(place):
    job = place.job(steps=100000, lease_ms=LONG_LEASE_MS)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(20)
    run.join("--threads", "2")
    run.join()
    wait_until(lambda: any(len(e["members"]) == 4 for e in run.events("epoch")), "four members")
    ids = {w["id"] for w in run.workers()}
    wait_until(lambda: {w for e in run.events("ledger") for _, w in e["workers"]} == ids, "all compute")
    require(not [e for e in run.events("epoch") if e["kind"] == "forced"],
            f"a join forced an epoch:\n{run.text()}")
    same_so_far(place, run, job)


def a_leaving_worker_hands_over_and_goes(place):
    job = place.job(steps=500, lease_ms=LONG_LEASE_MS)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    leaver = run.workers()[2]
    run.kill(leaver, signal.SIGTERM)
    wait_until(lambda: not alive(leaver["pid"]), "the leaver's end")
    require(run.process.poll() is None, "it left only when the job ended")
    same(run, quiet)
    require(not [e for e in run.events("epoch") if e["kind"] == "forced"],
            f"a leave forced an epoch:\n{run.text()}")
    require(run.workers("left") and not run.workers("lost"), "the leave was taken for a loss")


def a_worker_that_joins_while_another_dies_enters_with_the_forced_plan(place):
    job = place.job(steps=100000, lease_ms=LONG_LEASE_MS)
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)

    def entered_with_it():
        return [e for e in run.events("epoch")
                if e["kind"] == "forced" and any(m["joiner"] for m in e["members"])]

    for member in run.workers():  # a joiner that was quicker than the kill has entered before it
        joined(run)
        run.kill(member)
        wait_until(lambda: [w for w in run.workers("lost") if w["id"] == member["id"]], "the loss")
        step = run.steps()
        run.wait_for_step(step + 2)
        if entered_with_it():
            break
    same_so_far(place, run, job)
    require(entered_with_it(), f"no joiner was in a forced plan:\n{run.text()}")


def a_joiner_that_nobody_can_connect_to_is_told_so(place):
    job = place.job(steps=100000, lease_ms=LONG_LEASE_MS)  # goes on for longer than four lives take
    run = place.run(job, "--workers", 3)
    run.wait_for_step(20)
    first = {w["id"] for w in run.workers()}
    with socket.socket() as nobody:  # bound and not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        joiner = run.join("--advertise", f"127.0.0.1:{nobody.getsockname()[1]}")
        wait_until(lambda: joiner.poll() is not None, "the joiner's end")
    run.joiners.remove(joiner)  # the others have to end with 0
    require(joiner.returncode == 2, f"exit code {joiner.returncode}:\n{run.text()}")
    require("the other workers cannot connect to" in run.text(), run.text())
    require(run.process.poll() is None, "it was told only when the job ended")
    same_so_far(place, run, job)
    require(not [w for w in run.workers("fenced") if w["id"] in first],
            f"a worker was left out for it:\n{run.text()}")


def nobody_waits_for_a_joiner_that_is_told_to_go_at_once(place):
    job = place.job(steps=100000, lease_ms=LONG_LEASE_MS)
    run = place.run(job, "--workers", 3)
    run.wait_for_step(20)
    joiner = joined(run)
    run.kill(joiner, signal.SIGTERM)
    # The joiner has left if it had entered before the signal came.
    wait_until(lambda: [w for w in run.workers("lost") + run.workers("left") if w["id"] == joiner["id"]],
               "the joiner says that it is gone")
    run.joiners[0].wait(60)
    run.wait_for_step(run.steps() + 10)
    require(not run.workers("fenced"), f"somebody was waited for:\n{run.text()}")
    waited = [e["form_ms"] for e in run.events("epoch") if (e["form_ms"] or 0) > LONG_LEASE_MS * 0.9]
    require(not waited, f"an epoch took {waited} ms to form:\n{run.text()}")
    run.joiners.clear()  # gone for a reason of its own
    same_so_far(place, run, job)


def a_run_goes_on_with_a_worker_from_elsewhere_when_its_own_have_left(place):
    job = place.job(steps=100000)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(20)
    joined(run)
    for worker in run.workers()[:2]:
        run.kill(worker, signal.SIGTERM)
    wait_until(lambda: len(run.workers("left")) == 2 and not [w for w in run.workers()[:2] if alive(w["pid"])],
               "both have left")
    gone = run.events("step")[-1]["t"]
    # Longer than a run waits for a last word of coordinators.
    wait_until(lambda: run.process.poll() is not None or run.events("step")[-1]["t"] > gone + 4, "seconds pass")
    run.wait_for_step(run.steps() + 20)
    same_so_far(place, run, job)


def a_join_a_kill_and_a_leave_together(place):
    job = place.job(steps=100000)
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    run.join()
    first, second = run.workers()[:2]
    run.kill(first, signal.SIGTERM)
    run.kill(second)
    wait_until(lambda: len(run.workers()) == 5 and len(run.events("epoch")[-1]["members"]) == 3, "all three are done")
    run.wait_for_step(run.steps() + 10)
    same_so_far(place, run, job)


main(joining_workers_change_no_bit_and_stop_nobody, a_leaving_worker_hands_over_and_goes,
     a_worker_that_joins_while_another_dies_enters_with_the_forced_plan,
     a_joiner_that_nobody_can_connect_to_is_told_so,
     nobody_waits_for_a_joiner_that_is_told_to_go_at_once,
     a_run_goes_on_with_a_worker_from_elsewhere_when_its_own_have_left, a_join_a_kill_and_a_leave_together)
