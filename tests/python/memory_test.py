"""Where parameters and gradients lie in a script's process (memory.py) whose worker has them in the host's memory; with a
stand-in for torch that has GPUs. tests/e2e/script_device_test.py has a worker whose memory is a GPU's."""
import array
import os
import struct
import sys
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "e2e")]

from harness import SOURCE, main, require  # noqa: E402

os.environ["STARLING_STAND_IN_CUDA"] = "1"
sys.path[:0] = [os.path.join(SOURCE, "tools", "python"), os.path.join(SOURCE, "tests", "stand_in")]

import torch  # noqa: E402
from starling import child, memory  # noqa: E402

SHAPES = [torch.Size(shape) for shape in ((3, 2), (), (5,), (4,))]
BLOCK = 8  # elements; a tensor begins at a multiple
FIRSTS = [BLOCK * i for i in range(len(SHAPES))]
ELEMENTS = BLOCK * len(SHAPES)


class Worker:
    """Has a file with parameters or a gradient, from the middle of a page on."""

    OFFSET = 64

    def __init__(self, values):
        self.file = os.memfd_create("worker")
        os.ftruncate(self.file, self.OFFSET + 4 * ELEMENTS)
        memory_of, _ = memory.mapped(self.file, 0, self.OFFSET + 4 * ELEMENTS)
        self.floats = memoryview(memory_of)[self.OFFSET:].cast("f")
        self.floats[:] = memoryview(array.array("f", values))

    def place(self):
        return memory.Place(os.dup(self.file), False, self.OFFSET, self.OFFSET + 4 * ELEMENTS)

    def of_tensor(self, i):
        return list(self.floats[FIRSTS[i]:FIRSTS[i] + SHAPES[i].numel()])


def held(devices, weights, gradient):
    tensors = memory.Tensors(FIRSTS, SHAPES, [torch.device(name) for name in devices], [torch.float32] * len(SHAPES))
    kind = memory.Here if set(devices) == {"cpu"} else memory.Elsewhere
    return kind(torch, tensors, weights.place(), gradient.place(), 4 * ELEMENTS)


def open_files_and_mappings():
    with open("/proc/self/maps") as file:
        return len(os.listdir("/proc/self/fd")), sum("memfd:worker" in line for line in file)


def equal(found, wanted):
    require(found == wanted, f"{found}, not {wanted}")


EVERY_WAY = (["cpu"] * 4, ["cuda:0"] * 4, ["cuda:0", "cpu", "cpu", "cuda:0"], ["cpu", "cuda:0", "cuda:1", "cuda:0"])


def each_tensor_is_on_its_device_and_its_gradient_comes_to_its_place(place):
    del place
    for devices in EVERY_WAY:
        weights, gradient = Worker(range(1, ELEMENTS + 1)), Worker([7] * ELEMENTS)
        before = open_files_and_mappings()
        one = held(devices, weights, gradient)
        for step in (0, 1):
            weights.floats[0] = step
            one.renew()
            wanted = [0.0] * ELEMENTS  # also between tensors
            for i, (p, g) in enumerate(zip(one.parameters, one.gradients)):
                equal([str(p.device), str(g.device)], [devices[i]] * 2)
                equal((p.shape, g.shape), (SHAPES[i], SHAPES[i]))
                equal(p.reshape(-1).tolist() if p.shape else [p.item()], weights.of_tensor(i))
                g.fill_(10.0 * step + i)
                wanted[FIRSTS[i]:FIRSTS[i] + g.numel()] = [10.0 * step + i] * g.numel()
            equal(one.changed(everything=True), None)
            one.finish()
            equal(list(gradient.floats), wanted)
        del one, p, g
        equal(open_files_and_mappings(), before)


def an_element_that_was_written_is_found_in_each_tensor(place):
    del place
    for devices in EVERY_WAY:
        weights = Worker(range(1, ELEMENTS + 1))
        one = held(devices, weights, Worker([0] * ELEMENTS))
        one.renew()
        for i, p in enumerate(one.parameters):
            p.view(-1)[p.numel() - 1:].fill_(float("nan"))
            equal(one.changed(everything=True), FIRSTS[i] + p.numel() - 1)
            p.copy_(torch.tensor(weights.of_tensor(i)))
            equal(one.changed(everything=True), None)


def a_gradient_is_float32_whatever_type_the_script_has_for_new_tensors(place):
    del place
    torch.set_default_dtype(torch.bfloat16)
    try:
        for devices in EVERY_WAY:
            gradient = Worker([0] * ELEMENTS)
            one = held(devices, Worker([1] * ELEMENTS), gradient)
            for g in one.gradients:
                g.fill_(1 + 2.0 ** -20)
            one.finish()
            equal({value for i in range(len(SHAPES)) for value in gradient.of_tensor(i)}, {1 + 2.0 ** -20})
    finally:
        torch.set_default_dtype(torch.float32)


def what_is_tried_is_answered_and_leaves_nothing_open(place):
    def tried(gpu, device):
        """Whether gradients can be made in a place of the worker's, by a net that is on the device."""
        worker, said = Worker([0] * ELEMENTS), []
        server = SimpleNamespace(_torch=torch, _mapping=memory, _trained=[("a", torch.zeros(1, device=device))], _channel=SimpleNamespace(
            files=lambda: [os.dup(worker.file)], reply=said.append))
        server._place_of = lambda *given: child.Server._place_of(server, *given)
        before = open_files_and_mappings()
        child.Server._try(server, memoryview(struct.pack("<BQQ", gpu, worker.OFFSET, worker.OFFSET + 4 * ELEMENTS)))
        equal(open_files_and_mappings(), before)
        return said == [b"\1"]

    require(tried(False, "cuda:0") and tried(False, "cpu"), "the host's memory")
    require(not tried(True, "cpu") and not tried(True, "cuda:1"), "a net that is not on the worker's GPU")
    for library in (place.path("none.so"), "libc.so.6"):  # no driver, and one that cannot map
        os.environ["STARLING_LIBCUDA"] = library
        require(not tried(True, "cuda:0"), library)


main(each_tensor_is_on_its_device_and_its_gradient_comes_to_its_place, an_element_that_was_written_is_found_in_each_tensor,
     a_gradient_is_float32_whatever_type_the_script_has_for_new_tensors, what_is_tried_is_answered_and_leaves_nothing_open)
