#!/usr/bin/env python3
"""The Python package as people use it: a loop of one's own, options of train(), load(), join().

  package.py STARLING

Run it with an interpreter that has torch and the starling package. One line for each; exit code 1 if one failed."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import same_bits

STARLING = os.path.abspath(sys.argv[1])
os.environ["STARLING"] = STARLING


def script(name, out, **environment):
    ended = subprocess.run([sys.executable, os.path.join(same_bits.HERE, name)], capture_output=True, text=True,
                           env={**os.environ, "MODEL": "mlp", "STEPS": "20", "OUT": out, **environment})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def digest_in(text):
    return re.findall(r"digest ([0-9a-f]+)", text)[-1]


def first_level(folder):
    return digest_in(script("models.py", os.path.join(folder, "first")))


def a_loop_of_ones_own_gives_the_same_bits(folder):
    text = script("second_level.py", os.path.join(folder, "second"), WORKERS="3")
    assert digest_in(text) == first_level(folder), text
    assert "computed here 0" in text  # the process that a person starts computes nothing


def options_of_train_do_what_they_say(folder):
    texts = {option: script("options.py", os.path.join(folder, option), OPTION=option)
             for option in ("init", "evaluate", "sgd", "adam")}
    assert len({digest_in(text) for text in texts.values()}) == 4, texts
    assert 0 < float(texts["evaluate"].split("evaluation ")[1]) < 2, texts["evaluate"]
    assert "steps 20" in texts["adam"]


def metrics_are_the_same_whoever_computes(folder):
    texts = [script("options.py", os.path.join(folder, f"metrics-{w}"), OPTION="metrics", WORKERS=str(w)) for w in (1, 3)]
    assert len({re.findall("metrics .*}", text)[-1] for text in texts}) == 1, texts
    found = dict(re.findall(r"'(right|wrong)': ([0-9.]+)", texts[0]))
    assert 0 < float(found["right"]) < 1 and abs(float(found["right"]) + float(found["wrong"]) - 1) < 1e-6, texts[0]
    plain = script("options.py", os.path.join(folder, "plain"), OPTION="plain")
    assert digest_in(texts[0]) == digest_in(plain)  # what is measured changes nothing


def resume_goes_on_from_a_checkpoint_to_the_same_bits(folder):
    whole = script("options.py", os.path.join(folder, "first"), OPTION="first")
    text = script("options.py", os.path.join(folder, "resume"), OPTION="resume")
    assert digest_in(text) == digest_in(whole) and "goes on from the checkpoint of step" in text, text


def load_gives_what_was_trained(folder):
    import torch

    import models
    import starling

    out = os.path.join(folder, "load")
    script("models.py", out)
    net, _ = models.build()
    before = net.layers[0].weight.clone()
    tensors = starling.load(out, net)
    assert list(tensors) and not torch.equal(before, net.layers[0].weight)
    assert torch.equal(net.layers[0].weight, tensors["layers.0.weight"])
    try:
        starling.load(out, torch.nn.Linear(2, 2))
    except ValueError as why:
        assert "which the net trains, is not in the model" in str(why), why
    else:
        raise AssertionError("another net's parameters were taken")


def a_machine_joins_with_its_own_copy_of_the_script(folder):
    run = same_bits.Run("mlp", 2, 60, PACE="0.05")
    while run.step() < 3:
        run.look()
    start = next(e for e in run.events if e["ev"] == "start")
    copy = os.path.join(folder, "copy.py")
    with open(same_bits.SCRIPT, encoding="utf-8") as file, open(copy, "w", encoding="utf-8") as to:
        to.write(file.read())
    joined = subprocess.run(
        [sys.executable, "-c", "import sys, starling; sys.exit(starling.join(sys.argv[1], sys.argv[2], keys=sys.argv[3],"
         " command=['--save', 'none']))", start["address"], copy, start["keys"]], capture_output=True, text=True,
        env={**os.environ, "MODEL": "mlp", "PACE": "0.05"})
    code = run.wait()
    joined_events = [e for e in run.events if e["ev"] == "worker" and e["what"] == "joined"]
    text = run.text()
    run.close()
    assert code == 0 and joined.returncode == 0 and len(joined_events) == 3, (code, joined, text)


def what_ends_the_script_ends_the_job(folder):
    for number, code, group in ((signal.SIGTERM, 143, False), (signal.SIGINT, 130, True)):
        process = subprocess.Popen(
            [sys.executable, same_bits.SCRIPT], start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
            preexec_fn=same_bits.hear_interrupts,
            env={**os.environ, "MODEL": "mlp", "STEPS": "500", "PACE": "0.05", "OUT": os.path.join(folder, str(code))})
        while not os.path.exists(os.path.join(folder, str(code), "loss.svg")) and process.poll() is None:
            events = os.path.join(folder, str(code), "events.jsonl")
            if os.path.exists(events) and '"ev":"step"' in open(events, encoding="utf-8").read():
                break
            time.sleep(0.05)
        os.killpg(process.pid, number) if group else process.send_signal(number)
        _, text = process.communicate()
        assert process.returncode == code, (process.returncode, text)
        assert "Traceback" not in text, text
        assert not same_bits.left_behind(), same_bits.left_behind()


def the_distribution_has_a_name_of_its_own(_):
    from importlib import metadata

    import starling

    if "site-packages" in starling.__file__:  # else it is no wheel's
        assert metadata.version("starling-elastic") == starling.__version__
        owners = metadata.packages_distributions().get("starling") if sys.version_info >= (3, 10) else ["starling-elastic"]
        assert set(owners) == {"starling-elastic"}, owners


def what_is_trained_is_out_of_reach_of_functions_while_it_trains(folder):
    import copy

    import torch
    from starling.away import out_of_reach
    from starling.module import tensor_texts
    from starling.script import Refused

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    net[1].bias.requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    average = [torch.zeros(4, 4)]
    with out_of_reach(net):
        assert tensor_texts(net)[0] == "0.weight:4x4" and sum(p.numel() for p in net.parameters()) == 28
        assert float(net[1].bias.sum()) == 0  # which nobody trains
        for reads in (lambda: net(torch.ones(2, 4)), net.state_dict, lambda: copy.deepcopy(net), lambda: net[0].weight.data,
                      lambda: net[0].weight.tolist(), lambda: average[0].lerp_(net[0].weight, 0.5),
                      lambda: torch._foreach_lerp_(average, [net[0].weight], 0.5), lambda: net[0].weight.requires_grad_(False)):
            try:
                reads()
            except Refused as why:
                assert "is read while the job trains" in str(why), why
            else:
                raise AssertionError("read")
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())
    net(torch.ones(2, 4)).sum().backward()
    assert type(net[0].weight) is torch.nn.Parameter and net[0].weight.grad is not None

    path = os.path.join(folder, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("""
import os, torch, starling
net = torch.nn.Linear(4, 1)
average = torch.zeros(1, 4)

def read(step):
    assert net.weight.shape == (1, 4)
    average.lerp_(net.weight, 0.5)

starling.train(lambda: (net, torch.ones(16, 4)), lambda net, x: net(x).square().mean(), steps=4, micro_batches=2, batch_size=2, workers=1,
               optimizer=torch.optim.SGD(net.parameters(), lr=0.1), out=os.environ["OUT"], on_step=read)
""")
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, env={**os.environ, "OUT": os.path.join(folder, "out")})
    said = [line for line in ended.stderr.splitlines() if line.startswith("starling: ")]
    assert ended.returncode == 2 and len(said) == 1 and "parameter weight is read while the job trains" in said[0], ended


def autocast_around_train_is_autocast_in_the_loss(folder):
    """Which keeps the rounded copies of parameters that it has made, of other steps too."""
    path = os.path.join(folder, "train.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("""
import contextlib, os, torch, starling

def build():
    x = torch.randn(64, 8)
    return torch.nn.Linear(8, 1), torch.utils.data.TensorDataset(x, x[:, :2].sum(1, keepdim=True))

def within(place):
    return torch.autocast("cpu", torch.bfloat16) if os.environ["AUTOCAST"] == place else contextlib.nullcontext()

def loss(net, batch):
    with within("loss"):
        return (net(batch[0]).float() - batch[1]).square().mean()

with within("train"):
    trained = starling.train(build, loss, steps=8, micro_batches=2, batch_size=4, workers=1, optimizer=starling.SGD(0.05),
                             out=os.environ["OUT"])
print("digest", trained.digest)
""")
    digests = []
    for place in ("loss", "train", "nowhere"):
        ended = subprocess.run([sys.executable, path], capture_output=True, text=True,
                               env={**os.environ, "AUTOCAST": place, "OUT": os.path.join(folder, place)})
        assert ended.returncode == 0, ended.stdout + ended.stderr
        digests.append(digest_in(ended.stdout))
    assert digests[0] == digests[1] != digests[2], digests


def a_process_in_a_lost_ones_place_imports_no_compiler(folder):
    """It has that of the process that it is forked from, unless the script says how a compiler is to be (TORCH.., TRITON..)."""
    path = os.path.join(folder, "train.py")
    text = """import os, sys, torch, starling

THERE = "torch._inductor.config" in sys.modules

def build():
    with open(os.environ["OUT"] + "-seen", "a") as file:
        file.write(f"{os.getpid()} {THERE} {torch.are_deterministic_algorithms_enabled()} {torch._inductor.config.deterministic}\\n")
    return torch.nn.Linear(8, 1), torch.utils.data.TensorDataset(torch.ones(16, 8))

def loss(net, batch):
    loss.calls = getattr(loss, "calls", 0) + 1
    if loss.calls == 6 and not os.path.exists(os.environ["OUT"] + "-died"):
        open(os.environ["OUT"] + "-died", "w").close()
        os._exit(7)
    return net(batch[0]).square().mean()

if __name__ == "__main__":
    print("digest", starling.train(build, loss, steps=8, micro_batches=2, batch_size=4, workers=1, out=os.environ["OUT"]).digest)
"""
    for name, more, there in (("warm", "", "True"), ("named", "# TORCHINDUCTOR_CACHE_DIR\n", "False"),
                              ("triton", "# TRITON_INTERPRET\n", "False")):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + more)
        out = os.path.join(folder, name)
        ended = subprocess.run([sys.executable, path], capture_output=True, text=True, env={**os.environ, "OUT": out})
        assert ended.returncode == 0 and "another one takes its place" in ended.stderr, ended
        with open(out + "-seen", encoding="utf-8") as file:
            computing = {pid: seen for pid, *seen in map(str.split, file) if seen[1] == "True"}
        assert list(computing.values()) == [[there, "True", "True"]] * 2, computing


def main():
    failed = 0
    cases = (a_loop_of_ones_own_gives_the_same_bits, options_of_train_do_what_they_say,
             metrics_are_the_same_whoever_computes, resume_goes_on_from_a_checkpoint_to_the_same_bits, load_gives_what_was_trained,
             a_machine_joins_with_its_own_copy_of_the_script, what_ends_the_script_ends_the_job,
             what_is_trained_is_out_of_reach_of_functions_while_it_trains,
             autocast_around_train_is_autocast_in_the_loss, a_process_in_a_lost_ones_place_imports_no_compiler,
             the_distribution_has_a_name_of_its_own)
    for case in cases:
        try:
            with tempfile.TemporaryDirectory() as folder:
                case(folder)
            print(f"ok     {case.__name__}", flush=True)
        except Exception as why:  # the others are run all the same
            failed += 1
            print(f"FAILED {case.__name__}: {why}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
