#!/usr/bin/env python3
"""Whether clang-format, with .clang-format of the top folder, would leave every source as it is.

  format.py CLANG_FORMAT ROOT         one line per place it would change, exit code 1 if there is one
  format.py CLANG_FORMAT --self-test  the same of a good and a badly written file in a scratch folder
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOMS = ("core", "kernels", "collectives", "elastic", "actors", "tools", "examples", "tests")
ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".inc")
VERSION = "14"  # Debian 12's; others break lines elsewhere
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOOD, BAD = "int f() {\n  return 1;  // one\n}\n", "int f()\n{ return 1; }\n"


def sources_of(root):
    for room in ROOMS:
        for folder, folders, files in os.walk(os.path.join(root, room)):
            folders[:] = [f for f in folders if not f.startswith((".", "build"))]
            yield from (os.path.join(folder, f) for f in files if f.endswith(ENDINGS))


def findings(program, root):
    sources = sorted(sources_of(root))
    said = subprocess.run([program, "--dry-run", "--Werror", "--style=file", *sources],
                          capture_output=True, text=True)
    found = [line for line in said.stderr.splitlines() if "clang-format-violations" in line]
    if said.returncode != 0 and not found:
        found = said.stderr.splitlines()
    return [os.path.relpath(line, root) for line in found], len(sources)


def self_test(program):
    for text, wanted in ((GOOD, 0), (BAD, 1)):
        with tempfile.TemporaryDirectory() as root:
            shutil.copy(os.path.join(SOURCE, ".clang-format"), root)
            os.mkdir(os.path.join(root, "core"))
            with open(os.path.join(root, "core", "planted.cpp"), "w") as file:
                file.write(text)
            found, _ = findings(program, root)
            if min(len(found), 1) != wanted or any("core/planted.cpp:" not in f for f in found):
                print(f"planted {text!r}: {found}")
                return 1
    print("self-test: a badly written file is found, a good one is not")
    return 0


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    program, root = arguments
    if not os.path.exists(program):
        print("format: there is no clang-format; tools/setup.sh installs it", file=sys.stderr)
        return 2
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    if not re.search(rf"version {VERSION}\.", version):
        print(f"format: {program} is {version.strip()}; needed is version {VERSION}", file=sys.stderr)
        return 2
    if root == "--self-test":
        return self_test(program)
    found, count = findings(program, root)
    print("\n".join(found + [f"format: {len(found)} findings in {count} sources; clang-format -i FILE"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
