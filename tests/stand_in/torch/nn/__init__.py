from . import modules  # noqa: F401
from .modules import Module, Parameter  # noqa: F401


class parameter:
    @staticmethod
    def is_lazy(_):
        return False
