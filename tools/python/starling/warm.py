"""A process that has done the imports with which a script begins, and from which those are forked that compute for a
worker: each is there at once, however long the imports take. No other line of the script runs here.

Bits do not depend on it: what is imported is installed, in the script's order, up to the first line that is no such
import, and finds what it finds in a process of its own. Where a fork would not be as such a process (an import has
started a thread or a program, has left a file or shared memory open, or has imported one of the script's own modules),
or an import fails, the worker is told that there is none, and starts each process by itself."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.util
import os
import signal
import struct
import sys
import sysconfig
from types import ModuleType
from typing import Iterator

from .child import LIFELINE, SOCKET, Channel, begin, die_with_the_worker
from .script import Script, check_texts, own_files

NAME = "starling-warm"  # in `ps -e` and /proc/PID/comm
NO_PROCESS = 0
# In names of variables that the compiler, and Triton, which it imports, read as they are imported.
OF_THE_COMPILER = (b"TORCH", b"TRITON", b"INDUCTOR", b"PARTITIONER", b"CUDA_HOME", b"CXX")
_PACKAGE = os.path.dirname(os.path.realpath(__file__))


def leading_imports(text: bytes) -> "Iterator[tuple[ast.stmt, list[str]]]":
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


def is_installed(package: str) -> bool:
    """Whether every process finds the package in the same place, and not beside the script."""
    if package in sys.builtin_module_names:
        return True
    found = importlib.util.find_spec(package)
    if found is None:
        return False
    library = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
    places = list(found.submodule_search_locations or ([found.origin] if found.origin else []))
    real = [os.path.realpath(place) for place in places]
    return found.origin in ("built-in", "frozen") or bool(real) and all(
        place.startswith((library, _PACKAGE)) or {"site-packages", "dist-packages"} & set(place.split(os.sep)) for place in real)


def do_imports(script: str, main: ModuleType) -> None:
    """As lines of `main`. Raises what an import raises, and OSError or SyntaxError of the script."""
    with open(script, "rb") as file:
        text = file.read()
    for statement, packages in leading_imports(text):
        if not all(is_installed(package) for package in packages):
            return
        exec(compile(ast.Module([statement], []), script, "exec", dont_inherit=True), vars(main))


def import_the_compiler(script: str) -> None:
    """torch's, which use_deterministic_algorithms() imports: seconds, which every fork would spend by itself. Not where the
    script names a variable of the environment that the compiler reads as it is imported."""
    import torch

    with open(script, "rb") as file:
        text = file.read()
        if not any(name in text for name in OF_THE_COMPILER):
            torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled(),
                                               warn_only=torch.is_deterministic_algorithms_warn_only_enabled())


def _of_this_process() -> "tuple[object, ...]":
    """What a fork shares with the process that it is forked from, or has not, where a process of its own has its own."""
    threads = len(os.listdir("/proc/self/task"))
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        has_children = True
    except ChildProcessError:
        has_children = False
    files = {}
    for file in os.listdir("/proc/self/fd"):  # a GPU's driver is one, once it is open
        with contextlib.suppress(OSError):
            files[file] = os.readlink(f"/proc/self/fd/{file}")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        shared = [line for line in maps if line.split()[1][1::2] == "ws"]
    return threads, has_children, files, shared, set(own_files())


def imported(script: Script) -> "ModuleType | None":
    """The module as which the script goes on in a fork; None where a fork is not as a process of its own, or the
    packages above a module come before its first line. Raises what an import raises."""
    if script.module:
        return None
    from .loaders import draw_from, drawn_from
    from .module import seed_everything_to_begin_with

    check_texts(script)
    seed_everything_to_begin_with()
    begin(script)
    main = ModuleType("__main__")
    vars(main).update(__file__=script.path, __cached__=None, __package__="")
    sys.modules["__main__"] = main
    before = _of_this_process()
    do_imports(script.path, main)
    drawn = drawn_from()
    import_the_compiler(script.path)
    draw_from(drawn)
    return main if before[0] == 1 and _of_this_process() == before else None


def _call_itself(name: str) -> None:
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(name)


def _own_name() -> str:
    with contextlib.suppress(OSError), open("/proc/self/comm", encoding="utf-8") as file:
        return file.read().rstrip("\n")
    return "python3"


def _forked(files: "list[int]") -> int:
    """A process whose parent is the worker, as this process's child has forked it and is gone: the worker has asked for
    orphans (PR_SET_CHILD_SUBREAPER). 0 in that process, which has the files as a process that the worker starts. Raises
    OSError where there is none."""
    heard, told = os.pipe()
    between = os.fork()
    if between:
        os.close(told)
        with open(heard, "rb") as pipe:
            answer = pipe.read(4)
        with contextlib.suppress(ChildProcessError):  # an import may have had children ignored
            os.waitpid(between, 0)
        for file in files:
            os.close(file)
        if len(answer) != 4:
            raise OSError("the second fork failed")
        return int(struct.unpack("<I", answer)[0])
    made = -1
    try:
        os.close(heard)
        made = os.fork()
        if made:
            os.write(told, struct.pack("<I", made))
    finally:
        if made:
            os._exit(0)
    os.close(told)
    os.setpgid(0, 0)
    for file, place in zip(files, (SOCKET, LIFELINE)):
        os.dup2(file, place, inheritable=False)
        os.close(file)
    return 0


def serve(path: str) -> ModuleType:
    """Returns in each process that is forked, and nowhere else: the module as which the script goes on. Random numbers go on
    where the imports have left them."""
    die_with_the_worker()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel, name = Channel(), _own_name()
    _call_itself(NAME)
    main = None
    try:
        channel.hear(path)
        main = imported(channel.script)
        from .loaders import draw_from, drawn_from

        drawn = drawn_from()
    except BaseException:  # the script raises it again, where it is told
        pass
    gc.collect()
    gc.freeze()  # what all of them share stays where it is
    while True:
        files = channel.files()
        made = NO_PROCESS
        if main is not None and len(files) == 2:
            try:
                made = _forked(files)
            except OSError:
                os._exit(1)  # the worker starts another such process, if it can
            if made == 0:
                draw_from(drawn)  # as Python seeds `random` anew in a fork
                _call_itself(name)
                gc.unfreeze()
                return main
        else:
            for file in files:
                os.close(file)
        channel.reply(struct.pack("<I", made))
        channel.request()
