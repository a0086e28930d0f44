"""The image of tools/package/Dockerfile and the pods of docs/kubernetes.md in real containers: podman runs each pod as its
manifest says (another user, a root that cannot be written, a filter of system calls, no capability, SIGTERM and its grace)."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from base import base_root
from harness import SOURCE, STARLING, Skipped, main, require
from pods import Page, Pod, Workers, compare_models_with_an_undisturbed_run, objects_of

BUILD = os.path.dirname(STARLING)
NEEDED = ("podman", "buildah", "runc", "catatonit", "netavark", "aardvark-dns")
SLIM = "docker.io/library/debian:12-slim"
IMAGE = "registry.example/starling:1"
SUBNET = "10.79.3"


class Containers:
    """podman and buildah with images, containers and a network of their own, which end with it."""

    def __init__(self, place):
        path = os.environ["PATH"] + ":/usr/lib/podman"
        missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
        if missing or os.geteuid() != 0:
            raise Skipped(f"needs root and {', '.join(missing) or 'nothing more'} (tools/setup.sh --engines)")
        self.folder = place.path("containers")
        os.mkdir(self.folder)
        configuration = os.path.join(self.folder, "containers.conf")
        with open(configuration, "w") as file:
            # crun refuses some machines' control groups; a limit above one's own is refused to root, too.
            file.write('[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
                       '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
                       # The other backend leaves its bridge behind.
                       f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{self.folder}/networks"\n')
        self.environment = {**os.environ, "CONTAINERS_CONF": configuration, "BUILDAH_ISOLATION": "chroot"}
        self.asked, self.codes = 0, {}
        self.where = ["--root", f"{self.folder}/storage", "--runroot", f"{self.folder}/running"]

    def __enter__(self):
        self.podman("network", "create", "--subnet", f"{SUBNET}.0/24", "starling-pods")
        return self

    def __exit__(self, *_):
        for words in (["pod", "rm", "--all", "--force", "--time", "0"], ["rm", "--all", "--force", "--time", "0"],
                      ["network", "rm", "--force", "starling-pods"], ["rmi", "--all", "--force"]):
            subprocess.run(["podman", *self.where, *words], env=self.environment, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=120)

    def call(self, program, *words, code=0):
        done = subprocess.run([program, *self.where, *words], env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=600)
        require(done.returncode == code, f"{program} {' '.join(words)}: {done.returncode}, expected {code}\n{done.stdout}{done.stderr}")
        return done.stdout

    def podman(self, *words, code=0):
        if words[0] != "ps":
            self.asked = 0  # what was known of containers may have changed
        return self.call("podman", *words, code=code)

    def exit_codes(self):
        """By the container's name; None: it runs. Asked at most once in a second: podman takes a part of one to answer."""
        if time.monotonic() - self.asked > 1:
            self.asked = time.monotonic()
            listed = json.loads(self.podman("ps", "--all", "--format", "json"))
            self.codes = {name: one["ExitCode"] if one["State"] == "exited" else None for one in listed for name in one["Names"]}
        return self.codes

    def make_image(self):
        """What the Dockerfile's last stage makes, of the bundle of this build in the place of its first stage."""
        self.podman("import", "--change", "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", base_root(), SLIM)
        built = subprocess.run(["cmake", "--build", BUILD, "--target", "bundle"], capture_output=True, text=True, timeout=1800)
        require(built.returncode == 0, built.stdout[-1500:])
        with open(os.path.join(SOURCE, "tools", "package", "Dockerfile")) as file:
            stages = file.read().split(f"\nFROM {SLIM.rsplit('/', 1)[1]}\n")
        require(len(stages) == 2, "the Dockerfile has other stages")
        context = os.path.join(self.folder, "context")
        os.makedirs(os.path.join(context, "etc"))
        shutil.copytree(os.path.join(BUILD, "bundle"), os.path.join(context, "bundle"), symlinks=True)
        shutil.rmtree(os.path.join(context, "bundle", "bin", "tests"), ignore_errors=True)
        with open(os.path.join(context, "Dockerfile"), "w") as file:
            file.write(f"FROM {SLIM} AS build\nCOPY bundle /source/build/release/bundle\n"
                       f"RUN mkdir -p /etc/ssl/certs && touch /etc/ssl/certs/ca-certificates.crt\n\nFROM {SLIM}\n{stages[1]}")
        self.call("buildah", "bud", "--tag", IMAGE, context)
        shutil.rmtree(context)


class Contained(Pod):
    """A pod as podman runs it. A claim and a Secret are folders of this machine; addresses are fixed, and /etc/hosts has
    the names that the cluster's service would give the coordinators."""

    def __init__(self, containers, address, names, *pod):
        super().__init__(*pod)
        self.containers, self.address, self.names = containers, f"{SUBNET}.{address}", names

    def manifest(self):
        def source_of(mount):
            if mount["mountPath"] == "/tmp":
                return {"emptyDir": {}}
            claimed = not mount["mountPath"].startswith("/starling/")
            path = self.job.volume if claimed else self.folder + mount["mountPath"]
            return {"hostPath": {"path": path, "type": "File" if os.path.isfile(path) else "Directory"}}

        kept = ("name", "image", "command", "resources", "securityContext")
        container = {key: self.container[key] for key in kept if key in self.container}
        container["env"] = [{"name": name, "value": value} for name, value in self.variables.items()]
        container["volumeMounts"] = [{"name": mount["name"], "mountPath": mount["mountPath"]} for mount in self.container["volumeMounts"]]
        spec = {key: value for key, value in self.spec.items() if key not in ("containers", "volumes", "topologySpreadConstraints")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name},
                "spec": {**spec, "restartPolicy": "Never", "containers": [container],
                         "hostAliases": [{"ip": ip, "hostnames": [name]} for name, ip in self.names.items()],
                         "volumes": [{"name": mount["name"], **source_of(mount)} for mount in self.container["volumeMounts"]]}}

    def start(self):
        self.starts += 1
        self.name = f"{self.container['name']}-{self.index}-{self.starts}"
        self.mount()
        state = os.path.join(self.folder, "starling", "state")
        if os.path.isdir(state):  # a volume of its own, which belongs to fsGroup
            os.chown(state, 0, self.spec["securityContext"]["fsGroup"])
            os.chmod(state, 0o2775)
        file = f"{self.folder}-{self.starts}.yaml"
        with open(file, "w") as out:
            json.dump(self.manifest(), out)
        # With an Ethernet address of its own: the others go on with the one that they know for half a minute.
        mac = "02:00:" + ":".join(f"{int(part):02x}" for part in self.address.split("."))
        self.containers.podman("play", "kube", "--network", "starling-pods", "--ip", self.address, "--mac-address", mac, file)
        self.of = f"{self.name}-{self.container['name']}"

    def poll(self):
        return self.containers.exit_codes().get(self.of)

    def log(self):
        done = subprocess.run(["podman", *self.containers.where, "logs", self.of], env=self.containers.environment,
                              capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def remove(self):
        """Frees its address: another pod of its index takes it."""
        self.containers.podman("pod", "rm", "--force", "--time", "0", self.name)


class Replaced(Contained):
    """A pod whose forerunner is removed when it begins again, as the Job's controller does."""

    def start(self):
        if self.starts:
            self.remove()
        super().start()


def what_a_cluster_takes_of_real_containers_changes_no_bit(place):
    with Containers(place) as containers:
        containers.make_image()
        image = json.loads(containers.podman("inspect", IMAGE))[0]
        require(image["User"] == "10001:10001" and image["Config"]["StopSignal"] == "SIGTERM", image["Config"])
        require("Usage" in containers.podman("run", "--rm", "--read-only", IMAGE, "run", "--help"), "the image has no command")
        print(f"image: {image['Size'] // 1_000_000} MB")

        os.chmod(place.folder, 0o755)
        volume = place.path("volume")
        os.mkdir(volume)
        job = Page(place, lambda commands: commands.replace("training:/training", f"training:{volume}"), steps=4000)
        job.volume = volume
        shutil.copy(os.path.join(job.home, "text.txt"), volume)
        objects = objects_of(os.path.join(job.home, "kubernetes"))
        for path in (volume, job.home):
            os.chmod(path, 0o777)
        group, owner = objects["StatefulSet", "small-coordinator"], objects["Job", "small-worker"]
        names = {f"small-coordinator-0.{group['spec']['serviceName']}": f"{SUBNET}.10"}
        coordinator = Replaced(containers, 10, names, job, objects, group, 0)
        job.folder = "coordinator-0/starling/state"
        coordinator.start()
        workers = Workers(owner, [Replaced(containers, 20 + n, names, job, objects, owner, n)
                                  for n in range(owner["spec"]["completions"])])

        def wait(condition, what, tending=True):
            def tended():
                complete = tending and workers.tend()
                if coordinator.poll() is not None:  # also after the job's end, as a StatefulSet does
                    coordinator.start()
                return condition(complete)
            try:
                job.wait(tended, what)
            except Exception:
                for pod in (coordinator, *workers.pods):
                    print(f"-- {pod.name}, exit code {pod.poll()}\n{pod.log()[-1500:]}")
                raise

        wait(lambda _: len(job.workers("joined")) == 3, "three workers")
        wait(lambda _: job.steps() > 20, "steps")
        containers.podman("kill", "--signal", "KILL", workers.pods[2].of)
        wait(lambda _: len(job.workers("joined")) == 4, "worker 2, whose container was killed, is back")
        # A drain: SIGTERM to the first process of the pod, and its grace.
        drained = workers.pods[1]
        containers.podman("stop", "--time", str(drained.spec["terminationGracePeriodSeconds"]), drained.of)
        require(drained.poll() == 143, f"a drained worker ends with {drained.poll()}, expected 143\n{drained.log()}")
        require(len(job.workers("left")) == 1, "a drained worker leaves in order, within its grace")
        wait(lambda _: len(job.workers("joined")) == 5, "worker 1 is back")
        containers.podman("kill", "--signal", "KILL", coordinator.of)
        wait(lambda _: coordinator.starts == 2, "the coordinator begins again")
        wait(lambda complete: complete, "the Job is complete")
        wait(lambda _: all(pod.poll() == 0 for pod in workers.pods), "all workers end", tending=False)
        require(workers.failures == {0: 0, 1: 0, 2: 1}, f"counted as failures: {workers.failures}")
        require([pod.starts for pod in workers.pods] == [1, 2, 2], "somebody that was not hit was started again")
        refused = re.findall(r".*(?:Read-only|Permission denied).*", "".join(pod.log() for pod in (coordinator, *workers.pods)))
        require(not refused, refused)
    compare_models_with_an_undisturbed_run(place, job, volume)


main(what_a_cluster_takes_of_real_containers_changes_no_bit)
