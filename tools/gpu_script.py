#!/usr/bin/env python3
"""transformers' GPT-2 124M by a script on this machine's GPU: as a job of Starling, and in a loop of plain PyTorch
beside it, with the same passes. What a job costs a script on a GPU.

  gpu_script.py                     a job of one worker: 4 micro-batches of 8 sequences of 1024 tokens a step
  gpu_script.py --plain             torch's own loop, with torch's own AdamW
  gpu_script.py --plain --deterministic     with the algorithms that a job computes with
  gpu_script.py --workers 2         two workers on the card
  gpu_script.py --isa avx2          the job's sums and weights in the host's memory
  gpu_script.py --lora              adapters of peft are trained, and nothing else
  gpu_script.py --tiny --device cpu a model of a few seconds, to try this script without a GPU

One JSON object at the end: tokens_per_s is the median of the steps after the 32nd, as the first of a job have one more pass
each (`recheck`), and of fewer steps that of their second half. Exit code 0, 1 if something failed, 77 without PyTorch, transformers, peft or a GPU."""
import argparse
import json
import statistics
import sys
import time

SKIPPED = 77
FULL = dict(n_layer=12, n_head=12, n_embd=768, n_positions=1024, vocab_size=50257)
TINY = dict(n_layer=2, n_head=2, n_embd=64, n_positions=64, vocab_size=256)
SAMPLES = 512
RECHECKED = 32  # steps with one more pass each


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="no job: a loop of PyTorch alone")
    parser.add_argument("--deterministic", action="store_true", help="with --plain: PyTorch's deterministic algorithms")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--isa", default="auto", help="of the job (default: auto)")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="processes that compute for each worker (default: 1)")
    parser.add_argument("--lora", action="store_true", help="train adapters of peft")
    parser.add_argument("--steps", type=int, help="default: 8, of a job 44")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or (8 if arguments.plain else 44)
    return arguments


ARGUMENTS = parsed()
SHAPE = TINY if ARGUMENTS.tiny else FULL
try:
    import torch
    import transformers
    if ARGUMENTS.lora:
        import peft
except ImportError as error:
    print(f"gpu_script.py: {error}", file=sys.stderr)
    sys.exit(SKIPPED)
if ARGUMENTS.device == "cuda" and not torch.cuda.is_available():
    print(f"gpu_script.py: PyTorch {torch.__version__} sees no GPU", file=sys.stderr)
    sys.exit(SKIPPED)


class Tokens(torch.utils.data.Dataset):
    """Sequences of drawn tokens, more of the first ones, as text has."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        drawn = torch.rand(SHAPE["n_positions"], generator=generator)
        return (drawn.pow(3) * SHAPE["vocab_size"]).long().clamp_(max=SHAPE["vocab_size"] - 1)


def build():
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        **SHAPE, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False, attn_implementation="sdpa"))
    if ARGUMENTS.lora:
        net = peft.get_peft_model(net, peft.LoraConfig(r=16, target_modules=["c_attn"], fan_in_fan_out=True))
    return net.to(ARGUMENTS.device), Tokens()


def loss(net, batch):
    tokens = batch.to(ARGUMENTS.device, non_blocking=True)
    with torch.autocast(ARGUMENTS.device, dtype=torch.bfloat16):
        return net(input_ids=tokens, labels=tokens).loss


def said(took, what, **more):
    tokens = ARGUMENTS.micro_batches * ARGUMENTS.batch * SHAPE["n_positions"]
    if len(took) < 3:
        sys.exit(f"gpu_script.py: {len(took)} steps were timed; expected at least 3 (--steps)")
    typical = statistics.median(took[RECHECKED:] if len(took) > RECHECKED + 4 else took[len(took) // 2:])
    card = torch.cuda.get_device_name() if ARGUMENTS.device == "cuda" else "cpu"
    print(json.dumps(dict(what=what, card=card, torch=torch.__version__, transformers=transformers.__version__,
                          tokens_per_s=round(tokens / typical), step_ms=round(1000 * typical, 1),
                          first_ms=round(1000 * took[0], 1), steps=len(took), **more)), flush=True)


def plain():
    torch.manual_seed(1)
    if ARGUMENTS.deterministic:
        torch.use_deterministic_algorithms(True)
    net, data = build()
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=3e-4, fused=ARGUMENTS.device == "cuda")
    took, at = [], time.perf_counter()
    for step in range(ARGUMENTS.steps):
        for m in range(ARGUMENTS.micro_batches):
            first = (step * ARGUMENTS.micro_batches + m) * ARGUMENTS.batch
            batch = torch.stack([data[(first + i) % SAMPLES] for i in range(ARGUMENTS.batch)])
            (loss(net, batch) / ARGUMENTS.micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if ARGUMENTS.device == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        took.append(now - at)
        at = now
    said(took, "plain PyTorch" + (", deterministic" if ARGUMENTS.deterministic else ""))


def job():
    import starling

    at = []
    trained = starling.train(
        build, loss, steps=ARGUMENTS.steps, micro_batches=ARGUMENTS.micro_batches, batch_size=ARGUMENTS.batch,
        optimizer=starling.AdamW(3e-4), workers=ARGUMENTS.workers, threads=ARGUMENTS.threads,
        out=ARGUMENTS.out, isa=ARGUMENTS.isa,
        log=lambda step, values: at.append(time.perf_counter()))
    said([after - before for before, after in zip(at, at[1:])], "a job of Starling", workers=ARGUMENTS.workers,
         threads=ARGUMENTS.threads, isa=ARGUMENTS.isa, digest=trained.digest)


if __name__ == "__main__":
    plain() if ARGUMENTS.plain else job()
