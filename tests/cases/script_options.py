"""A script's own options reach its workers: another option is another training."""
from harness import require
from scripts import HEAD, result, written

OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
options = parser.parse_args()
train(lambda net, batch: loss(net, batch) * options.scale)
"""


def another_scale_of_the_loss_is_another_digest(place):
    script = written(place, "train.py", HEAD + OPTIONS)
    plain = result(script, OUT=place.path("plain"))
    said = result(script, "--scale", "1.0", OUT=place.path("said"))
    require(said == plain, "the default, said, is another training")
    require(result(script, "--scale", "30", OUT=place.path("scaled")) != plain, "the same digest with --scale 30")
