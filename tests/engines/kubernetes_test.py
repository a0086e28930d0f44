"""docs/kubernetes.md, followed as far as that goes without an API server: the manifests are read by Kubernetes' own schemas,
every reference in them leads somewhere, and the commands of the pods run as a kubelet would run them."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from followed import Followed
from harness import SOURCE, STARLING, Skipped, children_of, main, require, wait_until

PYTHON = os.environ.get("STARLING_ENGINES_PYTHON", os.path.join(SOURCE, "build", "engines", "bin", "python"))
HERE = os.path.dirname(os.path.abspath(__file__))


def programs(place):
    """A folder with the program under test, which every user can read."""
    folder = place.path("programs")
    if not os.path.exists(folder):
        os.mkdir(folder)
        shutil.copy(STARLING, os.path.join(folder, "starling"))
    return folder


def objects_of(folder):
    """What `kubectl apply -k` would send, checked."""
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", "import kubernetes_validate"], capture_output=True).returncode:
        raise Skipped(f"needs kubernetes-validate, in {PYTHON} or STARLING_ENGINES_PYTHON")
    read = subprocess.run([PYTHON, os.path.join(HERE, "manifests.py"), folder], capture_output=True, text=True, timeout=120)
    require(read.returncode == 0, read.stderr[-1500:])
    return {(one["kind"], one["metadata"]["name"]): one for one in json.loads(read.stdout)}


class Page(Followed):
    """Its job is 300 steps of the page's; what it writes is changed by `change` (a shell's commands in its place)."""

    def __init__(self, place, change=lambda commands: commands, steps=300):
        super().__init__(place, "kubernetes.md", steps)
        environment = {**os.environ, "PATH": f"{programs(place)}:{os.environ['PATH']}"}
        for commands in self.commands["2. The job and its files"]:
            done = subprocess.run(["bash", "-e", "-c", change(commands)], cwd=self.home, env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            require(done.returncode == 0, f"{commands}\n{done.stdout}")


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


class Pod:
    """One of an object's pods: what its only container runs, with the volumes that it mounts below `folder`."""

    def __init__(self, job, objects, owner, index):
        self.job, self.index = job, index
        self.spec = owner["spec"]["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.folder = os.path.join(job.home, f"{self.container['name']}-{index}")
        self.data = {name: one["data"] for (kind, name), one in objects.items() if kind in ("Secret", "ConfigMap")}
        self.variables = {}
        for variable in self.container["env"]:
            source = variable["valueFrom"]["fieldRef"]["fieldPath"]
            of_index = source == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            require(of_index or source == "metadata.name", source)
            self.variables[variable["name"]] = str(index) if of_index else f"{owner['metadata']['name']}-{index}"
        self.starts, self.code = 0, None

    def mount(self):
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            if not mount["mountPath"].startswith("/starling/"):
                continue  # the volume is there under its own name, and so is /tmp
            path = self.folder + mount["mountPath"]
            volume = volumes.get(mount["name"], {})
            if "subPathExpr" in mount:
                part = re.sub(r"\$\((\w+)\)", lambda found: self.variables[found[1]], mount["subPathExpr"])
                self.write(path, volume["secret"], part)
            elif "configMap" in volume:
                shutil.copytree(os.path.join(self.job.home, "kubernetes"), path, dirs_exist_ok=True,
                                ignore=lambda _, names: [name for name in names if name != "job.toml"])
            elif "secret" in volume:
                for name in self.data[volume["secret"]["secretName"]]:
                    self.write(os.path.join(path, name), volume["secret"], name)
            else:
                os.makedirs(path, exist_ok=True)

    def write(self, path, secret, name):
        """As the kubelet mounts it: of root and the group of the pod."""
        require(name in self.data[secret["secretName"]], f"{name} is not in {secret}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        shutil.copy(os.path.join(self.job.home, "kubernetes", "keys", name), path)
        os.chown(path, 0, self.spec["securityContext"]["fsGroup"])
        os.chmod(path, secret["defaultMode"])

    def start(self, machine):
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
            self.process = machine.start([*user, *words], {**self.job.environment, **self.variables}, log)

    def inside(self):
        """The container's first process: nsenter, which waits for it, is its parent."""
        return wait_until(lambda: children_of(self.process.pid), "the container's process")[0]

    def kill(self):
        first = self.inside()
        for pid in (*children_of(first), first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Workers:
    """The Job: begins the pods that its rules say, until it is complete."""

    def __init__(self, machine, job, objects, owner):
        self.machine, self.spec = machine, owner["spec"]
        self.pods = [Pod(job, objects, owner, index) for index in range(self.spec["completions"])]
        self.failures = {pod.index: 0 for pod in self.pods}
        for pod in self.pods:
            pod.start(machine)

    def action(self, code):
        for rule in self.spec["podFailurePolicy"]["rules"]:
            if "onExitCodes" in rule and code in rule["onExitCodes"]["values"]:
                return rule["action"]
        return "Count"

    def tend(self):
        """Whether the Job is complete."""
        for pod in self.pods:
            code = pod.process.poll()
            if code in (None, 0):
                continue
            action = self.action(code)
            require(action != "FailIndex", f"worker {pod.index} ended with {code}")
            self.failures[pod.index] += action == "Count"
            require(self.failures[pod.index] <= self.spec["backoffLimitPerIndex"], "too many failures")
            pod.start(self.machine)
        done = sum(pod.process.poll() == 0 for pod in self.pods)
        return done >= self.spec["successPolicy"]["rules"][0]["succeededCount"]


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
        coordinator = Pod(job, objects, group, 0)
        coordinator.start(machine)
        workers = Workers(machine, job, objects, objects["Job", "small-worker"])
        job.folder = "coordinator-0/starling/state"

        def wait(condition, what):
            def tended():
                complete = workers.tend()
                if coordinator.process.poll() not in (None, 0):
                    coordinator.start(machine)
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
        job.wait(lambda: all(pod.process.poll() == 0 for pod in workers.pods), "all workers end")
        require(workers.failures == {0: 0, 1: 0, 2: 1}, f"counted as failures: {workers.failures}")
        require([pod.starts for pod in workers.pods] == [1, 2, 2], "somebody that was not hit was started again")
    quiet = place.run(os.path.join(job.home, "job.toml"), "--workers", 1, "--checkpoints", place.path("quiet-checkpoints")).end()
    with open(os.path.join(quiet.out, "model.safetensors"), "rb") as file:
        expected = file.read()
    for n in range(3):
        with open(os.path.join(volume, "small", f"worker-{n}", "model.safetensors"), "rb") as file:
            require(file.read() == expected, f"the model of worker {n} is another than that of an undisturbed run")


main(the_pages_manifests_are_whole, what_kubernetes_takes_changes_no_bit)
