"""A pass over the data whose samples a script draws by weights, by lengths or by a function of its own."""
import os
import signal
import subprocess
import sys

from harness import PATIENCE, STARLING, children_of, main, require, wait_until
from scripts import HEAD, PATHS, ended, events, result, started, written

STEPS, SEED = 24, 5
SAMPLED = HEAD + f"""
import time
from torch.utils.data import DataLoader, RandomSampler, WeightedRandomSampler
from starling import sampling

def by_pass(number):
    if os.environ.get("OTHER") and number > 1:
        return list(range(32))
    return [(number * 5 + i) % 64 for i in range(0, 64, 2)]

def later(number):
    return range(32 if number < 3 else 33)

class Turning:
    '''A sampler as people write them.'''
    def __len__(self):
        return 32
    def set_epoch(self, number):
        self.number = number
    def __iter__(self):
        return iter([(self.number * 3 + i) % 64 for i in range(32)])

WEIGHTS = [1.0 + i % 3 + float(os.environ.get("MORE", 0)) for i in range(64)]
WAYS = {{"weighted": starling.Weighted(WEIGHTS, 48), "grouped": starling.Grouped([i * 7 % 11 for i in range(64)], 4),
        "function": by_pass, "later": later, "none": None}}

def net():
    return Net()

def data():
    return build()[1]

def paced(net, batch):
    if not os.path.exists(os.environ["OUT"] + "-hurry"):
        time.sleep(float(os.environ.get("PACE", 0)))
    return loss(net, batch)

MORE = dict(steps={STEPS}, recheck=8)
"""
TRAIN = SAMPLED + """
train(paced, net, data=data, sampler=WAYS[os.environ["WAY"]], threads=int(os.environ.get("THREADS", 1)),
      num_workers=int(os.environ.get("LOADERS", 0)), **MORE)
"""
LOOP = SAMPLED + f"""
sampler = WAYS[os.environ["WAY"]]
job = starling.Job(net, data=data, sampler=sampler, micro_batches=4, batch_size=4, workers=2, out=os.environ["OUT"],
                   seed={SEED}, lease_ms=10000, **MORE)
for step in job:
    for mb in step.mine:
        with open(os.environ["OUT"] + "-samples", "a") as file:
            file.write(f"{{step.number}} {{mb.number}} {{mb.samples}}\\n")
        mb.done(loss(job.net, mb.batch()))
with open(os.environ["OUT"] + "-samples") as file:
    found = set(file.read().splitlines())
drawn, places = sampling.of(sampler, 64), lambda step, m: range((step * 4 + m) * 4, (step * 4 + m) * 4 + 4)
assert found == {{f"{{step}} {{m}} {{tuple(drawn.at({SEED}, places(step, m), 4))}}" for step in range({STEPS}) for m in range(4)}}
print("RESULT", job.trained.digest)
"""


def the_samples_are_those_that_were_said(place):
    """In a loop of one's own, and with the digest of train()."""
    loop, script = written(place, "loop.py", LOOP), written(place, "train.py", TRAIN)
    digests = set()
    for way in ("weighted", "grouped", "function"):
        digest = result(loop, OUT=place.path(way + "-loop"), WAY=way)
        for name, how in (("one", {}), ("three", {"WORKERS": "3", "LOADERS": "1"}), ("threads", {"THREADS": "2", "LOADERS": "2"})):
            out = place.path(f"{way}-{name}")
            require(result(script, OUT=out, WAY=way, **how) == digest, f"another digest with {way} and {how}")
            require(not events(out, "mismatch"), f"a mismatch with {way} and {how}")
        digests.add(digest)
    digests.add(result(script, OUT=place.path("none"), WAY="none"))
    require(len(digests) == 4, f"ways have the same digest: {digests}")


def kills_and_a_checkpoint_change_no_bit(place):
    script = written(place, "train.py", TRAIN.replace("**MORE", "checkpoint=os.environ['OUT'] + '-points', checkpoint_every=4, **MORE"))
    for way in ("weighted", "function"):
        digest = result(script, OUT=place.path(way), WAY=way)
        out = place.path(way + "-killed")
        run = started(script, OUT=out, WAY=way, WORKERS="3", PACE="0.2")
        wait_until(lambda: len(events(out, "step")) > 2 or run.poll() is not None, "some steps")
        first, second = [e["pid"] for e in events(out, "worker") if e["what"] == "joined"][:2]
        os.kill(children_of(first)[0], signal.SIGKILL)
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: len(events(out, "step")) > 8 or run.poll() is not None, "more steps")
        run.terminate()
        run.communicate(timeout=PATIENCE)
        written(place, way + "-killed-hurry", "")
        require(result(script, OUT=out, WAY=way, STARLING_RESUME="1") == digest, f"another digest with {way}")


def passes_are_as_long_as_was_said(place):
    """In the number of steps, and in what is told of passes."""
    for way, steps in (("weighted", 6), ("grouped", 8), ("function", 4)):
        text = TRAIN.replace("**MORE", "epochs=2, on_epoch=lambda e: print('PASS', e.epoch, e.steps), steps=None")
        code, said = ended(written(place, "epochs.py", text), OUT=place.path("epochs-" + way), WAY=way)
        require(code == 0 and f"{steps} steps" in said and len(events(place.path("epochs-" + way), "step")) == steps, said[-3000:])
        require(said.count("PASS") == 2, said[-3000:])


def a_data_loaders_sampler_is_what_it_says(place):
    text = SAMPLED + "train(paced, net, data=DataLoader(data(), 4, sampler=eval(os.environ['SAMPLER'])), batch_size=None, **MORE)\n"
    loader, script = written(place, "loader.py", text), written(place, "said.py", TRAIN.replace(
        'WAYS[os.environ["WAY"]]', "eval(os.environ['SAID'])"))
    for number, (sampler, said) in enumerate((
            ("WeightedRandomSampler(WEIGHTS, 48)", "starling.Weighted(WEIGHTS, 48)"),
            ("RandomSampler(data(), True, 40)", "starling.Weighted([1.0] * 64, 40)"), ("RandomSampler(data())", "None"),
            ("Turning()", "lambda n: [(n * 3 + i) % 64 for i in range(32)]"), ("None", "lambda n: range(64)"))):
        found = [result(script, OUT=place.path(f"{name}-{number}"), SAMPLER=sampler, SAID=said)
                 for name, script in (("loader", loader), ("said", script))]
        require(found[0] == found[1], f"{sampler} is not {said}")


def a_joiner_that_draws_otherwise_is_refused(place):
    script, out = written(place, "train.py", TRAIN.replace("**MORE", "steps=100000")), place.path("joined")
    run = started(script, OUT=out, WAY="weighted", PACE="0.02")
    wait_until(lambda: events(out, "step") or run.poll() is not None, "the first step")
    start = events(out, "start")[0]
    refused = subprocess.run([STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none", "--script", script],
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING_PYTHON": sys.executable,
                                  "PYTHONDONTWRITEBYTECODE": "1", "OUT": out, "WAY": "weighted", "MORE": "0.5"},
                             capture_output=True, text=True, timeout=PATIENCE)
    require(refused.returncode == 2 and ": other data" in refused.stderr, refused.stderr)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE)


def data_that_are_much_larger_than_a_pass_hold_none_up(place):
    """They are compared beside passes, a few batches at a time."""
    text = SAMPLED + """
READS = [0]

class Counting(torch.utils.data.Dataset):
    def __init__(self):
        self.few = data()
    def __len__(self):
        return 50000
    def __getitem__(self, i):
        READS[0] += 1
        return self.few[i % 64]

def counted(net, batch):
    reads, READS[0] = READS[0], 0
    assert reads < 1000, f"{reads} samples were read before a pass"
    return loss(net, batch)

train(counted, net, data=Counting(), sampler=lambda n: range(8), **MORE)
"""
    result(written(place, "large.py", text), OUT=place.path("large"))


def an_audit_says_nothing_of_samples_that_it_does_not_know(place):
    script, out = written(place, "train.py", TRAIN), place.path("audited")
    result(script, OUT=out, WAY="weighted")
    said = subprocess.run([STARLING, "audit", out], capture_output=True, text=True)
    require(said.returncode == 0 and "each once, by 1 worker; which samples they have is the script's to say" in said.stdout, said)
    require(" samples a pass, " in said.stdout.splitlines()[0], said)
    said = subprocess.run([STARLING, "audit", out, "--sample", "3"], capture_output=True, text=True)
    require(said.returncode == 2 and "--sample: which samples a micro-batch has is the script's to say" in said.stderr, said)


def what_is_none_is_refused_in_one_line(place):
    text = SAMPLED + "train(paced, net, **{**dict(data=data), **eval(os.environ['SAID'])}, **MORE)\n"
    script = written(place, "refused.py", text)
    for said, line in (("dict(sampler=[1, 9])", "sampler= is a list, expected starling.Weighted(weights)"),
                       ("dict(sampler=by_pass, data=DataLoader(data(), 4, True), batch_size=None)", "sampler= and the DataLoader's RandomSampler"),
                       ("dict(sampler=starling.Weighted([1.0, 2.0]))", "Weighted has 2 weights, and the Dataset 64 samples"),
                       ("dict(sampler=lambda n: [64])", "sampler= gives 64 for pass 0, expected numbers of samples, 0 to 63"),
                       ("dict(sampler=by_pass, data=DataLoader(data(), 4, sampler=Turning()), batch_size=None)",
                        "sampler= and the DataLoader's Turning differ: say it in one of them")):
        code, said_then = ended(script, OUT=place.path("refused"), SAID=said)
        require(code == 2 and line in said_then and said_then.strip().count("\n") == 0, f"{said}: {code}: {said_then}")
    code, said_then = ended(written(place, "train.py", TRAIN), OUT=place.path("later"), WAY="later")
    require(code == 2 and "sampler= gives 33 samples for pass 3 and 32 for the first" in said_then, f"{code}: {said_then[-3000:]}")


main(the_samples_are_those_that_were_said, kills_and_a_checkpoint_change_no_bit, passes_are_as_long_as_was_said,
     a_data_loaders_sampler_is_what_it_says, a_joiner_that_draws_otherwise_is_refused, data_that_are_much_larger_than_a_pass_hold_none_up,
     an_audit_says_nothing_of_samples_that_it_does_not_know, what_is_none_is_refused_in_one_line)
