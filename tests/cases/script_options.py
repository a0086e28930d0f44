"""A script's own options reach its workers: another option is another training."""
from harness import require
from scripts import HEAD, result, written

OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--out")
options = parser.parse_args()
train(lambda net, batch: loss(net, batch) * options.scale, out=options.out)
"""


def another_scale_of_the_loss_is_another_digest(place):
    script = written(place, "train.py", HEAD + OPTIONS)
    plain = result(script, "--out", place.path("plain"))
    require(result(script, "--out", place.path("again"), "--scale", "1.0") == plain, "the default, said, is another one")
    require(result(script, "--out", place.path("scaled"), "--scale", "30") != plain, "the same digest with --scale 30")
