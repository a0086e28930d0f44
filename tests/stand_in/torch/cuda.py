"""One GPU, where STARLING_STAND_IN_CUDA is set."""
import os


def is_available():
    return bool(os.environ.get("STARLING_STAND_IN_CUDA"))


is_initialized = is_available


_drawn = [0]  # a count, in the place of a generator's state


def manual_seed_all(seed):
    _drawn[0] = seed


def get_rng_state_all():
    return list(_drawn)


def set_rng_state_all(states):
    _drawn[:] = states


def synchronize(device=None):
    del device


class _Runtime:
    @staticmethod
    def cudaHostRegister(at, size, flags):
        del at, size, flags
        return 801  # not supported


def cudart():
    return _Runtime()
