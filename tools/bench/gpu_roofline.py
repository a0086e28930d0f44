#!/usr/bin/env python3
"""What a micro-batch of a GPT takes on a GPU at least: each kernel by its own limit.

A kernel is bound by the memory it moves or by the products it makes, whichever takes longer at a rate
that such machines reach (not the data sheet's). The table is a prediction to measure against: it shows
which kernel falls short of its limit, and what there is to gain. Gaps between kernels are not in it.

  gpu_roofline.py                          GPT-2 124M, 16 sequences of 1024 tokens, bf16
  gpu_roofline.py --attention 300          what attention with WGMMA would give
  gpu_roofline.py --layers 24 --width 1024 --heads 16     GPT-2 350M
  gpu_roofline.py --markdown               for a document

Columns: calls of a micro-batch; megabytes and GFLOP of one call; on each device what binds it, the
microseconds of one call, the milliseconds of all calls and their share of the micro-batch. Below: the
sums, with what is done for each micro-batch and for each step (of --micro-batches) behind it.
"""
import argparse
import dataclasses

# bytes/s: a large copy as measured, reads and writes together. FLOP/s: mean of bf16 products of a GPT's
# shapes, of which an H100 reaches 790e12 at 8192^3; attention with mma.sync reaches about 200e12.
DEVICES = {
    "H100": {"memory": 3.0e12, "products": 650e12, "attention": 200e12},
    "H200": {"memory": 4.3e12, "products": 650e12, "attention": 200e12},
}
BF16, FP32 = 2, 4  # bytes


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    sequences: int

    @property
    def rows(self):
        return self.sequences * self.context

    @property
    def columns(self):
        """Of logits: the vocabulary, rounded up so that products have whole tiles."""
        return -(-self.vocabulary // 128) * 128

    @property
    def table(self):
        """Of tokens, in parameters; used twice, as embedding and as classifier."""
        return self.vocabulary * self.width

    @property
    def parameters(self):
        # A layer: 3 + 1 + 4 + 4 matrices of width^2, their biases, gain and bias of two norms.
        c = self.width
        return self.table + self.context * c + self.layers * (12 * c * c + 13 * c) + 2 * c


@dataclasses.dataclass(frozen=True)
class Kernel:
    part: str
    name: str
    calls: int
    bytes: float
    flop: float = 0.0
    unit: str = "products"  # which rate its FLOP have


def product(part, name, calls, m, n, k, out=BF16, beside=0):
    """[m,n] = [m,k] [k,n] of bf16: 2 m n k FLOP; each operand is read once and the result written once,
    as caches hold what tiles share. beside: bytes of each element that the epilogue reads or writes."""
    return Kernel(part, name, calls, BF16 * (m * k + k * n) + (out + beside) * m * n, 2.0 * m * n * k)


def kernels_of(m):
    """Every kernel of a micro-batch: rows R, width C, columns of logits W, all activations bf16."""
    R, C, W, L, T = m.rows, m.width, m.columns, m.layers, m.context
    statistics = 2 * FP32 * R  # mean and rstd of each row
    log_sums = FP32 * R * m.heads
    # One of causal attention's products over a head: 2 T T D FLOP, half of them below the diagonal. All
    # heads and sequences: R T C.
    triangle = float(R) * T * C
    F, B, H, E = "forward", "backward", "head", "tokens"  # the first two: of each layer
    return [
        # A row of wte (fp32) for each token, wpe once (then in the cache); rows out.
        # The working parameters, each part when it has come.
        Kernel(E, "to_bf16", 1, (FP32 + BF16) * m.parameters),
        Kernel(E, "embed", 1, R * C * (FP32 + BF16) + T * C * FP32),
        # x in, y out. Twice a layer.
        Kernel(F, "layer_norm", 2 * L, 2 * BF16 * R * C + statistics),
        product(F, "qkv product", L, R, 3 * C, C),
        # Scores and their product with values: 2 triangles. qkv in, out out.
        Kernel(F, "attention", L, 4 * BF16 * R * C + log_sums, 2 * triangle, "attention"),
        # The epilogue adds the residual stream: one more element read.
        product(F, "projection product", L, R, C, C, beside=BF16),
        # The epilogue writes u, which the backward pass needs, beside gelu(u).
        product(F, "widening product, GELU", L, R, 4 * C, C, beside=BF16),
        product(F, "narrowing product", L, R, C, 4 * C, beside=BF16),
        Kernel(H, "layer_norm", 1, 2 * BF16 * R * C + statistics),
        product(H, "logits", 1, R, W, C),
        # Logits in, their gradient out; the second reading comes from the L2 cache.
        Kernel(H, "cross_entropy", 1, 2 * BF16 * R * W),
        product(H, "d_wte", 1, W, C, R, out=FP32),
        product(H, "d_normed", 1, R, C, W),
        # x, dy in; dx out. Columns' sums of kRowRuns runs are small against it.
        Kernel(H, "layer_norm_backward", 1, 3 * BF16 * R * C + statistics),
        # The epilogue reads u and gives du = (d_out W^T) gelu'(u).
        product(B, "d_gelu: narrowing^T", L, R, 4 * C, C, beside=BF16),
        product(B, "d_narrowing", L, 4 * C, C, R, out=FP32),
        product(B, "d_normed: widening^T", L, R, C, 4 * C),
        product(B, "d_widening", L, C, 4 * C, R, out=FP32),
        # x, dy and the residual's gradient in; dx out. Twice a layer.
        Kernel(B, "layer_norm_backward", 2 * L, 4 * BF16 * R * C + statistics),
        product(B, "d_heads: projection^T", L, R, C, C),
        product(B, "d_projection", L, C, C, R, out=FP32),
        # rows_dots: out and d_out in. By keys: K, V once, Q and d_out in tiles, dK and dV out: 6 RC.
        # By queries: the same four in, dQ out: 5 RC. Products: 4 by keys, 3 by queries.
        Kernel(B, "attention_backward", L, (2 + 6 + 5) * BF16 * R * C + 5 * log_sums, 7 * triangle,
               "attention"),
        product(B, "d_normed: qkv^T", L, R, C, 3 * C),
        product(B, "d_qkv", L, C, 3 * C, R, out=FP32),
        # Biases: d_out of the two residual products (C), of the widening (4 C), of qkv (3 C).
        Kernel(B, "column_sums, width", 2 * L, BF16 * R * C),
        Kernel(B, "column_sums, 4 width", L, BF16 * R * 4 * C),
        Kernel(B, "column_sums, 3 width", L, BF16 * R * 3 * C),
        # Rows of d_out in; the whole table out, zeros for tokens that do not occur.
        Kernel(E, "embed_backward", 1, BF16 * R * C + FP32 * m.table),
        Kernel(E, "position_gradient", 1, BF16 * R * C + FP32 * T * C),
    ]


def grid_kernels_of(m):
    """Behind every micro-batch: gradient in, sums in and out. The table's two uses are added each."""
    return [Kernel("grid", "add", 1, 3 * FP32 * (m.parameters + m.table))]


def step_kernels_of(m):
    """Behind a step's last micro-batch, with one worker. Exponents are 1/128 of this and left out."""
    N = m.parameters
    return [
        Kernel("step", "squares", 1, FP32 * N),  # totals in
        # Totals in; weights and two moments of AdamW in and out.
        Kernel("step", "apply", 1, 7 * FP32 * N),
        Kernel("step", "checksum of state", 1, 3 * FP32 * N),  # weights and moments in
        Kernel("step", "publish", 1, 2 * FP32 * N),  # weights in, working parameters out
        Kernel("step", "checksum of parameters", 1, FP32 * N),
        Kernel("step", "clear the sums", 1, FP32 * N),
    ]


def seconds(kernel, device):
    """Of one call, and what binds it."""
    limits = [(kernel.bytes / device["memory"], "memory")]
    if kernel.flop:
        limits.append((kernel.flop / device[kernel.unit], kernel.unit))
    return max(limits)


def total(kernels, device):
    return sum(k.calls * seconds(k, device)[0] for k in kernels)


def rows_of(kernels, devices, whole):
    """Lines of the table; shares are of `whole`, seconds by device."""
    for k in kernels:
        row = [k.part, k.name, str(k.calls), f"{k.bytes / 1e6:.1f}", f"{k.flop / 1e9:.1f}"]
        for name, device in devices.items():
            time, limit = seconds(k, device)
            row += [limit, f"{time * 1e6:.1f}", f"{k.calls * time * 1e3:.2f}",
                    f"{100 * k.calls * time / whole[name]:.1f}"]
        yield row


def layer_row(kernels, model, devices, whole):
    own = [k for k in kernels if k.part in ("forward", "backward")]
    moved = sum(k.calls * k.bytes for k in own) / model.layers
    flop = sum(k.calls * k.flop for k in own) / model.layers
    row = ["", "one layer, both ways", str(model.layers), f"{moved / 1e6:.1f}", f"{flop / 1e9:.1f}"]
    for name, device in devices.items():
        time = total(own, device)
        row += ["", f"{time / model.layers * 1e6:.1f}", f"{time * 1e3:.2f}",
                f"{100 * time / whole[name]:.1f}"]
    return row


def sum_row(title, kernels, devices, whole):
    row = ["", title, "", f"{sum(k.calls * k.bytes for k in kernels) / 1e6:.0f}",
           f"{sum(k.calls * k.flop for k in kernels) / 1e9:.0f}"]
    for name, device in devices.items():
        time = total(kernels, device)
        row += ["", "", f"{time * 1e3:.2f}", f"{100 * time / whole[name]:.1f}"]
    return row


def text(table, markdown):
    """The table's lines. Its first row is the head; the first two columns stand left."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    left = {0, 1} | {i for i, cell in enumerate(table[0]) if cell.endswith("limit")}

    def line(row):
        cells = [cell.ljust(width) if i in left else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        return "| " + " | ".join(cells) + " |" if markdown else "  ".join(cells).rstrip()

    lines = [line(row) for row in table]
    if markdown:
        lines.insert(1, "| " + " | ".join("-" * width if i in left else "-" * (width - 1) + ":"
                                          for i, width in enumerate(widths)) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default, meaning in (("layers", 12, "transformer layers"),
                                     ("width", 768, "of the residual stream"),
                                     ("heads", 12, "of attention"),
                                     ("context", 1024, "tokens of a sequence"),
                                     ("vocabulary", 50257, "tokens there are"),
                                     ("sequences", 16, "of a micro-batch"),
                                     ("micro-batches", 32, "of a step, for the last sum")):
        parser.add_argument(f"--{option}", type=int, default=default, metavar="N",
                            help=f"{meaning} (default {default})")
    for option in ("products", "attention"):
        parser.add_argument(f"--{option}", type=float, metavar="TFLOP/S",
                            help=f"another rate of {option} for all devices")
    parser.add_argument("--markdown", action="store_true", help="a Markdown table")
    args = parser.parse_args()
    counts = (args.layers, args.width, args.heads, args.context, args.vocabulary, args.sequences)
    if min(*counts, args.micro_batches) < 1:
        parser.error("numbers must be at least 1")
    if args.width % args.heads:
        parser.error(f"width {args.width} is no multiple of {args.heads} heads")
    rates = {"products": args.products, "attention": args.attention}
    if any(rate is not None and rate <= 0 for rate in rates.values()):
        parser.error("rates must be above 0")

    model = Model(*counts)
    changed = {unit: rate * 1e12 for unit, rate in rates.items() if rate is not None}
    devices = {name: {**device, **changed} for name, device in DEVICES.items()}
    kernels, grid, step = kernels_of(model), grid_kernels_of(model), step_kernels_of(model)
    whole = {name: total(kernels, device) for name, device in devices.items()}
    head = ["part", "kernel", "calls", "MB", "GFLOP"]
    for name in devices:
        head += [f"{name} limit", "us", "ms", "%"]
    table = [head, *rows_of(kernels, devices, whole),
             layer_row(kernels, model, devices, whole),
             sum_row("the micro-batch", kernels, devices, whole),
             *rows_of(grid + step, devices, whole), sum_row("a step's end", step, devices, whole)]

    print(f"{model.parameters / 1e6:.1f} M parameters, {model.sequences} x {model.context} tokens, "
          f"{sum(k.calls * k.flop for k in kernels) / model.rows / 1e6:.0f} MFLOP a token")
    for name, device in devices.items():
        print(f"{name}: {device['memory'] / 1e12:.1f} TB/s, products {device['products'] / 1e12:.0f} "
              f"TFLOP/s, attention {device['attention'] / 1e12:.0f} TFLOP/s")
    print()
    print("\n".join(text(table, args.markdown)))
    print()
    for name, device in devices.items():
        added = whole[name] + total(grid, device)
        stepped = added + total(step, device) / args.micro_batches
        print(f"{name}: {model.rows / whole[name] / 1e3:.0f} k tokens/s; with the add "
              f"{model.rows / added / 1e3:.0f} k; with a step's end each {args.micro_batches} "
              f"micro-batches {model.rows / stepped / 1e3:.0f} k")


if __name__ == "__main__":
    main()
