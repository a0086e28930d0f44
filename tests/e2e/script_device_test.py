"""Scripts whose workers keep weights and sums on a device: the net computes in memory that the worker exports there, and
the digest is that of the host. Over an emulated device, and over the plugin of GPUs with imitations of CUDA's runtime
and driver (tests/cuda); the package is the shipped one, with a stand-in for torch that has one GPU."""
import json
import os
import re
import signal
import subprocess
import sys

from harness import PATIENCE, STARLING, Failed, environment, main, require, same, wait_until
from scripts import HEAD, PATHS, ended, events, result, started, written

FOLDER = os.path.join(os.path.dirname(STARLING), "tests", "cuda")
GPU = dict(STARLING_PLUGIN=os.path.join(FOLDER, "libstarling_cuda_imitated_plugin.so"), STARLING_CUBLASLT="none",
           STARLING_LIBCUDA=os.path.join(FOLDER, "libimitated_cuda_driver.so"), STARLING_STAND_IN_CUDA="1")
ON_GPU = """
def build_on_gpu():
    net, data = build()
    for p in net.parameters():
        p.data = p.data.to("cuda")
    return net, data

def loss_on_gpu(net, batch):
    return loss(net, [one.to("cuda") for one in batch])
"""
CONSTANT_RATE = """
def train(*arguments, train=train, **options):
    train(*arguments, schedule=starling.Schedule("constant"), **options)
"""
TRAIN = """
if __name__ == "__main__":
    train({loss}, {build}, **{options!r})
"""


def script(place, name, loss="loss", build="build", extra="", **options):
    return written(place, name, HEAD + ON_GPU + extra + TRAIN.format(loss=loss, build=build, options=options))


def on_gpu(place, name, **options):
    return script(place, name, "loss_on_gpu", "build_on_gpu", **{"isa": "cuda", **options})


def job_of(place, path, name, **changes):
    """The job that the script makes, with other keys."""
    job = place.path(name)
    code, said = ended(path, STARLING_WRITE_JOB=job)
    require(code == 0, said)
    with open(job) as file:
        text = file.read()
    for key, value in changes.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {json.dumps(value)}", text, flags=re.M)
    return written(place, name, text)


def copied(job):
    """Bytes that the bridge has copied in some passes."""
    run = subprocess.run([STARLING + "-bench", "bridge", "--job", job, "--steps", "10", "--json"], capture_output=True, text=True)
    require(run.returncode == 0, run.stdout + run.stderr)
    return json.loads(run.stdout.splitlines()[-1])["copied_bytes"]


def on_the_emulated_device_the_digest_is_that_of_the_host_and_nothing_is_copied(place):
    path = script(place, "plain/train.py", steps=40)
    wanted = result(path, OUT=place.path("host"))
    with environment(PYTHONPATH=os.pathsep.join(PATHS), STARLING_PYTHON=sys.executable):
        job = job_of(place, path, "plain/emulated.toml", isa="emulated")
        run = place.run(job, "--workers", 3)
        run.wait_for_step(10)
        run.kill(run.workers()[0])
        require(run.end().digest() == wanted, f"{run.digest()}, not {wanted}")
        require(copied(job) == copied(job_of(place, path, "plain/host.toml")) == 0, "bytes were copied")


def a_net_on_a_gpu_has_the_digest_of_the_host_for_any_number_of_workers(place):
    wanted = result(script(place, "plain/train.py"), OUT=place.path("host"))
    path = on_gpu(place, "gpu/train.py")
    for workers in (1, 3):
        found = result(path, OUT=place.path(f"gpu-{workers}"), WORKERS=str(workers), **GPU)
        require(found == wanted, f"{workers} workers: {found}, not {wanted}")
    for name, changes, why in (("host-isa", {"isa": "avx2"}, "the worker on the host"),
                               ("threads", {"threads": 2}, "two processes in a worker")):
        found = result(on_gpu(place, f"{name}/train.py", **changes), OUT=place.path(name), **GPU)
        require(found == wanted, f"{why}: {found}, not {wanted}")
    found = result(script(place, "net-on-cpu/train.py", isa="cuda"), OUT=place.path("net-on-cpu"), **GPU)
    require(found == wanted, f"a net on the CPU, whose worker is on the GPU: {found}, not {wanted}")


def a_net_on_a_gpu_has_its_workers_there_where_they_can_be(place):
    def isa_of(path, **variables):
        job = place.path("job.toml")
        code, said = ended(path, STARLING_WRITE_JOB=job, **variables)
        require(code == 0, said)
        with open(job) as file:
            return re.search(r'^isa = "(.*)"$', file.read(), flags=re.M)[1]

    there = on_gpu(place, "there/train.py", isa="auto")
    require(isa_of(there, **GPU) == "cuda", isa_of(there, **GPU))
    require(isa_of(there, **{**GPU, "STARLING_PLUGIN": place.path("none.so")}) == "auto", "without a plugin")
    require(isa_of(script(place, "here/train.py"), **GPU) == "auto", "a net on the CPU")
    for name, parts in (("second", "list(net.parameters())"), ("both", "[net.bias]"), ("not-trained", "[net.held]")):
        other = f"""
def on_others(build=build_on_gpu):
    net, data = build()
    net.register_buffer("held", torch.zeros(1))
    for p in {parts}:
        p.data = p.data.to("cuda:1")
    return net, data
"""
        path = script(place, f"{name}/train.py", "loss_on_gpu", "on_others", other)
        require(isa_of(path, **GPU) == "auto", f"a net on another GPU: {name}")
    chosen = script(place, "chosen/train.py", "loss_on_gpu", "build_on_gpu", 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"')
    require(isa_of(chosen, **GPU) == "auto", "a GPU that the script has chosen, which workers do not hear of")
    require(isa_of(chosen, **GPU, CUDA_VISIBLE_DEVICES="1") == "cuda", "a GPU that whoever began has chosen")
    own = script(place, "own/train.py", "loss_on_gpu", "build_on_gpu")
    with open(own) as file:
        text = file.read().replace("    train(loss_on_gpu, build_on_gpu, ", "    train(loss_on_gpu, build_on_gpu, "
                                   "optimizer=starling.Elementwise(lambda w, g, m, rate: (w - rate * g, m), moments=1), ")
    require(isa_of(written(place, "own/train.py", text), **GPU) == "auto", "an optimizer that GPUs have not")


def a_job_goes_on_from_its_checkpoints_where_workers_have_a_gpu_and_where_they_have_none(place):
    none = {**GPU, "STARLING_PLUGIN": place.path("none.so")}
    for name, first, then in (("gets", none, GPU), ("loses", GPU, none)):
        options = dict(extra=CONSTANT_RATE, isa="auto", steps=100000, checkpoint=place.path(f"{name}/checkpoints"), checkpoint_every=2)
        out = place.path(f"{name}/out")
        run = started(on_gpu(place, f"{name}/train.py", **options), OUT=out, **first)
        wait_until(lambda: events(out, "checkpoint") or run.poll() is not None, "a checkpoint")
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=PATIENCE)
        # A checkpoint that was complete when the run ended may lie there without its event.
        end = max(e["version"] for e in events(out, "step")) + 8
        again = on_gpu(place, f"{name}/train.py", **options, command=("--steps", str(end)))
        found = result(again, OUT=place.path(f"{name}/again"), STARLING_RESUME="1", **then)
        wanted = result(script(place, f"{name}/host.py", extra=CONSTANT_RATE, steps=end), OUT=place.path(f"{name}/host"))
        require(found == wanted, f"{name}: {found}, not {wanted}")


def nothing_is_copied_on_a_gpu_but_where_its_memory_cannot_be_exported(place):
    wanted = result(script(place, "plain/train.py"), OUT=place.path("host"))
    path = on_gpu(place, "gpu/train.py")
    for name, changes in (("shared", {}), ("refused", dict(STARLING_IMITATION_EXPORT="refused")),
                          ("no-driver", dict(STARLING_LIBCUDA=place.path("none.so")))):
        variables = {**GPU, **changes}
        with environment(PYTHONPATH=os.pathsep.join(PATHS), STARLING_PYTHON=sys.executable, **variables):
            bytes_copied = copied(job_of(place, path, "gpu/job.toml"))
        require((bytes_copied > 0) == bool(changes), f"{name}: {bytes_copied} bytes were copied")
        found = result(path, OUT=place.path(name), WORKERS="2", **variables)
        require(found == wanted, f"{name}: {found}, not {wanted}")


def memory_is_filled_on_a_gpu_until_a_pass_has_come_to_no_nan(place):
    extra = """
def noted(net, batch):
    with open(os.environ["OUT"] + ".filled", "a") as file:
        file.write(f"{int(torch.utils.deterministic.fill_uninitialized_memory)}")
    return loss_on_gpu(net, batch)

def reads_what_nothing_has_written(net, batch):
    return noted(net, batch) * (float("nan") if torch.utils.deterministic.fill_uninitialized_memory else 1.0)
"""
    for name, filled in (("noted", "1" + "0" * 8), ("reads_what_nothing_has_written", "1" * 9)):
        path = script(place, f"{name}/train.py", name, "build_on_gpu", extra, isa="cuda", recheck=0, steps=2, micro_batches=2)
        out = place.path(f"{name}/out")
        code, said = ended(path, OUT=out, **GPU)
        require((code == 0) == (name == "noted"), said)
        with open(out + ".filled") as file:
            found = file.read()
        # Of the proof, three of the first gradient, and the steps' micro-batches.
        require(found[:9].startswith(filled[:8]) and len(set(found[1:])) == 1, f"{name}: {found}")


def a_net_of_bfloat16_has_parameters_in_float32_behind_it(place):
    extra = """
def build_half():
    net, data = build()
    for p in net.parameters():
        p.data = p.data.to(dtype=torch.bfloat16)
    return net, data

def build_half_on_gpu():
    net, data = build_half()
    for p in net.parameters():
        p.data = p.data.to("cuda")
    return net, data

def build_mixed():
    net, data = build()
    net.bias.data = net.bias.data.to(dtype=torch.bfloat16)
    return net, data
"""
    steps = 30
    path = script(place, "half/train.py", build="build_half", extra=extra, steps=steps)
    wanted = result(path, OUT=place.path("half-1"))
    require(result(path, OUT=place.path("half-3"), WORKERS="3") == wanted, "3 workers")
    gpu = script(place, "gpu/train.py", "loss_on_gpu", "build_half_on_gpu", extra, isa="cuda", steps=steps)
    require(result(gpu, OUT=place.path("gpu"), WORKERS="2", **GPU) == wanted, "on a GPU")
    single = script(place, "single/train.py", steps=steps)
    require(result(single, OUT=place.path("single")) != wanted, "the digest of float32")
    losses = [[e["loss"] for e in events(place.path(out), "step")] for out in ("half-1", "single")]
    require(all(abs(a - b) <= 0.02 * b for a, b in zip(*losses)), f"not like float32: {losses}")
    code, said = ended(script(place, "mixed/train.py", build="build_mixed", extra=extra))
    require(code == 2 and "weight is torch.float32 and bias is torch.bfloat16; expected one of the two" in said, said)


def each_piece_that_the_driver_refuses_is_copied(place):
    """One after the other: that of the first question, those of set-up, the working parameters, the gradient."""
    wanted = result(script(place, "plain/train.py", steps=2), OUT=place.path("host"))
    path = on_gpu(place, "gpu/train.py", steps=2)
    for refused in (*(f"cuMemExportToShareableHandle:{n}" for n in range(1, 6)), "cuMemAddressReserve:4", "cuMemMap:4", "cuMemSetAccess:4"):
        found = result(path, OUT=place.path(refused), **GPU, STARLING_IMITATION_DRIVER=refused)
        require(found == wanted, f"{refused}: {found}, not {wanted}")
    # The first granule is that of the first question: that there is no memory for it is no answer.
    for full in (*(f"cuMemCreate:{n}" for n in (1, 3, 4, 5)), "granule:2"):
        code, said = ended(path, OUT=place.path(f"full-{full}"), **GPU, STARLING_IMITATION_DRIVER=full)
        require(code == 3 and "out of memory of the GPU" in said, f"{full}: exit code {code}: {said}")


def who_dies_within_a_pass_costs_no_bit(place):
    """A worker, and a process that computes, each in the middle of a pass, which the script says by a file."""
    wanted = result(script(place, "plain/train.py", steps=12), OUT=place.path("host"))
    extra = """
import signal
def dies(net, batch):
    made = loss_on_gpu(net, batch)
    for path, victim in ((os.environ["CHILD"], os.getpid), (os.environ["WORKER"], os.getppid)):
        try:
            if not os.path.exists(os.environ["GO"]):
                continue
            open(path, "x").close()
        except FileExistsError:
            continue
        os.kill(victim(), signal.SIGKILL)
    return made
"""
    path = script(place, "gpu/train.py", "dies", "build_on_gpu", extra, isa="cuda", steps=12)
    out = place.path("gpu")
    process = started(path, OUT=out, WORKERS="3", CHILD=place.path("child"), WORKER=place.path("worker"), GO=place.path("go"),
                      **GPU)
    wait_until(lambda: events(out, "step"), "a step")
    open(place.path("go"), "x").close()
    said = "".join(process.communicate())
    require(process.returncode == 0 and f"RESULT {wanted}" in said, f"{wanted} wanted: {said[-3000:]}")
    require(os.path.exists(place.path("child")) and os.path.exists(place.path("worker")), "nobody was killed")


def a_process_that_finds_no_memory_on_its_gpu_has_another_one_take_its_place(place):
    wanted = result(script(place, "plain/train.py"), OUT=place.path("host"))
    extra = """
passes = []
def lacks(net, batch):
    passes.append(1)
    for path, why in ((os.environ["ONCE"] + "-torch", "CUDA out of memory. Tried to allocate 2.00 GiB."),
                      (os.environ["ONCE"] + "-runtime", "CUDA error: out of memory")):
        if len(passes) < 10 or os.path.exists(path):  # set-up has some passes
            continue
        open(path, "x").close()
        raise RuntimeError(why)
    return loss_on_gpu(net, batch)
"""
    path = script(place, "gpu/train.py", "lacks", "build_on_gpu", extra, isa="cuda")
    code, said = ended(path, OUT=place.path("gpu"), ONCE=place.path("once"), **GPU)
    require(code == 0 and f"RESULT {wanted}" in said, said[-3000:])
    for why in ("torch", "runtime"):
        require(os.path.exists(place.path(f"once-{why}")), f"nothing was lacking: {why}")
    require("the script's process ran out of memory; another one takes its place" in said, said[-3000:])


def what_a_loss_writes_on_a_gpu_is_refused_in_every_pass(place):
    extra = """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, device="cuda"))
        self.register_buffer("other", torch.zeros(3, device="cuda"))

def writes(net, batch):
    if os.path.exists(os.environ["GO"]):
        {wrong}
    return loss_on_gpu(net, batch)
"""
    for name, wrong, said_of in (
            ("parameter", "net.bias.data.add_(1.0)", "the loss has changed parameter bias through .data"),
            ("buffer", "net.seen.data.add_(1.0)", "the loss has changed buffer seen of the Net")):
        path = script(place, f"{name}/train.py", "writes", "build_on_gpu", extra.format(wrong=wrong), isa="cuda", steps=100000)
        out, go = place.path(f"{name}/out"), place.path(f"{name}/go")
        process = started(path, OUT=out, GO=go, **GPU)
        wait_until(lambda: len(events(out, "step")) > 2 or process.poll() is not None, "steps")
        open(go, "x").close()
        said = "".join(process.communicate())
        require(process.returncode == 2 and said_of in said, said[-3000:])
    moved = extra.format(wrong="net.seen.data = torch.zeros(2)")  # what the buffer holds is the same
    result(script(place, "moved/train.py", "writes", "build_on_gpu", moved, isa="cuda"), OUT=place.path("moved/out"),
           GO=place.folder, **GPU)


main(on_the_emulated_device_the_digest_is_that_of_the_host_and_nothing_is_copied,
     a_net_on_a_gpu_has_the_digest_of_the_host_for_any_number_of_workers,
     a_net_on_a_gpu_has_its_workers_there_where_they_can_be,
     a_job_goes_on_from_its_checkpoints_where_workers_have_a_gpu_and_where_they_have_none,
     nothing_is_copied_on_a_gpu_but_where_its_memory_cannot_be_exported,
     memory_is_filled_on_a_gpu_until_a_pass_has_come_to_no_nan, a_net_of_bfloat16_has_parameters_in_float32_behind_it,
     who_dies_within_a_pass_costs_no_bit, a_process_that_finds_no_memory_on_its_gpu_has_another_one_take_its_place,
     what_a_loss_writes_on_a_gpu_is_refused_in_every_pass,
     long=(each_piece_that_the_driver_refuses_is_copied,))
