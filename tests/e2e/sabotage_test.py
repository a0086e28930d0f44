"""Memory that changes, and a copy that was computed wrongly, is found, named and made good."""
import os

from harness import (STARLING, environment, left_out_and_back, main, require, sabotage, same,
                     same_so_far)

FAKE_NCCL = os.path.join(os.path.dirname(STARLING), "tests", "nccl", "libfake_nccl.so")


def a_flipped_bit_or_a_wrong_copy_is_found_named_and_made_good(place):
    job = place.job(steps=1000000)
    with open(job, "a") as file:
        file.write('shares = "equal"\n')  # by speed a worker may contribute no sums to that step
    for kind, what in (("flip-state", "the state"), ("flip-sums", "the sums"),
                       ("flip-total", "the total"), ("corrupt-replica", "the copy"),
                       ("flip-parameters", "the working parameters")):
        with sabotage(f"{kind}@40@worker-1"):
            run = place.run(job, "--workers", 3)
        left_out_and_back(run, 3, "lost")
        same_so_far(place, run, job)
        lost = run.workers("lost")
        require(len(lost) == 1 and lost[0]["name"] == "worker-1", f"{kind}: lost {lost}")
        reason = lost[0]["reason"] or ""
        require(f"worker-1: {what} of segment" in reason and "(" in reason, f"{kind}: {reason}")
        require(reason in run.text(), f"{kind}: not said to people:\n{run.text()}")
        steps = [e["version"] for e in run.events("step") if e["t"] < lost[0]["t"]]
        require(steps[-1] <= 41, f"{kind}: found after step {steps[-1]}")
        lives = [e for e in run.workers() if e["name"] == "worker-1"]
        require(len(lives) == 2, f"{kind}: no new life: {lives}")


def damage_is_never_in_a_step(place):
    """A bit of working parameters flips before the computation, and the compare comes 100 ms late: the others have
    voted by then if they can. With one replica two of four workers have no copy of a segment and are sent its words."""
    job = place.job(steps=1000000, replicas=1)
    for kind in ("flip-owned", "flip-copy"):
        with sabotage(f"{kind}@40@worker-1"):
            run = place.run(job, "--workers", 4)
        left_out_and_back(run, 4, "lost")
        same_so_far(place, run, job)
        lost = run.workers("lost")
        require(len(lost) == 1 and lost[0]["name"] == "worker-1", f"{kind}: lost {lost}")
        require("worker-1: the working parameters of segment" in (lost[0]["reason"] or ""), f"{kind}: {lost}")
        again = [e for e in run.events("epoch") if e["base"] == 40]
        require(again, f"{kind}: step 40 was not done again: {[e['base'] for e in run.events('epoch')]}")


def a_worker_that_multiplies_wrongly_is_named_and_leaves(place):
    job = place.job(steps=400)
    with open(job, "a") as file:
        file.write('recheck = 16\nshares = "equal"\n')
    quiet = place.quiet(job)
    require(not quiet.events("mismatch"), "a sound run has differences")
    with sabotage("multiply-wrongly@0@worker-1"):
        run = place.run(job, "--workers", 3)
        run.end()
    wrong = {w["id"] for w in run.workers("joined") if w["name"] == "worker-1"}
    found = run.events("mismatch")
    require(found and found[0]["version"] < 64, f"not found within 64 steps: {found[:3]}")
    require(all(wrong & {m["worker"], m["by"]} for m in found), f"others are accused: {found}")
    told = [m["wrong"] for m in found if m["wrong"] is not None]
    require(told and set(told) <= wrong, f"who is wrong: {told}, is {wrong}")
    taints = run.events("tainted")
    require(taints and taints[0]["name"] == "worker-1" and taints[0]["first"] == 0, taints)
    lost = run.workers("lost")
    require(lost and lost[0]["name"] == "worker-1", f"lost {lost}")


def the_last_to_end_its_share_tells_of_a_flipped_bit_too(place):
    """Without replicas its own share completes its totals: the bit is found while it sends."""
    job = place.job(steps=1200, lease_ms=10000, replicas=0)
    with open(job, "a") as file:
        file.write('shares = "equal"\n')
    # glibc fills what is freed, so a use of it afterwards ends the process.
    with sabotage("flip-parameters@600@worker-2"), environment(MALLOC_PERTURB_="165"):
        run = place.run(job, "--workers", 2, "--threads", 1)
        run.wait_for_step(1)
        run.join("--save", "none", "--slow", "4")
    run.end(code=4)
    run.joiners[0].wait(300)  # it hears of the end as the run does, and may be later
    lost = run.workers("lost")
    require(len(lost) == 1 and "worker-2: the working parameters of segment" in (lost[0]["reason"] or ""), lost)


def without_other_copies_it_ends_the_job(place):
    with sabotage("flip-state@40@worker-1"):
        run = place.run(place.job(steps=800, replicas=0), "--workers", 2)
    run.end(code=4)
    lost = run.workers("lost")
    require(len(lost) == 1 and "worker-1: the state of segment" in (lost[0]["reason"] or ""), lost)
    lines = [l for l in run.text().splitlines() if l.startswith("starling: state lost")]
    require(len(lines) == 1 and "held by worker-1" in lines[0], run.text())


def a_worker_whose_threads_hang_is_left_out_and_comes_back(place):
    job = place.job(steps=1000000, lease_ms=10000)  # on a busy machine, too, only this rule leaves it out
    with open(job, "a") as file:
        file.write("standstill_ms = 2000\nstandstill_steps = 5\n")
        file.write('shares = "equal"\n')  # by speed it may have nothing to compute in that step
    for kind, what in (("hang-computing", "its share of step 40 ("),
                       ("hang-data-plane", "what it does for step 40 with state and sums (")):
        with sabotage(f"{kind}@40@worker-1"):
            run = place.run(job, "--workers", 3, "--threads", 1)
        left_out_and_back(run, 3)
        same_so_far(place, run, job)
        left_out = [w["name"] for w in run.workers("fenced")]
        require(left_out == ["worker-1"], f"{kind}: left out {left_out}")
        warnings = [w["text"] for w in run.events("warning")]
        require(any(f"worker-1 is heard but gets nowhere with {what}" in w for w in warnings),
                f"{kind}: no warning names it: {warnings}")
        causes = [e["cause"] for e in run.events("epoch")]
        require(any(c.startswith("worker-1 got nowhere for") for c in causes), f"{kind}: {causes}")


def garbage_of_the_device_transport_is_found_by_the_weight_of_totals_alone(place):
    """The third group of transfers of a communicator has the sums of its first step: after the warm-up and a gather.
    Without replicas, whose copies would differ."""
    quiet = place.quiet(place.job(steps=60, replicas=0))
    job = place.job(steps=60, replicas=0, isa="emulated")
    with environment(STARLING_NCCL=FAKE_NCCL, FAKE_NCCL="garbage@3"):
        same(place.run(job, "--workers", 3), quiet)
        with sabotage("accept-any-total"):
            blind = place.run(job, "--workers", 3)
        require(blind.digest() != quiet.digest(), "garbage did not get through, so nothing was shown")


main(damage_is_never_in_a_step, a_flipped_bit_or_a_wrong_copy_is_found_named_and_made_good,
     without_other_copies_it_ends_the_job,
     a_worker_whose_threads_hang_is_left_out_and_comes_back,
     garbage_of_the_device_transport_is_found_by_the_weight_of_totals_alone,
     long=(the_last_to_end_its_share_tells_of_a_flipped_bit_too,
           a_worker_that_multiplies_wrongly_is_named_and_leaves))
