"""What the bridge asks of a module and its data, and how their bits are kept: pure functions but for the
seeds of random numbers."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Refused(Exception):
    """What would break the promise of equal bits, in one line that says what to do."""


def seed_everything(*key: int) -> None:
    """Seeds torch, random and, where it is used, numpy; a function of the key alone."""
    digest = hashlib.blake2b(struct.pack(f"<{len(key)}Q", *key), digest_size=8).digest()
    seed = int.from_bytes(digest, "little")
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


def parameters_of(net: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Those that are trained, each once, in the module's order."""
    return [(name, p) for name, p in net.named_parameters() if p.requires_grad]


def tensor_texts(net: nn.Module) -> list[str]:
    """As job files spell them: "encoder.weight:64x128"."""
    return [f"{name}:{'x'.join(str(n) for n in p.shape)}" for name, p in parameters_of(net)]


def check(net: Any, data: Any) -> None:
    """Raises Refused for what cannot be trained with the same bits everywhere."""
    if not isinstance(net, nn.Module):
        raise Refused(f"build() must return (nn.Module, Dataset), its first is a {type(net).__name__}")
    if isinstance(data, torch.utils.data.IterableDataset):
        raise Refused(
            f"{type(data).__name__} is an IterableDataset, whose samples have no numbers; give a map-style"
            " Dataset with __len__ and __getitem__")
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise Refused(
            f"build() must return (nn.Module, Dataset), its second, a {type(data).__name__}, has no"
            " __len__ and __getitem__")
    if len(data) < 1:
        raise Refused("the Dataset is empty")
    trained = parameters_of(net)
    if not trained:
        raise Refused(f"{type(net).__name__} has no parameter that is trained")
    for name, p in trained:
        if p.dtype != torch.float32:
            raise Refused(f"parameter {name} is {p.dtype}; expected torch.float32 (net.float())")
        if p.is_sparse or p.numel() == 0:
            raise Refused(f"parameter {name} is sparse or empty; expected a dense one")
    for name, module in net.named_modules():
        running = isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
        if running and module.running_mean is not None:
            raise Refused(
                f"{name} is a {type(module).__name__}, whose running statistics depend on which worker"
                " computes; use GroupNorm or LayerNorm, or track_running_stats=False")


class Buffers:
    """Notices buffers that a pass has changed: they would differ from worker to worker."""

    def __init__(self, net: nn.Module) -> None:
        self._places = [(module._buffers, key, f"{name}.{key}" if name else key, name or type(net).__name__)
                        for name, module in net.named_modules() for key in module._buffers]
        self._known = self._versions()

    def _versions(self) -> list[tuple[int, int]]:
        return [(id(b), b._version) if b is not None else (0, 0)
                for b in (buffers.get(key) for buffers, key, _, _ in self._places)]

    def check(self) -> None:
        now = self._versions()
        if now == self._known:
            return
        for (_, _, name, module), before, after in zip(self._places, self._known, now):
            if before != after:
                raise Refused(
                    f"the loss has changed buffer {name} of {module}, which would differ from worker to"
                    " worker; compute with what is constant, or make it a parameter")


def refuse_other_optimizers() -> None:
    """The update is the job's: torch's own would change parameters behind its back."""

    def refuse(optimizer: Any, *_: Any) -> None:
        raise Refused(
            f"torch.optim.{type(optimizer).__name__} wants to make a step, but the optimizer is the job's:"
            " give optimizer= to starling.train() and remove this one")

    register_optimizer_step_pre_hook(refuse)


def versions_text() -> str:
    """What decides the bits of a pass on this machine."""
    python = ".".join(str(n) for n in sys.version_info[:3])
    return f"python {python}, torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
