#!/usr/bin/env python3
"""Checks of the sources that a compiler does not make: who may include whom (docs/design.md, section 3),
what elastic/ must not know, and the habits that keep the tree readable.

  tidy.py ROOT         check the tree below ROOT; one line per finding, exit code 1 if there is one
  tidy.py --self-test  plant one bad file after the other in a scratch tree and see each check fail
"""

import os
import re
import sys
import tempfile

ROOMS = ("core", "kernels", "collectives", "elastic", "actors", "tools", "examples", "tests")

# May use: each room may include itself and these (docs/design.md, section 3).
MAY_USE = {
    "core": (),
    "kernels": ("core",),
    "collectives": ("core",),
    "elastic": ("core",),
    "actors": ("core", "kernels", "collectives", "elastic"),
    "tools": ("core", "kernels", "collectives", "elastic", "actors"),
    "examples": ("core", "kernels", "collectives", "elastic", "actors"),
    "tests": ("core", "kernels", "collectives", "elastic", "actors", "tools"),
}

# Of core's folders: what a room or a folder of core may include. Words that everybody uses know of no
# job; what computes knows of no message and no file.
MAY_USE_OF_CORE = {
    "core/base": ("base",),
    "core/job": ("base", "job"),
    "core/wire": ("base", "job", "wire"),
    "core/data": ("base", "job", "formats", "data"),
    "core/formats": ("base", "job", "wire", "formats"),
    "core/observe": ("base", "job", "wire", "observe"),
    "core/text": ("base", "text"),
    "kernels": ("base", "job", "data"),
    "actors/script": ("base", "job", "data"),
    "collectives": ("base", "job", "wire"),
}

# A room below a room that knows less than what is around it: what its includes may begin with.
INNER_ROOMS = {"actors/script/": ("actors/script/", "core/", "kernels/")}

# kernels/ is arithmetic: it starts no process, and talks to none.
OTHERS = re.compile(r"^(spawn\.h|poll\.h|signal\.h|csignal|netdb\.h|sys/(socket|wait|un|epoll)\.h"
                    r"|(netinet|arpa)/.*|boost/asio.*)$")

# tools/judge and tools/chaos judge runs, so they use nothing of what runs but this; why that is no danger to a
# verdict stands in their READMEs.
JUDGES_MAY_USE = {
    "tools/judge/": ("tools/judge/", "core/base/"),
    "tools/chaos/": ("tools/chaos/", "tools/judge/", "tools/processes/", "core/base/", "core/job/",
                     "collectives/tcp/handshake.h"),
}
JUDGES_MAY_ALSO_USE = {
    "tools/judge/story.h": "core/observe/event.h",
    "tools/judge/story_file.cpp": "core/observe/event_reader.h",
    "tools/judge/audit/sample_order.cpp": "core/data/lanes.h",
}

# elastic/ is pure: events in, commands out. No thread, clock, socket, file or random source.
IMPURE = re.compile(
    r"^(thread|mutex|shared_mutex|condition_variable|atomic|future|stop_token|barrier|latch|semaphore"
    r"|chrono|ctime|time\.h|random|cstdio|stdio\.h|iostream|fstream|filesystem|csignal|signal\.h"
    r"|unistd\.h|fcntl\.h|poll\.h|pthread\.h|netdb\.h|(sys|netinet|arpa|linux)/.*|zmq.*|caf/.*|sodium.*"
    r"|boost/asio.*|spdlog/.*)$"
)
IMPURE_CALLS = re.compile(
    r"\b(rand|srand|random|time|clock|clock_gettime|gettimeofday|getenv|getrandom|usleep|nanosleep)\s*\("
    r"|\bthread_local\b|\b__rdtsc\b"
)

CAF_ROOMS = ("actors", "tools", "examples", "tests")
GPU_INCLUDE = re.compile(r"^(cuda|cublas|cudnn|nccl|curand|cooperative_groups|nvtx|nvToolsExt)")
WALL_CLOCK_WAIT = re.compile(
    r"\bcaf::after\b|_until\(.*\bsystem_clock\b|\b(sem|mq|pthread)_\w*timed\w*\(|\bstd::\w*timed_mutex\b"
)
PLAIN_MUTEX = re.compile(r"\bstd::(mutex|condition_variable)\b")
MUTEX_ROOMS = ("core/", "kernels/", "collectives/", "actors/", "tools/")
MAY_HAVE_PLAIN_MUTEX = ("core/base/mutex.h",)  # wraps them
GPU_PLACES = ("kernels/cuda/", "collectives/nccl/", "tests/cuda/", "tests/nccl/")

# The one place where the process's environment is read, and the seam by which tests give another.
ENVIRONMENT = ("core/base/environment.h", "core/base/environment.cpp")
READS_ENVIRONMENT = re.compile(r"\b(secure_)?getenv\b")
EXCHANGES_ENVIRONMENT = re.compile(r"\bexchange_environment\b")
VARIABLE_ROW = re.compile(r'\bVARIABLE\(k\w+, "([^"]*)", "([^"]*)", "([^"]*)"\)')

SOURCE_ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".inc")  # .inc: a piece of a source, for one place
TEXT_ENDINGS = SOURCE_ENDINGS + (".capnp", ".cmake", ".txt", ".sh", ".py", ".md", ".toml", ".json")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(work|root|home|farm|Users|mnt)/\w|(?<![\w.$}])/tmp/[A-Za-z0-9]")
LINES_MAX = 500
LONG_REASON = re.compile(r"long because", re.IGNORECASE)
README_LINES_MAX = 60

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def files_of(root):
    """All text files of the rooms, docs and the top folder, as (path from root, text)."""
    tops = [name for name in ROOMS + ("docs", ".ci") if os.path.isdir(os.path.join(root, name))]
    names = [n for n in os.listdir(root) if os.path.isfile(os.path.join(root, n))]
    for top in tops:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if not f.startswith((".", "build", "__pycache__"))]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    for name in sorted(names):
        if name.endswith(TEXT_ENDINGS) or name in (".ci/run", "LICENSE", "NOTICE"):
            with open(os.path.join(root, name), encoding="utf-8") as stream:
                yield name, stream.read()


def includes_of(text):
    """(line number, "<" or '"', path) of every include."""
    return [(text.count("\n", 0, m.start(1)) + 1, m[1], m[2]) for m in INCLUDE.finditer(text)]


def code_lines(text):
    """Lines without // comments and string literals, for checks that look for calls."""
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
        yield number, line.split("//", 1)[0]


def check_layers(tree):
    """A room includes only itself and the rooms below it, by the full path from the root."""
    for name, text in tree.items():
        room = name.split("/", 1)[0]
        if not name.endswith(SOURCE_ENDINGS) or room not in MAY_USE:
            continue
        for line, kind, path in includes_of(text):
            other = path.split("/", 1)[0]
            if kind == "<" and other in ROOMS and "/" in path and path in tree:
                yield name, line, f"own header <{path}> needs quotes"
            if kind != '"':
                continue
            if path.endswith(".capnp.h"):
                known = path[: -len(".h")] in tree
            else:
                known = path in tree
            if not known:
                yield name, line, f'"{path}" is no file of the project, seen from its root'
            elif other != room and other not in MAY_USE[room]:
                yield name, line, f"{room} may not include {other} ({path})"


def check_folders_of_core(tree):
    """Who includes what of core, by folder."""
    for name, text in tree.items():
        place = next((p for p in MAY_USE_OF_CORE if name.startswith(p + "/")), None)
        if place is None or not name.endswith(SOURCE_ENDINGS):
            continue
        for line, _, path in includes_of(text):
            parts = path.split("/")
            if parts[0] == "core" and len(parts) > 2 and parts[1] not in MAY_USE_OF_CORE[place]:
                yield name, line, f"{place} may not include core/{parts[1]} ({path})"


def check_elastic_is_pure(tree):
    """elastic/ includes no thread, clock, socket, file or random source, itself or through core/."""
    seen, queue = {}, [(n, n) for n in tree if n.startswith("elastic/") and n.endswith(SOURCE_ENDINGS)]
    while queue:
        name, via = queue.pop()
        if name in seen:
            continue
        seen[name] = via
        for line, kind, path in includes_of(tree[name]):
            if kind == "<" and IMPURE.match(path):
                yield (name, line, f"<{path}> in the pure room elastic/") if name == via else (
                    via, 1, f"<{path}> reaches the pure room elastic/ through {name}:{line}")
            if kind == '"' and path in tree:
                queue.append((path, via))
        if name.startswith("elastic/"):
            for line, code in code_lines(tree[name]):
                if call := IMPURE_CALLS.search(code):
                    yield name, line, f"{call[0].strip()} in the pure room elastic/"


def check_judges_stand_apart(tree):
    """What judges includes nothing of what it judges, and what counts and compares hardly anything at all."""
    for name, text in tree.items():
        room = next((room for room in JUDGES_MAY_USE if name.startswith(room)), None)
        if not room or not name.endswith(SOURCE_ENDINGS):
            continue
        for line, kind, path in includes_of(text):
            if kind == '"' and not path.startswith(JUDGES_MAY_USE[room]) and JUDGES_MAY_ALSO_USE.get(name) != path:
                yield name, line, f"{room} may not include {path}"


def check_inner_rooms(tree):
    """A room below a room has a README, and includes only what it is said to."""
    for room, may_use in INNER_ROOMS.items():
        sources = [name for name in tree if name.startswith(room) and name.endswith(SOURCE_ENDINGS)]
        if sources and room + "README.md" not in tree:
            yield room + "README.md", 1, "missing"
        for name in sources:
            for line, kind, path in includes_of(tree[name]):
                if kind == '"' and not path.startswith(may_use):
                    yield name, line, f"{room} may not include {path}"


def check_kernels_are_alone(tree):
    """kernels/ includes nothing by which a process starts another or talks to one."""
    for name, text in tree.items():
        if name.startswith("kernels/") and name.endswith(SOURCE_ENDINGS):
            for line, kind, path in includes_of(text):
                if kind == "<" and OTHERS.match(path):
                    yield name, line, f"<{path}>: kernels/ is arithmetic"


def check_caf_stays_up(tree):
    """CAF appears in actors/ and above only, and in no room below actors/."""
    for name, text in tree.items():
        here = name.split("/", 1)[0] in CAF_ROOMS and not name.startswith(tuple(INNER_ROOMS))
        if name.endswith(SOURCE_ENDINGS) and not here:
            for line, _, path in includes_of(text):
                if path.startswith("caf/"):
                    yield name, line, f"<{path}>: CAF belongs to actors/ and above"


def check_gpu_stays_in_its_place(tree):
    """CUDA and NCCL headers only in kernels/cuda and collectives/nccl."""
    for name, text in tree.items():
        if name.endswith(SOURCE_ENDINGS) and not name.startswith(GPU_PLACES):
            for line, kind, path in includes_of(text):
                if kind == "<" and GPU_INCLUDE.match(path):
                    yield name, line, f"<{path}>: only kernels/cuda and collectives/nccl may"


def check_waits_by_the_monotonic_clock(tree):
    """A wall clock that is set back makes a wait by it longer: also CAF's `receive` with a time-out."""
    for name, text in tree.items():
        if not name.endswith(SOURCE_ENDINGS) or name.startswith("tests/"):
            continue
        for line, code in code_lines(text):
            if WALL_CLOCK_WAIT.search(code):
                yield name, line, "waits by the wall clock (actors/inbox.h, std::chrono::steady_clock)"


def check_pragma_once(tree):
    """Every header begins with #pragma once."""
    for name, text in tree.items():
        if name.endswith((".h", ".cuh")) and not text.startswith("#pragma once\n"):
            yield name, 1, "first line is not #pragma once"


def check_finished(tree):
    """Nothing is left for later in a comment: what is missing stands in docs/."""
    for name, text in tree.items():
        for line, content in enumerate(text.splitlines(), 1):
            if found := UNFINISHED.search(content):
                yield name, line, f"{found[0]}: do it, or write down in docs/ what is missing"


def check_no_machine_paths(tree):
    """No path that exists on one machine only."""
    for name, text in tree.items():
        for line, content in enumerate(text.splitlines(), 1):
            if found := MACHINE_PATH.search(content):
                yield name, line, f"a path of one machine: {found[0]}"


def check_length(tree):
    """A source above 500 lines says in its head comment why ("Long because ...")."""
    for name, text in tree.items():
        lines = text.splitlines()
        if name.endswith(SOURCE_ENDINGS) and len(lines) > LINES_MAX:
            if not LONG_REASON.search("\n".join(lines[:40])):
                yield name, len(lines), f"{len(lines)} lines and no 'Long because ...' in its head comment"


def check_no_throw(tree):
    """No exceptions of our own: Result<T>. Tests may throw to provoke, an allocation to fail as usual."""
    for name, text in tree.items():
        if name.endswith(SOURCE_ENDINGS) and not name.startswith("tests/"):
            for line, code in code_lines(text):
                if re.search(r"\bthrow\b(?! (std::bad_alloc|NoMemory)\b)", code):
                    yield name, line, "throw: errors are values here (core/base/result.h)"


def check_environment(tree):
    """The environment is read in core/base/environment.cpp, and docs/environment.md has the rows of its table."""
    for name, text in tree.items():
        if not name.endswith(SOURCE_ENDINGS) or name.startswith("tests/") or name in ENVIRONMENT:
            continue
        for line, code in code_lines(text):
            if READS_ENVIRONMENT.search(code):
                yield name, line, "getenv: environment() has what is read (core/base/environment.h)"
            if EXCHANGES_ENVIRONMENT.search(code):
                yield name, line, "exchange_environment is for tests"
    table = [f"| `{name}` | {says} | {without} |"
             for name, says, without in VARIABLE_ROW.findall(tree.get(ENVIRONMENT[0], ""))]
    document = tree.get("docs/environment.md", "").splitlines()
    listed = [line for line in document if line.startswith("| `")]
    for row in table:
        if row not in listed:
            yield "docs/environment.md", 1, f"lacks the row of {ENVIRONMENT[0]}: {row}"
    for row in listed:
        if row not in table:
            yield "docs/environment.md", document.index(row) + 1, f"{ENVIRONMENT[0]} has no such row"


def check_mutexes_are_annotated(tree):
    """A mutex is core/base/mutex.h's, with which clang sees what it guards (threads.py)."""
    for name, text in tree.items():
        if name.startswith(MUTEX_ROOMS) and name.endswith(SOURCE_ENDINGS) and name not in MAY_HAVE_PLAIN_MUTEX:
            for line, code in code_lines(text):
                if found := PLAIN_MUTEX.search(code):
                    yield name, line, f"{found[0]}: clang does not see what it guards (core/base/mutex.h)"


def check_readmes(tree):
    """Every room has a README.md of at most 60 lines."""
    for room in ROOMS:
        if not any(n.startswith(room + "/") for n in tree):
            continue
        text = tree.get(f"{room}/README.md")
        if text is None:
            yield f"{room}/README.md", 1, "missing"
        elif len(text.splitlines()) > README_LINES_MAX:
            yield f"{room}/README.md", README_LINES_MAX, f"longer than {README_LINES_MAX} lines"


def check_named(tree):
    """Every file of the top folder is named in README.md or CONTRIBUTING.md, every package that
    tools/setup.sh installs in docs/dependencies.md, every library of that file in NOTICE."""
    entrance = tree.get("README.md", "") + tree.get("CONTRIBUTING.md", "")
    for name in tree:
        if "/" not in name and name != "README.md" and name not in entrance:
            yield name, 1, "named neither in README.md nor in CONTRIBUTING.md"
    dependencies = tree.get("docs/dependencies.md", "")
    for m in re.finditer(r"^.*packages\+?=\(([^)]*)\)", tree.get("tools/setup.sh", ""), re.MULTILINE):
        for package in m[1].split():
            if not re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", dependencies):
                yield "tools/setup.sh", 1, f"{package} is not named in docs/dependencies.md"
    section = re.search(r"^## Linked or included$(.*?)(^## |\Z)", dependencies, re.MULTILINE | re.DOTALL)
    for row in re.findall(r"^\| ([^|]+) \|", section[1] if section else "", re.MULTILINE)[1:]:
        for library in re.sub(r" \(.*?\)", "", row).split(", "):
            if not library.startswith("---") and library not in tree.get("NOTICE", ""):
                yield "NOTICE", 1, f"has no notice of {library}"


def check_tests_run(tree):
    """A test that its file's main() does not name never runs: each function of a place alone is named again."""
    for path, text in tree.items():
        if not re.match(r"tests/(e2e|python)/\w+\.py$", path):
            continue
        for found in re.finditer(r"^def ([a-z]\w*)\(place\):", text, re.M):
            if len(re.findall(rf"\b{found[1]}\b", text)) < 2:
                yield path, text[:found.start()].count("\n") + 1, f"{found[1]}() is a test that does not run"


CHECKS = (
    check_layers,
    check_folders_of_core,
    check_elastic_is_pure,
    check_judges_stand_apart,
    check_inner_rooms,
    check_kernels_are_alone,
    check_caf_stays_up,
    check_gpu_stays_in_its_place,
    check_waits_by_the_monotonic_clock,
    check_pragma_once,
    check_finished,
    check_no_machine_paths,
    check_length,
    check_no_throw,
    check_environment,
    check_mutexes_are_annotated,
    check_readmes,
    check_named,
    check_tests_run,
)


def findings(root):
    tree = dict(files_of(root))
    return [(check.__name__, *finding) for check in CHECKS for finding in check(tree)]


# What must be found: check, file, its text. Each is planted alone into a tree that has no finding.
GOOD = {room + "/README.md": f"# {room}\n" for room in ROOMS} | {
    "core/base/clock.h": "#pragma once\n#include <chrono>\n",
    "core/base/word.h": "#pragma once\n#include <cstdint>\n",
    "core/base/environment.h": '#pragma once\n#define E(VARIABLE) VARIABLE(kOne, "ONE", "which", "none")\n',
    "core/base/environment.cpp": 'const char* one() { return std::getenv("ONE"); }\n',
    "docs/environment.md": "| variable | says | without it |\n| --- | --- | --- |\n| `ONE` | which | none |\n",
    "core/wire/m.capnp": "@0x1;\n",
    "core/wire/codec.cpp": '#include "core/wire/m.capnp.h"\n',
    "kernels/table.h": '#pragma once\n#include "core/base/word.h"\n',
    "kernels/cuda/table.cu": "#include <cuda_runtime.h>\n",
    "elastic/vote.h": '#pragma once\n#include "core/base/word.h"\n// time (an event) and rand() are not used\n',
    "actors/worker.h": '#pragma once\n#include <caf/all.hpp>\n#include "elastic/vote.h"\n',
    "actors/script/README.md": "# script\n",
    "actors/script/child.h": '#pragma once\n#include <spawn.h>\n#include "kernels/table.h"\n',
    "core/job/job.h": "#pragma once\n",
    "tools/chaos/stage.h": '#pragma once\n#include "core/job/job.h"\n',
    "tools/judge/verdict.h": '#pragma once\n#include "core/base/word.h"\n',
    "tools/starling/run.h": '#pragma once\n#include "actors/worker.h"\n',
    "README.md": "Licence: LICENSE, NOTICE\n",
    "LICENSE": "Apache\n",
    "NOTICE": "libbest: MIT\n",
    "tools/setup.sh": "packages=(\n  libbest-dev\n)\n",
    "docs/dependencies.md": "## Linked or included\n| library | package |\n| --- | --- |\n"
                            "| libbest (C) | libbest-dev |\n## Tools\n",
    "core/base/table.cpp": "// A table of constants.\n// Long because it is a table.\n" + "\n" * 600,
}
BAD = (
    ("check_layers", "core/bad.cpp", '#include "elastic/vote.h"\n'),
    ("check_layers", "kernels/bad.cpp", '#include "elastic/vote.h"\n'),
    ("check_layers", "elastic/bad.cpp", '#include "kernels/table.h"\n'),
    ("check_layers", "collectives/bad.cpp", '  #  include "actors/worker.h"\n'),
    ("check_layers", "actors/bad.cpp", '#include "tests/bad.h"\n'),
    ("check_layers", "actors/bad.cpp", '#include "worker.h"\n'),
    ("check_layers", "actors/bad.cpp", "#include <elastic/vote.h>\n"),
    ("check_folders_of_core", "core/base/bad.cpp", '#include "core/wire/m.capnp.h"\n'),
    ("check_folders_of_core", "kernels/bad.cpp", '#include "core/wire/m.capnp.h"\n'),
    ("check_elastic_is_pure", "elastic/bad.cpp", "#include <thread>\n"),
    ("check_elastic_is_pure", "elastic/bad.cpp", "#include <sys/socket.h>\n"),
    ("check_elastic_is_pure", "elastic/bad.cpp", "#include <fstream>\n"),
    ("check_elastic_is_pure", "elastic/bad.cpp", "#include <random>\n"),
    ("check_elastic_is_pure", "elastic/bad.cpp", '#include "core/base/clock.h"\n'),
    ("check_elastic_is_pure", "elastic/bad.cpp", "int f() { return rand(); }\n"),
    ("check_judges_stand_apart", "tools/chaos/bad.cpp", '#include "tools/starling/run.h"\n'),
    ("check_judges_stand_apart", "tools/chaos/bad.cpp", '#include "elastic/vote.h"\n'),
    ("check_judges_stand_apart", "tools/judge/verdict.cpp", '#include "core/job/job.h"\n'),
    ("check_judges_stand_apart", "tools/judge/verdict.h", '#pragma once\n#include "tools/chaos/stage.h"\n'),
    ("check_inner_rooms", "actors/script/bad.cpp", '#include "actors/worker.h"\n'),
    ("check_inner_rooms", "actors/script/bad.cpp", '#include "elastic/vote.h"\n'),
    ("check_folders_of_core", "actors/script/bad.cpp", '#include "core/wire/m.capnp.h"\n'),
    ("check_kernels_are_alone", "kernels/bad.cpp", "#include <spawn.h>\n"),
    ("check_kernels_are_alone", "kernels/device/bad.cpp", "#include <sys/socket.h>\n"),
    ("check_caf_stays_up", "actors/script/bad.cpp", "#include <caf/all.hpp>\n"),
    ("check_caf_stays_up", "kernels/bad.cpp", "#include <caf/all.hpp>\n"),
    ("check_caf_stays_up", "collectives/bad.h", "#pragma once\n#include <caf/actor.hpp>\n"),
    ("check_waits_by_the_monotonic_clock", "actors/bad.cpp", "self->receive(x, caf::after(s) >> y);\n"),
    ("check_waits_by_the_monotonic_clock", "core/bad.cpp",
     "changed.wait_until(lock, std::chrono::system_clock::now() + s);\n"),
    ("check_waits_by_the_monotonic_clock", "tools/bad.cpp", "sem_timedwait(&s, &until);\n"),
    ("check_gpu_stays_in_its_place", "kernels/cpu/bad.cpp", "#include <cuda_runtime.h>\n"),
    ("check_gpu_stays_in_its_place", "collectives/tcp/bad.cpp", "#include <nccl.h>\n"),
    ("check_pragma_once", "core/bad.h", "// no guard\n"),
    ("check_finished", "core/bad.cpp", "// TO" "DO: later\n"),
    ("check_finished", "docs/bad.md", "FIX" "ME\n"),
    ("check_no_machine_paths", "tools/bad.sh", "cd /ho" "me/somebody\n"),
    ("check_no_machine_paths", "core/bad.cpp", 'const char* p = "/t' 'mp/x";\n'),
    ("check_length", "core/bad.cpp", "// A long file.\n" + "\n" * 501),
    ("check_no_throw", "core/bad.cpp", "void f() { throw 1; }\n"),
    ("check_environment", "core/bad.cpp", 'const char* one() { return ::getenv("ONE"); }\n'),
    ("check_environment", "tools/bad.cpp", "void f() { exchange_environment(nullptr); }\n"),
    ("check_environment", "docs/environment.md", "| `ONE` | something else | none |\n"),
    ("check_environment", "docs/environment.md", "| `ONE` | which | none |\n| `TWO` | which | none |\n"),
    ("check_mutexes_are_annotated", "kernels/bad.h", "#pragma once\nclass A {\n  mutable std::mutex mutex_;\n};\n"),
    ("check_mutexes_are_annotated", "actors/bad.cpp", "struct A {\n  std::condition_variable changed;\n};\n"),
    ("check_readmes", "core/README.md", "# core\n" + "\n" * 61),
    ("check_tests_run", "tests/e2e/bad_test.py", "def one(place):\n    pass\n\n\nmain()\n"),
    ("check_named", "EXTRA.md", "nobody knows why\n"),
    ("check_named", "NOTICE", "none\n"),
    ("check_named", "tools/setup.sh", "packages=(\n  libbest-dev libother-dev\n)\n"),
)


def plant(root, files):
    for name, text in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)


def self_test():
    failures = 0
    with tempfile.TemporaryDirectory() as root:
        plant(root, GOOD)
        for finding in findings(root):
            failures += 1
            print("good tree:", *finding)
    for wanted, name, text in BAD:
        with tempfile.TemporaryDirectory() as root:
            plant(root, GOOD | {name: text})
            found = [(check, path) for check, path, _, _ in findings(root)]
            if (wanted, name) not in found or any(f != (wanted, name) for f in found):
                failures += 1
                print(f"planted {name!r} {text[:60]!r}: wanted {wanted} alone, got {found}")
    untested = {c.__name__ for c in CHECKS} - {wanted for wanted, _, _ in BAD}
    for check in sorted(untested):
        failures += 1
        print(f"{check} has no planted file")
    print(f"self-test: {len(BAD)} planted files, {failures} failures")
    return 1 if failures else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        print(__doc__, file=sys.stderr)
        return 2
    found = findings(arguments[0])
    for check, name, line, text in found:
        print(f"{name}:{line}: {text} [{check}]")
    print(f"tidy: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
