"""Coordinators that are gone for good, and others at other addresses in their place, while the job runs."""
import os
import shutil
import signal
import subprocess

from cluster import Cluster
from harness import STARLING, children_of, main, require, wait_until


def group_told(cluster):
    """The group that was decided last, by places; none: it has not changed."""
    told = [(event["index"], event["places"]) for i in cluster.coordinators for event in cluster.events(i, "coordinators")]
    return set(max(told)[1]) if told else None


def leader(cluster):
    terms = [(event["term"], i) for i in cluster.coordinators for event in cluster.events(i, "leader")]
    return max(terms)[1]


def newest_step(cluster):
    return max(cluster.steps(i) for i in cluster.coordinators)


def newest_world(cluster):
    return max((event["version"], event["world"]) for i in cluster.coordinators for event in cluster.events(i, "step"))[1]


def changed(cluster, what):
    """The lives of workers that have, as any coordinator has told."""
    return {event["id"] for i in cluster.coordinators for event in cluster.events(i, "worker") if event["what"] == what}


def steps_go_on(cluster):
    now = newest_step(cluster)
    wait_until(lambda: newest_step(cluster) > now + 10, "steps go on")


def end_as_quiet(cluster, quiet, coordinators, workers):
    for worker in workers:
        code = worker.wait(300)
        require(code == 0, f"a worker ended with {code}:\n{cluster.text()[-3000:]}")
    for i in coordinators:
        code = cluster.coordinators[i].wait(60)
        require(code == 0, f"coordinator-{i} ended with {code}:\n{cluster.text()[-3000:]}")
        require([e["digest"] for e in cluster.events(i, "done")] == [quiet.digest()], f"coordinator-{i} has another end")


def all_three_are_replaced_while_workers_are_killed_and_the_leader_dies(place):
    job = place.waiting_job(steps=500)
    quiet = place.quiet(job)
    with Cluster(place, job, coordinators=3, workers=4, spares=3) as cluster:
        cluster.start_all()
        cluster.wait_for_step(0, 20)
        group = {0, 1, 2}
        for spare in (3, 4, 5):
            leads = leader(cluster)
            founders = sorted(group & {0, 1, 2}, key=lambda i: i == leads)
            lost = founders[0] if spare == 3 else founders[-1]  # first one that follows, then, if it is still there, the leader
            how = signal.SIGTERM if spare == 5 else signal.SIGKILL
            cluster.coordinators[lost].send_signal(how)
            cluster.coordinators[lost].wait(60)
            guard = cluster.workers.pop(0)  # of the oldest worker, whose machine is lost as well
            for pid in (guard.pid, *children_of(guard.pid)):
                os.kill(pid, signal.SIGKILL)
            guard.wait()
            cluster.add_coordinator(spare, "--replace", f"coordinator-{lost}")
            group = group - {lost} | {spare}
            wait_until(lambda: group_told(cluster) == group, f"the group is {group}")
            # Another worker takes the lost one's part before the next is killed: its state is with as many again.
            cluster.start_worker(everywhere=True)
            wait_until(lambda: len(changed(cluster, "joined")) == 4 + spare - 2, "another one joins")
            wait_until(lambda: newest_world(cluster) == 4, "it computes")
            steps_go_on(cluster)
        require(leader(cluster) in (3, 4, 5), "one that is gone leads")
        # The last of the first workers has heard in the run alone where all three are.
        end_as_quiet(cluster, quiet, (3, 4, 5), cluster.workers)
        judged = subprocess.run([STARLING, "audit", *(cluster.folder(i) for i in range(6)), "--together"], capture_output=True, text=True)
        require(judged.returncode == 0 and "not shown" not in judged.stdout, judged.stdout + judged.stderr)
        gone = changed(cluster, "lost") | changed(cluster, "fenced")
        require(len(gone) == 3, f"three workers were killed, {gone} are gone")


def a_group_of_later_members_begins_again(place):
    """All of them lose power at once, and none of their command lines has the address of every other one."""
    job = place.waiting_job(steps=400)
    quiet = place.quiet(job)
    with Cluster(place, job, coordinators=3, workers=2, spares=2) as cluster:
        cluster.start_all()
        cluster.wait_for_step(0, 20)
        for lost, spare in ((1, 3), (2, 4)):
            cluster.coordinators[lost].kill()
            cluster.coordinators[lost].wait()
            cluster.add_coordinator(spare, "--replace", f"coordinator-{lost}")
            group = {0, 1, 2, 3, 4} - {lost} - ({4} if spare == 3 else {1})
            wait_until(lambda: group_told(cluster) == group, f"the group is {group}")
        led = max(event["term"] for i in cluster.coordinators for event in cluster.events(i, "leader"))
        for i in (0, 3, 4):
            cluster.coordinators[i].kill()
        for i in (0, 3, 4):
            cluster.coordinators[i].wait()
        cluster.start_coordinator(0)
        cluster.add_coordinator(3, "--replace", "coordinator-1")
        cluster.add_coordinator(4, "--replace", "coordinator-2")
        wait_until(lambda: any(event["term"] > led for i in (0, 3, 4) for event in cluster.events(i, "leader")), "one of them leads")
        end_as_quiet(cluster, quiet, (0, 3, 4), cluster.workers)


def one_is_taken_out_by_hand_and_ends(place):
    job = place.waiting_job(steps=300)
    quiet = place.quiet(job)
    with Cluster(place, job, coordinators=3, workers=2, spares=1) as cluster:
        def take_out(name, code=0):
            asked = subprocess.run([STARLING, "coordinator", "--remove", name, "--keys", cluster.keys, "--name", "coordinator-0",
                                    "--peers", ",".join(cluster.addresses)], capture_output=True, text=True)
            require(asked.returncode == code, f"{asked.returncode}: {asked.stdout}{asked.stderr}")
            return asked.stdout + asked.stderr
        cluster.start_all()
        cluster.wait_for_step(0, 20)
        require("is not in the group" in take_out("coordinator-3", code=2), "a spare is taken out")
        leads = leader(cluster)
        require(take_out(f"coordinator-{leads}") == f"coordinator-{leads} is out of the group\n", "what it says")
        require(cluster.coordinators[leads].wait(60) == 0, "whoever is out ends well")
        require("taken out of the group; the others go on" in cluster.text(), cluster.text()[-2000:])
        steps_go_on(cluster)
        require(take_out(f"coordinator-{leads}") == f"coordinator-{leads} is out of the group\n", "it says the same again")
        again = cluster.start(*cluster.command(leads))
        require(again.wait(60) == 0, "it comes back")
        end_as_quiet(cluster, quiet, {0, 1, 2} - {leads}, cluster.workers)


def a_place_is_given_out_once(place):
    job = place.waiting_job(steps=100_000)
    with Cluster(place, job, coordinators=1, workers=1, spares=2) as cluster:
        cluster.start_all()
        cluster.wait_for_step(0, 5)
        cluster.add_coordinator(1)
        wait_until(lambda: group_told(cluster) == {0, 1}, "it takes part")
        # It comes back with the same command line, and its log.
        cluster.coordinators[1].send_signal(signal.SIGKILL)
        cluster.coordinators[1].wait()
        cluster.add_coordinator(1)
        wait_until(lambda: len(cluster.events(1, "start")) + len(cluster.events(1, "continued")) > 1, "it comes back")
        steps_go_on(cluster)
        # Without it, and in another folder, it might vote twice.
        for empties in (lambda: os.remove(os.path.join(cluster.folder(1), "raft.log")), lambda: shutil.rmtree(cluster.folder(1))):
            cluster.coordinators[1].send_signal(signal.SIGKILL)
            cluster.coordinators[1].wait()
            empties()
            require(cluster.add_coordinator(1).wait(60) == 2, cluster.text()[-2000:])
        require("nobody can say what it has promised" in cluster.text(), cluster.text()[-2000:])


def who_may_take_part_is_said(place):
    job = place.waiting_job(steps=100_000)
    with Cluster(place, job, coordinators=1, workers=1, spares=1) as cluster:
        for i, options, words in (
                (0, ("--add",), "coordinator-0 is one of the 1 that begin the group"),
                (1, (), "coordinator-1 is a spare: with --add it takes part"),
                (1, ("--add", "--replace", "coordinator-7"), "--replace expects the name of another coordinator"),
                (1, ("--add", "--replace", "coordinator-1"), "--replace expects the name of another coordinator")):
            asked = subprocess.run([STARLING, *map(str, cluster.command(i)), *options], capture_output=True, text=True, cwd=place.folder)
            require(asked.returncode == 2 and words in asked.stderr and asked.stderr.count("\n") == 1, asked.stderr)


main(all_three_are_replaced_while_workers_are_killed_and_the_leader_dies, a_place_is_given_out_once,
     who_may_take_part_is_said,
     long=(a_group_of_later_members_begins_again, one_is_taken_out_by_hand_and_ends))
