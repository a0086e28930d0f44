"""What callbacks see of the model while the workers have it."""

from __future__ import annotations

from typing import Any

from .script import Refused


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


def outline(model: Any) -> "list[Any]":
    """What a callback may have changed of it."""
    return [[(name, id(p), p.requires_grad, p._version) for name, p in model.named_parameters()],
            [(name, id(b), b._version) for name, b in model.named_buffers()],
            [(name, id(one), one.training) for name, one in model.named_modules()]]
