"""A job whose last step was skipped, since its loss was no number, ends well in Python too: the loss is NaN."""
from harness import require
from scripts import HEAD, result, written

LOOP = """
job = starling.Job(build, steps=4, micro_batches=4, batch_size=4, workers=1, lease_ms=10000, out=os.environ.get("OUT"))
for step in job:
    for mb in step.mine:
        mb.done(loss(job.net, mb.batch()) * (float("nan") if step.number == 3 else 1.0))
assert job.trained.loss != job.trained.loss, job.trained
print("RESULT", job.trained.digest)
"""


def the_result_has_no_loss_and_a_digest(place):
    require(len(result(written(place, "train.py", HEAD + LOOP), OUT=place.path("out"))) == 32, "no digest")
