"""A command whose standard streams are closed writes its progress nowhere, and not into the files that it opens."""
import os
import subprocess

from faults import closing
from harness import PATIENCE, STARLING, Run, require
from ports import free_port


def a_run_without_streams_has_whole_events(place):
    for streams in ((1,), (2,), (0, 1, 2)):
        place.count += 1
        run = Run(place.job(steps=30), place.path(f"out-{place.count}"), ("--workers", 2), closing(*streams)).end()
        run.verify_ledger()
        audit = subprocess.run([STARLING, "audit", run.out], capture_output=True, text=True)
        require(audit.returncode == 0, f"without {streams}: {audit.stdout}{audit.stderr}")


def a_coordinator_without_streams_reads_its_log_again(place):
    job, keys, at = place.job(steps=30), place.path("keys"), f"127.0.0.1:{free_port()}"
    subprocess.run([STARLING, "keys", "--out", keys], check=True, stdout=subprocess.DEVNULL)
    command = [STARLING, "coordinator", "--job", job, "--keys", keys, "--listen", at, "--state", place.path("state"),
               "--workers", "1"]
    worker = [STARLING, "worker", "--join", at, "--keys", keys, "--save", "none", "--quiet"]
    for more in (["--new"], []):  # the second time the job is over, as its log says
        coordinator = subprocess.Popen(command + more, preexec_fn=closing(0, 1, 2))
        ended = subprocess.run(worker, capture_output=True, text=True, timeout=PATIENCE)
        require(coordinator.wait(PATIENCE) == 0, f"a coordinator ended with {coordinator.returncode}")
        require(ended.returncode == 0, f"a worker ended with {ended.returncode}: {ended.stderr}")
    require(os.path.getsize(place.path("state/raft.log")), "the log is empty")
