"""Coordinators as on many machines: they begin again with their own command line, belong to one job,
and what they write is whole."""
import json
import os
import shutil
import signal
import subprocess

from cluster import Cluster
from harness import LEFT, STARLING, main, require, wait_until, with_checkpoints
from ports import free_ports


def said_by(*command):
    ended = subprocess.run([STARLING, *map(str, command)], capture_output=True, text=True, timeout=300)
    return ended.returncode, ended.stdout + ended.stderr


def audit(*arguments):
    return said_by("audit", *arguments)


def a_coordinator_begins_again_with_its_command_line(place):
    job = place.job(steps=400)
    quiet = place.quiet(job)
    with Cluster(place, job, coordinators=3, workers=2).start_all() as cluster:
        for i in (0, 1, 2):  # one after the other, so the leader is among them
            cluster.wait_for_step((i + 1) % 3, 40 + 60 * i)
            cluster.coordinators[i].send_signal(signal.SIGKILL)
            cluster.coordinators[i].wait()
            with open(os.path.join(cluster.folder(i), "events.jsonl"), "a") as file:
                file.write('{"t":1.5,"ev":"st')  # it was killed while it wrote
            cluster.start_coordinator(i)
            wait_until(lambda: len(cluster.events(i, "continued")) == 1, "it goes on", 30)
            wait_until(lambda: cluster.steps(i) > 60 + 60 * i, "it hears of steps", 60)
        cluster.end()
        digest = quiet.digest()
        for i in range(3):
            done = cluster.events(i, "done")
            require([e["digest"] for e in done] == [digest], f"coordinator {i}: {done}")
            times = [e["time"] for e in cluster.events(i)]
            require(all(len(t) == 27 and t[10] == "T" and t[-1] == "Z" for t in times), str(times[:3]))
            versions = [e["version"] for e in cluster.events(i, "step")]
            require(len(versions) == len(set(versions)), "a step is told twice")
        files = [cluster.folder(i) for i in range(3)]
        code, said = audit(*files, "--together")
        require(code == 0 and said.count(" held ") == 3, said)
        # Each was away for a while: alone it refutes nothing and does not claim to be whole.
        code, said = audit(files[1])
        require(code in (0, 1) and "refuted" not in said, said)


def all_that_are_told_to_end_at_once_leave_a_checkpoint(place):
    for coordinators in (1, 3):
        kept = place.path(f"kept-{coordinators}")
        job = with_checkpoints(place.waiting_job(steps=100000), kept, 50000)
        with Cluster(place, job, coordinators=coordinators, workers=3) as cluster:
            for i in range(coordinators):
                cluster.start_coordinator(i)
            for _ in range(3):
                cluster.start_worker("--notice", 8)
            cluster.wait_for_step(0, 20)
            everything = [*cluster.coordinators.values(), *cluster.workers]
            for process in everything:  # as `kubectl delete -k`, or a machine's end
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(100) for process in everything]
            require(codes == [LEFT] * len(everything), f"{codes}: {cluster.text()[-3000:]}")
            there = [name for name in os.listdir(kept) if os.path.exists(os.path.join(kept, name, "manifest.json"))]
            require(there, f"checkpoints {there}: {cluster.text()[-3000:]}")


def without_a_flag_a_follower_has_it_all(place):
    job = place.job(steps=300)
    with Cluster(place, job, coordinators=3, workers=3).start_all() as cluster:
        cluster.wait_for_step(0, 60)
        first = next(e for i in range(3) for e in cluster.events(i, "leader"))["coordinator"]
        cluster.workers[2].send_signal(signal.SIGTERM)
        cluster.wait_for_step((first + 1) % 3, 150)
        cluster.coordinators[first].send_signal(signal.SIGKILL)  # for good
        cluster.coordinators.pop(first).wait()
        code = cluster.workers[2].wait(120)
        require(code == LEFT, f"who leaves ended with {code}, as who is done:\n{cluster.text()[-3000:]}")
        del cluster.workers[2]
        cluster.end()
        for i in cluster.coordinators:
            # All but the differences that the leader was told of, which its own file has.
            code, said = audit(cluster.folder(i))
            require(code == 1 and said.count(" held ") == 2 and "differences and doubts of term 1" in said,
                    f"coordinator {i}: {said}")
            require(os.path.exists(os.path.join(cluster.folder(i), "loss.svg")), "no loss.svg")
        code, said = audit(*(cluster.folder(i) for i in range(3)), "--together")
        require(code == 0 and said.count(" held ") == 3, said)
        require(f"step 300/300" in cluster.text(), "no progress is shown:\n" + cluster.text()[-2000:])


def a_state_folder_belongs_to_one_job(place):
    job = place.job(steps=20)
    other = place.job(steps=30)
    with Cluster(place, job, coordinators=1, workers=1).start_all() as cluster:
        cluster.end()
        events = os.path.join(cluster.folder(0), "events.jsonl")
        os.remove(events)  # the log says it by itself
        code, said = said_by(*cluster.command(0, other))
        require(code == 2 and "job.steps is 30 here and 20 there" in said and cluster.folder(0) in said,
                f"{code}: {said}")
        os.remove(os.path.join(cluster.folder(0), "job.toml"))  # less is said, and the same done
        code, said = said_by(*cluster.command(0, other))
        require(code == 2 and "another job (a job of hash" in said, f"{code}: {said}")
        require(not os.path.exists(events) or not cluster.events(0), "it wrote events")


def a_job_file_edited_in_mid_run_is_refused(place):
    job = place.job(steps=400)
    edited = place.path("edited.toml")
    shutil.copy(job, edited)
    with open(job) as file, open(edited, "w") as to:
        to.write(file.read().replace("steps = 400", "steps = 600", 1))
    with Cluster(place, job, coordinators=3, workers=2).start_all() as cluster:
        cluster.wait_for_step(0, 40)
        cluster.coordinators[1].send_signal(signal.SIGKILL)
        cluster.coordinators[1].wait()
        refused = cluster.start_coordinator(1, edited)
        require(refused.wait(300) == 2, f"exit code {refused.returncode}")
        require("job.steps is 600 here and 400 there" in cluster.text(), cluster.text()[-2000:])
        # A folder of its own does not help: the others' log is of that job.
        shutil.rmtree(cluster.folder(1))
        # Nor is the group new, whatever is said of it; afterwards the folder is that of a lost log still.
        code, said = said_by(*cluster.command(1), "--new")
        require(code == 2 and "leave out --new" in said, f"{code}: {said}")
        cluster.start_coordinator(1)
        wait_until(lambda: "its log is repaired by the others" in cluster.text(), "it is repaired")
        cluster.end()


def who_listens_where_nobody_looks_for_it_says_so(place):
    with Cluster(place, place.waiting_job(steps=100000), coordinators=3, workers=1) as cluster:
        listens, named = free_ports(1)[0], cluster.addresses[0]
        command = list(cluster.command(0))
        command[command.index("--listen") + 1] = f"127.0.0.1:{listens}"
        cluster.coordinators[0] = cluster.start(*command, "--new")
        cluster.start_coordinator(1)
        said = f"coordinator-0 listens at port {listens}, and --peers has it at tcp://{named}: the others reach it there alone"
        wait_until(lambda: said in cluster.text(), "the warning")
        wait_until(lambda: cluster.events(1, "start"), "the other begins")
        require(cluster.text().count("and --peers has it at") == 1, cluster.text())


main(all_that_are_told_to_end_at_once_leave_a_checkpoint, without_a_flag_a_follower_has_it_all,
     a_state_folder_belongs_to_one_job, who_listens_where_nobody_looks_for_it_says_so,
     a_job_file_edited_in_mid_run_is_refused,
     long=(a_coordinator_begins_again_with_its_command_line,))
