"""How far the files of a W&B run go that a process has left which was killed: W&B keeps what it is told for some
seconds before it writes."""

from __future__ import annotations

import glob
import importlib
import os
import struct
from typing import Iterator

_HEAD, _BLOCK = 7, 32768  # bytes of a file's and of a record's head, and of a block, as LevelDB's logs have them
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def _records(data: bytes) -> "Iterator[bytes]":
    """Whole ones; what a kill has cut is left."""
    at, parts = _HEAD, b""
    while at + _HEAD <= len(data):
        room = _BLOCK - at % _BLOCK
        if room < _HEAD:  # for no other head
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or at + _HEAD + size > len(data):
            return
        parts += data[at + _HEAD:at + _HEAD + size]
        at += _HEAD + size
        if kind in (_WHOLE, _LAST):
            yield parts
            parts = b""


def last_step(out: str, identity: str) -> int:
    """The last that was logged to the run with this id, by its files in out/wandb; 0 where they tell of none, or are of
    a W&B that this does not know: then all is logged again, and W&B leaves out what it has."""
    try:
        messages = importlib.import_module("wandb.proto.wandb_internal_pb2")
        last = 0
        for path in glob.glob(os.path.join(glob.escape(out), "wandb", f"*-{glob.escape(identity)}", "*.wandb")):
            with open(path, "rb") as file:
                data = file.read()
            for text in _records(data):
                record = messages.Record()
                record.ParseFromString(text)
                if record.WhichOneof("record_type") == "history":
                    last = max(last, int(record.history.step.num))
        return last
    except Exception:  # of another release of W&B, whatever it is
        return 0
