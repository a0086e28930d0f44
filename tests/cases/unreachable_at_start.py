"""A worker of a fresh job that no other worker can connect to is told so, and holds up nobody."""
import socket

from cluster import Cluster
from harness import require, wait_until


def the_others_begin_without_it(place):
    with Cluster(place, place.job(steps=1_000_000), coordinators=1, workers=4) as cluster, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        wrong = f"127.0.0.1:{nobody.getsockname()[1]}"
        cluster.start_coordinator(0)
        for _ in range(2):
            cluster.start_worker("--save", "none")
        # Of two workers one dials the other: one of these two is dialled in vain, whatever their ranks.
        unheard = [cluster.start_worker("--save", "none", "--advertise", wrong) for _ in range(2)]
        wait_until(lambda: any(worker.poll() is not None for worker in unheard), "the end of one that is not reached")
        ended = next(worker for worker in unheard if worker.poll() is not None)
        require(ended.returncode == 2, f"exit code {ended.returncode}:\n{cluster.text()[-3000:]}")
        require("the other workers cannot connect to" in cluster.text(), cluster.text()[-3000:])
        cluster.wait_for_step(0, cluster.steps(0) + 5)
