"""Checkpoints: the state on disk, a job that goes on from it, and the loss of all copies of some state."""
import json
import os
import shutil
import signal
import subprocess

from chaos_of import chaos, findings, report_of
from harness import STARLING, main, processes_naming, require, same, wait_until

STEPS = 400  # enough for some checkpoints on a slow disk
# A job that is stopped by hand, whatever the disk takes, and its schedule; how many steps it has, who resumes it says.
ENDLESS = dict(steps=100000, schedule_steps=STEPS)
MORE = 50  # steps after the newest checkpoint
SECTION = """
[checkpoint]
dir = "{dir}"
every = {every}
keep = {keep}
"""


def with_checkpoints(place, every=10, keep=2, dir=None, waiting=False, **changes):
    """A job with checkpoints, and their folder."""
    path = (place.waiting_job if waiting else place.job)(**{"steps": STEPS, **changes})
    folder = dir or place.path(f"checkpoints-{place.count}")
    with open(path, "a") as file:
        file.write(SECTION.format(dir=folder, every=every, keep=keep))
    return path, folder


def complete(folder):
    """Versions of the complete checkpoints."""
    if not os.path.isdir(folder):
        return []
    return sorted(int(name[5:]) for name in os.listdir(folder)
                  if os.path.exists(os.path.join(folder, name, "manifest.json")))


def shards(folder, version):
    step = os.path.join(folder, f"step-{version:09}")
    return sorted(os.path.join(step, name) for name in os.listdir(step) if name.startswith("shard-"))


def flip_a_bit(path):
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def kill_all(run):
    lost = {e["id"] for e in run.workers("lost")}
    run.kill_together([w for w in run.workers() if w["id"] not in lost])


def again(run):
    """The one restart of the run, and what it did again."""
    restarts = run.events("restart")
    require(len(restarts) == 1, f"{len(restarts)} restarts:\n{run.text()[-2000:]}")
    return restarts[0]


def a_job_goes_on_from_its_newest_checkpoint_at_another_world_size(place):
    job, folder = with_checkpoints(place, **ENDLESS)
    first = place.run(job, "--workers", 4)
    wait_until(lambda: len(first.events("checkpoint")) >= 4, "four checkpoints")
    first.process.send_signal(signal.SIGINT)
    first.end(code=130)
    told = [e["version"] for e in first.events("checkpoint")]
    there = complete(folder)
    require(told[-1] in there and len(there) <= 3, f"told {told}, there are {there}")
    steps = there[-1] + MORE
    quiet = place.quiet(place.job(**ENDLESS | dict(steps=steps)))
    second = place.run(job, "--workers", 2, "--resume", "--steps", steps)
    digest = second.digest()
    require(digest == quiet.digest(), f"digest {digest}, undisturbed {quiet.digest()}")
    start = second.events("start")[0]["from"]
    require(start == there[-1], f"went on from {start}, the newest is {there[-1]}")
    require(second.losses() == quiet.losses()[start:], "losses or norms of steps differ")
    second.verify_ledger()
    # The run may have ended before the oldest was removed.
    require(2 <= len(complete(folder)) <= 3, f"{complete(folder)} are kept, expected 2")


def a_run_that_is_done_goes_on_with_more_steps_in_its_folder(place):
    job, _ = with_checkpoints(place, steps=20)
    run = place.run(job, "--workers", 2)
    run.end()

    def longer(steps):
        ended = subprocess.run([STARLING, "run", job, "--out", run.out, "--workers", "2", "--resume", "--steps", str(steps)],
                               capture_output=True, text=True, timeout=600)
        require(ended.returncode == 0, f"{steps} steps: {ended.stderr}")
        quiet = place.quiet(place.job(steps=steps, schedule_steps=20)).digest()
        require(run.digest() == quiet, f"{steps} steps: digest {run.digest()}, undisturbed {quiet}")
        return os.listdir(run.out)

    there = longer(30)
    first = set(os.listdir(os.path.join(run.out, "run-1")))
    require({"events.jsonl", "model.safetensors"} <= first, f"the first run's files are {first}")
    require({"events.jsonl", "model.safetensors", "run-1"} <= set(there), f"{there}")
    # As if killed while its files move: its events, by which it is known, go last.
    os.mkdir(os.path.join(run.out, "run-2"))
    os.rename(os.path.join(run.out, "model.safetensors"), os.path.join(run.out, "run-2", "model.safetensors"))
    there = longer(40)
    require({"events.jsonl", "model.safetensors", "run-1", "run-2", "run-3"} <= set(there), f"{there}")


def what_the_events_of_a_run_say_to_be_in_doubt_is_so_in_the_next_one(place):
    """A run that is killed as it finds a difference leaves manifests that do not say so."""
    job, folder = with_checkpoints(place, steps=30)
    run = place.run(job, "--workers", 2)
    run.end()
    path = os.path.join(run.out, "events.jsonl")
    with open(path) as file:
        lines = file.readlines()
    found = {**json.loads(lines[-1]), "ev": "mismatch", "version": 12, "micro_batch": 0, "worker": 1, "by": 2, "wrong": None}
    with open(path, "w") as file:
        file.writelines([*lines[:-1], json.dumps(found) + "\n", lines[-1]])
    # One that goes on, and is killed before it has begun, hides nothing from the next one.
    again = [STARLING, "run", job, "--out", run.out, "--workers", "2", "--resume", "--steps", "50"]
    killed = subprocess.Popen(again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: os.path.exists(os.path.join(run.out, "run-1", "events.jsonl")) and os.path.exists(path), "it begins")
    killed.kill()
    killed.wait()
    wait_until(lambda: not processes_naming(run.out), "its workers end")
    ended = subprocess.run(again, capture_output=True, text=True, timeout=600)
    require(ended.returncode == 0 and "the checkpoint of step 20: steps before it are in doubt" in ended.stderr, ended.stderr)
    for version in complete(folder):
        with open(os.path.join(folder, f"step-{version:09}", "manifest.json")) as file:
            doubt = json.load(file).get("doubted_from")
        require(doubt == 0, f"step {version}: {doubt}")


def one_is_written_when_the_newest_is_too_old(place):
    job = place.waiting_job(steps=1000000)
    with open(job, "a") as file:
        file.write(f'\n[checkpoint]\ndir = "{place.path("aged")}"\nevery_seconds = 1\n')
    checked = subprocess.run([STARLING, "check", job], capture_output=True, text=True)
    require("checkpoints: every 1 s in " in checked.stdout, checked.stdout + checked.stderr)
    run = place.run(job, "--workers", 2)
    wait_until(lambda: len(run.events("checkpoint")) >= 3, "three checkpoints")
    versions = [e["version"] for e in run.events("checkpoint")]
    require(versions == sorted(set(versions)), versions)
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def a_checkpoint_of_every_step_outlives_a_kill(place):
    """Folders of checkpoints that are given up go while workers write them, and no state has a second copy."""
    steps = dict(steps=150, replicas=0)
    quiet = place.quiet(place.job(**steps))
    job, folder = with_checkpoints(place, every=1, **steps)
    run = place.run(job, "--workers", 6)
    wait_until(lambda: run.events("checkpoint"), "a checkpoint")
    run.kill(run.workers()[0])
    same(run, quiet)
    require(again(run)["version"] >= run.events("checkpoint")[0]["version"], "a complete checkpoint was passed over")
    require(complete(folder), "no checkpoint is left")
    left = [name for name in os.listdir(folder) if name.startswith("step-")]
    require(len(left) == len(complete(folder)), f"{left} are left, complete are {complete(folder)}")


def an_undisturbed_run_writes_checkpoints_and_changes_no_bit(place):
    job, folder = with_checkpoints(place, every=20, keep=3, steps=100)
    quiet = place.run(place.job(steps=100), "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 3)
    same(run, quiet)
    warnings = run.events("warning")
    told = [e["version"] for e in run.events("checkpoint")]
    # The last one may come when the run has ended.
    require(told[:3] == [20, 40, 60] or warnings, f"checkpoints {told}, no warning")
    manifest = json.load(open(os.path.join(folder, f"step-{told[-1]:09}", "manifest.json")))
    require(manifest["step"] == told[-1], "manifest of another step")


def all_workers_killed_at_once_go_on_from_the_newest(place):
    job, folder = with_checkpoints(place)
    quiet = place.run(place.job(steps=STEPS), "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 4)
    wait_until(lambda: len(run.events("checkpoint")) >= 3, "three checkpoints")
    kill_all(run)
    for _ in range(3):
        run.join()
    same(run, quiet)
    restart = again(run)
    told = [e["version"] for e in run.events("checkpoint")]
    require(restart["version"] in told, f"restart from {restart}, checkpoints {told}")
    fresh = [e for e in run.events("epoch") if e["kind"] == "fresh" and e["base"] == restart["version"]]
    require(len(fresh) == 1 and fresh[0]["begin"] == "gather", f"fresh epochs {fresh}")
    twice = [e["version"] for e in run.events("ledger")]
    require(all(v >= restart["version"] for v in set(twice) if twice.count(v) > 1),
            "steps before the checkpoint were done again")
    audit = subprocess.run([STARLING, "audit", run.out, quiet.out], capture_output=True, text=True)
    require(audit.returncode == 0, f"audit: {audit.stdout}{audit.stderr}")


def both_holders_of_a_segment_killed_is_a_restart(place):
    job, _ = with_checkpoints(place, replicas=1)
    quiet = place.run(place.job(steps=STEPS), "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 4)
    wait_until(lambda: len(run.events("checkpoint")) >= 2, "two checkpoints")
    run.kill_together(run.workers()[:3])  # at least two of them are neighbours
    same(run, quiet)
    again(run)
    # Who lived on has begun a new life.
    require(len(run.workers()) > 4, "nobody came back")


def of_a_damaged_checkpoint_the_one_before_it_is_used(place):
    job, folder = with_checkpoints(place, keep=3, **ENDLESS)
    first = place.run(job, "--workers", 3)
    wait_until(lambda: len(first.events("checkpoint")) >= 3, "three checkpoints")
    first.process.send_signal(signal.SIGINT)
    first.end(code=130)
    there = complete(folder)
    flip_a_bit(shards(folder, there[-1])[0])
    steps = there[-1] + MORE
    quiet = place.quiet(place.job(**ENDLESS | dict(steps=steps)))
    second = place.run(job, "--workers", 2, "--resume", "--steps", steps)
    require(second.digest() == quiet.digest(), "another digest")
    warnings = [w["text"] for w in second.events("warning")]
    require(any(f"step {there[-1]} cannot be used" in w and "shard-" in w for w in warnings),
            f"no file is named: {warnings}")
    require(again(second)["version"] == there[-2], f"restart {again(second)}, complete {there}")


def a_checkpoint_of_another_job_is_refused(place):
    job, folder = with_checkpoints(place)
    run = place.run(job, "--workers", 1)
    wait_until(lambda: run.events("checkpoint"), "a checkpoint")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)

    def refused(text, *options, job=job):
        started = place.run(job, *options)
        started.end(code=2)
        lines = started.text().splitlines()
        require(len(lines) == 1 and text in lines[0], f"expected '{text}':\n{started.text()}")
        require(not os.path.exists(started.out), "a refused run left a folder")
    refused("is of another job", "--resume", "--seed", 2)
    refused("leaves nothing to do, the job has 6 steps; --steps says more", "--resume", "--steps", 6)
    refused("expected an empty folder, or --resume")
    refused("--resume needs a [checkpoint] section", "--resume", job=place.job())
    other, _ = with_checkpoints(place, dir=os.path.join(place.path("text.txt"), "below"))
    refused("checkpoint folder cannot be made", job=other)


def a_folder_belongs_to_one_job(place):
    """Others are refused before the first checkpoint is there and after the last, by `run` and by `coordinator`."""
    job, folder = with_checkpoints(place, every=1000000, **ENDLESS)
    first = place.run(job, "--workers", 1)
    wait_until(lambda: first.events("epoch"), "the first run goes")

    def refused(*command):
        said = subprocess.run([STARLING, *map(str, command)], capture_output=True, text=True, timeout=300)
        require(said.returncode == 2 and len(said.stderr.splitlines()) == 1 and
                "is of another job: [job].seed is 1 and 2" in said.stderr, f"{said.returncode}: {said.stdout}{said.stderr}")
    other, _ = with_checkpoints(place, dir=folder, more="seed = 2", **ENDLESS)
    out = place.path("refused")
    refused("run", other, "--out", out, "--workers", 1)
    first.process.send_signal(signal.SIGINT)
    first.end(code=130)
    there = complete(folder)
    require(len(there) == 1, f"a last checkpoint, there are {there}")
    keys = place.path("owner.keys")
    subprocess.run([STARLING, "keys", "--out", keys], check=True, stdout=subprocess.DEVNULL)
    refused("coordinator", "--job", other, "--keys", keys, "--listen", "127.0.0.1:0", "--state", out, "--new")
    require(not os.path.exists(out) and complete(folder) == there, "a refused job left or removed something")
    # A run that wrote no checkpoint leaves the folder to the next job.
    shutil.rmtree(folder)
    third = place.run(other, "--workers", 1)
    owner = os.path.join(folder, "owner.json")
    wait_until(lambda: os.path.exists(owner), "the folder is the third run's")
    third.process.send_signal(signal.SIGINT)
    third.end(code=130)
    require(complete(folder) or not os.path.exists(owner), "a folder without checkpoints is still owned")


def a_folder_belongs_to_the_newest_run_of_its_job(place):
    """An earlier run that still lives, on whatever machine, says so and leaves there what the newer one has."""
    job, folder = with_checkpoints(place, every=20, **ENDLESS)
    older = place.run(job, "--workers", 2)
    wait_until(lambda: older.events("checkpoint"), "the older run's first checkpoint")
    refused = subprocess.run([STARLING, "run", job, "--out", older.out, "--workers", "1", "--resume"],
                             capture_output=True, text=True, timeout=300)
    require(refused.returncode == 2, f"a run took the output folder of another: {refused.stderr}")
    before = older.events("checkpoint")[-1]["version"]  # a command that was refused takes nothing
    wait_until(lambda: older.events("checkpoint")[-1]["version"] > before, "the older run writes on")
    newer = place.run(job, "--workers", 1, "--resume")
    wait_until(lambda: any("a newer run of this job has the checkpoint folder" in w["text"]
                           for w in older.events("warning")), "the older run says that it writes no more")
    last = older.events("checkpoint")[-1]["version"]
    wait_until(lambda: len(newer.events("checkpoint")) >= 3, "three checkpoints of the newer one")
    older.process.send_signal(signal.SIGTERM)
    older.end(code=143)
    require(older.events("checkpoint")[-1]["version"] == last, "the older run went on to write")
    require("a newer run of this job has gone on in the checkpoint folder" in older.text() and "--resume" not in older.text().splitlines()[-1],
            older.text())
    there = newer.events("checkpoint")[-1]["version"]
    require(there in complete(folder) or newer.events("checkpoint")[-1]["version"] > there,
            f"the newer run's checkpoint of step {there} is gone, there are {complete(folder)}")
    wait_until(lambda: newer.events("checkpoint")[-1]["version"] > there, "the newer run goes on")
    # The same command once more, after a kill of the whole run: it goes on without a hand.
    newer.process.kill()
    newer.process.wait()
    wait_until(lambda: not processes_naming(newer.out), "its workers end")
    third = place.run(job, "--workers", 1, "--resume")
    wait_until(lambda: third.events("checkpoint"), "a checkpoint of the run that goes on")
    third.process.send_signal(signal.SIGINT)
    third.end(code=130)
    require(not any("is gone" in w["text"] for run in (newer, third) for w in run.events("warning")), "checkpoints are gone")


def a_newer_run_without_a_checkpoint_gives_the_folder_back(place):
    """It has waited for a worker and ends: the older one, which it kept from writing, writes on."""
    job, folder = with_checkpoints(place, every=5, waiting=True, **ENDLESS)
    older = place.run(job, "--workers", 1)
    wait_until(lambda: older.events("checkpoint"), "the older run's first checkpoint")

    def kept_from_writing():
        text = "a newer run of this job has the checkpoint folder"
        return sum(text in w["text"] for w in older.events("warning"))

    def waiting_run():
        warned = kept_from_writing()
        newer = place.run(job, "--workers", 2, "--start", 1, "--resume")
        wait_until(lambda: kept_from_writing() > warned, "the older run says that it does not write")
        return newer
    newer = waiting_run()
    last = older.events("checkpoint")[-1]["version"]
    newer.process.send_signal(signal.SIGTERM)
    newer.end(code=143)
    wait_until(lambda: older.events("checkpoint")[-1]["version"] > last, "the older run writes again")
    # So does one that is killed: its process can be seen to be over.
    killed = waiting_run()
    last = older.events("checkpoint")[-1]["version"]
    killed.process.kill()
    killed.process.wait()
    wait_until(lambda: older.events("checkpoint")[-1]["version"] > last, "the older run writes after the kill")
    wait_until(lambda: not processes_naming(killed.out), "its workers end")
    # While a newer run waits, the older one's last words are what is so.
    third = waiting_run()
    last = older.events("checkpoint")[-1]["version"]
    older.process.send_signal(signal.SIGTERM)
    older.end(code=143)
    require(f"has written none there; this goes on from the checkpoint of step {last}" in older.text(), older.text())
    third.process.send_signal(signal.SIGTERM)
    third.end(code=143)
    require(complete(folder)[-1] == last, f"{complete(folder)}, the last was {last}")


def a_checkpoint_that_others_remove_is_a_warning(place):
    job, folder = with_checkpoints(place, **ENDLESS)
    run = place.run(job, "--workers", 1)

    def warned():
        for version in complete(folder):
            shutil.rmtree(os.path.join(folder, f"step-{version:09}"), ignore_errors=True)
        return any("is gone" in w["text"] for w in run.events("warning"))
    wait_until(warned, "a warning that a checkpoint is gone")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def a_folder_that_cannot_be_written_any_more_costs_a_warning(place):
    job, folder = with_checkpoints(place)
    quiet = place.run(place.job(steps=STEPS), "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 3)
    wait_until(lambda: run.events("checkpoint"), "a checkpoint")
    def a_file_in_its_place():  # nobody can make a folder there then, not even root
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with open(folder, "x"):
                return True
        except FileExistsError:  # a worker was faster, and made it again
            return False
    wait_until(a_file_in_its_place, "a file in the folder's place")
    same(run, quiet)
    warnings = [w["text"] for w in run.events("warning")]
    require(any("is given up" in w for w in warnings), f"warnings: {warnings}")


def a_coordinator_of_three_is_killed_and_checkpoints_go_on(place):
    job, folder = with_checkpoints(place)
    quiet = place.run(place.job(steps=STEPS), "--workers", 1)
    quiet.end()
    run = place.run(job, "--workers", 3, "--coordinators", 3)
    wait_until(lambda: len(run.events("checkpoint")) >= 2, "two checkpoints")
    before = run.events("checkpoint")[-1]["version"]
    mine = subprocess.run(["pgrep", "-f", run.out + "/coordinator-0"], capture_output=True, text=True)
    os.kill(int(mine.stdout.split()[0]), signal.SIGKILL)
    wait_until(lambda: run.events("checkpoint")[-1]["version"] > before, "another one")
    kill_all(run)
    for _ in range(2):
        run.join()
    same(run, quiet)
    again(run)


PLAN = """
[run]
steps = 120
workers = 4
replicas = 1
[[fault]]
at_s = 1
kind = "kill"
count = {count}
back_s = 0.2
"""


def chaos_tells_a_loss_of_all_copies_from_one_that_leaves_some(place):
    plan = place.path("plan.toml")
    reference = ()
    for count, restarts in ((3, 1), (1, 0)):
        with open(plan, "w") as file:
            file.write(PLAN.format(count=count))
        job, _ = with_checkpoints(place, every=3, waiting=True)  # a slow machine has done few steps in a second
        ended, out = chaos(place, job, "--plan", plan, "--last-copies", *reference)
        require(ended.returncode == 0, ended.stdout + ended.stderr)
        report = report_of(out)
        reference = ("--reference", report["run"]["digest"])
        found = findings(report)
        for promise in ("P1", "P2", "P3"):
            require(found[promise] == "held", report["verdicts"])
        require(found["P5"] == ("held" if restarts else "not tested"), report["verdicts"])
        p5 = next(v for v in report["verdicts"] if v["promise"] == "P5")
        require(not restarts or "1 restart from a checkpoint" in p5["why"], p5)


if __name__ == "__main__":
    main(a_job_goes_on_from_its_newest_checkpoint_at_another_world_size,
         a_run_that_is_done_goes_on_with_more_steps_in_its_folder,
         what_the_events_of_a_run_say_to_be_in_doubt_is_so_in_the_next_one, one_is_written_when_the_newest_is_too_old,
         a_checkpoint_of_every_step_outlives_a_kill, an_undisturbed_run_writes_checkpoints_and_changes_no_bit,
         all_workers_killed_at_once_go_on_from_the_newest, of_a_damaged_checkpoint_the_one_before_it_is_used,
         a_checkpoint_of_another_job_is_refused, a_folder_belongs_to_one_job,
         a_folder_belongs_to_the_newest_run_of_its_job, a_checkpoint_that_others_remove_is_a_warning,
         long=(both_holders_of_a_segment_killed_is_a_restart, a_newer_run_without_a_checkpoint_gives_the_folder_back,
               a_folder_that_cannot_be_written_any_more_costs_a_warning,
               chaos_tells_a_loss_of_all_copies_from_one_that_leaves_some,
               a_coordinator_of_three_is_killed_and_checkpoints_go_on))
