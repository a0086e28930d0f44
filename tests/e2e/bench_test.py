"""`starling bench recovery`: the measurement itself, with real kills."""
import json
import subprocess

from harness import STARLING, main, require


def measure(job, *options):
    done = subprocess.run([STARLING, "bench", "recovery", "--job", job, "--workers", "3", "--json",
                           *options], capture_output=True, text=True)
    require(done.returncode == 0, f"exit code {done.returncode}:\n{done.stderr}")
    return {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}


def each_kill_is_measured_and_its_parts_add_up(place):
    rows = measure(place.job(), "--losses", "3")
    require(rows["all"]["n"] == 3, f"{rows}")
    phases = [what for what in rows if what in
              ("none", "change", "compute", "reduce", "vote", "apply", "gather")]
    require(sum(rows[what]["n"] for what in phases) == 3, f"phases of the killed: {rows}")
    require(rows["1 detect"]["median_ms"] > 0, f"{rows}")


def a_freeze_lasts_at_least_the_lease(place):
    rows = measure(place.job(lease_ms=300), "--losses", "1", "--freeze")
    require(rows["frozen"]["median_ms"] > 200, f"{rows}")


main(each_kill_is_measured_and_its_parts_add_up, a_freeze_lasts_at_least_the_lease)
