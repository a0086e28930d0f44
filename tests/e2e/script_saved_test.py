"""Scripts over the starling package itself, with the stand-in for torch (tests/stand_in/torch): the model that a job
leaves is the whole net's."""
import json
import os
import struct
import subprocess
import sys

from harness import NOT_HERE, PATIENCE, STARLING, main, require
from scripts import HEAD, PATHS, ended, written

FROZEN = HEAD + """
class Partly(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2, 3), requires_grad=False)
        self.register_buffer("mean", torch.ones(5).fill_(0.25))

def partly():
    return Partly(), build()[1]
"""


def header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def the_saved_model_has_what_is_not_trained_too(place):
    script = written(place, "frozen.py", FROZEN + """
out = os.environ["OUT"]
train(build=partly)
net = partly()[0]
net.load_state_dict(starling.load(out))  # strict: nothing is missing
assert net.weight.tolist() != [0.0] * 4 and net.mean.tolist() == [0.25] * 5 and net.scale.tolist() == [[1.0] * 3] * 2
again = partly()[0]
again.scale.fill_(7.0)
starling.load(out, again)
assert again.weight.tolist() == net.weight.tolist() and again.scale.tolist() == net.scale.tolist()
""")
    model = place.path("out/model.safetensors")
    code, said = ended(script, OUT=place.path("out"), WORKERS="2")
    require(code == 0, said)
    found = header(model)
    require(sorted(found) == ["__metadata__", "bias", "mean", "scale", "weight"], found)
    # A command that takes the script has no process with the net; the script says that the call is done, and adds it.
    alone = place.path("alone")
    run = subprocess.run([STARLING, "run", script, "--out", alone], capture_output=True, text=True, timeout=PATIENCE,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "STARLING_PYTHON": sys.executable,
                              "OUT": alone})
    require(run.returncode == 0 and sorted(header(alone + "/model.safetensors")) == ["__metadata__", "bias", "weight"],
            run.stderr)
    code, said = ended(script, OUT=alone, STARLING_RESUME="1")
    require(code == 0 and "done before" in said and header(alone + "/model.safetensors") == found, said)
    checked = subprocess.run([STARLING, "check", model], capture_output=True, text=True)
    require(checked.returncode == 0 and "2 tensors, 5 parameters" in checked.stdout
            and "(2 more are not in it)" in checked.stdout, checked)
    before = os.stat(model).st_mtime_ns, found
    code, said = ended(script, OUT=place.path("out"), STARLING_RESUME="1")
    require(code == 0 and "done before" in said, said)
    require((os.stat(model).st_mtime_ns, header(model)) == before, "a call that is done has written its model again")


def a_model_that_cannot_be_made_whole_is_said(place):
    script = written(place, "hollow.py", FROZEN + """
def full(*_):
    raise OSError(28, "No space left on device")
starling.model_file._save_state = full
train(build=partly)
""")
    code, said = ended(script, OUT=place.path("out"), WORKERS="1")
    lines = [line for line in said.splitlines() if "the whole model is not here" in line]
    require(code == NOT_HERE and len(lines) == 1 and "No space left on device" in lines[0], f"{code}: {said}")
    require(sorted(header(place.path("out/model.safetensors"))) == ["__metadata__", "bias", "weight"], said)


def a_checkpoint_of_a_script_becomes_a_model(place):
    script = written(place, "checkpoints.py", HEAD + """
folder = os.environ["OUT"] + "-checkpoints"
if not os.path.exists(os.environ["OUT"] + "-model"):
    train(checkpoint=folder, checkpoint_every=4)
    try:
        starling.load(folder)
    except ValueError as why:
        assert "`starling export" in str(why), why
    else:
        raise AssertionError("a checkpoint was read as a model")
else:
    net = Net()
    starling.load(os.environ["OUT"] + "-model", net)
    assert net.bias.item() != 0.0
""")
    out = place.path("out")
    code, said = ended(script, OUT=out)
    require(code == 0, said)
    done = subprocess.run([STARLING, "export", out + "-checkpoints", out + "-model"], capture_output=True, text=True)
    require(done.returncode == 0 and done.stdout.startswith("the model of step 4 is "), done)
    code, said = ended(script, OUT=out)
    require(code == 0, said)


def an_earlier_runs_adapter_is_put_aside_with_its_model(place):
    script = written(place, "more.py", HEAD + """
more = ("--steps", "12") if os.environ.get("STARLING_RESUME") else ()
train(checkpoint=os.environ["OUT"] + "-checkpoints", checkpoint_every=4, command=more)
""")
    out = place.path("out")
    code, said = ended(script, OUT=out)
    require(code == 0, said)
    names = ["adapter_config.json", "adapter_model.safetensors", "config.json", "generation_config.json"]
    for name in names:
        written(place, "out/" + name, "the first run's")
    code, said = ended(script, OUT=out, STARLING_RESUME="1")
    require(code == 0, said)
    aside = [name for name in sorted(os.listdir(os.path.join(out, "run-1"))) if name in names]
    require(aside == names and not set(names) & set(os.listdir(out)), f"{aside}: {said}")


main(a_checkpoint_of_a_script_becomes_a_model, an_earlier_runs_adapter_is_put_aside_with_its_model,
     the_saved_model_has_what_is_not_trained_too, a_model_that_cannot_be_made_whole_is_said)
