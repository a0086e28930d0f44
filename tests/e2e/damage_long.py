"""A bit of working parameters flips before a computation, again and again, and no step has it: the compare comes 100 ms
late, when the others may have voted.

    python3 tests/e2e/damage_long.py build/release/starling-breakable --runs 40 --seed 1

The flipped copy (an owner's or a replica's, in turn), the worker and the step are drawn from the seed.
"""
import argparse
import sys

arguments = argparse.ArgumentParser()
arguments.add_argument("starling")
arguments.add_argument("--runs", type=int, default=40)
arguments.add_argument("--seed", type=int, default=1)
OPTIONS = arguments.parse_args()
sys.argv[1:] = [OPTIONS.starling]

from harness import Place, drawn_runs, require, sabotage, same  # noqa: E402

WORKERS, STEPS = 4, 240


def one(place, job, quiet, kind, dice):
    step = dice.randint(2, STEPS // 2)
    # With one replica some of the workers may hold no copy that they do not own: there is nothing to flip in them.
    for worker in dice.sample([f"worker-{n}" for n in range(WORKERS)], WORKERS):
        with sabotage(f"{kind}@{step}@{worker}"):
            run = place.run(job, "--workers", WORKERS).end()
        same(run, quiet)
        if run.workers("lost"):
            break
    what = f"{kind} of {worker} in step {step}"
    lost = run.workers("lost")
    require(len(lost) == 1 and lost[0]["name"] == worker, f"{what}: lost {lost}")
    require(f"{worker}: the working parameters of segment" in (lost[0]["reason"] or ""), f"{what}: {lost[0]['reason']}")
    require(any(e["base"] == step for e in run.events("epoch")), f"{what}: the step was not done again")
    return what


def main():
    place = Place()
    job = place.job(steps=STEPS, replicas=1)
    quiet = place.quiet(job)
    drawn_runs(place, OPTIONS.runs, OPTIONS.seed,
               lambda i, dice: one(place, job, quiet, ("flip-owned", "flip-copy")[i % 2], dice))


main()
