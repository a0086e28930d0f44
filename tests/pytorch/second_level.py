"""models.py with a loop of its own."""

import os

import models
import starling

if __name__ == "__main__":
    job = starling.Job(models.build, steps=int(os.environ.get("STEPS", "20")), micro_batches=models.MICRO_BATCHES,
                       batch_size=models.BATCH, optimizer=starling.AdamW(models.RATE, warmup=models.WARMUP),
                       workers=int(os.environ.get("WORKERS", "2")), out=os.environ.get("OUT"), lease_ms=5000)
    seen = 0
    for step in job:
        for mb in step.mine:
            value = mb.done(models.loss(job.net, mb.batch()))
            assert 0 <= mb.number < models.MICRO_BATCHES and len(mb.samples) == models.BATCH and value > 0
            seen += 1
    print(f"digest {job.trained.digest}, computed here {seen}")
