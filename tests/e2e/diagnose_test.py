"""`starling diagnose`: which thread of a worker hangs and where, in the worker's own code and in a script's."""
import json
import os
import re
import signal
import subprocess
import time

from harness import PATIENCE, STARLING, Skipped, environment, main, require, wait_until
from scripts import HEAD, started, written


def diagnose(*words, code=0):
    asked = subprocess.run([STARLING, "diagnose", *map(str, words)], capture_output=True, text=True, timeout=300)
    require(asked.returncode == code, f"diagnose {words}: {asked.returncode}, expected {code}: {asked.stdout}{asked.stderr}")
    return asked.stdout if code == 0 else asked.stderr


def seen(*words):
    return [json.loads(line) for line in diagnose("--json", *words).splitlines()]


def the_thread_that_hangs_is_named_with_its_stack(place):
    job = place.job(steps=1000000, lease_ms=10000)
    with open(job, "a") as file:
        file.write('standstill_ms = 0\nshares = "equal"\n')
    for kind, thread in (("hang-computing", "compute"), ("hang-data-plane", "data-plane")):
        with environment(STARLING_SABOTAGE=f"{kind}@20@worker-1"):
            run = place.run(job, "--workers", 3, "--threads", 1)
        pid = next(e["pid"] for e in wait_until(lambda: len(run.workers()) == 3 and run.workers(), "they join") if e["name"] == "worker-1")

        if any("cannot look into" in one.get("no_stacks", "") for one in seen(pid)):
            run.process.send_signal(signal.SIGINT)
            run.end(code=130)
            raise Skipped("this user may not trace processes here")
        def hung():
            stacks = {t["name"]: t["stack"] for one in seen(run.out) if one["what"] == "worker-1" for t in one["threads"]}
            return stacks.get(thread, [""])[0] == "pause"
        wait_until(hung, f"the thread {thread} is seen where it hangs")
        text = diagnose(run.out)
        for name in ("worker-0", "worker-1", "worker-2"):
            require(re.search(rf"^{name}, process \d+: ", text, re.M), text)
        for name in ("worker", "gateway", "data-plane", "compute", "loader"):
            require(re.search(rf"^  {name} +thread \d+ (runs|waits)", text, re.M), f"{name}: {text}")
        require(run.steps() >= 0 and run.process.poll() is None, "the run goes on as before")
        # One that is stopped altogether is looked into as well, and stays stopped.
        os.kill(pid, signal.SIGSTOP)
        (one,) = seen(pid)
        require(all(t["state"] == "T" for t in one["threads"]) and sum(bool(t["stack"]) for t in one["threads"]) > 3, one)
        os.kill(pid, signal.SIGCONT)
        a_look_that_is_killed_leaves_nobody_stopped(pid)
        run.process.send_signal(signal.SIGINT)
        run.end(code=130)


def a_look_that_is_killed_leaves_nobody_stopped(pid):
    def state():
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    for i in range(20):
        look = subprocess.Popen([STARLING, "diagnose", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(i / 100)
        look.send_signal((signal.SIGKILL, signal.SIGINT)[i % 2])
        look.wait()
    wait_until(lambda: state() in "SR", "the worker goes on")


def who_is_out_and_hangs_is_looked_into(place):
    run = place.run(place.waiting_job(steps=1000000), "--workers", 3)
    run.wait_for_step(5)
    hung = next(e["pid"] for e in run.workers() if e["name"] == "worker-1")
    os.kill(hung, signal.SIGSTOP)
    wait_until(lambda: run.workers("fenced") or run.workers("lost"), "it is left out")
    (one,) = [one for one in seen(run.out) if one["pid"] == hung]
    require(one["what"] == "worker-1 (fenced)" and all(t["state"] == "T" for t in one["threads"]), one)
    os.kill(hung, signal.SIGCONT)
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def a_script_that_hangs_shows_its_line(place):
    script = written(place, "hangs.py", HEAD + """
import time
def endless(net, batch):
    while os.path.exists(os.environ["HANG"]):
        pass
    return loss(net, batch)
train(endless, recheck=0)
""")
    hang = written(place, "hang", "")
    run = started(script, HANG=hang, OUT=place.path("out"))
    text = wait_until(lambda: (lambda now: "in endless" in now and now)(look(place.path("out"))), "the line of the script")
    require(re.search(r'File "\S*hangs.py", line \d+ in endless', text), text)
    require(re.search(r"^child of worker-0, process \d+: ", text, re.M), text)
    os.remove(hang)
    said = "".join(run.communicate(timeout=PATIENCE))
    require(run.returncode == 0, said)


def look(out):
    asked = subprocess.run([STARLING, "diagnose", out], capture_output=True, text=True, timeout=300)
    return asked.stdout


def what_leads_nowhere_is_one_line(place):
    for words, code, part in ((("999999999",), 2, "no process"), ((place.path("nowhere"),), 2, "no run is in"),
                              ((place.folder,), 2, "no run is in")):
        said = diagnose(*words, code=code)
        require(part in said and said.count("\n") == 1, said)
    run = place.run(place.job(steps=10), "--workers", 1)
    run.end()
    require("no worker of this run is on this machine: the run is over, done, digest " in diagnose(run.out, code=3), "they have ended")


main(the_thread_that_hangs_is_named_with_its_stack, who_is_out_and_hangs_is_looked_into, a_script_that_hangs_shows_its_line, what_leads_nowhere_is_one_line)
