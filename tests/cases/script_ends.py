"""What every worker's script meets is the end of the job: its own reason comes last, with the exit code of bad input."""
from harness import require
from scripts import HEAD, ended, result, written


def what_every_worker_met_is_the_end(place):
    code, said = ended(written(place, "raises.py", HEAD + f"""
def wrong(net, batch):
    global passes
    passes += 1
    if passes > 12:
        raise ValueError("no such colour")
    return loss(net, batch)
passes = 0
train(wrong, workers=2, out={place.path("raises")!r})
"""))
    last = [line for line in said.splitlines() if line.strip()][-1]
    require(code == 2 and "ValueError: no such colour; " in last, f"exit code {code}: {said[-2000:]}")


def more_threads_change_no_bit(place):
    plain = result(written(place, "plain.py", HEAD + f"train(out={place.path('plain')!r})\n"))
    script = written(place, "threads.py", HEAD + f"train(threads=2, out={place.path('threads')!r})\n")
    require(result(script) == plain, "another digest")
