"""The worker's end of the bridge (actors/script), in the place of a worker: it starts the process that computes for a
script and asks it for passes, so that what the package does is seen without a group. With STARLING_TEST_TORCH=1 the
package computes with torch itself, else with the stand-in for it."""
import array
import contextlib
import mmap
import os
import socket
import struct
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK = 256
SAMPLES = (1, 2, 3, 4)  # of a micro-batch
DEADLINE = 180  # seconds; only a failing test waits so long


class Raised(Exception):
    """What the process has told that the script raised."""


class Process:
    """One that computes for a script. `elements`: of parameters and gradient, padding included."""

    def __init__(self, script, elements=3 * BLOCK):
        ours, theirs = socket.socketpair()
        reading, self._lifeline = os.pipe()
        paths = [os.path.join(SOURCE, "tools", "python")]
        if not os.environ.get("STARLING_TEST_TORCH"):
            paths.append(os.path.join(SOURCE, "tests", "stand_in"))
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}

        def in_child():
            os.setpgid(0, 0)
            files = []
            for file in (theirs.fileno(), reading):
                while file <= 4:  # where the package looks for them
                    file = os.dup(file)
                files.append(file)
            for file, number in zip(files, (3, 4)):
                os.dup2(file, number)

        self.process = subprocess.Popen([sys.executable, "-u", "-m", "starling", script], env=variables,
                                        preexec_fn=in_child, close_fds=False, stderr=subprocess.PIPE, text=True)
        theirs.close()
        os.close(reading)
        ours.settimeout(DEADLINE)
        self._socket, self._number = ours, 0
        size = 4 * elements
        self._files = [os.memfd_create("parameters"), os.memfd_create("gradient")]
        for file in self._files:
            os.ftruncate(file, size)
        self.parameters, self.gradient = (memoryview(mmap.mmap(file, size)).cast("f") for file in self._files)
        try:
            # Version, block, seed, samples of a micro-batch, and a script without module, arguments, texts, earlier calls or start.
            self.greeting = self.ask(b"h" + struct.pack("<IIQII", 6, BLOCK, 5, 4, 0) + struct.pack("<IIIIIII", 0, 0, 0, 1, 0, 0, 0))
            self.proof = self.ask(self._pass(b"v", 0, SAMPLES))
            self.initialise()
            self.ask(b"m" + struct.pack("<BQQBQQQ", 0, 0, size, 0, 0, size, size), self._files)
        except BaseException:
            self.close()
            raise

    def initialise(self):
        """Asks for the first parameters."""
        self.ask(b"i" + struct.pack("<QQQ", 5, 0, self.parameters.nbytes), self._files[:1])

    @staticmethod
    def _pass(kind, step, samples):
        """Micro-batch 0 of a step."""
        return kind + struct.pack(f"<QQII{len(samples)}Q", 5, step, 0, len(samples), *samples)

    def _receive(self, size):
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError(f"it has ended with {self.process.wait()}: {self.process.stderr.read()}")
            data += more
        return data

    def ask(self, request, files=()):
        """Its reply. Raises Raised, and EOFError if the process has ended."""
        self._number += 1
        message = struct.pack("<II", len(request), self._number) + request
        socket.send_fds(self._socket, [message], files) if files else self._socket.sendall(message)
        size, number = struct.unpack("<II", self._receive(8))
        reply = self._receive(size)
        assert number == self._number, f"reply {number} to request {self._number}"
        if reply[0] == 1:
            raise Raised(reply[5:].decode())
        return reply[1:]

    def passes(self, count, samples=SAMPLES):
        """Of so many steps, each with one micro-batch and then a step of plain descent: for each the loss, its metrics
        and the gradient."""
        found = []
        for step in range(count):
            reply = self.ask(self._pass(b"p", step, samples))
            loss, _, _, metrics = struct.unpack_from("<dQQB", reply)
            found.append((loss, struct.unpack_from(f"<{metrics}d", reply, 25), list(self.gradient)))
            for i, value in enumerate(self.gradient):
                self.parameters[i] -= array.array("f", [0.01 * value])[0]
        return found

    def evaluate(self, step, samples=SAMPLES):
        """The loss of a held-out batch."""
        return struct.unpack_from("<d", self.ask(self._pass(b"e", step, samples)))[0]

    def close(self):
        self._socket.close()
        os.close(self._lifeline)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self.process.stderr.close()
        for file in self._files:
            os.close(file)


def passes_of(script, count=4):
    process = Process(script)
    try:
        return process.passes(count)
    finally:
        process.close()
