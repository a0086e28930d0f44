"""python -m starling SCRIPT: computes for a worker, which starts this and is at the other end of descriptor 3.
python -m starling --warm SCRIPT: has processes forked that do."""

import sys

from . import child, warm

if __name__ == "__main__":
    if len(sys.argv) != 2 and sys.argv[1:2] != ["--warm"] or len(sys.argv) > 3:
        sys.exit("usage: python -m starling SCRIPT, started by a worker; people run their script itself")
    path = sys.argv[-1]
    child.main(path, warm.serve(path) if sys.argv[1] == "--warm" else None)
