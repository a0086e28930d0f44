"""The packages for Debian: in a bare root with nothing but Debian's base they are installed, train and judge, build a program
of one's own, and are gone without a trace when they are purged."""
import contextlib
import glob
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

BUILD = os.path.dirname(STARLING)
# What apt and dpkg themselves keep.
THEIRS = re.compile(r"/(var/(lib|cache|log)/(apt|dpkg|debconf|systemd|ucf)|var/log/|var/cache/(ldconfig|man)|etc/ld\.so\.cache|"
                    r"etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|root|srv|proc|run|dev|tmp)")


def packages():
    """The two files, which the build makes anew."""
    if shutil.which("dpkg-shlibdeps") is None:
        raise Skipped("needs dpkg-dev (tools/setup.sh --engines)")
    built = subprocess.run(["cmake", "--build", BUILD, "--target", "deb"], capture_output=True, text=True, timeout=1800)
    require(built.returncode == 0, built.stdout[-2000:] + built.stderr[-500:])
    found = [glob.glob(os.path.join(BUILD, f"{name}_*.deb")) for name in ("starling", "libstarling-dev")]
    require(all(len(one) == 1 for one in found), found)
    return [one[0] for one in found]


class Root:
    """A root with Debian's base and nothing else, and a network."""

    def __init__(self, place):
        self.folder = place.path("root")
        os.mkdir(self.folder)
        subprocess.run(["tar", "--numeric-owner", "-xf", base_root(), "-C", self.folder], check=True, timeout=300)
        shutil.copy("/etc/resolv.conf", os.path.join(self.folder, "etc/resolv.conf"))
        shutil.copy("/etc/hosts", os.path.join(self.folder, "etc/hosts"))

    def run(self, command, code=0, seconds=900):
        """A shell's command there, in namespaces that end with it."""
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc",
             'mount --bind "$1" "$1"; mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$1" bash -euc "$2"',
             "-", self.folder, command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive",
                 **{name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
        require(done.returncode == code, f"{command}: {done.returncode}, expected {code}\n{done.stdout[-3000:]}")
        return done.stdout

    def files(self):
        listed = subprocess.run(["find", ".", "-xdev", "-printf", "%P %m %U\n"], cwd=self.folder, capture_output=True,
                                text=True, check=True, timeout=120).stdout
        return {line for line in listed.splitlines() if not THEIRS.match("/" + line.split(" ")[0])}


@contextlib.contextmanager
def installed(place):
    files = packages()
    root = Root(place)
    try:
        root.run("apt-get -q update")
    except Exception as error:
        raise Skipped(f"no packages of Debian here: {str(error).splitlines()[-1]}") from error
    # What a machine has before a package of somebody else's comes.
    root.run("apt-get -q -y install --no-install-recommends passwd ca-certificates")
    users = root.run("cut -d: -f1 /etc/passwd /etc/group | sort")
    before = root.files()
    for file in files:
        shutil.copy(file, os.path.join(root.folder, "srv"))
    root.run("apt-get -q -y install --no-install-recommends /srv/starling_*.deb")
    yield root
    root.run("for name in libstarling-dev starling; do ! dpkg-query -W $name || apt-get -q -y purge $name; done; "
             "apt-get -q -y autoremove --purge")
    require(root.run("cut -d: -f1 /etc/passwd /etc/group | sort") == users, "a user or a group is left")
    left = sorted(root.files() ^ before)
    require(not left, f"other than before it was installed: {left[:20]}")


def the_command_trains_judges_and_is_gone(place):
    with installed(place) as root:
        said = root.run("starling --version")
        require(said.startswith("starling 0."), said)
        # The first thing to type: a run that is disturbed, and the verdict.
        began = time.monotonic()
        with open(os.path.join(SOURCE, "docs", "packages.md")) as page:
            typed = re.search(r"\n(starling chaos /usr/share/doc/starling/.*)\n", page.read())[1]
        said = root.run(f"cd /srv && {typed}")
        print(f"the first verdict after {time.monotonic() - began:.0f} s")
        require("every promise that was tested held" in said, said[-1500:])
        root.run("cp /usr/share/common-licenses/GPL-3 /srv/text.txt && sed 's|^path = .*|path = \"text.txt\"|' "
                 "/usr/share/doc/starling/examples/gpt/tiny.toml > /srv/job.toml && cd /srv && "
                 "starling run job.toml --workers 2 --steps 20 --out /srv/there")
        shutil.copy(os.path.join(root.folder, "srv/text.txt"), place.path("text.txt"))
        shutil.copy(os.path.join(root.folder, "srv/job.toml"), place.path("job.toml"))
        quiet = place.run(place.path("job.toml"), "--workers", 1, "--steps", 20).end()
        with open(os.path.join(root.folder, "srv/there/events.jsonl")) as file:
            done = [json.loads(line) for line in file if '"ev":"done"' in line]
        require([event["digest"] for event in done] == [quiet.digest()], f"there {done}, here {quiet.digest()}")
        # Units that are written here name the program where the package has it.
        root.run("cd /srv && sed -i -E 's/^(start|coordinator)_timeout_ms = [0-9]*/\\1_timeout_ms = 900000/' job.toml && "
                 "starling launch systemd job.toml --workers 2 --at 10.0.0.1:7000 && grep -q '^ExecStart=/usr/bin/starling worker ' "
                 "systemd/starling-worker@.service")
        # The units' user and places; what they name is there.
        root.run("getent passwd starling && test -d /etc/starling && test -e /etc/default/starling")
        for unit in ("starling-worker@.service", "starling-coordinator.service"):
            root.run(f"test -e /usr/lib/systemd/system/{unit} || test -e /lib/systemd/system/{unit}")
        for page in ("starling", "starling-run", "starling-worker", "starling-bench"):
            root.run(f"gzip -t /usr/share/man/man1/{page}.1.gz")


def a_program_of_ones_own_is_built_and_a_model_is_not_removed(place):
    with installed(place) as root:
        root.run("apt-get -q -y install --no-install-recommends /srv/libstarling-dev_*.deb g++ cmake make", seconds=1800)
        root.run("cp -r /usr/share/doc/starling/examples/own /srv/own && cd /srv/own && cmake -B build -DCMAKE_BUILD_TYPE=Release . && "
                 "cmake --build build", seconds=1800)
        require("Usage" in root.run("/srv/own/build/own --help"), "the program has no help")
        root.run("apt-get -q -y purge g++ cmake make libstarling-dev; apt-get -q -y autoremove --purge")
        # A worker's model: it is somebody's, and no package takes it.
        root.run("install -D -o starling /dev/null /var/lib/starling/worker-0/model.safetensors; install -d /var/lib/starling/worker-1")
        wants = "/etc/systemd/system/multi-user.target.wants"
        root.run("install -D -m 600 -o starling /dev/null /etc/starling/worker-0.token; "
                 f"install -d {wants}; ln -s /lib/systemd/system/starling-worker@.service {wants}/starling-worker@0.service")
        said = root.run("apt-get -q -y purge starling")
        require("are left in /etc/starling /var/lib/starling" in said, said[-1000:])
        # Its owner stays with it: the next user with that number could read it.
        root.run(f"test $(stat -c %U /etc/starling/worker-0.token) = starling && test ! -L {wants}/starling-worker@0.service")
        root.run("test -e /var/lib/starling/worker-0/model.safetensors && test ! -e /var/lib/starling/worker-1 && getent passwd starling")
        root.run(f"rm -r /var/lib/starling /etc/starling; userdel starling; rmdir -p {wants} 2>/dev/null || true")


def what_lintian_says(place):
    del place
    if shutil.which("lintian") is None:
        raise Skipped("needs lintian (tools/setup.sh --engines)")
    said = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", "--suppress-tags",
                           "bogus-mail-host,bogus-mail-host-in-debian-changelog",  # an address is of who gives a package to others (CPACK_PACKAGE_CONTACT)
                           *packages()], capture_output=True, text=True, timeout=600)
    require(said.returncode == 0, said.stdout)


def keys_of(unit):
    """A unit's lines below [Service], but what is said of one job or one machine."""
    service = unit.split("[Service]\n")[1].split("\n[")[0]
    lines = [line for line in service.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if line.split("=")[0] not in ("ExecStart", "Environment", "EnvironmentFile", "TimeoutStopSec")]


def the_units_are_those_of_a_launch(place):
    job = place.job(start_timeout_ms=900000, coordinator_timeout_ms=900000)
    subprocess.run([STARLING, "launch", "systemd", job, "--workers", "3", "--at", "10.0.0.1:7000", "--program", "/usr/bin/starling", "--out",
                    place.path("launched")], check=True, stdout=subprocess.DEVNULL, timeout=60)
    for name in ("starling-worker@.service", "starling-coordinator.service"):
        with open(os.path.join(SOURCE, "tools/package", name)) as ours, open(place.path(f"launched/{name}")) as theirs:
            require(keys_of(ours.read()) == keys_of(theirs.read()), f"{name} says otherwise than `starling launch systemd`")
    if shutil.which("systemd-analyze") is None:
        raise Skipped("the units were compared; whether they are well-formed systemd says (tools/setup.sh --engines)")
    units = [os.path.join(SOURCE, "tools/package", name) for name in ("starling-coordinator.service",)]
    shutil.copy(os.path.join(SOURCE, "tools/package/starling-worker@.service"), place.path("starling-worker@3.service"))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", *units, place.path("starling-worker@3.service")], capture_output=True, text=True,
                          timeout=60)
    wrong = [line for line in (said.stdout + said.stderr).splitlines() if "/usr/bin/starling is not executable" not in line]
    require(not wrong, wrong)


main(the_command_trains_judges_and_is_gone, a_program_of_ones_own_is_built_and_a_model_is_not_removed, what_lintian_says,
     the_units_are_those_of_a_launch)
