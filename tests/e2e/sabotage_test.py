"""Memory that changes is found, named and made good; a promise that is broken is seen by chaos."""
import contextlib
import os

from chaos_of import chaos, findings, report_of
from harness import main, require, same


@contextlib.contextmanager
def sabotage(order):
    os.environ["STARLING_SABOTAGE"] = order
    try:
        yield
    finally:
        del os.environ["STARLING_SABOTAGE"]


def a_flipped_bit_is_found_named_and_made_good(place):
    job = place.job(steps=400)
    quiet = place.run(job, "--workers", 1)
    quiet.end()
    for kind, what in (("flip-state", "the state"), ("flip-total", "the total"),
                       ("flip-parameters", "the working parameters")):
        with sabotage(f"{kind}@40@worker-1"):
            run = place.run(job, "--workers", 3)
        same(run, quiet)
        lost = run.workers("lost")
        require(len(lost) == 1 and lost[0]["name"] == "worker-1", f"{kind}: lost {lost}")
        reason = lost[0]["reason"] or ""
        require(f"worker-1: {what} of segment" in reason and "(" in reason, f"{kind}: {reason}")
        require(reason in run.text(), f"{kind}: not said to people:\n{run.text()}")
        steps = [e["version"] for e in run.events("step") if e["t"] < lost[0]["t"]]
        require(steps[-1] <= 41, f"{kind}: found after step {steps[-1]}")
        lives = [e for e in run.workers() if e["name"] == "worker-1"]
        require(len(lives) == 2, f"{kind}: no new life: {lives}")


def chaos_sees_a_broken_promise(place):
    for fault, steps, orders in (
            ('kind = "kill"\nback_s = 0.2', 600, (("drop-micro-batch@60@worker-1", "P1"),
                                                  ("double-total@60", "P1"),
                                                  ("stale-parameters@60@worker-1", "P1"),
                                                  ("leave-process", "P6"))),
            ('kind = "stop"\nfor_s = 0.8', 4000, (("ignore-fence", "P4"),))):
        job = place.job(steps=steps)
        reference = place.run(job, "--workers", 1).digest()
        plan = place.path("plan.toml")
        with open(plan, "w") as file:
            file.write(f"[run]\nsteps = {steps}\nworkers = 3\ncoordinators = 1\nlease_ms = 500\n"
                       f"[[fault]]\nat_s = 0.5\ntarget = 0.5\n{fault}\n")
        honest, _ = chaos(place, job, "--plan", plan, "--reference", reference)
        require(honest.returncode == 0, f"broken without sabotage:\n{honest.stdout}")
        for order, promise in orders:
            with sabotage(order):
                ended, out = chaos(place, job, "--plan", plan, "--reference", reference)
            found = findings(report_of(out))
            require(ended.returncode == 1 and found[promise] == "broken", f"{order}: {ended.stdout}")


main(a_flipped_bit_is_found_named_and_made_good, chaos_sees_a_broken_promise)
