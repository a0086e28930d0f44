"""The trained model as files. At a job's end its folder has the trained parameters, which a worker has written; the
process that a person has started, which has the net, makes of them what other programs read."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any, Mapping, Optional

from . import statistics

MODEL = "model.safetensors"
# Of safetensors, and how torch calls them; larger elements first.
_DTYPES = {"F64": "float64", "I64": "int64", "U64": "uint64", "C64": "complex64", "F32": "float32", "I32": "int32",
           "U32": "uint32", "BF16": "bfloat16", "F16": "float16", "I16": "int16", "U16": "uint16", "I8": "int8",
           "U8": "uint8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "BOOL": "bool"}
# Metadata (tools/starling/check_trained.h): names of the trained parameters, and other names of the same tensors.
_ORDER, _TIED = "starling_order", "starling_tied"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
              "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
              "chat_template.jinja", "processor_config.json", "preprocessor_config.json")


def plain_name(name: str) -> str:
    """Of a tensor, without what torch.compile puts before it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def own_names(net: Any, tensors: "Mapping[str, Any]") -> "dict[str, Any]":
    """The tensors by the names that the net has for them; what it has no name for keeps its own."""
    own = {plain_name(name): name for name in net.state_dict()}
    return {own.get(plain_name(name), name): tensor for name, tensor in tensors.items()}


def _read(path: Path) -> "tuple[dict[str, Any], dict[str, str]]":
    """Tensors and metadata. Raises ValueError."""
    import torch

    dtypes = {name: getattr(torch, attribute, None) for name, attribute in _DTYPES.items()}
    raw = path.read_bytes()
    if len(raw) < 8:
        raise ValueError(f"{path} is no safetensors file")
    (length,) = struct.unpack_from("<Q", raw)
    if length > len(raw) - 8:
        raise ValueError(f"{path} is no safetensors file")
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, place in header.items():
        dtype = dtypes.get(place["dtype"])
        if dtype is None:
            raise ValueError(f"{name} is {place['dtype']}, which this torch has not; {path}")
        begin, end = (8 + length + offset for offset in place["data_offsets"])
        flat = torch.frombuffer(bytearray(raw[begin:end]), dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(place["shape"])
    return tensors, metadata


def load(out: str, net: Any = None) -> "dict[str, Any]":
    """The trained net's state_dict, of a job's folder or a model file: its trained parameters at least, and where
    train() or Job wrote the file all that its state_dict has. With a net they are put into it; what the file does not
    have stays as it is there.

    Raises ValueError for a file that is no such model."""
    path = Path(out)
    if path.is_dir():
        if not (path / MODEL).exists() and any(path.glob("*/manifest.json")):
            raise ValueError(f"{path} has checkpoints and no {MODEL}: `starling export {path} DIR` makes one of the newest")
        path = path / MODEL
    tensors, _ = _read(path)
    if net is not None:
        given = own_names(net, tensors)
        wanted = {name for name, p in net.named_parameters() if p.requires_grad}
        for name in sorted(wanted - set(given)):
            raise ValueError(f"parameter {name}, which the net trains, is not in the model; {path}")
        for name in (name for name, _ in statistics.of(net, named=True) if name not in given):
            raise ValueError(f"{name}, which starling.moving() names, is not in the model; {path}")
        for name in net.load_state_dict(given, strict=False).unexpected_keys:
            raise ValueError(f"the net has no parameter {name}; {path}")
    return tensors


def save(out: str, net: Any) -> None:
    """Puts the trained parameters of the job's folder into the net, and writes beside or instead of them what stands
    for the whole net: of a peft model the adapter's files, of any other its state_dict, and its configuration and
    tokenizer where it has them. Raises what reading and writing raise."""
    load(out, net)
    _name_those_not_finite(out, net)
    plain = getattr(net, "_orig_mod", net)
    config: Any = getattr(plain, "config", None)
    if hasattr(plain, "peft_config"):
        plain.save_pretrained(out)
    else:
        _save_state(Path(out) / MODEL, net)
        if hasattr(config, "save_pretrained"):
            config = copy.deepcopy(config)
            config.architectures = [type(plain).__name__]
            config.save_pretrained(out)
        if hasattr(getattr(plain, "generation_config", None), "save_pretrained"):
            plain.generation_config.save_pretrained(out)
    base = getattr(config, "_name_or_path", "")
    for name in _TOKENIZER if base and os.path.isdir(base) and not os.path.samefile(base, out) else ():
        if os.path.isfile(os.path.join(base, name)):
            shutil.copyfile(os.path.join(base, name), os.path.join(out, name))


def _name_those_not_finite(out: str, net: Any) -> None:
    """No loss shows it where no sample has reached them: 0 / 0 of a formula, in the rows of an embedding."""
    import torch

    found = [plain_name(name) for name, p in net.named_parameters() if p.requires_grad and not torch.isfinite(p).all()]
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        print(f"starling: {out} has parameters that are not finite (NaN or infinity), in {found[0]}{more}", file=sys.stderr)


def _names(text: str) -> "list[str]":
    """Of a list in the metadata, also of an earlier build, which put commas between them."""
    names: "list[str]" = json.loads(text) if text.startswith("[") else text.split(",")
    return names


def _tied(state: "Mapping[str, Any]", trained: "list[str]") -> "dict[str, str]":
    """Which other names are those of a trained parameter."""
    def memory(tensor: Any) -> "tuple[Any, ...]":
        return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())

    known = {memory(state[name]): name for name in trained if name in state and state[name].numel() > 0}
    return {name: known[memory(tensor)] for name, tensor in state.items()
            if name not in trained and memory(tensor) in known}


def _save_state(path: Path, net: Any) -> None:
    """Each name of the state_dict has its own data, those that share a parameter too: any reader finds all names."""
    import torch

    before, metadata = _read(path)
    names = {getattr(torch, attribute, None): name for name, attribute in _DTYPES.items()}
    state = {}
    for name, tensor in net.state_dict().items():
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.dtype in names:
            state[plain_name(name)] = tensor.detach()
        else:
            print(f"starling: {path} is without {name}, which is no dense tensor", file=sys.stderr)
    if {name: tensor.dtype for name, tensor in state.items()} == {name: tensor.dtype for name, tensor in before.items()}:
        return  # all of it is trained, or the file was made whole before
    if _ORDER in metadata:
        trained = list(map(plain_name, _names(metadata[_ORDER])))
        metadata[_ORDER] = json.dumps(trained)
        tied = _tied(state, trained)
        if tied:
            metadata[_TIED] = json.dumps(tied)
    sizes = list(_DTYPES)
    ordered = sorted(state, key=lambda name: (sizes.index(names[state[name].dtype]), name))
    header: "dict[str, Any]" = {"__metadata__": metadata}
    at = 0
    for name in ordered:
        size = state[name].numel() * state[name].element_size()
        header[name] = {"dtype": names[state[name].dtype], "shape": list(state[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in ordered:
                here: Any = state[name].cpu().contiguous()
                size = here.numel() * here.element_size()
                if size > 0:
                    file.write((ctypes.c_char * size).from_address(here.data_ptr()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
