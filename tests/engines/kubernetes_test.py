"""docs/kubernetes.md, followed as far as that goes without an API server: the manifests are read by Kubernetes' own schemas,
every reference in them leads somewhere, and the commands of the pods run as a kubelet would run them."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import Skipped, children_of, main, require, wait_until
from pods import Page, Pod, Workers, compare_models_with_an_undisturbed_run, objects_of, programs


class Machine:
    """Namespaces in which the names of coordinators' pods are addresses; what runs in them ends with them."""

    def __init__(self, place, names):
        if os.geteuid() != 0:
            raise Skipped("needs root, for namespaces")
        hosts = place.path("hosts")
        with open(hosts, "w") as file:
            file.write("127.0.0.1 localhost\n" + "".join(f"10.79.0.1 {name}\n" for name in names))
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             f"mount --bind {hosts} /etc/hosts && ip link set lo up && ip link add pods type veth peer name end && "
             "ip link set pods up && ip link set end up && ip addr add 10.79.0.1/24 dev pods && echo in && exec sleep 3600"],
            stdout=subprocess.PIPE, text=True)
        require(self.holder.stdout.readline() == "in\n", "no namespaces")
        self.first = children_of(self.holder.pid)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.kill()
        self.holder.wait()
        wait_until(lambda: not os.path.exists(f"/proc/{self.first}"), "the end of the namespace")

    def start(self, command, environment, log):
        inside = ["nsenter", "--target", str(self.first), "--net", "--mount", "--pid", *command]
        return subprocess.Popen(inside, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class Process(Pod):
    """A pod whose container is a process in the namespaces of a Machine."""

    def __init__(self, machine, *pod):
        super().__init__(*pod)
        self.machine = machine

    def start(self):
        self.mount()
        self.starts += 1
        context = self.spec["securityContext"]
        words = [word.replace("/starling/", self.folder + "/starling/") for word in self.container["command"]]
        require(words[0] == "sh", words)
        state = os.path.join(self.folder, "starling", "state")
        if os.path.isdir(state):
            os.chown(state, context["runAsUser"], context["fsGroup"])
        user = ["setpriv", f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}",
                f"--groups={context['fsGroup']}", "--"]
        with open(self.folder + ".log", "a") as log:
            self.process = self.machine.start([*user, *words], {**self.job.environment, **self.variables}, log)

    def inside(self):
        """The container's first process: nsenter, which waits for it, is its parent."""
        return wait_until(lambda: children_of(self.process.pid), "the container's process")[0]

    def kill(self):
        first = self.inside()
        for pid in (*children_of(first), first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def poll(self):
        """The exit code of the container; None: it runs."""
        return self.process.poll()


def the_pages_manifests_are_whole(place):
    objects = objects_of(os.path.join(Page(place).home, "kubernetes"))
    require(("Job", "small-worker") in objects, list(objects))
    for options in ("--coordinators 3 --name true", "--coordinators 5 --namespace lab --threads 4 --notice 100"):
        more = Page(place, lambda commands, options=options: f"{commands} {options}")
        objects = objects_of(os.path.join(more.home, "kubernetes"))
        name = "true" if "true" in options else "small"
        require(("PodDisruptionBudget", f"{name}-coordinators") in objects, list(objects))
        spaces = {one["metadata"].get("namespace") for one in objects.values()}
        require(spaces == ({"lab"} if "lab" in options else {None}), spaces)


def the_same_workers_lie_in_objects_of_others(place):
    plain = objects_of(os.path.join(Page(place).home, "kubernetes"))["Job", "small-worker"]["spec"]
    for options, kind, container in (("--workers-as jobset", "JobSet", "worker"), ("--workers-as trainjob --queue spot", "TrainJob", "node"),
                                     ("--queue spot", "Job", "worker")):
        objects = objects_of(os.path.join(Page(place, lambda commands, options=options: f"{commands} {options}").home, "kubernetes"))
        workers = objects[kind, "small-worker"]
        require((kind == "Job") == (("Job", "small-worker") in objects), list(objects))
        queue = workers["metadata"]["labels"].get("kueue.x-k8s.io/queue-name")
        require(queue == ("spot" if "spot" in options else None), workers["metadata"])
        job = objects["Job", "small-worker" if kind == "Job" else "small-worker-node-0"]["spec"]
        said = json.dumps(job).replace(f'"containerName": "{container}"', '"containerName": "worker"').replace(
            f'"name": "{container}"', '"name": "worker"')
        require(json.loads(said) == plain, f"{options}: {job}, is {plain} alone")


def workers_show_tokens_of_their_account(place):
    section = ('[identity]\\nissuer = "https://kubernetes.default.svc.cluster.local"\\naudience = "small"\\n'
               '[identity.claims]\\nsub = ["system:serviceaccount:lab:small-worker"]\\n')
    for options in ("", "--workers-as jobset", "--workers-as trainjob"):
        with_identity = Page(place, lambda commands, options=options: commands.replace(
            "starling launch", f"printf '{section}' >> job.toml\nstarling launch") + f" --identity --namespace lab {options}")
        objects = objects_of(os.path.join(with_identity.home, "kubernetes"))
        require(("ServiceAccount", "small-worker") in objects and ("Secret", "small-worker-tokens") not in objects, list(objects))
        pod = objects["Job", "small-worker-node-0" if options else "small-worker"]["spec"]["template"]["spec"]
        tokens = [source for volume in pod["volumes"] if volume["name"] == "identity" for source in volume["projected"]["sources"]]
        require(pod["serviceAccountName"] == "small-worker" and tokens[0]["serviceAccountToken"]["audience"] == "small", pod)
        require(sorted(objects["ConfigMap", "small-join"]["data"]) == ["join.public"], objects["ConfigMap", "small-join"])
        kept = sorted(os.listdir(os.path.join(with_identity.home, "kubernetes", "keys")))
        require(not [name for name in kept if name.startswith("worker")], kept)


def what_kubernetes_takes_changes_no_bit(place):
    volume = place.path("volume")
    os.mkdir(volume)
    os.chmod(place.folder, 0o755)
    job = Page(place, lambda commands: commands.replace("training:/training", f"training:{volume}"), steps=400)
    objects = objects_of(os.path.join(job.home, "kubernetes"))
    shutil.copy(os.path.join(job.home, "text.txt"), volume)
    for path in (volume, job.home):
        os.chmod(path, 0o777)
    job.environment = {"PATH": f"{programs(place)}:/usr/bin:/bin"}
    group = objects["StatefulSet", "small-coordinator"]
    with Machine(place, [f"small-coordinator-0.{group['spec']['serviceName']}"]) as machine:
        coordinator = Process(machine, job, objects, group, 0)
        coordinator.start()
        owner = objects["Job", "small-worker"]
        workers = Workers(owner, [Process(machine, job, objects, owner, n) for n in range(owner["spec"]["completions"])])
        job.folder = "coordinator-0/starling/state"

        def wait(condition, what):
            def tended():
                complete = workers.tend()
                if coordinator.poll() not in (None, 0):
                    coordinator.start()
                return condition(complete)
            job.wait(tended, what)

        wait(lambda _: len(job.workers("joined")) == 3, "three workers")
        wait(lambda _: job.steps() > 20, "steps")
        os.kill(workers.pods[1].inside(), signal.SIGTERM)
        wait(lambda _: job.workers("left"), "worker 1, which is evicted, leaves in order")
        wait(lambda _: len(job.workers("joined")) == 4, "worker 1 is back")
        workers.pods[2].kill()
        wait(lambda _: len(job.workers("joined")) == 5, "worker 2, which was killed, is back")
        coordinator.kill()
        wait(lambda _: coordinator.starts == 2, "the coordinator begins again")
        wait(lambda complete: complete, "the Job is complete")
        job.wait(lambda: all(pod.poll() == 0 for pod in workers.pods), "all workers end")
        require(workers.failures == {0: 0, 1: 0, 2: 1}, f"counted as failures: {workers.failures}")
        require([pod.starts for pod in workers.pods] == [1, 2, 2], "somebody that was not hit was started again")
    compare_models_with_an_undisturbed_run(place, job, volume)


main(the_pages_manifests_are_whole, the_same_workers_lie_in_objects_of_others, workers_show_tokens_of_their_account, what_kubernetes_takes_changes_no_bit)
