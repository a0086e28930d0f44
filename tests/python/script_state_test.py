"""What a script does to parameters, buffers and modes beside the job's optimizer, or says twice, is refused in one line
that names it; what it puts back changes nothing. The package itself computes, for worker.py."""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE] + [os.path.join(os.path.dirname(HERE), name) for name in ("cases", "e2e")]

from harness import SOURCE, main, require  # noqa: E402
from scripts import HEAD, written  # noqa: E402
from worker import BLOCK, SAMPLES, Process, Raised, passes_of  # noqa: E402

sys.path[:0] = [os.path.join(SOURCE, "tools", "python")]
sys.path += [] if os.environ.get("STARLING_TEST_TORCH") else [os.path.join(SOURCE, "tests", "stand_in")]

from starling.proof import drawn  # noqa: E402

# A net with a BatchNorm whose running statistics stand still, as those of a pretrained one do.
NORMED = """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4, affine=False)
        self.norm.running_mean.fill_(0.25)
        self.norm.running_var.fill_(2.0)
        self.norm.eval()
    def forward(self, x):
        return super().forward(self.norm(x))
"""
# One with an average of its weights, half of which are a buffer, that each pass moves.
AVERAGED = """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.slow = torch.nn.Module()
        self.slow.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.slow.register_buffer("bias", torch.zeros(1))
        self.slow.inner = torch.nn.Module()
        self.slow.inner.weight = self.slow.weight
        starling.moving(self.slow)
def moved(net):
    for slow, now in ((net.slow.weight, net.weight), (net.slow.bias, net.bias)):
        with torch.no_grad():
            slow.mul_(0.75)
            slow.add_(now.detach() * 0.25)
def averaged(net, batch):
    moved(net)
    return loss(net, batch) + (net.slow.weight * net.weight).sum(), {"slow": float(net.slow.weight[1])}
"""
# What a loss does, and what is said of it.
IN_A_LOSS = {
    "clamped": ("""
def wrong(net, batch):
    net.weight.data.fill_(0.5)
    return loss(net, batch)
""", "the loss has changed parameter weight through .data; only the job's optimizer may"),
    "replaced": ("""
def wrong(net, batch):
    net.bias.data = torch.zeros(1)
    return loss(net, batch)
""", "the loss has changed parameter bias by giving it other memory (.data = ..)"),
    "exchanged": ("""
def wrong(net, batch):
    net._parameters["bias"] = torch.nn.Parameter(torch.zeros(1))
    return loss(net, batch)
""", "the loss has put another tensor in the place of parameter bias"),
    "buffer": ("""
class Net(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
def wrong(net, batch):
    net.seen.data.add_(1.0)
    return loss(net, batch)
""", "the loss has changed buffer seen of the Net, which would differ from worker to worker"),
    "teacher": ("""
class Net(Net):
    def __init__(self):
        super().__init__()
        self.teacher = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
def wrong(net, batch):
    net.teacher.data.add_(1.0)
    return loss(net, batch)
""", "the loss has changed parameter teacher of the Net, which would differ from worker to worker"),
    "temporary": (AVERAGED + """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.slow.inner.register_buffer("seen", torch.zeros(1), persistent=False)
        starling.moving(self.slow)
def wrong(net, batch):
    net.slow.inner.seen.data.add_(1.0)
    return loss(net, batch)
""", 'the loss has changed buffer slow.inner.seen of module "slow.inner", which would differ from worker to worker'),
    "later": (AVERAGED + """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.slow.later = torch.nn.Module()
        self.slow.later.register_buffer("seen", torch.zeros(1))
def wrong(net, batch):
    net.slow.later.seen.data.add_(1.0)
    return loss(net, batch)
""", "make it a parameter that is trained, or say starling.moving() of its module in build()"),
    "another": (AVERAGED + """
def wrong(net, batch):
    value = loss(net, batch)
    net.slow._buffers["bias"] = torch.zeros(1)
    return value
""", "the loss has put another tensor in the place of buffer slow.bias; it may be changed in place"),
    "another parameter": (AVERAGED + """
def wrong(net, batch):
    net.slow.weight = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
    return loss(net, batch)
""", "the loss has put another tensor in the place of parameter slow.weight; it may be changed in place"),
    "another module": (AVERAGED + """
def wrong(net, batch):
    net.slow.inner = torch.nn.Module()
    return loss(net, batch)
""", "the loss has put another module in the place of slow.inner, which would differ from worker to worker"),
    "another shape": (AVERAGED + """
def wrong(net, batch):
    net.slow.weight.data = torch.zeros(1)
    return loss(net, batch)
""", "the loss has made parameter slow.weight, which moves, torch.float32 (1,) on cpu; expected torch.float32 (4,) on cpu"),
    "from infinity": (AVERAGED + """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.slow.bias.fill_(float("inf"))
def wrong(net, batch):
    net.slow.bias.fill_(1.0)
    return loss(net, batch)
""", "the loss has moved an element of buffer slow.bias that was not finite (NaN or infinity)"),
    "frozen": ("""
def wrong(net, batch):
    value = loss(net, batch)
    net.bias.requires_grad_(False)
    return value
""", "the loss has set requires_grad of parameter bias to False"),
    "mode": ("""
class Net(Net):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Module()
def wrong(net, batch):
    net.body.eval()
    return loss(net, batch)
""", 'the loss has left module "body" in eval() mode'),
    "backward": ("""
def wrong(net, batch):
    loss(net, batch).backward()
    return loss(net, batch)
""", "the loss has computed a gradient itself (backward()), which done() does"),
}
if os.environ.get("STARLING_TEST_TORCH"):
    IN_A_LOSS |= {
        "in the graph": (AVERAGED + """
def wrong(net, batch):
    net.slow.bias.lerp_(net.bias, 0.5)
    return loss(net, batch)
""", "the loss has moved buffer slow.bias by what has a gradient, which makes it part of a graph"),
        "parameter in the graph": (AVERAGED + """
def wrong(net, batch):
    net.slow.weight.lerp_(net.weight, 0.5)
    return loss(net, batch)
""", "the loss has moved parameter slow.weight by what has a gradient, which makes it part of a graph"),
        "thawed": (AVERAGED + """
def wrong(net, batch):
    net.slow.weight.requires_grad_(True)
    return loss(net, batch)
""", "the loss has set requires_grad of parameter slow.weight to True"),
        "normed": (NORMED + """
def wrong(net, batch):
    net.train()
    return loss(net, batch)
""", 'module "norm" is a BatchNorm1d whose running statistics stand still as build() has left them, and the loss has changed'),
        "forgotten": (NORMED.replace("self.norm.eval()", "") + """
def wrong(net, batch):
    value = loss(net, batch)
    net.norm.running_mean = torch.zeros(4)
    return value
""", "the loss has put another tensor in the place of buffer norm.running_mean"),
        "sparse": ("""
class Net(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.eye(4).to_sparse())
def wrong(net, batch):
    net.mask.data._values().add_(1.0)
    return loss(net, batch)
""", "the loss has changed buffer mask of the Net, which would differ from worker to worker"),
        "quantized": ("""
class Net(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.quantize_per_tensor(torch.zeros(4), 0.1, 0, torch.quint8))
def wrong(net, batch):
    net.table.data.copy_(torch.ones(4))
    return loss(net, batch)
""", "the loss has changed buffer table of the Net, which would differ from worker to worker"),
    }
IN_A_LOOP = {
    "twice": ("mb.done(loss(job.net, mb.batch()))", "was given its loss already: add losses up and call done() once"),
    "late": ("loss(job.net, mb.batch()).backward()", "a gradient was computed (backward()) that belongs to no micro-batch"),
}
IN_BUILD = {
    "tied": ("""
def build():
    net, data = Net(), globals()["data"]
    net.other = torch.nn.Parameter(torch.zeros(4))
    net.other.data = net.weight.data
    return net, data
""", "share memory, and would not after the first step; make them one nn.Parameter"),
    "moving": ("""
def build():
    net, data = Net(), globals()["data"]
    starling.moving(net)
    return net, data
""", "parameter weight of a Net that moves is trained: the optimizer moves it; expected requires_grad_(False)"),
    "moving_alone": ("""
def build():
    net, data = Net(), globals()["data"]
    net.slow = starling.moving(torch.nn.Parameter(torch.zeros(4), requires_grad=False))
    return net, data
""", "a Parameter cannot be said to move, expected a module that has it"),
    "named": ("""
def build():
    net = Net()
    net.p = torch.nn.Module()
    net.p._parameters["a:2"] = torch.nn.Parameter(torch.zeros(4))
    return net, globals()["data"]
""", "parameter 'a:2' of module \"p\" has a name that a job cannot have"),
}
if os.environ.get("STARLING_TEST_TORCH"):
    IN_BUILD["buffers"] = NORMED.replace("self.norm.eval()", "") + """
def build():
    net = Net()
    net.other = torch.nn.BatchNorm1d(4, affine=False)
    net.other.running_var = net.norm.running_var
    return net, globals()["data"]
""", "buffer norm.running_var and buffer other.running_var share memory"


def computed(place, name, text):
    return passes_of(written(place, name + ".py", HEAD + text))


def refused(place, name, text, line):
    try:
        found = computed(place, name, text)
    except Raised as why:
        require(line in str(why), f"{name}: {why}")
    else:
        raise AssertionError(f"{name}: nothing was said, losses {[loss for loss, _, _ in found]}")


def asked_and_told(script, ask, line):
    """ask(process) raises what has the line."""
    process = Process(script, elements=4 * BLOCK)
    try:
        ask(process)
    except Raised as why:
        require(line in str(why), why)
    else:
        raise AssertionError(f"nothing was said, expected: {line}")
    finally:
        process.close()


def what_a_loss_leaves_changed_is_named(place):
    for name, (wrong, line) in IN_A_LOSS.items():
        refused(place, name, wrong + "train(wrong)\n", line)


def what_an_evaluation_leaves_changed_is_named(place):
    for name in ("clamped", "replaced", "exchanged", "buffer", "teacher"):
        text, wanted = IN_A_LOSS[name]
        process = Process(written(place, f"evaluating-{name}.py",
                                  HEAD + text + "train(validation=build()[1], evaluate=wrong)\n"))
        try:
            process.passes(1)
            value = process.evaluate(0)
        except Raised as why:
            require(wanted.replace("the loss", "the evaluation") in str(why), f"{name}: {why}")
        else:
            require(False, f"{name}: {value}")
        finally:
            process.close()


def what_a_loop_says_twice_is_refused(place):
    for name, (wrong, line) in IN_A_LOOP.items():
        refused(place, name, f"""
job = starling.Job(build, steps=8)
for step in job:
    for mb in step.mine:
        mb.done(loss(job.net, mb.batch()))
        if step.number >= 1:
            {wrong}
""", line)


def what_cannot_be_trained_is_named(place):
    for name, (wrong, line) in IN_BUILD.items():
        refused(place, name, "data = build()[1]\n" + wrong + "train(build=build)\n", line)


# Samples of which one holds what nobody can compare: a generator.
UNCLEAR = """
class Samples:
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return 512
    def __getitem__(self, i):
        x, y = self.data[i % 64]
        return x, y, (n for n in [1]) if i == {at} else None
def built():
    net, data = build()
    return net, Samples(data)
def collate(rows):
    xs, ys, rest = zip(*rows)
    return torch.stack(xs), torch.stack(ys), rest
train(build=built, collate=collate)
"""
LINE = "a sample of Samples holds a generator, whose content cannot be compared; give the Dataset an `identity`"


def what_cannot_be_compared_at_the_start_is_named(place):
    refused(place, "unclear", UNCLEAR.format(at=drawn(512)[9]), LINE)


def what_cannot_be_compared_later_is_named(place):
    at = next(i for i in range(512) if i not in drawn(512))
    process = Process(written(place, "later.py", HEAD + UNCLEAR.format(at=at)))
    try:
        for number in range(128):
            data = process.ask(b"d" + struct.pack("<Q", number))
            require(len(data) == 16 and number != at // 4, f"batch {number}: {data!r}")
    except Raised as why:
        require(LINE in str(why) and number == at // 4, f"batch {number}: {why}")
    else:
        raise AssertionError("nothing was said")
    finally:
        process.close()


def what_is_put_back_changes_no_bit(place):
    swaps = """
def swaps(net, batch):
    before = net.weight.data.clone()
    net.weight.data.fill_(0.0)
    net.weight.data.copy_(before)
    net.eval()
    net.train()
    return loss(net, batch)
train(swaps)
"""
    require(computed(place, "swaps", swaps) == computed(place, "plain", "train()\n"), "other losses or gradients")


def modes_are_as_build_has_left_them(place):
    found = computed(place, "modes", """
def built():
    net, data = build()
    net.body = torch.nn.Module()
    net.body.eval()
    return net, data
def measured(net, batch):
    return loss(net, batch), {"net": float(net.training), "body": float(net.body.training)}
train(measured, built, metrics=["net", "body"])
""")
    require([metrics for _, metrics, _ in found] == [(1.0, 0.0)] * 4, found)


def a_metric_is_one_number(place):
    for name, value, found in (("text", "'much'", "a str"), ("none", "None", "a NoneType"),
                               ("several", "[1.0, 2.0]", "a list")):
        refused(place, name, f"""
def measured(net, batch):
    return loss(net, batch), {{"much": {value}}}
train(measured, metrics=["much"])
""", f"metric much must be one number, is {found}")
    found = computed(place, "tensor", """
def measured(net, batch):
    value = loss(net, batch)
    return value, {"much": value}
train(measured, metrics=["much"])
""")
    require(all(metrics == (value,) for value, metrics, _ in found), found)


def statistics_that_stand_still_are_accepted(place):
    """Of eval(), and of momentum=0, where each micro-batch has statistics of its own."""
    if not os.environ.get("STARLING_TEST_TORCH"):
        return
    measure = """
def measured(net, batch):
    return loss(net, batch), {"mean": float(net.norm.running_mean[0]), "count": float(net.norm.num_batches_tracked),
                              "on": float(net.norm.training)}
train(measured, metrics=["mean", "count", "on"])
"""
    whole = computed(place, "evaluating", NORMED + measure)
    require([metrics for _, metrics, _ in whole] == [(0.25, 0.0, 0.0)] * 4, whole)
    moving = NORMED.replace("self.norm.eval()", "self.norm.momentum = 0.0")
    # The counter counts within a pass alone.
    still = computed(place, "momentum", moving + measure)
    require([metrics for _, metrics, _ in still] == [(0.25, 1.0, 1.0)] * 4, still)
    # A batch that is not finite ends nothing: its step is skipped. Of an InstanceNorm no momentum is one of 0.
    far = computed(place, "far", moving + """
def far(net, batch):
    net.norm(torch.full((4, 4), float("inf")))
    return measured(net, batch)
""" + measure.replace("train(measured", "train(far"))
    require([metrics[1:] for _, metrics, _ in far] == [(2.0, 1.0)] * 4, far)
    instance = moving.replace("BatchNorm1d(4, affine=False)", "InstanceNorm1d(2, track_running_stats=True)").replace(
        "momentum = 0.0", "momentum = None").replace("self.norm(x)", "self.norm(x.reshape(-1, 2, 2)).reshape(-1, 4)")
    require(len(computed(place, "instance", instance + "train()\n")) == 4, "an InstanceNorm without momentum")
    require([loss for loss, _, _ in still] != [loss for loss, _, _ in whole], "train() and eval() give the same")


def statistics_that_move_are_tensors_of_the_job(place):
    """A pass begins with those of its step, whatever passes were before it, and their gradient is old less new."""
    if not os.environ.get("STARLING_TEST_TORCH"):
        return
    script = written(place, "moving.py", HEAD + NORMED.replace("self.norm.eval()", "") + """
def measured(net, batch):
    value = loss(net, batch)
    return value, {"mean": float(net.norm.running_mean[1]), "variance": float(net.norm.running_var[1])}
train(measured, metrics=["mean", "variance"], validation=build()[1], evaluate=measured)
""")
    first, places = (0.25, 2.0), (2 * BLOCK + 1, 3 * BLOCK + 1)
    process = Process(script, elements=4 * BLOCK)
    try:
        begun, seen = [], []
        for samples in (SAMPLES, (5, 6, 7, 8), SAMPLES):
            begun.append(tuple(process.parameters[at] for at in places))
            ((_, made, gradient),) = process.passes(1, samples)
            seen.append(made)
            for at, old, new in zip(places, first, made):
                require(new != old and abs(gradient[at] - (old - new)) < 1e-6, (at, old, new, gradient[at]))
            process.initialise()
        require(begun == [first] * 3 and seen[0] == seen[2] != seen[1], (begun, seen))
        process.passes(1)
        process.parameters[0] = 1.0
        before = process.evaluate(1)
        process.parameters[places[0] - 1] += 1.0
        require(process.evaluate(2) != before, "held-out data are seen with other statistics than the step's")
    finally:
        process.close()


def what_is_said_to_move_is_a_tensor_of_the_job(place):
    """A buffer, and a parameter that is not trained."""
    def script(name, moves):
        return written(place, name, HEAD + AVERAGED + f"""
def evaluated(net, batch):
    {moves}
    return (net.slow.weight * batch[0]).sum()
train(averaged, metrics=["slow"], validation=build()[1], evaluate=evaluated, evaluate_metrics=[])
""")
    weight, bias, slow_weight, slow_bias = (i * BLOCK for i in range(4))
    process = Process(script("averaged.py", "pass"), elements=4 * BLOCK)
    try:
        require(list(process.parameters[slow_weight:slow_weight + 4]) == [1.0] * 4, "the first ones are not build()'s")
        for old in (1.0, 1.0, 5.0):  # whatever passes were before
            process.parameters[weight + 1], process.parameters[bias] = 3.0, 2.0
            process.parameters[slow_weight + 1] = process.parameters[slow_bias] = old
            ((_, (made,), gradient),) = process.passes(1)
            require(made == 0.75 * old + 0.25 * 3.0, made)
            require(gradient[slow_weight + 1] == old - made and gradient[slow_bias] == old - (0.75 * old + 0.25 * 2.0), (old, made))
            require(gradient[weight + 1] != 0, "nothing is trained")
        before = process.evaluate(1)
        process.parameters[slow_weight] += 1.0
        require(process.evaluate(2) != before, "held-out data are seen with another average than the step's")
    finally:
        process.close()
    asked_and_told(script("moves.py", "moved(net)"), lambda process: process.evaluate(0),
                   "the evaluation has changed parameter slow.weight, which passes of the loss alone may move")


def what_a_loop_moves_between_two_passes_is_refused(place):
    script = written(place, "between.py", HEAD + AVERAGED + """
job = starling.Job(build, steps=8, metrics=["slow"])
for step in job:
    for mb in step.mine:
        value, metrics = averaged(job.net, mb.batch())
        mb.done(value, **metrics)
        moved(job.net)
""")
    asked_and_told(script, lambda process: process.passes(2),
                   "parameter slow.weight was changed between two passes, of which the job would know nothing")


def what_moves_may_be_given_other_memory_and_hold_what_is_not_finite(place):
    """Also a trained parameter's memory, which nothing is written to then."""
    head = HEAD + AVERAGED + """
class Net(Net):
    def __init__(self):
        super().__init__()
        self.slow.register_buffer("mask", torch.ones(2).fill_(-float("inf")))
def given(net, batch):
    net.slow.weight.data = net.weight.data
    return loss(net, batch)
train({loss}, metrics=[{metrics}])
"""
    weight, bias, slow_weight, slow_bias, mask = (i * BLOCK for i in range(5))
    for loss, metrics in (("given", ""), ("averaged", "'slow'")):
        process = Process(written(place, f"{loss}.py", head.replace("{loss}", loss).replace("{metrics}", metrics)), elements=5 * BLOCK)
        try:
            for old in (1.0, 5.0):
                process.parameters[weight + 1], process.parameters[slow_weight + 1] = 3.0, old
                ((_, _, gradient),) = process.passes(1)
                made = 3.0 if loss == "given" else 0.75 * old + 0.25 * 3.0
                require(gradient[slow_weight + 1] == old - made, (loss, old, gradient[slow_weight + 1]))
                require(list(gradient[mask:mask + 2]) == [0.0, 0.0], "a mask that stands still moves")
        finally:
            process.close()


def statistics_of_every_pass_are_refused(place):
    if not os.environ.get("STARLING_TEST_TORCH"):
        return
    refused(place, "cumulative", NORMED.replace("self.norm.eval()", "self.norm.momentum = None") + "train()\n",
            'module "norm" is a BatchNorm1d with momentum=None, whose running statistics are means over all passes')
    script = written(place, "evaluating-train.py", HEAD + NORMED.replace("self.norm.eval()", "") + """
def evaluated(net, batch):
    net.train()
    value = loss(net, batch)
    net.eval()
    return value
train(validation=build()[1], evaluate=evaluated)
""")
    asked_and_told(script, lambda process: process.evaluate(0), "the evaluation has changed buffer norm.running_mean")


def a_fork_of_the_script_does_not_hold_the_workers_socket(place):
    found = computed(place, "forks", """
def forks(net, batch):
    fork = os.fork()
    if fork == 0:
        held = [os.readlink(f"/proc/self/fd/{n}") for n in range(64) if os.path.lexists(f"/proc/self/fd/{n}")]
        os._exit(sum(name.startswith("socket:") for name in held))
    held = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    return loss(net, batch), {"held": float(held)}
train(forks, metrics=["held"])
""")
    require([metrics for _, metrics, _ in found] == [(0.0,)] * 4, [metrics for _, metrics, _ in found])


def a_net_that_is_there_before_train_has_its_first_parameters(place):
    """The worker asks for the first parameters again when the process has had its memory."""
    texts = {
        "new": "train(build=lambda: (first(Net()), build()[1]))\n",
        "there": "NET = first(Net())\ntrain(build=lambda: (NET, build()[1]))\n",
        "wrapped": "NET = first(Net())\nclass Around(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                   "        self.net = NET\n    def forward(self, x):\n        return self.net(x)\n"
                   "train(build=lambda: (Around(), build()[1]))\n",
        "cached": "import functools\nmade = functools.lru_cache(build)\ntrain(build=made)\n"}
    first = """
def first(net):
    with torch.no_grad():
        net.weight.fill_(0.5)
        net.bias.fill_(-2.0)
    return net
"""
    for name, text in texts.items():
        process = Process(written(place, f"{name}.py", HEAD + first + text))
        try:
            begun = list(process.parameters)
            require(name == "cached" or begun[:5] == [0.5] * 4 + [0.0] and begun[BLOCK] == -2.0, f"{name}: {begun}")
            process.passes(2)
            process.initialise()
            require(list(process.parameters) == begun and name != "cached", f"{name}: {list(process.parameters)[:5]}")
            process.passes(1)
        except Raised as why:
            require(name == "cached" and "build() returns a net that it has made before, whose parameters are the job's by"
                    " now; expected a new one each time" in str(why), f"{name}: {why}")
        finally:
            process.close()


if __name__ == "__main__":
    main(a_metric_is_one_number,
         what_a_loss_leaves_changed_is_named,
         what_an_evaluation_leaves_changed_is_named,
         what_a_loop_says_twice_is_refused,
         what_cannot_be_trained_is_named,
         what_cannot_be_compared_at_the_start_is_named,
         what_cannot_be_compared_later_is_named,
         what_is_put_back_changes_no_bit,
         modes_are_as_build_has_left_them,
         statistics_that_stand_still_are_accepted,
         statistics_that_move_are_tensors_of_the_job,
         what_is_said_to_move_is_a_tensor_of_the_job,
         what_a_loop_moves_between_two_passes_is_refused,
         what_moves_may_be_given_other_memory_and_hold_what_is_not_finite,
         statistics_of_every_pass_are_refused,
         a_fork_of_the_script_does_not_hold_the_workers_socket,
         a_net_that_is_there_before_train_has_its_first_parameters)
