"""Azure names a machine in letters of either case: a Preempt for this one is heeded however it is spelt."""
from harness import LEFT, LONG_LEASE_MS, PATIENCE, require, wait_until
from metadata import Azure


class _Loud(Azure):
    def event(self, number, kind, machine, seconds):
        return super().event(number, kind, machine.upper(), seconds)


def a_notice_in_capitals_is_a_leave(place):
    run = place.run(place.job(steps=1000000, lease_ms=LONG_LEASE_MS), "--workers", 2)
    with _Loud() as azure:
        run.wait_for_step(5)
        worker = run.join("--save", "none", *azure.options)
        wait_until(lambda: azure.count("none"), "the service is asked")
        require(worker.poll() is None, "it left for another machine's notice")
        azure.tell(notice=60)
        require(worker.wait(PATIENCE) == LEFT, f"exit code {worker.returncode}:\n{run.text()[-2000:]}")
    run.process.send_signal(15)
    run.end(code=143)
