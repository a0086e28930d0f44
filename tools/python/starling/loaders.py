"""Processes that read and collate the micro-batches which come next, beside the pass: forks of the process that computes.

What a batch is depends on none of them. One that was expected is handed over with the state of the random numbers after
it; what was not expected, was lost with its process, came too late or cannot be handed over is read by the process that
computes, with the same bits."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import os
import random
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

import torch

from . import handed
from .module import seed_everything
from .order import Coming, Order

_TASK = struct.Struct("<QQI")   # seed, step, micro-batch
_READ = struct.Struct("<QQIBd")  # the task, whether the batch comes with it, and how many seconds it took
_LATE = 5        # so many times as long as the longest batch took, and
_LATE_S = 1.0    # so long at least, is a batch waited for
_FILES_PART = 4
_LOST_MAX = 3    # processes in a row that were lost without a batch: then there is no other
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def drawn_from() -> "tuple[Any, ...]":
    """The state of the random numbers that seed_everything() seeds, on the CPU."""
    numpy = sys.modules.get("numpy")
    return (torch.default_generator.get_state(), random.getstate(), None if numpy is None else numpy.random.get_state())


def draw_from(state: "tuple[Any, ...]") -> None:
    torch.default_generator.set_state(state[0])
    random.setstate(state[1])
    if state[2] is not None:
        sys.modules["numpy"].random.set_state(state[2])


def _same(a: "tuple[Any, ...]", b: "tuple[Any, ...]") -> bool:
    if (torch.equal(a[0], b[0]) if isinstance(a[0], torch.Tensor) else a[0] == b[0]) and a[1] == b[1]:
        if a[2] is None or b[2] is None:
            return a[2] is b[2]
        return a[2][0] == b[2][0] and bytes(a[2][1]) == bytes(b[2][1]) and a[2][2:] == b[2][2:]
    return False


def torch_modes() -> "tuple[Any, ...]":
    """What else of torch decides how a batch is computed, and may be set for a while (with ..)."""
    if not hasattr(torch, "is_autocast_enabled"):
        return ()
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
            str(torch.get_default_dtype()), str(torch.get_default_device()))


@dataclass
class _Process:
    pid: int
    socket: socket.socket
    tasks: "collections.deque[Any]"  # that it was given, the oldest first
    answered: bool = False


class Loaders:
    """count     processes
    ahead     micro-batches that each has in hand
    read      (samples, whether they are held out) -> batch
    begin     called in each process, before it reads
    own       called in each process: it lets go of what is the computing process's alone"""

    def __init__(self, count: int, ahead: int, order: Order, coming: Coming,
                 read: "Callable[[Sequence[int], bool], Any]", begin: "Callable[[], Any]", own: "Callable[[], Any]") -> None:
        # Each process has a socket here, and each batch that is there a file: a part of those that may be open.
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = count * ahead if files == resource.RLIM_INFINITY else max(1, files // _FILES_PART)
        self._count, self._order, self._read, self._begin, self._own = min(count, most), order, read, begin, own
        self._in_hand = max(1, min(ahead, most // self._count))
        self._ahead = self._in_hand * self._count
        self._coming = coming
        self._processes: "list[_Process]" = []
        self._ready: "dict[Any, int]" = {}  # files of batches
        self._lost = 0  # processes in a row
        self._longest = 0.0  # seconds
        self._before: "Optional[tuple[Any, ...]]" = None
        self._task: Any = None
        self._start()

    def asked(self, seed: int, step: int, m: int) -> None:
        """A pass begins, whose random numbers were seeded; its batch is wanted."""
        self._before, self._task = drawn_from(), (seed, step, m)
        self._coming.asked(step, m)
        while self._hear(0.0):
            continue
        self._start()
        self._give(seed)

    def batch(self, samples: "Sequence[int]") -> "tuple[bool, Any]":
        """Of the pass that has begun; whether it was there, and the batch. Else it is read here, as it is where anything
        was drawn or set since the pass began."""
        task, before, self._task = self._task, self._before, None
        if task is None or before is None or not _same(drawn_from(), before):
            return False, None
        file = self._waited_for(task)
        if file is None:
            return False, None
        try:
            read, context, after, batch = handed.read(file)
        except Exception:
            return False, None  # a class that cannot be made again
        if tuple(read) != tuple(samples) or context != torch_modes():
            return False, None
        if after is not None:
            if after[2] is not None and "numpy" not in sys.modules:
                return False, None
            draw_from(after)
        return True, batch

    def took(self, seconds: float) -> None:
        """A batch was read here."""
        self._longest = max(self._longest, seconds)

    def _waited_for(self, task: Any) -> Optional[int]:
        until = time.monotonic() + max(_LATE_S, _LATE * self._longest)
        while task not in self._ready:
            reading = next((p for p in self._processes if task in p.tasks), None)
            if reading is None:
                return None
            if not self._hear(until - time.monotonic(), reading) and time.monotonic() >= until:
                self._lose(reading, "did not answer in time")
        return self._ready.pop(task)

    def _give(self, seed: int) -> None:
        """Hands out what comes next."""
        coming = [(seed, step, m) for step, m in self._coming.next(self._ahead)]
        for task in [t for t in self._ready if t not in coming and t != self._task]:
            os.close(self._ready.pop(task))
        given = {task for process in self._processes for task in process.tasks}
        for task in coming:
            idle = min(self._processes, key=lambda p: len(p.tasks), default=None)
            if idle is None or len(idle.tasks) >= self._in_hand:
                return
            if task not in given and task not in self._ready:
                with contextlib.suppress(OSError):  # its end is heard later
                    idle.socket.send(_TASK.pack(*task))
                idle.tasks.append(task)

    def _hear(self, seconds: float, one: Optional[_Process] = None) -> bool:
        """Takes what one process says, within so long; whether there was anything."""
        among = {p.socket.fileno(): p for p in ([one] if one else self._processes)}
        poll = select.poll()
        for file in among:
            poll.register(file, select.POLLIN)
        for file, _ in poll.poll(max(0, int(seconds * 1000 + 0.999)))[:1]:
            self._answer(among[file])
            return True
        return False

    def _answer(self, process: _Process) -> None:
        try:
            data, files, _, _ = socket.recv_fds(process.socket, _READ.size, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, files = b"", []
        if len(data) != _READ.size:
            self._lose(process, "was lost")
            return
        *task, there, took = _READ.unpack(data)
        process.tasks.remove(tuple(task))
        process.answered = True
        self._lost = 0
        self._longest = max(self._longest, took)
        if there and files:  # none where this process has as many as it may have
            self._ready[tuple(task)] = files[0]

    def _lose(self, process: _Process, how: str) -> None:
        self._processes.remove(process)
        process.socket.close()
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(process.pid, 0)
        if not process.answered:
            self._lost += 1
        then = "another one takes its place" if self._lost < _LOST_MAX else \
            f"{len(self._processes)} are left" if self._processes else "the process that computes reads instead"
        print(f"starling: a loader process {how}; {then}", file=sys.stderr)

    def _start(self) -> None:
        while len(self._processes) < self._count and self._lost < _LOST_MAX:
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            computing = os.getpid()
            with warnings.catch_warnings():  # that other threads are none in the fork: it needs none
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                try:
                    self._serve(computing, mine, its)
                finally:
                    os._exit(1)
            its.close()
            self._processes.append(_Process(pid, mine, collections.deque()))

    def _serve(self, computing: int, mine: socket.socket, its: socket.socket) -> None:
        """All that a loader process does."""
        system = ctypes.CDLL(None)
        system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        system.prctl(_PR_SET_NAME, b"starling-loader")
        if os.getppid() != computing:
            return
        mine.close()
        for process in self._processes:
            process.socket.close()
        self._own()
        _open_files_again()
        self._begin()
        while True:
            data = its.recv(_TASK.size)
            if len(data) != _TASK.size:
                return
            task = _TASK.unpack(data)
            begun = time.perf_counter()
            file = self._made(*task)
            took = time.perf_counter() - begun
            socket.send_fds(its, [_READ.pack(*task, file is not None, took)], [] if file is None else [file])
            if file is not None:
                os.close(file)

    def _made(self, seed: int, step: int, m: int) -> Optional[int]:
        """A file with the batch; None where the process that computes has to see itself what is wrong."""
        try:
            seed_everything(seed, step, m)
            before = drawn_from()
            samples = self._order.of(seed, step, m)
            held_out = self._order.held_out(m)
            with torch.no_grad() if held_out else contextlib.nullcontext():
                batch = self._read(samples, held_out)
                context = torch_modes()
            after = drawn_from()
            return handed.written((samples, context, None if _same(before, after) else after, batch))
        except Exception:
            return None


def _open_files_again() -> None:
    """In a fork: files that are read get a place of their own, which the other process does not move."""
    for name in os.listdir("/proc/self/fd"):
        file = int(name)
        try:
            flags = fcntl.fcntl(file, fcntl.F_GETFL)
            if file <= 2 or not stat.S_ISREG(os.fstat(file).st_mode) or flags & os.O_ACCMODE == os.O_WRONLY:
                continue
        except OSError:
            continue  # the folder that was listed
        try:
            own = os.open(f"/proc/self/fd/{file}", flags | os.O_CLOEXEC)
            os.lseek(own, os.lseek(file, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(own, file, inheritable=os.get_inheritable(file))
            os.close(own)
        except OSError:
            os.close(file)  # who needs it finds that out, and the process that computes reads
