"""Running statistics of a net's modules (BatchNorm's, and those that moving() names), which are tensors of the job beside
its parameters: a pass begins with those of its step, and its gradient is the difference, old less new. The step subtracts
the mean of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from .script import Refused

if TYPE_CHECKING:
    from torch import nn

_KEPT = ("running_mean", "running_var")
_MOVES = "_starling_moves"  # an attribute of a module, which its copies have too


def moving(module: "nn.Module") -> "nn.Module":
    """Says in build() that passes change the module's buffers of floating point and its parameters, none of which is
    trained, in place: an average of weights, a teacher that follows, a codebook. Returns the module.

    Each pass begins with those of its step, and the step's new ones are the mean of what its micro-batches have made of
    them, with the same bits for any number of workers. They are in the trained model and in checkpoints, have the memory
    of trained parameters, and cost four bytes of messages for each element and micro-batch. What is added to the module
    later is not among them.

    Raises ValueError for a parameter that is trained, and for what is no module."""
    if isinstance(module, type) or not hasattr(module, "named_parameters"):
        kind = f"the class {module.__name__}" if isinstance(module, type) else f"a {type(module).__name__}"
        raise ValueError(f"{kind} cannot be said to move, expected a module that has it, as torch.nn.ParameterList([..]),"
                         " in starling.moving()")
    for name, p in module.named_parameters():
        if p.requires_grad:
            raise ValueError(f"parameter {name} of a {type(module).__name__} that moves is trained: the optimizer moves it;"
                             " expected requires_grad_(False) before starling.moving()")
    for one in module.modules():
        setattr(one, _MOVES, True)
    return module


def _of_module(module: "nn.Module") -> "list[str]":
    """The names of its own that move."""
    if not getattr(module, _MOVES, False):
        return list(_KEPT) if keeps(module) and module.momentum else []
    own = {**module._parameters, **module._buffers}
    return [key for key, t in own.items() if t is not None and not t.requires_grad and t.is_floating_point()
            and key not in module._non_persistent_buffers_set]


def keeps(module: "nn.Module") -> bool:
    """Whether its passes write running statistics. Those of momentum=0 stand still, and of an InstanceNorm's None."""
    from torch import nn

    return (isinstance(module, nn.modules.batchnorm._NormBase) and module.training and module.track_running_stats
            and module.running_mean is not None)


def counts(module: "nn.Module") -> bool:
    """Whether it has a count of passes, which nothing reads, beside statistics that move: a loss may copy it with them."""
    from torch import nn

    if not isinstance(module, nn.modules.batchnorm._NormBase) or module.num_batches_tracked is None:
        return False
    return keeps(module) or (getattr(module, _MOVES, False) and module.momentum is not None)


def of_all_passes(module: "nn.Module") -> bool:
    """Whether they are means over all passes of the module's life."""
    from torch import nn

    return keeps(module) and module.momentum is None and isinstance(module, nn.modules.batchnorm._BatchNorm)


def of(net: "nn.Module", named: bool = False) -> "list[tuple[str, Any]]":
    """Those that move, by their names in the state_dict, in the module's order; a tied parameter once. named: only those
    that moving() names."""
    found, tied = [], set()
    for name, module in net.named_modules():
        for key in _of_module(module) if getattr(module, _MOVES, False) or not named else ():
            tensor = module._buffers[key] if key in module._buffers else module._parameters[key]
            if key in module._buffers or id(tensor) not in tied:
                found.append((f"{name}.{key}" if name else key, tensor))
                tied.add(id(tensor))
    return found


def _same(a: Any, b: Any) -> bool:
    """Whether two of float32 have the same bits, those of NaN too."""
    import torch

    return bool(torch.equal(a.detach().view(torch.int32), b.view(torch.int32)))


class Moving:
    """A process's own statistics, which lie in its memory and not in the worker's: a pass may write them."""

    def __init__(self, net: "nn.Module") -> None:
        found = of(net)
        parameters = {id(p) for p in net.parameters()}
        self._texts = [f"{'parameter' if id(tensor) in parameters else 'buffer'} {name}" for name, tensor in found]
        self._now = [tensor for _, tensor in found]
        self._own = [tensor.data for tensor in self._now]  # their memory
        self._old = [tensor.detach().clone() for tensor in self._now]
        # Of running statistics nobody means to move what a pass of the net between two of the job's does.
        kept = {id(module._buffers[key]) for module in net.modules() if keeps(module) for key in _KEPT}
        self._meant = [id(tensor) not in kept for tensor in self._now]
        self._versions = self._counted()

    def _counted(self) -> "list[int]":
        return [tensor._version for tensor in self._now]

    def begin(self, weights: "Sequence[Any]") -> None:
        """A pass begins with these [each's shape]; with none while the process has no memory: with build()'s. Raises
        Refused for what moving() names and has been written since the last pass."""
        for text, now, old, before, meant in zip(self._texts, self._now, self._old, self._versions, self._meant):
            # A look at a tensor of a GPU costs a wait.
            if meant and (now._version != before or now.device.type == "cpu") and not self._is(now, old):
                raise Refused(f"{text} was changed between two passes, of which the job would know nothing; what moves it"
                              " belongs into the loss, before done()")
        for now, own, old, weight in zip(self._now, self._own, self._old, weights):
            if now.data_ptr() != own.data_ptr():
                now.data = own
            old.copy_(weight)
            now.copy_(weight)
        self._versions = self._counted()

    @staticmethod
    def _fits(now: Any, old: Any) -> bool:
        return bool(now.shape == old.shape and now.dtype == old.dtype and now.device == old.device)

    def _is(self, now: Any, old: Any) -> bool:
        return self._fits(now, old) and _same(now, old)

    def changed(self) -> "list[str]":
        """The kinds and names of those that have been written since begin()."""
        return [text for text, now, old in zip(self._texts, self._now, self._old) if not self._is(now, old)]

    def gradients(self) -> "list[Any]":
        """Of the pass, which ends: the statistics are as it began. Raises Refused for what has no difference."""
        found = list(map(self._difference, self._texts, self._now, self._old))
        for now, own, old in zip(self._now, self._own, self._old):
            if now.data_ptr() != own.data_ptr():  # .data = .., of memory that may be another's
                now.data = own
            now.copy_(old)
        self._versions = self._counted()
        return found

    def _difference(self, text: str, now: Any, old: Any) -> Any:
        """Old less new, on the CPU."""
        import torch

        if not self._fits(now, old):
            raise Refused(f"the loss has made {text}, which moves, {now.dtype} {tuple(now.shape)} on {now.device}; expected"
                          f" {old.dtype} {tuple(old.shape)} on {old.device}, changed in place")
        made = (old - now).cpu()
        if torch.isfinite(made).all():
            return made
        # Infinity less infinity is no number: a mask that stands still has none to subtract.
        before, after = old.cpu(), now.cpu()
        still = torch.eq(before.view(torch.int32), after.view(torch.int32))
        if not (torch.isfinite(before) | still).all():
            raise Refused(f"the loss has moved an element of {text} that was not finite (NaN or infinity), from which no"
                          " difference leads; expected finite numbers to begin with")
        return made.masked_fill(still, 0.0)
