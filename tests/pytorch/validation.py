#!/usr/bin/env python3
"""validation= of a real run: the losses that torch alone finds with the same net, the same bits for every number of workers
and through kills, the training what it is without, and each told once in the process that was started.

  validation.py STARLING

Run it with an interpreter that has torch and the starling package. One line for each case; exit code 1 if one fails."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time

import cases

SCRIPT = """
import os, sys, time
import torch, starling

SAMPLES, HELD, BATCH = 256, 44, 8

def data(first, count):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES + HELD, 16, generator=generator)[first:first + count]
    return torch.utils.data.TensorDataset(x, (x[:, :8].sum(1) > x[:, 8:].sum(1)).long())

def build():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32, momentum=0.0), torch.nn.Dropout(0.2),
                               torch.nn.Tanh(), torch.nn.Linear(32, 2)), data(0, SAMPLES)

def held_out():
    return data(SAMPLES, HELD)

def loss(net, batch):
    time.sleep(float(os.environ.get("PACE", "0")))
    return torch.nn.functional.cross_entropy(net(batch[0]), batch[1])

def evaluate(net, batch):
    assert not net.training and not torch.is_grad_enabled()
    if os.environ.get("WRONG") == "backward":
        with torch.enable_grad():
            loss(net, batch).backward()
    found = net(batch[0])
    if os.environ.get("WRONG") == "names":
        return loss(net, batch)
    return loss(net, batch), {"accuracy": (found.argmax(1) == batch[1]).float().mean()}

GIVEN = dict(validation=held_out, evaluate_every=10, evaluate=evaluate, evaluate_metrics=["accuracy"])

if __name__ == "__main__":
    told = []
    given = {} if os.environ.get("WITHOUT") else dict(GIVEN, on_evaluate=told.append)
    if os.environ.get("STOP"):
        given.update(stop=lambda r: r.evaluation is not None and r.evaluation.metrics["accuracy"] > 0.7,
                     checkpoint=os.environ["OUT"] + "-ck", checkpoint_every=10)
    trained = starling.train(build, loss, steps=int(os.environ.get("STEPS", "35")), micro_batches=4, batch_size=BATCH, seed=4,
                             optimizer=starling.AdamW(1e-2, warmup=5), workers=int(os.environ["WORKERS"]),
                             out=os.environ["OUT"], lease_ms=10000, log="csv", **given)
    print("RESULT", trained.steps, "digest", trained.digest)
    if given:
        print("TOLD", [r.step for r in told], trained.evaluation == told[-1].values())
"""


def run(folder, name, workers, code=0, **more):
    script = cases.written(folder, "train.py", SCRIPT)
    out = os.path.join(folder, name)
    found, text = cases.ended(script, WORKERS=str(workers), OUT=out, **more)
    assert found == code, f"exit code {found}, expected {code}: {text[-3000:]}"
    return out, text


def evaluations(out):
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    return [(e["version"], e["loss"], e["metrics"]) for e in events if e["ev"] == "evaluation"]


def by_torch_alone(folder, out):
    """Loss and accuracy of the saved net over the same whole batches."""
    source = """
import sys, torch, starling, train
net, _ = train.build()
starling.load(sys.argv[1], net)
net.eval()
held = train.held_out()
with torch.no_grad():
    found = [train.evaluate(net, held[i:i + 8]) for i in range(0, 40, 8)]
print(*(sum(float(v) for v in values) / 5 for values in zip(*((l, m["accuracy"]) for l, m in found))))
"""
    done = subprocess.run([sys.executable, "-c", source, out], cwd=folder, capture_output=True, text=True,
                          env=cases.environment())
    assert done.returncode == 0, done.stderr
    return [float(v) for v in done.stdout.split()[-2:]]


def the_loss_is_that_of_torch_alone(folder):
    out, text = run(folder, "one", 1)
    found = evaluations(out)
    assert [v for v, _, _ in found] == [10, 20, 30, 35], found
    loss, accuracy = by_torch_alone(folder, out)
    _, last, (measured,) = found[-1]
    assert abs(last - loss) <= 1e-6 and abs(measured - accuracy) <= 1e-6, (found[-1], loss, accuracy)
    assert "TOLD [10, 20, 30, 35] True" in text, text
    assert "the first 40 of 44 samples" in text, text
    with open(os.path.join(out, "steps.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(r["step"]) for r in rows] == list(range(1, 36)), "steps"
    assert [(int(r["step"]), float(r["validation.loss"]), [float(r["validation.accuracy"])]) for r in rows
            if r["validation.loss"]] == found, "table"


def workers_and_kills_change_no_bit(folder):
    out, text = run(folder, "one", 1)
    without, said = run(folder, "without", 1, WITHOUT="1")
    assert cases.digest_in(said) == cases.digest_in(text), "the training is another one"
    assert evaluations(without) == [], "evaluations"
    three, said = run(folder, "three", 3)
    assert cases.digest_in(said) == cases.digest_in(text), "digest of three workers"
    assert evaluations(three) == evaluations(out), "evaluations of three workers"
    script, killed = os.path.join(folder, "train.py"), os.path.join(folder, "killed")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=cases.environment(WORKERS="3", OUT=killed, PACE="0.03"))
    kills, chance = 0, random.Random(3)
    while process.poll() is None and kills < 2:
        time.sleep(0.05)
        pids = workers_of(killed)
        steps = open(os.path.join(killed, "events.jsonl")).read().count('"ev":"step"') if pids else 0
        if steps > 8 * (kills + 1) and len(pids) > 1:
            os.kill(chance.choice(pids), signal.SIGKILL)
            kills += 1
    said = process.communicate()[0]
    assert process.returncode == 0 and kills == 2, f"{kills} kills: {said[-3000:]}"
    assert cases.digest_in(said) == cases.digest_in(text), "digest through kills"
    assert evaluations(killed) == evaluations(out), "evaluations through kills"


def workers_of(out):
    """Processes of those that are there."""
    here = {}
    try:
        with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file.read().split("\n")[:-1]]
    except OSError:
        return []
    for event in events:
        if event["ev"] == "worker":
            if event["what"] == "joined":
                here[event["id"]] = event["pid"]
            elif event["what"] in ("lost", "left"):
                here.pop(event["id"], None)
    return list(here.values())


def stop_may_ask_an_evaluation(folder):
    ends = set()
    for workers in (1, 3):
        _, text = run(folder, f"stop-{workers}", workers, STOP="1", STEPS="200", PACE="0.005")
        ends.add(text[text.index("RESULT"):].split("\n")[0])
    assert len(ends) == 1 and "RESULT 200" not in ends.pop(), ends


LOOP = """
import os, sys
import starling, train

if __name__ == "__main__":
    job = starling.Job(train.build, steps=35, micro_batches=4, batch_size=train.BATCH, seed=4, lease_ms=10000,
                       optimizer=starling.AdamW(1e-2, warmup=5), workers=int(os.environ["WORKERS"]), out=os.environ["OUT"],
                       **{k: v for k, v in train.GIVEN.items() if os.environ.get("WRONG") != "no evaluate" or k != "evaluate"})
    for step in job:
        for mb in step.mine:
            mb.done(train.loss(job.net, mb.batch()))
    print("digest", job.trained.digest, sorted(job.trained.evaluation))
"""


def a_loop_of_ones_own_evaluates_too(folder):
    out, text = run(folder, "one", 1)
    loop, mine = cases.written(folder, "loop.py", LOOP), os.path.join(folder, "mine")
    said = cases.said(loop, WORKERS="2", OUT=mine)
    assert cases.digest_in(said) == cases.digest_in(text) and evaluations(mine) == evaluations(out), said[-2000:]
    assert "['accuracy', 'loss']" in said, said
    code, said = cases.ended(loop, WORKERS="2", OUT=mine + "-not", WRONG="no evaluate")
    assert code == 2 and "validation= needs evaluate=" in said, said


def what_is_wrong_is_told(folder):
    for wrong, said in (("names", "evaluate_metrics="), ("backward", "belongs to no micro-batch")):
        _, text = run(folder, wrong, 1, code=2, WRONG=wrong)
        assert said in text, text


def main():
    os.environ["STARLING"] = os.path.abspath(sys.argv[1])
    return cases.run(the_loss_is_that_of_torch_alone, workers_and_kills_change_no_bit, stop_may_ask_an_evaluation,
                     a_loop_of_ones_own_evaluates_too, what_is_wrong_is_told)


if __name__ == "__main__":
    sys.exit(main())
