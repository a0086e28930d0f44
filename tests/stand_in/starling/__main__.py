"""In place of the starling package where there is no torch: the same frames over the same channel, with a
model of two tensors, a [3, 2] and b [], whose gradient is plain arithmetic. What it does wrong is what the
script says: a word for each line, "dies 3" for the third pass of this process, "hangs-once PATH,PATH", in the
second pass of as many processes, each of which leaves a file; "forks-and-dies 2" with "fork-is PATH", which is to
have the fork's number; "answers-twice 2"; "reads" has data that can be compared; "pace 0.01" takes so many seconds for a pass,
"evaluates 2" for one of held-out data; "computes-elsewhere" will not have its gradients on the worker's device."""

import mmap
import os
import signal
import struct
import sys
import time

from . import child, warm

SIZES = (6, 1)
TENSORS = (b"a:3x2", b"b:")
SAMPLES = 40


def first_to_make(path):
    """Whether this process, of all that try at once, is the one that makes the file."""
    try:
        return bool(path) and open(path, "x").close() is None
    except FileExistsError:
        return False


class Model:
    def __init__(self, script):
        with open(script) as file:
            self.orders = dict((line.split() + [""])[:2] for line in file if line.strip())
        self.channel = child.Channel()
        self.channel.hear(script)
        self.block = self.channel.block
        self.passes = 0
        self.weights = self.gradient = None

    def places(self):
        first = 0
        for size in SIZES:
            yield first, size
            first += -(-size // self.block) * self.block

    def map(self, file, offset, size):
        memory = mmap.mmap(file, size + offset)
        os.close(file)
        return memoryview(memory)[offset:offset + size].cast("f")

    def hello(self):
        text = self.orders.get("versions", "stand-in 1").encode()
        data = self.orders.get("data", "").encode().ljust(16)
        parts = [struct.pack("<Q16sI", int(self.orders.get("samples", SAMPLES)), data, len(text)), text]
        tensors = TENSORS[: int(self.orders.get("tensors", len(TENSORS)))]
        if "reversed" in self.orders:
            tensors = tensors[::-1]
        parts.append(struct.pack("<I", len(tensors)))
        for tensor in tensors:
            parts += [struct.pack("<I", len(tensor)), tensor]
        self.channel.reply(b"".join(parts))

    def initialise(self, request):
        seed, offset, size = struct.unpack("<QQQ", request)
        values = self.map(self.channel.files()[0], offset, size)
        for first, count in self.places():
            for i in range(count):
                values[first + i] = (seed % 7 + i) / 8
        values.release()
        self.channel.reply()

    def misbehave(self):
        self.passes += 1
        turn = str(self.passes)
        if self.orders.get("raises") == turn:
            return self.channel.raised("ValueError: as the script says")
        if self.orders.get("dies") == turn:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.orders.get("forks-and-dies") == turn:
            self.leave_a_fork()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.orders.get("exits") == turn:
            os._exit(3)
        if self.orders.get("babbles") == turn:
            self.channel._socket.sendall(b"\xff" * 64)
        if self.orders.get("hangs") == turn:
            time.sleep(3600)
        time.sleep(float(self.orders.get("pace", "0")))
        if self.passes > 20 and first_to_make(self.orders.get("raises-once")):
            return self.channel.raised("ValueError: no such colour; train.py:3, in loss")
        for path in self.orders.get("hangs-once", "").split(","):
            if turn == "2" and first_to_make(path):
                time.sleep(3600)
        return None

    def leave_a_fork(self):
        """One in a session of its own, that has what this process has open, the worker's socket too."""
        os.dup(child.SOCKET)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            with open(self.orders["fork-is"], "w") as file:
                file.write(str(os.getpid()))
            os.write(writing, b".")
            time.sleep(3600)
        os.read(reading, 1)

    def compute(self, request):
        _, step, m, count = struct.unpack_from("<QQII", request)
        samples = struct.unpack_from(f"<{count}Q", request, 24)
        self.misbehave()
        if not self.channel.asked:
            return  # it has been answered
        loss = 0.0
        for i in range(len(self.gradient)):
            self.gradient[i] = 0.0
        for first, size in self.places():
            for i in range(first, first + size):
                wanted = sum((s + i) % 5 for s in samples) / count + ((step + m) % 3) / 4
                error = self.weights[i] - wanted
                loss += error * error
                self.gradient[i] = 2 * error
        self.channel.reply(struct.pack("<dQQB", loss, count, 1000, 0))
        if self.orders.get("answers-twice") == str(self.passes):
            self.channel.asked = True
            self.channel.reply(struct.pack("<dQQB", -1.0, count, 1000, 0))

    def serve(self):
        self.hello()
        while True:
            request = self.channel.request()
            kind, rest = bytes(request[:1]), memoryview(request)[1:]
            if kind == b"i":
                self.initialise(rest)
            elif kind == b"m":
                gpu, offset, _, gradient_gpu, gradient_offset, _, size = struct.unpack("<BQQBQQQ", rest)
                assert not gpu and not gradient_gpu
                weights, gradient = self.channel.files()
                self.weights = self.map(weights, offset, size)
                self.gradient = self.map(gradient, gradient_offset, size)
                self.channel.reply()
            elif kind == b"t":
                for file in self.channel.files():
                    os.close(file)
                self.channel.reply(b"\0" if "computes-elsewhere" in self.orders else b"\1")
            elif kind == b"p":
                self.compute(rest)
            elif kind == b"e":
                time.sleep(float(self.orders.get("evaluates", "0")))
                self.channel.reply(struct.pack("<dQQB", 0.5, 2, 1000, 0))
            elif kind == b"v":
                words = (self.orders.get("gradient", ""), self.orders.get("text", ""))
                self.channel.reply(b"".join(word.encode().ljust(16) for word in words))
            elif kind == b"d":  # with "reads" of batch 0 1, of batch 1 2 and so on
                digest = struct.pack("<QQ", 1 + struct.unpack("<Q", rest)[0], 0)
                self.channel.reply(digest if "reads" in self.orders else b"")
            else:
                assert kind == b"f"
                self.weights = self.gradient = None
                self.channel.reply()


if sys.argv[1] == "--warm":
    warm.serve(sys.argv[2])
child.die_with_the_worker()
Model(sys.argv[-1]).serve()
