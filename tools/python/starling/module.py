"""What the bridge asks of a module and its data, and how their bits are kept: pure functions but for the
seeds of random numbers."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import random
import re
import struct
import sys
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import statistics
from .digest import Digest, Opaque
from .script import Refused

NAME = re.compile(r'[!#-9;-~]{1,512}')  # of a tensor, in a job file
DIMENSIONS_MAX = 8
OUTLINED = 64  # elements of a parameter
WHOLE_BYTES, SAMPLE = 1 << 14, 256  # of buffers: up to so many bytes all are compared, else so many elements


def seed_of(*key: int) -> int:
    """Of random numbers: a function of the key alone."""
    digest = hashlib.blake2b(struct.pack(f"<{len(key)}Q", *key), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def seed_with(seed: int) -> None:
    """Seeds torch, random and, where it is used, numpy."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


def seed_everything(*key: int) -> None:
    """Seeds torch, random and, where it is used, numpy; a function of the key alone."""
    seed_with(seed_of(*key))


def seed_everything_to_begin_with() -> None:
    """Whatever a script draws before build() is the same in every process."""
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401  seeded with the others
    seed_everything(0)


def parameters_of(net: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Those that are trained, each once, in the module's order."""
    return [(name, p) for name, p in net.named_parameters() if p.requires_grad]


def tensors_of(net: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Those that a job has: parameters that are trained, then running statistics that move."""
    return [*parameters_of(net), *statistics.of(net)]


def on_gpu(net: nn.Module) -> bool:
    """Whether all that a job has of the net is on the first GPU, and nothing of it on another one: a process sees one."""
    others = any(t.device.index != 0 for t in [*net.parameters(), *net.buffers()] if t.device.type == "cuda")
    return not others and all(t.device.type == "cuda" for _, t in tensors_of(net))


def parameters_alive() -> "set[int]":
    """The ids of all parameters of this process."""
    return {id(one) for one in gc.get_objects() if issubclass(type(one), nn.Parameter)}


def tensor_texts(net: nn.Module) -> list[str]:
    """As job files spell them: "encoder.weight:64x128"."""
    return [f"{name}:{'x'.join(str(n) for n in p.shape)}" for name, p in tensors_of(net)]


def outline(net: nn.Module) -> "tuple[float, float]":
    """Of some elements of each trained parameter: the sum of their sizes, and their sum with signs by place. Processes
    that round otherwise have nearly the same two."""
    sizes = signed = 0.0
    for number, (_, p) in enumerate(parameters_of(net)):
        every = max(1, p.numel() // OUTLINED)
        for i, value in enumerate(p.detach().reshape(-1)[::every].tolist()):
            sizes += abs(value)
            signed += value if (i * 2654435761 + number * 40503) >> 7 & 1 else -value
    return sizes, signed


def check(net: Any, data: Any) -> None:
    """Raises Refused for what cannot be trained with the same bits everywhere."""
    from .streams import Streams

    if not isinstance(net, nn.Module):
        raise Refused(f"build() must return (nn.Module, Dataset), its first is a {type(net).__name__}")
    if not isinstance(data, Streams) and (not hasattr(data, "__getitem__") or not hasattr(data, "__len__")):
        raise Refused(
            f"build() must return (nn.Module, Dataset), its second, a {type(data).__name__}, has no"
            " __len__ and __getitem__")
    if len(data) < 1:
        raise Refused("the Dataset is empty")
    trained = parameters_of(net)
    if not trained:
        raise Refused(f"{type(net).__name__} has no parameter that is trained")
    for name, module in net.named_modules():
        if statistics.of_all_passes(module):
            raise Refused(f"{module_text(net, name)} is a {type(module).__name__} with momentum=None, whose running statistics"
                          " are means over all passes of one process; give it a momentum, as torch's default 0.1")
    for name, p in tensors_of(net):
        kind = "parameter" if isinstance(p, nn.Parameter) else "buffer"
        if torch.nn.parameter.is_lazy(p):
            raise Refused(f"{kind} {name} has no shape yet; build() must run the net once, so that it has one")
        if p.dtype not in (torch.float32, torch.bfloat16):
            raise Refused(f"{kind} {name} is {p.dtype}; expected torch.float32 (net.float()) or torch.bfloat16")
        if p.is_sparse or p.numel() == 0:
            raise Refused(f"{kind} {name} is sparse or empty; expected a dense one")
        if not NAME.fullmatch(name):
            module, _, own = name.rpartition(".")
            raise Refused(
                f"{kind} {own!r} of {module_text(net, module)} has a name that a job cannot have; expected up to"
                " 512 printable ASCII characters without blanks, colons and quotes")
        if p.dim() > DIMENSIONS_MAX:
            raise Refused(f"{kind} {name} has {p.dim()} dimensions; expected at most {DIMENSIONS_MAX}")
    precision(net)
    _refuse_shared_memory(net)


def precision(net: nn.Module) -> str:
    """"fp32", or "bf16" for a net whose trained parameters all are bfloat16: the job has them in float32, and the net
    computes with them rounded. Raises Refused for a net that has both."""
    found = {t.dtype: name for name, t in reversed(tensors_of(net))}
    if len(found) > 1:
        single, half = found[torch.float32], found[torch.bfloat16]
        raise Refused(f"{single} is torch.float32 and {half} is torch.bfloat16; expected one of the two for all that is trained"
                      " (net.float(), net.bfloat16()); running statistics and what starling.moving() names need torch.float32,"
                      " and those of a module in eval() in build() stand still")
    moving = statistics.of(net)
    if torch.bfloat16 in found and moving:
        raise Refused(f"{moving[0][0]} is torch.bfloat16, in which what a pass moves by less than a last bit would stand still;"
                      " expected torch.float32 (net.float()), or running statistics in eval() of their module in build()")
    return "bf16" if torch.bfloat16 in found else "fp32"


def module_text(net: nn.Module, name: str) -> str:
    """How a refusal names one of the net's modules."""
    return f'module "{name}"' if name else f"the {type(net).__name__}"


def _refuse_shared_memory(net: nn.Module) -> None:
    """Each trained parameter is given memory of the worker's: what lay in the same memory before would not follow. Nor
    would a buffer follow statistics, which begin each pass anew."""
    def extent(t: Any) -> tuple[int, int]:
        last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
        return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()

    own = [(p, f"parameter {name}") for name, p in parameters_of(net)]
    own += [(t, f"{'parameter' if isinstance(t, nn.Parameter) else 'buffer'} {name}") for name, t in statistics.of(net)]
    trained = {id(t) for t, _ in own}
    others = [(p, f"parameter {name}") for name, p in net.named_parameters() if id(p) not in trained]
    others += [(b, f"buffer {name}") for name, b in net.named_buffers() if id(b) not in trained]
    places = []
    for t, text in own + others:
        if t.layout == torch.strided and t.numel() > 0 and t.device.type != "meta":
            begin, end = extent(t)
            if id(t) in trained and end - begin < t.numel() * t.element_size():
                raise Refused(f"elements of {text} share memory; make it one of its own (.clone())")
            places.append((str(t.device), begin, end, id(t) in trained, text))
    furthest: Any = None  # of those before, the one that reaches furthest, and of the trained ones
    furthest_trained: Any = None
    for place in sorted(places):
        device, begin, end, is_trained, text = place
        for before in (furthest if is_trained else None, furthest_trained):
            if before is not None and before[0] == device and begin < before[2]:
                raise Refused(
                    f"{before[4]} and {text} share memory, and would not after the first step; make them one"
                    " nn.Parameter, or give each its own (.clone())")
        if furthest is None or furthest[0] != device or end > furthest[2]:
            furthest = place
        if is_trained and (furthest_trained is None or furthest_trained[0] != device or end > furthest_trained[2]):
            furthest_trained = place


def _content(t: Any) -> Any:
    """A copy of a tensor's bytes, of a large one of a sample of them; its digest where it is more than bytes. None where
    there is no looking at them."""
    if t is None or t.device.type == "meta":
        return None
    if t.layout != torch.strided or t.is_quantized or t.is_nested:
        try:
            return Digest().take(t.detach()).bytes()
        except Opaque:
            return None
    return _sample(t).cpu().clone()


def _sample(t: torch.Tensor) -> torch.Tensor:
    """Bytes, where the tensor is: all of them, or those of some elements."""
    flat = t.detach().reshape(-1)
    if flat.numel() * flat.element_size() > WHOLE_BYTES:
        flat = flat[::max(1, flat.numel() // SAMPLE)]
    return flat.contiguous().view(torch.uint8)


class Kept:
    """What a net keeps from one pass to the next beside the parameters that are trained: buffers, parameters that are
    not trained, train() and eval(), which parameters there are and which are trained. A pass that has changed any of
    it would give the next one, which may be computed elsewhere, another begin. The content of statistics that move is
    no part of it."""

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self.by = "the loss"  # what is called in the pass
        self._modules = list(net.named_modules())
        self._modes = self._training()
        self._parameters = [(module._parameters, key, p, p is not None and p.requires_grad, f"{name}.{key}" if name else key)
                            for name, module in self._modules for key, p in module._parameters.items()]
        self._moves = moving = {id(t) for _, t in statistics.of(net)}
        self._moving = [(module._buffers, key, t, f"{name}.{key}" if name else key)
                        for name, module in self._modules for key, t in module._buffers.items() if id(t) in moving]
        self._children = [(module._modules, key, child, f"{name}.{key}" if name else key)
                          for name, module in self._modules for key, child in module._modules.items()]
        self._places = [(places, key, f"{kind} {name}.{key}" if name else f"{kind} {key}", name)
                        for name, module in self._modules
                        for kind, places in (("buffer", module._buffers), ("parameter", module._parameters))
                        for key, t in places.items()
                        if id(t) not in moving and (kind == "buffer" or (t is not None and not t.requires_grad))]
        self._tensors = [places[key] for places, key, _, _ in self._places]  # held, so that no other has its id
        self._known = self._versions()
        self._contents = [_content(t) for t in self._tensors]
        # A look at a tensor costs a GPU a wait, so those of each one are looked at together.
        self._together = {device: (at, self._samples(at)) for device, at in self._elsewhere().items()}
        # Beside statistics torch counts passes, which nothing reads where there is a momentum.
        self._counters = [(module.num_batches_tracked, module.num_batches_tracked.clone())
                          for _, module in self._modules if statistics.counts(module)]
        # 0 times what is not finite is no number: such a batch writes it into statistics that stand still.
        self._still = [(t, t.clone()) for _, module in self._modules if statistics.keeps(module) and not module.momentum
                       for t in (module.running_mean, module.running_var)]

    def _training(self) -> list[bool]:
        return [module.training for _, module in self._modules]

    def _versions(self) -> list[tuple[int, int]]:
        return [(id(t), t._version) if t is not None else (0, 0)
                for t in (places.get(key) for places, key, _, _ in self._places)]

    def _elsewhere(self) -> "dict[torch.device, list[int]]":
        """Tensors with bytes that are not on the CPU, by device."""
        found: "dict[torch.device, list[int]]" = {}
        for i, (t, content) in enumerate(zip(self._tensors, self._contents)):
            if torch.is_tensor(content) and t.device.type != "cpu":
                found.setdefault(t.device, []).append(i)
        return found

    def _samples(self, at: "list[int]") -> torch.Tensor:
        return torch.cat([_sample(self._tensors[i]) for i in at])

    def _as_they_were(self) -> "set[int]":
        """Of those, the tensors whose content is known to be the same; the others have to be looked at."""
        return {i for device, (at, before) in self._together.items()
                if all(self._tensors[i].device == device for i in at) and torch.equal(self._samples(at), before) for i in at}

    def _same_content(self, i: int) -> bool:
        known, now = self._contents[i], _content(self._tensors[i])
        if known is None or isinstance(known, bytes):
            return known is None or known == now
        return bool(known.shape == now.shape and torch.equal(known, now))

    def _as_before(self, i: int, before: "tuple[int, int]", now: "tuple[int, int]") -> bool:
        """A small tensor may be written to, with what was there."""
        t = self._tensors[i]
        if before != now:
            whole = torch.is_tensor(self._contents[i]) and t.numel() * t.element_size() <= WHOLE_BYTES
            if before[0] != now[0] or not whole or not self._same_content(i):
                return False
            self._known[i] = now
        return self._same_content(i)

    def _refuse_graph(self, what: str) -> None:
        raise Refused(f"{self.by} has moved {what} by what has a gradient, which makes it part of a graph that goes on from"
                      " pass to pass; expected .detach(), or with torch.no_grad()")

    def check(self) -> None:
        """Raises Refused for what differs from what build() has made."""
        for counter, value in self._counters:
            counter.copy_(value)
        for tensor, value in self._still:
            if not torch.isfinite(tensor).all():
                tensor.copy_(value)
        for children, key, child, name in self._children:
            if children.get(key) is not child:
                raise Refused(f"{self.by} has put another module in the place of {name}, which would differ from worker to"
                              " worker; expected the modules that build() has made")
        for places, key, p, trained, name in self._parameters:
            now = places.get(key)
            if now is not p:
                raise Refused(f"{self.by} has put another tensor in the place of parameter {name}; "
                              + ("it may be changed in place" if id(p) in self._moves else "only the job's optimizer may change it"))
            if p is not None and p.requires_grad != trained:
                if id(p) in self._moves and not p.is_leaf:
                    self._refuse_graph(f"parameter {name}")
                raise Refused(f"{self.by} has set requires_grad of parameter {name} to {p.requires_grad}, which would"
                              " differ from worker to worker; say in build() what is trained")
        for places, key, tensor, name in self._moving:
            if places.get(key) is not tensor:
                raise Refused(f"{self.by} has put another tensor in the place of buffer {name}; it may be changed in place")
            if tensor.requires_grad:
                self._refuse_graph(f"buffer {name}")
        same = self._as_they_were()
        for i, (before, after) in enumerate(zip(self._known, self._versions())):
            if before == after and i in same:
                continue
            if not self._as_before(i, before, after):
                _, key, what, module = self._places[i]
                owner = dict(self._modules)[module]
                if isinstance(owner, nn.modules.batchnorm._NormBase) and key in owner._buffers:
                    raise Refused(
                        f"{module_text(self._net, module)} is a {type(owner).__name__} whose running statistics stand still as"
                        f" build() has left them, and {self.by} has changed them; build() decides: train() of it there and"
                        f" they move, or no train() in {self.by}")
                raise Refused(
                    f"{self.by} has changed {what} of {module_text(self._net, module)}, which would differ from worker"
                    " to worker; compute with what is constant, make it a parameter that is trained, or say"
                    " starling.moving() of its module in build()")
        for (name, module), was, training in zip(self._modules, self._modes, self._training()):
            if was != training:
                raise Refused(
                    f"{self.by} has left {module_text(self._net, name)} in {'train' if training else 'eval'}() mode, which"
                    f" would differ from worker to worker; set modes in build(), or back before {self.by} ends")


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
