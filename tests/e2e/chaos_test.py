"""`starling chaos`: a run under random faults keeps every promise, and chaos says so from outside."""
import os

from chaos_of import chaos, findings, report_of
from harness import main, processes_naming, require


def every_promise_holds_under_random_faults(place):
    ended, out = chaos(place, place.job(), "--random", "--seed", 5, "--duration", 12, "--steps", 1200)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    found = findings(report)
    for promise in ("P1", "P2", "P3", "P6", "faults"):
        require(found[promise] == "held", f"{promise}: {report['verdicts']}")
    done = [f for f in report["faults"] if f["outcome"] == "done"]
    require(len({f["kind"] for f in done}) >= 3, f"few kinds of faults: {done}")
    require(all(e["seen"] or e["overtaken"] for f in done for e in f["effects"]), done)
    require(os.path.getsize(os.path.join(out, "junit.xml")) > 0, "no junit.xml")
    require(not processes_naming(out), "processes are left")


def a_plan_repeats_its_faults_and_takes_a_reference(place):
    job = place.job()
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 300
workers = 3
coordinators = 1
[[fault]]
at_s = 0.3
kind = "kill"
target = 0.5
back_s = 0.2
""")
    ended, out = chaos(place, job, "--plan", plan)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    digest = report_of(out)["run"]["digest"]
    again, _ = chaos(place, job, "--plan", os.path.join(out, "plan.toml"), "--reference", digest)
    require(again.returncode == 0, again.stdout + again.stderr)
    other, out = chaos(place, job, "--plan", plan, "--reference", "0" * 32)
    require(other.returncode == 1, other.stdout + other.stderr)
    require(findings(report_of(out))["P1"] == "broken", "another digest is not the same bits")
    require(f"--plan {out}/plan.toml" in other.stdout, "it does not say how to repeat it")


def the_loss_of_the_last_copies_is_a_clear_end(place):
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 100000
workers = 4
coordinators = 1
replicas = 1
[[fault]]
at_s = 0.3
kind = "kill"
count = 3
""")
    ended, out = chaos(place, place.job(), "--plan", plan, "--last-copies", "--reference", "0" * 32)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    require(report["run"]["exit_code"] == 4, report["run"])
    require(findings(report)["P5"] == "held" and findings(report)["P1"] == "not tested",
            report["verdicts"])
    held_back, out = chaos(place, place.job(), "--plan", plan, "--steps", 1)
    require(held_back.returncode == 2, "--steps does not go with a plan")


def bad_input_is_one_line(place):
    job = place.job()
    plan = place.path("bad.toml")
    with open(plan, "w") as file:
        file.write("[run]\nsteps = 3\nworkers = 2\n[[fault]]\nat_s = 1\nkind = 'sing'\n")
    for options, word in ((("--plan", plan), "sing"), ((), "--random"),
                          (("--random", "--kinds", "kill,sing"), "sing"),
                          (("--random", "--duration", "soon"), "soon"),
                          (("--random", "--plan", plan), "--random")):
        ended, _ = chaos(place, job, *options)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1 and word in lines[0],
                f"{options}: {ended.returncode} {ended.stderr}")


main(every_promise_holds_under_random_faults, a_plan_repeats_its_faults_and_takes_a_reference,
     the_loss_of_the_last_copies_is_a_clear_end, bad_input_is_one_line)
