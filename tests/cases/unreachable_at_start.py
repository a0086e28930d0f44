"""A worker of a fresh job that no other worker can connect to is told so, and holds up nobody."""
import socket

from cluster import Cluster
from harness import require, wait_until


def the_others_begin_without_it(place):
    with Cluster(place, place.job(steps=60), coordinators=1, workers=3) as cluster, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        cluster.start_coordinator(0)
        cluster.start_worker("--save", "none")
        unheard = cluster.start_worker("--save", "none", "--advertise", f"127.0.0.1:{nobody.getsockname()[1]}")
        cluster.start_worker("--save", "none")
        wait_until(lambda: unheard.poll() is not None, "the end of the worker that nobody can connect to")
        require(unheard.returncode == 2, f"exit code {unheard.returncode}:\n{cluster.text()[-3000:]}")
        require("the other workers cannot connect to" in cluster.text(), cluster.text()[-3000:])
        cluster.workers.remove(unheard)
        cluster.end()
        require(cluster.events(0, "done"), cluster.text()[-3000:])
