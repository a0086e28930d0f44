"""`starling export`: the model of a checkpoint has the bits of a run that ends at its step."""
import os
import shutil
import subprocess

from harness import PATIENCE, STARLING, main, require


def exported(*words):
    done = subprocess.run([STARLING, "export", *words], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout + done.stderr


def content(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def with_checkpoints(place, precision="fp32"):
    """Of steps 10 and 20, of a job of 25 steps; and the models of jobs that end there, with the same rates."""
    job, folder = place.job(steps=25, precision=precision), place.path(f"checkpoints-{precision}")
    with open(job, "a") as file:
        file.write(f'\n[checkpoint]\ndir = "{folder}"\nevery = 10\nkeep = 2\n')
    place.quiet(job)
    return folder, {step: place.quiet(place.job(steps=step, schedule_steps=25, precision=precision)).out for step in (10, 20)}


def a_checkpoints_model_has_the_bits_of_a_run_to_its_step(place):
    folder, ends = with_checkpoints(place)
    for step, which in ((20, folder), (10, os.path.join(folder, "step-000000010")), (10, os.path.join(folder, "step-000000010/"))):
        out = place.path(f"model-{step}-{len(which)}")
        code, said = exported(which, out)
        require(code == 0 and said.startswith(f"the model of step {step} is {out}/model.safetensors"), f"{code}: {said}")
        for name in ("model.safetensors", "config.json"):
            require(content(out, name) == content(ends[step], name), f"{name} of step {step} differs from a run's")
    code, said = exported(folder, out)
    require(code == 2 and "already has a model, expected a new folder" in said, f"{code}: {said}")
    code, said = exported(ends[10], place.path("none"))
    require(code == 2 and len(said.splitlines()) == 1 and "no checkpoint that can be read here" in said, f"{code}: {said}")
    require(not os.path.exists(place.path("none")), "a folder without a model is left")


def beginning_with(place, weights):
    path = place.job(steps=8)
    with open(path) as file:
        before, rest = file.read().split("[model]\n")
    with open(path, "w") as file:
        file.write(f'{before}[model]\nkind = "gpt"\nfrom = "{weights}"\n[{rest.split("[", 1)[1]}')
    return path


def a_large_model_is_shards_that_are_the_same_model(place):
    folder, ends = with_checkpoints(place)
    out = place.path("shards")
    code, said = exported(folder, out, "--max-shard-size", "40KB")
    require(code == 0 and f" is {out}/model.safetensors.index.json, its parameters' digest" in said, f"{code}: {said}")
    shards = sorted(name for name in os.listdir(out) if name.endswith(".safetensors"))
    require(len(shards) > 2 and shards[0] == f"model-00001-of-{len(shards):05}.safetensors", str(shards))
    require(content(out, "config.json") == content(ends[20], "config.json"), "config.json differs from a run's")
    # What begins with the one and with the other is the same run.
    digests = []
    for weights in (out, ends[20]):
        digests.append(place.quiet(beginning_with(place, weights)).digest())
    require(digests[0] == digests[1], f"shards are other weights than their model: {digests}")
    code, said = exported(folder, out)
    require(code == 2 and "already has a model, expected a new folder" in said, f"{code}: {said}")
    code, said = exported(folder, place.path("whole"), "--max-shard-size", "1GB")
    require(code == 0 and content(place.path("whole"), "model.safetensors") == content(ends[20], "model.safetensors"), f"{code}: {said}")
    for size in ("0", "-1", "much", "5 GB GB"):
        code, said = exported(folder, place.path("none"), "--max-shard-size", size)
        require(code == 2 and len(said.splitlines()) == 1 and "--max-shard-size" in said, f"{size}: {code}: {said}")


def in_halves_it_is_rounded_as_a_run_leaves_it(place):
    for precision in ("bf16", "fp16"):
        folder, ends = with_checkpoints(place, precision)
        out = place.path(f"model-{precision}")
        code, said = exported(folder, out)
        require(code == 0, f"{code}: {said}")
        require(content(out, "model.safetensors") == content(ends[20], "model.safetensors"), f"{precision}: {said}")


def a_damaged_checkpoint_gives_no_model(place):
    folder, _ = with_checkpoints(place)
    step = os.path.join(folder, "step-000000020")
    shard = os.path.join(step, next(name for name in sorted(os.listdir(step)) if name.startswith("shard-")))
    with open(shard, "r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    code, said = exported(folder, place.path("out"))
    require(code != 0 and len(said.splitlines()) == 1 and os.path.basename(shard) in said, f"{code}: {said}")
    require(not os.path.exists(place.path("out")), "a folder without a model is left")
    shutil.rmtree(step)
    code, said = exported(folder, place.path("out"))
    require(code == 0 and "the model of step 10 is" in said, f"{code}: {said}")


main(a_checkpoints_model_has_the_bits_of_a_run_to_its_step, a_large_model_is_shards_that_are_the_same_model, in_halves_it_is_rounded_as_a_run_leaves_it,
     a_damaged_checkpoint_gives_no_model)
