#!/usr/bin/env python3
"""The scripts of examples/pytorch, as their command lines have them: the same bits for every number of workers, and
through kills of workers and of the processes that compute for them. The LoRAs go through theirs, and through joins,
on a machine that is busy.

  examples.py STARLING [CASE ..] [--kills 10] [--load 8]

Run it with an interpreter that has torch, transformers, peft, accelerate, lightning and the starling package. A case
whose package is not there says so and shows nothing."""

import argparse
import importlib.util
import os
import random
import re
import signal
import sys
import tempfile
import time

import same_bits
from cases import ROOT, busy, digest_in, environment, said, without_starling, written
from language import base_of, text_in

LIGHTNING = (("from starling.lightning import Trainer\n", "from lightning import Trainer\n"),
             ('        job={"workers": int(os.environ.get("WORKERS", "2"))},\n', ""))
DIGITS = os.path.join(ROOT, "examples", "mlp", "digits.safetensors")
WORKERS = 4  # of a disturbed run, at its start


def script(name):
    return os.path.join(ROOT, "examples", "pytorch", name + ".py")


def needs(*packages):
    def decorate(case):
        case.needs = packages
        return case
    return decorate


MAIN = 'if __name__ == "__main__":\n'
SLOW = """import os, time
from torch.nn import functional

def slowed(*arguments, take=functional.cross_entropy, **named):
    if os.path.exists(os.environ["HELD"]):
        time.sleep(1)
    return take(*arguments, **named)

functional.cross_entropy = slowed

"""


class Example:
    """One script; words(out, workers) is its command line, variables(workers) its environment."""

    def __init__(self, name, steps, words, variables=lambda workers: {}):
        self.path, self.steps, self.words, self.variables = script(name), steps, words, variables

    def quiet(self, out, workers):
        """What it says."""
        return said(self.path, *self.words(out, workers), **self.variables(workers))

    def disturbed(self, folder, kills, joins=0):
        """What it says, with so many killed; a micro-batch takes a second until they are, and all that join have joined."""
        with open(self.path, encoding="utf-8") as file:
            before, main, after = file.read().partition(MAIN)
        assert main, f"{self.path} has no {MAIN}"
        slow = written(folder, os.path.basename(self.path), before + SLOW + main + after)  # the imports first, as they are forked
        held, out = written(folder, "held", ""), os.path.join(folder, "disturbed")
        job = same_bits.Run("", WORKERS, self.steps, list(map(str, self.words(out, WORKERS))), script=slow,
                            **environment(HELD=held, **self.variables(WORKERS)))
        job.out = out
        try:
            done = same_bits.disturb(job, 0, kills, random.Random(6), joins=joins)
            while job.process.poll() is None and any(is_joining(job, worker) for worker in job.extra):
                time.sleep(0.1)
            os.remove(held)
            print(f"       {done['worker']} workers and {done['child']} of their processes killed by step {job.step()},"
                  f" load {os.getloadavg()[0]:.0f}", flush=True)
            code, text = job.wait(), job.text()
        finally:
            job.close()
        assert code == 0 and sum(done.values()) == kills, f"exit code {code}, {done}: {text[-3000:]}"
        codes = [worker.returncode for worker in job.extra]
        assert len(codes) >= joins and set(codes) <= {0, 128 + signal.SIGKILL}, f"the workers that joined ended with {codes}"
        return text


def is_joining(job, guard):
    """Whether the worker that it has started runs and has not joined."""
    if guard.poll() is not None:
        return False
    with open(f"/proc/{guard.pid}/task/{guard.pid}/children", encoding="utf-8") as file:
        below = map(int, file.read().split())
    job.look()
    return not set(below) & set(job.workers().values())


def all_the_same(example, folder, workers, kills, of=digest_in, joins=0, load=0):
    """of(text) is the same for all of these numbers of workers, and through kills beside so many busy processes."""
    found = {f"{w} workers": of(example.quiet(os.path.join(folder, f"of-{w}"), w)) for w in workers}
    print(f"       {', '.join(found)}: {next(iter(found.values()))}", flush=True)
    assert len(set(found.values())) == 1, found
    with busy(load):
        found["disturbed"] = of(example.disturbed(folder, kills, joins))
    assert len(set(found.values())) == 1, found


LOADING = f"""import sys
import starling
sys.path.insert(0, {os.path.dirname(script("resnet"))!r})
import resnet
net = resnet.ResNet18(8, 1, 10)
trained = starling.load(sys.argv[1])
assert any(not value.equal(trained[name]) for name, value in net.state_dict().items())
starling.load(sys.argv[1], net)
assert all(value.equal(trained[name]) for name, value in net.state_dict().items())
"""


def resnet(folder, options):
    """Digest, and held-out loss and accuracy. A script of another command line reads the model."""
    example = Example("resnet", 400, lambda out, workers: ("--data", DIGITS, "--steps", 400, "--workers", workers, "--out", out))
    all_the_same(example, folder, (1, 2, 3), options.kills,
                 lambda text: digest_in(text) + " " + re.findall(r"held out: (.*)", text)[-1])
    said(written(folder, "loading.py", LOADING), os.path.join(folder, "of-1"), "--rate", 3)


@needs("lightning")
def lightning_fit(folder, options):
    example = Example("lightning_fit", 450, lambda out, workers: ("--data", DIGITS, "--epochs", 50, "--out", out),
                      lambda workers: {"WORKERS": str(workers)})
    all_the_same(example, folder, (1, 3), options.kills, lambda text: digest_in(text) + " " + re.findall("val_loss .*", text)[-1])
    plain = said(without_starling(folder, example.path, LIGHTNING), "--data", DIGITS, "--epochs", 50,
                 "--out", os.path.join(folder, "plain"))
    print("       " + re.findall("val_loss .*", plain)[-1] + " by Lightning's own")


@needs("transformers", "accelerate")
def hf_trainer(folder, options):
    """Digest, and the held-out text's accuracy and perplexity."""
    base_of(folder, "gpt2")
    text = text_in(folder)
    words = {"model_name_or_path": os.path.join(folder, "gpt2"), "train_file": text, "validation_file": text, "block_size": 16,
             "max_steps": 400, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "eval_strategy": "steps",
             "eval_steps": 100, "lr_scheduler_type": "cosine", "learning_rate": 0.003, "report_to": "none", "save_strategy": "no"}
    example = Example("hf_trainer", 400, lambda out, workers: ("--use_cpu", "--output_dir", out, *(
        word for name, value in words.items() for word in (f"--{name}", value))), lambda workers: {"WORKERS": str(workers)})
    all_the_same(example, folder, (1, 3), options.kills,
                 lambda text: digest_in(text) + " " + re.findall("accuracy .*, perplexity .*", text)[-1])


def lora(folder, options, kind):
    base_of(folder, kind)
    text = text_in(folder)
    words = ("--model", os.path.join(folder, kind), "--data", text, "--rank", 4, "--lr", 0.03, "--length", 16, "--batch", 2,
             "--steps", 800)
    example = Example("lora", 800, lambda out, workers: (*words, "--workers", workers, "--out", out))
    all_the_same(example, folder, (1, 2, 3, 5), 3 * options.kills, joins=options.kills, load=options.load)


@needs("transformers", "peft")
def lora_gpt2(folder, options):
    lora(folder, options, "gpt2")


@needs("transformers", "peft")
def lora_llama(folder, options):
    lora(folder, options, "llama")


CASES = (resnet, lightning_fit, hf_trainer, lora_gpt2, lora_llama)


def main():
    names = [case.__name__ for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names) + " (default: all)")
    parser.add_argument("--kills", type=int, default=10, help="of workers and processes; three times as many of a LoRA, and so many joins")
    parser.add_argument("--load", type=int, default=8, help="processes that compute beside a LoRA")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(names):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    os.environ["STARLING"] = os.path.abspath(options.starling)
    passed = failed = 0
    for case in CASES:
        if options.cases and case.__name__ not in options.cases:
            continue
        absent = [name for name in getattr(case, "needs", ()) if importlib.util.find_spec(name) is None]
        if absent:
            print(f"skipped {case.__name__}: there is no {', '.join(absent)} here", flush=True)
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                case(folder, options)
            passed += 1
            print(f"ok     {case.__name__}", flush=True)
        except Exception as why:  # the others are run all the same
            failed += 1
            print(f"FAILED {case.__name__}: {type(why).__name__}: {why}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
