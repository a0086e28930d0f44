"""`starling replay`: workers come and go as a trace says; nothing is lost, and goodput is measured."""
import json
import os
import subprocess
import time

from harness import MINUTE, STARLING, main, processes_naming, require, wait_until

JOB = """
[job]
name = "replayed"
steps = 10
micro_batches = 96
replicas = 3
[model]
kind = "synthetic"
parameters = 50_000
compute_ms = 5
jitter = 0.1
[optimizer]
kind = "adamw"
peak_rate = 1e-3
"""
# Four at first; two come, three go, two of them in one instant.
TRACE = """0,add,a
0,add,b
0,add,c
0,add,d
60000,add,e
120000,remove,b
180000,add,f
300000,remove,a
300000,remove,e
360000,remove,f
420000,add,g
"""


def written(place, name, text):
    with open(place.path(name), "w") as file:
        file.write(text)
    return place.path(name)


def command(place, trace, options):
    place.count += 1
    out = place.path(f"replay-{place.count}")
    return [STARLING, "replay", written(place, "job.toml", JOB), "--trace",
            written(place, "trace.csv", trace), "--out", out, *map(str, options)], out


def replay(place, *options, trace=TRACE):
    words, out = command(place, trace, options)
    return subprocess.run(words, capture_output=True, text=True, timeout=4 * MINUTE), out


def tampered(place, bend, *options):
    """A replay that is told of its run by us, line by line, with one ledger bent."""
    words, out = command(place, TRACE, options)
    told, real = (os.path.join(out, "disturbed", name) for name in ("events.jsonl", "real.jsonl"))
    with open(out + ".log", "w+") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        wait_until(lambda: os.path.exists(told) and os.path.getsize(told) > 0 or
                   process.poll() is not None, "the run begins")
        os.rename(told, real)  # whoever writes it goes on writing there
        untouched, bent, at = os.path.getsize(real), False, 0
        with open(real) as source, open(told, "w") as copy:
            while True:
                over = process.poll() is not None
                line = source.readline()
                if not line and over:
                    break
                if not line:
                    time.sleep(0.005)
                    continue
                at += len(line)
                if at > untouched and not bent and '"ev":"ledger"' in line and line.endswith("\n"):
                    event = json.loads(line)
                    event["workers"] = bend(event["workers"])
                    line, bent = json.dumps(event) + "\n", True
                copy.write(line)
                copy.flush()
        log.seek(0)
        return process.returncode, log.read(), out


def report_of(out):
    with open(os.path.join(out, "report.json")) as file:
        return json.load(file)


def held(ended, out):
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    require(report["lost"] == 0 and report["duplicated"] == 0, report["failures"])
    require(report["run"]["run"]["digest"] == report["run"]["run"]["reference_digest"], "digest")
    require(0 < report["goodput"] and 0 < report["goodput_of_trace"], "no goodput")
    done = [f for f in report["run"]["faults"] if f["outcome"] == "done"]
    require(len(done) == len(report["run"]["faults"]), report["run"]["faults"])
    require(all(e["seen"] or e["overtaken"] for f in done for e in f["effects"]), done)
    with open(os.path.join(out, "report.html")) as file:
        require("<svg" in file.read(), "no chart")
    require(not processes_naming(out), "processes are left")
    return report


def announced_removals_lose_nothing(place):
    report = held(*replay(place, "--speedup", 30))
    kinds = [f["kind"] for f in report["run"]["faults"]]
    require(kinds.count("leave") == 3 and kinds.count("kill") == 0, kinds)
    for rates in "rates", "rates_before", "rates_after":
        require([rate["workers"] for rate in report[rates]] == [2, 3, 4, 5], f"{rates}: {report[rates]}")
    require(0 < report["goodput_of_own"], report["own_rates"])


def unannounced_removals_lose_nothing(place):
    report = held(*replay(place, "--speedup", 30, "--unannounced", "--rate", 150))
    kinds = [f["kind"] for f in report["run"]["faults"]]
    require(kinds.count("kill") == 3 and kinds.count("leave") == 0, kinds)
    forced = [p for p in report["run"]["pauses"] if p["epoch"]]
    require(len(forced) >= 3, f"three instants of kills, and epochs only for {forced}")


def counts_are_a_trace_too(place):
    report = held(*replay(place, "--speedup", 30, "--unannounced", "--rate", 150, "--scale", 2,
                          trace="0,8\n60000,6\n120000,10\n180000,10\n"))
    require(report["workers_most"] <= 8 and report["scale"] == 2, report["workers_most"])


def what_did_not_hold_is_exit_code_1(place):
    short = ("--speedup", 60, "--to", 120)
    ended, out = replay(place, *short, "--rate", 150, "--reference", "0" * 32)
    require(ended.returncode == 1 and "digest" in ended.stdout, ended.stdout + ended.stderr)
    report = report_of(out)
    require(not report["held"], "held with another digest")
    same = ("--reference", report["run"]["run"]["digest"], "--steps", report["run"]["steps"])
    ended, out = replay(place, *short, *same, "--rate", 150)
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    ended, out = replay(place, *short, *same, "--rate", 100000, "--min-goodput", 0.5)
    require(ended.returncode == 1 and "wanted 50.00 %" in ended.stdout, ended.stdout + ended.stderr)
    again = report_of(out)["run"]["repeat"]
    for option in (*same, "--min-goodput", 0.5):
        require(f" {option}" in again, f"{option} is not in: {again}")
    ended, out = replay(place, *short, "--rate", 150, "--steps", 2)
    require(ended.returncode == 1 and "before the trace did" in ended.stdout, ended.stdout)


def a_micro_batch_that_is_missing_or_there_twice_is_noticed(place):
    short = ("--speedup", 60, "--to", 120, "--rate", 150)
    code, text, out = tampered(place, lambda rows: rows[:40] + rows[41:], *short)
    require(code == 1 and "1 micro-batches lost, 0 duplicated" in text, f"{code}: {text}")
    require(report_of(out)["lost"] == 1, report_of(out)["failures"])
    code, text, out = tampered(place, lambda rows: rows + [rows[7]], *short)
    require(code == 1 and "0 micro-batches lost, 1 duplicated" in text, f"{code}: {text}")


def bad_input_is_one_line(place):
    for options, trace, word in (((), "0,add,a\n0,sub,b\n", "line 2"),
                                 ((), "", "at least one line"),
                                 (("--from", "1h"), TRACE, "--from"),
                                 (("--to", "soon"), TRACE, "soon"),
                                 (("--notice", "0"), TRACE, "--notice"),
                                 (("--speedup", "0"), TRACE, "speedup"),
                                 (("--micro-batches", "0"), TRACE, "micro_batches"),
                                 (("--reference", "abc"), TRACE, "--reference"),
                                 ((), "0,65\n9,1\n", "--scale 2")):
        ended, out = replay(place, *options, trace=trace)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1 and word in lines[0],
                f"{options} {trace}: {ended.returncode} {ended.stderr}")
        require(not os.path.exists(out), f"{options}: {out} is left")


main(announced_removals_lose_nothing, unannounced_removals_lose_nothing, counts_are_a_trace_too,
     what_did_not_hold_is_exit_code_1, a_micro_batch_that_is_missing_or_there_twice_is_noticed,
     bad_input_is_one_line)
