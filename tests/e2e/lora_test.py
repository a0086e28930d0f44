"""A job with [lora] trains adapters of weights that stay as they are: the same bits in any group, of the job's own weights and no
others; and what it leaves is read as adapters and as one model."""
import json
import os
import shutil
import subprocess

from harness import MINUTE, PATIENCE, STARLING, edited, kill_join_and_leave, main, processes_naming, require, wait_until, with_checkpoints

LORA = '[lora]\nrank = 4\nalpha = 8\ntargets = ["c_attn", "c_fc"]\n'


def starling(*words):
    done = subprocess.run([STARLING, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def text_of(*words):
    """Drawn, and so another one where some probability is."""
    code, out, err = starling("generate", *words, "--prompt", "ab", "--tokens", 200, "--temperature", 1)
    require(code == 0 and not err, f"{words}: {code} {err}")
    return out


def content(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def base_of(place, kind="gpt", seed=1):
    job = place.job(steps=60, more=f"seed = {seed}")
    if kind == "llama":
        job = edited(place, job, (r'kind = "gpt"', 'kind = "llama"\nkey_value_heads = 1\nfeed_forward = 80'))
    return place.quiet(job).out


def adapting(place, base, lora=LORA, kind="gpt", **changes):
    return edited(place, place.job(**changes), (r"(?s)kind = \"gpt\"\nlayers = .*?vocabulary = 256\n", f'kind = "{kind}"\nfrom = "{base}"\n{lora}'))


def adapters_have_the_same_bits_in_any_group(place):
    base = base_of(place)
    before = content(base, "model.safetensors")
    job = adapting(place, base, steps=300)
    code, out, err = starling("check", job)
    require(code == 0 and "adapters: rank 4, alpha 8, of c_attn, c_fc: " in out, f"{out} {err}")
    alone = place.quiet(job)
    elsewhere = place.path("elsewhere")
    shutil.copytree(base, elsewhere)
    run = place.run(job, "--workers", 3)
    kill_join_and_leave(run, 20, "--weights", elsewhere)
    require(run.digest() == alone.digest(), "another digest with kills")
    losses = [loss for _, loss, _ in alone.losses()]
    require(sum(losses[-20:]) < sum(losses[:20]), f"nothing is learned: {losses[0]} {losses[-1]}")
    require(content(base, "model.safetensors") == before, "the base was changed")
    require(sorted(name for name in os.listdir(alone.out) if name.endswith(".safetensors")) == ["adapter_model.safetensors"],
            str(os.listdir(alone.out)))
    config = json.loads(content(alone.out, "adapter_config.json"))
    require(config["base_model_name_or_path"] == base and config["r"] == 4 and config["lora_alpha"] == 8 and
            config["target_modules"] == ["c_attn", "c_fc"] and config["fan_in_fan_out"] is True, str(config))
    code, out, err = starling("check", alone.out)
    require(code == 0 and "8 tensors" in out, f"{code} {out} {err}")
    # The same command finds the run at its end.
    again = subprocess.run([STARLING, "run", job, "--out", alone.out, "--workers", "1", "--resume"], capture_output=True, text=True,
                           timeout=PATIENCE)
    require(again.returncode in (0, 2), again.stdout + again.stderr)


def adapters_and_their_base_are_one_model(place):
    for kind, lora in (("gpt", LORA), ("llama", '[lora]\nrank = 3\n')):
        base = base_of(place, kind)
        run = place.quiet(adapting(place, base, lora, kind, steps=100))
        text = text_of(run.out)
        require(text != text_of(base), "the adapters count for nothing")
        merged = place.path(f"merged-{kind}")
        code, out, err = starling("export", run.out, merged, "--merge")
        require(code == 0 and f"the model of {run.out} is {merged}/model.safetensors, adapters and all" in out, f"{code} {out} {err}")
        require(text_of(merged) == text, "merged weights write another text")
        code, out, err = starling("check", merged)
        require(code == 0, f"{code} {out} {err}")
        # What begins with the merged weights begins where the adapters were.
        begun = place.quiet(edited(place, place.job(steps=10), (r"(?s)kind = \"gpt\"\nlayers = .*?vocabulary = 256\n",
                                                               f'kind = "{kind}"\nfrom = "{merged}"\n'))).losses()[0][1]
        require(abs(begun - run.losses()[-1][1]) < 0.3, f"begins at {begun}, the adapters were at {run.losses()[-1][1]}")
        moved = place.path(f"moved-{kind}")
        shutil.move(base, moved)
        code, out, err = starling("generate", run.out, "--prompt", "ab")
        require(code == 2 and len(err.splitlines()) == 1 and "--base says where they are" in err, f"{code} {err}")
        require(text_of(run.out, "--base", moved) == text, "--base is not heeded")
        other = base_of(place, kind, seed=2)
        for words in (["generate", run.out, "--base", other], ["export", run.out, place.path("none"), "--merge", "--base", other]):
            code, out, err = starling(*words)
            require(code == 2 and len(err.splitlines()) == 1 and "are not those that were adapted" in err, f"{code} {err}")
        require(not os.path.exists(place.path("none")), "a folder without a model is left")
        of_other_kind = base_of(place, "llama" if kind == "gpt" else "gpt")
        for words in (["generate", run.out, "--base", of_other_kind, "--prompt", "a"], ["generate", run.out, "--base", run.out, "--prompt", "a"],
                      ["check", adapting(place, run.out, lora, kind)]):
            code, out, err = starling(*words)
            require(code == 2 and len(err.splitlines()) == 1 and ("modules that are adapted" in err or "has adapters of a model" in err), f"{code} {err}")


def what_ends_a_text_goes_with_adapters(place):
    """The base's tokens, in the folder of adapters and of the merged model."""
    base = base_of(place)
    with open(os.path.join(base, "generation_config.json"), "w") as file:
        json.dump({"eos_token_id": [7, 9]}, file)
    run = place.quiet(adapting(place, base, steps=10))
    merged = place.path("merged")
    code, out, err = starling("export", run.out, merged, "--merge")
    require(code == 0, err)
    for folder in (run.out, merged):
        require(json.loads(content(folder, "generation_config.json"))["eos_token_id"] == [7, 9], folder)
    require(json.loads(content(merged, "config.json"))["eos_token_id"] == 7, "config.json has another end")


def what_peft_may_compute_otherwise_is_refused(place):
    run = place.quiet(adapting(place, base_of(place), steps=10))
    config = json.loads(content(run.out, "adapter_config.json"))
    hostile = place.path("hostile")
    shutil.copytree(run.out, hostile)
    for change, expected in (({"use_dora": True}, "use_dora"), ({"layer_replication": [[0, 1]]}, "layer_replication"),
                             ({"init_lora_weights": "pissa"}, "init_lora_weights"), ({"some_new_config": {"a": 1}}, "some_new_config"),
                             ({"modules_to_save": ["wte"]}, "modules_to_save"), ({"rank_pattern": {"c_fc": 2}}, "rank_pattern"),
                             ({"target_modules": ["nope"]}, "none of the modules that are adapted: nope"), ({"r": 2}, "does not fit"),
                             ({"target_modules": "all-linear"}, "target_modules"), ({"base_model_name_or_path": "meta\nllama/L"}, "--base says")):
        with open(os.path.join(hostile, "adapter_config.json"), "w") as file:
            json.dump(config | change, file)
        code, out, err = starling("generate", hostile, "--prompt", "a")
        require(code == 2 and len(err.splitlines()) == 1 and expected in err, f"{change}: {code} {err}")
    with open(os.path.join(hostile, "adapter_config.json"), "w") as file:
        json.dump(config | {"peft_version": "0.21.2", "megatron_core": "megatron.core", "qalora_group_size": 16, "loftq_config": {},
                            "exclude_modules": None, "use_bdlora": None}, file)
    require(text_of(hostile) == text_of(run.out), "peft's own members change the text")
    os.remove(os.path.join(hostile, "adapter_model.safetensors"))
    code, out, err = starling("generate", hostile, "--prompt", "a")
    require(code == 2 and len(err.splitlines()) == 1, f"{code} {err}")


def checkpoints_are_of_one_base(place):
    base, folder = base_of(place, "llama"), place.path("checkpoints")
    lora = '[lora]\nrank = 4\ntargets = ["q_proj", "v_proj", "down_proj"]\n'

    def job(steps):
        return with_checkpoints(adapting(place, base, lora, "llama", steps=steps, schedule_steps=60, precision="bf16"), folder, 20)
    whole = place.quiet(adapting(place, base, lora, "llama", steps=60, schedule_steps=60, precision="bf16"))
    part = place.run(job(60), "--workers", 2)
    part.wait_for_step(45)
    part.kill_everything()
    wait_until(lambda: not processes_naming(part.out), "the guards of the killed workers end")
    code, said, err = starling("check", adapting(place, base, '[lora]\nrank = 2\n', "llama", steps=60, more="", precision="bf16"))
    require(code == 0 and "of memory once for all workers of a machine" in said, f"{code} {said} {err}")
    changed = with_checkpoints(adapting(place, base, '[lora]\nrank = 2\n', "llama", steps=60, precision="bf16"), folder, 20)
    code, said, err = starling("check", changed)
    require(code == 0 and "of step 40, of another job: [lora]" in said, f"{code} {said} {err}")
    out = place.path("exported")
    code, said, err = starling("export", folder, out)
    require(code == 0 and f"{out}/adapter_model.safetensors" in said, f"{code} {said} {err}")
    code, said, err = starling("export", folder, place.path("one"), "--merge")
    require(code == 0 and f"{place.path('one')}/model.safetensors, adapters and all" in said, f"{code} {said} {err}")
    require(text_of(out) == text_of(place.path("one")), "a checkpoint's adapters and the merged model write other texts")
    # The same path has other weights: a checkpoint of adapters is none of these.
    there = place.path("there")
    shutil.move(base, there)
    shutil.copytree(base_of(place, "llama", seed=2), base)
    code, said, err = starling("run", job(60), "--workers", 1, "--resume", "--out", place.path("refused"))
    require(code == 2 and "base" in err and "Traceback" not in err, f"{code} {said} {err}")
    shutil.rmtree(base)
    shutil.move(there, base)
    resumed = place.run(job(60), "--workers", 3, "--resume")
    require(resumed.digest() == whole.digest(), "another digest after all was lost")
    require(content(resumed.out, "adapter_model.safetensors") == content(whole.out, "adapter_model.safetensors"), "other adapters")


def other_weights_are_refused(place):
    base, other = base_of(place), base_of(place, seed=2)
    for job, expected in ((edited(place, adapting(place, base), (r'from = ".*"\n', "")), "[model].from must name them; [lora]"),
                          (adapting(place, base, '[lora]\nrank = 2\ntargets = "all-linear"\n'), "a list of some of"),
                          (adapting(place, base, '[lora]\nrank = 2\nbase = "' + 32 * "0" + '"\n'), "are not those that the job adapts")):
        code, out, err = starling("check", job)
        require(code == 2 and len(err.splitlines()) == 1 and expected in err, f"{code} {err}")
    run = place.run(adapting(place, base, steps=100000), "--workers", 1)
    run.wait_for_step(5)
    code, out, err = starling("worker", "--join", run.out, "--weights", other, "--save", "none")
    require(code == 2 and len(err.splitlines()) == 1 and "are not those that the job adapts" in err, f"{code} {err}")
    # The base of a run that goes on is written to: no pass uses it.
    with open(os.path.join(base, "model.safetensors"), "r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(b"\0" * 8)
    run.process.wait(2 * MINUTE)
    require(run.process.returncode != 0 and "was changed while it was in use; reading weights" in run.text(),
            f"{run.process.returncode} {run.text()[-2000:]}")


main(adapters_have_the_same_bits_in_any_group, adapters_and_their_base_are_one_model, what_ends_a_text_goes_with_adapters,
     what_peft_may_compute_otherwise_is_refused, checkpoints_are_of_one_base, other_weights_are_refused)
