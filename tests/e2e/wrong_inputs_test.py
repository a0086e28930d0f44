"""What a newcomer gets wrong: one line that says what, where and what was expected, and an exit code.

A table: name, arguments, exit code, texts that must be in the answer. {job} is a good job file, {x} a
file that the row writes. Whatever ends with 2 says so in one line on stderr, and at once.
"""
import os
import shutil
import re
import resource
import struct
import subprocess
import time

from harness import STARLING, edited, main, require, with_checkpoints, written
from ports import free_port

AT_ONCE = 20.0  # seconds on the busiest machine; what is waited for takes 30 and more


class Row:
    def __init__(self, name, arguments, code, *texts, limit=None, lines=1, environment=None):
        self.name, self.arguments, self.code, self.texts = name, arguments, code, texts
        self.limit, self.lines, self.environment = limit, lines, environment


def ask(arguments, limit=None, environment=None):
    begun = time.monotonic()
    ended = subprocess.run([STARLING, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                           errors="replace", stdin=subprocess.DEVNULL, preexec_fn=limit,
                           env={**os.environ, **(environment or {})})
    return ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begun


def check(rows):
    wrong = []
    for row in rows:
        code, out, err, seconds = ask(row.arguments, row.limit, row.environment)
        said = err if row.code else out + err
        lines = err.strip().splitlines()
        shown = f"{row.name}: exit code {code} after {seconds:.1f} s: {said.strip()[-600:]!r}"
        if code != row.code:
            wrong.append(f"{shown}, expected exit code {row.code}")
        elif row.code and (len(lines) != row.lines or not all(l.startswith("starling: ") for l in lines)):
            wrong.append(f"{shown}, expected {row.lines} line(s)")
        elif missing := [text for text in row.texts if text not in said]:
            wrong.append(f"{shown}, expected {missing}")
        elif seconds > AT_ONCE:
            wrong.append(f"{shown}, expected at once")
    require(not wrong, f"{len(wrong)} of {len(rows)} rows:\n" + "\n".join(wrong))


def the_command_line(place):
    job, out = place.job(steps=20), place.path("out")
    run = ["run", job, "--out", out]
    check([
        Row("no subcommand", [], 2, "which subcommand? run, worker, coordinator"),
        Row("a mistyped subcommand", ["trian"], 2, "unknown subcommand trian; did you mean run?"),
        Row("help for a mistyped subcommand", ["help", "chaoss"], 2, "unknown subcommand chaoss; did you mean chaos?"),
        Row("another's subcommand", ["train"], 2, "did you mean run?"),
        Row("nobody's subcommand", ["xyzzyplugh"], 2, "unknown subcommand xyzzyplugh; there are run, worker"),
        Row("--version", ["--version"], 0, "starling ", "compiler"),
        Row("help", ["help"], 0, "run", "worker", "coordinator"),
        Row("help run", ["help", "run"], 0, "--workers", "Example:"),
        Row("a mistyped option", [*run, "--worker", 4], 2, "unknown option --worker of run; did you mean --workers?"),
        Row("another's option", [*run, "--lr=0.1"], 2, "unknown option --lr of run; did you mean --peak-rate?"),
        Row("workers below 0", [*run, "--workers", -4], 2, "--workers: Value -4 not in range 1 to 64"),
        Row("no workers", [*run, "--workers", 0], 2, "--workers: Value 0 not in range 1 to 64"),
        Row("too many workers", [*run, "--workers", 65], 2, "--workers: Value 65 not in range"),
        Row("workers in words", [*run, "--workers", "four"], 2, "--workers"),
        Row("steps below 0", [*run, "--steps", -5], 2, "--steps: must be a whole number, 0 or more, is -5"),
        Row("a seed below 0", [*run, "--seed", -1], 2, "--seed: must be a whole number, 0 or more, is -1"),
        Row("a seed beyond all", [*run, "--seed", "9" * 30], 2, "--seed: must be a whole number"),
        Row("no steps", [*run, "--steps", 0], 2, "steps must be an integer from 1 to 4294967295, is 0; --steps"),
        Row("no lease", [*run, "--lease-ms", 0], 2, "lease_ms must be an integer from 10", "is 0; --lease-ms"),
        Row("99 replicas", [*run, "--replicas", 99], 2, "replicas must be an integer from 0 to 16, is 99; --replicas"),
        Row("a rate below 0", [*run, "--peak-rate", -1], 2, "peak_rate must be a number above 0", "; --peak-rate"),
        Row("a part of a step", [*run, "--steps", 1.5], 2, "--steps: must be a whole number, 0 or more, is 1.5"),
        Row("two coordinators", [*run, "--coordinators", 2], 2, "--coordinators", "2 not in"),
        Row("more at the start than in all", [*run, "--start", 5, "--workers", 2], 2,
            "--start 5 is more than all workers, --workers 2"),
        Row("no host of this machine", ["run", job, "--out", place.path("elsewhere"), "--host", "10.1.2.3"], 2, "Cannot assign requested address"),
        Row("a value of --path", [*run, "--path", "tcp"], 2, "starling: --path is now --transport auto, tcp or nccl, and tcp is none of its old values"),
        Row("--resume without checkpoints", [*run, "--resume"], 2, "--resume needs a [checkpoint] section"),
        Row("an address for a folder", ["run", job, "--out", "s3://bucket/out"], 2, "--out must be a path of this machine, is the address s3://bucket/out"),
        Row("an address for a job file", ["run", "https://a.b/job.toml", "--out", out], 2, "job must be a path of this machine"),
        Row("an address for checkpoints", [*run, "--checkpoints=gs://bucket/c"], 2, "--checkpoints must be s3://BUCKET/PREFIX or a path of this machine"),
        Row("an address for the model", ["worker", "--join", "127.0.0.1:1", "--keys", job, "--save", "hdfs://a/m"], 2, "--save must be s3://BUCKET/PREFIX or a path of this machine"),
        Row("an address for the log", ["coordinator", "--job", job, "--keys", job, "--state", "file:///state"], 2, "--state must be a path of this machine"),
        Row("unknown", ["infer"], 2, "unknown subcommand infer"),
    ])
    require(not os.path.exists(out) or not os.listdir(out), "a refused run left something in its folder")


def the_job_file(place):
    job, out = place.job(steps=20), place.path("out")

    def run(path):
        return ["run", path, "--out", out]

    def with_(*changes):
        return run(edited(place, job, *changes))

    no_job = "no such file or not a regular file, expected a job file (TOML)"
    steps, rate = r"steps = 20", r"peak_rate = 1e-3"
    check([
        Row("none", run(place.path("missing.toml")), 2, no_job, "missing.toml"),
        Row("a folder", run(place.folder), 2, no_job),
        Row("/dev/null", run("/dev/null"), 2, no_job),
        Row("stdin", run("-"), 2, no_job),
        Row("a program", run("/bin/ls"), 2, "expected TOML"),
        Row("YAML", run(written(place, "a.yaml", "job:\n  steps: 3\n")), 2, "expected TOML"),
        Row("JSON", run(written(place, "a.json", '{"job": {"steps": 3}}')), 2, "expected TOML"),
        Row("an unclosed text", with_((r'name = "e2e"', 'name = "e2e')), 2,
            "control characters other than TAB", "expected TOML"),
        Row("a key twice", with_((steps, "steps = 20\nsteps = 21")), 2, "steps", "line", "expected TOML"),
        Row("another's name of what is missing", with_((rate, "learning_rate = 1e-3")), 2,
            "unknown key `learning_rate`, here it is `peak_rate` in [optimizer]"),
        Row("what is missing", with_((rate, "")), 2, "peak_rate is missing; [optimizer].peak_rate"),
        Row("batch_size", with_((steps, "steps = 20\nbatch_size = 8")), 2,
            "unknown key `batch_size`, a step is `micro_batches` times `sequences`"),
        Row("lr", with_((rate, rate + "\nlr = 1")), 2, "here it is `peak_rate`"),
        Row("n_layer", with_((r"layers = 2", "n_layer = 2")), 2, "here it is `layers`"),
        Row("n_embd", with_((r"width = 32", "n_embd = 32")), 2, "here it is `width`"),
        Row("block_size", with_((r"context = 32", "block_size = 32")), 2, "here it is `context`"),
        Row("dropout", with_((r"context = 32", "context = 32\ndropout = 0.1")), 2, "there is no dropout"),
        Row("a mistyped section", with_((r"\[optimizer\]", "[optimiser]")), 2, "did you mean `optimizer`?"),
        Row("no such section", with_((r"\[model\]", "[trainer]\n[model]")), 2, "unknown section `trainer`, known are job, model"),
        Row("steps below 0", with_((steps, "steps = -3")), 2, "steps must be an integer from 1", "is -3", "line 4"),
        Row("steps as a power", with_((steps, "steps = 1e3")), 2, "steps must be an integer"),
        Row("steps as a text", with_((steps, 'steps = "60"')), 2, 'is "60"'),
        Row("a rate below 0", with_((rate, "peak_rate = -1e-3")), 2, "peak_rate must be a number above 0"),
        Row("a rate that is none", with_((rate, "peak_rate = nan")), 2, "peak_rate must be a number above 0"),
        Row("a rate beyond all", with_((rate, "peak_rate = 1e9")), 2, "peak_rate must be a number above 0.0, at most 1000.0"),
        Row("heads that do not fit", with_((r"width = 32", "width = 33")), 2, "width must be a multiple of heads (2), is 33"),
        Row("no such model", with_((r'kind = "gpt"', 'kind = "bloom"')), 2,
            'kind must be one of "gpt", "llama", "mlp", "synthetic", "python", "own", is "bloom"'),
        Row("no such optimizer", with_((r'kind = "adamw"', 'kind = "adafactor"')), 2, 'one of "adamw", "adam", "sgd"'),
        Row("a schedule that nobody has", with_((rate, rate + '\nschedule = "halving"')), 2,
            'this program has no schedule "halving", it has constant, linear, cosine, step,'),
        Row("a schedule without what it wants", with_((rate, rate + '\nschedule = "step"')), 2, "step_every is missing"),
        Row("another schedule's key", with_((rate, rate + '\ndecay_steps = 3')), 2,
            'decay_steps does not apply to the schedule "cosine", only to "warm-up-stable-decay"'),
        Row("gamma", with_((rate, rate + "\ngamma = 0.5")), 2, "here it is `step_factor`"),
        Row("a group of nothing", with_((rate, rate + '\ngroups = [{ tensors = ["*.bais"], weight_decay = 0.0 }]')), 2,
            'no tensor of the model is "*.bais", expected a name or pattern of ', "[optimizer].groups"),
        Row("a group's key", with_((rate, rate + '\ngroups = [{ tensors = ["*"], lr = 0.1 }]')), 2,
            "lr of a group is rate_factor here, times the learning rate; [optimizer].groups, line"),
        Row("no micro-batches", with_((r"micro_batches = 8", "micro_batches = 0")), 2, "micro_batches must be an integer from 1 to 4096, is 0"),
        Row("no such instruction set", with_((r'isa = "\w+"', 'isa = "sse"')), 2, "isa must be one of"),
        Row("no such precision", with_(('"fp32"', '"fp8"')), 2, 'precision must be one of "fp32", "bf16", "fp16", is "fp8"'),
        Row("a scale that is no power of two", with_(('"fp32"', '"fp16"\nloss_scale = 1000')), 2, "loss_scale must be a power of two, is 1000; [job].loss_scale, line"),
        Row("a scale beyond all", with_(('"fp32"', '"fp16"\nloss_scale = 33554432')), 2, "loss_scale must be an integer from 1 to 16777216, is 33554432"),
        Row("a scale as a part", with_(('"fp32"', '"fp16"\nloss_scale = 0.5')), 2, "loss_scale must be an integer", "is 0.5"),
        Row("a scale without fp16", with_(('"fp32"', '"bf16"\nloss_scale = 1024')), 2, 'the loss is scaled with precision = "fp16" alone'),
        Row("a scale that is never doubled", with_(('"fp32"', '"fp16"\nloss_scale_steps = 0')), 2, "loss_scale_steps must be an integer from 1"),
        Row("a vocabulary for text", with_((r"vocabulary = 256", "vocabulary = 300")), 2, "needs vocabulary = 256"),
        Row("beta1 with sgd", with_((r'kind = "adamw"', 'kind = "sgd"'), (rate, rate + "\nbeta1 = 0.9")), 2, "beta1 does not apply to kind \"sgd\""),
        Row("a warm-up beyond the schedule", with_((r"warmup_steps = 5", "warmup_steps = 50")), 2, "warmup_steps must be below the schedule's 20 steps"),
        Row("no GPU plugin", with_((r'isa = "\w+"', 'isa = "cuda"')), 2, 'isa is "cuda", but this build has no GPU plugin (looked for /nowhere/plugin.so)', environment={"STARLING_PLUGIN": "/nowhere/plugin.so"}),
        Row("52 T parameters", with_((r"width = 32", "width = 65536"), (r"layers = 2", "layers = 1024")), 2, "the model must have at most 2^36 parameters"),
        Row("7.4 G parameters", with_((r"width = 32", "width = 8192"), (r"layers = 2", "layers = 9")), 3, "not enough memory: 1 worker needs at least", "GiB, there is"),
        Row("check without a GPU plugin", ["check", *with_((r'isa = "\w+"', 'isa = "cuda"'))[1:2]], 0, "isa cuda", "warning: isa is \"cuda\", but this build has no GPU plugin", "no worker can begin here", environment={"STARLING_PLUGIN": "/nowhere/plugin.so"}),
        Row("check of a job with --isa", ["check", job, "--isa", "avx2"], 2, "--isa, --bf16 and --fp16 are for reference files"),
        Row("a blank in the name", with_((r'name = "e2e"', 'name = "a b"')), 2, "name must consist of letters", "is a b"),
        Row("a name in UTF-8", with_((r'name = "e2e"', 'name = "größe"')), 2, "is größe"),
        Row("no [checkpoint] to put elsewhere", [*run(job), "--checkpoints", place.path("c")], 2, "--checkpoints needs a [checkpoint] section"),
    ])
    bom = written(place, "bom.toml", b"\xef\xbb\xbf" + open(job, "rb").read().replace(b"\n", b"\r\n"))
    check([Row("BOM and CRLF", ["check", bom], 0, "20 steps", "memory: a worker alone needs at least")])


def the_data(place):
    job, out = place.job(steps=20), place.path("out")

    def with_(path, kind="text"):
        return ["run", edited(place, job, (r'path = "text.txt"', f'path = "{path}"'), (r'kind = "text"', f'kind = "{kind}"')), "--out", out]

    folder = place.path("shards")
    os.mkdir(folder)
    check([
        Row("an address", with_("gs://bucket/x"), 2, "is the address gs://bucket/x, which nothing here understands"),
        Row("a bucket", with_("s3://bucket/x"), 2, "is s3://bucket/x: of a bucket, shards are read (starling shard)"),
        Row("an address for checkpoints", ["run", written(place, "gs.toml", open(job).read() + '[checkpoint]\ndir = "gs://b/ck"\nevery = 5\n'), "--out", out], 2, "dir must be s3://BUCKET/PREFIX or a folder of this machine, is the address gs://b/ck"),
        Row("no bucket", ["run", written(place, "s3.toml", open(job).read() + '[checkpoint]\ndir = "s3://B/ck"\nevery = 5\n'), "--out", out], 2, "expected s3://BUCKET/PREFIX", "s3://B/ck", "[checkpoint].dir"),
        Row("a home for checkpoints", ["run", written(place, "home.toml", open(job).read() + '[checkpoint]\ndir = "~/ck"\nevery = 5\n'), "--out", out], 2, "~ means no folder here"),
        Row("a home", with_("~/x"), 2, "~ means no folder here"),
        Row("missing", with_("missing.txt"), 2, "path must be a file or folder that can be read", "missing.txt"),
        Row("/dev/zero", with_("/dev/zero"), 2, "path must be a regular file or a folder"),
        Row("three bytes", with_(written(place, "three", b"abc")), 2, "must have at least 33 bytes (context + 1), has 3"),
        Row("half a token", with_(written(place, "odd.bin", b"a" * 101), "tokens"), 2, "even number of bytes"),
        Row("cut tokens", with_(written(place, "cut.bin", struct.pack("<3i", 20240520, 1, 99) + bytes(1100)), "tokens"), 2, "header says 99 tokens at byte 8"),
        Row("a folder without tokens", with_(folder, "tokens"), 2, "must have at least 33 tokens (context + 1), has 0", "shards"),
        Row("a pattern of nothing", with_(folder + "/*.bin", "tokens"), 2, "*.bin", "no file matches"),
        Row("an empty folder", with_(folder), 2, "must have at least 33 bytes"),
    ])
    mlp = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "mlp", "digits.toml")
    with open(mlp) as file:
        text = file.read()
    data = os.path.abspath(os.path.join(os.path.dirname(mlp), re.search(r'path = "([^"]*)"', text)[1]))
    text = re.sub(r'path = "[^"]*"', f'path = "{data}"', text)
    narrow = written(place, "narrow.toml", re.sub(r"sizes = \[64", "sizes = [63", text))
    few = written(place, "few.toml", re.sub(r"10\]", "9]", text))
    with open(data, "rb") as file:
        half = written(place, "half.safetensors", file.read()[:5000])
    cut = written(place, "half.toml", text.replace(data, half))
    whole_folder = written(place, "folder.toml", text.replace(data, place.folder))
    check([
        Row("63 inputs", ["run", narrow, "--out", out], 2, "x must be F32 of shape [n, 63]", "64 columns"),
        Row("nine classes", ["run", few, "--out", out], 2, "y must be from 0 to 8", "row"),
        Row("a cut file", ["run", cut, "--out", out], 2, "half.safetensors"),
        Row("a folder of samples", ["run", whole_folder, "--out", out], 2, "path must be a file for kind \"classified\"", place.folder),
    ])


def names_that_are_not_here(place):
    """`check` refuses what `run` does, and `run` makes no folder before."""
    job = place.job(steps=20)
    own = "[job]\nname = 'own'\nsteps = 5\n[model]\nkind = 'own'\nname = 'lines'\ntensors = ['w:8']\nsamples = 5\n" \
          "[optimizer]\nkind = 'adamw'\npeak_rate = 0.1\n"
    script = own.replace("'own'\nname = 'lines'", "'python'\nscript = 'none.py'")
    rows, outs = [], []
    for name, path, text in (
            ("schedule", edited(place, job, (r"\[optimizer\]", '[optimizer]\nschedule = "halvin"')),
             'this program has no schedule "halvin", it has constant, linear, cosine, step, one-cycle, warm-up-stable-decay,'
             ' inverse-square-root; [optimizer].schedule'),
            ("optimizer", written(place, "optimizer.toml", own.replace("'adamw'", "'own'\nname = 'adagard'")),
             'this program has no optimizer "adagard", it has none; [optimizer].name'),
            ("model", written(place, "model.toml", own), 'this program has no model "lines", it has none; [model].name'),
            ("script", written(place, "script.toml", script), f"no script {place.path('none.py')} here; [model].script"),
            ("group", edited(place, job, (r"\[optimizer\]", '[optimizer]\ngroups = [{ tensors = ["*.bais"] }]')),
             "expected a name or pattern of wte.weight")):
        outs.append(place.path("out-of-" + name))
        rows += [Row(f"check: {name}", ["check", path], 2, text, "; reading " + path),
                 Row(f"run: {name}", ["run", path, "--out", outs[-1]], 2, text, "; reading " + path)]
    check(rows)
    left = [out for out in outs if os.path.exists(out)]
    require(not left, f"left behind: {left}")


def files_and_folders(place):
    job = place.job(steps=20)
    full = place.run(job, "--workers", 1).end()
    keys = place.path("keys")
    require(ask(["keys", "--out", keys])[0] == 0, "no keys")
    loose = place.path("loose")
    require(ask(["keys", "--out", loose])[0] == 0, "no keys")
    os.chmod(loose, 0o644)
    a_file = written(place, "a-file", "x")
    worker = ["worker", "--job", job]
    pipe = place.path("pipe")
    os.mkfifo(pipe)
    checkpoints = place.path("checkpoints")
    saved = with_checkpoints(place.job(steps=20), checkpoints, every=10)
    place.run(saved, "--workers", 1).end()
    check([Row("check of checkpoints", ["check", checkpoints], 0, "whole")])
    owner = os.path.join(checkpoints, "owner.json")
    with open(owner) as file:
        text = file.read()
    written(place, "checkpoints/owner.json", text[len(text) // 2:])
    cut = [Row("check of checkpoints of nobody", ["check", checkpoints], 1, "owner.json")]
    check(cut)
    written(place, "checkpoints/owner.json", text)
    manifest = os.path.join(checkpoints, "step-000000010", "manifest.json")
    os.remove(manifest)
    os.mkfifo(manifest)
    events_pipe = place.path("piped/events.jsonl")
    os.mkdir(os.path.dirname(events_pipe))
    os.mkfifo(events_pipe)
    own = place.path("own/job.toml")
    os.mkdir(os.path.dirname(own))
    shutil.copy(job, own)
    shutil.copy(place.path("text.txt"), os.path.dirname(own))
    check([
        Row("a pipe for a manifest", ["check", checkpoints], 1, "not a regular file", "manifest.json"),
        Row("check of a pipe", ["check", pipe], 2, "not a regular file"),
        Row("a pipe for a job", ["run", pipe, "--out", place.path("p1")], 2, "not a regular file"),
        Row("a pipe for a plan", ["chaos", job, "--plan", pipe, "--out", place.path("p2")], 2, "not a regular file"),
        Row("a pipe for a trace", ["replay", job, "--trace", pipe, "--out", place.path("p3")], 2, "not a regular file"),
        Row("a pipe for events", ["audit", pipe], 2, "pipe"),
        Row("a used folder", ["run", job, "--out", full.out], 2, "already"),
        Row("the job's own folder", ["run", own, "--out", os.path.dirname(own)], 2, "has the job file itself"),
        Row("a pipe for the events of a run", ["run", job, "--out", os.path.dirname(events_pipe)], 2, "piped"),
        Row("a file for a folder", ["run", job, "--out", a_file], 2, "a-file"),
        Row("nowhere", ["run", job, "--out", "/proc/nowhere"], 2, "/proc/nowhere"),
        Row("no key file", [*worker, "--join", "127.0.0.1:1", "--keys", place.path("none")], 2, "none"),
        Row("no keys in it", [*worker, "--join", "127.0.0.1:1", "--keys", a_file], 2, "a-file"),
        Row("keys that others read", [*worker, "--join", "127.0.0.1:1", "--keys", loose], 2, "0600"),
        Row("keys that are there", ["keys", "--out", keys], 2, "keys"),
        Row("no address", [*worker, "--join", "foo", "--keys", keys], 2, "foo"),
        Row("no run's folder", [*worker, "--join", place.folder], 2, "no run is in the folder " + place.folder, "host:port of the coordinators"),
        Row("a run that is over", [*worker, "--join", full.out], 2, f"the run in {full.out} is over, or its keys lie elsewhere"),
        Row("a folder with a pipe", [*worker, "--join", os.path.dirname(events_pipe)], 2, "no run is in the folder"),
        Row("no such port", [*worker, "--join", "127.0.0.1:99999", "--keys", keys], 2, "99999"),
        Row("two addresses for one key", [*worker, "--join", "127.0.0.1:1,127.0.0.1:2", "--keys", keys], 2, "coordinator"),
        Row("no such name", [*worker, "--join", "127.0.0.1:1", "--keys", keys, "--name", "bob"], 2, "bob"),
        Row("a metadata service of FTP", [*worker, "--join", "127.0.0.1:1", "--keys", keys, "--notices", "aws", "--metadata", "ftp://x"], 2, "ftp://x"),
        Row("audit of nothing", ["audit", place.path("nothing")], 2, "nothing"),
        Row("audit of no events", ["audit", a_file], 2, "a-file"),
        Row("audit of no such sample", ["audit", full.out, "--sample", 999999], 2, "999999"),
        Row("chaos without a folder", ["chaos", job, "--random"], 2, "--out"),
        Row("chaos without a plan", ["chaos", job, "--out", place.path("c1")], 2, "--plan"),
        Row("chaos of no such kind", ["chaos", job, "--out", place.path("c2"), "--random", "--kinds", "flood"], 2, "flood"),
        Row("chaos of no duration", ["chaos", job, "--out", place.path("c3"), "--random", "--duration", "soon"], 2, "soon"),
        Row("replay without a trace", ["replay", job, "--out", place.path("r1")], 2, "trace"),
        Row("check of nothing", ["check", place.path("nothing")], 2, "nothing"),
        Row("check of a trained model", ["check", os.path.join(full.out, "model.safetensors")], 0, "parameters", "digest"),
    ])


def engines(place):
    waits = dict(start_timeout_ms=600000, coordinator_timeout_ms=600000)
    job, hurried = place.job(**waits), place.job(start_timeout_ms=30000)
    out = place.path("engine")

    def slurm(*options, job=job, at="n4:7000", out=out):
        return ["launch", "slurm", job, "--out", out, "--workers", 3, "--at", at, *options]

    pods = ["launch", "kubernetes", job, "--out", out, "--workers", 3, "--image", "i:1"]
    systemd = ["launch", "systemd", job, "--out", out, "--workers", 3, "--at", "10.0.0.1:7000"]
    check([
        Row("no engine", ["launch"], 2, "engine is required"),
        Row("another engine", ["launch", "lsf", job], 2, "engine", "lsf not in {slurm"),
        Row("no workers", ["launch", "slurm", job, "--at", "n4:7000"], 2, "--workers is required"),
        Row("no addresses", ["launch", "slurm", job, "--workers", 3], 2, "slurm needs --at"),
        Row("no job file", slurm(job=place.path("none.toml")), 2, "no such file"),
        Row("a script", slurm(job="train.py"), 2, "no such script; reading train.py"),
        Row("no patience", slurm(job=hurried), 2, "[elastic].start_timeout_ms is 30000", "expected 600000", hurried),
        Row("two coordinators", slurm(at="a:1,b:1"), 2, "1, 3 or 5 coordinators, and --at names 2"),
        Row("no port", slurm(at="n4"), 2, "n4"),
        Row("port 0", slurm(at="n4:0"), 2, "expected a host and a port"),
        Row("every address", slurm(at="0.0.0.0:7000"), 2, "expected a host and a port"),
        Row("an address for a node", slurm(at="10.0.0.1:7000"), 2, "--at must name a node of Slurm", "10.0.0.1"),
        Row("more than all", slurm("--min-workers", 4), 2, "--min-workers 4 is more than all workers, --workers 3"),
        Row("a line more in a name", slurm("--name", "a\n#SBATCH --uid=0"), 2, "the name of the job must be"),
        Row("a line more in a partition", slurm("--partition", "a\nb"), 2, "a partition must be"),
        Row("a line more in a path", slurm("--data", "/a\nb"), 2, "--data has a control character"),
        Row("a program that systemd does not find", [*systemd, "--program", "bin/starling"], 2, "must be an absolute path"),
        Row("a line more in a unit", [*systemd, "--data", "/a\nUser=root"], 2, "--data has a control character"),
        Row("a partition of systemd", [*systemd, "--partition", "spot"], 2, "--partition is an option of slurm, and systemd has none such"),
        Row("units are not submitted", [*systemd, "--submit"], 2, "--submit begins nothing on other machines"),
        Row("no volume", pods, 2, "kubernetes needs --volume"),
        Row("no folder", [*pods, "--volume", "claim"], 2, "--volume must be CLAIM:FOLDER", "is claim"),
        Row("a relative folder", [*pods, "--volume", "claim:a"], 2, "the folder of --volume must be an absolute path"),
        Row("a name that Kubernetes has not", [*pods, "--volume", "c:/a", "--name", "My_job"], 2,
            "the name of the job must be a name of Kubernetes"),
        Row("a line more in YAML", [*pods, "--volume", "c:/a\nb"], 2, "the folder of --volume has a control character"),
        Row("another command in a pod", [*pods, "--volume", "c:/a;b"], 2, "must be an absolute path of letters"),
        Row("data that pods do not have", [*pods, "--volume", "c:/a", "--data", "text"], 2, "--data must be an absolute path"),
        Row("addresses of pods", [*pods, "--volume", "c:/a", "--at", "a:1"], 2, "--at is an option of slurm"),
        Row("no kubectl", [*pods, "--volume", "c:/a", "--submit"], 2, "--submit needs kubectl", environment={"PATH": "/nonexistent"}),
        Row("no keys", slurm("--keys", place.path("none")), 2, place.path("none")),
        Row("no sbatch", slurm("--submit"), 2, "--submit needs sbatch, which is not on the PATH",
            environment={"PATH": "/nonexistent"}),
        Row("a folder that cannot be", slurm(out="/proc/x"), 2, "cannot make the folder /proc/x"),
    ])
    require(not os.path.exists(out), "a refused launch left something in its folder")


def too_few_of_something(place):
    job = place.job(steps=20, start_timeout_ms=1000)
    port = free_port()
    keys = place.path("few-keys")
    require(ask(["keys", "--out", keys])[0] == 0, "no keys")

    def limited(what, most):
        return lambda: resource.setrlimit(what, (most, most))

    # Nothing of a network: arrays of 60 million parameters, of which a few do not fit into the limit.
    synthetic = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "synthetic", "1m.toml")
    large = edited(place, synthetic, (r"parameters = [0-9_]+", "parameters = 200000000"))

    check([
        Row("workers that do not come", ["coordinator", "--new", "--job", job, "--keys", keys, "--listen", f"127.0.0.1:{port}",
                                         "--state", place.path("state"), "--workers", 3], 3,
            "0 of 3 workers came within 1000 ms, [elastic].start_timeout_ms"),
        Row("16 open files", ["run", job, "--out", place.path("few")], 2, "open files in each worker, 16 are allowed",
            limit=limited(resource.RLIMIT_NOFILE, 16)),
        Row("1 GB of address space", ["run", large, "--out", place.path("large")], 3, "memory",
            limit=limited(resource.RLIMIT_AS, 1 << 30)),
    ])


main(the_command_line, the_job_file, the_data, names_that_are_not_here, files_and_folders, engines,
     too_few_of_something)
