"""Checkpoints in a store with S3's interface: what is lost with all machines, and what a store does wrong."""
import os
import signal
import subprocess
from unittest import mock

from harness import STARLING, main, require, same_so_far, wait_until, with_checkpoints
from s3_server import BUCKET, serving

FOLDER = f"s3://{BUCKET}/team a/run+1"
STEPS, MORE = 100000, 50  # stopped by hand; after the newest checkpoint


def steps_there(server):
    prefix = FOLDER.partition(BUCKET + "/")[2] + "/step-"
    return sorted(int(key[len(prefix):].split("/")[0]) for key in list(server.objects)
                  if key.startswith(prefix) and key.endswith("/manifest.json"))


def using(server, place, **more):
    return mock.patch.dict(os.environ, server.environment(place.folder, **more))


def command(*words, code=0):
    done = subprocess.run([STARLING, *map(str, words)], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=170)
    require(done.returncode == code, f"exit code {done.returncode}, expected {code}: {done.stdout}")
    return done.stdout


def refused(place, job, *options):
    """The line that a run ends with before it begins."""
    run = place.run(job, "--workers", 1, *options)
    code = run.process.wait(170)
    lines = run.text().strip().split("\n")
    require(code in (2, 3) and len(lines) == 1, f"exit code {code}:\n{run.text()}")
    return lines[0]


def endless(place, every=10, **changes):
    return with_checkpoints(place.waiting_job(steps=STEPS, schedule_steps=400, **changes), FOLDER, every)


def everything_is_lost_but_the_store_and_the_job_goes_on(place):
    with serving() as server, using(server, place):
        job = endless(place)
        first = place.run(job, "--workers", 3)
        wait_until(lambda: len(first.events("checkpoint")) >= 3, "three checkpoints")
        first.kill_everything()
        newest = steps_there(server)[-1]
        steps = newest + MORE
        quiet = place.quiet(place.waiting_job(steps=steps, schedule_steps=400))
        second = place.run(job, "--workers", 2, "--resume", "--steps", steps)
        require(second.digest() == quiet.digest(), f"digest {second.digest()}, undisturbed {quiet.digest()}")
        require(second.events("start")[0]["from"] == newest, f"went on from another step than {newest}")
        require("is of another job" in refused(place, with_checkpoints(place.waiting_job(seed=77, steps=STEPS), FOLDER, 10), "--resume"), "taken")

        whole = command("check", FOLDER)
        require(whole.count(", whole") == len(steps_there(server)), whole)
        command("export", f"{FOLDER}/step-{steps_there(server)[0]:09}", place.path("exported"))
        require(os.path.getsize(place.path("exported/model.safetensors")) > 100000, "no model")
        oldest = f"{FOLDER.partition(BUCKET + '/')[2]}/step-{steps_there(server)[0]:09}/manifest.json"

        def tidied(method, name):
            if method == "GET" and name.endswith(oldest):
                server.objects.pop(oldest, None)

        server.fault = tidied
        looked = command("check", FOLDER).strip().split("\n")
        require("removed while it was read" in looked[0] and all(", whole" in line for line in looked[1:]), looked)
        # Nothing is left of what was tried.
        require(not [key for key in server.objects if ".probe" in key] and not server.uploads, "something is left")



def the_trained_model_is_put_there_by_those_who_are_told_to(place):
    models = f"s3://{BUCKET}/models/one run"
    prefix = models.partition(BUCKET + "/")[2]

    def there(below=""):
        return {key[len(prefix) + 1:]: bytes(server.objects[key]) for key in server.objects if key.startswith(f"{prefix}/{below}")}

    def trained(**changes):
        run = place.run(place.job(steps=60, **changes), "--workers", 1)
        run.wait_for_step(1)
        worker = subprocess.Popen([STARLING, "worker", "--join", run.out, "--save", models], text=True, stdin=subprocess.DEVNULL,
                                  cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = worker.communicate(timeout=170)[0]
        run.digest()
        with open(os.path.join(run.out, "model.safetensors"), "rb") as file:
            return worker.returncode, said, file.read()

    with serving() as server, using(server, place):
        code, said, model = trained()
        require(code == 0 and f"model: {models}/model.safetensors" in said, f"{code}: {said}")
        require(there()["model.safetensors"] == model and "config.json" in there(), sorted(there()))
        puts = [name for method, name, _ in server.requests if method == "PUT" and prefix in name and ".probe" not in name]
        require(puts[-1].endswith("/model.safetensors") and len(puts) >= 2, puts)
        # The same model once more is not put again; another one gets a folder of its own.
        server.fault = lambda method, name: "503" if method == "GET" and "model.safetensors" in name and not server.uploads else None
        code, said, _ = trained()
        require(code == 6 and "is another model" not in said and len(there()) == 2, f"{code}: {said}{sorted(there())}")
        server.fault = lambda method, name: None
        code, said, _ = trained()
        again = [name for method, name, _ in server.requests if method == "PUT" and name.endswith("/model.safetensors")]
        require(code == 0 and len(again) == 1, f"{code}: {said}{again}")
        code, said, other = trained(more="seed = 5")
        beside = [name for name in there() if name.endswith("/model.safetensors")]
        require(code == 0 and "is another model; this one is" in said and len(beside) == 1, f"{code}: {said}{sorted(there())}")
        require(f"model: {models}/{beside[0]}\n" in said, said)  # and not the other one
        require(there()[beside[0]] == other and there()["model.safetensors"] == model, "another model")
        # What cannot be put is here.
        server.fault = lambda method, name: "507" if method == "PUT" and "model.safetensors" in name else None
        code, said, last = trained(more="seed = 6")
        require(code == 6 and "but here, in model.safetensors" in said, f"{code}: {said}")
        with open(place.path("model.safetensors"), "rb") as file:
            require(file.read() == last, "another model")
        # Without the right to write there it does not begin.
        server.fault = lambda method, name: "403" if method == "PUT" else None
        run = place.run(place.waiting_job(steps=STEPS), "--workers", 1)
        run.wait_for_step(1)
        said = command("worker", "--join", run.out, "--save", models, code=2)
        require("403" in said and len(said.strip().split("\n")) == 1, said)
        for wrong in ("s3://", "s3:/x", "S3://b/../c"):
            require(len(command("worker", "--join", run.out, "--save", wrong, code=2).strip().split("\n")) == 1, wrong)
        run.process.send_signal(signal.SIGINT)
        run.end(code=130)


def a_store_that_does_wrong_costs_warnings_and_no_step(place):
    with serving() as server, using(server, place):
        job = endless(place)
        run = place.run(job, "--workers", 2)
        wait_until(lambda: run.events("checkpoint"), "a checkpoint")
        for fault in ("503", "reset", "cut", "error200", "507", "403", "silence"):
            server.fault = lambda method, name, fault=fault: fault
            wait_until(lambda: server.requests[-1][2] == fault, f"a request that is answered with {fault}")
            run.wait_for_step(run.steps() + 30)
            if fault == "403":
                wait_until(lambda: [w for w in run.events("warning") if "the store answers 403 AccessDenied: as told; s3://" in w["text"]],
                           "a warning")
            server.fault = lambda method, name: None
            server.awake.set()
            there = len(run.events("checkpoint"))
            wait_until(lambda: len(run.events("checkpoint")) > there, f"a checkpoint after {fault}")
            server.awake.clear()
        require(not run.workers("lost") and not run.workers("fenced"), "a worker was left out")
        whole = command("check", FOLDER)
        require(whole.count(", whole") + whole.count(": removed while it was read") == len(whole.strip().split("\n")), whole)
        server.fault = lambda method, name: "silence"
        run.process.send_signal(signal.SIGINT)
        run.process.wait(170)
        same_so_far(place, run, place.waiting_job(steps=STEPS, schedule_steps=400))


def what_keeps_a_run_from_beginning_is_one_line(place):
    with serving() as server:
        job = endless(place)
        for expected, changed in (
                ("the store answers 403 SignatureDoesNotMatch", {"AWS_SECRET_ACCESS_KEY": "another"}),
                ("the store answers 403 InvalidAccessKeyId", {"AWS_ACCESS_KEY_ID": "another"}),
                ("the store answers 400 AuthorizationHeaderMalformed", {"AWS_REGION": "eu-test-2"}),
                ("only one is set", {"AWS_SECRET_ACCESS_KEY": ""}),
                ("there is no access key for s3://", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}),
                ("there is no profile x, which AWS_PROFILE names", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "x"}),
                ("expected the store's address as http://HOST:PORT", {"AWS_ENDPOINT_URL_S3": "ftp://x"}),
                ("Failed to connect", {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})):
            with using(server, place, **changed):
                line = refused(place, job)
                require(expected in line and "another" not in line, f"expected {expected!r}: {line}")
        with using(server, place):
            line = refused(place, job, "--checkpoints", "s3://no-such-bucket/x")
            require("404 NoSuchBucket" in line and "s3://no-such-bucket" in line, line)
            require("s3://BUCKET/PREFIX" in refused(place, job, "--checkpoints", "s3://A/x"), "no bucket is taken")


def a_worker_without_a_key_is_told_and_the_others_have_checkpoints(place):
    with serving() as server, using(server, place):
        run = place.run(endless(place), "--workers", 2)
        wait_until(lambda: run.events("checkpoint"), "a checkpoint")
        with using(server, place, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""):
            joiner = run.join()
        require(joiner.wait(170) == 2, f"exit code {joiner.returncode}")
        run.joiners.remove(joiner)
        require("there is no access key for s3://" in run.text(), run.text())
        there = len(run.events("checkpoint"))
        wait_until(lambda: len(run.events("checkpoint")) > there + 1, "more checkpoints")
        server.fault = lambda method, name: "503"
        before = len(run.workers())
        run.join()
        wait_until(lambda: len(run.workers()) > before, "a worker joins while the store is away")
        server.fault = lambda method, name: None
        same_so_far(place, run, place.waiting_job(steps=STEPS, schedule_steps=400))
        job = endless(place)
        require(f"checkpoints: every 10 steps in {FOLDER}, the newest of step {steps_there(server)[-1]}\n" in command("check", job), "not said")
        newest = f"{FOLDER}/step-{steps_there(server)[-1]:09}"
        require(command("check", newest).count(", whole") == 1, "not that one alone")


def what_is_secret_is_in_no_line(place):
    with serving() as server:
        job = endless(place)
        host = server.url.partition("://")[2]
        for changed in ({"AWS_ENDPOINT_URL_S3": f"http://me:hidden@{host}"}, {"http_proxy": "gopher://me:hidden@127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""},
                        {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://me:hidden@127.0.0.1:9/key?token=hidden", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
                        {"AWS_SECRET_ACCESS_KEY": "hid den"}, {"AWS_SESSION_TOKEN": "hidden\r\nx-another: header"},
                        {"AWS_SESSION_TOKEN": "hidden"}):
            with using(server, place, **changed):
                line = refused(place, job)
                require("hidden" not in line and "hid den" not in line, line)
        require(not [r for r in server.requests if r[2]], "a fault")
        with using(server, place, AWS_ACCESS_KEY_ID="AKEY\n", AWS_SECRET_ACCESS_KEY=" a-secret\n"):  # as Secrets of Kubernetes often are
            run = place.run(job, "--workers", 1)
            wait_until(lambda: run.events("checkpoint"), "a checkpoint")
            run.process.send_signal(signal.SIGINT)
            run.end(code=130)


def a_key_that_ends_is_asked_for_again(place):
    with serving() as server:
        server.keys = {"ONE": ("first", "token 1")}
        home = server.environment(place.folder)
        server.key_lasts = 100  # so near its end that it is renewed for each request
        machine = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "HOME": home["HOME"],
                   "AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}
        with using(server, place, **machine):
            server.metadata_fault = 503  # for a moment
            run = place.run(endless(place), "--workers", 1)
            wait_until(lambda: server.metadata_asked > 2, "the service is asked again")
            server.metadata_fault = None
            wait_until(lambda: run.events("checkpoint"), "a checkpoint")
            server.keys = {"TWO": ("second", "token 2")}
            server.expired.add("ONE")
            there = len(run.events("checkpoint"))
            wait_until(lambda: len(run.events("checkpoint")) > there + 1, "checkpoints with the second key")
            require(server.asked_for_key > 2, "the key was not asked for again")
            run.process.send_signal(signal.SIGINT)
            run.end(code=130)

        profile = place.path("profile")

        def write(access):
            with open(profile + ".new", "w") as file:
                secret, token = server.keys[access]
                file.write(f"[other]\naws_access_key_id = no\n[mine]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
                           f"aws_session_token = {token}\n")
            os.rename(profile + ".new", profile)

        write("TWO")
        with using(server, place, **{**machine, "AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": profile,
                                     "AWS_PROFILE": "mine"}):
            server.objects.clear()
            run = place.run(endless(place), "--workers", 1)
            wait_until(lambda: run.events("checkpoint"), "a checkpoint")
            server.keys["THREE"] = ("third", "token 3")
            write("THREE")
            del server.keys["TWO"]
            server.expired.add("TWO")
            there = len(run.events("checkpoint"))
            wait_until(lambda: len(run.events("checkpoint")) > there + 1, "checkpoints with the third key")
            require(not run.events("warning"), run.text())
            run.process.send_signal(signal.SIGINT)
            run.end(code=130)


def a_large_shard_is_put_in_parts_and_a_damaged_one_is_not_believed(place):
    with serving() as server, using(server, place):
        def large(path):
            with open(path) as file:
                text = file.read()
            require(text.count("parameters = 30_000") == 1, text)
            with open(path, "w") as file:
                file.write(text.replace("parameters = 30_000", "parameters = 7_000_000"))
            return path

        changes = dict(schedule_steps=400, steps=STEPS, micro_batches=2)
        job = with_checkpoints(large(place.waiting_job(**changes)), FOLDER, 5)
        first = place.run(job, "--workers", 1)
        wait_until(lambda: len(first.events("checkpoint")) >= 2, "two checkpoints")
        first.kill_everything()
        newer = steps_there(server)[-1]
        sizes = [len(data) for key, data in server.objects.items() if "shard-" in key]
        require(sizes and min(sizes) > 64 << 20, f"shards of {sizes} bytes")
        shard = next(key for key in server.objects if f"step-{newer:09}/shard-" in key)
        data = bytearray(server.objects[shard])
        data[len(data) // 2] ^= 1
        server.objects[shard] = bytes(data)
        require(f"checkpoint of step {newer}: " in command("check", FOLDER, code=1), "not found")
        steps = newer + 2
        quiet = place.quiet(large(place.waiting_job(**changes | {"steps": steps})))
        second = place.run(job, "--workers", 2, "--resume", "--steps", steps)
        require(second.digest() == quiet.digest(), f"digest {second.digest()}, undisturbed {quiet.digest()}")
        require("is damaged: segment" in second.text(), second.text())


def a_store_that_is_away_does_not_make_a_run_go_on_from_an_older_checkpoint(place):
    with serving() as server, using(server, place):
        job = endless(place)
        first = place.run(job, "--workers", 1)
        wait_until(lambda: len(first.events("checkpoint")) >= 2, "two checkpoints")
        first.kill_everything()
        newest = f"step-{steps_there(server)[-1]:09}/manifest.json"
        page = b"<html><body>default backend - 404</body></html>"
        for method, fault, said in (("GET", "503", "the store answers 503"),
                                    ("GET", "403", "the store answers 403"), ("GET", (404, page), "the store answers 404"),
                                    ("HEAD", (404, b""), "the store answers 404 of an object in its list")):
            server.fault = lambda asked, name, method=method, fault=fault: fault if asked == method and name.endswith(newest) else None
            line = refused(place, job, "--resume")
            require(said in line, line)
            if (method, fault) == ("GET", "403"):
                continue
            said_by = command("export", FOLDER, place.path("older"), code=3)
            require(said in said_by and not os.path.exists(place.path("older")), said_by)
        # Nor does a shard that is not shown.
        server.fault = lambda asked, name: "403" if asked == "GET" and "/shard-" in name and f"step-{steps_there(server)[-1]:09}" in name else None
        run = place.run(job, "--workers", 1, "--resume", "--steps", steps_there(server)[-1] + MORE)
        wait_until(lambda: [r for r in server.requests if r[2] == "403"], "a shard that is not shown")
        server.fault = lambda asked, name: None  # before the worker gives up
        run.end()
        require(not run.events("restart") and not run.events("warning"), run.text())


main(the_trained_model_is_put_there_by_those_who_are_told_to, everything_is_lost_but_the_store_and_the_job_goes_on,
     a_store_that_does_wrong_costs_warnings_and_no_step, what_keeps_a_run_from_beginning_is_one_line,
     a_worker_without_a_key_is_told_and_the_others_have_checkpoints, what_is_secret_is_in_no_line,
     long=(a_store_that_is_away_does_not_make_a_run_go_on_from_an_older_checkpoint, a_key_that_ends_is_asked_for_again,
           a_large_shard_is_put_in_parts_and_a_damaged_one_is_not_believed))
