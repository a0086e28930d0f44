"""docs/slurm.md, followed literally on a real Slurm: its commands, three workers as an array, of which one loses its
node, one is requeued and two are preempted, more come and some are cancelled."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from followed import Followed, programs
from harness import Failed, main, require
from slurm_cluster import Slurm

URGENT = """#!/bin/bash
#SBATCH --job-name=urgent --partition=urgent --nodelist={node} --output=urgent-{task}.log
sleep 3
"""


class Job(Followed):
    """What the page's commands start, in a home that all nodes reach."""

    def __init__(self, place, slurm, steps=None):
        super().__init__(place, "slurm.md", steps, folder="slurm")
        self.slurm = slurm
        for heading in ("1. The job and its files", "2. The coordinator", "3. The workers"):
            self.type(heading)

    def type(self, heading):
        self.follow(heading, run=self.slurm.run)

    def begins_again(self, name, done):
        """Waits until this job, which Slurm has put back into its queue, runs and has done something: Slurm lets two
        minutes pass before, and is told not to."""
        def hurried():
            state = self.slurm.jobs().get(name, ("", ""))[0]
            if state == "PENDING":  # or has begun by now
                self.slurm.run(f"scontrol update jobid={self.slurm.number(name)} StartTime=now || true")
            return state == "RUNNING" and done()
        try:
            self.wait(hurried, f"{name} begins again")
        except Failed:
            print(self.slurm.run("squeue --array; sinfo --Node; tail -n 20 slurmctld.log"))
            raise

    def back(self, task, joined):
        self.begins_again(f"small-worker-{task}", lambda: len(self.workers("joined")) > joined)
        self.wait_for_step(self.steps() + 20)


def the_page_leads_to_a_model(place):
    with Slurm(place, programs(place)) as slurm:
        job = Job(place, slurm, steps=300)
        job.wait(lambda: not slurm.jobs(), "the end of all jobs")
        quiet = place.run(os.path.join(job.home, "job.toml"), "--workers", 1, "--checkpoints", place.path("quiet-checkpoints")).end()
        with open(os.path.join(quiet.out, "model.safetensors"), "rb") as file:
            expected = file.read()
        models = [n for n in range(3) if os.path.exists(job.path(f"worker-{n}/model.safetensors"))]
        require(models, "no worker has written a model")
        for n in models:
            with open(job.path(f"worker-{n}/model.safetensors"), "rb") as file:
                require(file.read() == expected, f"the model of worker {n} is another than that of an undisturbed run")
        print(f"        {len(models)} models, {job.events('done')[0]['digest']}")


def what_slurm_takes_changes_no_bit(place):
    with Slurm(place, programs(place)) as slurm:
        job = Job(place, slurm)
        job.wait(lambda: len(job.workers("joined")) == 3, "three workers")
        job.wait_for_step(50)

        node = slurm.jobs()["small-worker-1"][1]
        joined = len(job.workers("joined"))
        slurm.take_node(node)
        job.wait(lambda: len(job.workers("lost", "fenced")) == 1, f"the loss of {node} is noticed")
        job.wait_for_step(job.steps() + 20)  # without it
        slurm.start_node(node)
        job.back(1, joined)

        joined, left = len(job.workers("joined")), len(job.workers("left"))
        slurm.run(f"scontrol requeue {slurm.number('small-worker-2')}")
        job.wait(lambda: len(job.workers("left")) == left + 1, "worker 2 leaves in order")
        job.back(2, joined)

        for task in (0, 2):  # the last task of an array has the array's own number
            joined, left = len(job.workers("joined")), len(job.workers("left"))
            urgent = slurm.write("urgent.sbatch", URGENT.format(node=slurm.jobs()[f"small-worker-{task}"][1], task=task))
            slurm.run(f"sbatch {urgent}", job.path(""))
            job.wait(lambda: len(job.workers("left")) == left + 1, f"worker {task} makes room in order")
            job.wait(lambda: os.path.exists(job.path(f"urgent-{task}.log")) and "urgent" not in slurm.jobs(),
                     "the urgent job runs")
            job.back(task, joined)

        joined, left = len(job.workers("joined")), len(job.workers("left"))
        job.type("5. More workers, or fewer")
        job.wait(lambda: len(job.workers("joined")) == joined + 2, "two more workers")
        job.wait_for_step(job.steps() + 20)
        slurm.run(f"scancel {slurm.number('small-worker-4')}")
        job.wait(lambda: len(job.workers("left")) == left + 1, "worker 4 is cancelled, and leaves in order")
        job.wait_for_step(job.steps() + 20)
        require("small-worker-4" not in slurm.jobs(), "what was cancelled is in the queue again")

        names = [event["name"] for event in job.workers("joined")]
        expected = {"worker-0": 2, "worker-1": 2, "worker-2": 3, "worker-3": 1, "worker-4": 1}
        require({name: names.count(name) for name in names} == expected, f"somebody that was not hit joined again: {names}")
        forced = [event for event in job.events("epoch") if event["kind"] == "forced"]
        require(len(forced) == 1, f"more than the node's loss was a surprise: {forced}")

        newest = job.newest_checkpoint()
        slurm.run("scancel --name=small-worker")
        job.wait(lambda: job.newest_checkpoint() > newest, "a last checkpoint")
        slurm.run("scancel --name=small-coordinator")
        job.wait(lambda: not slurm.jobs(), "the end of all jobs")
        job.compare_with_an_undisturbed_run()


main(the_page_leads_to_a_model, what_slurm_takes_changes_no_bit)
