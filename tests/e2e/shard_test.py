"""`starling shard` cuts tokens into shards, and jobs read them in lanes, from a folder and from a store that does wrong: the same bits in any
group, each sample once a pass, no more bytes than a worker's share, and damage in one line."""
import contextlib
import os
import random
import re
import shutil
import struct
import subprocess
import time
from unittest import mock

from harness import (PATIENCE, STARLING, edited, kill_join_and_leave, main, require, same_digest_by_any_group, wait_until, with_checkpoints,
                     written)
from s3_server import BUCKET, serving

PLACE = f"s3://{BUCKET}/data of/tokens"
CONTEXT, CHUNK, MICRO_BATCHES, SEQUENCES = 32, 256, 8, 2
CHUNKS = 320  # 40 a lane: two windows
SAMPLES = CHUNKS * CHUNK // CONTEXT
PASS = SAMPLES // (MICRO_BATCHES * SEQUENCES)  # steps


def tokens(place, count=CHUNKS * CHUNK + 1):
    """A text that can be learned, as tokens of 16 bits."""
    with open(place.path("text.txt"), "rb") as file:
        text = (file.read() * 3)[:count]
    return written(place, "tokens.bin", struct.pack(f"<{len(text)}H", *text))


def command(*words, code=0, lines=None):
    done = subprocess.run([STARLING, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    said = done.stdout + done.stderr
    require(done.returncode == code, f"{words}: exit code {done.returncode}, expected {code}: {said}")
    require(lines is None or len(said.splitlines()) == lines, f"{words}: {said}")
    return said


def sharded(place, to):
    return command("shard", tokens(place), "--to", to, "--chunk-bytes", 2 * CHUNK, "--shard-bytes", 8 * 1024)


def lanes(place, path, more="", **changes):
    job = place.job(**{"steps": PASS + 10, "context": CONTEXT, "micro_batches": MICRO_BATCHES, "sequences": SEQUENCES, **changes})
    return edited(place, job, ('kind = "text"\npath = "text.txt"', f'kind = "tokens"\norder = "lanes"\npath = "{path}"\n{more}'))


def folder_of(place):
    if not os.path.isdir(place.path("shards")):
        sharded(place, place.path("shards"))
    return place.path("shards")


@contextlib.contextmanager
def bucket(place):
    with serving() as server, mock.patch.dict(os.environ, server.environment(place.folder)):
        sharded(place, PLACE)
        server.requests.clear()
        yield server


def bytes_read(server):
    """Of shards, by their names."""
    return sum(size for name, size in server.read if "/shard-" in name)


def any_group_has_the_same_bits(place):
    job = lanes(place, folder_of(place))
    alone = place.quiet(job)
    run = place.run(job, "--workers", 3, "--threads", 2)
    kill_join_and_leave(run, 20)
    require(run.digest() == alone.digest(), "another digest with kills")
    for one in (alone, run):
        said = command("audit", one.out)
        require(f"all {SAMPLES} samples once in 1 complete pass, and 160 of {SAMPLES} samples once in pass 1" in said, said)
    losses = [loss for _, loss, _ in alone.losses()]
    require(sum(losses[-20:]) < sum(losses[:20]) - 10, f"nothing is learned: {losses[0]} {losses[-1]}")
    # Shards are token files: the global order reads them, too, and has other bits.
    other = place.quiet(edited(place, job, ('order = "lanes"\n', "")))
    require(other.digest() != alone.digest(), "the order is in no bit")


def a_run_goes_on_from_a_checkpoint_with_the_samples_that_follow(place):
    job = lanes(place, folder_of(place), steps=60, schedule_steps=60)
    alone = place.quiet(job).digest()
    first = place.run(with_checkpoints(lanes(place, folder_of(place), steps=60, schedule_steps=60, more=""), place.path("c"), 20), "--workers", 2, "--steps", 40)
    first.end()
    run = place.run(with_checkpoints(lanes(place, folder_of(place), steps=60, schedule_steps=60), place.path("c"), 20), "--workers", 2, "--resume")
    require(run.digest() == alone, "another digest")


def a_bucket_is_read_by_each_worker_as_far_as_its_share_goes(place):
    quiet = place.quiet(lanes(place, folder_of(place), steps=PASS)).digest()
    with bucket(place) as server:
        data = 2 * CHUNKS * CHUNK
        equal = edited(place, lanes(place, PLACE, steps=PASS), (r"\[elastic\]\n", '[elastic]\nshares = "equal"\n'))
        for workers in (1, 4):
            server.read.clear()
            require(place.run(equal, "--workers", workers).digest() == quiet, f"{workers} workers: another digest")
            read = bytes_read(server)
            require(data <= read < 1.2 * data, f"{workers} workers: {read} bytes of {data}")
            index = sum(1 for method, name, _ in server.requests if method == "GET" and name.endswith("/index.json"))
            require(index <= workers + 2, f"{workers} workers: the index is read {index} times")
            server.requests.clear()


def a_store_that_does_wrong_changes_no_bit(place):
    quiet = place.quiet(lanes(place, folder_of(place))).digest()
    with bucket(place) as server:
        chance = random.Random(3)
        faults = ("503", "reset", "cut", "error200", (206, b"short"))
        server.fault = lambda method, name: chance.choice(faults) if "/shard-" in name and method == "GET" and chance.random() < 0.2 else None
        cache = place.path("cache")
        run = place.run(lanes(place, PLACE, f'cache = "{cache}"\ncache_bytes = 1048576\n'), "--workers", 3)
        kill_join_and_leave(run, 20)
        require(run.digest() == quiet, "another digest")
        require(sum(1 for *_, fault in server.requests if fault) > 20, "no faults")
        require(len(os.listdir(cache)) == CHUNKS, f"{len(os.listdir(cache))} chunks in the cache")

        # Now all comes from the cache, but for two chunks that are damaged.
        server.fault = lambda method, name: None
        server.read.clear()
        for name in sorted(os.listdir(cache))[:2]:
            with open(os.path.join(cache, name), "r+b") as file:
                file.write(b"damage")
        run = place.run(lanes(place, PLACE, f'cache = "{cache}"\n'), "--workers", 1)
        require(run.digest() == quiet, "another digest with the cache")
        require(0 < bytes_read(server) <= 4 * 2 * (CHUNK + 1), f"{bytes_read(server)} bytes in spite of the cache")
        require(run.text().count("a cached chunk is damaged, and is read from the store again: " + cache) == 2, run.text())


def a_store_that_is_away_is_waited_for(place):
    quiet = place.quiet(lanes(place, folder_of(place))).digest()
    with bucket(place) as server:
        # Of some shards, so that a worker that has all waits for one that has not, for longer than a standstill takes.
        job = edited(place, lanes(place, PLACE), (r"\[elastic\]\n", "[elastic]\nstandstill_ms = 3000\n"))
        run = place.run(job, "--workers", 2)
        run.wait_for_step(5)
        server.fault = lambda method, name: "503" if "/shard-" in name and name[-5] in "02468" else None
        wait_until(lambda: "waits for the store of the data" in run.text(), "a line that says what is waited for")
        time.sleep(8)
        server.fault = lambda method, name: None
        require(run.digest() == quiet, "another digest")
        require(not run.workers("lost") and not run.workers("fenced"), "a worker was left out")
        require("the store of the data is back" in run.text(), run.text())
        require("gets nowhere" not in run.text(), run.text())


def damage_is_one_line(place):
    shards = place.path("damaged")
    shutil.copytree(folder_of(place), shards)
    require(f"{CHUNKS} chunks of {CHUNK}" in command("check", shards + "/index.json", lines=1), "not whole")
    victim = os.path.join(shards, "shard-000003.bin")
    with open(victim, "r+b") as file:
        file.seek(2000)
        file.write(b"\x01\x02")
    said = command("check", shards, code=2, lines=2)
    require("chunk " in said and "is damaged" in said and victim in said and f"1 of {CHUNKS} chunks" in said, said)
    command("check", lanes(place, shards), code=0)
    os.truncate(os.path.join(shards, "shard-000002.bin"), 5000)
    require("shard-000002.bin" in command("check", lanes(place, shards), code=2, lines=1), "not said")
    shutil.copy(os.path.join(folder_of(place), "shard-000002.bin"), shards)
    run = place.run(lanes(place, shards), "--workers", 1)
    require(run.process.wait(PATIENCE) == 2, run.text())
    require("is damaged: has not the digest that the index says" in run.text() and victim in run.text(), run.text())


def what_cannot_be_is_said(place):
    def refused(expected, *words):
        said = command(*words, code=2, lines=1)
        require(expected in said, f"{words}: {said}")

    shards = folder_of(place)
    job = place.job()
    refused("order does not apply to kind \"text\"", "check", edited(place, job, ('kind = "text"', 'kind = "text"\norder = "lanes"')))
    plain = edited(place, lanes(place, shards), ('order = "lanes"\n', "cache = \"/x\"\n"))
    refused('cache does not apply to order "global"', "check", plain)
    refused("cache must be the whole path", "check", lanes(place, shards, 'cache = "x"\n'))
    refused("of a bucket, shards are read", "check", edited(place, lanes(place, PLACE), ('order = "lanes"\n', "")))
    refused("path must be a folder with an index.json", "check", lanes(place, tokens(place)))
    os.mkdir(place.path("empty"))
    refused("has no index.json", "check", lanes(place, place.path("empty")))
    refused("chunks, expected at least one for each", "check", lanes(place, shards, micro_batches=CHUNKS + 1))
    refused("expected at least the context's", "check", lanes(place, shards, context=CHUNK + 1))
    refused("is there already", "shard", tokens(place), "--to", shards)
    refused("are shards already", "shard", shards, "--to", place.path("few"))
    os.mkdir(place.path("folder"))
    shutil.copy(tokens(place), place.path("folder"))
    refused("--to lies in the folder of the tokens", "shard", place.path("folder"), "--to", place.path("folder/below"))
    huge = written(place, "huge.bin", struct.pack("<3i", 20240801, 7, 1000) + bytes(1012) + b"\xff" * 4000)
    refused("has the token 4294967295", "shard", huge, "--to", place.path("few"))
    refused("expected more than a chunk's", "shard", written(place, "few.bin", b"ab" * 100), "--to", place.path("few"))
    require(not [name for name in os.listdir(place.folder) if name.startswith("few") and name != "few.bin"], "something is left")
    with bucket(place) as server:
        refused("is there already", "shard", tokens(place), "--to", PLACE)
        server.objects["other/shard-000001.bin"] = b"somebody's"
        refused("shard-000001.bin is there already", "shard", tokens(place), "--to", f"s3://{BUCKET}/other", "--chunk-bytes", 512, "--shard-bytes", 8192)
        require(set(server.objects) & {"other/shard-000000.bin", "other/shards.claim"} == set(), "something is left")
        server.objects["claimed/shards.claim"] = b""
        refused("another starling shard writes here", "shard", tokens(place), "--to", f"s3://{BUCKET}/claimed")
        server.objects.pop("other/shard-000001.bin")
        server.fault = lambda method, name: "403" if method == "PUT" and "shard-000004" in name else None
        before = set(server.objects)
        refused("403 AccessDenied", "shard", tokens(place), "--to", f"s3://{BUCKET}/other", "--chunk-bytes", 512, "--shard-bytes", 8192)
        require(set(server.objects) == before, f"left: {set(server.objects) - before}")


def any_number_of_workers_and_threads_has_the_same_bits(place):
    same_digest_by_any_group(place, lanes(place, folder_of(place)), "lanes", 10)
    local = lanes(place, folder_of(place), sequences=8) + ".local"
    shutil.copy(lanes(place, folder_of(place), sequences=8), local)
    with open(local, "a") as file:
        file.write('\n[local]\nsteps = 4\nkind = "adamw"\npeak_rate = 1e-3\n\n[numbers]\ngrid_bits = 8\n')
    same_digest_by_any_group(place, local, "lanes, local steps, 8 bits", 10)


main(any_group_has_the_same_bits, a_run_goes_on_from_a_checkpoint_with_the_samples_that_follow,
     a_bucket_is_read_by_each_worker_as_far_as_its_share_goes, a_store_that_does_wrong_changes_no_bit,
     damage_is_one_line, what_cannot_be_is_said,
     long=(any_number_of_workers_and_threads_has_the_same_bits, a_store_that_is_away_is_waited_for))
