"""Models of scripts: processes beside the workers compute, with tests/stand_in in the place of the Python package,
so that no torch is needed (tests/pytorch has torch and the package itself)."""
import os
import re
import signal
import subprocess
import sys

from harness import (LONG_LEASE_MS, SOURCE, STARLING, alive, main, processes_naming, require, same, wait_until)

os.environ["PYTHONPATH"] = os.path.join(SOURCE, "tests", "stand_in")
os.environ["STARLING_PYTHON"] = sys.executable

JOB = """
[job]
name = "script"
steps = {steps}
micro_batches = 8
sequences = 2
[model]
kind = "python"
script = "{script}"
samples = 40
tensors = ["a:3x2", "b:"]
[optimizer]
kind = "adamw"
peak_rate = 1e-2
[elastic]
lease_ms = {lease_ms}
start_timeout_ms = 120000
"""


def job(place, name, *orders, steps=60):
    with open(place.path(name + ".py"), "w") as file:
        file.write("\n".join(orders) + "\n")
    path = place.path(name + ".toml")
    with open(path, "w") as file:
        file.write(JOB.format(script=name + ".py", steps=steps, lease_ms=LONG_LEASE_MS))
    return path


def quiet_run(place, **changes):
    return place.run(job(place, "quiet", **changes), "--workers", 1).end()


def computing_for(worker):
    """The processes that compute for a worker."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == worker["pid"] and alive(entry):
            found.append(int(entry))
    return found


def any_number_of_workers_and_threads_gives_the_same_bits(place):
    quiet = quiet_run(place)
    require(quiet.losses()[-1][1] < quiet.losses()[0][1], "the loss does not fall")
    for workers, threads in ((1, 2), (3, 1)):
        same(place.run(job(place, f"of-{workers}"), "--workers", workers, "--threads", threads).end(), quiet)


def kills_of_workers_and_of_their_processes_change_no_bit(place):
    quiet = quiet_run(place, steps=300)
    run = place.run(job(place, "killed", "pace 0.005", steps=300), "--workers", 4)
    run.wait_for_step(20)
    workers = run.workers()
    os.kill(computing_for(workers[1])[0], signal.SIGKILL)
    os.kill(computing_for(workers[2])[0], signal.SIGSTOP)  # it hangs
    run.wait_for_step(60)
    gone = computing_for(workers[0])
    require(gone, "nobody computes for a worker")
    run.kill(workers[0])
    wait_until(lambda: not any(alive(pid) for pid in gone), "the kernel ends what computes for a dead worker")
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    run.join("--save", "none")
    same(run, quiet)
    told = [line for line in run.text().splitlines() if "another one takes its place" in line]
    for what in ("was ended by SIGKILL", "did not answer in time"):
        require(any(what in line for line in told), f"nothing of what {what}: {told}")


def a_hanging_process_ends_with_its_worker(place):
    run = place.run(job(place, "hangs", "hangs 10", steps=300), "--workers", 2)
    run.wait_for_step(1)
    workers = run.workers()
    run.process.send_signal(signal.SIGINT)
    run.process.wait()
    wait_until(lambda: not any(computing_for(w) for w in workers), "what hangs is ended")
    wait_until(lambda: not processes_naming(place.path("hangs.py")), "nobody is left")


def what_a_script_raises_ends_one_worker_and_is_in_the_events(place):
    quiet = quiet_run(place)
    run = place.run(job(place, "raises", "pace 0.005", "raises-once " + place.path("once")), "--workers", 3)
    same(run, quiet)
    lost = run.workers("lost")
    require(len(lost) == 1 and re.fullmatch("ValueError: no such colour; train.py:3, in loss; computing micro-batch"
                                            r" \d+ of step \d+", lost[0]["reason"]), f"told: {lost}")


def what_the_scripts_of_all_workers_raise_is_the_end(place):
    run = place.run(job(place, "all-raise", "raises 15"), "--workers", 2).end(2)
    last = [line for line in run.text().splitlines() if line.strip()][-1]
    require(last.startswith("starling: ") and "ValueError: as the script says" in last, last)
    require(all(e["code"] == 2 for e in run.events("failed")), run.events("failed"))


def a_refused_run_is_put_right_in_its_own_folder(place):
    quiet = quiet_run(place)
    refused = place.run(job(place, "first", "raises 1"), "--workers", 2).end(2)
    require(not refused.events("step"), "it has passed steps")
    job(place, "first")
    command = [STARLING, "run", place.path("first.toml"), "--out", refused.out, "--workers", "2"]
    for code in (0, 2):  # a run that has passed steps is not touched
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        require(ended.returncode == code, f"{ended.returncode}: {ended.stdout} {ended.stderr}")
        digests = [done["digest"] for done in refused.events("done")]
        require(digests == [quiet.digest()], f"digests {digests}, undisturbed {quiet.digest()}")
    require(os.listdir(os.path.join(refused.out, "run-1")) and not os.path.exists(os.path.join(refused.out, "run-2")),
            os.listdir(refused.out))


def another_model_is_refused_before_anything_begins(place):
    run = place.run(job(place, "other", "samples 41"), "--workers", 2).end(2)
    require("the number of samples is 41 here and 40 in the job" in run.text(), run.text())


def a_worker_without_the_script_says_how_to_name_it(place):
    run = place.run(job(place, "moves", "pace 0.01", steps=200), "--workers", 2)
    run.wait_for_step(3)
    start = run.events("start")[0]
    os.rename(place.path("moves.py"), place.path("moved.py"))
    worker = [STARLING, "worker", "--join", start["address"], "--keys", start["keys"], "--save", "none"]
    refused = subprocess.run(worker, capture_output=True, text=True)
    wanted = f"no script {place.path('moves.py')} here; --script says where the job's script lies"
    require(refused.returncode == 2 and wanted in refused.stderr, f"{refused.returncode}: {refused.stderr}")
    run.join("--save", "none", "--script", place.path("moved.py"))
    wait_until(lambda: len(run.workers()) == 3, "it joins with --script")
    run.end()


def a_script_is_a_job_where_a_job_is_wanted(place):
    quiet = quiet_run(place)
    with open(place.path("train.py"), "w") as file:
        file.write(f"import os\nopen(os.environ['STARLING_WRITE_JOB'], 'w').write(open({place.path('quiet.toml')!r})"
                   ".read().replace('quiet.py', " + repr(place.path("quiet.py")) + "))\n")
    same(place.run(place.path("train.py"), "--workers", 2).end(), quiet)
    with open(place.path("none.py"), "w") as file:
        file.write("print('hello')\n")
    refused = subprocess.run([STARLING, "check", place.path("none.py")], capture_output=True, text=True)
    require(refused.returncode == 2 and "the script has described no job" in refused.stderr, refused.stderr)


def why_a_script_describes_no_job_is_the_last_line(place):
    """An exception's reason stands in it, and a signal's name."""
    path = place.path("broken.py")
    for body, reason in (("raise ValueError('no data here')",
                          "the script ended with exit code 1 before it described a job: ValueError: no data here"),
                         ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
                          "the script was ended by SIGSEGV before it described a job"),
                         ("import os, subprocess\nsubprocess.Popen(['sleep', '3'])\nos._exit(3)",  # it keeps stderr
                          "the script ended with exit code 3 before it described a job")):
        with open(path, "w") as file:
            file.write(body + "\n")
        refused = subprocess.run([STARLING, "check", path], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        last = (refused.stderr.splitlines() or [""])[-1]
        require(refused.returncode == 2 and last == f"starling: {reason}; {path}", f"{refused.returncode}: {refused.stderr}")
        require("ValueError" not in body or "Traceback" in refused.stderr, f"the traceback is gone: {refused.stderr}")


main(why_a_script_describes_no_job_is_the_last_line,
     any_number_of_workers_and_threads_gives_the_same_bits,
     kills_of_workers_and_of_their_processes_change_no_bit,
     a_hanging_process_ends_with_its_worker,
     what_a_script_raises_ends_one_worker_and_is_in_the_events,
     what_the_scripts_of_all_workers_raise_is_the_end,
    a_refused_run_is_put_right_in_its_own_folder,
     another_model_is_refused_before_anything_begins,
     a_worker_without_the_script_says_how_to_name_it,
     a_script_is_a_job_where_a_job_is_wanted)
