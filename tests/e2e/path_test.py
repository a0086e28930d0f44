"""Steps whose bytes go from device to device: by a library that behaves as NCCL does, and fails as it does, on
the device whose memory the host cannot read. Same bits as through the hosts, whatever happens to paths."""
import os
import subprocess
import sys

from harness import STARLING, environment, kill_join_and_leave, main, require, same, wait_until

STEPS, LONG = 300, 1500  # long: somebody joins
# The first group of transfers of each communicator is its warm-up.
FAULTS = ("garbage@9", "error@9", "die@9/2", "fail-init@1/0", "slow-init@*:300")
if os.environ.get("STARLING_FAULTS") == "all":
    FAULTS += ("hang@9/1", "hang-init@1/1", "refuse@5", "lazy@*:5", "slow-abort@*:300", "garbage@1")
FAKE = os.path.join(os.path.dirname(STARLING), "tests", "nccl", "libfake_nccl.so")
REAL = ("libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2")


def emulated(place, **changes):
    return place.job(isa="emulated", lease_ms=10000, **changes)


def over_the_library(place, *options, orders="", job=None, steps=STEPS):
    with environment(STARLING_NCCL=FAKE, FAKE_NCCL=orders):
        return place.run(job or emulated(place, steps=steps), *options)


def direct_steps(run):
    return [e["version"] for e in run.events("step") if e.get("direct")]


def wait_for_direct_steps(run, after=-1, count=3):
    wait_until(lambda: len([v for v in direct_steps(run) if v > after]) >= count, f"direct steps after {after}")


def epochs_begin_over_the_hosts(run):
    seen = set()
    for event in run.events("step"):
        if event["world"] > 1 and event["epoch"] not in seen:
            require("direct" not in event, f"the first step of an epoch is direct: {event}")
        seen.add(event["epoch"])


def a_kill_a_join_and_a_leave_on_direct_steps_give_the_bits_of_the_host(place):
    quiet = place.quiet(place.job(steps=LONG))
    run = over_the_library(place, "--workers", 3, steps=LONG)
    wait_for_direct_steps(run)
    with environment(STARLING_NCCL=FAKE):
        kill_join_and_leave(run, run.steps() + 1)
    wait_for_direct_steps(run, after=run.steps())
    same(run, quiet)
    epochs_begin_over_the_hosts(run)
    paths = run.events("path")
    require(paths and paths[0]["direct"] and paths[0]["why"].startswith("nccl 2.28.9"), f"{paths}")
    require("bytes go from device to device (nccl 2.28.9)" in run.text(), run.text())


def halves_go_from_device_to_device(place):
    changes = dict(steps=60, precision="bf16", replicas=1)
    quiet = place.quiet(place.job(**changes))
    run = over_the_library(place, "--workers", 4, job=emulated(place, **changes))
    same(run, quiet)
    require(direct_steps(run), "no step was direct")


def whatever_the_library_does_the_bits_stay(place):
    quiet = place.quiet(place.job(steps=STEPS))
    for orders in FAULTS:
        run = over_the_library(place, "--workers", 3, orders=orders)
        try:
            same(run, quiet)
        except Exception as error:
            raise Exception(f"{orders}: {error}") from error


def the_rule_of_a_run_is_obeyed(place):
    quiet = place.quiet(place.job(steps=40))
    job = emulated(place, steps=40)
    run = over_the_library(place, "--workers", 2, "--path", "host", job=job)
    same(run, quiet)
    require(not direct_steps(run), "a direct step in spite of --path host")
    require([(p["direct"], p["why"]) for p in run.events("path")] == [(False, "--path host")], f"{run.events('path')}")
    with environment(STARLING_NCCL="/nowhere/libnccl.so.2"):
        run = place.run(job, "--workers", 2, "--path", "direct").end(code=2)
    require("--path direct, but there is no direct path here: " in run.text(), run.text())
    require("/nowhere/libnccl.so.2" in run.text(), run.text())
    run = place.run(place.job(steps=40, isa="auto"), "--workers", 2, "--path", "direct").end(code=2)
    require("and no GPU's" in run.text(), run.text())


def a_member_without_the_library_keeps_the_group_on_the_host_path(place):
    quiet = place.quiet(place.job(steps=LONG))
    run = over_the_library(place, "--workers", 2, steps=LONG)
    wait_for_direct_steps(run)
    run.join()
    wait_until(lambda: any(not p["direct"] for p in run.events("path")), "the word of the one without")
    last = [p for p in run.events("path") if not p["direct"]][-1]
    require("the emulated device has no library of its own" in last["why"], f"{last}")
    at = run.steps()
    same(run, quiet)
    require(not [e for e in run.events("step") if e.get("direct") and e["epoch"] == last["epoch"]],
            f"direct steps with a member that has no library, from step {at}")


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
    require(not direct_steps(run), "a direct step without a GPU")


def loads(path):
    """Whether it is NCCL, and this machine has no GPU on which it would work."""
    code = f"import ctypes; ctypes.CDLL({path!r}).ncclGetVersion"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    return found and not os.path.exists("/dev/nvidia0")


main(a_kill_a_join_and_a_leave_on_direct_steps_give_the_bits_of_the_host, halves_go_from_device_to_device,
     whatever_the_library_does_the_bits_stay, the_rule_of_a_run_is_obeyed,
     a_member_without_the_library_keeps_the_group_on_the_host_path,
     nccl_itself_says_that_there_is_no_gpu_and_training_goes_on)
