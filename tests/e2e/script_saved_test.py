"""Scripts over the starling package itself, with the stand-in for torch (tests/stand_in/torch): the model that a job
leaves is the whole net's."""
import json
import os
import re
import struct
import subprocess
import sys

from harness import NOT_HERE, PATIENCE, STARLING, main, require
from scripts import HEAD, KEPT, PATHS, ended, written

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


def checked(path):
    done = subprocess.run([STARLING, "check", path], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def rewritten(path, **changes):
    """A copy of a model file with changes: a name's new values (and shape), or the metadata's."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        was, values = json.loads(file.read(length)), file.read()
    tensors = {name: (place["dtype"], place["shape"], values[slice(*place["data_offsets"])])
               for name, place in was.items() if name != "__metadata__"}
    made = {"__metadata__": was["__metadata__"] | changes.pop("metadata", {})}
    data = b""
    for name, (dtype, shape, value) in sorted((tensors | changes).items()):
        made[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    text = json.dumps(made).encode()
    with open(path + ".other", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path + ".other"


def a_check_names_what_the_digest_does_not_cover_and_looks_at_it(place):
    script = written(place, "frozen.py", FROZEN + """
train(build=partly)
""")
    code, said = ended(script, OUT=place.path("out"), WORKERS="1")
    require(code == 0, said)
    path = place.path("out/model.safetensors")
    code, said = checked(path)
    require(code == 0 and "not in the digest: " in said and "mean" in said and "scale" in said, said)
    for dtype, form in (("F64", "<4d"), ("F32", "<4f"), ("F16", "<4e")):
        for value, expected in ((float("nan"), 1), (float("inf"), 0), (1.0, 0)):
            code, said = checked(rewritten(path, scale=(dtype, [4], struct.pack(form, 1.0, value, 2.0, 3.0))))
            require(code == expected, f"{dtype} {value}: {code} {said}")
            require(expected == 0 or "scale has 1 values that are NaN" in said, said)
    weight = header(path)["weight"]
    with open(path, "rb") as file:
        content = file.read()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    value = content[begin + weight["data_offsets"][0]:begin + weight["data_offsets"][1]]
    tied = {"starling_tied": json.dumps({"head": "weight"})}
    for other, expected in ((value, 0), (value[:-1] + bytes([value[-1] ^ 1]), 1)):
        code, said = checked(rewritten(path, head=(weight["dtype"], weight["shape"], other), metadata=tied))
        require(code == expected and "head (tied to weight)" in said, f"{code} {said}")
        require(expected == 0 or "head differs from weight" in said, said)
    code, said = checked(rewritten(path, weight=(weight["dtype"], [len(value) // 4, 1, 1], value)))
    require(code == 1 and "weight has the shape" in said, f"{code} {said}")
    for key, value in (("starling_tied", "[1]"), ("starling_shapes", "[]"), ("starling_shapes", "x")):
        code, said = checked(rewritten(path, metadata={key: value}))
        require(code == 2 and key in said, f"{code} {said}")


def a_name_with_a_comma_is_one_name(place):
    script = written(place, "comma.py", HEAD + """
class Comma(Net):
    def __init__(self):
        super().__init__()
        setattr(self, "a,b", torch.nn.Parameter(torch.ones(2, 3)))
        self.register_buffer("mean", torch.ones(5).fill_(0.25))

def comma():
    return Comma(), build()[1]

train(build=comma)
""")
    code, said = ended(script, OUT=place.path("out"), WORKERS="1")
    require(code == 0, said)
    path = place.path("out/model.safetensors")
    require("a,b" in header(path), header(path))
    code, said = checked(path)
    require(code == 0 and "3 tensors" in said, f"{code} {said}")
    # A file of a build that put commas between the names.
    code, said = ended(written(place, "plain.py", HEAD + "train()\n"), OUT=place.path("plain"), WORKERS="1")
    require(code == 0, said)
    path = place.path("plain/model.safetensors")
    names = json.loads(header(path)["__metadata__"]["starling_order"])
    code, said = checked(rewritten(path, metadata={"starling_order": ",".join(names)}))
    require(code == 0, f"{code} {said}")


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
    script = written(place, "checkpoints.py", KEPT + """
folder = os.environ["OUT"] + "-checkpoints"
if not os.path.exists(os.environ["OUT"] + "-model"):
    train(until_kept(folder), steps=20, checkpoint=folder, checkpoint_every=4)
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
    require(done.returncode == 0 and re.match(r"the model of step (4|8|12|16) is ", done.stdout), done)
    code, said = ended(script, OUT=out)
    require(code == 0, said)


def an_earlier_runs_adapter_is_put_aside_with_its_model(place):
    script = written(place, "more.py", KEPT + """
more = ("--steps", "24") if os.environ.get("STARLING_RESUME") else ()
folder = os.environ["OUT"] + "-checkpoints"
train(until_kept(folder), steps=20, checkpoint=folder, checkpoint_every=4, command=more)
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


def parameters_that_are_no_numbers_are_said(place):
    """No loss shows those that no sample reaches."""
    script = written(place, "unreached.py", HEAD + """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.far = torch.nn.Parameter(torch.zeros(2))
def unsafe(w, g, m, rate):
    m = 0.5 * m + 0.5 * g * g
    return w - rate * g / m.sqrt(), m
train(optimizer=starling.Elementwise(unsafe, moments=1))
""")
    code, said = ended(script, OUT=place.path("out"))
    require(code == 0 and "has parameters that are not finite (NaN or infinity), in far\n" in said, f"{code}: {said[-2000:]}")


AVERAGED = HEAD + """
class Averaged(Net):
    def __init__(self):
        super().__init__()
        self.slow = torch.nn.Module()
        self.slow.register_buffer("bias", torch.zeros(1))
        starling.moving(self.slow)
"""


def a_model_without_an_average_is_not_one_of_a_net_with(place):
    """What the file lacks would stay as the net was made."""
    script = written(place, "without.py", AVERAGED + """
train()
try:
    starling.load(os.environ["OUT"], Averaged())
except ValueError as why:
    print("TOLD", why)
""")
    code, said = ended(script, OUT=place.path("out"))
    require(code == 0 and "TOLD slow.bias, which starling.moving() names, is not in the model; " in said, f"{code}: {said[-2000:]}")


main(a_model_without_an_average_is_not_one_of_a_net_with, parameters_that_are_no_numbers_are_said,
     a_checkpoint_of_a_script_becomes_a_model, an_earlier_runs_adapter_is_put_aside_with_its_model,
     the_saved_model_has_what_is_not_trained_too, a_check_names_what_the_digest_does_not_cover_and_looks_at_it,
     a_name_with_a_comma_is_one_name, a_model_that_cannot_be_made_whole_is_said)
