"""`starling chaos` with workers in network namespaces: packets are lost, not held, and nothing stays."""
import os
import re
import signal
import subprocess

from chaos_of import chaos, findings, report_of
from harness import MINUTE, STARLING, Skipped, main, processes_naming, require, wait_until


STEPS = 400  # long enough for whoever was cut off to be back, on a fast machine too


def interfaces():
    """Of a run of chaos, in our own network namespace."""
    return {name for name in os.listdir("/sys/class/net") if name.startswith("starling")}


def network_namespaces():
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.readlink(f"/proc/{entry}/ns/net"))
        except OSError:
            pass
    return found


def plan_with(place, name, faults, steps=STEPS, workers=4):
    path = place.path(name)
    with open(path, "w") as file:
        file.write(f"[run]\nsteps = {steps}\nworkers = {workers}\nlease_ms = 500\n{faults}")
    return path


def quiet_digest(place, steps=STEPS):
    return place.quiet(place.waiting_job(steps=steps)).digest()


CUT = """
[[fault]]
at_s = 0.5
kind = "partition"
target = 0.3
for_s = 1.5
"""


def why_impossible(place):
    """Empty if this machine and user can have namespaces; else what chaos says."""
    plan = plan_with(place, "probe.toml", '[[fault]]\nat_s = 0\nkind = "join"\n', steps=3, workers=2)
    ended, _ = chaos(place, place.waiting_job(), "--plan", plan, "--links", "namespaces", "--reference",
                     "0" * 32)
    if "links: network namespaces" in ended.stdout:
        return ""
    lines = ended.stderr.strip().splitlines()
    require(ended.returncode == 2 and len(lines) == 1 and "--links namespaces" in lines[0],
            f"neither namespaces nor one line: {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return lines[0]


def needs_namespaces(place):
    why = why_impossible(place)
    if why:
        raise Skipped(why)


def a_worker_that_is_cut_off_in_a_network_is_left_out_and_comes_back(place):
    needs_namespaces(place)
    plan = plan_with(place, "plan.toml", CUT)
    ended, out = chaos(place, place.waiting_job(), "--plan", plan, "--links", "namespaces", "--reference",
                       quiet_digest(place))
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    said = re.fullmatch(r"network namespaces; \S+/24 behind (starling\w+)", report["links"])
    require(said and f"links: {said[0]}\n" in ended.stdout, report["links"])
    require(said[1] not in interfaces(), f"{said[1]} is left")
    fault, = report["faults"]
    require(fault["outcome"] == "done" and all(e["seen"] for e in fault["effects"]), fault)
    name = fault["targets"][0]["name"]
    seen = [e["what"] for e in fault["effects"]]
    require(f"packets from {name} are lost, and it gets none" in seen, seen)
    require(f"nothing had come to {name} until the end of that" in seen, seen)
    require(f"{name} is back as a new life" in ended.stdout, f"not left out:\n{ended.stdout}")
    require([r["name"] for r in report["woken_up_left_out"]] == [name], report["woken_up_left_out"])
    for promise in ("P1", "P2", "P3", "P4", "P6", "P8", "faults"):
        require(findings(report)[promise] == "held", f"{promise}: {report['verdicts']}")
    require(any("a hello" in s["how"] and s["seen"].startswith("closed")
                for s in report["strangers"]), report["strangers"])


APART = """
[[fault]]
at_s = 0.5
kind = "apart"
target = 0.3
for_s = 2
"""


def two_that_are_apart_in_a_network_are_one_group_again(place):
    needs_namespaces(place)
    plan = plan_with(place, "plan.toml", APART, steps=260)
    ended, out = chaos(place, place.waiting_job(), "--plan", plan, "--links", "namespaces", "--reference",
                       quiet_digest(place, 260))
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    report = report_of(out)
    fault, = report["faults"]
    require(fault["outcome"] == "done" and all(e["seen"] for e in fault["effects"]), fault)
    names = [t["name"] for t in fault["targets"]]
    require(len(names) == 2, names)
    seen = [e["what"] for e in fault["effects"]]
    for what in (f"no packet passes between {names[0]}, {names[1]}",
                 "nothing had passed between them until the end of that", "they hear one another again"):
        require(what in seen, seen)
    # How soon one of the two is left out, the machine decides.
    for name in names:
        require(re.search(f"{name} (goes on|is back as a new life)", ended.stdout), ended.stdout)
    for promise in ("P1", "P2", "P6", "P8", "faults"):
        require(findings(report)[promise] == "held", f"{promise}: {report['verdicts']}")


def damaged_and_slow_links_go_with_namespaces(place):
    needs_namespaces(place)
    plan = plan_with(place, "plan.toml", """
[[fault]]
at_s = 0.3
kind = "corrupt"
target = 0.5
[[fault]]
at_s = 1
kind = "slow-link"
for_s = 0.5
delay_s = 0.005
[[fault]]
at_s = 1.7
kind = "partition"
target = 0.9
for_s = 0.1
[[fault]]
at_s = 2.5
kind = "kill"
target = 0.5
back_s = 0.1
""")
    ended, out = chaos(place, place.waiting_job(), "--plan", plan, "--reference", quiet_digest(place))
    require(ended.returncode == 0, ended.stdout + ended.stderr)
    require("links: network namespaces, proxy for corrupt" in ended.stdout, ended.stdout)
    faults = report_of(out)["faults"]
    require(all(f["outcome"] == "done" and all(e["seen"] or e["overtaken"] for e in f["effects"])
                for f in faults), faults)
    for promise in ("P1", "P2", "P3", "P6", "faults"):
        require(findings(report_of(out))[promise] == "held", report_of(out)["verdicts"])


def started(place, name, *options):
    """A run of chaos in which a worker is cut off right now, its folder, and its interface."""
    plan = plan_with(place, name, CUT.replace("1.5", "60"), steps=100000)
    out = place.path("out-" + name)
    log = open(out + ".log", "w+")
    process = subprocess.Popen([STARLING, "chaos", place.waiting_job(), "--plan", plan, "--links",
                                "namespaces", "--reference", "0" * 32, "--out", out, *options],
                               stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def text():
        with open(out + ".log") as file:
            return file.read()

    wait_until(lambda: "cut off for" in text() or process.poll() is not None, "a cut")
    require(process.poll() is None, text())
    return process, out, re.search(r"behind (starling\w+)", text())[1]


def nothing_is_left_however_chaos_ends(place):
    needs_namespaces(place)
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process, out, mine = started(place, f"{number}.toml")
        require(mine in interfaces(), f"no {mine} in {interfaces()}")
        inside = {os.readlink(f"/proc/{pid}/ns/net") for pid in processes_naming(out)}
        require(len(inside) >= 5, f"four workers and we are in {inside}")
        process.send_signal(number)
        require(process.wait(MINUTE) == code, process.returncode)
        # After kill -9 the kernel removes the network, and tells the processes of the run to end.
        require(number == signal.SIGKILL or not processes_naming(out), "a process is left")
        wait_until(lambda: not processes_naming(out), "the end of all processes")
        wait_until(lambda: mine not in interfaces(), f"removal of {mine}")
        own = os.readlink("/proc/self/ns/net")
        require(not (inside - {own}) & network_namespaces(), "a namespace is left")


def namespaces_without_the_privilege_are_one_line(place):
    """As root we give it up; whoever has none is told so by why_impossible already."""
    plan = plan_with(place, "plan.toml", CUT, steps=200, workers=2)
    if os.getuid() != 0:
        require(why_impossible(place), "namespaces without root")
        return
    os.chmod(place.folder, 0o777)
    for i, source in enumerate((["--plan", plan], ["--random"])):
        out = place.path(f"refused-{i}")
        ended = subprocess.run(["setpriv", "--bounding-set=-all", "--inh-caps=-all", STARLING,
                                "chaos", place.waiting_job(), *source, "--links", "namespaces", "--out",
                                out], capture_output=True, text=True, timeout=MINUTE)
        lines = ended.stderr.strip().splitlines()
        require(ended.returncode == 2 and len(lines) == 1 and "--links namespaces" in lines[0]
                and "not permitted" in lines[0], f"{source} {ended.returncode} {ended.stderr}")
        require(not os.path.exists(os.path.join(out, "pace")), "it ran before it was refused")


TESTS = (two_that_are_apart_in_a_network_are_one_group_again, nothing_is_left_however_chaos_ends,
         namespaces_without_the_privilege_are_one_line)
LONG = (a_worker_that_is_cut_off_in_a_network_is_left_out_and_comes_back, damaged_and_slow_links_go_with_namespaces)
if os.environ.get("STARLING_FAULTS") != "all":
    print("left to namespaces_long: " + ", ".join(test.__name__ for test in LONG))
main(*(LONG if os.environ.get("STARLING_FAULTS") == "all" else TESTS))
