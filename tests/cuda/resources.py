#!/usr/bin/env python3
"""What the kernels of the GPU plugin take, as ptxas said when they were compiled: no kernel keeps registers in
memory, and none has more of them than its bound, so that as many blocks run beside each other as were planned for.

  resources.py FOLDER      reads the *.ptxas files of the build below that folder; one line a kernel, exit code 1 if
                           one is beyond its bound
  resources.py --self-test
"""
import pathlib
import re
import sys

# Registers of a thread, by the kernel's name; all others have REGISTERS_MAX, with which four blocks of 256 threads
# lie in the 65,536 registers of a processor. What computes with tiles keeps them in registers on purpose.
REGISTERS_MAX = 64
REGISTERS = {
    "product": 255,           # blocks of 256 threads: one a processor, with three stages of tiles ahead
    "forward": 255,           # attention, blocks of 128 threads: two a processor
    "backward_queries": 255,
    "backward_keys": 255,
    "checksum_kernel": 255,   # a warp a segment, of which there are hundreds: one a processor's quarter suffices
    "digest_kernel": 255,
    "norm_backward_held": 168,  # blocks of 384 threads
    "norm_held": 96,
    "apply_kernel": 72,
    "run_sums": 128,
}

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")


def usages(text):
    """(architecture, mangled name, registers, bytes of stack and spills) of each kernel."""
    entry, memory = None, 0
    for line in text.splitlines():
        if found := ENTRY.search(line):
            entry, memory = (found[2], found[1]), 0
        elif found := MEMORY.search(line):
            memory = sum(map(int, found.groups()))
        elif (found := USED.search(line)) and entry:
            yield *entry, int(found[1]), memory
            entry = None


def readable(name):
    """The words of a mangled name that are ours: those of namespaces go."""
    words, rest = [], name
    while found := re.search(r"(?<!\d)(\d+)([A-Za-z_])", rest):
        length, begin = int(found[1]), found.start(2)
        words.append(rest[begin:begin + length])
        rest = rest[begin + length:]
    return "::".join(w for w in words if not w.startswith("_GLOBAL") and w not in ("starling", "kernels", "cuda"))


def bound(name):
    for word, most in REGISTERS.items():
        if word in name:
            return most
    return REGISTERS_MAX


def check(text):
    """Findings, and a table."""
    findings, table = [], []
    for architecture, mangled, registers, memory in usages(text):
        name = readable(mangled)
        table.append(f"{architecture:7} {registers:4} registers  {name}")
        if memory:
            findings.append(f"{architecture} {name}: {memory} bytes of stack and spills; expected none")
        if registers > bound(name):
            findings.append(f"{architecture} {name}: {registers} registers; expected at most {bound(name)}")
    if not table:
        findings.append("no kernel was found")
    return findings, table


def self_test():
    good = ("ptxas info    : Compiling entry function '_ZN8starling7kernels4cuda12_GLOBAL__N_13addEv' for 'sm_90'\n"
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            "ptxas info    : Used 40 registers, used 1 barriers\n")
    assert check(good) == ([], ["sm_90     40 registers  add"]), check(good)
    for planted in (good.replace("Used 40", "Used 65"), good.replace("0 bytes stack", "8 bytes stack"),
                    good.replace("0 bytes spill loads", "4 bytes spill loads"), ""):
        assert len(check(planted)[0]) == 1, planted
    print("resources: each check fails on what it is for")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    findings, table = check("".join(path.read_text() for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.ptxas"))))
    print("\n".join(sorted(table)))
    for finding in findings:
        print("resources:", finding)
    print(f"resources: {len(findings)} findings in {len(table)} kernels")
    sys.exit(1 if findings else 0)


main()
