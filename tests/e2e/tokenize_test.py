"""`starling tokenize`: texts become token files, on which a job trains; what goes wrong is one line and leaves nothing."""
import json
import math
import os
import signal
import struct
import subprocess
import time

from chats import GPT2, chat_tokenizer, job_on
from harness import PATIENCE, STARLING, main, require, written

BPE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "bpe")


def tokenize(*words, **more):
    done = subprocess.run([STARLING, "tokenize", *words], capture_output=True, text=True, timeout=PATIENCE, **more)
    return done.returncode, done.stdout, done.stderr


def refused(place, expected, *words, **more):
    code, out, err = tokenize(*words, "--out", place.path("refused"), **more)
    require(code == 2 and not out and len(err.splitlines()) == 1 and expected in err, f"{words}: {code} {out!r} {err!r}")
    left = [name for name in os.listdir(place.folder) if name.startswith("refused")]
    require(not left, f"{words} leave {left}")


def tokens_in(folder):
    all_tokens = []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".bin")):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        magic, version, count = struct.unpack_from("<3i", data)
        require((magic, version) in ((20240520, 1), (20240801, 7)), f"{name}: {magic}, {version}")
        all_tokens += struct.unpack_from(f"<{count}{'H' if magic == 20240520 else 'I'}", data, 1024)
    return all_tokens


def cases():
    with open(os.path.join(BPE, "cases.json")) as file:
        return json.load(file)["gpt2"]


def texts_become_the_tokens_of_the_reference(place):
    """Each document is followed by the token of an end; many threads, small files and one of each are the same tokens."""
    lines = written(place, "a.jsonl", "".join(json.dumps({"body": text}) + "\n" for text, _, _ in cases()))
    whole = written(place, "b.txt", cases()[1][0])
    wanted = [token for _, plain, _ in cases() + [cases()[1]] for token in [*plain, 0]]  # 0: <|endoftext|>
    for number, more in enumerate(([], ["--threads", "3", "--tokens-per-file", "100"], ["--threads", "1"])):
        out = place.path(f"out-{number}")
        code, said, err = tokenize(lines, whole, "--field", "body", "--tokenizer", GPT2, "--out", out, *more)
        require(code == 0 and not err and "vocabulary = 400" in said, f"{code} {said} {err}")
        require(tokens_in(out) == wanted, f"{more}: other tokens")
        with open(os.path.join(out, "tokens.json")) as file:
            about = json.load(file)
        require((about["tokens"], about["documents"], about["end"]) == (len(wanted), len(cases()) + 1, 0), str(about))
        with open(os.path.join(out, "tokenizer.json")) as copied, open(GPT2) as read:
            require(copied.read() == read.read(), "the tokenizer is another one")
    marks = [token for _, _, marked in cases() for token in marked]
    code, said, err = tokenize(lines, "--field", "body", "--tokenizer", GPT2, "--out", place.path("marks"), "--marks", "--end", "none")
    require(code == 0 and tokens_in(place.path("marks")) == marks, f"{code} {said} {err}")


def a_job_trains_on_what_was_made(place):
    text = written(place, "text.txt", "".join(text for text, _, _ in cases()) * 20)
    out = place.path("tokens")
    code, said, err = tokenize(text, "--tokenizer", GPT2, "--out", out)
    require(code == 0, f"{code} {said} {err}")
    with open(place.job(steps=10)) as file:
        job = file.read()
    before = job
    job = job.replace("vocabulary = 256", "vocabulary = 400").split("[data]")[0] + f'[data]\nkind = "tokens"\npath = "{out}"\n'
    require(job != before and "vocabulary = 400" in job, job)
    job += f'[evaluate]\npath = "{out}"\nevery = 5\nbatches = 2\n'
    run = place.quiet(written(place, "tokens.toml", job))
    with open(os.path.join(out, "tokens.json")) as file:
        about = json.load(file)
    last = run.events("evaluation")[-1]["loss"]
    shown = f"perplexity {math.exp(last):.4g}  {last / math.log(2) / (about['bytes'] / about['tokens']):.4f} bits per byte"
    require(shown in run.text(), f"{shown} is not in {run.text()}")
    require(os.path.exists(os.path.join(run.out, "model.safetensors")), "no model")


def masked_tokens_in(folder):
    """Tokens, whether each is learned, and the length of sequences."""
    with open(os.path.join(folder, "tokens-000000.bin"), "rb") as file:
        data = file.read()
    magic, version, count, sequence = struct.unpack_from("<4i", data)
    require((magic, version) == (20261101, 1), f"{magic}, {version}")
    numbers = struct.unpack_from(f"<{count}I", data, 1024)
    return [number & 0x7fffffff for number in numbers], [number >> 31 == 0 for number in numbers], sequence


def plain(place, text, name, tokenizer):
    code, said, err = tokenize(written(place, name + ".txt", text), "--tokenizer", tokenizer, "--out", place.path(name), "--end", "none")
    require(code == 0, err)
    return tokens_in(place.path(name))


def of_a_chat_the_answers_are_learned(place):
    tokenizer = chat_tokenizer(place)
    chats = [[("user", f"what is {n}?"), ("assistant", f" it is a number, {n}"), ("user", "sure?"), ("assistant", "yes")] for n in range(60)]
    lines = written(place, "chats.jsonl", "".join(
        json.dumps({"id": 1, "messages": [{"role": role, "content": content} for role, content in chat]}) + "\n" for chat in chats))
    out = place.path("chats")
    code, said, err = tokenize(lines, "--tokenizer", tokenizer, "--out", out, "--chat", "chatml", "--pad-to", "64")
    require(code == 0 and "of the tokens are learned" in said and "vocabulary = 402, context = 64" in said, f"{code} {said} {err}")
    tokens, learned, sequence = masked_tokens_in(out)
    user, question, header, answer = (plain(place, text, f"plain-{number}", tokenizer) for number, text in enumerate(
        ("user\nwhat is 0?", "user\nsure?", "assistant\n", " it is a number, 0")))
    yes, newline = plain(place, "yes", "yes", tokenizer), plain(place, "\n", "newline", tokenizer)
    first = [(400, False), *((t, False) for t in user), (401, False), *((t, False) for t in newline), (400, False),
             *((t, False) for t in header), *((t, True) for t in answer), (401, True), *((t, False) for t in newline),
             (400, False), *((t, False) for t in question), (401, False), *((t, False) for t in newline), (400, False),
             *((t, False) for t in header), *((t, True) for t in yes), (401, True), *((t, False) for t in newline)]
    length = -(-len(first) // 64) * 64
    first += [(0, False)] * (length - len(first))  # 0: nobody learns what fills the last sequence
    got = list(zip(tokens, learned))[:length]
    require([mark for _, mark in got] == [mark for _, mark in first] and sequence == 64, f"{got} is not {first}")
    require([t for t, m in zip(got, first) if t[0] != m[0] and m != (0, False)] == [], f"{got} is not {first}")
    require(tokens[length] == 400 and len(tokens) % 64 == 0, "the second chat does not begin a sequence")
    with open(os.path.join(out, "tokens.json")) as file:
        about = json.load(file)
    require((about["end"], about["learned"], about["documents"]) == (401, sum(learned), 60), str(about))
    # A job trains on it, on any number of workers; the tokens of a step are those that are learned.
    job = job_on(place, out, 402, context=64)
    quiet = place.quiet(job)
    run = place.run(job, "--workers", 3)
    run.end()
    require(run.digest() == quiet.digest(), "three workers have other bits")
    # The model ends where an answer ends, which its config.json says.
    with open(os.path.join(quiet.out, "config.json")) as file:
        require(json.load(file)["eos_token_id"] == 401, "eos_token_id is not <|im_end|>")
    with open(os.path.join(quiet.out, "tokenizer_config.json")) as file:
        require("<|im_start|>assistant" in json.load(file)["chat_template"], "no template")
    step = quiet.events("step")[0]
    require(0 < step["tokens"] < 8 * 2 * 64, str(step))
    code, said, err = tokenize(lines, "--tokenizer", tokenizer, "--out", place.path("packed"), "--chat", "chatml")
    require(code == 0 and len(masked_tokens_in(place.path("packed"))[0]) < len(tokens), f"{code} {said} {err}")
    check = subprocess.run([STARLING, "check", job_on(place, out, 402, context=32)], capture_output=True, text=True, timeout=PATIENCE)
    require(check.returncode == 2 and "the context must be as long, is 32" in check.stderr, check.stderr)


def documents_fill_sequences_without_being_cut(place):
    texts = [f"{'word ' * (n % 23)}{n}" for n in range(300)]
    lines = written(place, "texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
    folders = {}
    for option in ("--pad-to", "--pack"):
        folders[option] = place.path("as" + option)
        code, said, err = tokenize(lines, "--tokenizer", GPT2, "--out", folders[option], option, "64")
        require(code == 0 and " fill sequences, the others are read" in said and "context = 64" in said, f"{code} {said} {err}")
    documents = {}
    for option, folder in folders.items():
        tokens, learned, sequence = masked_tokens_in(folder)
        require(sequence == 64 and len(tokens) % 64 == 0, f"{option}: {len(tokens)}")
        end = tokens[-1]
        documents[option], first = [], None
        for place_of, (token, is_learned) in enumerate(zip(tokens, learned)):
            if first is None and not is_learned and token != end:
                first = place_of
            if first is not None and token == end and is_learned:
                require(place_of // 64 == first // 64 or place_of - first >= 64, f"{option} cuts a document at {place_of}")
                documents[option].append(tuple(tokens[first:place_of]))
                first = None
    require(sorted(documents["--pack"]) == sorted(documents["--pad-to"]) and len(documents["--pack"]) == 300,
            f"{len(documents['--pack'])} documents")
    sizes = {option: len(masked_tokens_in(folder)[0]) for option, folder in folders.items()}
    require(sizes["--pack"] < 0.7 * sizes["--pad-to"], str(sizes))
    job = job_on(place, folders["--pack"], 400, context=64)
    require(place.quiet(job).digest(), "no digest")
    check = subprocess.run([STARLING, "check", job_on(place, folders["--pack"], 400, context=32)], capture_output=True, text=True,
                           timeout=PATIENCE)
    require(check.returncode == 2 and "has sequences of 64 tokens, as --pad-to or --pack has said" in check.stderr, check.stderr)
    refused(place, "--pad-to", lines, "--tokenizer", GPT2, "--pack", "64", "--pad-to", "64")


def of_a_prompt_the_answer_is_learned(place):
    lines = written(place, "pairs.jsonl", "".join(json.dumps({"q": f"{n}+1=", "a": f" {n + 1}"}) + "\n" for n in range(50)))
    out = place.path("pairs")
    code, said, err = tokenize(lines, "--tokenizer", GPT2, "--out", out, "--prompt-field", "q", "--field", "a")
    require(code == 0 and not err, f"{code} {said} {err}")
    wanted = []
    for n in (0, 1):
        wanted += [(t, False) for t in plain(place, f"{n}+1=", f"q{n}", GPT2)] + [(t, True) for t in plain(place, f" {n + 1}", f"a{n}", GPT2)]
        wanted.append((0, True))  # <|endoftext|>, where an answer ends
    tokens, learned, sequence = masked_tokens_in(out)
    require(list(zip(tokens, learned))[:len(wanted)] == wanted and sequence == 0, f"{list(zip(tokens, learned))} is not {wanted}")
    # Held out, the loss is that of the answers alone, and no bits per byte are told.
    job = job_on(place, out, 400)
    with open(job, "a") as file:
        file.write(f'[evaluate]\npath = "{out}"\nevery = 5\nbatches = 2\n')
    run = place.quiet(job)
    require("perplexity" in run.text() and "bits per byte" not in run.text(), run.text())


def what_goes_wrong_is_one_line_and_leaves_nothing(place):
    text = written(place, "text.txt", "some text")
    with open(GPT2) as file:
        tokenizer = json.load(file)
    tokenizer["added_tokens"] = []
    tokenizer["model"]["vocab"]["<end>"] = tokenizer["model"]["vocab"].pop("<|endoftext|>")
    without_end = written(place, "without_end.json", json.dumps(tokenizer))
    good = ["--tokenizer", GPT2]
    refused(place, "No such file or directory; reading data", place.path("none.txt"), *good)
    refused(place, "is not UTF-8 at byte 2", written(place, "latin.txt", b"ab\xe4bc"), *good)
    refused(place, "no text is there", written(place, "empty.txt", ""), *good)
    refused(place, "no.jsonl, line 2", written(place, "no.jsonl", '{"text":"a"}\n{"txt":"b"}\n'), *good)
    refused(place, "path of this machine", "s3://bucket/texts", *good)
    refused(place, "no such file", text, "--tokenizer", place.path("none"))
    refused(place, "has no tokenizer.json", text, "--tokenizer", place.folder)
    refused(place, "not JSON", text, "--tokenizer", text)
    refused(place, "--end says which token it is", text, "--tokenizer", without_end)
    refused(place, "the tokenizer has no token <|eos|>", text, *good, "--end", "<|eos|>")
    refused(place, "tokens-per-file", text, *good, "--tokens-per-file", "0")
    chat = written(place, "chat.jsonl", '{"messages": [{"role": "user", "content": "a"}]}\n')
    refused(place, "the tokenizer has no token <|im_start|>", chat, *good, "--chat", "chatml")
    marks = ["--tokenizer", chat_tokenizer(place)]
    with open(place.path("chat.json")) as file:
        open_marks = file.read().replace('"special": true', '"special": false')
    refused(place, 'the tokenizer makes the mark <|im_start|> of a text that has it', chat, "--tokenizer",
            written(place, "open.json", open_marks), "--chat", "chatml")
    refused(place, "nothing is to be learned", chat, *marks, "--chat", "chatml")
    refused(place, 'has no text in "messages", a chat is written with --chat', chat, *good, "--field", "messages")
    refused(place, 'has no "text", which --field names, it has "messages"', chat, *good)
    refused(place, "expected lines with prompts or chats", text, *marks, "--chat", "chatml")
    refused(place, 'has no "messages", which --field names', place.path("no.jsonl"), *marks, "--chat", "chatml")
    refused(place, "--end goes with texts", chat, *marks, "--chat", "chatml", "--end", "none")
    refused(place, "--begin goes with texts", chat, *marks, "--chat", "chatml", "--begin", "<|endoftext|>")
    refused(place, "two kinds of documents", chat, *marks, "--chat", "chatml", "--prompt-field", "a")
    refused(place, "--chat", chat, *marks, "--chat", "alpaca")
    refused(place, "--pad-to", text, *good, "--pad-to", "1")
    code, _, err = tokenize(place.path("latin.txt"), *good, "--out", place.path("made/for/it"))
    require(code == 2 and not os.path.exists(place.path("made")), f"{code} {err}")
    code, said, err = tokenize(text, *good, "--out", place.path("made/for/it") + "/")
    require(code == 0 and os.path.exists(place.path("made/for/it/tokens.json")), f"{code} {said} {err}")
    out = place.path("there")
    os.mkdir(out)
    code, _, err = tokenize(text, *good, "--out", out)
    require(code == 2 and "is there already, expected a new folder" in err and not os.listdir(out), err)
    code, _, err = tokenize(text, *good, "--out", "/proc/none")
    require(code == 2 and "cannot make /proc/none" in err, err)


def one_that_is_ended_leaves_nothing(place):
    text = written(place, "large.txt", ("".join(text for text, _, _ in cases()) + "\n") * 2000)
    for end in (signal.SIGTERM, signal.SIGINT):
        out = place.path("ended")
        running = subprocess.Popen([STARLING, "tokenize", *[text] * 200, "--tokenizer", GPT2, "--out", out],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + PATIENCE
        while not any(name.startswith("ended.part") for name in os.listdir(place.folder)):
            require(running.poll() is None and time.monotonic() < until, "it has begun nothing")
            time.sleep(0.01)
        running.send_signal(end)
        said = running.communicate(timeout=PATIENCE)
        require(running.returncode == 128 + end, f"{running.returncode} {said}")
        left = [name for name in os.listdir(place.folder) if name.startswith("ended")]
        require(not left, f"left: {left}")


main(texts_become_the_tokens_of_the_reference, a_job_trains_on_what_was_made, of_a_chat_the_answers_are_learned, documents_fill_sequences_without_being_cut,
     of_a_prompt_the_answer_is_learned,
     what_goes_wrong_is_one_line_and_leaves_nothing, one_that_is_ended_leaves_nothing)
