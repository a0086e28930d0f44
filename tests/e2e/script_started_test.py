"""A script trains as it was started, whatever it does before, between and beside its calls of train(); it ends with
the process that was started, and goes on by the line that is printed."""
import os
import shlex
import signal
import subprocess

from harness import PATIENCE, STARLING, main, processes_naming, require, wait_until
from scripts import HEAD, PATHS, ended, events, result, started, written

SLOW = """
import time
def slow(net, batch):
    time.sleep(0.01)
    return loss(net, batch)
"""


def what_a_script_takes_from_its_start_reaches_every_process(place):
    """Arguments and variables that it takes away, a folder that it leaves, `python -O`."""
    scaled = """
def scaled(net, batch):
    return loss(net, batch) * scale
train(scaled)
"""
    wanted = result(written(place, "five.py", HEAD + "scale = 5.0\n" + scaled), OUT=place.path("five"))
    os.mkdir(place.path("other"))
    for folder, text in (("", "5.0"), ("other", "1.0")):
        with open(os.path.join(place.path(folder), "scale.txt"), "w") as file:
            file.write(text)
    pop = written(place, "pop.py", HEAD + "scale = float(sys.argv.pop()) if len(sys.argv) > 1 else 1.0\n" + scaled)
    take = written(place, "take.py", HEAD + "scale = float(os.environ.pop('SCALE', '1'))\n" + scaled)
    leave = written(place, "leave.py", HEAD + "scale = float(open('scale.txt').read())\nos.chdir('other')\n" + scaled)
    flag = written(place, "flag.py", HEAD + "scale = 1.0 if __debug__ else 5.0\n" + scaled)
    for name, found in (("sys.argv", result(pop, "5.0", OUT=place.path("pop"))),
                        ("os.environ", result(take, SCALE="5", OUT=place.path("take"))),
                        ("os.chdir", result(leave, folder=place.folder, OUT=place.path("leave"))),
                        ("-O", result("-O", flag, OUT=place.path("flag")))):
        require(found == wanted, f"{name}: digest {found}, as it was started {wanted}")


def a_script_that_reads_standard_input_is_refused(place):
    for number, text in enumerate(("sys.stdin.readline()", "input()", "sys.stdin.buffer.read()", "list(sys.stdin)")):
        code, said = ended(written(place, f"reads-{number}.py", HEAD + f"""
try:
    {text}
except EOFError:
    pass
train()
"""), OUT=place.path(f"reads-{number}"))
        require(code == 2 and "the script reads standard input" in said, f"{text}: {code}, {said[-1500:]}")


def what_evaluate_leaves_behind_does_not_part_the_next_call(place):
    kept = """
net = Net()
best = None
def evaluate(trained):
    global best
    best = dict(trained.state_dict())
    starling.load(os.environ["OUT"], net)
    return 1.0
train(evaluate=evaluate)
train(out=os.environ["OUT"] + "-2", {})
"""
    for name, options, line in (("init", "init=best", "init is None in this process, and another one where the script"),
                                ("net", "build=lambda: (net, build()[1])", "build() gives a net with other parameters")):
        code, said = ended(written(place, name + ".py", HEAD + kept.format(options)), OUT=place.path(name))
        require(code == 2 and line in said, f"{name}: {code}, {said[-1500:]}")


def what_lies_in_grad_is_in_no_gradient(place):
    """Of a parameter, too, that the first micro-batch, by which processes are compared, does not use."""
    text = """
class Two(Net):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return super().forward(x) + (self.up if float(x.sum()) > 0 else self.down)
def two():
    net, data = Two(), build()[1]
    for p in net.parameters():
        p.grad = {}
    return net, data
train(build=two)
"""
    both = [result(written(place, f"{name}.py", HEAD + text.format(grad)), OUT=place.path(name))
            for name, grad in (("clean", "None"), ("left", "torch.zeros(*p.shape) + 3.0"))]
    require(both[0] == both[1], f"digests {both}")


def a_module_that_was_edited_is_not_imported(place):
    """In the middle of the run, beside the script, or moved into another folder that is its own."""
    for name, path in (("late", ""), ("aside", "lib")):
        written(place, os.path.join(path, name + ".py"), "SCALE = 1.0\n")
        script = written(place, f"app/{name}-run.py" if path else f"{name}-run.py", HEAD + f"""
import time
sys.path.insert(0, os.path.join({place.folder!r}, {path!r}))
job = starling.Job(build, steps=60, micro_batches=4, batch_size=4, lease_ms=10000, seed=5, workers=1,
                   out=os.environ["OUT"])
for step in job:
    time.sleep(0.02)
    scale = 1.0
    if step.number >= 40:
        from {name} import SCALE as scale
    for mb in step.mine:
        mb.done(loss(job.net, mb.batch()) * scale)
""")
        run = started(script, OUT=place.path(name + "-out"))
        wait_until(lambda: len(events(place.path(name + "-out"), "step")) > 3, "some steps", PATIENCE)
        changed = written(place, os.path.join(path, name + ".new"), "SCALE = 5.0\n")
        if path:
            os.utime(changed, (1, 1))  # older than the run, as `mv` and `cp -p` leave it
        os.replace(changed, place.path(os.path.join(path, name + ".py")))
        said = "".join(run.communicate(timeout=PATIENCE))
        require(run.returncode == 2 and f"{name}.py was changed after the job began" in said,
                f"{name}: {run.returncode}, {said[-1500:]}")


def whatever_ends_the_script_ends_the_run(place):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGKILL):
        out = place.path(f"signal-{number.name}")
        text = HEAD + SLOW + f"train(slow, steps=100000, checkpoint={out + '-checkpoints'!r}, checkpoint_every=50)\n"
        run = started(written(place, f"{number.name}.py", text), OUT=out)
        wait_until(lambda: len(events(out, "step")) > 3, "some steps", PATIENCE)
        run.send_signal(number)
        said = "".join(run.communicate(timeout=PATIENCE))
        wait_until(lambda: not processes_naming(out), f"the end of all after {number.name}", PATIENCE)
        if number == signal.SIGKILL:
            continue
        require(run.returncode in (128 + number, -number), f"{number.name}: {run.returncode}, {said[-1500:]}")
        require("STARLING_RESUME=1" in said, f"{number.name}: {said[-1500:]}")


def a_script_of_two_calls_goes_on_in_the_second(place):
    script = written(place, "calls.py", HEAD + SLOW + """
for k in range(2):
    made = starling.train(build, slow if k else loss, steps=60, micro_batches=4, batch_size=4, seed=k, workers=1,
                          out=os.path.join(sys.argv[1], str(k)), lease_ms=10000,
                          checkpoint=os.path.join(sys.argv[1], "checkpoints") if k else None, checkpoint_every=5)
print("RESULT", made.digest)
""")
    wanted = result(script, place.path("quiet"))
    run = started(script, place.path("ended"))
    wait_until(lambda: len(events(place.path("ended/1"), "step")) > 12, "steps of the second call", PATIENCE)
    run.terminate()
    said = "".join(run.communicate(timeout=PATIENCE))
    line = next(line.strip() for line in said.splitlines() if "STARLING_RESUME=1" in line)
    again = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=PATIENCE,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING": STARLING})
    found = [word for word in again.stdout.splitlines() if word.startswith("RESULT ")]
    require(again.returncode == 0 and found == [f"RESULT {wanted}"], f"{again.returncode}, {again.stdout}{again.stderr}")
    require("done before: version 60" in again.stdout, again.stdout)


main(what_a_script_takes_from_its_start_reaches_every_process,
     a_script_that_reads_standard_input_is_refused,
     what_evaluate_leaves_behind_does_not_part_the_next_call,
     what_lies_in_grad_is_in_no_gradient,
     a_module_that_was_edited_is_not_imported,
     whatever_ends_the_script_ends_the_run,
     a_script_of_two_calls_goes_on_in_the_second)
