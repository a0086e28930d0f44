"""Scripts over the starling package itself, with the stand-in for torch (tests/stand_in/torch): what a script
computes is the same in every process, or said to be another thing."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys

from harness import PATIENCE, STARLING, main, require, wait_until
from scripts import HEAD, PATHS, ended, events, result, started, written

VARIABLES = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING_PYTHON": sys.executable,
             "PYTHONDONTWRITEBYTECODE": "1"}


def command(*words):
    done = subprocess.run([STARLING, *map(str, words)], env=VARIABLES, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def run_script(place, script, workers, threads, *arguments):
    out = place.path("-".join(map(str, (workers, threads, *arguments))))
    return command("run", script, "--workers", workers, "--threads", threads, "--out", out, "--", *arguments)


def digest_of(out):
    return events(out, "done")[0]["digest"]


def children_named(text):
    """Processes that compute, by their script."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/comm") as file:
                warm = file.read() == "starling-warm\n"
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if not warm and b"-m" in words and b"starling" in words and text.encode() in words:
            found.append(int(entry))
    return found


def each_call_is_a_training_of_its_own(place):
    single = HEAD + "\ntrain(lambda net, batch: loss(net, batch) * float(sys.argv[1]), out=sys.argv[2])\n"
    script = written(place, "single.py", single)
    alone = [result(script, scale, place.path(f"alone-{scale}")) for scale in ("1.0", "30.0")]
    sweep = written(place, "sweep.py", HEAD + """
found = []
for scale in (1.0, 30.0):
    found.append(starling.train(build, lambda net, batch: loss(net, batch) * scale, steps=8, micro_batches=4,
                                batch_size=4, workers=2, lease_ms=10000, seed=5, out=f"{sys.argv[1]}-{scale}",
                                evaluate=lambda net: float(net.bias.detach())))
    assert abs(found[-1].evaluation) > 0 and found[0].steps == 8
print("RESULT", *(one.digest for one in found))
""")
    code, said = ended(sweep, place.path("sweep"))
    require(code == 0 and said.splitlines()[-1] == "RESULT " + " ".join(alone), f"{code}, expected {alone}: {said}")


def a_call_that_is_left_out_in_a_worker_is_said(place):
    script = written(place, "skips.py", HEAD + """
if not os.path.exists(sys.argv[1]):
    train(out=sys.argv[1])
train(lambda net, batch: loss(net, batch) * 2.0, out=sys.argv[2])
""")
    code, said = ended(script, place.path("first"), place.path("second"))
    wanted = "every process has to make the same calls, also those that are over"
    require(code == 2 and "call 1 of starling.train() or starling.Job is at script:" in said and wanted in said,
            f"{code}: {said}")


PACED = """
import time, parts
def paced(net, batch):
    time.sleep(0.02)
    return loss(net, batch) * parts.factor()
train(paced, steps=40, workers=2, out=sys.argv[1])
"""


def a_script_that_is_edited_meanwhile_computes_nothing(place):
    parts = written(place, "parts.py", "def factor():\n    return 1.0\n")
    script = written(place, "edited.py", HEAD + PACED)
    quiet = result(script, place.path("quiet"))
    job = place.path("job.toml")
    written_job = subprocess.run([sys.executable, script, place.path("out")], env={**VARIABLES, "STARLING_WRITE_JOB": job},
                                 capture_output=True, text=True, timeout=PATIENCE)
    require(written_job.returncode == 0, written_job.stderr)
    with open(job, "a") as file:
        file.write("standstill_ms = 0\n")  # of [elastic]: another process may take long to start
    run = subprocess.Popen([STARLING, "run", job, "--workers", "2", "--respawn", "0", "--out", place.path("out")],
                           env=VARIABLES, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: events(place.path("out"), "step"), "the first step")
    with open(parts, "w") as file:
        file.write("def factor():\n    return 3.0\n")
    os.kill(children_named(script)[0], signal.SIGKILL)
    said = run.communicate(timeout=PATIENCE)[0]
    lost = [e.get("reason") or "" for e in events(place.path("out"), "worker") if e["what"] == "lost"]
    require(any("parts.py is not the job's: the hash of its text is" in why for why in lost), f"{lost}: {said}")
    require(digest_of(place.path("out")) == quiet, "another digest after an edit")


def what_the_top_of_a_script_draws_is_the_same_everywhere(place):
    script = written(place, "shuffles.py", HEAD.replace("import torch, starling", "import torch, starling, random") + """
order = list(range(64))
random.shuffle(order)
def shuffled():
    net, data = build()
    return net, TensorDataset(*(torch.stack([t[i] for i in order]) for t in data.tensors))
train(build=shuffled)
""")
    digests = []
    for workers, threads in ((1, 1), (2, 1), (1, 2)):
        code, said = run_script(place, script, workers, threads)
        require(code == 0, said)
        digests.append(digest_of(place.path(f"{workers}-{threads}")))
    require(len(set(digests)) == 1, f"another order with more workers or threads: {digests}")


UNLIKE = """
factor = 1.0 + int.from_bytes(os.urandom(4), "little")
def drawn():
    net, data = build()
    if sys.argv[1] == "data":
        data.tensors[1].mul_(factor)
    return net, data
train(lambda net, batch: loss(net, batch) * (factor if sys.argv[1] == "loss" else 1.0), build=drawn)
"""


def a_process_with_bits_of_its_own_is_refused(place):
    script = written(place, "unlike.py", HEAD + UNLIKE)
    for what, workers, threads, wanted in (
            ("data", 1, 2, "a process of the script has other data, or other values of what is not trained, than the one before it"),
            ("loss", 1, 2, "a process of the script has another first gradient than the one before it"),
            ("data", 2, 1, " there: other data"),
            ("loss", 2, 1, "this worker computes other bits than the group")):
        code, said = run_script(place, script, workers, threads, what)
        require(code == 2 and wanted in said, f"{what}, {threads} threads: {code}: {said}")


def what_is_not_trained_is_compared_to_the_last_bit(place):
    """Also where no gradient depends on it."""
    script = written(place, "base.py", HEAD + """
import ctypes
def based():
    net, data = build()
    net.base = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    one = (ctypes.c_ubyte * 12).from_address(net.base.data_ptr())
    one[8] ^= int(os.environ.get("BIT", "0"))  # the last bit of the last element
    return net, data
def paced(net, batch):
    import time
    time.sleep(0.02)
    return loss(net, batch)
train(paced, build=based, steps=200, workers=1, out=sys.argv[1])
""")
    run = started(script, place.path("out"))
    wait_until(lambda: events(place.path("out"), "step"), "the first step")
    start = events(place.path("out"), "start")[0]
    refused = subprocess.run([STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none",
                              "--script", script], env={**VARIABLES, "BIT": "1"}, capture_output=True, text=True,
                             timeout=PATIENCE)
    lines = refused.stderr.strip().splitlines()
    require(refused.returncode == 2 and len(lines) == 1 and "or other values of what a script does not train" in lines[0],
            refused.stderr)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE)


def another_machines_data_are_told(place):
    script = written(place, "data.py", HEAD + """
import time
def other():
    net, data = build()
    for i in range(64):
        if os.environ.get("WRONG") and i % 13 == 12:
            data.tensors[1][i].fill_(9.0)
    return net, data
def paced(net, batch):
    time.sleep(0.02)
    return loss(net, batch)
train(paced, build=other, steps=200, workers=1, out=sys.argv[1])
""")
    run = started(script, place.path("out"))
    wait_until(lambda: events(place.path("out"), "step"), "the first step")
    start = events(place.path("out"), "start")[0]
    copy = shutil.copy(script, place.path("copy.py"))
    join = [STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none", "--script", copy]
    refused = subprocess.run(join, env={**VARIABLES, "WRONG": "1"}, capture_output=True, text=True, timeout=PATIENCE)
    require(refused.returncode == 2 and "this worker computes other bits than the group (worker-0): data " in refused.stderr
            and " there" in refused.stderr and ": other data" in refused.stderr, refused.stderr)
    other = subprocess.run([*join, "--", "elsewhere"], env=VARIABLES, capture_output=True, text=True, timeout=PATIENCE)
    require(other.returncode == 2 and 'model.arguments is ["elsewhere"] here and ["' in other.stderr, other.stderr)
    with open(copy, "a") as file:
        file.write("# edited\n")
    edited = subprocess.run(join, env=VARIABLES, capture_output=True, text=True, timeout=PATIENCE)
    require(edited.returncode == 2 and "data.py is not the job's: the hash of its text is" in edited.stderr, edited.stderr)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE)


SLOW = HEAD + """
import time
from starling.proof import drawn
class Slow:  # but for the samples that are drawn when a process begins
    def __init__(self, data):
        self.data, self.fast = data, set(drawn(len(data)))
    def __len__(self):
        return len(self.data)
    def __getitem__(self, i):
        time.sleep(0 if i in self.fast else SLOWLY)
        return self.data[i]
"""

UNSEEN = "SLOWLY = 0.008" + SLOW + """def other():
    draw = torch.Generator().manual_seed(7)
    count = 600 if os.environ.get("SLOW") else 264
    x = torch.randn(count, 4, generator=draw)
    data = TensorDataset(x, x.sum(-1) + 1.0)
    if os.environ.get("WRONG"):
        data.tensors[1][min(set(range(count)) - set(drawn(count)))].fill_(9.0)
    return Net(), Slow(data) if os.environ.get("SLOW") else data
def paced(net, batch):
    time.sleep(0.002)
    return loss(net, batch)
train(paced, build=other, steps=1000000, workers=1, out=sys.argv[1], checkpoint=sys.argv[1] + "-checkpoints",
      checkpoint_every=1000000, resume="RESUME" in os.environ)
"""


def _with_unseen_data(place, **variables):
    """A run with a joiner whose data differ in a sample that is not drawn, and another that goes on with such data."""
    script, out = written(place, "unseen.py", UNSEEN), place.path("unseen" + "".join(variables))
    variables = {**VARIABLES, "STARLING": STARLING, **variables}
    run = subprocess.Popen([sys.executable, script, out], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: events(out, "step"), "the first step")
    start = events(out, "start")[0]
    join = [STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none",
            "--script", script, "--", out]
    refused = subprocess.run(join, env={**variables, "WRONG": "1"}, capture_output=True, text=True, timeout=PATIENCE)
    require(refused.returncode == 2 and "the data here are others than those of the group" in refused.stderr, refused.stderr)
    tainted = [e["name"] for e in events(out, "tainted")]
    run.send_signal(signal.SIGTERM)
    run.wait(PATIENCE)
    # The checkpoint says what the data were: a run that goes on from it with others is refused.
    other = subprocess.run([sys.executable, script, out], capture_output=True, text=True, timeout=PATIENCE,
                           env={**variables, "WRONG": "1", "RESUME": "1"})
    require(other.returncode == 2 and "the data here are others than those of the checkpoint of step" in other.stderr,
            f"{other.returncode} {other.stderr}")
    return tainted, [e["reason"] for e in events(out, "tainted")]


def a_sample_that_is_in_no_draw_is_told_before_anything_is_computed_from_it(place):
    """The draw of the start has 256 of 264 samples; the others are read in the two seconds before a worker joins."""
    joined, resumed = _with_unseen_data(place)
    require(not joined and not resumed, f"{joined} {resumed}")


def a_sample_that_is_in_no_draw_is_told_when_it_has_been_read(place):
    """Reading all takes three seconds: the rest is read beside passes, and what was computed until then is in doubt."""
    joined, resumed = _with_unseen_data(place, SLOW="1")
    require(joined == ["worker-1"], f"{joined}")
    require(resumed, "the steps done until then are not in doubt")


def fewer_steps_than_reading_takes_do_not_hide_other_data(place):
    """Two steps are left, and one sample is another. 64 samples are in no draw, each of which takes at least a tenth
    of a second until the last step is told: the two seconds before a worker joins, and a part of the time of two
    steps, are too short for them on any machine. The rest is read when no step follows."""
    script = written(place, "few.py", """
def SLOWLY():
    return 0.1 if "GATE" in os.environ and not os.path.exists(os.environ["GATE"]) else 0
""" + SLOW.replace("SLOWLY", "SLOWLY()") + """def other():
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(320, 4, generator=draw)
    data = TensorDataset(x, x.sum(-1) + 1.0)
    if os.environ.get("WRONG"):
        data.tensors[1][min(set(range(320)) - set(drawn(320)))].fill_(9.0)
    return Net(), Slow(data)
train(build=other, steps=1000000, workers=2, out=sys.argv[1], checkpoint=sys.argv[2], checkpoint_every=50,
      resume="STEPS" in os.environ, command=("--steps", os.environ["STEPS"]) if "STEPS" in os.environ else ())
""")
    folder = place.path("few-checkpoints")

    def manifests():
        found = []
        for path in sorted(glob.glob(os.path.join(folder, "step-*", "manifest.json"))):
            with contextlib.suppress(OSError):  # an old one goes
                with open(path) as file:
                    found.append(json.load(file))
        return found

    run = started(script, place.path("few"), folder)
    wait_until(lambda: any("data" in m and "doubted_from" not in m for m in manifests()), "all data are read")
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=PATIENCE)
    last = manifests()[-1]
    require("data" in last and "doubted_from" not in last, f"{last['step']}: in doubt")
    for wrong in ({"WRONG": "1"}, {}):
        out = place.path("few-" + "".join(wrong))
        again = started(script, out, folder, STEPS=str(last["step"] + 2), GATE=out + "-gate", **wrong)
        wait_until(lambda: again.poll() is not None or any(e["version"] == last["step"] + 1 for e in events(out, "step")),
                   "the last step")
        written(place, os.path.basename(out) + "-gate", "")
        said = again.communicate(timeout=PATIENCE)[1]
        require(bool(events(out, "tainted")) == bool(wrong), said)
        # The end waits three seconds for all to be read: where one of the two has not come to it, the result is in doubt.
        in_time = again.returncode == 2
        require(again.returncode == 0 or wrong and in_time, f"{wrong}: {again.returncode} {said}")
        in_doubt = "the result is in doubt from step" in said
        require(bool(events(out, "done")) != in_time and in_doubt == bool(wrong and not in_time), said)
        if wrong:
            require(f"others than those of the checkpoint of step {last['step']}" in said, said)
        if in_time:
            require(manifests()[-1] == last, "another checkpoint is the newest")


def a_command_gives_a_script_its_arguments(place):
    script = written(place, "scaled.py", HEAD + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--out", default="unused")
options = parser.parse_args()
train(lambda net, batch: loss(net, batch) * options.scale, out=options.out)
""")
    scaled = result(script, "--out", place.path("scaled"), "--scale", "30")
    code, said = command("run", script, "--workers", 2, "--out", place.path("run"), "--", "--scale", "30")
    require(code == 0 and digest_of(place.path("run")) == scaled, said)
    # The one fault of the plan comes when the run is over, so the runs end as `run` does, and nothing was tested.
    with open(place.path("plan.toml"), "w") as file:
        file.write('[run]\nsteps = 8\nworkers = 3\n[[fault]]\nat_s = 3600\nkind = "kill"\n')
    code, said = command("chaos", script, "--plan", place.path("plan.toml"), "--out", place.path("chaos"), "--",
                         "--scale", "30")
    require(code == 1 and "NOTHING TESTED; report in" in said, said)
    require(digest_of(place.path("chaos/disturbed")) == scaled, "chaos trains without the arguments")
    code, said = command("run", place.job(), "--", "--scale", "30")
    require(code == 2 and "what follows -- are the arguments of a script (.py), and none is named" in said, said)


def a_joiner_that_still_imports_leaves_nothing_in_a_chaos_run(place):
    """The job ends while the joiner's process imports, for longer than chaos waits for the last process: that one is
    told to go, and P6 holds."""
    script = written(place, "slow.py", HEAD + f"""
import glob, time
if any('"ev":"step"' in open(events).read() for events in glob.glob({place.path("chaos-*/disturbed/events.jsonl")!r})):
    open({place.path("imports")!r}, "w").close()
    time.sleep(3600)
def slowly(net, batch):
    time.sleep(0.05)
    return loss(net, batch)
train(slowly, steps=60)
""")
    code, said = command("run", script, "--out", place.path("quiet"))
    require(code == 0, said)
    with open(place.path("plan.toml"), "w") as file:
        file.write('[run]\nsteps = 60\nworkers = 2\n[[fault]]\nat_s = 0\nkind = "join"\n')
    for i in range(10):
        out = place.path(f"chaos-{i}")
        code, said = command("chaos", script, "--plan", place.path("plan.toml"), "--out", out, "--reference",
                             digest_of(place.path("quiet")))
        if os.path.exists(place.path("imports")):
            break
        shutil.rmtree(out)  # the job was over before the joiner imported anything
    else:
        require(False, f"no joiner imported in time: {said}")
    # The first epoch was long before the first step, from which time counts.
    times = [float(t) for t in re.findall(r"^ *(-?\d+\.\d\d) s  ", said, re.M)]
    require(times and times == sorted(times), f"times go back: {said}")
    with open(os.path.join(out, "report.json")) as file:
        verdicts = json.load(file)["verdicts"]
    require(["held"] == [v["finding"] for v in verdicts if v["promise"] == "P6"], f"{verdicts}: {said}")
    require(not [v for v in verdicts if v["finding"] == "broken"], f"{verdicts}: {said}")


def a_joiner_that_still_imports_is_shown_until_it_has_joined(place):
    script, out, said = written(place, "gated.py", HEAD + """
import time
while "GATE" in os.environ and not os.path.exists(os.environ["GATE"]):
    time.sleep(0.01)
def paced(net, batch):
    time.sleep(0.02)
    return loss(net, batch)
train(paced, steps=1000000, workers=1, out=sys.argv[1])
"""), place.path("gated"), place.path("said")

    def step_lines(ending):
        with open(said) as file:
            return [line for line in file if re.search(rf"^step .*  {ending}  \S+ left$", line)]

    with open(said, "w") as file:
        run = subprocess.Popen([sys.executable, script, out], env={**VARIABLES, "STARLING": STARLING}, stdout=file)
    wait_until(lambda: step_lines("1 worker"), "a step of the first worker, which has joined")
    start = events(out, "start")[0]
    joiner = subprocess.Popen([STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none",
                               "--script", script, "--", out], env={**VARIABLES, "GATE": place.path("gate")},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: step_lines("1 worker  1 prepares"), "the joiner that prepares")
    written(place, "gate", "")
    wait_until(lambda: step_lines("2 workers"), "the joiner in a step, and nobody that prepares")
    run.send_signal(signal.SIGTERM)
    run.wait(PATIENCE)
    joiner.wait(PATIENCE)
    with open(os.path.join(out, "events.jsonl")) as file:
        told = [(e["ev"], e.get("what"), e["pid"]) for e in map(json.loads, file) if e.get("name") == "worker-1"
                and e["ev"] in ("preparing", "worker")]
    pid = told[0][2]
    require(told[:2] == [("preparing", None, pid), ("worker", "joined", pid)] and pid > 0, f"{told}")


def a_run_without_a_folder_lies_below_runs_and_a_refused_one_nowhere(place):
    script = written(place, "plain.py", HEAD + "\ntrain()\n")
    result(script, folder=place.folder)
    (run,) = os.listdir(place.path("runs"))
    require(run.startswith("plain-") and os.path.exists(os.path.join(place.path("runs"), run, "model.safetensors")), run)
    refused = written(place, "none.py", HEAD + "\ntrain(build=lambda: (Net(), []))\n")
    code, said = ended(refused, folder=place.folder)
    require(code == 2 and "the Dataset is empty" in said and len(os.listdir(place.path("runs"))) == 1, f"{code}: {said}")


main(each_call_is_a_training_of_its_own,
     a_call_that_is_left_out_in_a_worker_is_said,
     a_script_that_is_edited_meanwhile_computes_nothing,
     what_the_top_of_a_script_draws_is_the_same_everywhere,
     a_process_with_bits_of_its_own_is_refused,
     what_is_not_trained_is_compared_to_the_last_bit,
     another_machines_data_are_told, a_sample_that_is_in_no_draw_is_told_before_anything_is_computed_from_it,
     a_sample_that_is_in_no_draw_is_told_when_it_has_been_read,
     fewer_steps_than_reading_takes_do_not_hide_other_data,
     a_command_gives_a_script_its_arguments, a_joiner_that_still_imports_leaves_nothing_in_a_chaos_run,
     a_joiner_that_still_imports_is_shown_until_it_has_joined,
     a_run_without_a_folder_lies_below_runs_and_a_refused_one_nowhere)
