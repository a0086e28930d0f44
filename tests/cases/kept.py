"""What a run that was ended early has kept: its last checkpoint, from which the job goes on."""
import os

from harness import require

MORE = 50  # steps after that checkpoint
ENDLESS = dict(steps=100000, schedule_steps=400)


def last_checkpoint(folder):
    """Version of the newest complete one, or None."""
    found = [int(name[5:]) for name in (os.listdir(folder) if os.path.isdir(folder) else ())
             if os.path.exists(os.path.join(folder, name, "manifest.json"))]
    return max(found, default=None)


def goes_on_to_the_undisturbed_digest(place, job, folder, after):
    """From the newest checkpoint of the folder, which has at least so many steps."""
    version = last_checkpoint(folder)
    require(version is not None and version >= after, f"newest checkpoint {version}, {after} steps were done")
    steps = version + MORE
    quiet = place.quiet(place.job(**ENDLESS | dict(steps=steps)))
    run = place.run(job, "--workers", 2, "--resume", "--steps", steps)
    require(run.digest() == quiet.digest(), f"digest {run.digest()}, undisturbed {quiet.digest()}")
