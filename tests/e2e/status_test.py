"""`starling status`: the same of a folder and of an address, while workers come and go, and what leads nowhere."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request

from cluster import Cluster
from harness import STARLING, kill_join_and_leave, main, require, wait_until, with_checkpoints
from ports import free_ports


def status(where, *options, code=0):
    asked = subprocess.run([STARLING, "status", str(where), *options], capture_output=True, text=True, timeout=120)
    require(asked.returncode == code, f"status {where}: {asked.returncode}, expected {code}: {asked.stdout}{asked.stderr}")
    return asked.stdout if code == 0 else asked.stderr


def facts(where):
    return json.loads(status(where, "--json"))


def a_run_is_seen_from_its_folder_and_from_its_address(place):
    job = with_checkpoints(place.waiting_job(steps=250), place.path("kept"), 20)
    run = place.run(job, "--workers", 3, "--metrics", "127.0.0.1:0")
    run.wait_for_step(20)
    url = re.search(r"metrics are at (http://[^/\s]*)", run.text())[1]
    with open(place.path("watched"), "w") as out:
        watcher = subprocess.Popen([STARLING, "status", run.out, "--watch", "--json"], stdout=out)
    kill_join_and_leave(run, 60)
    for where in (run.out, os.path.join(run.out, "events.jsonl"), url):
        # An epoch names a worker that has gone until the next epoch is told, and knows no process of that worker.
        seen = wait_until(lambda where=where: (lambda now: now if now["workers"]["left"] == 1 and all(
            member["pid"] > 0 for member in now["epoch"]["members"]) else None)(facts(where)), "the leave")
        require(seen["state"] == "training" and seen["steps"] == 250 and 60 <= seen["step"] <= 250, seen)
        require(seen["workers"]["lost"] + seen["workers"]["fenced"] == 1 and seen["workers"]["joined"] >= 4, seen)
        require(seen["checkpoint"]["step"] % 20 == 0 and seen["checkpoint"]["seconds"] < 600, seen)
        require(seen["leader"]["coordinator"] == 0 and seen["pause_seconds"] >= 0, seen)
        require(all(member["name"].startswith("worker-") and member["pid"] > 0 for member in seen["epoch"]["members"]), seen)
        text = status(where)
        require(re.match(r"\S+: training, step \d+ of 250 ", text), text)
        require(all(re.search(rf"\n  rank {rank}      worker-\d+, process \d+", text) for rank in (0, 1)), text)
    run.end()
    require(watcher.wait(60) == 0, f"--watch ended with {watcher.returncode}")
    with open(place.path("watched")) as file:
        watched = [json.loads(line) for line in file]
    require(watched[-1]["state"] == "done" and watched[-1]["digest"] == run.digest(), watched[-1])
    steps = [one["step"] for one in watched]
    require(steps == sorted(steps), "a run went back")
    seen = facts(run.out)
    require(seen["state"] == "done" and seen["step"] == 250 and seen["digest"] == run.digest(), seen)
    require(re.search(r"\n?(1 worker lost|0 workers lost, 1 fenced), 1 left, \d+ joined; pauses \d+\.\d s in all; \d+\.\d % of 0:\d\d in steps\n", run.text()),
            run.text()[-600:])


def fetched(url):
    """Status and text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=60) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def a_page_shows_a_run_while_it_goes_on_and_afterwards(place):
    run = place.run(place.waiting_job(steps=250), "--workers", 3)
    run.wait_for_step(20)
    watcher = subprocess.Popen([STARLING, "watch", run.out, "--http", "0"], stdout=subprocess.PIPE, text=True)
    line = watcher.stdout.readline()
    at = re.fullmatch(rf"{re.escape(run.out)} is at (http://127\.0\.0\.1:\d+)/; Ctrl-C ends it\n", line)
    require(at, line)
    code, page = fetched(at[1] + "/")
    require(code == 200 and '<meta http-equiv="refresh" content="2">' in page and page.count("<svg") == 2 and "<script" not in page, page[:500])
    require("training, step" in page and "worker-0, life" in page and ">loss<" in page and ">norm<" in page, page[:2000])
    kill_join_and_leave(run, 60)
    wait_until(lambda: fetched(at[1] + "/")[1].count("<td>forced</td>") >= 1, "the forced epoch is on the page")
    run.end()
    page = wait_until(lambda: (lambda text: text if ": done" in text else None)(fetched(at[1] + "/")[1]), "the end is on the page")
    require("refresh" not in page and run.digest() in page, page[:2000])
    require(fetched(at[1] + "/events.jsonl")[0] == 404, "another page is there")
    out = place.path("page.html")
    for code, expected in ((0, ""), (2, "is there already")):
        saved = subprocess.run([STARLING, "watch", run.out, "--out", out], capture_output=True, text=True, timeout=60)
        require(saved.returncode == code and expected in saved.stderr, f"{saved.returncode} {saved.stderr}")
    with open(out) as file:
        require(file.read().count("<svg") == 2, "the file is another page")
    # The next run of the folder is another one.
    shutil.move(run.out, place.path("moved"))
    os.makedirs(run.out)
    shutil.copy(os.path.join(place.path("moved"), "events.jsonl"), place.path("events.jsonl"))
    with open(place.path("events.jsonl")) as file, open(os.path.join(run.out, "events.jsonl"), "w") as cut:
        cut.writelines(file.readlines()[:40])
    wait_until(lambda: ": done" not in fetched(at[1] + "/")[1], "the new file is read")
    watcher.terminate()
    require(watcher.wait(60) == 128 + signal.SIGTERM, f"exit code {watcher.returncode}")
    for where, expected in ((place.path("nowhere"), "is no file of events"), (place.path("text.txt"), "has no event of a run yet")):
        refused = subprocess.run([STARLING, "watch", where], capture_output=True, text=True, timeout=60)
        require(refused.returncode == 2 and expected in refused.stderr and len(refused.stderr.splitlines()) == 1, refused.stderr)


def each_coordinator_answers_for_itself(place):
    job = place.waiting_job(steps=100_000)
    ports = free_ports(3)
    with Cluster(place, job, coordinators=3, workers=2) as cluster:
        plain = cluster.command
        cluster.command = lambda i, job=None: (*plain(i, job), "--metrics", str(ports[i]))
        cluster.start_all()
        cluster.wait_for_step(0, 20)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        first = next(i for i in range(3) if "leader" in facts(urls[i]))
        cluster.coordinators[first].send_signal(signal.SIGKILL)
        cluster.coordinators[first].wait()
        require("nobody" in status(urls[first], code=3) or "refused" in status(urls[first], code=3), "a dead one answers")
        others = {0, 1, 2} - {first}

        def new_leader():
            seen = [facts(urls[i]) for i in others]
            require(all(one["state"] == "training" for one in seen), seen)
            return any(one.get("leader", {}).get("coordinator") in others for one in seen)
        wait_until(new_leader, "one of the others says that it leads")
        # Begun again with the same command, it knows what was before.
        cluster.start_coordinator(first)
        wait_until(lambda: subprocess.run([STARLING, "status", urls[first]], capture_output=True).returncode == 0, "it answers")
        wait_until(lambda: facts(urls[first])["step"] > 20 and facts(urls[first])["workers"]["joined"] == 2, "it knows the run")
        # Two of three are away: the one that is left says so, and steps go on.
        left = min(others)
        for i in {0, 1, 2} - {left}:
            cluster.coordinators[i].send_signal(signal.SIGKILL)
            cluster.coordinators[i].wait()
        wait_until(lambda: "no leader for 10 s, as 2 of the 3 coordinators" in facts(urls[left]).get("last_warning", ""), "the one that is left warns")
        at = facts(urls[left])["step"]
        wait_until(lambda: facts(urls[left])["step"] > at, "steps go on")
        cluster.start_coordinator(first)
        wait_until(lambda: facts(urls[left])["last_warning"].endswith("a leader is there again"), "that there is one again")


def what_leads_nowhere_is_one_line(place):
    with open(place.path("other.txt"), "w") as file:
        file.write("no events\n")
    os.mkdir(place.path("empty"))
    open(place.path("nothing.jsonl"), "w").close()
    port = free_ports(1)[0]
    for where, code, part in ((place.path("none"), 2, "none"), (place.path("empty"), 2, "events.jsonl"),
                              (place.path("other.txt"), 2, "line 1"), (place.path("nothing.jsonl"), 2, "no event of a run yet"), ("/dev/zero", 2, "regular file"),
                              (f"http://127.0.0.1:{port}", 3, str(port)), (f"127.0.0.1:{port}", 3, str(port)),
                              ("https://127.0.0.1:1", 2, "expected a folder, events.jsonl or http://HOST:PORT"), ("http://", 2, "http://"),
                              ("http://127.0.0.1", 2, "127.0.0.1"), ("tcp://127.0.0.1:7000", 2, "tcp://"),
                              ("http://no.such.host.invalid:9464", 2, "no.such.host.invalid")):
        said = status(where, code=code)
        require(said.startswith("starling: ") and said.count("\n") == 1 and part in said, f"{where}: {said}")


def strangers_are_not_believed(place):
    del place
    for body, code in ((b'{"state":"bogus"}', 2), (b"[" * 250_000, 2), (b'{"a":' + b"[" * 250_000 + b"]" * 250_000 + b"}", 2),
                       (b"<html>", 2), (b'{"state":"done","x":"' + b"\\u001b[2J" + b'"}', 0)):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer(server=server, body=body):
                with contextlib.suppress(OSError):
                    while True:
                        connection = server.accept()[0]
                        people = b"/status.txt" in connection.recv(4096)
                        text = b"\x1b]0;title\x07 \xc2\x9b2J\n" if people else body
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                        connection.close()
            threading.Thread(target=answer, daemon=True).start()
            said = status(f"http://127.0.0.1:{server.getsockname()[1]}", code=code)
            require(all(letter.isprintable() or letter == "\n" for letter in said), repr(said))
            server.shutdown(socket.SHUT_RDWR)


def a_line_that_is_cut_off_is_no_event(place):
    """As a coordinator that begins again cuts it, between two looks."""
    path = place.path("events.jsonl")
    line = '{"t":%d,"time":"2026-03-01T12:00:%02d.000000Z","ev":"checkpoint","version":%d,"path":"x"}\n'
    with open(path, "w") as file:
        file.write(line % (1, 1, 1) + (line % (2, 2, 2))[:40])
    watcher = subprocess.Popen([STARLING, "status", path, "--watch", "--json"], stdout=subprocess.PIPE, text=True)
    require(json.loads(watcher.stdout.readline())["checkpoint"]["step"] == 1, "the first line")
    with open(path, "r+") as file:
        file.truncate(len(line % (1, 1, 1)))
        file.seek(0, os.SEEK_END)
        file.write((line % (3, 3, 3)) * 3)
    wait_until(lambda: json.loads(watcher.stdout.readline())["checkpoint"]["step"] == 3, "the lines after the cut")
    watcher.kill()
    watcher.wait()


main(strangers_are_not_believed, a_line_that_is_cut_off_is_no_event, a_run_is_seen_from_its_folder_and_from_its_address,
     a_page_shows_a_run_while_it_goes_on_and_afterwards, each_coordinator_answers_for_itself, what_leads_nowhere_is_one_line)
