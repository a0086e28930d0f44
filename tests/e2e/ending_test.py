"""Exit codes, one clear line for bad input, and nothing left behind however a run ends (P6)."""
import os
import signal
import socket
import subprocess

from harness import STARLING, alive, children_of, main, parent_of, processes_naming, require, wait_until
from ports import free_port


def starling(*arguments):
    return subprocess.run([STARLING, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def bad_input_is_one_line_and_exit_code_2(place):
    job = place.job()
    with open(place.path("broken.toml"), "w") as file:
        file.write("[job]\nname = 'x'\nstep = 3\n")
    with open(place.path("nodata.toml"), "w") as file:
        with open(job) as good:
            file.write(good.read().replace("text.txt", "missing.txt"))
    out = place.path("out")
    for arguments, word in (
            ((), "subcommand"),
            (("sing",), "sing"),
            (("run",), "job"),
            (("run", job, "--workers", "0", "--out", out), "workers"),
            (("run", job, "--wrokers", "2", "--out", out), "wrokers"),
            (("run", job, "--steps", "many", "--out", out), "steps"),
            (("run", job, "--coordinators", "2", "--out", out), "coordinators"),
            (("run", place.path("missing.toml"), "--out", out), "missing.toml"),
            (("run", place.path("broken.toml"), "--out", out), "step"),
            (("run", place.path("nodata.toml"), "--out", out), "missing.txt"),
            (("run", job, "--replicas", "99", "--out", out), "replicas"),
            (("run", job, "--out", "/proc/nowhere"), "/proc/nowhere"),
            (("worker", "--join", "127.0.0.1:1", "--keys", place.path("nokeys")), "nokeys"),
            (("check", place.path("broken.toml")), "step"),
            (("bench", "grid"), "starling-bench"),
    ):
        ended = starling(*arguments)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2, f"{arguments}: exit code {ended.returncode}: {ended.stderr}")
        require(len(lines) == 1 and lines[0].startswith("starling: "),
                f"{arguments}: not one line: {ended.stderr!r}")
        require(word in lines[0], f"{arguments}: {word} is not named: {lines[0]}")
    require(not os.path.exists(out), "a refused run made its output directory")


def an_output_directory_is_used_once(place):
    job = place.job(steps=100000)
    run = place.run(job, "--workers", 1)
    run.wait_for_step(1)
    in_use = starling("run", job, "--out", run.out)
    require(in_use.returncode == 2 and "in use" in in_use.stderr, in_use.stderr)
    run.process.send_signal(signal.SIGTERM)
    run.end(code=143, seconds=10)
    again = starling("run", job, "--out", run.out)
    require(again.returncode == 2 and "already holds a run" in again.stderr, again.stderr)


def a_port_that_is_in_use_is_said_at_once(place):
    with socket.create_server(("127.0.0.1", free_port())) as busy:
        port = busy.getsockname()[1]
        for coordinators in ("1", "3"):
            refused = starling("run", place.job(steps=20), "--out", place.path(f"busy-{coordinators}"),
                               "--coordinators", coordinators, "--port", str(port))
            lines = refused.stderr.strip().splitlines()
            require(refused.returncode == 2 and len(lines) == 1 and "cannot listen" in lines[0] and str(port) in lines[0],
                    f"{coordinators} coordinators: {refused.returncode} {refused.stderr}")


def what_could_not_begin_begins_in_the_same_folder(place):
    job, out = place.job(steps=20), place.path("out")
    refused = starling("run", job, "--out", out, "--host", "192.0.2.1")  # no machine has this address
    require(refused.returncode == 2 and "cannot listen" in refused.stderr, f"{refused.returncode} {refused.stderr}")
    again = starling("run", job, "--out", out)
    require(again.returncode == 0, f"{again.returncode} {again.stderr}")
    require(os.path.exists(os.path.join(out, "run-1", "events.jsonl")), os.listdir(out))


def ctrl_c_leaves_nothing_behind(place):
    for coordinators in (1, 3):
        run = place.run(place.job(steps=100000), "--workers", 3, "--coordinators", coordinators)
        run.wait_for_step(5)
        require(len(processes_naming(run.out)) >= 7, "guards and workers are not seen")
        run.process.send_signal(signal.SIGINT)
        run.end(code=130, seconds=10)
        require(not processes_naming(run.out), "processes are left")


def a_killed_launcher_or_guard_leaves_nothing_behind(place):
    job = place.job(steps=1000000, coordinator_timeout_ms=1500)
    run = place.run(job, "--workers", 2)
    run.wait_for_step(5)
    guard = parent_of(run.workers()[0]["pid"])
    os.kill(guard, signal.SIGKILL)
    now = run.steps()
    wait_until(lambda: run.steps() > now + 50, "a worker goes on without its guard", 120)
    run.process.kill()
    run.process.wait(120)
    wait_until(lambda: not processes_naming(run.out), "workers give up", 120)
    # Nobody was there to remove its keys; the next run beside it does, and says so.
    require(os.path.isdir(run.out + ".keys"), "the keys of a killed run are gone")
    other = place.run(place.job(steps=10)).end()
    require(not os.path.exists(run.out + ".keys") and "removed the keys of a run that was killed" in other.text(),
            other.text())


def too_few_workers_is_exit_code_3(place):
    job = place.job(start_timeout_ms=1000)
    folder = place.path("parts")
    os.mkdir(folder)
    keys = os.path.join(folder, "keys")
    require(starling("keys", "--out", keys, "--workers", "2").returncode == 0, "no keys were made")
    require(starling("keys", "--out", keys).returncode == 2, "a key file was replaced")
    ended = starling("coordinator", "--job", job, "--keys", keys, "--state", folder + "/state",
                     "--new", "--workers", "1")
    require(ended.returncode == 3 and "0 of 1 workers" in ended.stderr,
            f"{ended.returncode}: {ended.stderr}")


def nobody_gets_in_with_another_key(place):
    run = place.run(place.job(steps=100000, coordinator_timeout_ms=1500), "--workers", 1)
    run.wait_for_step(1)
    keys = place.path("other-keys")
    starling("keys", "--out", keys)
    stranger = starling("worker", "--join", run.events("start")[0]["address"], "--keys", keys,
                        "--job", run.out + "/job.toml")
    require(stranger.returncode == 2, f"exit code {stranger.returncode}: {stranger.stderr}")
    require(len(run.workers()) == 1, "it joined")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130, seconds=10)


def parts_started_by_hand_train_as_run_does(place):
    job = place.job(steps=50)
    quiet = place.run(job, "--workers", 1)
    keys = place.path("keys")
    starling("keys", "--out", keys)
    out = place.path("out-by-hand")
    listen = "127.0.0.1:" + str(free_port())
    coordinator = subprocess.Popen([STARLING, "coordinator", "--job", job, "--keys", keys, "--listen",
                                    listen, "--new", "--state", out + "/state", "--out", out, "--workers", "2"],
                                   stdout=subprocess.DEVNULL)
    workers = [subprocess.Popen([STARLING, "worker", "--join", "tcp://" + listen, "--keys", keys,
                                 "--job", job, "--save", out + "/model.safetensors"],
                                stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for worker in workers:
        said, _ = worker.communicate(timeout=300)
        require(worker.returncode == 0 and quiet.digest() in said, f"{worker.returncode}: {said}")
    require(coordinator.wait(300) == 0, "the coordinator failed")
    require(not os.path.exists(quiet.out + ".keys"), "keys of a run that has ended")
    with open(quiet.out + "/model.safetensors", "rb") as one, open(out + "/model.safetensors", "rb") as two:
        require(one.read() == two.read(), "model files differ")


def the_end_is_a_line_of_its_own_on_a_terminal(place):
    import pty
    shown, terminal = pty.openpty()
    run = subprocess.Popen([STARLING, "run", place.job(steps=20), "--out", place.path("terminal")],
                           stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL,
                           env={**os.environ, "TERM": "xterm"})
    os.close(terminal)
    text = b""
    while True:
        try:
            more = os.read(shown, 65536)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        text += more
    require(run.wait(300) == 0, text.decode(errors="replace"))
    require(b"\r\ndone: version 20" in text, f"the end is glued to the live line: {text[-300:]!r}")


def closed_streams_take_nothing_from_files(place):
    """A process that is started without them (`>&-`) would give their numbers to its first files."""
    job = place.job(steps=60)
    closed = lambda: [os.close(fd) for fd in (0, 1, 2)]
    out = place.path("closed")
    ended = subprocess.Popen([STARLING, "run", job, "--workers", "2", "--coordinators", "3", "--out", out],
                             preexec_fn=closed).wait(300)
    require(ended == 0, f"exit code {ended}")
    audit = starling("audit", out)
    require(audit.returncode == 0, audit.stdout + audit.stderr)
    require(not processes_naming(out), "processes are left")
    # The log of a coordinator that is started so can be read again.
    keys, state, listen = place.path("closed-keys"), place.path("closed-state"), f"127.0.0.1:{free_port()}"
    starling("keys", "--out", keys)
    command = [STARLING, "coordinator", "--job", job, "--keys", keys, "--listen", listen, "--workers", "1",
               "--state", state]
    first = subprocess.Popen([*command, "--new"], preexec_fn=closed)
    worker = starling("worker", "--join", listen, "--keys", keys, "--save", "none")
    require(worker.returncode == 0 and first.wait(300) == 0, worker.stderr)
    again = starling(*command[1:])
    require(again.returncode == 0 and "damaged" not in again.stderr, again.stderr)


def who_still_loads_when_the_job_is_over_ends(place):
    """Its process is stopped before it listens to the coordinators, as one that imports for a minute."""
    for _ in range(10):
        run = place.run(place.job(steps=400), "--workers", 1)
        run.wait_for_step(1)
        guard = run.join("--save", "none")
        worker = wait_until(lambda: children_of(guard.pid), "its process")[0]
        os.kill(worker, signal.SIGSTOP)
        run.end()
        late = len(run.workers()) == 1
        if not late:  # it was faster than this test
            os.kill(worker, signal.SIGCONT)
        try:
            ended = guard.wait(20 if late else 120)
        except subprocess.TimeoutExpired:  # it was stopped between its first words with the coordinators and its join
            os.kill(worker, signal.SIGCONT)
            guard.wait(120)
            continue
        require(not alive(worker), "its process is left")
        if late:
            return require(ended == 0, f"exit code {ended}")
    require(False, "each one had joined before it was stopped, or was not ended by its guard")


def who_comes_when_all_have_gone_is_told_why(place):
    """The coordinators have ended with their job, and its keys are still here."""
    job, keys, listen = place.job(steps=20, coordinator_timeout_ms=1500), place.path("keys"), f"127.0.0.1:{free_port()}"
    starling("keys", "--out", keys)
    coordinator = subprocess.Popen([STARLING, "coordinator", "--job", job, "--keys", keys, "--listen", listen, "--new",
                                    "--state", place.path("state"), "--workers", "1"], stdout=subprocess.DEVNULL)
    worker = ("worker", "--join", listen, "--keys", keys, "--job", job, "--save", "none")
    first = starling(*worker)
    require(first.returncode == 0 and coordinator.wait(300) == 0, first.stderr)
    late = starling(*worker)
    require(late.returncode == 3, f"exit code {late.returncode}: {late.stderr}")
    (line,) = [line for line in late.stderr.splitlines() if line.startswith("starling: ")]
    for word in ("no coordinator answered for 1500 ms", listen, "when a job is over they end as well"):
        require(word in line, f"{word!r} is not in: {line}")


def help_teaches(place):
    for sub in ("run", "worker", "coordinator", "keys", "check", "export", "audit", "chaos", "replay",
                "version"):
        shown = starling(sub, "--help")
        require(shown.returncode == 0 and "Example:" in shown.stdout, f"{sub}: {shown.stdout}")
    for sub in ("model", "grid", "allreduce", "recovery", "changes", "price", "transport", "bridge", "device"):
        shown = subprocess.run([STARLING + "-bench", sub, "--help"], capture_output=True, text=True, timeout=300)
        require(shown.returncode == 0 and "Example:" in shown.stdout, f"{sub}: {shown.stdout}")
    refused = subprocess.run([STARLING + "-bench", "grid", "--freeze"], capture_output=True, text=True, timeout=300)
    require(refused.returncode == 2 and "unknown option --freeze of grid" in refused.stderr, refused.stderr)
    checked = starling("check", os.path.join(os.path.dirname(__file__), "..", "fixtures",
                                             "mlp-micro.safetensors"))
    require(checked.returncode == 0, checked.stdout + checked.stderr)


main(bad_input_is_one_line_and_exit_code_2, an_output_directory_is_used_once,
     a_port_that_is_in_use_is_said_at_once,
     what_could_not_begin_begins_in_the_same_folder, ctrl_c_leaves_nothing_behind, a_killed_launcher_or_guard_leaves_nothing_behind,
     too_few_workers_is_exit_code_3, nobody_gets_in_with_another_key,
     parts_started_by_hand_train_as_run_does, the_end_is_a_line_of_its_own_on_a_terminal,
     closed_streams_take_nothing_from_files, who_still_loads_when_the_job_is_over_ends,
     who_comes_when_all_have_gone_is_told_why, help_teaches)
