"""Roles: some workers compute alone, others hold the state alone; the bits are those of any other group."""
import collections
import signal
import subprocess

from harness import STARLING, alive, main, require, wait_until

STEPS = 300


class Roles:
    """A run whose workers are started one by one, with a role each."""

    def __init__(self, place, job, *roles, wanted=0):
        self.run = place.run(job, "--workers", wanted or len(roles), "--start", 0)
        wait_until(lambda: self.run.events("start"), "the run listens", of=self.run.process)
        self.there = []
        for role in roles:
            self.join(role)

    def join(self, role, *options):
        before = len(self.run.workers())
        process = self.run.join("--role", role, "--save", "none", "--quiet", *options)
        wait_until(lambda: len(self.run.workers()) > before, f"one that is to {role} joins", of=process)
        self.there.append({**self.run.workers()[-1], "role": role})
        return self.there[-1]

    def of(self, role):
        return [w for w in self.there if w["role"] == role]

    def kill(self, role):
        """All of that role at once."""
        gone = self.of(role)
        self.run.kill_together(gone)
        wait_until(lambda: not any(alive(w["pid"]) for w in gone), "they are dead")
        return gone

    def digest(self):
        done = wait_until(lambda: self.run.events("done"), "the end", of=self.run.process)
        self.run.process.wait()
        for joiner in self.run.joiners:
            joiner.wait()
        return done[0]["digest"]

    def check_shares(self):
        """Who holds alone has computed nothing, and all others have; who computes alone has never held anything."""
        computed = collections.Counter(w for e in self.run.events("ledger") for _, w in e["workers"])
        for worker in self.there:
            require((computed[worker["id"]] > 0) == (worker["role"] != "hold"),
                    f"one that is to {worker['role']} has computed {computed[worker['id']]} micro-batches")
        computing = {w["id"] for w in self.of("compute")}
        for epoch in self.run.events("epoch"):
            for member, ranges in zip(epoch["members"], epoch["holders"]):
                require(not (member["id"] in computing and ranges), "one that is to compute alone holds state")
                role = next(w["role"] for w in self.there if w["id"] == member["id"])
                require(member.get("role", "both") == role, f"an event says {member.get('role')} of one that is to {role}")


def all_who_compute_are_lost_at_once(place):
    """No state is in danger, no checkpoint is read, and the run goes on with the next that come."""
    job = place.waiting_job(steps=STEPS, micro_batches=6)
    digest = place.quiet(job).digest()
    group = Roles(place, job, "hold", "compute", "hold", "compute", "compute")
    run = group.run
    run.wait_for_step(30)
    group.kill("compute")
    wait_until(lambda: any("none of 2 workers computes" in e["text"] for e in run.events("warning")), "it waits")
    shown = subprocess.run([STARLING, "status", run.out], capture_output=True, text=True).stdout
    require("none of 2 workers computes: the run waits" in shown, shown)
    at = run.steps()
    group.join("compute")
    group.join("compute")
    run.wait_for_step(at + 20)
    require(not any(e["segments"] for e in run.events("exposure")), "state was in danger")
    require(not run.events("restart"), "a checkpoint was read")
    shown = subprocess.run([STARLING, "status", run.out], capture_output=True, text=True).stdout
    require("holds alone" in shown and "computes alone" in shown, shown)
    require(group.digest() == digest, "another digest")
    group.check_shares()


def roles_of_any_kind_come_and_go(place):
    """Kills of a holder, of one that computes and of one that does both, joins and leaves in between."""
    job = place.waiting_job(steps=STEPS, micro_batches=6, replicas=1)
    digest = place.quiet(job).digest()
    group = Roles(place, job, "hold", "both", "compute", "hold")
    run = group.run
    for i, (gone, comes) in enumerate([("hold", "both"), ("compute", "hold"), ("both", "compute")]):
        run.wait_for_step(40 * (i + 1))
        run.kill(next(w for w in group.of(gone) if alive(w["pid"])))
        wait_until(lambda: len(run.workers("lost")) > i, "the loss is noticed")
        group.join(comes)
        wait_until(lambda: not (run.events("exposure") and run.events("exposure")[-1]["segments"]), "all is copied")
    require(group.digest() == digest, "another digest")
    group.check_shares()


def others_come_and_go_while_the_last_that_computes_leaves(place):
    """It computes on until another does; one that holds gets its copies meanwhile, so the first may be lost."""
    job = place.waiting_job(steps=STEPS, micro_batches=4, replicas=1)
    digest = place.quiet(job).digest()
    group = Roles(place, job, "hold", wanted=2)
    leaver = group.join("compute", "--notice", "600")
    run = group.run
    run.wait_for_step(20)
    run.kill(leaver, signal.SIGTERM)
    wait_until(lambda: any("no worker that stays computes" in e["text"] for e in run.events("warning")), "a warning says so")
    second = group.join("hold")

    def has_all():
        epoch = run.events("epoch")[-1]
        rank = next((m["rank"] for m in epoch["members"] if m["id"] == second["id"]), None)
        return rank is not None and epoch["moves"] == 0 and epoch["holders"][rank]
    wait_until(has_all, "the second that holds has its copies")
    run.kill(group.of("hold")[0])
    wait_until(lambda: run.workers("lost"), "the loss is noticed")
    at = run.steps()
    run.wait_for_step(at + 10)
    group.join("compute")
    wait_until(lambda: run.workers("left"), "the leaver goes")
    require(group.digest() == digest, "another digest")
    group.check_shares()


def the_last_that_computes_is_not_drained(place):
    job = place.waiting_job(steps=STEPS, micro_batches=4)
    group = Roles(place, job, "hold", "compute", "hold")
    group.run.wait_for_step(10)
    keys = group.run.events("start")[0]["keys"]
    asked = subprocess.run([STARLING, "admin", "drain", group.of("compute")[0]["name"], group.run.out, "--keys", keys],
                           capture_output=True, text=True)
    require(asked.returncode != 0 and "no worker would stay to compute" in asked.stderr, asked.stdout + asked.stderr)
    group.digest()


def roles_that_leave_nobody_are_refused(place):
    job = place.waiting_job(steps=STEPS, start_timeout_ms=3000)
    for role, lacks in (("hold", "computes"), ("compute", "holds state")):
        group = Roles(place, job, role, role)
        group.run.end(code=3)
        require(f"none of 2 workers {lacks}, as --role tells them" in group.run.text(), group.run.text())
    wrong = subprocess.run([STARLING, "worker", "--join", group.run.out, "--role", "all"], capture_output=True, text=True)
    require(wrong.returncode == 2 and "--role" in wrong.stderr, wrong.stderr)


main(all_who_compute_are_lost_at_once, roles_of_any_kind_come_and_go, the_last_that_computes_is_not_drained,
     roles_that_leave_nobody_are_refused,
     long=(others_come_and_go_while_the_last_that_computes_leaves,))
