"""What a script is: the file or module that every process of a job runs, its arguments, the texts of the modules
beside it, and which call of train() or Job is meant. Needs no torch."""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import sysconfig
from dataclasses import dataclass

ARGUMENTS_MAX, ARGUMENT_BYTES_MAX = 1024, 4096  # as job files have them (core/job/job_reader.cpp)
TEXTS_MAX = 4096
_PLACES_MAX = 8
_PACKAGE = os.path.dirname(os.path.realpath(__file__))


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
    module = "" if spec is None or spec.name == "__main__" else spec.name
    arguments = tuple(sys.argv[1:])
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


def texts(script: Script) -> "tuple[str, ...]":
    """Of the script, first, and of all modules below its root that are imported by now, by name. Raises Refused."""
    root = os.path.realpath(script.root()) + os.sep
    library = os.path.realpath(sysconfig.get_paths()["stdlib"]) + os.sep
    own = os.path.realpath(script.path)
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("__file__")
        real = os.path.realpath(file) if isinstance(file, str) else ""
        installed = any(part in ("site-packages", "dist-packages") for part in real.split(os.sep))
        if real.endswith(".py") and real.startswith(root) and not installed \
                and not real.startswith((library, _PACKAGE + os.sep)):
            found.add(real)
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


def caller() -> str:
    """Which lines outside of this package lead to it, the innermost first: "script:25 < script:31". The script's own
    file is "script", whatever its name: a copy may have another one."""
    frame, places = sys._getframe(1), []
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
        (value,) = struct.unpack_from("<" + form, self._data, self._at)
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
