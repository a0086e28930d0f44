"""The `starling` command as a process of this one: where it is, what it is told, and its end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Optional, Sequence

from .callbacks import Watch
from .calls import Failed
from .script import FOLDER, environment as _began_with


def program() -> str:
    """The `starling` command: STARLING says where, else the wheel's own, else that of PATH."""
    named = os.environ.get("STARLING")
    if named:
        return named
    own = Path(__file__).with_name("bin") / "starling"
    found = str(own) if own.exists() else shutil.which("starling")
    if not found or os.path.realpath(found) == os.path.realpath(sys.argv[0]):
        raise Failed("starling: the command is nowhere: install the wheel, or say in STARLING where it is")
    return found


def has_gpu() -> bool:
    """Whether workers of this machine can keep a job's state on its GPUs, and see those that this process sees: they have
    the environment that it began with, and the script may have chosen others in its own."""
    began, chosen = environment(), "CUDA_VISIBLE_DEVICES"
    if began.get(chosen) != os.environ.get(chosen):
        return False
    try:
        said = subprocess.run([program(), "version"], env=began, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:  # the job cannot run either, which is told then
        return False
    return re.search(rb"^gpu .*; [0-9]+ GPUs?: (?!.*no code for it)", said.stdout, re.MULTILINE) is not None


def command() -> None:
    """The wheel's `starling`: the command itself, whose workers compute with this interpreter."""
    own = str(Path(__file__).with_name("bin") / "starling")
    os.execve(own, [own, *sys.argv[1:]], environment())


def environment() -> "dict[str, str]":
    """Of commands whose workers run scripts: this interpreter, and this package where it finds it."""
    package = str(Path(__file__).resolve().parent.parent)
    began = _began_with()
    paths = [package] + [p for p in began.get("PYTHONPATH", "").split(os.pathsep) if p]
    flags = {"PYTHONOPTIMIZE": str(sys.flags.optimize)} if sys.flags.optimize else {}
    return {**began, **flags, "STARLING_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(paths)}


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_STOPPED = signal.SIGRTMIN + 1  # tells the command that stop was true, and that this process goes on with the run
_PAUSE = 0.05  # seconds between looks


def _watched(process: "subprocess.Popen[bytes]", watch: Watch) -> None:
    """Until the command has ended, or is told to: by what a function raises, or by stop."""
    told = False
    try:
        while process.poll() is None:
            if watch.look():
                continue
            if watch.enough and not told:
                told = True
                process.send_signal(_STOPPED)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PAUSE)
    except BaseException:
        process.terminate()
        raise


def ended(arguments: "Sequence[str]", again: Optional[str] = None, *files: int,
          watch: "Optional[Watch]" = None) -> "tuple[int, bool]":
    """Runs a command to its end. The signals that end a process are passed on to it, and it ends in its own way; of
    two that come at once, as after Ctrl-C, it heeds one. Returns its exit code, or 128 + the signal that ended it, and
    whether one was passed on. again: what people are told to run if that was a signal. files: open ones that it has
    as well."""
    told = {"STARLING_PARENT": str(os.getpid())} | ({} if again is None else {"STARLING_AGAIN": again})
    early: "list[int]" = []  # signals that come before the command is there
    running: "list[subprocess.Popen[bytes]]" = []
    heard = False

    def pass_on(number: int, _: Any) -> None:
        nonlocal heard
        heard = True
        if running:
            running[0].send_signal(number)
        else:
            early.append(number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # which alone is told of signals
        before = {number: signal.signal(number, pass_on) for number in _ENDING
                  if signal.getsignal(number) not in (signal.SIG_IGN, None)}
    try:
        folder = FOLDER if os.path.isdir(FOLDER) else None
        with subprocess.Popen(arguments, env={**environment(), **told}, cwd=folder, pass_fds=files) as process:
            running.append(process)
            for number in early:
                process.send_signal(number)
            if watch is not None:
                _watched(process, watch)
            code = process.wait()
    finally:
        for number, answer in before.items():
            signal.signal(number, answer)
    return code if code >= 0 else 128 - code, heard
