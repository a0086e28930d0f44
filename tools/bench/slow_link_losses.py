#!/usr/bin/env python3
"""The held-out loss of the tiny GPT after equally many tokens: by steps of the usual kind, by local steps of several lengths, with
grids of several bits, and with samples in either order.

Each job takes the same samples: 4 micro-batches of 8 sequences of 128 bytes for each (local) step. Prints a row for each job and seed.

  tools/bench/slow_link_losses.py build/release/starling --tokens 2097152 --held-out /usr/include/linux
  tools/bench/slow_link_losses.py build/release/starling --local 1 --grid none 10 8 6 8:nearest 6:nearest --tokens 819200
  tools/bench/slow_link_losses.py build/release/starling --local 1 --order global lanes --tokens 819200
"""
import argparse
import array
import itertools
import json
import os
import subprocess
import sys
import tempfile

MICRO_BATCHES, SEQUENCES, CONTEXT = 4, 8, 128
JOB = """[job]
name = "losses"
seed = {seed}
steps = {steps}
micro_batches = {micro_batches}
sequences = {sequences}
precision = "{precision}"
[model]
kind = "gpt"
layers = 4
heads = 4
width = 128
context = {context}
vocabulary = 256
{optimizers}{numbers}
[data]
kind = "{kind}"
path = "{data}"
{order}[evaluate]
path = "{held_out}"
every = {steps}
batches = 64
"""
ADAMW = 'kind = "adamw"\npeak_rate = {rate}\nwarmup_steps = {warmup}\n'


def optimizers(local, steps, rate, outer):
    inner = ADAMW.format(rate=rate, warmup=min(100, steps // 8))
    if local == 1:
        return "[optimizer]\n" + inner
    rate, momentum = outer
    return (f'[optimizer]\nkind = "sgd"\npeak_rate = {rate}\nmomentum = {momentum}\nnesterov = {"true" if momentum else "false"}\n'
            f"[local]\nsteps = {local}\n{inner}")


def numbers(grid):
    if grid == "none":
        return ""
    bits, _, rounding = grid.partition(":")
    return f'[numbers]\ngrid_bits = {bits}\nrounding = "{rounding or "stochastic"}"\n'


def bytes_as_tokens(path, file):
    """Writes the bytes of all files below a folder as tokens of 16 bits."""
    names = sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    with open(file, "wb") as out:
        for name in names:
            if os.path.isfile(name) and not os.path.islink(name):
                with open(name, "rb") as text:
                    array.array("H", list(text.read())).tofile(out)
    return file


def held_out_loss(starling, folder, options, local, grid, order, seed):
    """Returns the loss and the digest."""
    steps = options.tokens // (MICRO_BATCHES * SEQUENCES * CONTEXT)
    if steps % local != 0:
        sys.exit(f"slow_link_losses: {steps} steps are no multiple of {local}")
    name = f"{local}-{grid}-{order}-{seed}"
    job = os.path.join(folder, f"{name}.toml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB.format(seed=seed, steps=steps // local, micro_batches=MICRO_BATCHES, sequences=SEQUENCES * local, context=CONTEXT,
                              precision=options.precision, optimizers=optimizers(local, steps, options.rate, options.outer), numbers=numbers(grid),
                              data=options.data, held_out=options.held_out, kind="tokens" if order else "text",
                              order=f'order = "{order}"\n' if order else ""))
    out = os.path.join(folder, name)
    done = subprocess.run([starling, "run", job, "--workers", "1", "--threads", str(options.threads), "--out", out], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"slow_link_losses: {done.stdout}{done.stderr}")
    with open(os.path.join(out, "events.jsonl"), encoding="utf-8") as stream:
        events = [json.loads(line) for line in stream]
    return [e["loss"] for e in events if e["ev"] == "evaluation"][-1], [e["digest"] for e in events if e["ev"] == "done"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starling")
    parser.add_argument("--tokens", type=int, default=2_097_152)
    parser.add_argument("--local", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--grid", nargs="+", default=["none"], metavar="BITS[:ROUNDING]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--outer", type=float, nargs=2, default=[0.7, 0.9], metavar=("RATE", "MOMENTUM"))
    parser.add_argument("--order", nargs="+", default=[""], choices=["global", "lanes"], help="of bytes as tokens, in shards")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", default="/usr/include/c++")
    parser.add_argument("--held-out", default="/usr/include/linux")
    options = parser.parse_args()
    print("| local steps | grid | order | seed | held-out loss | digest |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="starling-losses-") as folder:
        if options.order != [""]:
            shards = os.path.join(folder, "shards")
            subprocess.run([options.starling, "shard", bytes_as_tokens(options.data, os.path.join(folder, "data.bin")), "--to", shards], check=True)
            options.data = shards
            options.held_out = bytes_as_tokens(options.held_out, os.path.join(folder, "held-out.bin"))
        for local, grid, order, seed in itertools.product(options.local, options.grid, options.order, options.seeds):
            loss, digest = held_out_loss(options.starling, folder, options, local, grid, order, seed)
            print(f"| {local} | {grid} | {order or 'global'} | {seed} | {loss:.4f} | {digest[:8]} |", flush=True)


if __name__ == "__main__":
    main()
