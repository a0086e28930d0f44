"""Scripts over the stand-in for torch whose optimizers, schedules and groups are torch's or functions: one digest
whatever happens, the rate in every step, and one line for what cannot be."""
import os
import signal
import subprocess
import sys

from harness import PATIENCE, STARLING, main, require, wait_until
from scripts import HEAD, PATHS, ended, events, result, started, written

STEPS = 24
# Rates that rise and fall, of two groups; the first step's is 0.
SCRIPT = HEAD + """
import time

def optimizer(net):
    return torch.optim.AdamW([{"params": [net.weight], "weight_decay": 0.1}, {"params": [net.bias], "lr": 0.4}], lr=0.2)

def schedule(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: k / 10 if k < 10 else 0.9 ** (k - 10))

def paced(net, batch):
    time.sleep(float(os.environ.get("PACE", 0)))
    return loss(net, batch)

options = dict(steps=24, optimizer=optimizer, schedule=schedule, groups={"b*": dict(weight_decay=0.05)}, clip=5.0)
"""
TRAIN = SCRIPT + """
options |= dict(checkpoint=os.environ["CHECKPOINTS"], checkpoint_every=4, keep=50) if "CHECKPOINTS" in os.environ else {}
train(paced, **options)
"""


def rates(k):
    return 0.2 * (k / 10 if k < 10 else 0.9 ** (k - 10))


def quiet_digest(place):
    return result(written(place, "quiet.py", TRAIN), OUT=place.path("quiet"))


def groups_and_a_schedule_have_one_digest_through_a_kill(place):
    quiet = quiet_digest(place)
    steps = events(place.path("quiet"), "step")
    require(len(steps) == STEPS and all(abs(e["rate"] - rates(e["version"])) < 1e-15 for e in steps), f"{steps[:3]}")
    out = place.path("disturbed")
    run = started(written(place, "disturbed.py", TRAIN), OUT=out, WORKERS="3", PACE="0.05")
    wait_until(lambda: len(events(out, "step")) > 5, "steps")
    victim = next(e for e in events(out, "worker") if e["what"] == "joined")
    os.kill(victim["pid"], signal.SIGKILL)
    said = "".join(run.communicate())
    require(run.returncode == 0 and f"RESULT {quiet}" in said, f"{run.returncode}, expected {quiet}: {said[-2000:]}")
    require(any(e["what"] == "lost" for e in events(out, "worker")), "nobody was lost")


def groups_and_a_schedule_go_on_from_a_checkpoint(place):
    quiet, script = quiet_digest(place), written(place, "train.py", TRAIN)
    variables = dict(OUT=place.path("first"), CHECKPOINTS=place.path("checkpoints"), WORKERS="2")
    first = started(script, PACE="0.05", **variables)
    wait_until(lambda: len(events(variables["OUT"], "checkpoint")) > 1, "checkpoints")
    first.send_signal(signal.SIGINT)
    first.communicate()
    require(not events(variables["OUT"], "done"), "it was done before the signal")
    again = result(script, STARLING_RESUME="1", **{**variables, "OUT": place.path("again"), "WORKERS": "3"})
    require(again == quiet, f"{again}, expected {quiet}")
    # Other groups are another job.
    other = written(place, "other.py", SCRIPT + "\noptions['groups'] = {'b*': dict(weight_decay=0.5)}\n"
                    + TRAIN[len(SCRIPT):])
    code, said = ended(other, STARLING_RESUME="1", **{**variables, "OUT": place.path("other")})
    require(code == 2 and "[optimizer].groups is [{" in said, f"{code}: {said}")


def a_sampled_schedule_ends_with_its_steps(place):
    script = written(place, "longer.py", SCRIPT + "train(command=('--steps', '25'), **options)\n")
    code, said = ended(script)
    wanted = "the schedule was sampled for 24 steps, the job has 25 steps: a schedule that is named has no end"
    require(code == 2 and wanted in said and said.count("\n") == 1, f"{code}: {said}")


def what_cannot_be_is_told_in_one_line(place):
    cases = [
        ("optimizer=starling.Elementwise(lambda w, g, m: (w - 0.1 * g, m), moments=1)",
         "update: nothing is made of `rate`, and no schedule would change it"),
        ("optimizer=starling.Elementwise(lambda w, g, m, rate: (w - rate * g, m), moments=1, weight_decay=0.1)",
         "update: nothing is made of `decay`, and weight_decay would change nothing"),
        ("groups={'*.bais': dict(weight_decay=0)}", 'no tensor of the model is "*.bais", expected a name or pattern of'
         " weight, bias"),
        ("optimizer=lambda net: torch.optim.AdamW(net.parameters(), amsgrad=True)", "AdamW's amsgrad must be False, is True"),
        ("optimizer=starling.Adam(), groups={'*': dict(weight_decay=0.1)}", 'weight_decay does not apply to kind "adam"'),
        ("schedule=starling.Schedule('warm-up-stable-decay', warmup=4, decay=5)",
         "decay must be at most the 4 steps after the warm-up, is 5; starling.train()"),
    ]
    for number, (options, wanted) in enumerate(cases):
        code, said = ended(written(place, f"wrong{number}.py", HEAD + f"train({options})\n"))
        require(code == 2 and wanted in said and said.count("\n") == 1 and "[optimizer]" not in said, f"{code}: {said}")


def torchs_optimizer_is_as_ours_and_harmless_options_are_said(place):
    ours = result(written(place, "ours.py", HEAD + "train(optimizer=starling.SGD(lr=0.1, momentum=0.9, nesterov=False),"
                          " schedule='constant')\n"), OUT=place.path("ours"))
    code, said = ended(written(place, "theirs.py", HEAD + "train(optimizer=lambda net: torch.optim.SGD(net.parameters(),"
                               " lr=0.1, momentum=0.9, foreach=True))\n"), OUT=place.path("theirs"))
    require(code == 0 and f"RESULT {ours}" in said, f"{code}, expected {ours}: {said}")
    require("starling: foreach=True of torch.optim.SGD changes nothing here" in said, said)


def what_no_loss_reaches_changes_by_weight_decay_alone(place):
    """As docs/pytorch.md says: torch would leave it out of the step."""
    text = HEAD + """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(4))
        with torch.no_grad():
            self.unused.fill_(1.0)

for decay in (0.25, 0.0):
    train(build=lambda: (Net(), build()[1]), schedule="constant",
          optimizer=lambda net: torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=decay))
    print("UNUSED", *starling.load(os.environ["OUT"])["unused"].tolist())
    os.environ["OUT"] += "2"
"""
    code, said = ended(written(place, "unused.py", text), OUT=place.path("unused"))
    found = [list(map(float, line.split()[1:])) for line in said.splitlines() if line.startswith("UNUSED")]
    require(code == 0 and len(found) > 1, f"{code}: {said}")
    require(all(abs(value - 0.975 ** 8) < 1e-5 for value in found[0]) and found[-1] == [1.0] * 4, f"{found}")


def an_optimizer_object_is_of_the_net_that_build_returns(place):
    """Another training of that net has to say where it begins."""
    a_function = result(written(place, "function.py", TRAIN), OUT=place.path("function"))
    text = SCRIPT + """
NET = Net()
def returning():
    return NET, build()[1]
options["optimizer"] = optimizer(NET)
options["schedule"] = schedule(options["optimizer"])
train(paced, returning, **options)
"""
    an_object = result(written(place, "object.py", text), OUT=place.path("object"), WORKERS="2")
    require(an_object == a_function, f"{an_object}, expected {a_function}")
    again = "train(paced, returning, out=os.environ['OUT'] + '2', steps=2{})\n"
    code, said = ended(written(place, "again.py", text + again.format("")), OUT=place.path("again"))
    wanted = "build() returns the net that call 1 has trained, and this process has it as it was before: expected init="
    require(code == 2 and f"RESULT {a_function}" in said and wanted in said, f"{code}: {said}")
    for name, further in (("init", again.format(", init=starling.load(os.environ['OUT'])")),
                          ("load", "starling.load(os.environ['OUT'], NET)\n" + again.format(""))):
        code, said = ended(written(place, f"{name}.py", text + further), OUT=place.path(name))
        first = events(place.path(f"{name}2"), "step")[:1]
        require(code == 0 and first and first[0]["loss"] < 0.5, f"{name}: {code}, {first}: {said}")


# Local steps of torch's optimizer, in processes whose parameters change from pass to pass.
LOCAL = SCRIPT + """
options |= dict(steps=6, local_steps=4, outer=starling.SGD(0.7, momentum=0.9, floor=1.0), grid_bits=8,
                validation=lambda: build()[1], evaluate_every=3)
options.update(eval(os.environ.get("OTHER", "{}")))
train(paced, **options)
"""


def local_steps_have_one_digest_through_a_kill(place):
    script = written(place, "local.py", LOCAL)
    quiet = result(script, OUT=place.path("quiet"))
    start, = events(place.path("quiet"), "start")
    require((start["micro_batches"], start["sequences"]) == (4, 16), f"{start}")
    require([e["rate"] for e in events(place.path("quiet"), "step")] == 6 * [0.7], "the rates are not the outer ones")
    out = place.path("disturbed")
    run = started(script, OUT=out, WORKERS="3", PACE="0.05")
    wait_until(lambda: len(events(out, "step")) > 1, "steps")
    victim = next(e for e in events(out, "worker") if e["what"] == "joined")
    os.kill(victim["pid"], signal.SIGKILL)
    said = "".join(run.communicate())
    require(run.returncode == 0 and f"RESULT {quiet}" in said, f"{run.returncode}, expected {quiet}: {said[-2000:]}")
    evaluated = [[e["loss"] for e in events(folder, "evaluation")] for folder in (place.path("quiet"), out)]
    require(len(evaluated[0]) == 2 and evaluated[0] == evaluated[1], f"{evaluated}")
    # A step of one local step of plain SGD, taken as it is, is a step of plain SGD.
    one = "dict(steps=24, micro_batches=1, optimizer=starling.SGD(0.05, momentum=0.0, nesterov=False), schedule='constant', groups=None, clip=0.0, grid_bits=None, "
    losses = []
    for name, more in (("plain", "local_steps=None, outer=None)"),
                       ("one", "local_steps=1, outer=starling.SGD(1.0, momentum=0.0, nesterov=False, floor=1.0))")):
        result(script, OUT=place.path(name), OTHER=one + more)
        losses.append([e["loss"] for e in events(place.path(name), "step")])
    require(len(losses[0]) == 24 and losses[0][-1] < losses[0][0] / 2, f"{losses[0]}")
    require(all(abs(a - b) <= 1e-5 * a for a, b in zip(*losses)), f"{losses}")


def a_job_of_other_local_steps_than_the_scripts_is_refused(place):
    script, job = written(place, "plain.py", SCRIPT + "\ntrain(paced, **options)\n"), place.path("job.toml")
    code, said = ended(script, STARLING_WRITE_JOB=job)
    require(code == 0 and os.path.exists(job), said)
    with open(job) as file:
        text = file.read().replace("sequences = 4", "sequences = 16")
    with open(job, "w") as file:
        file.write(text + '\n[local]\nsteps = 4\nkind = "sgd"\npeak_rate = 0.1\n')
    done = subprocess.run([STARLING, "run", job, "--out", place.path("out")], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING_PYTHON": sys.executable})
    require(done.returncode == 2 and "the job has local_steps=4, the script local_steps=None" in done.stderr, f"{done}")


main(local_steps_have_one_digest_through_a_kill, a_job_of_other_local_steps_than_the_scripts_is_refused, groups_and_a_schedule_have_one_digest_through_a_kill, groups_and_a_schedule_go_on_from_a_checkpoint,
     a_sampled_schedule_ends_with_its_steps, what_cannot_be_is_told_in_one_line,
     torchs_optimizer_is_as_ours_and_harmless_options_are_said,
     what_no_loss_reaches_changes_by_weight_decay_alone, an_optimizer_object_is_of_the_net_that_build_returns)
