"""The process that computes for a worker: requests come over a socket, parameters and gradients lie in
memory that both map. actors/script/ has the other end; a frame is a length (u32), the request's number
(u32), which its reply repeats, and so many bytes."""

from __future__ import annotations

import array
import contextlib
import faulthandler
import fcntl
import gc
import io
import math
import operator
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
import traceback
from types import ModuleType
from typing import Any, Callable, Iterator, Mapping, Sequence

from . import sampling, validation
from .feed import Feed
from .model_file import own_names
from .order import Coming, Order
from .script import Reader, Refused, Script, Start, check_ages, check_start, check_texts

SOCKET, LIFELINE = 3, 4
VERSION = 6
REQUEST_MAX = 1 << 24
DONE, RAISED = b"\0", b"\1"
TEXT_MAX = 1500
READ_MOST = 16  # batches of the data that are read at once
OUT_OF_MEMORY = 12  # exit status
# What torch says when the host, or a GPU, has no memory left; the last is of gpu_memory.py.
NO_MEMORY = ("can't allocate memory", "CUDA out of memory", "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY")

_channel: "Channel | None" = None  # of this process, if it computes for a worker


class Channel:
    """Frames from and to the worker. A request has one reply."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=SOCKET)
        self._process = os.getpid()
        self._files: list[int] = []
        self._number = 0  # of the last request
        self.asked = False  # a request waits for its reply
        # A fork of the script's may outlive this process, whose end the worker sees by the end of its socket. The
        # lifeline stays: it ends forks that are in this process's group with the worker.
        for file in (SOCKET, LIFELINE):
            os.set_inheritable(file, False)
        os.register_at_fork(after_in_child=self._socket.close)
        self.script = Script("")  # it and the next: as the worker has said in its first request
        self.version = self.block = self.seed = 0
        self.size = 1  # samples of a pass
        self.local_steps = 0  # passes of a micro-batch, with steps between them; 0: it is one pass

    def _own(self) -> None:
        if os.getpid() != self._process:  # a fork of the script's: it has nothing to say here
            os._exit(1)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                n, control, _, _ = self._socket.recvmsg_into([view], socket.CMSG_SPACE(8))
            except ConnectionError:
                n, control = 0, []
            for level, kind, raw in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    files = array.array("i")
                    files.frombytes(raw[: len(raw) - len(raw) % files.itemsize])
                    self._files.extend(files)
            if n == 0:
                os._exit(0)  # the worker is gone, and nobody waits
            view = view[n:]
        return data

    def request(self) -> bytearray:
        self._own()
        size, number = struct.unpack("<II", self._read(8))
        if not 0 < size <= REQUEST_MAX or self.asked:
            os._exit(1)
        self._number = number
        data = self._read(size)
        self.asked = True
        return data

    def hear(self, path: str) -> None:
        """Takes the worker's first request, which waits for its reply until the script has made its net."""
        request = self.request()
        if request[:1] != b"h":
            raise RuntimeError(f"request {bytes(request[:1])!r} is none to begin with")
        said = Reader(memoryview(request)[1:])
        self.version, self.block = said.number("I"), said.number("I")
        if self.version != VERSION:
            raise Refused(f"the starling package speaks version {VERSION} of the bridge, the worker {self.version}:"
                          " install the same release of both")
        self.seed, self.size = said.number("Q"), max(1, said.number("I"))
        self.local_steps = said.number("I")
        self.script = Script(path, said.text(), said.texts(), said.texts(), said.number("I"), said.text(), said.texts(),
                             said.text())

    def files(self) -> list[int]:
        """Those that came with the request; the caller closes them."""
        files, self._files = self._files, []
        return files

    def reply(self, payload: bytes = b"") -> None:
        self._send(DONE + payload)

    def raised(self, text: str) -> None:
        data = text.encode("utf-8", "replace")[:TEXT_MAX]
        self._send(RAISED + struct.pack("<I", len(data)) + data)

    def _send(self, body: bytes) -> None:
        self._own()
        if not self.asked:
            raise RuntimeError("a reply to no request")
        self.asked = False
        try:
            self._socket.sendall(struct.pack("<II", len(body), self._number) + body)
        except ConnectionError:
            os._exit(0)  # the worker is gone, and nobody waits


def channel() -> "Channel | None":
    return _channel


def one_line(error: BaseException, script: str) -> str:
    """What was raised and where in the user's own files."""
    text = " ".join(str(error).split())
    if isinstance(error, Refused):
        return f"{text}; {script}"
    frames = traceback.extract_tb(error.__traceback__)
    home = os.path.dirname(os.path.abspath(script))
    own = [f for f in frames if os.path.abspath(f.filename).startswith(home + os.sep)]
    package = os.path.dirname(os.path.abspath(__file__))
    own = [f for f in own if not os.path.abspath(f.filename).startswith(package + os.sep)] or own
    where = f"; {own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else f"; {script}"
    return f"{type(error).__name__}: {text}{where}"


def _one_number(name: str, value: Any) -> float:
    """A metric's. Raises Refused."""
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several, in some releases of torch
        shape = getattr(value, "shape", None)
        found = f"a {type(value).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
        raise Refused(f"metric {name} must be one number, is {found}") from None


class Server:
    """Answers requests with a module and its data. `build` gives both; a generator gives passes to
    whoever computes them."""

    def __init__(self, feed: Feed, init: "dict[str, Any] | None", metrics: Sequence[str],
                 held_out: "validation.Validation | None" = None) -> None:
        import torch

        from . import loaders, memory, module, proof, statistics, streams

        assert _channel is not None
        self._channel = _channel
        self._torch, self._module, self._mapping, self._proof = torch, module, memory, proof
        self._streams = streams.Streams
        self._feed, self._init, self._metrics = feed, init, tuple(metrics)
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
        torch.use_deterministic_algorithms(True, warn_only=True)
        module.refuse_other_optimizers()
        check_texts(self._channel.script)  # of those that the script has imported meanwhile
        alive = module.parameters_alive()
        self._parameters: "list[Any]" = []  # that are trained
        self.net, self.data = self._made(self._channel.seed)
        if self._channel.local_steps != (feed.local_steps or 0):
            raise Refused(f"the job has local_steps={self._channel.local_steps or None}, the script local_steps={feed.local_steps}:"
                          " samples and parameters would be others than the job's")
        taken = feed.taken
        self._collate = taken.collate or torch.utils.data.default_collate
        self._sampler = taken.sampler
        self._validation = held_out
        self._held_out: Any = None
        if held_out is not None:
            module.seed_everything(self._channel.seed)
            self._held_out = held_out.opened(feed.taken)
        self._drawn: "list[bytes]" = []  # digests of the data's drawn batches, as this process began
        self._fresh = True  # its parameters are still the first ones
        module.check(self.net, self.data)
        check_start(self._channel.script, Start(proof.of_state(init), module.outline(self.net)))
        self._trained = module.tensors_of(self.net)  # parameters, then statistics
        self._parameters = [p for _, p in module.parameters_of(self.net)]
        self._statistics = statistics.Moving(self.net)
        # Of a net that is not build()'s alone another build() has no second one: its first parameters are kept.
        self._kept_first = [p.detach().cpu() for p in self._parameters] + [
            t.detach().cpu().clone() for _, t in self._trained[len(self._parameters):]] \
            if any(id(p) in alive for p in self._parameters) else None
        self._shapes = [p.shape for _, p in self._trained]  # while it has no memory it has none
        self._kept = module.Kept(self.net)
        self._block = self._channel.block
        self._held: Any = None  # memory.Here or memory.Elsewhere
        self._memory: list[int] = []  # where each parameter lies
        self._open = False  # a pass is being computed: gradients belong to it
        self._looked = False  # all parameters were compared once, after the first pass
        self._views: list[tuple[Any, Any]] = []  # of what a pass computes with and its gradient, by tensor
        self._away = any(p.device.type != "cpu" for _, p in self._trained)
        self._copied = self._away or any(p.dtype != torch.float32 for _, p in self._trained)
        self._pins = taken.pins and any(t.device.type == "cuda" for _, t in self._trained)
        if self._away:
            # With warn_only attention on a GPU has a backward pass that does not repeat itself. Without it, what has
            # no other one raises, with the operator's name.
            torch.use_deterministic_algorithms(True)
        # With deterministic algorithms torch fills memory that it takes with NaN, a part in twelve of a pass on a GPU. A
        # net whose first pass comes to no NaN reads no memory that nothing has written, and goes on without.
        self._fills, self._nan = True, False  # _nan: in a gradient of a proof
        self._step: "tuple[int, int] | None" = None  # whose parameters the net has
        self._local = self._channel.local_steps > 0  # parameters change from pass to pass
        self._task = (0, 0, 0)  # seed, step and number of the micro-batch
        self._versions: list[int] = []
        gc.collect()
        gc.freeze()  # what is there now stays: no pass is to wait for a look at all of it
        self._first: "dict[int, bytes] | None" = None  # digests of gradients, by parameter, of a pass that is a proof
        self._given: list[bytes] = []  # digests of the parameters before it
        self._written: set[int] = set()  # parameters whose gradient has come in this pass
        self._begun = 0.0
        self._imported = 0  # modules, when their files were last looked at
        for i, p in enumerate(self._parameters):
            p.register_post_accumulate_grad_hook(self._keep(i))
        self._order = Order(len(self.data), feed.passes, self._channel.size) if taken.sampler is None else \
            sampling.Sampled(taken.sampler, feed.passes, self._channel.size)
        # Before any sample is read here: what a Dataset opens then is each process's own.
        every, batches = (1, 0) if held_out is None else held_out.batches(len(self._held_out), self._channel.size)
        self._loaders = loaders.Loaders(
            taken.loaders, taken.ahead, self._order, Coming(feed.passes, every, batches, feed.local_steps or 1), self._read_batch,
            taken.begun, self._let_go) if taken.loaders else None
        taken.begun()

    def _made(self, seed: int) -> tuple[Any, Any]:
        self._module.seed_everything(seed)
        net, data = self._feed.made()
        if not {id(p) for p in net.parameters()}.isdisjoint(map(id, self._parameters)):
            raise Refused("build() returns a net that it has made before, whose parameters are the job's by now;"
                                       " expected a new one each time, or one that is made before train() is called")
        if self._init is not None:
            net.load_state_dict(own_names(net, self._init))
        return net, data

    def _counted(self) -> list[int]:
        """How often torch has changed each parameter in place."""
        return list(map(operator.attrgetter("_version"), self._parameters))

    def _placed(self) -> list[int]:
        """Where each parameter lies in memory."""
        return list(map(operator.methodcaller("data_ptr"), self._parameters))

    def _places(self) -> Iterator[tuple[int, int]]:
        """First element and number of elements of each tensor."""
        first = 0
        for shape in self._shapes:
            yield first, shape.numel()
            first += -(-shape.numel() // self._block) * self._block

    def _hello(self) -> None:
        texts = self._module.tensor_texts(self.net)
        self._drawn.clear()
        data = self._proof.of_data(self.data, self._collate, self._channel.size, self._seed_sample, self._drawn)
        if self._held_out is not None:
            data = self._proof.with_held_out(data, self._proof.of_data(self._held_out, self._collate, self._channel.size,
                                                                       self._seed_sample), len(self._held_out))
        if self._sampler is not None:
            data = self._proof.with_sampler(data, self._sampler.digest())
        parts = [struct.pack("<Q", self._order.samples), self._proof.with_untrained(data, self.net)]
        versions = self._module.versions_text().encode()
        parts += [struct.pack("<I", len(versions)), versions, struct.pack("<I", len(texts))]
        for text in texts:
            data = text.encode()
            parts += [struct.pack("<I", len(data)), data]
        self._channel.reply(b"".join(parts))

    def _seed_sample(self, number: int) -> None:
        self._module.seed_everything(0, number)

    def _read(self, number: int) -> bytes:
        """The digest of batch `number` of a pass's many, as a batch of the data; where the data have more batches than a
        pass, of several, READ_MOST at most, as a pass may wait for it. Nothing where the data cannot be compared, one byte
        where the Dataset raises, which the pass that wants the sample tells: the batch is read again later. Raises Refused."""
        how = self._collate, self._channel.size, self._seed_sample
        there, of_pass = (-(-samples // self._channel.size) for samples in (len(self.data), self._order.samples))
        batches = range(number, there, of_pass)
        try:
            digest = self._proof.of_batches(self.data, batches[::max(1, -(-len(batches) // READ_MOST))], *how)
            if digest:
                self._proof.check_unchanged(self.data, number, *how, self._drawn, of_pass)
            return digest
        except Refused:
            raise
        except Exception:
            return b"\1"

    def _initialise(self, request: memoryview) -> None:
        seed, offset, size = struct.unpack("<QQQ", request)
        (file,) = self._channel.files()
        flat = self._mapping.Place(file, False, offset, offset + size).floats(self._torch, size, write=True)
        firsts = self._kept_first
        if firsts is None:
            net = self.net if self._fresh and seed == self._channel.seed else self._made(seed)[0]
            firsts = [t.detach() for _, t in self._module.tensors_of(net)]
        with self._torch.no_grad():
            flat.zero_()
            for one, (first, n) in zip(firsts, self._places()):
                flat[first:first + n].copy_(one.reshape(-1))
        self._channel.reply()

    def _place_of(self, request: memoryview, at: int, file: int) -> Any:
        gpu, offset, whole = struct.unpack_from("<BQQ", request, at)
        return self._mapping.Place(file, bool(gpu), offset, whole)

    def _try(self, request: memoryview) -> None:
        """Whether this place can be where gradients are made: memory of the GPU that the whole net is on, or the host's."""
        (file,) = self._channel.files()
        place = self._place_of(request, 0, file)
        there = not place.gpu or {(t.device.type, t.device.index) for _, t in self._trained} == {("cuda", 0)}
        if place.gpu and there:
            try:
                place.floats(self._torch, place.whole, write=True).zero_()
            except self._mapping.CannotMap as why:
                there = False
                print(f"starling: the GPU's memory is not shared ({why}): parameters and gradients go through the host's",
                      file=sys.stderr)
        else:
            os.close(file)
        self._channel.reply(b"\1" if there else b"\0")

    def _take_memory(self, request: memoryview) -> None:
        weights, gradient = (self._place_of(request, 17 * i, file) for i, file in enumerate(self._channel.files()))
        (size,) = struct.unpack_from("<Q", request, 34)
        self._let_go_of_memory()
        self._fresh = False
        tensors = self._mapping.Tensors([first for first, _ in self._places()], self._shapes,
                                        [t.device for _, t in self._trained], [t.dtype for _, t in self._trained])
        held: Any = self._mapping.Elsewhere if self._copied else self._mapping.Here
        self._held = held(self._torch, tensors, weights, gradient, size)
        self._looked = False
        self._views = list(zip(self._held.parameters, self._held.gradients))
        for p, (own, _) in zip(self._parameters, self._views):
            p.data = own
        self._memory = self._placed()
        self._step = None
        self._channel.reply()

    def _let_go_of_memory(self) -> None:
        self._views, self._held = [], None
        if not self._fresh:
            for p in self._parameters:
                p.data = self._torch.empty(0, device=p.device, dtype=p.dtype)

    def _forget(self) -> None:
        self._let_go_of_memory()
        self._channel.reply()

    def _keep(self, i: int) -> Callable[[Any], None]:
        """Puts a parameter's gradient where the worker reads it as soon as it is there. torch has made it in memory
        of its own, which goes at once."""

        def keep(p: Any) -> None:
            if p.grad is None:
                return  # of a parameter whose requires_grad was taken away meanwhile, which is told after the pass
            given, p.grad = p.grad.detach(), None
            if self._first is not None and self._open:
                self._first[i] = self._first.get(i, b"") + self._proof.of_dense(given)
                self._nan = self._nan or self._away and bool((given._values() if given.is_sparse else given).isnan().any())
            if not self._views:
                return  # of a proof, or a backward of build()'s
            if not self._open:
                raise Refused(
                    "a gradient was computed (backward()) that belongs to no micro-batch: all of a micro-batch's loss"
                    " goes into one done(), which computes it")
            grad = self._views[i][1]
            if i in self._written:
                grad.add_(given)
            else:
                grad.copy_(given.to_dense() if given.is_sparse else given)
            self._written.add(i)

        return keep

    def micro_batches(self) -> "Iterator[Pass]":
        """Every pass that is asked for, until the worker has no more."""
        self._hello()
        while True:
            request = self._channel.request()
            kind, rest = bytes(request[:1]), memoryview(request)[1:]
            if kind in (b"p", b"v"):
                self._first = {} if kind == b"v" else None  # of the net as build() made it, before it has memory
                seed, step, m, count = struct.unpack_from("<QQII", rest)
                samples = struct.unpack_from(f"<{count}Q", rest, 24)
                if self._sampler is not None:
                    samples = self._order.of(seed, step, m)
                self._before(seed, step, m)
                if kind == b"p" and self._loaders is not None:
                    self._loaders.asked(seed, step, m)
                if isinstance(self.data, self._streams):
                    samples = tuple(range(step * count, (step + 1) * count))  # of those of lane m
                one = Pass(self, step, m, samples)
                yield one
                if not one.over:
                    raise RuntimeError(f"micro-batch {m} of step {step} was not given a loss: mb.done(loss)")
            elif kind == b"e":
                self._evaluate(rest)
            elif kind == b"d":
                self._channel.reply(self._read(*struct.unpack("<Q", rest)))
            elif kind == b"i":
                self._initialise(rest)
            elif kind == b"m":
                self._take_memory(rest)
            elif kind == b"t":
                self._try(rest)
            elif kind == b"f":
                self._forget()
            else:
                raise RuntimeError(f"request {kind!r} is none of the bridge's")

    def _evaluate(self, request: memoryview) -> None:
        """A batch of held-out data, in eval() and without gradients."""
        if self._held_out is None or self._validation is None or self._validation.evaluate is None:
            raise Refused("the job evaluates held-out data, and the script gives none: validation=")
        seed, step, m, count = struct.unpack_from("<QQII", request)
        samples = struct.unpack_from(f"<{count}Q", request, 24)
        self._before(seed, step, m)
        if self._loaders is not None:
            self._loaders.asked(seed, step, m)
        self._open = False
        modes = [(one, one.training) for one in self.net.modules()]
        self._kept.by = "the evaluation"
        self.net.eval()
        try:
            with self._torch.no_grad():
                given = self._validation.evaluate(self.net, self.batch(samples, held_out=True))
        finally:
            for one, mode in modes:
                one.training = mode
        loss, *measured = validation.numbers(given, self._validation.metrics or ())
        took = time.perf_counter() - self._begun
        self._compare_parameters()
        self._kept.check()
        for what in self._statistics.changed():
            raise Refused(f"the evaluation has changed {what}, which passes of the loss alone may move: evaluate(net, batch)"
                          " gets the net in eval(), and moves nothing where net.training is False")
        self._channel.reply(struct.pack(f"<dQQB{len(measured)}d", loss, len(samples), int(took * 1e9), len(measured),
                                        *measured))

    def _before(self, seed: int, step: int, m: int) -> None:
        if self._held is None and self._first is None:
            raise RuntimeError("a pass without memory")
        self._module.seed_everything(seed, step, m)
        self._torch.clear_autocast_cache()  # rounded copies of parameters, which autocast around train() keeps to its end
        self._written.clear()
        for p in self._parameters:
            p.grad = None  # autograd would add to what build() or a loop has left there
        if self._held is not None and (self._local or self._step != (seed, step)):
            self._held.renew()
        if self._away and hasattr(self._torch.utils, "deterministic"):  # from torch 2.2 on
            self._torch.utils.deterministic.fill_uninitialized_memory = self._fills
        self._nan = False
        self._statistics.begin([weight for weight, _ in self._views[len(self._parameters):]])
        self._step, self._task = (seed, step), (seed, step, m)
        self._open, self._kept.by = True, "the loss"
        self._versions = self._counted()
        if self._first is not None:
            self._given = self._contents()
        self._begun = time.perf_counter()

    def refused(self, why: str) -> Exception:
        return Refused(why)

    def batch(self, samples: Sequence[int], held_out: bool = False) -> Any:
        there, batch = (False, None) if self._loaders is None else self._loaders.batch(samples)
        if not there:
            begun = time.perf_counter()
            batch = self._read_batch(samples, held_out)
            if self._loaders is not None:
                self._loaders.took(time.perf_counter() - begun)
        return self._pinned(batch) if self._pins else batch

    def _pinned(self, batch: Any) -> Any:
        """As a DataLoader with pin_memory gives it. What cannot be pinned (a tensor that is on the GPU by then, or where the
        host's memory has no more to pin) stays: the values are the same."""
        with contextlib.suppress(RuntimeError):
            return self._torch.utils.data._utils.pin_memory.pin_memory(batch)
        return batch

    def _read_batch(self, samples: Sequence[int], held_out: bool) -> Any:
        data = self._held_out if held_out else self.data
        streamed = isinstance(data, self._streams)
        return self._collate(data.samples(*self._task) if streamed else [data[i] for i in samples])

    def _let_go(self) -> None:
        """In a loader process, which keeps no second copy of what is trained."""
        if self._away:  # CUDA's memory is not a fork's
            self._views, self._held = [], None
        else:
            self._fresh = False
            self._let_go_of_memory()

    def _after(self) -> None:
        """What the pass has not used has a gradient too; what it may not change is as it was."""
        self._open = False
        self._compare_parameters()
        self._kept.check()
        if len(sys.modules) != self._imported:
            check_ages(self._channel.script)
            self._imported = len(sys.modules)
        for i, gradient in enumerate(self._statistics.gradients(), len(self._parameters)):
            self._views[i][1].copy_(gradient)
            self._written.add(i)
        if len(self._written) != len(self._views):
            for i in set(range(len(self._views))) - self._written:
                self._views[i][1].zero_()
        self._held.finish()

    def _changed(self, i: int, how: str) -> Exception:
        return Refused(f"{self._kept.by} has changed parameter {self._trained[i][0]}{how}; only the job's"
                                    " optimizer may")

    def _compare_parameters(self) -> None:
        changed = self._changed
        for before, now, how in ((self._versions, self._counted(), ""),
                                 (self._memory, self._placed(), " by giving it other memory (.data = ..)")):
            if before != now:
                raise changed(next(i for i, (a, b) in enumerate(zip(before, now)) if a != b), how)
        first, self._looked = not self._looked, True
        at = self._held.changed(everything=first)
        if at is not None:
            raise changed(max(i for i, (begin, _) in enumerate(self._places()) if begin <= at), " through .data")

    def done(self, loss: Any, metrics: Mapping[str, Any], samples: Sequence[int]) -> float:
        torch = self._torch
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            found = f"a tensor {tuple(loss.shape)} of {loss.dtype}" if isinstance(loss, torch.Tensor) \
                else f"a {type(loss).__name__}" + (f" of {len(loss)}" if isinstance(loss, (tuple, list)) else "")
            raise Refused(f"the loss must be one floating-point number with a gradient, is {found}")
        if set(metrics) != set(self._metrics):
            raise Refused(
                f"the loss measures {sorted(metrics) or 'nothing'} beside it, the job names"
                f" {sorted(self._metrics) or 'nothing'}: metrics= of starling.train()")
        if self._written or self._first:
            raise Refused(
                "the loss has computed a gradient itself (backward()), which done() does; add up all that is to be"
                " trained on and give the sum")
        if not loss.requires_grad:
            raise Refused("the loss has no gradient: does it come from the net that it was given?")
        loss.backward()
        value = float(loss.detach())
        measured = [_one_number(name, metrics[name]) for name in self._metrics]
        took = time.perf_counter() - self._begun
        if self._first is not None:
            return self._proven(value, measured)
        self._after()
        self._channel.reply(struct.pack(f"<dQQB{len(measured)}d", value, len(samples), int(took * 1e9),
                                        len(measured), *measured))
        return value

    def _contents(self) -> "list[bytes]":
        return [self._proof.of_dense(p.detach()) for p in self._parameters]

    def _proven(self, loss: float, metrics: Sequence[float]) -> float:
        assert self._first is not None
        gradients = [self._first.get(i) for i in range(len(self._parameters))]
        self._first = self._step = None
        self._open = False
        self._fills = self._nan or math.isnan(loss)
        now = self._contents()  # the worker's first parameters may still be taken from this net
        for i, (before, after) in enumerate(zip(self._given, now)):
            if before != after:
                raise self._changed(i, "" if self._versions[i] != self._parameters[i]._version else " through .data")
        self._kept.check()
        gradients += map(self._proof.of_dense, self._statistics.gradients())
        check_ages(self._channel.script)
        self._channel.reply(self._proof.of_gradient(loss, metrics, gradients)
                            + self._proof.of_texts(self._channel.script))
        return loss


class Pass:
    """One micro-batch: its batch, and what it comes to."""

    def __init__(self, server: Server, step: int, number: int, samples: Sequence[int]) -> None:
        self._server = server
        self.step, self.number, self.samples = step, number, samples
        self.over = False

    def batch(self) -> Any:
        """The samples, put together as the job says (torch's default_collate)."""
        return self._server.batch(self.samples)

    def done(self, loss: Any, metrics: Mapping[str, Any]) -> float:
        """Computes the gradient of the mean loss [] and hands it to the worker; returns the loss."""
        if self.over:
            raise self._server.refused(
                f"micro-batch {self.number} of step {self.step} was given its loss already: add losses up and call"
                " done() once")
        value = self._server.done(loss, metrics, self.samples)
        self.over = True
        return value


def die_with_the_worker() -> None:
    """And with whatever this process forks."""
    # The kernel signals the group when the other end of the pipe closes, whatever this process is at.
    fcntl.fcntl(LIFELINE, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(LIFELINE, fcntl.F_SETFL, fcntl.fcntl(LIFELINE, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    if select.select([LIFELINE], [], [], 0)[0]:
        os._exit(0)


def tell_stacks() -> None:
    """On this signal every thread's Python stack is written into a file in memory, for `starling diagnose`: from within
    the signal's handler, so whatever holds the interpreter."""
    file = os.memfd_create("starling-stacks")
    faulthandler.register(signal.SIGRTMIN + 2, file=file, all_threads=True)


class _NoInput(io.TextIOBase):
    """In the place of standard input, which only the process has that a person has started."""

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def _refuse(self, *_: Any) -> Any:
        raise Refused("the script reads standard input, which only the process has that was started by hand: give what"
                      " it reads as an argument or in a file")

    read = readline = readlines = __next__ = _refuse  # type: ignore[assignment]
    buffer = property(_refuse)


def begin(script: Script) -> None:
    """Gives a script what Python itself would, up to its first line."""
    sys.stdin = _NoInput()  # type: ignore[assignment]
    sys.argv = [script.path, *script.arguments]
    if sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # that of `python -m starling`
    sys.path.insert(0, script.root())


def _run(script: Script, begun: "ModuleType | None") -> None:
    """As Python itself would, to the script's end."""
    if begun is not None:
        with open(script.path, "rb") as file:
            text = file.read()
        exec(compile(text, script.path, "exec", dont_inherit=True), vars(begun))
        return
    begin(script)
    if script.module:
        runpy.run_module(script.module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script.path, run_name="__main__")


def main(path: str, begun: "ModuleType | None" = None) -> None:
    """Runs the script, whose train() or Job finds the channel and serves it; begun: as what it runs, where begin() has
    been called."""
    global _channel
    die_with_the_worker()
    tell_stacks()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")  # if memory is short the kernel takes this process and not the worker
    _channel = Channel()
    try:
        _channel.hear(path)
        check_texts(_channel.script)
        from .module import seed_everything_to_begin_with

        if begun is None:
            seed_everything_to_begin_with()
        _run(_channel.script, begun)
        raise Refused(f"the script has ended without call {_channel.script.call} of starling.train(), or of a loop over"
                      " starling.Job, which the job is")
    except SystemExit as end:
        if end.code in (None, 0) and not _channel.asked:
            os._exit(0)
        failure: BaseException = RuntimeError(f"the script called exit({end.code!r})")
    except BaseException as error:  # whatever the script raises is told to the worker
        failure = error
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            traceback.print_exc()
            os._exit(OUT_OF_MEMORY)  # of this process alone: another one may have it

        if not isinstance(error, Refused):
            traceback.print_exc()
    while True:  # the answer to whatever is asked: this process computes nothing any more
        if not _channel.asked:
            _channel.request()
        for one in _channel.files():
            os.close(one)
        _channel.raised(one_line(failure, path))
