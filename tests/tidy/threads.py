#!/usr/bin/env python3
"""Whether clang's Thread Safety Analysis finds fault: what core/base/mutex.h marks as guarded is used under its mutex.

  threads.py CLANG BUILD ROOT         each use that it finds without its mutex, exit code 1 if there is one
  threads.py CLANG BUILD --self-test  the same of a good and a bad class in a scratch folder

BUILD has compile_commands.json. Looked at is each source that includes core/base/mutex.h, itself or by the header that
it includes first, and each header that does and has no such source. Exit code 77: there is no clang.
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOMS = ("core", "kernels", "collectives", "actors", "tools")
MUTEX = "core/base/mutex.h"
OPTIONAL = "kernels/cuda/"  # compiled where CUDA is
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BATCH = 16  # sources to one run of clang, which reads what they include once; names are unique, for unity builds
AT_ONCE = 2
GOOD = """#include "core/base/mutex.h"
class PlantedCount {
 public:
  void add() {
    const starling::MutexLock lock(mutex_);
    ++count_;
  }

 private:
  starling::Mutex mutex_;
  int count_ STARLING_GUARDED_BY(mutex_) = 0;
};
"""
BAD = GOOD.replace("    const starling::MutexLock lock(mutex_);\n", "")


def includes_of(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^#include "([^"]+)"', file.read(), re.MULTILINE)


def looked_at(root):
    """The sources with annotated classes and the headers that have no such source, by their paths from the root."""
    includes = {}
    for room in ROOMS:
        for folder, _, files in os.walk(os.path.join(root, room)):
            paths = (os.path.join(folder, f) for f in files if f.endswith((".h", ".cpp")))
            includes |= {os.path.relpath(path, root): includes_of(path) for path in paths}
    annotated = {name for name, of in includes.items() if MUTEX in of}
    sources = {name for name, of in includes.items()
               if name.endswith(".cpp") and (name in annotated or of[:1] and of[0] in annotated)}
    return sorted(sources | {name for name in annotated if name.removesuffix(".h") + ".cpp" not in sources})


def flags_of(build, root):
    """How each source is compiled, by its path from the root; the sources of a unity build as the one that has them."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    flags = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        kept = [w for i, w in enumerate(words)
                if w.startswith(("-D", "-I", "-std", "-m")) or words[i - 1] == "-isystem" or w == "-isystem"]
        sources = [entry["file"]]
        if "/Unity/unity_" in entry["file"]:
            sources = includes_of(entry["file"])
        for source in sources:
            flags.setdefault(os.path.relpath(source, root), tuple(kept))
    return flags


def batches_of(names, flags):
    """(flags, sources) for each run of clang, and what is compiled nowhere. A header goes with the sources around it."""
    alike, unknown = {}, []
    for name in names:
        near = [name] if name.endswith(".cpp") else [os.path.dirname(name) + "/", name.split("/")[0] + "/"]
        found = next((f for start in near for source, f in flags.items() if source.startswith(start)), None)
        if found is None:
            unknown.append(name)
        else:
            alike.setdefault(found, []).append(name)
    return [(f, some[i:i + BATCH]) for f, some in alike.items() for i in range(0, len(some), BATCH)], unknown


def analyse(clang, root, flags, names):
    """What clang says of these sources; empty: nothing."""
    text = "".join(f'#include "{os.path.join(root, name)}"\n' for name in names)
    said = subprocess.run([clang, *flags, "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror",
                           "-ferror-limit=0", "-x", "c++", "-"], input=text, capture_output=True, text=True)
    return said.stderr if said.returncode != 0 else ""


def self_test(clang, build):
    flags = flags_of(build, SOURCE)["core/base/build.cpp"]
    with tempfile.TemporaryDirectory() as root:
        for text, wanted in ((GOOD, False), (BAD, True)):
            with open(os.path.join(root, "planted.cpp"), "w", encoding="utf-8") as file:
                file.write(text)
            said = analyse(clang, root, flags, ["planted.cpp"])
            if ("requires holding mutex 'mutex_'" in said) != wanted or bool(said) != wanted:
                print(f"planted {text!r}: {said}")
                return 1
    print("self-test: a use without the mutex is found, one with it is not")
    return 0


def main(arguments):
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    clang, build, root = arguments
    if not os.path.exists(clang):
        print("threads: there is no clang, and nothing was looked at; tools/setup.sh --engines installs it")
        return 77
    if root == "--self-test":
        return self_test(clang, build)
    root = os.path.abspath(root)
    names = looked_at(root)
    batches, unknown = batches_of(names, flags_of(build, root))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(pool.map(lambda batch: analyse(clang, root, *batch), batches))
    found = "".join(said)
    print(found + f"threads: {found.count(' error: ')} findings in {len(names) - len(unknown)} files")
    if unknown:
        print("not compiled in this build: " + " ".join(unknown))
    return 1 if found or not all(name.startswith(OPTIONAL) for name in unknown) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
