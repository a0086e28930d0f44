"""Cases: faults of the world around a run, each in a file of its own that says in one sentence what has to hold.

    python3 tests/cases/run.py build/release/starling sigusr no_flock      (without names: all of them)
"""
import importlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]

import harness  # noqa: E402

NO_CASES = ("run", "faults", "kept")


def names():
    return sorted(name[:-3] for name in os.listdir(HERE) if name.endswith(".py") and name[:-3] not in NO_CASES)


def case(name):
    found = importlib.import_module(name)
    tests = [test for test in vars(found).values() if getattr(test, "__module__", "") == name and
             callable(test) and not test.__name__.startswith("_")]
    harness.require(tests, f"{name} has no test")
    return tests


harness.main(*(test for name in sys.argv[2:] or names() for test in case(name)))
