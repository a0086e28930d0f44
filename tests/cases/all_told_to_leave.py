"""Workers that are all told to leave (a zone is reclaimed) write a last checkpoint, from which the job goes on."""
import signal

from cluster import Cluster
from harness import PATIENCE, wait_until, with_checkpoints
from kept import ENDLESS, goes_on_to_the_undisturbed_digest, last_checkpoint


def all_workers_of_a_group_are_told(place):
    folder = place.path("checkpoints")
    job = with_checkpoints(place.job(**ENDLESS), folder, every=1000000)
    with Cluster(place, job, coordinators=1, workers=2) as cluster:
        cluster.start_all()
        cluster.wait_for_step(0, 40)
        told = cluster.steps(0)
        for worker in cluster.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in cluster.workers:
            worker.wait(PATIENCE)
        wait_until(lambda: last_checkpoint(folder) or cluster.events(0, "failed"), f"an end:\n{cluster.text()}")
    goes_on_to_the_undisturbed_digest(place, job, folder, told)


def all_workers_of_a_run_are_told(place):
    folder = place.path("checkpoints")
    job = with_checkpoints(place.job(**ENDLESS), folder, every=1000000)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(40)
    told = run.steps()
    for worker in run.workers():
        run.kill(worker, signal.SIGTERM)
    # It would end by itself when nobody has come for the job's `start_timeout`.
    wait_until(lambda: last_checkpoint(folder) or run.process.poll() is not None, "a last checkpoint")
    run.process.send_signal(signal.SIGINT)
    run.process.wait(PATIENCE)
    goes_on_to_the_undisturbed_digest(place, job, folder, told)
