"""A model is trained from the weights of another one, in any group with the same bits; and `starling generate` has it write."""
import json
import os
import re
import shutil
import struct
import subprocess

from harness import PATIENCE, STARLING, edited, kill_join_and_leave, main, require

BPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "bpe")


def generate(*words, text=None):
    done = subprocess.run([STARLING, "generate", *map(str, words)], capture_output=True, text=True, input=text, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def written(*words, text=None):
    code, out, err = generate(*words, text=text)
    require(code == 0 and not err, f"{words}: {code} {err}")
    return out


def trained(place, **changes):
    """The folder of a model over bytes."""
    seed = changes.pop("seed", 1)
    return place.quiet(place.job(**{"steps": 60, "more": f"seed = {seed}"} | changes)).out


def going_on_from(place, model, **changes):
    """A job that begins with these weights; the model's own keys are taken from its config.json."""
    return edited(place, place.job(**changes),
                  (r"(?s)layers = .*?vocabulary = 256\n", f'from = "{model}"\n'))


def a_model_writes_what_its_seed_says(place):
    model = trained(place)
    first = written(model, "--prompt", "ab", "--tokens", 50)
    require(first.startswith("ab") and first.endswith("\n") and len(first) > 40, first)
    require(written(model, "--prompt", "ab", "--tokens", 50) == first, "the same seed wrote another text")
    require(written(model, "--prompt", "ab", "--tokens", 50, "--seed", 2) != first, "another seed wrote the same text")
    greedy = written(model, "--prompt", "ab", "--tokens", 50, "--temperature", 0)
    require(greedy == written(model, "--prompt", "ab", "--tokens", 50, "--temperature", 0, "--seed", 5), "greedy is drawn")
    require(greedy == written(model, "--prompt", "ab", "--tokens", 50, "--top-k", 1), "top-k 1 is not greedy")
    # The instruction sets differ in the last bits alone.
    require(greedy == written(model, "--prompt", "ab", "--tokens", 50, "--temperature", 0, "--isa", "reference"), "reference differs")
    with open(place.path("prompt"), "w") as file:
        file.write("ab")
    require(written(model, "--prompt-file", place.path("prompt"), "--tokens", 50) == first, "a prompt of a file is another one")
    require(written(model, "--prompt-file", "-", "--tokens", 50, text="ab") == first, "a prompt of standard input is another one")
    two = written(model, "--prompt", "ab", "--tokens", 50, "--samples", 2)
    require(two.startswith(first + "---\nab") and two != first + "---\n" + first, two)
    ids = written(model, "--prompt", "ab", "--tokens", 50, "--ids").split()
    require("ab" + bytes(map(int, ids)).decode(errors="replace") + "\n" == first, f"{ids} {first!r}")
    stop = greedy[20:23]
    require(written(model, "--prompt", "ab", "--tokens", 50, "--temperature", 0, "--stop", stop) ==
            greedy[:greedy.index(stop, 2)] + "\n", f"does not end before {stop!r}")
    # The context is 32 tokens; a longer text goes on from its second half.
    require(len(written(model, "--prompt", "a" * 100, "--tokens", 100, "--temperature", 0)) > 150, "short")


def it_ends_at_the_tokens_that_the_model_says(place):
    """Those of generation_config.json, or of config.json: one or several, as transformers takes them."""
    model = trained(place)
    words = ["--prompt", "ab", "--tokens", 50, "--seed", 3, "--temperature", 2, "--ids"]
    ids = written(model, *words).split()
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)

    def ending(name, said):
        with open(os.path.join(model, name), "w") as file:
            json.dump(config | said if name == "config.json" else said, file)
        return written(model, *words).split()

    first, later = ids[3], next(token for token in ids if token not in ids[:4])
    require(ending("config.json", {"eos_token_id": int(later)}) == ids[:ids.index(later)], f"{later} of config.json ends nothing")
    require(written(model, *words, "--past-end").split() == ids, "--past-end ends")
    require(ending("generation_config.json", {"eos_token_id": [255, int(first)]}) == ids[:ids.index(first)], f"{first} ends nothing")
    require(ending("generation_config.json", {"eos_token_id": None}) == ids[:ids.index(later)], "config.json is not heeded")


def a_run_from_weights_begins_where_they_are(place):
    """Bits do not depend on the number of workers, on kills, nor on where the weights lie; other weights are refused."""
    model = trained(place)
    with open(os.path.join(model, "events.jsonl")) as file:
        last = [json.loads(line) for line in file if '"step"' in line][-1]
    job = going_on_from(place, model, steps=400)
    alone = place.quiet(job)
    begun = alone.losses()[0][1]
    require(abs(begun - last["loss"]) < 0.1, f"begins at {begun}, the weights were at {last['loss']}")
    drawn = place.quiet(place.job(steps=20)).losses()[0][1]
    require(drawn > begun + 1, f"the weights do not count: {drawn}, {begun}")
    elsewhere, other = place.path("elsewhere"), trained(place, seed=2)
    shutil.copytree(model, elsewhere)
    run = place.run(job, "--workers", 3)
    kill_join_and_leave(run, 20, "--weights", elsewhere)
    require(run.digest() == alone.digest(), "another digest with kills")
    run = place.run(edited(place, job, (r"steps = 400", "steps = 100000")), "--workers", 1)
    run.wait_for_step(5)
    joiner = subprocess.run([STARLING, "worker", "--join", run.out, "--weights", other], capture_output=True, text=True,
                            timeout=PATIENCE, cwd=place.folder)
    require(joiner.returncode == 2 and "weights" in joiner.stderr, f"{joiner.returncode} {joiner.stderr}")
    run.process.terminate()
    run.process.wait(PATIENCE)


def a_llama_is_the_same_in_any_group(place):
    """Drawn weights, kills, and weights that go on; its model is one of transformers' kind, and writes."""
    def llama(**changes):
        return edited(place, place.job(**changes), (r'kind = "gpt"', 'kind = "llama"\nkey_value_heads = 1\nfeed_forward = 80\n'
                                                    'rope_scaling = "linear"\nrope_factor = 2'))
    job = llama(steps=300)
    alone = place.quiet(job)
    run = place.run(job, "--workers", 3)
    kill_join_and_leave(run, 20)
    require(run.digest() == alone.digest(), "another digest with kills")
    with open(os.path.join(alone.out, "config.json")) as file:
        config = json.load(file)
    require(config["model_type"] == "llama" and config["num_key_value_heads"] == 1 and
            config["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}, str(config))
    greedy = written(alone.out, "--prompt", "ab", "--tokens", 50, "--temperature", 0)
    require(greedy == written(alone.out, "--prompt", "ab", "--tokens", 50, "--temperature", 0, "--isa", "reference"), "reference differs")
    more = edited(place, llama(steps=10), (r"(?s)layers = .*?vocabulary = 256\n", f'from = "{alone.out}"\n'),
                  (r"key_value_heads = 1\nfeed_forward = 80\nrope_scaling = \"linear\"\nrope_factor = 2\n", ""))
    begun = place.quiet(more).losses()[0][1]
    last = alone.losses()[-1][1]
    require(abs(begun - last) < 0.2, f"begins at {begun}, the weights were at {last}")


def what_does_not_fit_is_one_line(place):
    model = trained(place)

    def refused(expected, *words, code=2):
        got, out, err = generate(*words)
        require(got == code and len(err.splitlines()) == 1 and expected in err, f"{words}: {got} {err!r}")

    def run_refused(expected, folder):
        run = place.run(going_on_from(place, folder), "--workers", 1)
        run.end(2)
        require(expected in run.text(), run.text()[-2000:])

    def changed(change):
        place.count += 1
        folder = place.path(f"model-{place.count}")
        shutil.copytree(model, folder, ignore=shutil.ignore_patterns("events.jsonl", "loss.svg"))
        change(folder)
        return folder

    def config(**values):
        def change(folder):
            with open(os.path.join(folder, "config.json")) as file:
                content = json.load(file)
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump(content | values, file)
        return change

    def cut(folder):
        path = os.path.join(folder, "model.safetensors")
        os.truncate(path, os.path.getsize(path) - 1)

    def header(edit):
        def change(folder):
            path = os.path.join(folder, "model.safetensors")
            with open(path, "rb") as file:
                length = struct.unpack("<Q", file.read(8))[0]
                text, data = file.read(length).decode(), file.read()
            text = edit(text).encode()
            with open(path, "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + data)
        return change

    for expected, change in (
            ("its model_type is \"bloom\", expected ", config(model_type="bloom")),
            ("activation_function", config(activation_function="relu")),
            ("tensor wpe.weight is [32, 32], expected [64, 32]", config(n_positions=64)),
            ("tensor wte.weight is [256, 32], expected [256, 64]", config(n_embd=64)),
            ("no tensor h.2.ln_1.weight", config(n_layer=3)),
            ("has the tensor transformer.h.1.", config(n_layer=1)),
            ("which mean the same", config(num_attention_heads=1)),
            ("expected the config.json of a model", lambda folder: os.remove(os.path.join(folder, "config.json"))),
            ("has no model.safetensors", lambda folder: os.remove(os.path.join(folder, "model.safetensors"))),
            ("model.safetensors", cut),
            ("no tensor ln_f.weight", header(lambda text: text.replace("transformer.ln_f.weight", "transformer.ln_g.weight"))),
            ("tensor transformer.ln_f.weight is U32", header(lambda text: re.sub(
                r'("transformer.ln_f.weight":\{[^}]*)F32', r"\1U32", text)))):
        folder = changed(change)
        refused(expected, folder, "--prompt", "a")
        run_refused(expected, folder)
    # What shows in no tensor: the job says all five keys, and the files another model.
    for expected, values in (("heads must be 1 as in the config.json of from, is 2", {"n_head": 1}), ("gelu_new", {"activation_function": "relu"})):
        folder = changed(config(**values))
        job = edited(place, place.job(), (r'kind = "gpt"\n', f'kind = "gpt"\nfrom = "{folder}"\n'))
        run = place.run(job, "--workers", 1)
        run.end(2)
        require(expected in run.text(), run.text()[-2000:])
        checked = subprocess.run([STARLING, "check", job], capture_output=True, text=True, timeout=PATIENCE)
        require(checked.returncode == 2 and expected in checked.stderr, checked.stderr)
    # A model of gigabytes by its config.json takes none before its weights are looked at.
    folder = changed(config(n_embd=8192, n_layer=16))
    checked = subprocess.run(["sh", "-c", f"ulimit -v 4000000; exec {STARLING} generate {folder} --prompt a"], capture_output=True,
                             text=True, timeout=PATIENCE)
    require(checked.returncode == 2 and "tensor wte.weight is" in checked.stderr, f"{checked.returncode} {checked.stderr}")
    for option in ("--temperature", "--top-p"):
        refused("must be a number, is nan", model, option, "nan")
    refused("is another one's", model, "--tokenizer", os.path.join(BPE, "gpt2.json"))
    refused("no such file or folder of weights", place.path("none"))
    refused("exclude one another", model, "--prompt", "a", "--prompt-file", "-")
    refused("expected a prompt", model, "--prompt-file", place.path("none"))


def a_tokenizer_goes_with_the_model(place):
    """Texts to tokens, tokens to a model, the model to text: nothing is said twice."""
    with open(place.path("text.txt")) as file:
        text = file.read()
    with open(place.path("docs.jsonl"), "w") as file:
        for at in range(0, len(text), 500):
            file.write(json.dumps({"text": text[at:at + 500]}) + "\n")
    subprocess.run([STARLING, "tokenize", place.path("docs.jsonl"), "--tokenizer", os.path.join(BPE, "gpt2.json"), "--out",
                    place.path("tokens")], check=True, capture_output=True, timeout=PATIENCE)
    job = edited(place, place.job(steps=60), (r"vocabulary = 256", "vocabulary = 400"),
                 (r'kind = "text"\npath = "text.txt"', f'kind = "tokens"\npath = "{place.path("tokens")}"'))
    model = place.quiet(job).out
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    require(config["eos_token_id"] == 0 and config["vocab_size"] == 400, str(config))
    with open(os.path.join(model, "tokenizer_config.json")) as file:
        require(json.load(file)["eos_token"] == "<|endoftext|>", "tokenizer_config.json")
    # Tokens of another tokenizer are numbers like these, and mean something else.
    other = place.path("other")
    shutil.copytree(place.path("tokens"), other)
    with open(os.path.join(other, "tokenizer.json")) as file:
        changed = json.load(file)
    vocabulary = changed["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    with open(os.path.join(other, "tokenizer.json"), "w") as file:
        json.dump(changed, file)
    os.remove(os.path.join(other, "tokens.json"))  # by which it would be known for another one
    with open(job) as file:
        text_of_job = file.read()
    for change in (text_of_job + f'[evaluate]\npath = "{other}"\nevery = 20\n',
                   re.sub("(?s)layers = .*?vocabulary = 400\n", f'from = "{model}"\n', text_of_job).replace(
                       place.path("tokens"), other)):
        with open(place.path("mixed.toml"), "w") as file:
            file.write(change)
        for command in (["check", place.path("mixed.toml")],
                        ["run", place.path("mixed.toml"), "--workers", "1", "--out", place.path("mixed")]):
            done = subprocess.run([STARLING, *command], capture_output=True, text=True, timeout=PATIENCE)
            require(done.returncode == 2 and "has another tokenizer than the tokens of [data]" in done.stderr,
                    f"{command}: {done.returncode} {done.stdout} {done.stderr}")
    said = written(model, "--prompt", "ab", "--tokens", 30, "--past-end")
    require(said.startswith("ab") and len(said) > 30, said)
    os.remove(os.path.join(model, "tokenizer.json"))
    code, _, err = generate(model, "--prompt", "ab")
    require(code == 2 and "--tokenizer says where they are" in err and len(err.splitlines()) == 1, err)
    require(written(model, "--prompt", "ab", "--tokens", 30, "--past-end", "--tokenizer", place.path("tokens")) == said, "another text")


main(a_model_writes_what_its_seed_says, it_ends_at_the_tokens_that_the_model_says, a_run_from_weights_begins_where_they_are, a_llama_is_the_same_in_any_group,
     what_does_not_fit_is_one_line,
     a_tokenizer_goes_with_the_model)
