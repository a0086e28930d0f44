"""Ports that nobody listens on: below those that the kernel gives to connections, so that none of them is taken
before the process that is to listen there does."""
import random
import socket

FIRST, LAST = 12000, 32000


def free_ports(count, host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = set()
    while len(found) < count:
        port = random.randrange(FIRST, LAST)
        with socket.socket(family) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        found.add(port)
    return list(found)


def free_port(host="127.0.0.1"):
    return free_ports(1, host)[0]
