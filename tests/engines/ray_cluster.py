"""Raylets on this machine, told by lines on standard input: add, remove NUMBER, end. Run by a Python that has Ray."""
import os
import sys

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = []
print(f"address {cluster.address}", flush=True)
for line in sys.stdin:
    word, *number = line.split()
    if word == "add":
        nodes.append(cluster.add_node(num_cpus=1))
        print(f"pid {nodes[-1].all_processes['raylet'][0].process.pid}", flush=True)
    elif word == "remove":
        cluster.remove_node(nodes[int(number[0])], allow_graceful=False)
        print("removed", flush=True)
    else:
        break
cluster.shutdown()
