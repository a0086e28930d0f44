"""What a script is: the file or module that every process of a job runs, its arguments, the texts of the modules
beside it, and which call of train() or Job is meant. Needs no torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Optional

ARGUMENTS_MAX, ARGUMENT_BYTES_MAX = 1024, 4096  # as job files have them (core/job/job_reader.cpp)
TEXTS_MAX = 4096
_PLACES_MAX = 8
_PACKAGE = os.path.dirname(os.path.realpath(__file__))


def _words_of(name: str) -> "list[str]":
    """Of this process, as the kernel has kept them since its start."""
    try:
        with open(f"/proc/self/{name}", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


# How a person has started this process, whatever the script changes afterwards: every process of the job is started
# so and makes the same changes.
COMMAND = _words_of("cmdline")
_ARGUMENTS = sys.argv[1:]
try:
    FOLDER = os.getcwd()
except OSError:
    FOLDER = os.sep


def environment() -> "dict[str, str]":
    """Of this process at its start, and Starling's own variables as they are now."""
    began = dict(word.split("=", 1) for word in _words_of("environ") if "=" in word)
    if "PATH" not in began and "PATH" in os.environ:  # a process that has written over its memory (setproctitle)
        began = dict(os.environ)
    now = {name: value for name, value in os.environ.items() if name.startswith("STARLING")}
    return {**{name: value for name, value in began.items() if not name.startswith("STARLING")}, **now}


def _arguments(path: str, module: str) -> "list[str]":
    """What follows the script in the command that started this process."""
    for i, word in enumerate(COMMAND):
        if module and word == "-m" and COMMAND[i + 1:i + 2] in ([module], [module.removesuffix(".__main__")]):
            return COMMAND[i + 2:]
        if not module and i > 0 and os.path.realpath(os.path.join(FOLDER, word)) == os.path.realpath(path):
            return COMMAND[i + 1:]
    return _ARGUMENTS  # of a script that another program runs


class Refused(Exception):
    """What would break the promise of equal bits, in one line that says what to do."""


@dataclass(frozen=True)
class Script:
    path: str                          # of its file, absolute
    module: str = ""                   # its name if it is run as `python -m NAME`
    arguments: "tuple[str, ...]" = ()  # sys.argv[1:]
    text: "tuple[str, ...]" = ()       # "train.py:0123456789abcdef": its file and others below root(), their hashes
    call: int = 1                      # of the calls of train() and Job, in their order, the one that is meant
    at: str = ""                       # where that call is, as caller() says it
    earlier: "tuple[str, ...]" = ()    # what the calls before it came to, JSON; "": that one was not run
    started: str = ""                  # Start of the process that a person has started, JSON

    def root(self) -> str:
        """The folder that Python has first in sys.path for it. Raises Refused."""
        if not self.module:
            return os.path.dirname(os.path.realpath(self.path))
        tail = os.path.join(*self.module.split(".")) + ".py"
        if not self.path.endswith(os.sep + tail):
            raise Refused(f"the job's script is the module {self.module}, expected a path that ends with {tail}")
        return self.path[: -len(os.sep + tail)]


def of_main() -> Script:
    """The one that this process runs. Raises Refused where that is none in a file."""
    main = sys.modules.get("__main__")
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if not path or not os.path.isfile(path):
        raise Refused(
            "a job needs a script in a file, which every worker runs; what is typed, piped in, or in a notebook is in"
            " none: write it to train.py and run `python train.py`")
    if not _is_utf8(os.fsencode(os.path.abspath(path))):
        raise Refused(f"the path of a script must be UTF-8, is {ascii(os.path.abspath(path))}")
    module = "" if spec is None or spec.name == "__main__" else spec.name
    arguments = tuple(_arguments(path, module))
    if len(arguments) > ARGUMENTS_MAX:
        raise Refused(f"a script has at most {ARGUMENTS_MAX} arguments, here are {len(arguments)}")
    for argument in arguments:
        data = argument.encode("utf-8", "surrogateescape")
        if len(data) > ARGUMENT_BYTES_MAX or not _is_utf8(data):
            raise Refused(f"an argument of a script must be UTF-8 of at most {ARGUMENT_BYTES_MAX} bytes, is"
                          f" {ascii(argument[:64])}")
    return Script(os.path.abspath(path), module, arguments)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_of(file: str) -> str:
    """16 hex digits. Raises OSError."""
    with open(file, "rb") as opened:
        return hashlib.blake2b(opened.read(), digest_size=8).hexdigest()


def own_files() -> "dict[str, bool]":
    """Of all modules that are imported by now and not installed, with whether sys.path leads to it, as it does not to
    what programs generate and load."""
    library = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
    folders = {os.path.realpath(folder) for folder in sys.path}
    found: "dict[str, bool]" = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        real = os.path.realpath(file) if isinstance(file, str) else ""
        installed = any(part in ("site-packages", "dist-packages") for part in real.split(os.sep))
        if real and not installed and not real.startswith((library, _PACKAGE + os.sep)):
            folder = os.path.dirname(real)
            for _ in range(name.count(".") + (os.path.basename(real) == "__init__.py")):
                folder = os.path.dirname(folder)
            found[real] = found.get(real, False) or folder in folders
    return found


def texts(script: Script) -> "tuple[str, ...]":
    """Of the script, first, and of all modules below its root that are imported by now, by name. Raises Refused."""
    root = os.path.realpath(script.root()) + os.sep
    own = os.path.realpath(script.path)
    found = {file for file in own_files() if file.endswith(".py") and file.startswith(root)}
    found.discard(own)
    if len(found) >= TEXTS_MAX:
        raise Refused(f"a script has at most {TEXTS_MAX - 1} modules beside it, here are {len(found)}")
    try:
        return (f"{os.path.basename(own)}:{text_of(own)}",
                *sorted(f"{os.path.relpath(file, root)}:{text_of(file)}" for file in found))
    except OSError as error:
        raise Refused(f"{error.filename}, a part of the script, cannot be read: {error.strerror}") from None


def check_texts(script: Script) -> None:
    """Raises Refused if a file of the job's is another one here."""
    for i, entry in enumerate(script.text):
        name, _, wanted = entry.rpartition(":")
        file = script.path if i == 0 else os.path.join(script.root(), name)  # a copy may have another name
        try:
            here = text_of(file)
        except OSError as error:
            raise Refused(f"{name}, which the job's script has beside it, cannot be read here: {error.strerror}") from None
        if here != wanted:
            raise Refused(f"{name} is not the job's: the hash of its text is {here} here and {wanted} in the job; every"
                          " worker needs the script as it was when the job began")


def _machine() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


@dataclass(frozen=True)
class Start:
    """What only the process knows that a person has started."""

    init: str = ""     # digest of the state that train(init=) or Job(init=) was given; "": of none
    weights: "tuple[float, float]" = (0.0, 0.0)  # module.outline() of build()'s net with that state
    machine: str = ""  # where that was
    time: float = 0.0  # [s] of that machine's clock
    trained: int = 0   # the call that has trained this net before; 0: none

    def text(self) -> str:
        return json.dumps(asdict(self))


def started(init: str, weights: "tuple[float, float]", trained: int) -> Start:
    return Start(init, weights, _machine(), time.time(), trained)


def start_of(script: Script) -> "Optional[Start]":
    """None: a job that no script has made."""
    return Start(**json.loads(script.started)) if script.started else None


def check_start(script: Script, here: Start) -> None:
    """Raises Refused where a process of the job begins with another state than the script had where a person has
    started it."""
    there = start_of(script)
    if there is None:
        return
    how = "what is done only where the script was started (evaluate(), a file that is written once) must not reach it"
    if here.init != there.init:
        raise Refused(f"init is {'a state' if here.init else 'None'} in this process, and"
                      f" {'another one' if there.init else 'None'} where the script was started: {how}")
    if there.trained and list(here.weights) != list(there.weights):  # a short training changes less than roundings may
        raise Refused(f"build() returns the net that call {there.trained} has trained, and this process has it as it was"
                      " before: expected init=starling.load(..) of what that call has come to, or a new net")
    most = 1e-3 * max(abs(here.weights[0]), abs(there.weights[0])) + 1e-30
    if any(not abs(a - b) <= most for a, b in zip(here.weights, there.weights)):
        raise Refused("build() gives a net with other parameters in this process than where the script was started:"
                      f" {how}, and starling is imported before anything is drawn")


def check_ages(script: Script) -> None:
    """Raises Refused if a module was imported whose file was changed after the job began, on the machine where it
    began: no other process need have that text. Files that the job has by their hashes are compared by these, and
    what programs generate and load is not looked at."""
    start = start_of(script)
    if start is None or not start.machine or start.machine != _machine():
        return
    root = os.path.realpath(script.root())
    known = {os.path.join(root, entry.rpartition(":")[0]) for entry in script.text[1:]}
    known.add(os.path.realpath(script.path))
    for file, by_path in own_files().items():
        if file in known or not by_path:
            continue
        with contextlib.suppress(OSError):
            status = os.stat(file)  # `mv` and `cp -p` keep the time of what they bring
            if max(status.st_mtime, status.st_ctime) > start.time:
                raise Refused(f"{file} was changed after the job began and is imported now: other processes may have it"
                              " as it was; start the job anew, or import it before starling.train()")


def caller() -> str:
    """Which lines outside of this package lead to it, the innermost first: "script:25 < script:31". The script's own
    file is "script", whatever its name: a copy may have another one."""
    places: "list[str]" = []
    frame: "Optional[FrameType]" = sys._getframe(1)
    while frame is not None and len(places) < _PLACES_MAX:
        file = frame.f_code.co_filename
        own = frame.f_globals.get("__name__") == "__main__"
        if not os.path.realpath(file).startswith(_PACKAGE + os.sep):
            places.append(f"{'script' if own else os.path.basename(file)[-40:]}:{frame.f_lineno}")
            if own and frame.f_code.co_name == "<module>":
                break
        frame = frame.f_back
    return " < ".join(places)


class Reader:
    """What the worker has put into a frame."""

    def __init__(self, data: "bytes | bytearray | memoryview") -> None:
        self._data, self._at = bytes(data), 0

    def number(self, form: str) -> int:
        value: int = struct.unpack_from("<" + form, self._data, self._at)[0]
        self._at += struct.calcsize("<" + form)
        return value

    def text(self) -> str:
        size = self.number("I")
        if size > len(self._data) - self._at:
            raise ValueError("a text beyond its frame")
        self._at += size
        return self._data[self._at - size:self._at].decode()

    def texts(self) -> "tuple[str, ...]":
        return tuple(self.text() for _ in range(self.number("I")))
