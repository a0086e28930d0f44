"""`starling run` keeps its workers alive: one that dies is started again, unless it dies again and again."""
import os
import signal

from harness import alive, main, processes_naming, require, same, same_so_far, wait_until, with_checkpoints


def living(run):
    lost = {e["id"] for e in run.workers("lost")}
    return [e for e in run.workers() if e["id"] not in lost]


def a_killed_worker_is_started_again(place):
    quiet = place.quiet(place.job(steps=400))
    run = place.run(place.job(steps=400), "--workers", 2, "--respawn", 3)
    run.wait_for_step(40)
    run.kill(run.workers()[0])
    wait_until(lambda: len(run.workers()) == 3, "another one joins")
    same(run, quiet)


def all_killed_at_once_go_on_from_the_checkpoint(place):
    quiet = place.quiet(place.job(steps=600))
    job = with_checkpoints(place.job(steps=600), place.path("checkpoints"), every=50)
    run = place.run(job, "--workers", 3, "--respawn", 3)
    wait_until(lambda: run.events("checkpoint"), "a checkpoint")
    run.kill_together(run.workers())
    same(run, quiet)
    require(len(run.events("restart")) == 1, f"{run.events('restart')}")


def who_dies_again_and_again_is_let_go(place):
    # Steps are slow, so that none who joins has worked at ten of them before it is killed.
    run = place.run(place.job(steps=100000, width=512), "--workers", 2, "--respawn", 1)
    run.wait_for_step(1)
    stays = run.workers()[0]["name"]
    for lives in (2, 3):
        other = next(e for e in living(run) if e["name"] != stays)
        run.kill(other)
        if lives == 2:
            wait_until(lambda: len(run.workers()) == 3, "another one joins")
    wait_until(lambda: "no worker is started again, as 2 in a row ended so: killed by SIGKILL" in run.text(),
               "it says why no worker is started again")
    now = run.steps()
    wait_until(lambda: run.steps() > now + 2, "the other one goes on")
    require(len(run.workers()) == 3, f"{run.workers()}")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def guard_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def a_worker_without_its_guard_that_is_left_out_comes_back(place):
    """Also where no worker that dies is started again: it has not died."""
    job = place.job(steps=100000, lease_ms=1000)
    run = place.run(job, "--workers", 1)
    run.wait_for_step(5)
    first = run.workers()[0]
    run.join("--save", "none")
    wait_until(lambda: [m["joiner"] for m in run.events("epoch")[-1]["members"]] == [False, False],
               "the other has the state")
    run.kill({"pid": guard_of(first["pid"])})
    os.kill(first["pid"], signal.SIGSTOP)
    wait_until(lambda: run.workers("fenced"), "it is left out")
    os.kill(first["pid"], signal.SIGCONT)
    wait_until(lambda: len(run.workers()) == 3, "a new life of it joins")
    now = run.steps()
    run.wait_for_step(now + 10)
    same_so_far(place, run, job)


def a_worker_whose_guard_is_killed_is_not_doubled(place):
    run = place.run(place.job(steps=1000000), "--workers", 2, "--respawn", 3)
    run.wait_for_step(5)
    first = run.workers()[0]
    run.kill({"pid": guard_of(first["pid"])})
    now = run.steps()
    wait_until(lambda: run.steps() > now + 50, "it goes on without its guard")
    require(len(run.workers()) == 2 and alive(first["pid"]), f"{run.workers()}")
    run.kill(first)
    wait_until(lambda: len(run.workers()) == 3, "another one joins when it dies itself")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)
    require(not processes_naming(run.out), "processes are left")


main(a_killed_worker_is_started_again, all_killed_at_once_go_on_from_the_checkpoint,
     who_dies_again_and_again_is_let_go, a_worker_without_its_guard_that_is_left_out_comes_back,
     a_worker_whose_guard_is_killed_is_not_doubled)
