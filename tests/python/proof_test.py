"""Digests say what values are, whatever process holds them; of earlier calls as much is told as a job file can have."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

from starling import proof  # noqa: E402
from starling.calls import Call, Trained  # noqa: E402


class Array:
    """As numpy's arrays of objects, whose bytes are addresses."""

    class dtype:
        hasobject = True

    def __init__(self, values):
        self.values, self.shape = values, (len(values),)

    def tobytes(self):
        return str([id(value) for value in self.values]).encode()

    def tolist(self):
        return self.values


class Slots:
    __slots__ = ("text", "missing")

    def __init__(self, text):
        self.text = text


def digest(value):
    return proof.Digest().take(value).bytes()


def equal_values_have_equal_digests(place):
    def text(word):
        return "".join(list(word))  # an object of its own

    for make in (lambda word: Array([text(word), 1]), lambda word: Slots(text(word)), lambda word: {text(word), "other"}):
        require(digest(make("one")) == digest(make("one")), f"{make('one')!r}: two of the same")
        require(digest(make("one")) != digest(make("two")), f"{make('one')!r}: another one")


def of_many_calls_the_newest_evaluations_are_told(place):
    for number in range(200):
        call = Call()
        call.trained = Trained("out", "0" * 32, 1.0, 5, evaluation="x" * 30000)
    records = Call.records(200)
    require(len(records) == 200 and sum(map(len, records)) < 400_000, f"{sum(map(len, records))} bytes")
    told = ["evaluation" in record for record in records]
    require(told[-1] and not told[0] and told == sorted(told), told)


main(equal_values_have_equal_digests, of_many_calls_the_newest_evaluations_are_told)
