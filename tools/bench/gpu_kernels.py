#!/usr/bin/env python3
"""What each kernel of a micro-batch of GPT-2 124M took on a GPU, beside what it takes at least.

  ncu --clock-control none --graph-profiling node --metrics gpu__time_duration.sum --csv --page raw \\
    starling-bench device --speed --sequences 16 --threads 1 --micro-batches 1 >kernels.csv
  gpu_kernels.py kernels.csv               a table for people
  gpu_kernels.py kernels.csv --json        one JSON object a line, for gpu_check.sh
  gpu_kernels.py kernels.csv --card H200   with the limits of another card than the H100

A row is a kind of kernel: its calls in a micro-batch, the milliseconds of all of them, and the limit that
gpu_roofline.py counts for them. Below: each kernel by its name and grid, the dearest first. Under ncu
kernels run one after another, so gaps between them are not in the sum.

Exit code 0, or 2 where the file has no kernels.
"""
import argparse
import collections
import csv
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_roofline import DEVICES, Model, grid_kernels_of, kernels_of, seconds  # noqa: E402

# By the first part of a name that is found in a kernel's: what gpu_roofline.py calls the rows.
KINDS = (("add_kernel", "add"), ("finish_add", "add"), ("norm_backward", "layer_norm_backward"), ("norm_", "layer_norm"),
         ("forward<", "attention"), ("backward_", "attention_backward"), ("rows_dots", "attention_backward"),
         ("classify", "cross_entropy"), ("add_losses", "cross_entropy"), ("run_sums", "column_sums"),
         ("combine_runs", "column_sums"), ("narrow_all", "to_bf16"), ("embed_rows", "embed"),
         ("add_token_rows", "embed_backward"), ("add_sequences", "position_gradient"))
FACTORS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1, "second": 1}


def kind_of(name):
    return next((kind for part, kind in KINDS if part in name), "products")


def row_of(kernel):
    if "product" in kernel.unit and kernel.flop:
        return "products"
    return "column_sums" if kernel.name.startswith("column_sums") else kernel.name


def read(path):
    """Kernels as (name, grid, seconds), in the order in which they ran."""
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return []
    head, units = rows[0], rows[1]
    name, grid = head.index("Kernel Name"), head.index("Grid Size")
    time = next((i for i, title in enumerate(head) if "gpu__time_duration" in title), None)
    if time is None or units[time] not in FACTORS:
        return []
    return [(row[name], row[grid], float(row[time].replace(",", "")) * FACTORS[units[time]]) for row in rows[2:]]


def short(name):
    name = re.sub(r"\(.*", "", name).replace("void ", "").replace("starling::<unnamed>::", "")
    return name if len(name) <= 76 else name[:73] + "..."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=pathlib.Path, help="what ncu printed")
    parser.add_argument("--card", choices=DEVICES, default="H100")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--top", type=int, default=25, metavar="N", help="so many kernels below (default 25)")
    args = parser.parse_args()
    kernels = read(args.csv)
    # The positions' gradient ends a pass; what follows it, up to its add, belongs to the pass. Later ones may be cut off.
    ends = [i for i, (name, _, _) in enumerate(kernels) if "add_sequences" in name]
    passes = len(ends)
    end = ends[-1] + 1 if ends else 0
    while end < len(kernels) and kind_of(kernels[end][0]) == "add":
        end += 1
    kernels = kernels[:end]
    if passes == 0:
        print(f"gpu_kernels.py: {args.csv} has no kernels of a micro-batch", file=sys.stderr)
        return 2

    model = Model(layers=12, width=768, heads=12, context=1024, vocabulary=50257, sequences=16)
    limits = collections.Counter()
    for kernel in kernels_of(model) + grid_kernels_of(model):
        limits[row_of(kernel)] += kernel.calls * seconds(kernel, DEVICES[args.card])[0]
    took, calls, single = collections.Counter(), collections.Counter(), {}
    for name, grid, time in kernels:
        kind = kind_of(name)
        # The accumulators' first micro-batch is not added: it finds the grid's exponents.
        share = passes - 1 if kind == "add" and passes > 1 else passes
        took[kind] += time / share
        calls[kind] += 1 / share
        of_one = single.setdefault((short(name), grid), [0, 0.0])
        of_one[0] += 1
        of_one[1] += time
    whole, least = sum(took.values()), sum(limits.values())
    if args.json:
        for kind, time in took.most_common():
            print(json.dumps({"name": "kernels", "kind": kind, "calls": round(calls[kind], 1), "ms": round(1e3 * time, 4),
                              "limit_ms": round(1e3 * limits[kind], 4)}))
        print(json.dumps({"name": "micro-batch", "ms": round(1e3 * whole, 4), "limit_ms": round(1e3 * least, 4),
                          "passes": passes}))
        return 0
    print(f"{'kind':22s} {'calls':>6s} {'ms':>8s} {'limit':>8s} {'times':>6s}")
    for kind, time in took.most_common():
        ratio = f"{time / limits[kind]:6.2f}" if limits[kind] else ""
        print(f"{kind:22s} {calls[kind]:6.0f} {1e3 * time:8.3f} {1e3 * limits[kind]:8.3f} {ratio}")
    print(f"{'all':22s} {sum(calls.values()):6.0f} {1e3 * whole:8.3f} {1e3 * least:8.3f} {whole / least:6.2f}\n")
    print(f"{'calls':>6s} {'us':>8s} {'ms':>8s}  kernel")
    for (name, grid), (count, time) in sorted(single.items(), key=lambda item: -item[1][1])[:args.top]:
        print(f"{count / passes:6.1f} {1e6 * time / count:8.1f} {1e3 * time / passes:8.3f}  {name} {grid}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
