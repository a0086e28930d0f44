#!/usr/bin/env python3
"""GPT-2 124M in PyTorch on this machine's GPU, as people train it: torch.compile, bf16 autocast over fp32 weights,
flash attention, fused AdamW. What Starling's speed is held against in the same hour on the same card.

  gpu_torch.py                       micro-batches of 16, 32 and 8 sequences of 1024 tokens
  gpu_torch.py --deterministic       the same with PyTorch's deterministic algorithms
  gpu_torch.py --attention cudnn     the same with cuDNN's attention instead of FlashAttention-2
  gpu_torch.py --ceilings            no model: how fast the card copies, and multiplies 8192 x 8192 matrices
  gpu_torch.py --device cpu --tiny   a model of a few seconds, to try this script without a GPU

One JSON object a line. Exit code 0 if all was measured, 1 if something failed, 77 without PyTorch or a GPU.

  tokens_per_s        forward, backward and AdamW for every micro-batch
  micro_tokens_per_s  forward and backward alone: what is repeated where a step has several micro-batches
  mfu                 of the latter, over the card's bf16 rate in NVIDIA's data sheet (null for other cards)
  same_gradient       whether the gradient of one batch had the same bits three times
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench"))
from compare_pytorch import GPT2, build_model  # noqa: E402

SKIPPED = 77
# 50257 tokens, filled up to a multiple of 64, with which products are faster.
FULL = dict(GPT2, context=1024, vocabulary=50304)
TINY = dict(layers=2, heads=2, width=64, context=64, vocabulary=256)
# Dense bf16 products, TFLOP/s. The first name that is part of the card's counts.
DATA_SHEET = (("H100 PCIe", 756.0), ("H100 NVL", 835.0), ("H100", 989.4), ("H200", 989.4), ("A100", 312.0))


def say(**figures):
    print(json.dumps(figures), flush=True)


def flop_per_token(shape):
    """As `starling-bench model` counts: 6 per weight of a product; of attention what is visible."""
    width = shape["width"]
    weights = shape["layers"] * 12 * width * width + shape["vocabulary"] * width
    return 6 * weights + shape["layers"] * 2 * 6 * width * (shape["context"] + 1) / 2


def data_sheet(name):
    return next((rate for part, rate in DATA_SHEET if part in name), None)


class Bench:
    def __init__(self, arguments):
        import torch

        self.torch, self.arguments = torch, arguments
        self.cuda = arguments.device == "cuda"
        self.card = torch.cuda.get_device_name() if self.cuda else "cpu"
        self.shape = TINY if arguments.tiny else FULL
        self.begun = time.monotonic()

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def seconds(self, work, times):
        """Of one `work`, as the mean of so many without a wait between them."""
        self.wait()
        begun = time.perf_counter()
        for _ in range(times):
            work()
        self.wait()
        return (time.perf_counter() - begun) / times

    def left(self):
        return self.arguments.seconds - (time.monotonic() - self.begun)

    def ceilings(self):
        torch = self.torch
        bytes_copied, n = (1 << 20, 256) if self.arguments.tiny else (1 << 32, 8192)
        source = torch.empty(bytes_copied, dtype=torch.uint8, device=self.arguments.device)
        target = torch.empty_like(source)
        a, b = (torch.randn(n, n, device=self.arguments.device).bfloat16() for _ in range(2))
        copy, product = (lambda: target.copy_(source)), (lambda: a @ b)
        for work in (copy, product):
            self.seconds(work, 3)
        nccl = torch.cuda.nccl.version() if self.cuda else None
        say(name="ceilings", card=self.card, torch=torch.__version__, cuda=torch.version.cuda,
            nccl=".".join(map(str, nccl)) if nccl else None,
            copy_gb_per_s=round(2 * bytes_copied / self.seconds(copy, 10) / 1e9, 1),
            product_tflop_per_s=round(2 * n**3 / self.seconds(product, 10) / 1e12, 2))

    def measure(self, sequences):
        torch, shape, device = self.torch, self.shape, self.arguments.device
        torch.manual_seed(1)
        # Code for one batch size after the other; else the second one would get code for any size.
        torch._dynamo.reset()
        model = build_model(shape).to(device)
        compiled = torch.compile(model, dynamic=False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        rows = torch.randint(shape["vocabulary"], (sequences, shape["context"] + 1), device=device)
        tokens, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

        def gradient():
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = compiled(tokens, targets)
            loss.backward()
            return loss

        def micro_batch():
            optimizer.zero_grad(set_to_none=True)
            gradient()

        def whole():
            micro_batch()
            optimizer.step()

        compile_s = self.seconds(micro_batch, 1)
        first = [p.grad.clone() for p in model.parameters()]
        same = True
        for _ in range(2):
            micro_batch()
            same = same and all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), first))
        del first
        loss = gradient().item()
        times = 3 if self.arguments.tiny else max(10, 320 // sequences)
        self.seconds(whole, 3)
        whole_s, micro_s = self.seconds(whole, times), self.seconds(micro_batch, times)
        count = sequences * shape["context"]
        peak = data_sheet(self.card)
        rate = count / micro_s * flop_per_token(shape) / 1e12
        say(name="gpt2-tiny" if self.arguments.tiny else "gpt2-124m", card=self.card, torch=torch.__version__,
            sequences=sequences, deterministic=self.arguments.deterministic,
            attention=self.arguments.attention, tokens_per_s=round(count / whole_s),
            micro_tokens_per_s=round(count / micro_s), micro_ms=round(1000 * micro_s, 3),
            tflop_per_s=round(rate, 2), mfu=round(rate / peak, 4) if peak else None, same_gradient=same,
            loss=round(loss, 4), compile_s=round(compile_s, 1),
            memory_gb=round(torch.cuda.max_memory_allocated() / 1e9, 2) if self.cuda else None)

    def models(self):
        torch = self.torch
        torch.use_deterministic_algorithms(self.arguments.deterministic)
        if self.cuda:
            for kind in ("flash", "cudnn", "mem_efficient", "math"):
                getattr(torch.backends.cuda, f"enable_{kind}_sdp")(kind == self.arguments.attention)
            torch.cuda.reset_peak_memory_stats()
        torch.utils.deterministic.fill_uninitialized_memory = False  # a help for those who look for errors
        measured, failed, longest = 0, False, 0.0
        for sequences in self.arguments.sequences or ([2] if self.arguments.tiny else [16, 32, 8]):
            if self.left() < 1.5 * longest + 5:
                say(name="left out", sequences=sequences, deterministic=self.arguments.deterministic,
                    why=f"{self.left():.0f} s are left of {self.arguments.seconds:.0f}")
                continue
            begun = time.monotonic()
            try:
                self.measure(sequences)
                measured += 1
            except torch.OutOfMemoryError:
                failed = True
                say(name="failed", sequences=sequences, why="out of memory")
            longest = max(longest, time.monotonic() - begun)
        return failed or not measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a model of a few seconds")
    parser.add_argument("--sequences", type=int, nargs="+", metavar="N", help="of a micro-batch")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--attention", choices=("flash", "cudnn"), default="flash")
    parser.add_argument("--seconds", type=float, default=300, help="begin no size for which there is no time left")
    parser.add_argument("--ceilings", action="store_true")
    arguments = parser.parse_args()
    # Read when cuBLAS starts; both modes have it, so that they differ in the algorithms alone.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        import torch
    except ImportError as error:
        print(f"gpu_torch.py: no PyTorch in {sys.executable}: {error}", file=sys.stderr)
        return SKIPPED
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print(f"gpu_torch.py: PyTorch {torch.__version__} sees no GPU", file=sys.stderr)
        return SKIPPED
    bench = Bench(arguments)
    if arguments.ceilings:
        bench.ceilings()
        return 0
    return 1 if bench.models() else 0


if __name__ == "__main__":
    sys.exit(main())
