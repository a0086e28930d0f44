"""A coordinator whose name has two addresses, the first of which nobody listens at, is reached at the second."""
from cluster import Cluster
from faults import preloaded
from harness import require


def a_worker_tries_every_address_of_a_name(place):
    with Cluster(place, place.job(steps=60), coordinators=1, workers=2,
                 environment=preloaded(place, name="duo")) as cluster:
        cluster.start_coordinator(0)
        port = cluster.addresses[0].rsplit(":", 1)[1]
        cluster.addresses[0] = f"duo:{port}"
        for _ in range(2):
            cluster.start_worker("--save", "none")
        cluster.end()
        require(cluster.events(0, "done"), cluster.text())
