"""`starling chaos` and what its report says."""
import json
import os
import subprocess

from harness import MINUTE, STARLING


def patient(options):
    """How short pauses are, `starling-bench recovery` measures, on a machine that is quiet."""
    return options if "--pause-ms-max" in options else (*options, "--pause-ms-max", 60000)


def chaos(place, job, *options, seconds=10 * MINUTE):
    place.count += 1
    out = place.path(f"chaos-{place.count}")
    ended = subprocess.run([STARLING, "chaos", job, "--out", out, *map(str, patient(options))],
                           capture_output=True, text=True, timeout=seconds)
    return ended, out


def attach(place, run, *options, seconds=10 * MINUTE, by_folder=True):
    """Disturbs a `starling run` that goes on."""
    place.count += 1
    out = place.path(f"chaos-{place.count}")
    where = run.out if by_folder else run.events("start")[0]["address"]
    ended = subprocess.run([STARLING, "chaos", "--attach", where, "--out", out,
                            *map(str, patient(options))], capture_output=True, text=True, timeout=seconds)
    return ended, out


def report_of(out):
    with open(os.path.join(out, "report.json")) as file:
        return json.load(file)


def findings(report):
    return {v["promise"]: v["finding"] for v in report["verdicts"]}
