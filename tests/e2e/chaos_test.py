"""`starling chaos`: a run under random faults keeps every promise, and chaos says so from outside."""
import os
import shlex
import subprocess

from chaos_of import attach, chaos, findings, report_of
from harness import MINUTE, STARLING, Failed, main, processes_naming, require, same_so_far, wait_until


def last_words(*paths):
    """The ends of these files, of those that are there."""
    words = []
    for path in filter(os.path.exists, paths):
        with open(path) as file:
            words.append(f"{path}:\n{file.read()[-2000:]}")
    return "\n".join(words)


def run_chaos(*arguments):
    return subprocess.run([STARLING, "chaos", *map(str, arguments)], capture_output=True, text=True,
                          timeout=MINUTE)


def diverging(place):
    job = place.job(steps=60)
    with open(job) as file:
        text = file.read()
    with open(job, "w") as file:
        file.write(text.replace('kind = "adamw"', 'kind = "sgd"\nclip = 0.0\nweight_decay = 0.0')
                   .replace("peak_rate = 1e-3", "peak_rate = 900.0").replace("warmup_steps = 5\n", ""))
    return job


def every_promise_holds_under_random_faults(place):
    ended, out = chaos(place, place.waiting_job(), "--random", "--seed", 5, "--duration", 8, "--steps", 250)
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
    job = place.waiting_job()
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 110
workers = 3
[[fault]]
at_s = 0.1
kind = "coordinator-kill"
[[fault]]
at_s = 0.1
kind = "guard-kill"
[[fault]]
at_s = 0.1
kind = "slow"
target = 0.9
for_s = 0.3
share = 0.5
[[fault]]
at_s = 0.6
kind = "kill"
target = 0.5
back_s = 0.2
""")
    ended, out = chaos(place, job, "--plan", plan)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    faults_of(out, "coordinator-kill", "guard-kill", "slow", "kill")
    digest = report_of(out)["run"]["digest"]
    again, _ = chaos(place, job, "--plan", os.path.join(out, "plan.toml"), "--reference", digest)
    require(again.returncode == 0, again.stdout + again.stderr)
    judged = ("--reference", "0" * 32, "--keep", 1, "--workers-max", 5, "--last-copies",
              "--pause-ms-max", 300.5)
    other, out = chaos(place, job, "--plan", plan, *judged)
    require("undisturbed" not in other.stdout.splitlines()[0]
            and "a step takes" not in other.stdout, f"there was no undisturbed run:\n{other.stdout}")
    require(other.returncode == 1, other.stdout + other.stderr)
    require(findings(report_of(out))["P1"] == "broken", "another digest is not the same bits")
    again = " ".join(map(str, (f"{job} --plan {out}/plan.toml", *judged, f"--out {out}-again")))
    require(f"to do this again: starling chaos {again}\n" in other.stdout, other.stdout)


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


def faults_of(out, *kinds):
    """Those of the report, which must all have been done and seen."""
    faults = report_of(out)["faults"]
    require([f["kind"] for f in faults] == list(kinds), f"faults: {faults}")
    for fault in faults:
        require(fault["outcome"] == "done" and all(e["seen"] for e in fault["effects"]), fault)
    return faults


def links_that_are_cut_damaged_and_slow_change_no_bit(place):
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 220
workers = 4
lease_ms = 500
[[fault]]
at_s = 0.3
kind = "corrupt"
target = 0.5
[[fault]]
at_s = 0.8
kind = "partition"
target = 0.3
for_s = 1.2
[[fault]]
at_s = 2.6
kind = "slow-link"
for_s = 0.5
delay_s = 0.005
[[fault]]
at_s = 3.2
kind = "partition"
target = 0.9
for_s = 0.1
""")
    ended, out = chaos(place, place.waiting_job(), "--plan", plan, "--links", "proxy")
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    cut = faults_of(out, "corrupt", "partition", "slow-link", "partition")[1]
    found = findings(report_of(out))
    for promise in ("P1", "P2", "P3", "P4", "P6", "faults"):
        require(found[promise] == "held", f"{promise}: {report_of(out)['verdicts']}")
    name = cut["targets"][0]["name"]
    require(f"{name} is back as a new life" in ended.stdout, f"not left out:\n{ended.stdout}")
    require([r["name"] for r in report_of(out)["woken_up_left_out"]] == [name],
            report_of(out)["woken_up_left_out"])


def two_that_are_apart_behind_a_proxy_change_no_bit(place):
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 300
workers = 4
lease_ms = 500
[[fault]]
at_s = 0.5
kind = "apart"
target = 0.3
for_s = 1.2
[[fault]]
at_s = 0.9
kind = "apart"
for_s = 1
""")
    ended, out = chaos(place, place.waiting_job(), "--plan", plan, "--links", "proxy")
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    one, other = report["faults"]
    require(one["outcome"] == "done" and all(e["seen"] for e in one["effects"]), one)
    require(len(one["targets"]) == 2, one)
    require(any(e["what"].endswith("are held back") for e in one["effects"]), one)
    require(other["outcome"] == "held back" and "other workers are apart" in ended.stdout, other)
    for promise in ("P1", "P2", "P6", "faults"):
        require(findings(report)[promise] == "held", f"{promise}: {report['verdicts']}")
    alone, _ = chaos(place, place.job(), "--random", "--kinds", "apart", "--duration", 2, "--workers", 2)
    require(alone.returncode == 2 and "apart: it needs three workers" in alone.stderr,
            alone.stdout + alone.stderr)


def a_coordinator_without_space_ends_and_comes_back(place):
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 160
workers = 3
[[fault]]
at_s = 0.5
kind = "disk-full"
target = 0.4
for_s = 1
""")
    ended, out = chaos(place, place.waiting_job(), "--plan", plan)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    faults_of(out, "disk-full")
    with open(os.path.join(out, "disturbed.log")) as file:
        said = [line for line in file if "coordinator-1/raft.log" in line]
    require(said, "coordinator-1 did not say why it ended")
    held_back, out = chaos(place, place.job(), "--random", "--kinds", "disk-full", "--duration", 2,
                           "--coordinators", 1, "--reference", "0" * 32, "--steps", 150)
    require(held_back.returncode == 2 and "disk-full: it needs three coordinators" in held_back.stderr,
            held_back.stdout + held_back.stderr)


def a_checkpoint_without_space_is_given_up_and_training_goes_on(place):
    job = place.waiting_job()
    with open(job, "a") as file:
        file.write(f'[checkpoint]\ndir = "{place.path("checkpoints")}"\nevery = 20\n')
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 260
workers = 3
coordinators = 1
[[fault]]
at_s = 0.3
kind = "checkpoint-full"
target = 0.4
for_s = 3
""")
    ended, out = chaos(place, job, "--plan", plan)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    faults_of(out, "checkpoint-full")
    require("File too large" in ended.stdout, f"another reason:\n{ended.stdout}")


def a_run_that_is_there_already_is_disturbed_within_limits(place):
    job = place.waiting_job(steps=1000000)
    run = place.run(job, "--workers", 4)
    run.wait_for_step(20)
    began = {e["name"]: e["pid"] for e in run.workers()}
    ended, out = attach(place, run, "--kinds", "kill,stop", "--rate", 2, "--duration", 4,
                        "--max-faults", 5, "--keep", 3, "--seed", 3, by_folder=False)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    require(len(report["faults"]) == 5, report["faults"])
    killed = [t["pid"] for f in report["faults"] if f["outcome"] == "done" and f["kind"] == "kill"
              for t in f["targets"]]
    require(len(killed) == 1 and killed[0] in began.values(), f"--keep 3 of 4, killed: {killed}")
    found = findings(report)
    for promise in ("P2", "P3", "faults"):
        require(found[promise] == "held", report["verdicts"])
    for promise in ("P1", "P6", "P8"):
        require(found[promise] == "not tested", report["verdicts"])
    same_so_far(place, run, job)
    ended, _ = attach(place, run, "--duration", 1)
    require(ended.returncode == 2 and "has ended" in ended.stderr, ended.stderr)


def bad_input_is_one_line(place):
    job = place.job()
    plan = place.path("bad.toml")
    with open(plan, "w") as file:
        file.write("[run]\nsteps = 3\nworkers = 2\n[[fault]]\nat_s = 1\nkind = 'sing'\n")
    nothing = place.path("nothing.toml")
    with open(nothing, "w") as file:
        file.write("[run]\nsteps = 3\nworkers = 2\n")
    for options, word in ((("--plan", plan), "sing"), ((), "--random"),
                          (("--plan", nothing), "nothing.toml"),
                          (("--random", "--kinds", "kill,sing"), "sing"),
                          (("--random", "--duration", "soon"), "soon"),
                          (("--plan", plan, "--reference", "abc"), "--reference"),
                          (("--plan", plan, "--reference", "G" * 32), "--reference"),
                          (("--random", "--command", "x {join} {keys}", "--kinds", "apart"), "--command"),
                          (("--random", "--plan", plan), "--random"),
                          (("--plan", plan, "--rate", 1), "--rate"),
                          (("--plan", plan, "--workers", 3), "--workers"),
                          (("--plan", plan, "--duration", 5), "--duration"),
                          (("--random", "--keys", "keys"), "--attach"),
                          (("--attach", place.folder, "--duration", 1), "--attach")):
        ended, out = chaos(place, job, *options)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1 and word in lines[0],
                f"{options}: {ended.returncode} {ended.stderr}")
        require(not os.path.exists(out), f"{options}: {out} is left")
    empty = place.path("empty")  # of somebody else
    os.mkdir(empty)
    for out, left in ((os.path.join(place.path("new"), "folder"), place.path("new")), (empty, "")):
        require(run_chaos(job, "--random", "--kinds", "sing", "--out", out).returncode == 2, "not refused")
        require(not (left and os.path.exists(left)), f"{left} is left")
    require(os.listdir(empty) == [], "the folder that was there is gone")


def what_cannot_be_tested_is_one_line(place):
    """The undisturbed run fails: it diverges."""
    job = diverging(place)
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("[run]\nsteps = 60\nworkers = 2\n[[fault]]\nat_s = 0.1\nkind = 'join'\n")
    for options in (("--plan", plan), ("--random", "--workers", 2, "--duration", 1)):
        ended, _ = chaos(place, job, *options)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1
                and "the undisturbed run ended with exit code 1: diverged" in lines[0],
                f"{options}: {ended.returncode} {ended.stdout}{ended.stderr}")


def nothing_is_left_when_chaos_is_killed(place):
    plan = place.path("plan.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 100000
workers = 3
[[fault]]
at_s = 0.1
kind = "corrupt"
[[fault]]
at_s = 1
kind = "slow-link"
delay_s = 0.001
for_s = 60
""")
    for name, options in (("disturbed", ("--links", "proxy", "--reference", "0" * 32)), ("quiet", ())):
        out = place.path(f"out-{name}")
        said = place.path(f"{name}.txt")
        with open(said, "w") as file:
            process = subprocess.Popen([STARLING, "chaos", place.waiting_job(steps=100000), "--plan", plan, "--out", out,
                                        *options], stdout=file, stderr=file)
        events = os.path.join(out, name, "events.jsonl")
        try:
            wait_until(lambda: os.path.exists(events) and '"ev":"step"' in open(events).read(), "steps", of=process)
            if name == "disturbed":  # a stranger tries to get in
                wait_until(lambda: processes_naming("stranger.toml") or os.path.exists(
                    os.path.join(out, "stranger.toml")), "a stranger", of=process)
        except Failed as error:
            logs = last_words(said, f"{out}/{name}.log", f"{out}/workers.log", events)
            raise Failed(f"{error}:\n{logs}") from None
        finally:
            process.kill()
            process.wait(MINUTE)
        wait_until(lambda: not processes_naming(out), f"the end of all of {name}")


def a_run_that_is_not_there_cannot_be_disturbed(place):
    class Nothing:
        out = place.path("nothing")

    for options, word in ((("--duration", 1), "no run"), ((), "--duration"),
                          (("--duration", 1, "--kinds", "join"), "join"),
                          (("--duration", 1, "--workers", 3), "--workers")):
        ended, _ = attach(place, Nothing, *options)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1 and word in lines[0],
                f"{options}: {ended.returncode} {ended.stderr}")


def workers_of_any_command_are_disturbed(place):
    folder = place.path("a folder's")
    os.mkdir(folder)
    os.symlink(STARLING, os.path.join(folder, "mine"))
    command = shlex.quote(os.path.join(folder, "mine")) + " worker --quiet --join {join} --keys {keys}"
    plan = place.path("command.toml")
    with open(plan, "w") as file:
        file.write("""
[run]
steps = 110
workers = 3
[[fault]]
at_s = 0.1
kind = "join"
[[fault]]
at_s = 0.6
kind = "kill"
target = 0.5
back_s = 0.2
""")
    ended, out = chaos(place, place.job(), "--command", command, "--plan", plan)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    for promise in ("P1", "P2", "P3", "P6", "faults"):
        require(findings(report)[promise] == "held", f"{promise}: {report['verdicts']}")
    faults_of(out, "join", "kill")
    for wrong, text in (("mine worker --join {join}", "--command must have {keys}"),
                        ("mine {keys}", "--command must have {join}")):
        ended, _ = chaos(place, place.job(), "--command", wrong, "--plan", plan)
        require(ended.returncode == 2 and text in ended.stderr, ended.stderr)


main(every_promise_holds_under_random_faults, the_loss_of_the_last_copies_is_a_clear_end,
     a_coordinator_without_space_ends_and_comes_back, a_run_that_is_there_already_is_disturbed_within_limits,
     bad_input_is_one_line, what_cannot_be_tested_is_one_line, nothing_is_left_when_chaos_is_killed,
     a_run_that_is_not_there_cannot_be_disturbed, workers_of_any_command_are_disturbed,
     long=(a_plan_repeats_its_faults_and_takes_a_reference, two_that_are_apart_behind_a_proxy_change_no_bit,
           a_checkpoint_without_space_is_given_up_and_training_goes_on,
           links_that_are_cut_damaged_and_slow_change_no_bit))
