"""Bulk connections through somebody in the middle who has no key: never a wrong digest."""
import random
import socket
import threading

from harness import main, require, wait_until
from ports import free_port

HANDSHAKE = 152 + 32  # what a dialler says before its first frame (collectives/tcp/handshake.h)


class Relay:
    """Stands in front of a worker's port, and changes what its peers say behind the handshake."""

    def __init__(self, change):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = None
        self.change = change
        self.changed = 0
        self.seen = bytearray()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                dialler, _ = self.listener.accept()
                acceptor = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            threading.Thread(target=self.carry, args=(dialler, acceptor, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(acceptor, dialler, False), daemon=True).start()

    def carry(self, source, sink, dialled):
        said = 0
        try:
            while data := source.recv(1 << 16):
                self.seen += data
                if dialled and said >= HANDSHAKE:
                    try:
                        changed = self.change(data, said)
                    except Cut as cut:
                        self.changed += 1
                        sink.sendall(cut.args[0])
                        break
                    self.changed += changed != data
                    said += len(data)
                    data = changed
                else:
                    said += len(data)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def flips_rarely(data, _):
    if random.random() < 0.98:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1:]


def repeats_rarely(data, _):
    return data if random.random() < 0.98 else data + data


def cuts_rarely(data, _):
    """Half of what came, and then nothing more."""
    if random.random() < 0.98:
        return data
    raise Cut(data[:len(data) // 2])


class Cut(Exception):
    pass


def job_with(place, seal, steps):
    job = place.job(steps=steps)
    with open(job, "a") as file:
        file.write(f'seal = "{seal}"\n')
    return job


def run_through(place, seal, change, steps=120):
    """Two workers, and a third one, the last to join, whom the others reach through the relay."""
    job = job_with(place, seal, steps)
    relay = Relay(change)
    relay.target = free_port()
    run = place.run(job, "--workers", 3, "--start", 2)
    wait_until(lambda: run.events("start") and len(run.workers()) == 2, "two workers")
    through = run.join("--listen", f"127.0.0.1:{relay.target}", "--advertise",
                       f"127.0.0.1:{relay.port}")
    return job, run, relay, through


def never_a_wrong_digest(place, seal, change, mark):
    job, run, relay, through = run_through(place, seal, change)
    run.end()
    wait_until(lambda: through.poll() is not None, "end of the worker behind the relay", 90)
    done = run.events("done")
    require(len(done) == 1, f"{len(done)} `done` events:\n{run.text()[-2000:]}")
    quiet = place.quiet(job)
    require(done[0]["digest"] == quiet.events("done")[0]["digest"],
            f"another digest than undisturbed:\n{run.text()[-2000:]}")
    require(run.losses() == quiet.losses(), "losses or norms of steps differ")
    require(relay.seen, "nothing went through the relay")
    if mark:
        require(relay.changed > 0, "the relay changed nothing")
    return run


def who_hands_everything_on_changes_nothing(place):
    run = never_a_wrong_digest(place, "on", lambda data, said: data, False)
    worlds = {e["world"] for e in run.events("step")}
    require(worlds == {3}, f"numbers of workers in the steps: {worlds}")


def flipped_bits_never_reach_a_sum(place):
    for seal in ("on", "auto"):
        never_a_wrong_digest(place, seal, flips_rarely, True)


def repeated_bytes_never_reach_a_sum(place):
    never_a_wrong_digest(place, "on", repeats_rarely, True)


def half_a_frame_never_reaches_a_sum(place):
    never_a_wrong_digest(place, "auto", cuts_rarely, True)


main(who_hands_everything_on_changes_nothing, flipped_bits_never_reach_a_sum,
     repeated_bytes_never_reach_a_sum, half_a_frame_never_reaches_a_sum)
