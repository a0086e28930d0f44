"""A process that has done the imports with which a script begins, and from which those are forked that compute for a
worker: each is there at once, however long the imports take. No other line of the script runs here.

Bits do not depend on it: what is imported is installed, in the script's order, up to the first line that is no such
import. Where a fork would not be as a process of its own (an import has started a thread, has opened a GPU, or has
drawn random numbers), or an import fails, the worker is told that there is none, and starts each process by itself."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.util
import os
import random
import signal
import struct
import sys
import sysconfig
from typing import Iterator

from .child import LIFELINE, SOCKET, Channel, die_with_the_worker

NAME = "starling warm"  # as `ps -e` and /proc/PID/comm have it
NO_PROCESS = 0
_PACKAGE = os.path.dirname(os.path.realpath(__file__))
_DEVICES = ("/dev/nvidia", "/dev/dri", "/dev/kfd")


def leading_imports(text: str) -> "Iterator[tuple[ast.stmt, list[str]]]":
    """The statements with which a script begins while they are imports, each with the packages that it imports of."""
    for i, statement in enumerate(ast.parse(text).body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and i == 0:
            continue  # the docstring
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            continue
        if isinstance(statement, ast.Import):
            names = [one.name for one in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
            names = [statement.module]
        else:
            return
        yield statement, [name.split(".")[0] for name in names]


def is_installed(package: str, script: str) -> bool:
    """Whether every process finds the package in the same place, and not beside the script."""
    if package in sys.builtin_module_names:
        return True
    folder = os.path.dirname(os.path.realpath(script))
    while True:
        if any(os.path.exists(os.path.join(folder, package + ending)) for ending in ("", ".py")):
            return False
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    found = importlib.util.find_spec(package)
    if found is None:
        return False
    library = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
    places = list(found.submodule_search_locations or ([found.origin] if found.origin else []))
    real = [os.path.realpath(place) for place in places]
    return found.origin in ("built-in", "frozen") or bool(real) and all(
        place.startswith((library, _PACKAGE)) or {"site-packages", "dist-packages"} & set(place.split(os.sep)) for place in real)


def do_imports(script: str) -> None:
    """Raises what an import raises, and OSError or SyntaxError of the script."""
    with open(script, "rb") as file:
        text = file.read().decode()
    here, sys.path[:] = list(sys.path), sys.path[1:] if sys.path[:1] == [os.getcwd()] else sys.path  # as the script has it
    try:
        for statement, packages in leading_imports(text):
            if not all(is_installed(package, script) for package in packages):
                return
            exec(compile(ast.Module([statement], []), script, "exec"), {"__name__": "warm"})
    finally:
        sys.path[:] = here


def can_fork() -> bool:
    """Whether a fork of this process is as a process of its own: without threads, and without a GPU's driver."""
    if len(os.listdir("/proc/self/task")) > 1:
        return False
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{file}").startswith(_DEVICES):
                return False
    return True


def _call_itself(name: str) -> None:
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(name)


def _own_name() -> str:
    with contextlib.suppress(OSError), open("/proc/self/comm", encoding="utf-8") as file:
        return file.read().rstrip("\n")
    return "python3"


def _forked(files: "list[int]") -> int:
    """A process whose parent is the worker, as this process's child has forked it and is gone: the worker has asked for
    orphans (PR_SET_CHILD_SUBREAPER). 0 in that process, which has the files as a process that the worker starts."""
    heard, told = os.pipe()
    between = os.fork()
    if between:
        os.close(told)
        with open(heard, "rb") as pipe:
            answer = pipe.read(4)
        os.waitpid(between, 0)
        for file in files:
            os.close(file)
        return int(struct.unpack("<I", answer)[0]) if len(answer) == 4 else NO_PROCESS
    os.close(heard)
    try:
        made = os.fork()
        if made:
            os.write(told, struct.pack("<I", made))
    except OSError:
        made = -1
    if made:
        os._exit(0)
    os.close(told)
    os.setpgid(0, 0)
    for file, place in zip(files, (SOCKET, LIFELINE)):
        os.dup2(file, place, inheritable=False)
        os.close(file)
    return 0


def serve(script: str) -> None:
    """Returns in each process that is forked, and nowhere else."""
    die_with_the_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel, name = Channel(), _own_name()
    _call_itself(NAME)
    random.seed(0)
    drawn = random.getstate()
    try:
        do_imports(script)
        good = can_fork() and random.getstate() == drawn  # each process draws anew from its seed, as imports would
    except BaseException:  # the script raises it again, where it is told
        good = False
    gc.collect()
    gc.freeze()  # what all of them share stays where it is
    while True:
        channel.request()
        files = channel.files()
        if not good or len(files) != 2:
            for file in files:
                os.close(file)
            channel.reply(struct.pack("<I", NO_PROCESS))
            continue
        made = _forked(files)
        if made == 0:
            _call_itself(name)
            gc.unfreeze()
            return
        channel.reply(struct.pack("<I", made))
