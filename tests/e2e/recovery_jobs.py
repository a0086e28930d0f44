"""Jobs of recovery_long.py: five models, each with keys that are drawn."""
import json
import os
import subprocess
import sys
import tomllib

from harness import SOURCE, STARLING, require
from scripts import HEAD, PATHS, written

SCRIPT = HEAD + """
def noisy(net, batch):                       # seeded by the job, for each micro-batch
    x = batch[0] + torch.randn(4) * 0.01
    return loss(net, (x, batch[1]))

if __name__ == "__main__":
    train(noisy)
"""
LOOP = HEAD + """
def measured(net, batch):
    wrong = net(batch[0]) - batch[1]
    value = (wrong * wrong).mean()
    return value, {"wrong": float(wrong.mean().detach())}

if __name__ == "__main__":
    job = starling.Job(build, steps=8, micro_batches=4, batch_size=4, metrics=["wrong"])
    for step in job:
        for mb in step.mine:
            value, metrics = measured(job.net, mb.batch())
            mb.done(value, **metrics)
"""


class Model:
    """A row of the table: `sections(place)` is a job file that keys are drawn for; steps take seconds."""

    def __init__(self, name, steps, sections, program=STARLING, variables=None, child=False, threads=3):
        self.name, self.steps, self.sections, self.program = name, steps, sections, program
        self.variables, self.child, self.threads = variables or {}, child, threads


def _gpt(place):
    return {"job": {"name": "gpt"},
            "model": {"kind": "gpt", "layers": 2, "heads": 2, "width": 32, "context": 32, "vocabulary": 256},
            "data": {"kind": "text", "path": place.path("text.txt")}}


def _mlp(_):
    return {"job": {"name": "mlp"}, "model": {"kind": "mlp", "sizes": [64, 48, 32, 10]},
            "data": {"kind": "classified", "path": os.path.join(SOURCE, "examples", "mlp", "digits.safetensors")}}


def _own(_):
    return {"job": {"name": "own"},
            "model": {"kind": "own", "name": "line", "tensors": ["w:200", "b:1"], "options": {"inputs": 200}, "metrics": ["furthest"]}}


def _of_script(name, text, variables):
    def sections(place):
        """As the script itself describes its job."""
        script = place.path(name + ".py")
        if not os.path.exists(script):
            written(place, name + ".py", text)
        wanted = place.path(name + "-described.toml")
        ended = subprocess.run([variables["STARLING_PYTHON"], script], capture_output=True, text=True,
                               env={**os.environ, **variables, "STARLING_WRITE_JOB": wanted})
        require(ended.returncode == 0, ended.stdout + ended.stderr)
        with open(wanted, "rb") as file:
            described = tomllib.load(file)
        return {section: described[section] for section in described if section not in ("optimizer", "elastic")}
    return sections


def torch_of(python):
    """The version of torch that an interpreter has, or None."""
    asked = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else None


def models(own, python):
    """own: a program of examples/own; python: an interpreter, with torch or without."""
    version = torch_of(python) if python else None
    variables = {"STARLING_PYTHON": python if version else sys.executable, "STARLING": STARLING,
                 "PYTHONPATH": os.pathsep.join(PATHS[:1] if version else PATHS), "PYTHONDONTWRITEBYTECODE": "1"}
    kind = f"torch {version}" if version else "stand-in for torch"
    return [Model("GPT", 500, _gpt), Model("MLP", 3000, _mlp), Model("own C++ model", 4000, _own, program=own),
            Model(f"script with train(), {kind}", 400, _of_script("plain", SCRIPT, variables), variables=variables,
                  child=True, threads=2),
            Model(f"script with a loop, {kind}", 400, _of_script("loop", LOOP, variables), variables=variables,
                  child=True, threads=2)]


def _optimizer(draw, model):
    kind = draw.choice(["adamw", "adam", "sgd"] + (["own"] if model.name.startswith("own") else []))
    optimizer = {"kind": kind, "peak_rate": draw.choice([1e-3, 3e-3]), "warmup_steps": draw.choice([0, 10]),
                 "clip": draw.choice([0.0, 1.0])}
    if kind == "own":
        return {**optimizer, "name": "lion", "schedule": "fall"}
    if kind == "sgd":
        return {**optimizer, "momentum": draw.choice([0.0, 0.9]), "nesterov": draw.choice([True, False])}
    return {**optimizer, **({"weight_decay": draw.choice([0.0, 0.1])} if kind == "adamw" else {})}


def drawn(model, draw, place):
    """The job's sections, and how it is run: a dict of workers, threads and coordinators."""
    sections = model.sections(place)
    isa = draw.choice(["auto", "avx2"] + ([] if model.child else ["emulated"]))
    precision = "fp32"
    if not model.child and not model.name.startswith("own"):
        precision = draw.choice(["fp32", "fp32", "bf16", "fp16"])
    sections["job"] |= {
        "seed": draw.randrange(1, 1000), "steps": model.steps, "micro_batches": draw.choice([5, 6, 8]),
        "sequences": draw.choice([1, 2]), "replicas": draw.choice([1, 2, 3]), "isa": isa, "precision": precision,
        "recompute": model.name == "GPT" and draw.random() < 0.3,
        "offload": draw.choice(["none", "moments"]) if isa == "emulated" else "none"}
    sections["optimizer"] = _optimizer(draw, model)
    sections["elastic"] = {
        "lease_ms": 2000, "start_timeout_ms": 120000, "shares": draw.choice(["speed", "equal"]),
        "seal": draw.choice(["on", "off", "auto"]), "digest_every": draw.choice([0, 7, 10])}
    how = {"workers": draw.choice([3, 4, 5]), "threads": draw.randrange(1, model.threads + 1),
           "coordinators": draw.choice([1, 3])}
    return sections, how


def _value(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def text_of(sections):
    return "\n".join(f"[{name}]\n" + "".join(f"{key} = {_value(one)}\n" for key, one in keys.items())
                     for name, keys in sections.items())


def in_words(sections, how):
    """What was drawn, in one line."""
    job, elastic, optimizer = sections["job"], sections["elastic"], sections["optimizer"]
    words = [f"{how['workers']} workers of {how['threads']} threads, {how['coordinators']} coordinators",
             f"{job['precision']} {job['isa']} {optimizer['kind']}", f"{job['micro_batches']}x{job['sequences']}",
             f"replicas {job['replicas']}", f"seal {elastic['seal']}", f"shares {elastic['shares']}"]
    words += ["recompute"] if job["recompute"] else []
    words += ["moments offloaded"] if job["offload"] != "none" else []
    words += [f"checkpoints every {sections['checkpoint']['every']}"] if "checkpoint" in sections else []
    return ", ".join(words)
