#!/usr/bin/env python3
"""torch's own optimizers and schedulers given to train(), beside a loop of torch alone with the same: the losses of all
steps, and one digest for 1 worker and for 3 of which one is killed. So of local steps, too.

  optimizers.py STARLING [--steps 200] [--only NAME,NAME]

Run it with an interpreter that has torch and the starling package. Exit code 1 if a loss is off by more than the
tolerance, relative to it, a digest differs, or a process is left."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

os.environ.setdefault("MODEL", "mlp")
import models  # noqa: E402
import same_bits  # noqa: E402
import torch  # noqa: E402
from torch import optim  # noqa: E402
from torch.optim import SGD, Adam, AdamW  # noqa: E402
from torch.optim import lr_scheduler as schedulers  # noqa: E402

import starling  # noqa: E402

# Of a loss and what it is the difference of: logits some hundred times as large as a late loss are rounded, too.
TOLERANCE, ROUNDED = 1e-5, 0.1
STEPS = int(os.environ.get("STEPS", "200"))


def adamw(net):
    """With groups, as most people have them: no decay of biases and norms, a head that is slower."""
    decayed = [p for n, p in net.named_parameters() if p.dim() >= 2 and not n.startswith("layers.4")]
    others = [p for n, p in net.named_parameters() if p.dim() < 2 and not n.startswith("layers.4")]
    head = [p for n, p in net.named_parameters() if n.startswith("layers.4")]
    return AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}, {"params": head, "lr": 5e-4}], lr=2e-3)


def momentum(net):
    return SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def one_cycle(optimizer):
    highest = [10 * group["lr"] for group in optimizer.param_groups]
    return schedulers.OneCycleLR(optimizer, highest, total_steps=STEPS, cycle_momentum=False)


def warm_linear(optimizer):
    return schedulers.LambdaLR(optimizer, lambda k: min(1, (k + 1) / 20, max(0, (STEPS - k) / (STEPS - 20))))


# Of each: the optimizer, torch's scheduler, the norm that is clipped, and what train() is told as schedule=.
CASES = {
    "adamw-one-cycle": (adamw, one_cycle, 1.0, one_cycle),
    "adamw-linear": (adamw, warm_linear, 0.0, warm_linear),
    "adam-cosine": (lambda net: Adam(net.parameters(), lr=2e-3),
                    lambda o: schedulers.CosineAnnealingLR(o, STEPS), 1.0,
                    lambda o: schedulers.CosineAnnealingLR(o, STEPS)),
    "sgd-momentum-step": (momentum, lambda o: schedulers.StepLR(o, 50, 0.3), 0.0,
                          starling.Schedule("step", every=50, factor=0.3)),
    "sgd-nesterov-one-cycle": (lambda net: SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True),
                               lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=STEPS, cycle_momentum=False), 1.0,
                               starling.Schedule("one-cycle", floor=4e-6)),
    "rmsprop": (lambda net: optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-2), warm_linear, 1.0, warm_linear),
    "rmsprop-centered": (lambda net: optim.RMSprop(net.parameters(), lr=1e-3, centered=True), warm_linear, 0.0, warm_linear),
    "rmsprop-momentum": (lambda net: optim.RMSprop(net.parameters(), lr=2e-4, momentum=0.9), warm_linear, 0.0, warm_linear),
    "adagrad": (lambda net: optim.Adagrad(net.parameters(), lr=1e-2, lr_decay=1e-3, initial_accumulator_value=0.1), warm_linear,
                0.0, warm_linear),
    "adamax": (lambda net: optim.Adamax(net.parameters(), weight_decay=1e-2), warm_linear, 0.0, warm_linear),
    "radam": (lambda net: optim.RAdam(net.parameters(), lr=2e-3, weight_decay=1e-2, decoupled_weight_decay=True), warm_linear,
              0.0, warm_linear),
    "nadam": (lambda net: optim.NAdam(net.parameters(), lr=2e-3, weight_decay=1e-2), warm_linear, 1.0, warm_linear),
    "adam-decay": (lambda net: Adam(net.parameters(), lr=2e-3, weight_decay=1e-2), warm_linear, 0.0, warm_linear),
    "sgd-constant": (lambda net: SGD(net.parameters(), lr=0.05), lambda o: schedulers.ConstantLR(o, 1.0), 0.0, None),
}

LOCAL_STEPS = 8
LOCAL_ALL = STEPS // LOCAL_STEPS * LOCAL_STEPS  # local steps of the job: as many as others have steps


def local_factor(k):
    """Of the rate of local step k."""
    return min(1, (k + 1) / 20, max(0, (LOCAL_ALL - k) / (LOCAL_ALL - 20)))


# Of each: the optimizer of local steps, the norm that is clipped, and that of the steps that are made of them.
LOCAL = {
    "local-adamw": (adamw, 1.0, starling.SGD(0.7, momentum=0.9, nesterov=True, floor=1.0)),
    "local-sgd": (momentum, 0.0, starling.SGD(1.0, momentum=0.0, nesterov=False, floor=1.0)),
}


def steps_of(name):
    return STEPS // LOCAL_STEPS if name in LOCAL else STEPS


def sample_batch(data, position):
    numbers = [same_bits.sample_of(1, position + i, len(data), same_bits.PURPOSE_DATA_ORDER) for i in range(models.BATCH)]
    return torch.utils.data.default_collate([data[i] for i in numbers])


def plain_local(name):
    """As plain(): each micro-batch makes local steps of its own, and torch's SGD a step of what they changed."""
    from starling.module import seed_everything

    make, clip, outer = LOCAL[name]
    torch.set_num_threads(1)
    seed_everything(1)
    net, data = models.build()
    weights = [p.detach().clone().requires_grad_() for p in net.parameters()]
    step_of_all = SGD(weights, lr=outer.rate, momentum=outer.momentum, nesterov=outer.nesterov)
    losses = []
    for step in range(steps_of(name)):
        total = 0.0
        for w in weights:
            w.grad = torch.zeros_like(w)
        for m in range(models.MICRO_BATCHES):
            with torch.no_grad():
                for p, w in zip(net.parameters(), weights):
                    p.copy_(w)
            optimizer = make(net)
            rates = [group["lr"] for group in optimizer.param_groups]
            for i in range(LOCAL_STEPS):
                number = m * LOCAL_STEPS + i
                seed_everything(1, step, number)
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate * local_factor(step * LOCAL_STEPS + i)
                optimizer.zero_grad()
                value = models.loss(net, sample_batch(data, (step * models.MICRO_BATCHES * LOCAL_STEPS + number) * models.BATCH))
                value.backward()
                if clip:
                    torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
                total += value.item() / models.MICRO_BATCHES / LOCAL_STEPS
            with torch.no_grad():
                for p, w in zip(net.parameters(), weights):
                    w.grad += (w - p) / models.MICRO_BATCHES
        step_of_all.step()
        losses.append(total)
    print(json.dumps(losses))


def plain(name):
    """Prints the losses of a loop of torch alone, over the samples that the job takes."""
    from starling.module import seed_everything

    if name in LOCAL:
        return plain_local(name)

    make, schedule, clip, _ = CASES[name]
    torch.set_num_threads(1)
    seed_everything(1)
    net, data = models.build()
    optimizer = make(net)
    scheduler = schedule(optimizer)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for m in range(models.MICRO_BATCHES):
            seed_everything(1, step, m)
            value = models.loss(net, sample_batch(data, (step * models.MICRO_BATCHES + m) * models.BATCH))
            (value / models.MICRO_BATCHES).backward()
            total += value.item() / models.MICRO_BATCHES
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        scheduler.step()
        losses.append(total)
    print(json.dumps(losses))


def train(name):
    if name in LOCAL:
        make, clip, outer = LOCAL[name]
        given = {"local_steps": LOCAL_STEPS, "outer": outer, "schedule": lambda o: schedulers.LambdaLR(o, local_factor)}
    else:
        make, _, clip, schedule = CASES[name]
        given = {"schedule": schedule}
    starling.train(models.build, models.loss, steps=steps_of(name), micro_batches=models.MICRO_BATCHES, batch_size=models.BATCH,
                   optimizer=make, clip=clip, workers=int(os.environ["WORKERS"]), out=os.environ["OUT"], lease_ms=5000, **given)


def run(name, workers, kill, **environment):
    one = same_bits.Run("mlp", workers, STEPS, arguments=["--train", name], script=os.path.abspath(__file__), **environment)
    while kill and one.process.poll() is None:
        one.look()
        if one.step() >= steps_of(name) // 4:
            os.kill(sorted(one.workers().values())[0], signal.SIGKILL)
            kill = False
        time.sleep(0.02)
    code = one.wait()
    losses = {e["version"]: e["loss"] for e in one.events if e["ev"] == "step"}
    if code != 0:
        print(one.text())
    digest = same_bits.digest_of(one)
    lost = sum(e["ev"] == "worker" and e["what"] == "lost" for e in one.events)
    one.close()
    return digest, losses, lost


def check(name):
    digest, losses, _ = run(name, 1, False)
    alone = json.loads(subprocess.run([sys.executable, os.path.abspath(__file__), "--plain", name], stdout=subprocess.PIPE,
                                      check=True, env={**os.environ, "MKL_CBWR": "AVX2"}).stdout)
    furthest = max((abs(a - losses[i]) / (a + ROUNDED) for i, a in enumerate(alone)), default=1)
    other, _, lost = run(name, 3, True, PACE="0.003")
    left = same_bits.left_behind()
    held = len(losses) == len(alone) and furthest <= TOLERANCE and digest is not None and digest == other and not left
    print(f"{'ok    ' if held else 'FAILED'} {name}: {len(losses)} losses within {furthest:.2g} of torch alone ({alone[0]:.4f}"
          f" to {alone[-1]:.4f}); digest {digest}, 3 workers with {lost} lost: {'the same' if digest == other else other}"
          + (f"; processes are left: {left}" if left else ""), flush=True)
    return held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling", nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default=",".join([*CASES, *LOCAL]))
    parser.add_argument("--plain")
    parser.add_argument("--train")
    options = parser.parse_args()
    if options.plain:
        return plain(options.plain)
    if options.train:
        return train(options.train)
    os.environ["STARLING"], os.environ["STEPS"] = os.path.abspath(options.starling), str(options.steps)
    globals()["STEPS"] = options.steps
    names = options.only.split(",")
    failed = sum(not check(name) for name in names)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
