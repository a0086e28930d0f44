#!/usr/bin/env python3
"""The PyTorch side of the comparison, and the comparison itself (started by compare_pytorch.sh).

  compare    run PyTorch and Starling in turn and print each pair, the ratio and the medians
  train      one PyTorch run: the architecture of GPT-2 or of Llama, AdamW, clipping; DDP over gloo if --processes > 1
  step       one PyTorch run of a step whose computing is replaced by waiting
  allreduce  gloo's all-reduce over loopback

A step is timed from its beginning to the beginning of the next, drawing the batch included, on both sides.
Weights and batches differ between the two (each draws its own); shapes, text and arithmetic do not.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

TINY = dict(layers=4, heads=4, width=128, context=128, vocabulary=256, micro_batches=8, sequences=4)
GPT2 = dict(layers=12, heads=12, width=768, context=256, vocabulary=50257, micro_batches=2, sequences=1)
# Of the same sizes, as Llama's family has them: grouped queries, SwiGLU with three products of two thirds the width.
TINY_LLAMA = TINY | dict(key_value_heads=2, feed_forward=352)
LLAMA = GPT2 | dict(key_value_heads=4, feed_forward=2048, tied_embeddings=True)
SHAPES = {"tiny": TINY, "gpt2": GPT2, "llama-tiny": TINY_LLAMA, "llama": LLAMA}
TEXT = "/usr/include/c++"  # the folder that examples/gpt/tiny.toml trains on
SKIPPED_STEPS = {"tiny": 5, "gpt2": 2, "llama-tiny": 5, "llama": 2, "step": 5}  # warm-up, not counted
WAITED_MS = 50  # what a worker's computing takes in a step, where it is replaced by waiting
STEP_SIZES = {1_000_000: 60, 10_000_000: 30, 124_000_000: 12}  # parameters -> steps of a run


# ---- PyTorch ---------------------------------------------------------------------------------------


def build_model(shape):
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):  # x: (B, T, C)
            B, T, C = x.shape
            q, k, v = (
                t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, 2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            width = shape["width"]
            self.wte, self.wpe = nn.Embedding(shape["vocabulary"], width), nn.Embedding(shape["context"], width)
            self.blocks = nn.ModuleList(Block(width, shape["heads"]) for _ in range(shape["layers"]))
            self.ln_f = nn.LayerNorm(width)
            for name, p in self.named_parameters():
                if p.dim() >= 2:
                    scale = 0.02 / (2 * shape["layers"]) ** 0.5 if name.endswith(("proj.weight", "down.weight")) else 0.02
                    nn.init.normal_(p, std=scale)

        def forward(self, tokens, targets):  # (B, T) each
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    class LlamaBlock(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.heads, self.shared = shape["heads"], shape["key_value_heads"]
            self.each = width // self.heads
            linear = lambda i, o: nn.Linear(i, o, bias=False)
            self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
            self.q, self.k, self.v = linear(width, width), linear(width, self.shared * self.each), linear(width, self.shared * self.each)
            self.proj = linear(width, width)
            self.gate, self.up, self.down = (linear(width, shape["feed_forward"]), linear(width, shape["feed_forward"]),
                                             linear(shape["feed_forward"], width))

        def forward(self, x, cos, sin):  # x: (B, T, C); cos, sin: (T, C / heads)
            B, T, C = x.shape
            n = self.norm_1(x)

            def turned(t, heads):
                t = t.view(B, T, heads, self.each).transpose(1, 2)
                a, b = t.chunk(2, -1)
                return t * cos + torch.cat((-b, a), -1) * sin

            v = self.v(n).view(B, T, self.shared, self.each).transpose(1, 2)
            y = F.scaled_dot_product_attention(turned(self.q(n), self.heads), turned(self.k(n), self.shared), v, is_causal=True,
                                               enable_gqa=True)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            n = self.norm_2(x)
            return x + self.down(F.silu(self.gate(n)) * self.up(n))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            width, each = shape["width"], shape["width"] // shape["heads"]
            self.tokens = nn.Embedding(shape["vocabulary"], width)
            self.blocks = nn.ModuleList(LlamaBlock(width) for _ in range(shape["layers"]))
            self.norm = nn.RMSNorm(width, 1e-5)
            self.head = nn.Linear(width, shape["vocabulary"], bias=False)
            if shape.get("tied_embeddings"):
                self.head.weight = self.tokens.weight
            angles = torch.outer(torch.arange(shape["context"]).float(), 10000.0 ** -(torch.arange(0, each, 2).float() / each))
            self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
            self.register_buffer("sin", torch.cat((angles, angles), -1).sin())
            for p in self.parameters():
                if p.dim() >= 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):  # (B, T) each
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    return Llama() if "feed_forward" in shape else Gpt()


def load_tokens(name):
    """The training text as one array: bytes of all files below TEXT, or random tokens for GPT-2's vocabulary."""
    import numpy as np

    if SHAPES[name]["vocabulary"] != 256:  # what it learns does not matter here
        return np.random.default_rng(1).integers(0, GPT2["vocabulary"], 1 << 20, dtype=np.int64)
    paths = sorted(os.path.join(folder, f) for folder, _, files in os.walk(TEXT) for f in files)
    pieces = [np.fromfile(p, dtype=np.uint8) for p in paths if os.path.isfile(p) and not os.path.islink(p)]
    return np.concatenate(pieces).astype(np.int64)


def peak_memory_mb(pid="self"):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def train_rank(arguments):
    """One process of a training run; rank 0 prints its figures as JSON."""
    import numpy as np
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shape = SHAPES[arguments.model]
    world, rank = arguments.processes, arguments.rank
    model = build_model(shape)
    parameters = sum(p.numel() for p in model.parameters())
    run = model
    if world > 1:
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo", init_method=f"file://{arguments.store}", rank=rank, world_size=world)
        run = DistributedDataParallel(model, gradient_as_bucket_view=True)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), fused=True,
    )
    tokens = load_tokens(arguments.model)
    own = shape["micro_batches"] // world
    length = shape["context"]
    times, losses = [], []
    for step in range(arguments.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        generator = np.random.default_rng([step, rank])
        loss_sum = 0.0
        for m in range(own):
            places = generator.integers(0, len(tokens) - length - 1, shape["sequences"])
            rows = torch.from_numpy(np.stack([tokens[p : p + length + 1] for p in places]))
            last = m == own - 1
            if world > 1 and not last:
                with run.no_sync():
                    loss = run(rows[:, :-1], rows[:, 1:]) / own
                    loss.backward()
            else:
                loss = run(rows[:, :-1], rows[:, 1:]) / own
                loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
        losses.append(loss_sum)
    if rank == 0:
        timed = times[SKIPPED_STEPS[arguments.model] :]
        step_tokens = shape["micro_batches"] * shape["sequences"] * length
        print(json.dumps({
            "tokens_per_s": step_tokens / statistics.median(timed), "step_ms": 1000 * statistics.median(timed),
            "memory_mb": peak_memory_mb(), "parameters": parameters, "loss": losses[-1],
        }))
    if world > 1:
        dist.destroy_process_group()


def synthetic_parts(parameters):
    """Shapes of the tensors of kernels/models/synthetic.cpp, part by part."""
    c = int((parameters / 48) ** 0.5)
    layers = [[(c, 3 * c), (3 * c,), (c, c), (c,)], [(c, 4 * c), (4 * c,), (4 * c, c), (c,)]] * 3
    left = parameters - sum(math.prod(shape) for part in layers for shape in part)
    return [[(left // c, c)], *layers] + ([[(left % c,)]] if left % c else [])


def build_waiting_model(parameters):
    """A third of WAITED_MS is waited in the forward pass, the rest in the backward pass, each part its share.

    The gradients are there before: they are only handed over.
    """
    import torch
    from torch import nn

    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(context, x, share, gradients, *tensors):
            context.share, context.gradients = share, gradients
            time.sleep(share * WAITED_MS / 3000)
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            time.sleep(context.share * WAITED_MS * 2 / 3000)
            return gradient, None, None, *context.gradients

    class Part(nn.Module):
        def __init__(self, shapes):
            super().__init__()
            self.tensors = nn.ParameterList(torch.randn(shape) * 0.02 for shape in shapes)
            self.gradients = [torch.randn(shape) * 1e-3 for shape in shapes]
            self.share = sum(math.prod(shape) for shape in shapes) / parameters

        def forward(self, x):
            return Wait.apply(x, self.share, self.gradients, *self.tensors)

    return nn.Sequential(*(Part(shapes) for shapes in synthetic_parts(parameters)))


def step_rank(arguments):
    """One process of a run whose computing is waited; rank 0 prints its figures as JSON."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = build_waiting_model(arguments.parameters)
    dist.init_process_group(
        "gloo", init_method=f"file://{arguments.store}", rank=arguments.rank, world_size=arguments.processes
    )
    run = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
    start, times = torch.zeros(1, requires_grad=True), []
    for _ in range(arguments.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        run(start).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if arguments.rank == 0:
        timed = times[SKIPPED_STEPS["step"] :]
        print(json.dumps({"step_ms": 1000 * statistics.median(timed), "memory_mb": peak_memory_mb(),
                          "parameters": sum(p.numel() for p in model.parameters())}))
    dist.destroy_process_group()


def allreduce_rank(arguments):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{arguments.store}", rank=arguments.rank, world_size=arguments.processes
    )
    values = torch.ones(arguments.bytes // 4)
    times = []
    for repetition in range(arguments.repetitions + 3):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - begin)
        values.fill_(1)
    if arguments.rank == 0:
        timed = times[3:]
        print(json.dumps({"median_ms": 1000 * statistics.median(timed), "min_ms": 1000 * min(timed)}))
    dist.destroy_process_group()


def torch_processes(arguments):
    """Runs `arguments` of this script once per rank; returns what rank 0 printed."""
    processes = arguments[arguments.index("--processes") + 1]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} if int(processes) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), *arguments, "--store", os.path.join(folder, "store")]
        ranks = [
            subprocess.Popen(
                command + ["--rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            )
            for rank in range(int(processes))
        ]
        outputs = [rank.communicate() for rank in ranks]
        for rank, (_, errors) in zip(ranks, outputs):
            if rank.returncode != 0:
                sys.exit(f"compare_pytorch: {' '.join(command)} ended with {rank.returncode}:\n{errors}")
    return json.loads(outputs[0][0].strip().splitlines()[-1])


# ---- Starling --------------------------------------------------------------------------------------


def write_model_job(folder, name, steps):
    """A job of that shape; over bytes as examples/gpt/tiny.toml, or over random tokens."""
    import numpy as np

    shape = SHAPES[name]
    keys = ["layers", "heads", "width", "context", "vocabulary", "key_value_heads", "feed_forward", "tied_embeddings"]
    model = "".join(f"{key} = {str(shape[key]).lower()}\n" for key in keys if key in shape)
    kind, path = "text", TEXT
    if shape["vocabulary"] != 256:
        kind, path = "tokens", os.path.join(folder, "tokens.bin")
        np.random.default_rng(1).integers(0, shape["vocabulary"], 1 << 20, dtype=np.uint16).tofile(path)
    job = os.path.join(folder, f"{name}.toml")
    with open(job, "w", encoding="utf-8") as stream:
        stream.write(
            f'[job]\nname = "{name}"\nsteps = {steps}\nmicro_batches = {shape["micro_batches"]}\nsequences = {shape["sequences"]}\n'
            f'[model]\nkind = "{"llama" if "feed_forward" in shape else "gpt"}"\n{model}'
            f'[optimizer]\nkind = "adamw"\npeak_rate = 6e-4\n[data]\nkind = "{kind}"\npath = "{path}"\n'
        )
    return job


def write_step_job(folder, parameters, workers, steps):
    """One micro-batch a worker, which takes WAITED_MS; the same optimizer and clipping as step_rank()'s."""
    job = os.path.join(folder, "step.toml")
    with open(job, "w", encoding="utf-8") as stream:
        stream.write(
            f'[job]\nname = "step"\nsteps = {steps}\nmicro_batches = {workers}\n'
            f'[model]\nkind = "synthetic"\nparameters = {parameters}\ncompute_ms = {WAITED_MS}\n'
            '[optimizer]\nkind = "adamw"\npeak_rate = 1e-3\n'
        )
    return job


def read_events(path):
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream if line.endswith("\n")]


def starling_run(starling, job, model, workers, threads, steps):
    """Trains and returns tokens/s, ms a step and the largest worker's peak resident memory."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = [starling, "run", job, "--workers", str(workers), "--threads", str(threads),
                   "--steps", str(steps), "--out", out]
        log_path = os.path.join(folder, "log")
        with open(log_path, "w+", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            events, memory = os.path.join(out, "events.jsonl"), 0.0
            pids = []
            while process.poll() is None:
                time.sleep(0.1)
                if not pids and os.path.exists(events):
                    joined = [e["pid"] for e in read_events(events) if e["ev"] == "worker" and e["what"] == "joined"]
                    pids = joined if len(joined) == workers else []
                for pid in pids:
                    try:
                        memory = max(memory, peak_memory_mb(pid))
                    except OSError:
                        pass  # it has ended
            if process.returncode != 0:
                log.seek(0)
                sys.exit(f"compare_pytorch: {' '.join(command)} ended with {process.returncode}:\n{log.read()}")
        lines = [e for e in read_events(events) if e["ev"] == "step"]
    times = [b["t"] - a["t"] for a, b in zip(lines, lines[1:])][SKIPPED_STEPS[model] - 1 :]
    median = statistics.median(times)
    return {"tokens_per_s": lines[-1].get("tokens", 0) / median, "step_ms": 1000 * median, "memory_mb": memory,
            "loss": lines[-1]["loss"]}


def starling_allreduce(starling):
    """Name of each case of `starling-bench allreduce` -> its figures."""
    command = [f"{starling}-bench", "allreduce", "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cases = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {case["name"]: case for case in cases if "name" in case}


# ---- The comparison --------------------------------------------------------------------------------


def say(text):
    print(text, flush=True)


def compare_training(starling, model, pairs, steps, results):
    with tempfile.TemporaryDirectory() as folder:
        job = write_model_job(folder, model, steps)
        for processes, threads in ((1, 2), (2, 1)):
            name = f"{model} {processes} x {threads}"
            say(f"\n{name}: tokens/s   PyTorch   Starling   ratio   peak memory MB (PyTorch, Starling)")
            torch_side, own_side = [], []
            for pair in range(pairs):
                run = ["train", "--model", model, "--processes", str(processes), "--threads", str(threads),
                       "--steps", str(steps)]
                torch_side.append(torch_processes(run))
                own_side.append(starling_run(starling, job, model, processes, threads, steps))
                a, b = torch_side[-1], own_side[-1]
                say(f"  pair {pair + 1:<14}{a['tokens_per_s']:>10.0f}{b['tokens_per_s']:>11.0f}"
                    f"{b['tokens_per_s'] / a['tokens_per_s']:>8.2f}   {a['memory_mb']:.0f}, {b['memory_mb']:.0f}")
            a = statistics.median(r["tokens_per_s"] for r in torch_side)
            b = statistics.median(r["tokens_per_s"] for r in own_side)
            ratios = [y["tokens_per_s"] / x["tokens_per_s"] for x, y in zip(torch_side, own_side)]
            say(f"  median             {a:>10.0f}{b:>11.0f}{statistics.median(ratios):>8.2f}")
            results[name] = {"pytorch": torch_side, "starling": own_side}


def compare_step(starling, pairs, sizes, results):
    """What a step takes beyond computing: the exchange, clipping and AdamW; with Starling replicas and checks too."""
    with tempfile.TemporaryDirectory() as folder:
        for parameters in sizes:
            for processes in (2, 4):
                steps = STEP_SIZES[parameters]
                name = f"step {parameters // 1_000_000} M, {processes} workers"
                say(f"\n{name}: ms beyond {WAITED_MS} waited   DDP   Starling   ratio   peak memory MB (DDP, Starling)")
                torch_side, own_side = [], []
                for pair in range(pairs):
                    torch_side.append(torch_processes(["step", "--parameters", str(parameters), "--processes",
                                                       str(processes), "--steps", str(steps)]))
                    job = write_step_job(folder, parameters, processes, steps)
                    own_side.append(starling_run(starling, job, "step", processes, 1, steps))
                    a, b = torch_side[-1], own_side[-1]
                    beyond = [side["step_ms"] - WAITED_MS for side in (a, b)]
                    say(f"  pair {pair + 1:<24}{beyond[0]:>10.1f}{beyond[1]:>10.1f}{beyond[1] / beyond[0]:>8.2f}"
                        f"   {a['memory_mb']:.0f}, {b['memory_mb']:.0f}")
                a, b = (statistics.median(r["step_ms"] for r in side) - WAITED_MS for side in (torch_side, own_side))
                say(f"  median                       {a:>10.1f}{b:>10.1f}{b / a:>8.2f}")
                results[name] = {"pytorch": torch_side, "starling": own_side}


def compare_allreduce(starling, rounds, results):
    """float32 with gloo beside int32 with Starling, which is what each of them trains with."""
    say("\nall-reduce, ms: median (fastest)            gloo          Starling   ratio")
    sizes = ((1 << 20, 100), (1 << 24, 20))
    for turn in range(rounds):
        own_side = starling_allreduce(starling)
        for processes in (2, 4):
            for size, repetitions in sizes:
                a = torch_processes(["allreduce", "--processes", str(processes), "--bytes", str(size),
                                     "--repetitions", str(repetitions)])
                b = own_side[f"allreduce_direct_w{processes}_{size}B"]
                name = f"{processes} processes, {size >> 20:>2} MiB"
                say(f"  round {turn + 1}, {name}   {a['median_ms']:>8.2f} ({a['min_ms']:.2f})"
                    f"{b['median']:>10.2f} ({b['min']:.2f}){a['median_ms'] / b['median']:>8.2f}")
                results.setdefault(f"allreduce {name}", []).append({"pytorch": a, "starling": b})


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]
    except FileNotFoundError:
        return ""


def compare(arguments):
    import torch

    with open("/proc/cpuinfo", encoding="utf-8") as info:
        cpu = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    say(f"{first_line([arguments.starling, 'version'])}; PyTorch {torch.__version__}; {cpu}, {os.cpu_count()} cores; "
        f"load {os.getloadavg()[0]:.1f}; commit {first_line(['git', 'rev-parse', '--short', 'HEAD']) or 'unknown'}")
    results, wanted = {}, arguments.only.split(",")
    if "tiny" in wanted:
        compare_training(arguments.starling, "tiny", arguments.pairs, 25, results)
    if "llama-tiny" in wanted:
        compare_training(arguments.starling, "llama-tiny", arguments.pairs, 25, results)
    for model in ("gpt2", "llama"):
        if model in wanted:
            compare_training(arguments.starling, model, min(arguments.pairs, 2), 6, results)
    if "step" in wanted:
        compare_step(arguments.starling, arguments.pairs, [int(s) for s in arguments.sizes.split(",")], results)
    if "allreduce" in wanted:
        compare_allreduce(arguments.starling, min(arguments.pairs, 3), results)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(results, stream, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    whole = commands.add_parser("compare")
    whole.add_argument("--starling", required=True)
    whole.add_argument("--pairs", type=int, default=5)
    whole.add_argument("--only", default="tiny,gpt2,llama-tiny,llama,step,allreduce")
    whole.add_argument("--sizes", default=",".join(map(str, STEP_SIZES)))
    whole.add_argument("--json")
    training = commands.add_parser("train")
    training.add_argument("--model", choices=SHAPES, required=True)
    training.add_argument("--threads", type=int, default=1)
    training.add_argument("--steps", type=int, default=25)
    stepping = commands.add_parser("step")
    stepping.add_argument("--parameters", type=int, required=True)
    stepping.add_argument("--steps", type=int, default=30)
    reducing = commands.add_parser("allreduce")
    reducing.add_argument("--bytes", type=int, required=True)
    reducing.add_argument("--repetitions", type=int, default=20)
    for part in (training, stepping, reducing):
        part.add_argument("--processes", type=int, default=1)
        part.add_argument("--rank", type=int)
        part.add_argument("--store")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        compare(arguments)
    elif arguments.rank is None:
        print(json.dumps(torch_processes(sys.argv[1:] if "--processes" in sys.argv else sys.argv[1:] + ["--processes", "1"])))
    else:
        {"train": train_rank, "step": step_rank, "allreduce": allreduce_rank}[arguments.command](arguments)


if __name__ == "__main__":
    main()
