"""What callbacks see of the model while the workers have it."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

from .script import Refused

# Names of a parameter's attributes and methods that give nothing of its content.
_OUTSIDE = {"shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "is_sparse", "is_nested", "is_quantized",
            "is_meta", "is_cpu", "is_cuda", "nbytes", "itemsize", "numel", "nelement", "dim", "ndimension", "size", "stride",
            "element_size", "_version", "is_floating_point", "is_complex", "is_contiguous", "__len__"}


class Away:
    """In the place of the model while the workers have it."""

    def __init__(self, model: Any) -> None:
        self.__dict__["config"] = getattr(model, "config", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refused(f"a callback reads model.{name} while the job trains: the workers have the model, and callbacks have it"
                      " when the training begins, as it was, and when it ends")

    def __setattr__(self, name: str, value: Any) -> None:
        self.__getattr__(name)


@contextlib.contextmanager
def out_of_reach(model: Any) -> "Iterator[None]":
    """While the workers train the model, its trained parameters in this process are still the first ones: an operation that
    computes with a parameter, or copies it, raises Refused; shapes and types may be read."""
    from torch import nn

    names = {id(p): name for name, p in model.named_parameters()}

    class Gone(nn.Parameter):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            asked = getattr(function, "__name__", "")
            if asked == "__get__":
                asked = getattr(function.__self__, "__name__", "")
            if asked in _OUTSIDE:
                return nn.Parameter.__torch_function__(function, types, given, named or {})
            which = next((f"parameter {names[id(one)]}" for one in given if id(one) in names), "a parameter of the model")
            raise Refused(f"{which} is read while the job trains: the workers have the model, and here it is as it was"
                          " when the training began; it is trained here when the training has ended")

    hidden = [p for p in model.parameters() if p.requires_grad and type(p) is nn.Parameter]
    for p in hidden:
        p.__class__ = Gone
    try:
        yield
    finally:
        for p in hidden:
            p.__class__ = nn.Parameter


def outline(model: Any) -> "list[Any]":
    """What a callback may have changed of it."""
    return [[(name, id(p), p.requires_grad, p._version) for name, p in model.named_parameters()],
            [(name, id(b), b._version) for name, b in model.named_buffers()],
            [(name, id(one), one.training) for name, one in model.named_modules()]]
