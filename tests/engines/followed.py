"""A page of docs/ whose commands are typed as they stand there, and the job that they start."""
import json
import os
import re
import signal
import subprocess

from harness import SOURCE, STARLING, require, wait_until

PAGES_STEPS = 20000  # which last until an engine has found the time to take something
PATIENCE = 300


def programs(place):
    """A folder with the program under test."""
    folder = place.path("programs")
    os.mkdir(folder)
    os.symlink(os.path.abspath(STARLING), os.path.join(folder, "starling"))
    return folder


class Followed:
    """In a home of its own. `steps`: instead of the page's; None: those. `folder`: below the home, where the job runs."""

    def __init__(self, place, page, steps, folder=""):
        place.count += 1
        self.place, self.home, self.folder = place, place.path(f"home-{place.count}"), folder
        os.mkdir(self.home)
        with open(os.path.join(SOURCE, "docs", page)) as file:
            text = file.read()
        asked = f"\nsteps = {PAGES_STEPS}\n"
        require(text.count(asked) == 1, f"{page}: the number of steps was changed")
        text = text.replace(asked, f"\nsteps = {steps or PAGES_STEPS}\n")
        self.commands = {heading: re.findall(r"\n```\n(.*?)\n```\n", body, re.DOTALL) for heading, body in
                         re.findall(r"\n## (.*?)\n(.*?)(?=\n## |\Z)", text, re.DOTALL)}

    def follow(self, heading, environment=None, run=None):
        """Types the commands under this heading. run: a shell, called with the commands and the folder."""
        for commands in self.commands[heading]:
            if run is not None:
                run(commands, self.home)
                continue
            done = subprocess.run(["bash", "-e", "-c", commands], cwd=self.home, env=environment, text=True, timeout=120,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            require(done.returncode == 0, f"{commands}\n{done.stdout}")

    def start(self, heading, environment):
        """The same, in the background: gives the process."""
        with open(os.path.join(self.home, "started.log"), "w") as log:
            return subprocess.Popen(["bash", "-e", "-c", "\n".join(self.commands[heading])], cwd=self.home,
                                    env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    start_new_session=True)

    def path(self, name):
        return os.path.join(self.home, self.folder, name)

    def text(self, name):
        try:
            with open(self.path(name)) as file:
                return file.read()
        except OSError:
            return ""

    def events(self, kind):
        lines = self.text("out/events.jsonl").split("\n")[:-1]
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def workers(self, *kinds):
        return [event for event in self.events("worker") if event["what"] in kinds]

    def steps(self):
        return max((event["version"] + 1 for event in self.events("step")), default=0)

    def newest_checkpoint(self):
        return max((event["version"] for event in self.events("checkpoint")), default=-1)

    def wait(self, condition, what):
        try:
            return wait_until(condition, what, PATIENCE)
        except Exception:
            for name in ("started.log", "coordinator.log", *(f"worker-{n}.log" for n in range(6))):
                print(f"-- {name}\n{self.text(name)[-1500:]}")
            raise

    def wait_for_step(self, step):
        self.wait(lambda: self.steps() >= step, f"step {step}")

    def compare_with_an_undisturbed_run(self):
        """Of one worker, up to the last step that was made here: losses and norms are the same bits."""
        steps = self.steps()
        quiet = self.place.run(os.path.join(self.home, "job.toml"), "--workers", 1, "--checkpoints", self.place.path("quiet-checkpoints"))
        quiet.wait_for_step(steps)
        quiet.process.send_signal(signal.SIGINT)
        quiet.end(code=130)
        here = sorted((event["version"], event["loss"], event["norm"]) for event in self.events("step"))
        require(here == quiet.losses()[:steps], "losses or norms of steps differ")
