"""Running statistics of a net's modules (BatchNorm's, and those that moving() names), which are tensors of the job beside
its parameters: a pass begins with those of its step, and its gradient is the difference, old less new. The step subtracts
the mean of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from torch import nn

_KEPT = ("running_mean", "running_var")
_MOVES = "_starling_moves"  # an attribute of a module, which its copies have too


def moving(module: "nn.Module") -> "nn.Module":
    """Says in build() that passes change the module's buffers of floating point and its parameters, none of which is
    trained, in place: an average of weights, a teacher that follows, a codebook. Returns the module.

    Each pass begins with those of its step, and the step's new ones are the mean of what its micro-batches have made of
    them, with the same bits for any number of workers. They are in the trained model and in checkpoints, and each costs
    the memory and the bytes of a trained parameter. What is added to the module later is not among them.

    Raises ValueError for a parameter that is trained."""
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


def of_all_passes(module: "nn.Module") -> bool:
    """Whether they are means over all passes of the module's life."""
    from torch import nn

    return keeps(module) and module.momentum is None and isinstance(module, nn.modules.batchnorm._BatchNorm)


def of(net: "nn.Module") -> "list[tuple[str, Any]]":
    """Those that move, by their names in the state_dict, in the module's order; a tied parameter once."""
    found, tied = [], set()
    for name, module in net.named_modules():
        for key in _of_module(module):
            tensor = module._buffers[key] if key in module._buffers else module._parameters[key]
            if key in module._buffers or id(tensor) not in tied:
                found.append((f"{name}.{key}" if name else key, tensor))
                tied.add(id(tensor))
    return found


class Moving:
    """A process's own statistics, which lie in its memory and not in the worker's: a pass may write them."""

    def __init__(self, net: "nn.Module") -> None:
        found = of(net)
        parameters = {id(p) for p in net.parameters()}
        self._texts = [f"{'parameter' if id(tensor) in parameters else 'buffer'} {name}" for name, tensor in found]
        self._now = [tensor for _, tensor in found]
        self._old = [tensor.detach().clone() for tensor in self._now]

    def begin(self, weights: "Sequence[Any]") -> None:
        """A pass begins with these [each's shape]; with none while the process has no memory: with build()'s."""
        for now, old, weight in zip(self._now, self._old, weights):
            old.copy_(weight)
            now.copy_(weight)

    def changed(self) -> "list[str]":
        """The kinds and names of those that have been written since begin()."""
        return [text for text, now, old in zip(self._texts, self._now, self._old) if not now.equal(old)]

    def gradients(self) -> "list[Any]":
        """Of the pass, which ends: the statistics are as it began."""
        found = [(old - now).cpu() for old, now in zip(self._old, self._now)]
        for now, old in zip(self._now, self._old):
            now.copy_(old)
        return found
