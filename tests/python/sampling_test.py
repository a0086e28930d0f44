"""Which samples a pass over the data has where a job was told so: by weights, by lengths, or by a function of the pass."""
import collections
import itertools
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python")]
sys.path += [] if os.environ.get("STARLING_TEST_TORCH") else [os.path.join(SOURCE, "tests", "stand_in")]

import torch  # noqa: E402
from torch.utils.data import RandomSampler, SequentialSampler  # noqa: E402

from starling import Grouped, Weighted, module, sampling  # noqa: E402
from starling.script import Refused  # noqa: E402


def passes(sampler, count, size=4, seed=7):
    return [sampler.at(seed, range(n * sampler.length, (n + 1) * sampler.length), size) for n in range(count)]


def raised(kind, call):
    try:
        call()
    except kind as why:
        return str(why)
    raise AssertionError(f"nothing was raised, expected {kind.__name__}")


def samples_are_drawn_as_often_as_their_weights_say(place):
    weights = [1.0, 0.0, 2.0, 3.0, 0.0]
    sampler = Weighted(weights)
    found = collections.Counter(sampler.at(7, range(60000), 4))
    for i, weight in enumerate(weights):
        require(abs(found[i] - 10000 * weight) <= 300, f"sample {i} of weight {weight}: {found[i]} times of 60000")
    require(set(found) == {0, 2, 3}, str(found))
    # The numbers are the same in every release and on every machine.
    first = sampler.at(7, range(16), 4)
    require(first == [3, 3, 0, 0, 3, 3, 2, 2, 3, 2, 3, 2, 3, 2, 0, 3], str(first))
    require(first != sampler.at(8, range(16), 4), "another seed draws the same")


def a_pass_of_weights_has_as_many_samples_as_were_said(place):
    require(Weighted([1, 1, 1]).length == 3 and Weighted([1, 1, 1], 10).length == 10, "other lengths")
    require(Weighted(torch.ones(4)).length == 4, "of a tensor")
    for given, line in ((([],), "weights must have a finite sum above 0"), (([0.0, 0.0],), "weights must have a finite sum above 0"),
                        (([1.0, -1.0],), "weights must be finite numbers from 0 on, the one of sample 1 is -1.0"),
                        (([float("nan")],), "the one of sample 0 is nan"), (([1e308, 1e308],), "a finite sum above 0"),
                        (([[1.0]],), "weights must be numbers, one for each sample"),
                        ((["many"],), "weights must be numbers, one for each sample"),
                        (({0: 1.0, 1: 3.0},), "weights must be numbers, one for each sample"),
                        ((7,), "weights must be numbers, one for each sample"), ((None,), "weights must be numbers, one for each sample"),
                        (({1.0, 2.0},), "weights must be numbers, one for each sample"),
                        (([10 ** 400],), "weights must be numbers, one for each sample"),
                        (([1.0], 0), "samples=0, expected a whole number from 1 on"),
                        (([1.0], 2.5), "samples=2.5, expected a whole number from 1 on")):
        said = raised(ValueError, lambda: Weighted(*given))
        require(line in said, f"{given}: {said}")
    said = raised(Refused, lambda: sampling.of(Weighted([1, 2]), 3))
    require(said == "Weighted has 2 weights, and the Dataset 3 samples; expected one for each", said)


def micro_batches_of_a_grouped_pass_have_like_lengths(place):
    lengths = random.Random(3).choices(range(500), k=203)
    for size, pool in ((4, 10), (4, 1000), (7, 3), (1, 5), (300, 2)):
        sampler = Grouped(lengths, pool)
        found = passes(sampler, 3, size)
        for one in found:
            require(sorted(one) == list(range(203)), f"a pass of {size} and {pool} is not each sample once")
        require(found[0] != found[1], "two passes are the same")
        if (size, pool) == (4, 10):  # also where a micro-batch has the last of one pass and the first of the next
            flat = [lengths[i] for one in found for i in one]
            spread = [max(flat[at:at + 4]) - min(flat[at:at + 4]) for at in range(0, len(flat) - 3, 4)]
            plain = [max(part) - min(part) for part in (random.Random(5).sample(lengths, 4) for _ in range(200))]
            require(sum(spread) / len(spread) < 0.35 * sum(plain) / len(plain), f"{spread}")
            firsts = [max(flat[at:at + 4]) for at in range(0, 200, 4)]
            require(firsts != sorted(firsts, reverse=True), "the longest come first")
    for given, line in ((([],), "lengths has no number"), (([1], 0), "pool=0, expected a whole number from 1 on"),
                        (([-1],), "lengths must be finite numbers from 0 on, the one of sample 0 is -1.0")):
        said = raised(ValueError, lambda: Grouped(*given))
        require(line in said, f"{given}: {said}")
    said = raised(Refused, lambda: sampling.of(Grouped([1, 2]), 3))
    require(said == "Grouped has 2 lengths, and the Dataset 3 samples; expected one for each", said)


def a_function_is_asked_for_each_pass(place):
    sampler = sampling.of(lambda number: [number, 9, random.randrange(10)], 10)
    require(sampler.length == 3, str(sampler.length))
    found = passes(sampler, 4)
    require([one[:2] for one in found] == [[n, 9] for n in range(4)], str(found))
    require(found == passes(sampler, 4) and found != passes(sampler, 4, seed=8), f"random numbers are not the pass's: {found}")
    before = random.getstate()
    sampler.at(3, [3 * 5], 4)
    require(random.getstate() == before, "a pass is asked for, and random numbers are others")


class Drawn:
    """A number as torch and numpy have them."""
    def __init__(self, dtype):
        self.dtype = dtype

    def __repr__(self):
        return "Drawn()"

    def __index__(self):
        return 3


class DistributedSampler:
    def __iter__(self):
        return iter([0])


class Rank(DistributedSampler):
    pass


def numbers_are_as_torch_and_numpy_have_them(place):
    require(passes(sampling.of(lambda n: [0, Drawn("torch.int64")], 10), 1) == [[0, 3]], "no number of torch's")
    require(Weighted([1, 1], Drawn("int64")).length == 3, "no number of numpy's")


def a_sampler_of_other_data_has_their_samples(place):
    """RandomSampler(part) beside a larger Dataset draws of the first samples alone."""
    few, many = range(4), range(64)
    require(sampling.of(RandomSampler(many), 64) is None, "all samples in a drawn order are not the order that a job draws")
    require(isinstance(sampling.of(RandomSampler(many, True, 40), 64), Weighted), "draws with replacement are not by weights")
    for sampler in (RandomSampler(few, True, 40), RandomSampler(few, False, 64)):
        require(set(passes(sampling.of(sampler, 64), 1)[0]) == set(few), "samples that the sampler has not")
    for data, found in ((many, list(many)), (few, list(few))):
        require(passes(sampling.of(SequentialSampler(data), 64), 2) == [found, found], "another order than the Dataset's")


def random_numbers_of_a_pass_are_those_of_no_micro_batch(place):
    drawn = []
    sampling.of(lambda n: drawn.append(random.random()) or [0], 10).at(7, [2], 4)
    module.seed_everything(7, 2, 0)
    require(random.random() not in drawn, "pass 2 and step 2 draw the same numbers")


def what_is_no_function_of_the_pass_is_refused(place):
    count = itertools.count()
    for given, line in ((lambda n: [next(count)], "sampler= gives other samples for pass 0 when it is asked again"),
                        (lambda n: [0.5], "sampler= gives 0.5 for pass 0, expected numbers of samples, 0 to 9"),
                        (lambda n: [True], "sampler= gives True for pass 0"), (lambda n: [-1], "sampler= gives -1 for pass 0"),
                        (lambda n: [10], "sampler= gives 10 for pass 0"), (lambda n: [[1]], "sampler= gives [1] for pass 0"),
                        (lambda n: [], "sampler= gives no samples for pass 0"),
                        (lambda n: itertools.repeat(1), f"sampler= gives more than {1 << 20} samples for pass 0"),
                        (lambda n: range(3 - n), "sampler= gives 2 samples for pass 1 and 3 for the first"),
                        (lambda n: "12", "sampler= gives a str for pass 0"),
                        (lambda n: [0, Drawn("torch.bool")], "sampler= gives Drawn() for pass 0"),
                        (lambda n: [0, torch.tensor([0.5])], "for pass 0, expected numbers of samples, 0 to 9"), ([0.5, 0.5], "the sampler, a list, gives 0.5 for pass 0"),
                        (Rank(), "the sampler is a Rank, a DistributedSampler: leave it out"),
                        (lambda n: n, "sampler= gives a int for pass 0, expected numbers of samples, 0 to 9"),
                        (iter([1, 2]), "the sampler, a list_iterator, gives no samples for pass 0"),
                        (5, "sampler= is a int, expected starling.Weighted(weights)"), (Weighted, "sampler= is the class Weighted")):
        said = raised(Refused, lambda: sampling.of(given, 10))
        require(line in said, said)
    changed = [1, 2, 3]  # by the training
    read = sampling.of(lambda n: changed if n > 1 else [1, 2, 3], 10)
    require(passes(read, 3)[2] == [1, 2, 3] and read.at(7, [7], 4) == [2], "not what was given")
    changed[0] = 4
    require(read.at(7, [8], 4) == [3], "a pass is others in its midst")
    said = raised(Refused, lambda: read.at(7, [9], 4))
    require("sampler= gives other samples for pass 2 when it is asked again at pass 3" in said, said)
    later = sampling.of(lambda n: range(3 if n < 2 else 4), 10)
    said = raised(Refused, lambda: passes(later, 3))
    require("sampler= gives 4 samples for pass 2 and 3 for the first" in said, said)


def what_draws_otherwise_has_another_digest(place):
    def digests(*samplers):
        return len({sampler.digest() for sampler in samplers})

    require(digests(Weighted([1, 2]), Weighted([1, 2.0]), Weighted((1, 2), 2)) == 1, "the same")
    require(digests(Weighted([1, 2]), Weighted([2, 4]), Weighted([1, 2], 3), Grouped([1, 2]), Grouped([1, 2], 3), Grouped([2, 1]),
                    *(sampling.of(given, 4) for given in (lambda n: [0, 1], lambda n: [1, 0], lambda n: [0, n]))) == 9, "others")


def numbers_that_may_be_weights_are_no_sampler(place):
    """Those of a DataLoader are numbers of samples, as in torch."""
    for given in ([1, 9], (1, 9), range(2), torch.ones(2), {1: 1}, {1}):
        said = raised(Refused, lambda: sampling.of(given, 10, by_hand=True))
        require("expected starling.Weighted(weights), " in said, said)
    require(passes(sampling.of([1, 9], 10), 2) == [[1, 9], [1, 9]], "no numbers of samples")


main(numbers_that_may_be_weights_are_no_sampler, samples_are_drawn_as_often_as_their_weights_say, a_pass_of_weights_has_as_many_samples_as_were_said,
     micro_batches_of_a_grouped_pass_have_like_lengths, a_function_is_asked_for_each_pass,
     numbers_are_as_torch_and_numpy_have_them, a_sampler_of_other_data_has_their_samples,
     random_numbers_of_a_pass_are_those_of_no_micro_batch, what_is_no_function_of_the_pass_is_refused, what_draws_otherwise_has_another_digest)
