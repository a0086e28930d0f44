"""One GPU, where STARLING_STAND_IN_CUDA is set."""
import os


def is_available():
    return bool(os.environ.get("STARLING_STAND_IN_CUDA"))


is_initialized = is_available


def manual_seed_all(seed):
    del seed


def synchronize(device=None):
    del device


class _Runtime:
    @staticmethod
    def cudaHostRegister(at, size, flags):
        del at, size, flags
        return 801  # not supported


def cudart():
    return _Runtime()
