#!/usr/bin/env python3
"""Writes a small classified data set: 8 x 8 pictures of digits, shifted, dimmed and noisy.

    python3 make_data.py digits.safetensors [--samples 360] [--seed 1]

The file is safetensors with x [n, 64] F32 and y [n] I32, which is what `kind = "classified"` reads.
The same arguments give the same bytes. Needs the standard library only.
"""
import argparse
import json
import random
import struct

FONT = {  # 5 columns, 7 rows
    0: "01110 10001 10011 10101 11001 10001 01110", 1: "00100 01100 00100 00100 00100 00100 01110",
    2: "01110 10001 00001 00010 00100 01000 11111", 3: "11111 00010 00100 00010 00001 10001 01110",
    4: "00010 00110 01010 10010 11111 00010 00010", 5: "11111 10000 11110 00001 00001 10001 01110",
    6: "00110 01000 10000 11110 10001 10001 01110", 7: "11111 00001 00010 00100 01000 01000 01000",
    8: "01110 10001 10001 01110 10001 10001 01110", 9: "01110 10001 10001 01111 00001 00010 01100",
}


def picture(digit, draw):
    right, down, light = draw.randrange(4), draw.randrange(2), 0.6 + 0.4 * draw.random()
    pixels = [0.0] * 64
    for row, line in enumerate(FONT[digit].split()):
        for column, bit in enumerate(line):
            pixels[(row + down) * 8 + column + right] = light * int(bit)
    # A sum of uniforms, not gauss(): no library function decides the last bit.
    return [p + 0.15 * (draw.random() + draw.random() + draw.random() - 1.5) for p in pixels]


def main():
    arguments = argparse.ArgumentParser(description="writes a small classified data set")
    arguments.add_argument("file")
    arguments.add_argument("--samples", type=int, default=360)
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_args()
    if args.samples < 1:
        arguments.error(f"--samples must be at least 1, is {args.samples}")

    draw = random.Random(args.seed)
    n = args.samples
    labels = [i % 10 for i in range(n)]
    x = b"".join(struct.pack("<64f", *picture(digit, draw)) for digit in labels)
    y = struct.pack(f"<{n}i", *labels)
    header = json.dumps({
        "x": {"dtype": "F32", "shape": [n, 64], "data_offsets": [0, len(x)]},
        "y": {"dtype": "I32", "shape": [n], "data_offsets": [len(x), len(x) + len(y)]},
    }, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % 8)
    with open(args.file, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + x + y)


if __name__ == "__main__":
    main()
