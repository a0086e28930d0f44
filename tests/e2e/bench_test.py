"""`starling-bench` of whole runs: the measurements themselves, with real kills, joins and leaves."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from harness import MINUTE, SOURCE, STARLING, Skipped, environment, main, processes_naming, require, wait_until


BENCH = STARLING + "-bench"
FAKE_NCCL = os.path.join(os.path.dirname(STARLING), "tests", "nccl", "libfake_nccl.so")
SYNTHETIC = os.path.join(SOURCE, "examples", "synthetic", "1m.toml")


def bench(job, *options, what="recovery", workers=3):
    return subprocess.run([BENCH, what, "--job", job, "--workers", str(workers),
                           "--json", *options], capture_output=True, text=True)


def measure(job, *options, **where):
    return rows_of(bench(job, *options, **where))


def rows_of(done):
    require(done.returncode == 0, f"exit code {done.returncode}:\n{done.stderr}")
    return {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}


def each_kill_is_measured_and_its_parts_add_up(place):
    rows = measure(place.job(), "--losses", "3")
    require(rows["all"]["n"] == 3, f"{rows}")
    phases = [what for what in rows if what in
              ("none", "change", "compute", "reduce", "vote", "apply", "gather")]
    require(sum(rows[what]["n"] for what in phases) == 3, f"phases of the killed: {rows}")
    require(rows["1 detect"]["median_ms"] > 0, f"{rows}")
    require(rows["wire"]["megabytes"] > 0 and rows["wire"]["median_ms"] > 0, f"{rows}")


def a_freeze_lasts_at_least_the_lease(place):
    rows = measure(place.job(lease_ms=300), "--losses", "1", "--freeze")
    require(rows["frozen"]["median_ms"] > 200, f"{rows}")


def a_cut_lasts_at_least_the_lease(place):
    done = bench(place.job(lease_ms=300), "--losses", "1", "--cut")
    lines = done.stderr.strip().splitlines()
    if done.returncode == 2 and len(lines) == 1 and "--cut" in lines[0]:  # not permitted here
        raise Skipped(lines[0])
    rows = rows_of(done)
    require(rows["cut off"]["median_ms"] > 200, f"{rows}")


def without_a_job_one_line_says_which_is_wanted(place):
    """The usual job is a file of the sources; a benchmark that begins elsewhere, or with another file, has none."""
    for what in ("recovery", "changes", "price", "transport"):
        for options, word in ((), "no --job is given, and examples/synthetic/1m.toml of the sources"), \
                             (("--job", "nothing.toml"), "reading nothing.toml"):
            done = subprocess.run([BENCH, what, *options], cwd=place.folder, capture_output=True, text=True)
            lines = (done.stdout + done.stderr).splitlines()
            require(done.returncode == 2 and len(lines) == 1 and word in lines[0],
                    f"{what} {options}: {done.returncode} {lines}")


def nothing_runs_on_when_a_bench_is_killed(place):
    process = subprocess.Popen([BENCH, "recovery", "--job", place.job(), "--workers", "3",
                                "--losses", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = os.path.join(tempfile.gettempdir(), f"starling-recovery-{process.pid}")
    wait_until(lambda: len(processes_naming(folder)) >= 4, "a run and its workers")
    process.kill()
    process.wait(MINUTE)
    wait_until(lambda: not processes_naming(folder), "the end of the run")
    shutil.rmtree(folder)


def the_leader_is_killed_with_a_worker(place):
    rows = measure(place.job(), "--losses", "2", "--leader")
    require(rows["all"]["n"] == 2, f"{rows}")
    require(rows["all"]["election_ms"] > 0, f"{rows}")


def joins_and_leaves_are_compared_with_undisturbed_steps(place):
    job = place.job(lease_ms=10000)  # whoever is only slow to answer stays
    rows = measure(job, "--quick", what="changes", workers=2)
    for what in ("while joining", "after joins", "while leaving", "after leaves"):
        row = rows[what]
        require(row["n"] > 0 and row["median_ratio"] > 0, f"{what}: {row}")
        require(row["forced"] == 0 and row["lost"] == 0, f"{what}: {row}")
    epochs = rows["while joining"]["epochs"], rows["while leaving"]["epochs"]
    require(all(n > 0 for n in epochs), f"no epoch: {rows}")


def parts_of_a_step_are_measured_and_replicas_cost_no_bytes(place):
    rows = measure(SYNTHETIC, "--quick", what="price", workers=4)
    require(rows["step"]["n"] > 5, f"{rows}")
    require(rows["compute"]["median_ms"] > 50, f"{rows}")
    parts = ("compute", "hand-over", "reduce", "norm", "vote", "apply", "telling", "gather",
             "checksums")
    require(all(rows[what]["median_ms"] >= 0 for what in parts), f"{rows}")
    require(all(rows[what]["p99_ms"] <= rows["step"]["p99_ms"] for what in parts), f"{rows}")
    bytes_ = rows["bytes"]
    require(0.8 < bytes_["ratio"] < 1.2, f"{bytes_}")
    require(0.95 < bytes_["bytes"] / bytes_["without_replicas_bytes"] < 1.05, f"replicas cost bytes: {bytes_}")


def kills_and_joins_are_measured_as_of_other_systems(place):
    out = place.path("compared.json")
    script = os.path.join(SOURCE, "tools", "bench", "compare_recovery.py")
    done = subprocess.run([sys.executable, script, "compare", "--starling", STARLING, "--only",
                           "starling", "--quick", "--json", out], capture_output=True, text=True)
    require(done.returncode == 0, f"exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    with open(out) as file:
        found = json.load(file)["starling"]
    require(found["step_ms"] > 20, f"{found}")
    require(len(found["kill_ms"]) == 2 and len(found["join_ms"]) == 2, f"{found}")
    require(min(found["kill_ms"]) > -found["step_ms"], f"{found}")


def both_ways_of_a_steps_bytes_are_measured(place):
    job = place.job(lease_ms=10000)
    with environment(STARLING_NCCL=FAKE_NCCL):
        rows = measure(job, "--isa", "emulated", "--quick", what="transport")
    require(rows["device steps"]["tcp"] == 0 and rows["device steps"]["nccl"] > 0.5, f"{rows}")
    require(0 < rows["bytes by TCP"]["nccl"] < rows["bytes by TCP"]["tcp"], f"{rows}")
    require(rows["made"]["n"] > 0 and rows["made"]["nccl"] > 0, f"{rows}")
    require(rows["kill"]["n"] == 1, f"{rows}")
    for what in ("step", "joining, worst", "leaving, worst"):
        require(rows[what]["tcp"] > 0 and rows[what]["nccl"] > 0, f"{what}: {rows}")


def without_a_library_of_device_transports_there_is_one_line(place):
    with environment(STARLING_NCCL="/nowhere/libnccl.so.2"):
        done = bench(place.job(), "--isa", "emulated", what="transport")
    lines = done.stderr.strip().splitlines()
    require(done.returncode == 2 and len(lines) == 1 and "/nowhere/libnccl.so.2" in lines[0],
            f"{done.returncode}: {done.stderr}")
    require(not done.stdout, done.stdout)


main(each_kill_is_measured_and_its_parts_add_up, a_freeze_lasts_at_least_the_lease,
     a_cut_lasts_at_least_the_lease, nothing_runs_on_when_a_bench_is_killed, the_leader_is_killed_with_a_worker,
     joins_and_leaves_are_compared_with_undisturbed_steps,
     parts_of_a_step_are_measured_and_replicas_cost_no_bytes,
     kills_and_joins_are_measured_as_of_other_systems, both_ways_of_a_steps_bytes_are_measured,
     without_a_library_of_device_transports_there_is_one_line, without_a_job_one_line_says_which_is_wanted)
