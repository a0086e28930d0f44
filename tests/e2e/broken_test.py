"""A promise that is broken on purpose is seen by `starling chaos`."""
from chaos_of import chaos, findings, report_of
from harness import main, require, sabotage


def chaos_sees_a_broken_promise(place):
    for fault, steps, orders in (
            # At a step when all three are there: of two each has all parameters, and none is stale.
            ('kind = "kill"\nback_s = 0.2', 600, (("drop-micro-batch@400", "P1"), ("double-total@400", "P1"),
                                                  ("stale-parameters@400", "P1"), ("leave-process", "P6"))),
            ('kind = "stop"\nfor_s = 0.8', 4000, (("ignore-fence", "P4"),
                                                   ("accept-stranger", "P8")))):
        job = place.job(steps=steps, replicas=1)  # some parameters come from their owner
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


main(chaos_sees_a_broken_promise)
