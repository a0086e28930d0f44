"""`starling audit`: what a disturbed run proves, what damage to its file refutes, where two runs part."""
import json
import os
import shutil
import subprocess

from harness import STARLING, main, require


def audit(*arguments):
    ended = subprocess.run([STARLING, "audit", *map(str, arguments)], capture_output=True, text=True,
                           timeout=300)
    return ended.returncode, ended.stdout + ended.stderr


def expect(code, word, *arguments):
    got, said = audit(*arguments)
    require(got == code and word in said, f"{arguments}: {got}, expected {code} and {word!r}: {said}")
    return said


def edited(place, run, name, change):
    folder = place.path(name)
    os.mkdir(folder)
    with open(os.path.join(run.out, "events.jsonl")) as file:
        lines = change(file.read().splitlines(keepends=True))
    with open(os.path.join(folder, "events.jsonl"), "w") as file:
        file.writelines(lines)
    return folder


def without(kind, version):
    def change(lines):
        kept = [l for l in lines
                if not (json.loads(l)["ev"] == kind and json.loads(l).get("version") == version)]
        require(len(kept) == len(lines) - 1, f"not one {kind} of version {version}")
        return kept
    return change


def with_norm(version, norm):
    def change(lines):
        events = [json.loads(l) for l in lines]
        for e in events:
            if e["ev"] == "step" and e["version"] == version:
                e["norm"] = norm
        return [json.dumps(e) + "\n" for e in events]
    return change


def again(line):
    """A second record of step 57, with another loss."""
    event = json.loads(line)
    if event["ev"] != "step" or event["version"] != 57:
        return [line]
    return [line, json.dumps({**event, "loss": 1.0}) + "\n"]


def named(line, name):
    event = json.loads(line)
    if event["ev"] == "done":
        return json.dumps({"t": 1.0, "ev": "tainted", "id": 1, "name": name, "first": 1, "last": 2, "reason": name}) + "\n" + line
    return line


def seeded(line):
    return json.dumps({**json.loads(line), "seed": 7}) + "\n"


def a_run_with_a_kill_proves_its_promises(place):
    job = place.job(steps=120)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 3, "--coordinators", 3)
    run.wait_for_step(40)
    run.kill(run.workers()[0])
    run.end()
    require(run.workers("lost"), "the kill came too late")
    said = expect(0, "held", run.out, "--sample", 0, "--json", place.path("audit.json"))
    require(said.count(" held ") == 3 and "sample 0, pass 0: step" in said, said)
    with open(place.path("audit.json")) as file:
        found = json.load(file)
    require("same bits" not in said and [p["title"] for p in found["promises"]][0] == "one record", said)
    require(found["held"] and len(found["promises"]) == 3 and len(found["uses"]) >= 1, str(found))
    expect(0, "same: 120 steps and 13 digests", quiet.out, run.out)

    expect(1, "has no ledger", edited(place, run, "no-ledger", without("ledger", 57)))
    expect(1, "step 57 is not there", edited(place, run, "no-step", without("step", 57)))
    expect(1, "without `done`", edited(place, run, "no-done", lambda lines: lines[:-1]))
    expect(1, "without `done`", edited(place, run, "cut", lambda lines: lines[:-1] + [lines[-1][:20]]))
    # Of a file that is known to have gaps what is not there refutes nothing.
    cut = edited(place, run, "no-step-cut", lambda lines: without("step", 57)(lines) + ['{"t":1.0,"e'])
    said = expect(1, "incomplete: step 58 follows, step 57 is not there; the last line is cut", cut)
    require("refuted" not in said, said)
    odd = edited(place, run, "odd", lambda lines: [l for l in lines if lines.index(l) % 7 or '"step"' not in l])
    expect(0, " held ", odd, run.out, "--together")
    expect(2, "--together", odd, run.out, cut)
    expect(1, "two records of step 57 differ", edited(place, run, "other-norm", with_norm(57, 1.5)),
           run.out, "--together")
    expect(2, "not a JSON object", edited(place, run, "garbage", lambda lines: lines[:9] + ["x\n"]))
    other = edited(place, run, "other", with_norm(57, 1.5))
    expect(1, "first at step 57: norm", quiet.out, other)
    # Nothing that a file says of itself is believed where the file refutes it, and none of it is a line of ours.
    twice = edited(place, run, "twice", lambda lines: [one for line in lines for one in again(line)])
    expect(1, "is refuted: P1, line", quiet.out, twice)
    forged = edited(place, run, "forged", lambda lines: [named(line, "w\x1b\nP1 same bits held\r") for line in lines])
    said = expect(1, "P1", forged)
    require("\x1b" not in said and sum(line.startswith("P1") for line in said.splitlines()) == 1, said)
    expect(2, "of seed 7, file 1 of 1", run.out, edited(place, run, "seed", lambda lines: [seeded(lines[0]), *lines[1:]]),
           "--together")
    failed = json.dumps({"t": 1.0, "ev": "failed", "code": 5, "reason": "a bug"}) + "\n"
    expect(1, "`done` in a run that failed", edited(place, run, "failed", lambda lines: [*lines[:-1], failed, lines[-1]]))


def runs_of_other_jobs_are_not_compared(place):
    job = place.job(steps=10)
    one = place.run(job, "--workers", 1).end()
    other = place.run(job, "--workers", 1, "--seed", 2).end()
    expect(2, "job.seed is 1 and 2", one.out, other.out)
    expect(2, "--sample must be below", one.out, "--sample", 10**9)
    expect(2, "--sample: must be a whole number, 0 or more, is -1", one.out, "--sample=-1")
    expect(2, "expected a run's folder", place.path("nothing"))
    require(audit("--help")[0] == 0 and "Example:" in audit("--help")[1], "no help")
    shutil.rmtree(other.out)


main(a_run_with_a_kill_proves_its_promises, runs_of_other_jobs_are_not_compared)
