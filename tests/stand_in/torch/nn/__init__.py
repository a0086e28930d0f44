from . import modules  # noqa: F401
from .modules import Module, Parameter  # noqa: F401
