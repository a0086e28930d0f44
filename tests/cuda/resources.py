#!/usr/bin/env python3
"""What the kernels of the GPU plugin take: no kernel keeps registers in memory, none has more of them than its
bound, so that as many blocks run beside each other as were planned for, and none adds floats by atomics, whose
order and so whose bits would be another one each time.

  resources.py PLUGIN      reads the plugin's machine code with cuobjdump; one line a kernel, exit code 1 if one
                           is not as it should be
  resources.py --self-test
"""
import re
import shutil
import subprocess
import sys

# Registers of a thread, by the kernel's name; all others have REGISTERS_MAX. With blocks of 256 threads and
# 65,536 registers of a processor: 64 let four blocks run, 128 two, 168 a block of 384 threads.
REGISTERS_MAX = 64
REGISTERS = {
    "multiply_kernel": 168,
    "attention": 255,
}

FUNCTION = re.compile(r"^ Function (\S+):")
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
# As machine code spells atomics on global (RED, ATOM, ATOMG) and shared memory (ATOMS).
FLOAT_ATOMIC = re.compile(r"\b(?:RED|ATOM[GS]?)\.\S*\b(?:F16|F32|F64|BF16)\S*")
ARCHITECTURE = re.compile(r"arch = (sm_\d+)")


def usages(text):
    """(architecture, mangled name, registers, stack, local) of each kernel."""
    architecture, name = "?", None
    for line in text.splitlines():
        if found := ARCHITECTURE.search(line):
            architecture = found[1]
        if found := FUNCTION.match(line):
            name = found[1]
        elif (found := USAGE.search(line)) and name:
            yield architecture, name, *map(int, found.groups())
            name = None


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
    for architecture, mangled, registers, stack, local in usages(text):
        name = readable(mangled)
        table.append(f"{architecture:7} {registers:4} registers  {name}")
        if stack or local:
            findings.append(f"{architecture} {name}: {stack} bytes of stack, {local} of local memory; expected none")
        if registers > bound(name):
            findings.append(f"{architecture} {name}: {registers} registers; expected at most {bound(name)}")
    if not table:
        findings.append("no kernel was found")
    return findings, table


def float_atomics(code):
    """Findings in machine code."""
    name = "?"
    for line in code.splitlines():
        if found := re.search(r"Function : (\S+)", line):
            name = found[1]
        if found := FLOAT_ATOMIC.search(line):
            yield f"{readable(name)}: {found[0]}: adds floats by an atomic"


def self_test():
    good = (" arch = sm_90\n Function _ZN8starling7kernels4cuda12_GLOBAL__N_13addEv:\n"
            "  REG:40 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:600\n")
    assert check(good) == ([], ["sm_90     40 registers  add"]), check(good)
    for planted in (good.replace("REG:40", "REG:65"), good.replace("STACK:0", "STACK:8"),
                    good.replace("LOCAL:0", "LOCAL:4"), ""):
        assert len(check(planted)[0]) == 1, planted
    code = "Function : _ZN8starling3addEv\n /*0080*/ RED.E.ADD.64.STRONG.GPU desc[UR4][R2.64], R4 ;\n"
    assert not list(float_atomics(code))
    for planted in ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", "ATOMS.CAST.F32", "ATOMG.E.ADD.F64.RN.STRONG.GPU"):
        assert len(list(float_atomics(code.replace("RED.E.ADD.64.STRONG.GPU", planted)))) == 1, planted
    print("resources: each check fails on what it is for")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tool = shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump"

    def read(what):
        return subprocess.run([tool, what, sys.argv[1]], check=True, capture_output=True, text=True).stdout

    findings, table = check(read("--dump-resource-usage"))
    findings += float_atomics(read("--dump-sass"))
    print("\n".join(sorted(table)))
    for finding in findings:
        print("resources:", finding)
    print(f"resources: {len(findings)} findings in {len(table)} kernels")
    sys.exit(1 if findings else 0)


main()
