"""Running statistics of a net's modules (BatchNorm's), which are tensors of the job beside its parameters: a pass begins
with those of its step, and its gradient is the difference, old less new. The step subtracts the mean of it."""

from __future__ import annotations

from typing import Any, Sequence

from torch import nn

_KEPT = ("running_mean", "running_var")


def keeps(module: nn.Module) -> bool:
    """Whether its passes write running statistics. Those of momentum=0 stand still, and of an InstanceNorm's None."""
    return (isinstance(module, nn.modules.batchnorm._NormBase) and module.training and module.track_running_stats
            and module.running_mean is not None)


def of_all_passes(module: nn.Module) -> bool:
    """Whether they are means over all passes of the module's life."""
    return keeps(module) and module.momentum is None and isinstance(module, nn.modules.batchnorm._BatchNorm)


def of(net: nn.Module) -> "list[tuple[str, Any]]":
    """Those that move, by their names in the state_dict, in the module's order."""
    return [(f"{name}.{key}" if name else key, module._buffers[key]) for name, module in net.named_modules()
            if keeps(module) and module.momentum for key in _KEPT]


class Moving:
    """A process's own statistics, which lie in its memory and not in the worker's: a pass may write them."""

    def __init__(self, net: nn.Module) -> None:
        found = of(net)
        self.names = [name for name, _ in found]
        self._now = [tensor for _, tensor in found]
        self._old = [tensor.detach().clone() for tensor in self._now]

    def begin(self, weights: "Sequence[Any]") -> None:
        """A pass begins with these [each's shape]; with none while the process has no memory: with build()'s."""
        for now, old, weight in zip(self._now, self._old, weights):
            old.copy_(weight)
            now.copy_(weight)

    def changed(self) -> "list[str]":
        """The names of those that have been written since begin()."""
        return [name for name, now, old in zip(self.names, self._now, self._old) if not now.equal(old)]

    def gradients(self) -> "list[Any]":
        """Of the pass, which ends: the statistics are as it began."""
        found = [(old - now).cpu() for old, now in zip(self._old, self._now)]
        for now, old in zip(self._now, self._old):
            now.copy_(old)
        return found
