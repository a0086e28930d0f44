#!/usr/bin/env python3
"""examples/pytorch/lora.py: a LoRA of a small GPT-2 and a small Llama, random ones, from a folder.

  lora.py STARLING

Run it with an interpreter that has torch, transformers, peft and the starling package. Without peft it says so and
shows nothing."""

import csv
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

import same_bits
from cases import ROOT, digest_in, environment, run, said
from language import base_of, text_in

STARLING = os.path.abspath(sys.argv[1])
os.environ["STARLING"] = STARLING
SCRIPT = os.path.join(ROOT, "examples", "pytorch", "lora.py")
STEPS, RANK = 60, 4
KINDS = ("gpt2", "llama")


def arguments(folder, kind, out, **changes):
    chosen = {"model": os.path.join(folder, kind), "data": os.path.join(folder, "text.txt"), "out": out, "rank": RANK, "lr": 0.03,
              "length": 16, "batch": 2, "steps": STEPS, **changes}
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))]


def lora(folder, kind, out, **changes):
    return said(SCRIPT, *arguments(folder, kind, os.path.join(folder, out), **changes))


def any_number_of_workers_gives_one_adapter(folder):
    text_in(folder)
    for kind in KINDS:
        base_of(folder, kind)
        count = (1, 2, 3) if kind == "gpt2" else (1, 3)
        digests = [digest_in(lora(folder, kind, f"{kind}-{w}", workers=w)) for w in count]
        assert len(set(digests)) == 1, digests
        files = []
        for w in count:
            with open(os.path.join(folder, f"{kind}-{w}", "adapter_model.safetensors"), "rb") as file:
                files.append(file.read())
        assert len(set(files)) == 1, "adapters differ"


def quiet_digest(folder):
    with open(os.path.join(folder, "gpt2-1", "events.jsonl"), encoding="utf-8") as file:
        return json.loads(file.readlines()[-1])["digest"]


def another_value_of_an_option_gives_another_adapter(folder):
    others = [digest_in(lora(folder, "gpt2", f"other-{i}", workers=1, **change))
              for i, change in enumerate(({"dropout": 0.5}, {"lr": 0.01}))]
    assert len({quiet_digest(folder), *others}) == 3, others


def peft_reads_an_adapter_and_has_torchs_own_loss(folder):
    """Beside it, the net of torch and peft with the trained parameters put into it."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import starling

    with open(os.path.join(folder, "text.txt"), encoding="utf-8") as file:
        text = file.read()[:256]
    for kind in KINDS:
        base, out = os.path.join(folder, kind), os.path.join(folder, f"{kind}-1")
        tokens = torch.tensor(AutoTokenizer.from_pretrained(base)(text)["input_ids"]).view(16, 16)
        first = AutoModelForCausalLM.from_pretrained(base)
        read = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), out)
        made = get_peft_model(AutoModelForCausalLM.from_pretrained(base),
                              LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=16.0, lora_dropout=0.05))
        starling.load(out, made)
        made.eval()
        with torch.no_grad():
            before, there, here = (float(net(input_ids=tokens, labels=tokens).loss) for net in (first, read, made))
        assert abs(there - here) <= 1e-6 and there < before - 0.05, (before, there, here)
        print(f"       {kind}: loss {before:.4f} before, {there:.7f} by PeftModel, {here:.7f} of the trained net")


def kills_of_a_worker_and_of_a_process_change_no_bit(folder):
    out = os.path.join(folder, "killed")
    job = same_bits.Run("", 3, STEPS, arguments(folder, "gpt2", out, workers=3), script=SCRIPT, **environment())
    job.out = out
    for kind in ("child", "worker"):
        done = same_bits.disturb(job, STEPS, 1, random.Random(1), kinds=[kind])
        assert done[kind] == 1, f"{kind}: {done}: {job.text()}"
    code, text = job.wait(), job.text()
    job.close()
    assert code == 0 and digest_in(text) == quiet_digest(folder), f"{code}: {text[-2000:]}"


def a_base_with_another_bit_is_refused_and_a_step_costs_the_adapters_bytes(folder):
    out, elsewhere, times = (os.path.join(folder, name) for name in ("joined", "elsewhere", "times.csv"))
    shutil.copytree(os.path.join(folder, "gpt2"), os.path.join(elsewhere, "gpt2"))
    model = os.path.join(elsewhere, "gpt2", "model.safetensors")
    with open(model, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        place = json.loads(file.read(length))["transformer.wte.weight"]["data_offsets"]
        file.seek(8 + length + place[1] - 4)  # the last token's, which is in no sample
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    variables = environment(STARLING_PYTHON=sys.executable)
    words = arguments(folder, "gpt2", out, workers=2)
    words[words.index("--model") + 1] = "gpt2"  # of the folder in which a worker is started
    with open(os.path.join(folder, "joined.log"), "w+", encoding="utf-8") as log:
        run = subprocess.Popen([STARLING, "run", SCRIPT, "--workers", "2", "--start", "1", "--out", out, "--", *words],
                               env=variables, cwd=folder, stdout=log, stderr=subprocess.STDOUT)

        def events():
            path = os.path.join(out, "events.jsonl")
            if not os.path.exists(path):
                return []
            with open(path, encoding="utf-8") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]

        while not any(e["ev"] == "worker" and e["what"] == "joined" for e in events()):
            assert run.poll() is None, open(log.name, encoding="utf-8").read()
            time.sleep(0.1)
        start = next(e for e in events() if e["ev"] == "start")
        join = [STARLING, "worker", "--quiet", "--join", start["address"], "--keys", start["keys"], "--save", "none",
                "--script", SCRIPT]
        refused = subprocess.run(join, env=variables, cwd=elsewhere, capture_output=True, text=True)
        lines = [line for line in refused.stderr.splitlines() if line.startswith("starling: ")]
        assert refused.returncode == 2 and len(lines) == 1, refused
        assert "this worker computes other bits than the group" in lines[0] and "does not train" in lines[0], lines
        other = subprocess.run([*join, "--", *words, "--lr", "1"], env=variables, cwd=folder, capture_output=True, text=True)
        assert other.returncode == 2 and "model.arguments is" in other.stderr, other
        joined = subprocess.run([*join, "--times", times], env=variables, cwd=folder, capture_output=True, text=True)
        code = run.wait()
        log.seek(0)
        text = log.read()
    assert joined.returncode == 0 and code == 0 and digest_in(text) == quiet_digest(folder), (joined, text[-2000:])
    with open(times, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with open(os.path.join(out, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    trained = sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    sent = [int(b["sent_bytes"]) - int(a["sent_bytes"]) for a, b in zip(rows, rows[1:])]
    print(f"       {trained} trained parameters, {statistics.median(sent):.0f} bytes sent by a worker in a step,"
          f" {statistics.median(sent) / (4 * trained):.2f} x 4 bytes each")
    assert len(sent) > STEPS // 2 and statistics.median(sent) <= 3 * 4 * trained, sent


if __name__ == "__main__":
    try:
        import peft  # noqa: F401
    except ImportError:
        print("skipped: there is no peft here (pip install peft)\n0 passed, 0 failed")
        sys.exit(0)
    sys.exit(run(any_number_of_workers_gives_one_adapter, another_value_of_an_option_gives_another_adapter,
                 peft_reads_an_adapter_and_has_torchs_own_loss, kills_of_a_worker_and_of_a_process_change_no_bit,
                 a_base_with_another_bit_is_refused_and_a_step_costs_the_adapters_bytes, shared=True))
