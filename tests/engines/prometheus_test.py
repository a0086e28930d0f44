"""Metrics by a real Prometheus: its own reading of them, the alerts of examples/metrics under their faults, and a value for
each panel of the dashboard. (docs/metrics.md)"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import SOURCE, STARLING, Skipped, main, require, wait_until, with_checkpoints
from ports import free_port

METRICS = os.path.join(SOURCE, "examples", "metrics")


def tool(name):
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"needs {name} (tools/setup.sh --engines)")
    return found


def said_by(*words, text=None):
    done = subprocess.run(words, text=True, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, cwd=METRICS)
    require(done.returncode == 0, f"{words}: {done.stdout}")
    return done.stdout


def the_alerts_fire_under_their_faults_in_promtools_time(_):
    said_by(tool("promtool"), "check", "rules", "starling.rules.yml")
    require("SUCCESS" in said_by(tool("promtool"), "test", "rules", "starling.rules.test.yml"), "no success")


class Prometheus:
    """Scrapes processes of one run every second. The alert of a run that stands still comes after six seconds instead of sixty."""

    def __init__(self, place, *ports):
        targets = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
        self.port = free_port()
        with open(os.path.join(METRICS, "starling.rules.yml")) as file:
            rules = file.read()
        require(rules.count("_seconds > 60 ") == 1, rules)
        with open(place.path("rules.yml"), "w") as file:
            file.write(rules.replace("_seconds > 60 ", "_seconds > 6 "))
        with open(place.path("prometheus.yml"), "w") as file:
            file.write("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"
                       f"  - {{job_name: starling, static_configs: [{{targets: [{targets}]}}]}}\n")
        self.log = open(place.path("prometheus.log"), "w")
        self.process = subprocess.Popen(
            [tool("prometheus"), f"--config.file={place.path('prometheus.yml')}", f"--storage.tsdb.path={place.path('tsdb')}",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def values(self, expression):
        return (self.ask("query", query=expression) or {}).get("result", [])

    def firing(self):
        return {alert["labels"]["alertname"] for alert in (self.ask("alerts") or {"alerts": []})["alerts"] if alert["state"] == "firing"}


def a_run_under_faults_has_their_alerts_and_no_other_and_every_panel_a_value(place):
    tool("prometheus")
    port, kept = free_port(), place.path("kept")
    run = place.run(with_checkpoints(place.waiting_job(steps=100000, schedule_steps=400), kept, 10), "--workers", 4, "--metrics", port)
    said_by(tool("promtool"), "check", "metrics", text=wait_until(lambda: scraped(port), "the metrics"))
    joiner_port = free_port()
    joiner = subprocess.Popen([STARLING, "worker", "--join", run.out, "--role", "compute", "--save", "none", "--quiet",
                               "--metrics", str(joiner_port)])
    said_by(tool("promtool"), "check", "metrics", text=wait_until(lambda: scraped(joiner_port), "the worker's metrics"))
    with Prometheus(place, port, joiner_port) as prometheus:
        wait_until(lambda: prometheus.values('starling_worker_sent_bytes_total{kind="vote"} > 0'), "the votes of the worker that joined")
        wait_until(lambda: prometheus.values("starling_checkpoint_step > 0 and starling_steps_total > 50"), "a scrape")
        time.sleep(5)  # in which nothing happens
        require(not prometheus.firing(), f"without a fault: {prometheus.firing()}")

        run.kill(run.workers()[0])
        wait_until(lambda: prometheus.firing() == {"StarlingWorkersLost"}, "the alert of a lost worker, alone")
        for worker in run.workers()[1:]:
            run.kill(worker, signal.SIGSTOP)
        wait_until(lambda: prometheus.firing() == {"StarlingWorkersLost", "StarlingStandsStill"}, "the alert of a run that stands still")
        for worker in run.workers()[1:]:
            run.kill(worker, signal.SIGCONT)
        wait_until(lambda: prometheus.firing() == {"StarlingWorkersLost"}, "steps again")
        os.rename(kept, kept + ".away")
        open(kept, "w").close()
        wait_until(lambda: prometheus.firing() == {"StarlingWorkersLost", "StarlingCheckpointLate"}, "the alert of late checkpoints")

        with open(os.path.join(METRICS, "grafana.json")) as file:
            panels = json.load(file)["panels"]
        for panel in panels:
            found = [prometheus.values(target["expr"]) for target in panel["targets"]]
            require(any(found), f"{panel['title']}: no value")
        require(len(panels) >= 10, "few panels")
        # What was scraped is what the events say.
        events = run.events("worker")
        for change in ("joined", "lost", "fenced"):
            told = sum(event["what"] == change for event in events)
            wait_until(lambda change=change, told=told: [float(v["value"][1]) for v in prometheus.values(
                f'starling_worker_changes_total{{change="{change}"}}')] == [told], f"{told} {change}")
        run.process.send_signal(signal.SIGINT)
        run.end(code=130)
        wait_until(lambda: len(prometheus.values('up{job="starling"} == 0')) == 2, "the end")
        joiner.wait(60)


def scraped(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return answer.read().decode()
    except OSError:
        return None


main(the_alerts_fire_under_their_faults_in_promtools_time,
     a_run_under_faults_has_their_alerts_and_no_other_and_every_panel_a_value)
