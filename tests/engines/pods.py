"""What docs/kubernetes.md writes, as objects, and what a cluster's controllers do with them: a pod of each index, begun
again as the rules of its owner say."""
import contextlib
import json
import os
import re
import shutil
import subprocess

from followed import Followed
from harness import SOURCE, STARLING, Skipped, require

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
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", "import kubernetes_validate, kubeflow_trainer_api"], capture_output=True).returncode:
        raise Skipped(f"needs kubernetes-validate and kubeflow-trainer-api, in {PYTHON} or STARLING_ENGINES_PYTHON")
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


class Pod:
    """One of an object's pods: what its only container runs, with the volumes that it mounts below `folder`. What runs it
    has start() and poll()."""

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
        self.starts = 0

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


class Workers:
    """The Job: begins the pods that its rules say, until it is complete."""

    def __init__(self, owner, pods):
        self.spec, self.pods = owner["spec"], pods
        require([pod.index for pod in pods] == list(range(self.spec["completions"])), "an index has no pod")
        self.failures = {pod.index: 0 for pod in pods}
        for pod in pods:
            pod.start()

    def action(self, code):
        for rule in self.spec["podFailurePolicy"]["rules"]:
            if "onExitCodes" in rule and code in rule["onExitCodes"]["values"]:
                return rule["action"]
        return "Count"

    def tend(self):
        """Whether the Job is complete."""
        for pod in self.pods:
            code = pod.poll()
            if code in (None, 0):
                continue
            action = self.action(code)
            require(action != "FailIndex", f"worker {pod.index} ended with {code}")
            self.failures[pod.index] += action == "Count"
            require(self.failures[pod.index] <= self.spec["backoffLimitPerIndex"], "too many failures")
            pod.start()
        done = sum(pod.poll() == 0 for pod in self.pods)
        return done >= self.spec["successPolicy"]["rules"][0]["succeededCount"]


def compare_models_with_an_undisturbed_run(place, job, volume):
    """Of each of the page's three workers, as its pod has left it on the volume."""
    quiet = place.run(os.path.join(job.home, "job.toml"), "--workers", 1, "--checkpoints", place.path("quiet-checkpoints")).end()
    with open(os.path.join(quiet.out, "model.safetensors"), "rb") as file:
        expected = file.read()
    for n in range(3):
        with open(os.path.join(volume, "small", f"worker-{n}", "model.safetensors"), "rb") as file:
            require(file.read() == expected, f"the model of worker {n} is another than that of an undisturbed run")
