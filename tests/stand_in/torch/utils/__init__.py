from . import data  # noqa: F401


class deterministic:
    fill_uninitialized_memory = True
