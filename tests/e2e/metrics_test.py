"""Metrics, as Prometheus gets them: of a run under faults, of coordinators, and what a client may do to their server."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from cluster import Cluster
from harness import STARLING, main, require, same_so_far, wait_until, with_checkpoints
from ports import free_port

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABELS = rf'{NAME}="(?:[^"\\\n]|\\[\\n"])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABELS}(?:,{LABELS})*)\}})? (NaN|[+-]Inf|[0-9.e+-]+)")


def metrics_of(text):
    """Values by "name{labels}" of an exposition, each line of which must be as the format has it."""
    values, types = {}, {}
    for line in text.split("\n")[:-1]:
        head = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
        if head:
            if head[1] == "TYPE":
                require(head[2] not in types and head[3] in ("gauge", "counter", "histogram"), line)
                types[head[2]] = head[3]
            continue
        sample = SAMPLE.fullmatch(line)
        require(sample, f"no sample: {line!r}")
        family = re.sub(r"_(bucket|sum|count)$", "", sample[1]) if sample[1] not in types else sample[1]
        require(family in types, f"without a type: {line}")
        key = sample[1] + (f"{{{sample[2]}}}" if sample[2] else "")
        require(key not in values, f"twice: {key}")
        values[key] = float(sample[3].replace("Inf", "inf"))
    require(text.endswith("\n") and values, "no metrics")
    return values


def fetch(url, accept="text/plain"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=20) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def url_of(run):
    return wait_until(lambda: re.search(r"metrics are at (http://\S+)", run.text()), "the address of the metrics")[1]


def a_run_under_faults_tells_what_its_events_tell(place):
    job = with_checkpoints(place.waiting_job(steps=100000, schedule_steps=400), place.path("kept"), 10)
    run = place.run(job, "--workers", 4, "--metrics", 0)
    url = url_of(run)
    wait_until(lambda: run.events("checkpoint"), "a checkpoint")
    run.kill(run.workers()[0])
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    run.kill(run.workers()[1], signal.SIGTERM)
    wait_until(lambda: run.workers("left"), "the leave")
    run.wait_for_step(run.steps() + 20)
    kind, text = fetch(url)
    require(kind == "text/plain; version=0.0.4; charset=utf-8", kind)
    got = metrics_of(text)
    expected = {'starling_worker_changes_total{change="joined"}': 4, 'starling_worker_changes_total{change="lost"}': 1,
                'starling_worker_changes_total{change="left"}': 1, 'starling_worker_changes_total{change="fenced"}': 0, "starling_workers": 2,
                'starling_epochs_total{kind="forced"}': sum(e["kind"] == "forced" for e in run.events("epoch")), "starling_steps_wanted": 100000,
                'starling_state{state="running"}': 1, "starling_elections_total": 1, "starling_restarts_total": 0, "starling_mismatches_total": 0,
                "starling_warnings_total": len(run.events("warning")), "starling_checkpoint_every_steps": 10}
    require(expected.items() <= got.items(), f"expected {expected}, got {text}")
    step = int(got["starling_step"])
    told = [event for event in run.events("step") if event["version"] < step]
    require(len(told) == step == got["starling_steps_total"] == got["starling_step_seconds_count"], f"{step} steps, {len(told)} in the file")
    require(got["starling_loss"] == told[-1]["loss"] and got["starling_gradient_norm"] == told[-1]["norm"], "another loss or norm")
    require(abs(got["starling_step_seconds_sum"] - sum(event["ms"] for event in told) / 1000) < 1e-3, "other times")
    require(got['starling_step_seconds_bucket{le="+Inf"}'] == step, "a histogram without an end")
    require(got["starling_checkpoint_step"] in [event["version"] for event in run.events("checkpoint")], "no such checkpoint")
    require(abs(got["starling_last_step_timestamp_seconds"] - time.time()) < 60, "another time")
    require(0 < got["starling_effective_time_ratio"] <= 1, "a ratio")
    kind, text = fetch(url, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    require(kind.startswith("application/openmetrics-text; version=1.0.0") and text.endswith("\n# EOF\n"), kind)
    require("# TYPE starling_steps counter\nstarling_steps_total " in text, text)
    same_so_far(place, run, place.waiting_job(steps=100000, schedule_steps=400))


def each_coordinator_has_its_own(place):
    ports = [free_port() for _ in range(3)]
    with Cluster(place, place.waiting_job(steps=100000), coordinators=3, workers=2) as cluster:
        for i, port in enumerate(ports):
            cluster.coordinators[i] = cluster.start(*cluster.command(i), "--new", "--metrics", f"127.0.0.1:{port}")
        for _ in range(2):
            cluster.start_worker()

        def all_tell():
            with contextlib.suppress(OSError):
                return all(metrics_of(fetch(f"http://127.0.0.1:{port}/metrics")[1]).get("starling_steps_total", 0) > 5 for port in ports)
            return False
        wait_until(all_tell, "steps at all three")


def a_worker_tells_what_it_does(place):
    run = place.run(place.job(steps=100000), "--workers", 2)
    run.wait_for_step(1)
    url = f"http://127.0.0.1:{free_port()}/metrics"
    worker = subprocess.Popen([STARLING, "worker", "--join", run.out, "--save", "none", "--quiet", "--metrics", url[7:-8]])

    def fetched():
        with contextlib.suppress(OSError):
            got = metrics_of(fetch(url)[1])
            return got if got["starling_worker_steps_total"] > 20 else None
        return None
    got = wait_until(fetched, "the worker's metrics")
    name = run.events("worker")[-1]["name"]
    require([key for key in got if key.startswith("starling_worker_info") and f'worker="{name}"' in key], got)
    sent = {kind: got[f'starling_worker_sent_bytes_total{{kind="{kind}"}}'] for kind in ("contribution", "total", "gather", "ledger", "vote")}
    require(all(sent.values()) and sent["contribution"] > sent["vote"], sent)
    require(got['starling_worker_seconds_total{part="computing"}'] > 0, got)
    require(sum(got[f'starling_worker_phase{{phase="{p}"}}'] for p in ("none", "change", "compute", "reduce", "vote", "apply", "gather", "end")) == 1,
            got)
    # It computes what the ledger says; the last steps may not be told yet.
    step = run.steps()
    wait_until(lambda: run.steps() > step, "another step")
    later = fetched()
    own = run.events("worker")[-1]["id"]
    rows = sum(worker == own for event in run.events("ledger") for _, worker in event["workers"])
    computed = later['starling_worker_micro_batches_total{again="false"}']
    require(abs(rows - computed) <= 64, f"{rows} rows, {computed} computed")
    require(later["process_resident_memory_bytes"] > 1e6 and later["process_open_fds"] > 5, later)
    taken = subprocess.run([STARLING, "worker", "--join", run.out, "--save", "none", "--metrics", url[7:-8]], text=True, capture_output=True,
                           timeout=170, check=False)
    require(taken.returncode == 2 and "cannot listen for --metrics at" in taken.stderr, f"{taken.returncode}: {taken.stderr}")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)
    worker.wait(60)


def lines_are_json_for_who_asks(place):
    out = place.path("json")
    run = subprocess.Popen([STARLING, "run", place.job(steps=100000), "--workers", "3", "--out", out, "--log-format", "ecs", "--log", "info"], text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def told(kind):
        with contextlib.suppress(OSError), open(os.path.join(out, "events.jsonl")) as file:
            return [event for event in map(json.loads, file.read().split("\n")[:-1]) if event["ev"] == kind]
        return []
    wait_until(lambda: told("step"), "a step")
    os.kill(told("worker")[0]["pid"], signal.SIGKILL)
    wait_until(lambda: [event for event in told("worker") if event["what"] == "lost"], "the loss")
    refused = subprocess.run([STARLING, "worker", "--join", out, "--data", "/no/such/file", "--save", "none"], text=True, capture_output=True,
                             timeout=170, check=False, env={**os.environ, "STARLING_LOG_FORMAT": "ecs"})
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=170)[1]
    require(refused.returncode == 2, refused.stderr)
    for text, level, part in ((refused.stderr, "error", "/no/such/file"), (said, "info", "connecting")):
        lines = [json.loads(line) for line in text.strip().split("\n")]
        require([line for line in lines if line["log.level"] == level and part in line["message"]], text)
        require(text is refused.stderr or {line.get("service.node.name") for line in lines} >= {"worker-0", "worker-1", "worker-2"}, text)
        require(all(line["@timestamp"].endswith("Z") and line["service.name"] == "starling" and line["ecs.version"] for line in lines), text)
    for words in ("worker", "--bogus"), ("worker",), ("run",), ("nosuch",):
        wrong = subprocess.run([STARLING, *words], text=True, capture_output=True, timeout=170, check=False,
                               env={**os.environ, "STARLING_LOG_FORMAT": "ecs"})
        require(wrong.returncode == 2 and json.loads(wrong.stderr)["log.level"] == "error", f"{words}: {wrong.stderr}")
    wrong = subprocess.run([STARLING, "run", place.job(), "--log-format", "xml"], text=True, capture_output=True, timeout=170, check=False)
    require(wrong.returncode == 2 and "--log-format" in wrong.stderr, wrong.stderr)


def a_client_holds_up_nothing(place):
    run = place.run(place.waiting_job(steps=100000), "--workers", 1, "--metrics", "localhost:0")
    url = url_of(run)
    port = int(re.search(r":(\d+)/", url)[1])
    require(fetch(url.replace("/metrics", "/healthz"))[1] == "ok\n", "no health")
    for method, path, code in (("GET", "/other", 404), ("POST", "/metrics", 405), ("GET", "/metrics/../../etc/passwd", 404)):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=20).close()
            got = 200
        except urllib.error.HTTPError as error:
            got = error.code
        require(got == code, f"{method} {path}: {got}")
    for said in (b"\x00" * 9000, b"GET /metrics HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", b"\r\n\r\n",
                 b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger, contextlib.suppress(OSError):
            stranger.sendall(said)
            stranger.settimeout(20)
            while stranger.recv(65536):
                pass
    idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(200)]  # more than have room
    before = run.steps()
    run.wait_for_step(before + 20)
    for stranger in idle:
        stranger.close()

    def answers():
        with contextlib.suppress(OSError):
            return metrics_of(fetch(url)[1])
        return None
    wait_until(answers, "the metrics, after all that")
    run.process.send_signal(signal.SIGINT)
    run.end(code=130)


def what_cannot_be_listened_at_is_refused(place):
    job = place.job(steps=20)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for address, expected in ((f"127.0.0.1:{taken.getsockname()[1]}", "cannot listen for --metrics at"), ("99999", "99999"),
                                  ("http://x:1", "http://x:1"), ("192.0.2.1:9464", "cannot listen for --metrics at 192.0.2.1:9464")):
            done = subprocess.run([STARLING, "run", job, "--out", place.path("refused"), "--metrics", address], text=True, timeout=100,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            require(done.returncode == 2 and expected in done.stdout and len(done.stdout.strip().split("\n")) == 1, f"{done.returncode}: {done.stdout}")
            require(not os.path.exists(place.path("refused.keys")), "keys are left")


main(a_run_under_faults_tells_what_its_events_tell, each_coordinator_has_its_own, a_worker_tells_what_it_does, lines_are_json_for_who_asks,
     a_client_holds_up_nothing, what_cannot_be_listened_at_is_refused)
