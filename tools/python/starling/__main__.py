"""python -m starling SCRIPT: computes for a worker, which starts this and is at the other end of descriptor 3."""

import sys

from .child import main

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m starling SCRIPT, started by a worker; people run their script itself")
    main(sys.argv[1])
