"""A real Slurm on this machine: munged, slurmctld and one slurmd for each node, in namespaces of their own, with which
everything that was started in them ends."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import textwrap

from harness import Skipped, parent_of, require, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue")
STAYING, SPOT = ("n4",), ("n1", "n2", "n3", "n5", "n6")
NODES = (*SPOT, *STAYING)
PREFIX = "10.78.0."

CONFIGURATION = """
    ClusterName=starling
    SlurmctldHost={host}({prefix}100)
    SlurmUser=root
    AuthInfo=socket={folder}/munge/socket
    StateSaveLocation={folder}/state
    SlurmdSpoolDir={folder}/spool/%n
    SlurmctldPidFile={folder}/slurmctld.pid
    SlurmdPidFile={folder}/slurmd-%n.pid
    SlurmctldLogFile={folder}/slurmctld.log
    SlurmdLogFile={folder}/slurmd-%n.log
    ProctrackType=proctrack/linuxproc
    TaskPlugin=task/none
    SelectType=select/cons_tres
    SelectTypeParameters=CR_Core
    SwitchType=switch/none
    MpiDefault=none
    ReturnToService=2
    SlurmdTimeout=10
    KillWait=10
    PreemptType=preempt/partition_prio
    PreemptMode=REQUEUE
    {nodes}
    PartitionName=main Nodes={staying} PreemptMode=OFF State=UP
    PartitionName=spot Nodes={spot} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 State=UP
    PartitionName=urgent Nodes={spot} PriorityTier=10 PreemptMode=OFF State=UP
"""


class Slurm:
    """Ends what it has started when it is left. `programs`: a folder that is first in everybody's PATH."""

    def __init__(self, place, programs):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise Skipped(f"needs root and Debian's slurm-wlm and munge; missing: {' '.join(missing) or 'root'}")
        self.folder = place.path("slurm")
        for name in ("munge", "state", *(f"spool/{node}" for node in NODES)):
            os.makedirs(os.path.join(self.folder, name))
        os.chmod(place.folder, 0o755)  # for the user munge
        self.environment = {**os.environ, "SLURM_CONF": self.write("slurm.conf", self.configuration()),
                            "PATH": f"{programs}:{os.environ['PATH']}"}
        hosts = self.write("hosts", "127.0.0.1 localhost\n" + "".join(
            f"{PREFIX}{number} {node}\n" for number, node in enumerate(NODES, 1)))
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             f"mount --bind {hosts} /etc/hosts && echo in && exec sleep 3600"], stdout=subprocess.PIPE, text=True)
        require(self.holder.stdout.readline() == "in\n", "no namespaces")
        self.first = int(subprocess.run(["pgrep", "-P", str(self.holder.pid)], capture_output=True, text=True).stdout)

    def configuration(self):
        host = socket.gethostname()
        nodes = "\n    ".join(f"NodeName={node} NodeHostname={host} NodeAddr={PREFIX}{number} Port={17000 + number} "
                              f"CPUs=1 RealMemory=500" for number, node in enumerate(NODES, 1))
        return textwrap.dedent(CONFIGURATION.format(host=host, prefix=PREFIX, folder=self.folder, nodes=nodes,
                                                    staying=",".join(STAYING), spot=",".join(SPOT)))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def __enter__(self):
        self.run("ip link set lo up; ip link add slurm0 type veth peer name slurm1; ip link set slurm1 up; "
                 "ip link set slurm0 up")
        for number in (*range(1, len(NODES) + 1), 100):
            self.run(f"ip addr add {PREFIX}{number}/24 dev slurm0")
        munge = f"{self.folder}/munge"
        self.run(f"head -c 1024 /dev/urandom > {munge}/key; chmod 400 {munge}/key; chown -R munge {munge}; "
                 f"setpriv --reuid munge --regid munge --clear-groups munged --key-file={munge}/key "
                 f"--socket={munge}/socket --pid-file={munge}/pid --log-file={munge}/log --seed-file={munge}/seed")
        self.run("slurmctld -i")
        for node in NODES:
            self.start_node(node)
        wait_until(lambda: set(self.run("sinfo --noheader --format %t").split()) == {"idle"}, "idle nodes")
        return self

    def __exit__(self, *_):
        self.holder.kill()  # and with it the first process of the namespace, and all others
        self.holder.wait()
        wait_until(lambda: not os.path.exists(f"/proc/{self.first}"), "the end of the namespace")

    def run(self, command, folder=None):
        """Gives what a shell inside prints."""
        done = subprocess.run(["nsenter", "--target", str(self.first), "--net", "--mount", "--pid", "bash", "-e", "-c",
                               f"cd {folder or self.folder}; {command}"], env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        require(done.returncode == 0, f"{command}\n{done.stdout}")
        return done.stdout

    def start_node(self, node):
        self.run(f"slurmd -N {node}")

    def take_node(self, node):
        """At once, with all that runs on it, as a machine that is gone."""
        for pid in self.processes(node):
            os.kill(pid, signal.SIGKILL)

    def processes(self, node):
        namespace = os.readlink(f"/proc/{self.first}/ns/pid")
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") != namespace:
                    continue
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                with open(f"/proc/{entry}/environ", "rb") as file:
                    variables = file.read().split(b"\0")
            except OSError:
                continue
            if node.encode() in words[1:] or f"SLURMD_NODENAME={node}".encode() in variables:
                found.append(int(entry))
                with contextlib.suppress(OSError):
                    parent = parent_of(entry)
                    with open(f"/proc/{parent}/cmdline") as file:
                        if file.read().startswith("slurmstepd"):
                            found.append(parent)
        return found

    def jobs(self):
        """{name of a job, with the number of its task in an array: (state, node)}"""
        text = self.run("squeue --noheader --array --format '%j %K %T %N'")
        rows = [line.split(" ") for line in text.splitlines()]
        return {name if task == "N/A" else f"{name}-{task}": (state, node) for name, task, state, node in rows}

    def number(self, job):
        """By which Slurm knows it: of a task of an array ARRAY_TASK, as ARRAY alone would be all of its tasks."""
        for line in self.run("squeue --noheader --array --format '%j %K %i'").splitlines():
            name, task, number = line.split(" ")
            if job in (name, f"{name}-{task}"):
                return number
        return None
