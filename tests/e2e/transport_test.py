"""Steps whose bytes go from device to device: by a library that behaves as NCCL does, and fails as it does, on
the device whose memory the host cannot read. Same bits as through the hosts, whatever happens to paths."""
import os
import signal
import subprocess
import sys

from harness import STARLING, environment, kill_join_and_leave, main, require, same, same_so_far, wait_until

STEPS, OUTLASTS = 300, 1000000  # steps: more than a test waits for
# The first group of transfers of each communicator is its warm-up.
FAULTS = ("garbage@9", "error@9", "die@9/2", "fail-init@1/0", "slow-init@*:300")
if os.environ.get("STARLING_FAULTS") == "all":
    FAULTS += ("hang@9/1", "hang-call@9/1", "abort-waits-for-peers@*", "fault@*", "hang-init@1/1", "refuse@5", "lazy@*:5", "slow-abort@*:300", "garbage@1")
FAKE = os.path.join(os.path.dirname(STARLING), "tests", "nccl", "libfake_nccl.so")
REAL = ("libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2")


def emulated(place, **changes):
    return place.job(isa="emulated", lease_ms=10000, **changes)


def over_the_library(place, *options, orders="", job=None, steps=STEPS):
    with environment(STARLING_NCCL=FAKE, FAKE_NCCL=orders):
        return place.run(job or emulated(place, steps=steps), *options)


def device_steps(run):
    return [e["version"] for e in run.events("step") if e.get("direct")]


def wait_for_device_steps(run, after=-1, count=3):
    wait_until(lambda: len([v for v in device_steps(run) if v > after]) >= count, f"device steps after {after}")


def epochs_begin_over_the_hosts(run):
    seen = set()
    for event in run.events("step"):
        if event["world"] > 1 and event["epoch"] not in seen:
            require("direct" not in event, f"the first step of an epoch went over the device: {event}")
        seen.add(event["epoch"])


def a_kill_a_join_and_a_leave_on_device_steps_give_the_bits_of_tcp(place):
    run = over_the_library(place, "--workers", 3, steps=OUTLASTS)
    wait_for_device_steps(run)
    with environment(STARLING_NCCL=FAKE):
        kill_join_and_leave(run, run.steps() + 1)
    wait_for_device_steps(run, after=run.steps())
    same_so_far(place, run, place.job(steps=OUTLASTS))
    epochs_begin_over_the_hosts(run)
    transports = run.events("path")
    require(transports and transports[0]["direct"], f"{transports}")
    require(transports[0]["why"].startswith("nccl 2.28.9, NVLS off, RAS off, PXN off, cuMem by default"), f"{transports}")
    require("bytes go from device to device (nccl 2.28.9, " in run.text(), run.text())


def halves_go_from_device_to_device(place):
    changes = dict(steps=60, precision="bf16", replicas=1)
    quiet = place.quiet(place.job(**changes))
    run = over_the_library(place, "--workers", 4, job=emulated(place, **changes))
    same(run, quiet)
    require(device_steps(run), "no step went over the device")


def whatever_the_library_does_the_bits_stay(place):
    quiet = place.quiet(place.job(steps=STEPS))
    for orders in FAULTS:
        run = over_the_library(place, "--workers", 3, orders=orders)
        try:
            same(run, quiet)
        except Exception as error:
            raise Exception(f"{orders}: {error}") from error


# A step takes a while, whatever the machine, so that a run lasts longer than what hangs is waited for.
SLOW = """
[job]
name = "hangs"
steps = {steps}
micro_batches = 4
isa = "emulated"
[model]
kind = "synthetic"
parameters = 100_000
compute_ms = {compute_ms}
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[elastic]
lease_ms = {lease_ms}
start_timeout_ms = 120000
"""
STUCK = "NCCL: a communicator has not ended within 10000 ms"


def slow(place, steps, compute_ms, lease_ms=10000):
    place.count += 1
    path = place.path(f"slow-{place.count}.toml")
    with open(path, "w") as file:
        file.write(SLOW.format(steps=steps, compute_ms=compute_ms, lease_ms=lease_ms))
    return path


def is_stuck(run):
    return any(not p["direct"] and STUCK in p["why"] for p in run.events("path"))


# Goal: a library that hangs at every survivor of a kill ends none of them. Method: three workers each, all
# runs at once as they mostly wait; of the survivors all hang in the same call.
def only_the_killed_end_whatever_hangs_at_the_survivors(place):
    steps = 300
    quiet = place.run(slow(place, steps, 0), "--workers", 1).end()
    orders = ["hang-abort@*", "hang-revoke@*", "fault@*", "slow-revoke@*:300,slow-abort@*:300"]
    runs = {o: over_the_library(place, "--workers", 3, orders=o, job=slow(place, steps, 60)) for o in orders}
    frozen = over_the_library(place, "--workers", 3, orders="abort-waits-for-peers@*",
                              job=slow(place, steps, 75, lease_ms=3000))
    for run in [*runs.values(), frozen]:
        wait_for_device_steps(run)
    for run in runs.values():
        run.kill(run.workers()[0])
    still = frozen.workers()[0]["pid"]
    os.kill(still, signal.SIGSTOP)
    for order, run in runs.items():
        hangs = order.startswith("hang")
        if hangs:
            wait_until(lambda r=run: is_stuck(r), f"{order}: the word that a communicator has not ended")
        same(run, quiet)
        require(len(run.workers("lost")) == 1, f"{order}: others than the killed one ended:\n{run.text()}")
        require(is_stuck(run) == hangs, f"{order}: {run.events('path')}")
        require(any(e["world"] == 2 and e.get("direct") for e in run.events("step")) != hangs,
                f"{order}: steps after the kill went the wrong way")
    wait_until(lambda: is_stuck(frozen), "the word that an abort waits for the frozen one")
    os.kill(still, signal.SIGCONT)
    same(frozen, quiet)
    require({e["id"] for e in frozen.workers("lost")} <= {frozen.workers()[0]["id"]}, frozen.text())


def what_makes_a_transport_wrong_is_refused(place):
    with environment(STARLING_NCCL=FAKE, NCCL_CUMEM_ENABLE="0"):
        run = place.run(emulated(place, steps=40), "--workers", 2).end(code=2)
        require("NCCL_CUMEM_ENABLE is 0, with which" in run.text(), run.text())
        same(place.run(emulated(place, steps=40), "--workers", 2, "--transport", "tcp"), place.quiet(place.job(steps=40)))


def the_choice_of_a_run_is_obeyed(place):
    quiet = place.quiet(place.job(steps=40))
    job = emulated(place, steps=40)
    run = over_the_library(place, "--workers", 2, "--transport", "tcp", job=job)
    same(run, quiet)
    require(not device_steps(run), "a step over the device in spite of --transport tcp")
    require([(p["direct"], p["why"]) for p in run.events("path")] == [(False, "--transport tcp")], f"{run.events('path')}")
    with environment(STARLING_NCCL="/nowhere/libnccl.so.2"):
        run = place.run(job, "--workers", 2, "--transport", "nccl").end(code=2)
    require("--transport nccl, but there is no device transport here: " in run.text(), run.text())
    require("/nowhere/libnccl.so.2" in run.text(), run.text())
    run = place.run(place.job(steps=40, isa="auto"), "--workers", 2, "--transport", "nccl").end(code=2)
    require("and no GPU's" in run.text(), run.text())
    # The option's name and values of before.
    run = over_the_library(place, "--workers", 2, "--path", "host", job=job)
    same(run, quiet)
    require(not device_steps(run), "a step over the device in spite of --path host")
    require(run.text().count("starling: --path host is now --transport tcp") == 1, run.text())


def a_member_without_the_library_keeps_the_group_on_tcp(place):
    run = over_the_library(place, "--workers", 2, steps=OUTLASTS)
    wait_for_device_steps(run)
    run.join()
    wait_until(lambda: any(not p["direct"] for p in run.events("path")), "the word of the one without")
    last = [p for p in run.events("path") if not p["direct"]][-1]
    require("the emulated device has no library of its own" in last["why"], f"{last}")
    at = run.steps()
    run.wait_for_step(at + 20)
    same_so_far(place, run, place.job(steps=OUTLASTS))
    require(not [e for e in run.events("step") if e.get("direct") and e["epoch"] == last["epoch"]],
            f"device steps with a member that has no library, from step {at}")


def nccl_itself_says_that_there_is_no_gpu_and_training_goes_on(place):
    real = next((path for path in REAL if loads(path)), None)
    if real is None:
        print("        there is no libnccl.so.2 here")
        return
    quiet = place.quiet(place.job(steps=STEPS))
    with environment(STARLING_NCCL=real):
        run = place.run(emulated(place, steps=STEPS), "--workers", 2)
        wait_until(lambda: run.events("path"), "what comes of the first attempt")
        same(run, quiet)
    why = run.events("path")[0]
    require(not why["direct"] and "\n" not in why["why"] and "; again in 1 s" in why["why"], f"{why}")
    print("        " + why["why"])
    require(not device_steps(run), "a step over the device without a GPU")


def loads(path):
    """Whether it is NCCL, and this machine has no GPU on which it would work."""
    code = f"import ctypes; ctypes.CDLL({path!r}).ncclGetVersion"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    return found and not os.path.exists("/dev/nvidia0")


main(a_kill_a_join_and_a_leave_on_device_steps_give_the_bits_of_tcp, halves_go_from_device_to_device,
     whatever_the_library_does_the_bits_stay, what_makes_a_transport_wrong_is_refused, the_choice_of_a_run_is_obeyed,
     a_member_without_the_library_keeps_the_group_on_tcp, nccl_itself_says_that_there_is_no_gpu_and_training_goes_on,
     long=(only_the_killed_end_whatever_hangs_at_the_survivors,))
