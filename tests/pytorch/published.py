#!/usr/bin/env python3
"""Weights that transformers wrote are trained and written back as transformers reads them, and generate as they do there.

  published.py STARLING

Run it with an interpreter that has torch and transformers."""

import json
import os
import re
import struct
import subprocess
import sys
import time

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, MistralConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config
from transformers.utils import logging

from cases import run, written
from tokens import QWEN2, corpus, splits
from tokens import trained as trained_tokenizer

logging.disable_progress_bar()
STARLING = os.path.abspath(sys.argv[1])
CONTEXT, SEQUENCES, MICRO_BATCHES, STEPS = 32, 2, 4, 20
BOUND = 2e-6  # of a loss, relative; of 20 steps in fp32, whose sums are in other orders


def random_gpt2(**more):
    torch.manual_seed(7)
    return GPT2LMHeadModel(GPT2Config(**({"vocab_size": 256, "n_positions": CONTEXT, "n_embd": 48, "n_layer": 3, "n_head": 4,
                                          "bos_token_id": None, "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                                          "attn_pdrop": 0.0, "initializer_range": 0.1} | more)))


# Grouped queries, heads that are wider than the model's share, scaled rotary positions, a head that is not tied.
SCALED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
LLAMA = {"vocab_size": 256, "max_position_embeddings": CONTEXT, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": False, "rope_parameters": SCALED,
         "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.1}


def random_llama(of=LlamaConfig, **more):
    torch.manual_seed(7)
    net = AutoModelForCausalLM.from_config(of(**(LLAMA | more)))
    with torch.no_grad():  # gains of 1 and biases of 0 would hide one that is missing
        for name, parameter in net.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return net


FAMILIES = {"gpt": random_gpt2, "llama": random_llama}


def job_of(folder, base, name, family, more=""):
    """Of data that each step has whole, so that the order of samples is none."""
    text = bytes((i * i * 7 + i // 3 * 31) % 256 for i in range(CONTEXT * SEQUENCES * MICRO_BATCHES + 1))
    path = os.path.join(folder, "data.bin")
    with open(path, "wb") as file:
        file.write(text)
    return text, written(folder, name + ".toml", f"""
[job]
name = "{name}"
steps = {STEPS}
micro_batches = {MICRO_BATCHES}
sequences = {SEQUENCES}
[model]
kind = "{family}"
from = "{base}"
[optimizer]
kind = "adamw"
peak_rate = 1e-3
schedule = "constant"
clip = 1.0
weight_decay = 0.1
[data]
kind = "text"
path = "{path}"
{more}""")


def trained(folder, base, name, family, workers=2, more=""):
    text, job = job_of(folder, base, name, family, more)
    out = os.path.join(folder, name)
    done = subprocess.run([STARLING, "run", job, "--workers", str(workers), "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(os.path.join(out, "events.jsonl")) as file:
        events = [json.loads(line) for line in file]
    return text, out, [event["loss"] for event in events if event["ev"] == "step"], next(
        event["digest"] for event in events if event["ev"] == "done")


def losses_of_torch(net, text):
    tokens = torch.tensor(list(text))
    x = tokens[:-1].view(-1, CONTEXT)
    y = tokens[1:].view(-1, CONTEXT)
    return steps_of_torch(net, lambda net: torch.nn.functional.cross_entropy(net(x).logits.flatten(0, 1), y.flatten()))


def steps_of_torch(net, loss_of):
    net = net.float().train()
    matrices = [p for p in net.parameters() if p.dim() >= 2]
    others = [p for p in net.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        loss = loss_of(net)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return losses, net


def loaded(folder):
    net, about = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"] and not about["mismatched_keys"], about
    return net


def as_torch_saves(net, folder, files):
    """The weights of the folder as files of torch.save()."""
    os.remove(os.path.join(folder, "model.safetensors"))
    names = [name for name, _ in net.named_parameters()]
    if files == 1:
        torch.save(net.state_dict(), os.path.join(folder, "pytorch_model.bin"))  # a head that is tied, too
        return
    weights, places = net.state_dict(), {}
    for i in range(files):
        shard = f"pytorch_model-{i + 1:05}-of-{files:05}.bin"
        places |= dict.fromkeys(names[i::files], shard)
        torch.save({name: weights[name] for name in names[i::files]}, os.path.join(folder, shard))
    written(folder, "pytorch_model.bin.index.json", json.dumps({"metadata": {}, "weight_map": places}))


def weights_are_trained_as_torch_trains_them(folder, family):
    """One file, shards, of torch.save(), without a prefix, in halves, tied; and what was written is read back with the
    same bits."""
    kinds = {"whole": {}, "shards": {"max_shard_size": "40KB"}, "bin": {}, "bin-shards": {}, "bf16": {}, "fp16": {}, "bare": {}}
    if family == "llama":
        kinds |= {"tied": {}, "linear": {}, "plain": {}, "mistral": {}, "qwen2": {}, "qwen2-window": {}, "qwen3": {}}
        del kinds["bare"]  # its head would be missing
    options_of = {"tied": {"tie_word_embeddings": True, "num_key_value_heads": 1, "head_dim": 12},
                  "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
                  "mistral": {"of": MistralConfig, "sliding_window": 5},
                  "qwen2": {"of": Qwen2Config},
                  "qwen2-window": {"of": Qwen2Config, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 0},
                  "qwen3": {"of": Qwen3Config},
                  "plain": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "num_key_value_heads": 4}}
    for name, options in kinds.items():
        base = os.path.join(folder, "base-" + name)
        here = FAMILIES[family](**options_of.get(name, {}))
        if name in ("bf16", "fp16"):
            here = here.to(torch.bfloat16 if name == "bf16" else torch.float16)
        saved = here.transformer if name == "bare" else here.model if name == "tied" else here
        saved.save_pretrained(base, **options)
        if name.startswith("bin"):
            as_torch_saves(saved, base, 3 if name == "bin-shards" else 1)
        if name == "shards":
            assert len([file for file in os.listdir(base) if file.endswith(".safetensors")]) > 2
        text, out, losses, digest = trained(folder, base, name, family)
        if name in ("bf16", "fp16"):  # a net that was made halves has halves for the angles of its positions, too
            here = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        wanted, torch_net = losses_of_torch(here, text)
        worst = max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))
        after = loaded(out)
        assert type(after) is type(torch_net), type(after)
        furthest = max((a - b).abs().max().item() for a, b in zip(after.parameters(), torch_net.parameters(), strict=True))
        print(f"  {family} {name}: losses {losses[0]:.4f} to {losses[-1]:.4f}, within {worst:.1e} of torch's; "
              f"weights within {furthest:.1e}")
        assert worst < BOUND and losses[-1] < losses[0] - 0.5, (worst, losses, wanted)
        again = subprocess.run([STARLING, "check", os.path.join(out, "model.safetensors")], capture_output=True, text=True)
        assert again.returncode == 0, again.stdout + again.stderr
        if name == "whole":
            _, _, _, alone = trained(folder, base, "alone", family, workers=1)
            assert alone == digest, "one worker has other bits"
            # Into transformers and back: the same weights, so the same losses.
            after.save_pretrained(os.path.join(folder, "back"))
            _, _, one, first = trained(folder, out, "of-starling", family)
            _, _, other, second = trained(folder, os.path.join(folder, "back"), "of-transformers", family)
            assert (one, first) == (other, second), "what transformers wrote back is another model"


def a_gpt_is_trained_as_torch_trains_it(folder):
    weights_are_trained_as_torch_trains_them(folder, "gpt")


def a_llama_is_trained_as_torch_trains_it(folder):
    weights_are_trained_as_torch_trains_them(folder, "llama")


def greedy_tokens_are_those_of_transformers(folder, net):
    net = net.eval()
    base = os.path.join(folder, "base")
    net.save_pretrained(base)
    ours = theirs = 0.0
    for number in range(20):
        prompt = "".join(chr(97 + (number * 7 + i * (number + 3)) % 26) for i in range(1 + number * 2))
        begun = time.monotonic()
        done = subprocess.run([STARLING, "generate", base, "--prompt", prompt, "--temperature", "0", "--tokens", "200", "--ids"],
                              capture_output=True, text=True)
        ours += time.monotonic() - begun
        assert done.returncode == 0, done.stderr
        tokens = torch.tensor([list(prompt.encode())])
        begun = time.monotonic()
        with torch.no_grad():
            wanted = net.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=200, do_sample=False, pad_token_id=0)
        theirs += time.monotonic() - begun
        got, wanted = list(map(int, done.stdout.split())), wanted[0, tokens.shape[1]:].tolist()
        same = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), len(wanted))
        assert len(got) == 200 and got == wanted, f"prompt {number}: token {same} of {len(wanted)} differs"
    print(f"  {20 * 200 / ours:.0f} tokens/s with the start of each program, transformers {20 * 200 / theirs:.0f}")


def a_gpt_writes_what_transformers_writes(folder):
    greedy_tokens_are_those_of_transformers(folder, random_gpt2(n_positions=256, n_embd=64, initializer_range=0.2))


def a_llama_writes_what_transformers_writes(folder):
    greedy_tokens_are_those_of_transformers(
        folder, random_llama(max_position_embeddings=256, hidden_size=64, initializer_range=0.2))


def a_mistral_and_a_qwen_write_what_transformers_writes(folder):
    for number, more in enumerate(({"of": MistralConfig, "sliding_window": 40}, {"of": Qwen3Config})):
        inner = os.path.join(folder, str(number))
        os.mkdir(inner)
        greedy_tokens_are_those_of_transformers(
            inner, random_llama(max_position_embeddings=256, hidden_size=64, initializer_range=0.2, **more))


def a_checkpoint_is_exported_in_shards(folder):
    for family in FAMILIES:
        base = os.path.join(folder, family)
        FAMILIES[family]().save_pretrained(base)
        checkpoints, out = os.path.join(folder, family + "-checkpoints"), os.path.join(folder, family + "-shards")
        whole = os.path.join(folder, family + "-whole")
        trained(folder, base, family + "-run", family, more=f'[checkpoint]\ndir = "{checkpoints}"\nevery = {STEPS // 2}\n')
        for words in ([out, "--max-shard-size", "50KB"], [whole]):
            subprocess.run([STARLING, "export", checkpoints, *words], check=True, capture_output=True)
        assert len([name for name in os.listdir(out) if name.endswith(".safetensors")]) > 2, os.listdir(out)
        one, other = loaded(whole).state_dict(), loaded(out).state_dict()
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one), family


def a_prompt_may_fill_the_context(folder):
    for family, made in FAMILIES.items():
        net = made(initializer_range=0.3).eval()
        base = os.path.join(folder, family)
        net.save_pretrained(base)
        for length in (CONTEXT - 1, CONTEXT):
            prompt = "".join(chr(97 + i * i % 26) for i in range(length))
            with torch.no_grad():
                wanted = net(torch.tensor([list(prompt.encode())])).logits[0, -1].argmax().item()
            done = subprocess.run([STARLING, "generate", base, "--prompt", prompt, "--temperature", "0", "--tokens", "1", "--ids"],
                                  capture_output=True, text=True)
            assert done.returncode == 0 and int(done.stdout) == wanted, f"{family}, {length}: {done.stdout} {wanted}"


def a_runs_tokenizer_is_that_of_its_tokens(folder):
    """Whatever kind the model is of: a GPT with the kind of Qwen's, which transformers would cut as GPT-2's."""
    theirs = Tokenizer.from_str(trained_tokenizer(splits(QWEN2), 600, ["<|endoftext|>"], normalizer=normalizers.NFC()))
    os.mkdir(os.path.join(folder, "tokenizer"))
    theirs.save(os.path.join(folder, "tokenizer", "tokenizer.json"))
    written(folder, "text.txt", corpus()[1][:20000])
    subprocess.run([STARLING, "tokenize", os.path.join(folder, "text.txt"), "--tokenizer", os.path.join(folder, "tokenizer"),
                    "--out", os.path.join(folder, "tokens")], check=True, capture_output=True)
    job = written(folder, "job.toml", f"""
[job]
name = "t"
steps = 2
[model]
kind = "gpt"
layers = 1
heads = 1
width = 16
context = 16
vocabulary = {theirs.get_vocab_size()}
[optimizer]
kind = "adamw"
peak_rate = 1e-3
[data]
kind = "tokens"
path = "{folder}/tokens"
""")
    out = os.path.join(folder, "out")
    done = subprocess.run([STARLING, "run", job, "--workers", "1", "--out", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    read = AutoTokenizer.from_pretrained(out)
    for text in ("It's 12345 cafe\u0301s, they'LL say\n\n  x", corpus()[1][:3000], "<|endoftext|>a"):
        assert read(text)["input_ids"] == theirs.encode(text).ids, text
    assert read.eos_token == "<|endoftext|>" and read.eos_token_id == theirs.token_to_id("<|endoftext|>"), read.eos_token


CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
LLAMA3 = ("<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim }}"
          "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")


def masked(folder):
    """The tokens of a folder, and labels of -100 where they are not learned."""
    with open(os.path.join(folder, "tokens-000000.bin"), "rb") as file:
        data = file.read()
    count, = struct.unpack_from("<i", data, 8)
    numbers = struct.unpack_from(f"<{count}I", data, 1024)
    return [n & 0x7fffffff for n in numbers], [-100 if n >> 31 else n for n in numbers]


def chats_are_written_and_learned_as_by_transformers(folder):
    """The tokens are those of a template, the learned ones those behind its prompts for an answer, and the losses torch's."""
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    theirs = Tokenizer.from_str(trained_tokenizer(splits(QWEN2), 600, marks, normalizer=normalizers.NFC()))
    os.mkdir(os.path.join(folder, "tokenizer"))
    theirs.save(os.path.join(folder, "tokenizer", "tokenizer.json"))
    chats = [[{"role": role, "content": f"{text} {number}"} for role, text in
              (("system", "be  brief"), ("user", " what's <|im_end|> cafe\u0301"), ("assistant", "it is"), ("user", "and\n"), ("assistant", "so"))
              [number % 2:]] for number in range(8)]
    lines = written(folder, "chats.jsonl", "".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    context = 128
    for form, template, end in (("chatml", CHATML, "<|im_end|>"), ("llama3", LLAMA3, "<|eot_id|>")):
        out = os.path.join(folder, form)
        subprocess.run([STARLING, "tokenize", lines, "--tokenizer", os.path.join(folder, "tokenizer"), "--out", out, "--chat", form,
                        "--pad-to", str(context)], check=True, capture_output=True)
        tokens, labels = masked(out)
        fast = PreTrainedTokenizerFast(tokenizer_object=theirs, chat_template=template)
        assert AutoTokenizer.from_pretrained(out).apply_chat_template(chats[0], tokenize=False, add_generation_prompt=True) == \
            fast.apply_chat_template(chats[0], tokenize=False, add_generation_prompt=True), form

        def ids(text):  # which is not trusted: marks in it stay text
            theirs.encode_special_tokens = True
            return theirs.encode(text, add_special_tokens=False).ids

        def of_template(messages, prompt):
            text = fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
            pieces = re.split("(<\\|(?:im_start|im_end|begin_of_text|start_header_id|end_header_id|eot_id)\\|>)", text.replace("what's <|im_end|>", "what's \0"))
            return [token for piece in pieces for token in (
                [theirs.token_to_id(piece)] if piece.startswith("<|") else ids(piece.replace("\0", "<|im_end|>")))]

        assert len(tokens) == 8 * context, len(tokens)
        for number, chat in enumerate(chats):
            wanted = of_template(chat, False)
            here, learned = tokens[number * context:][:context], labels[number * context:][:context]
            assert here[:len(wanted)] == wanted, (here, wanted)
            expected = [-100] * context
            for i, message in enumerate(chat):
                if message["role"] == "assistant":
                    first = len(of_template(chat[:i], True))
                    last = wanted.index(theirs.token_to_id(end), first)
                    expected[first:last + 1] = wanted[first:last + 1]
            assert learned == expected, (learned, expected)
    base = os.path.join(folder, "base")
    here = random_gpt2(vocab_size=theirs.get_vocab_size(), n_positions=context)
    here.save_pretrained(base)
    _, job = job_of(folder, base, "chat", "gpt")
    with open(job) as file:
        text = re.sub("micro_batches = .*", "micro_batches = 8", re.sub("sequences = .*", "sequences = 1", file.read()))
    with open(job, "w") as file:
        file.write(text[:text.index("[data]")] + f'[data]\nkind = "tokens"\npath = "{folder}/chatml"\n')
    results = []
    for workers in (1, 3):
        run_folder = os.path.join(folder, f"run-{workers}")
        done = subprocess.run([STARLING, "run", job, "--workers", str(workers), "--out", run_folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(os.path.join(run_folder, "events.jsonl")) as file:
            events = [json.loads(line) for line in file]
        results.append(([e["loss"] for e in events if e["ev"] == "step"], next(e["digest"] for e in events if e["ev"] == "done")))
    assert results[0] == results[1], "three workers have other losses or bits"
    tokens, labels = masked(os.path.join(folder, "chatml"))
    x, y = torch.tensor(tokens).view(8, context), torch.tensor(labels).view(8, context)
    y = torch.cat([y[:, 1:], torch.full((8, 1), -100)], 1)

    def loss(net):
        each = torch.nn.functional.cross_entropy(net(x).logits.transpose(1, 2), y, reduction="none").sum(1)
        return (each / (y != -100).sum(1)).mean()

    wanted, _ = steps_of_torch(here, loss)
    worst = max(abs(a - b) / b for a, b in zip(results[0][0], wanted, strict=True))
    print(f"  losses {wanted[0]:.4f} to {wanted[-1]:.4f}, within {worst:.1e} of torch's")
    assert worst < BOUND and wanted[-1] < wanted[0] - 0.5, (results[0][0], wanted)


def adapters_as_peft_has_them(folder, family, targets, halves):
    """20 steps of adapters beside peft's, begun with the same values; what is written, peft reads."""
    from peft import LoraConfig, PeftModel, get_peft_model
    base = os.path.join(folder, "base")
    net = FAMILIES[family]()
    (net.to(torch.bfloat16) if halves else net).save_pretrained(base)
    checkpoints = os.path.join(folder, "checkpoints")
    more = f"""[lora]
rank = 4
alpha = 8
targets = {json.dumps(targets)}
[checkpoint]
dir = "{checkpoints}"
every = 1
keep = 100
"""
    text, out, losses, digest = trained(folder, base, "lora", family, more=more)
    # The adapters of version 1 are the first ones: B was zero, so A had no gradient, and decayed.
    first = os.path.join(folder, "first")
    done = subprocess.run([STARLING, "export", os.path.join(checkpoints, "step-000000001"), first], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    begun = load_file(os.path.join(first, "adapter_model.safetensors"))

    def fresh():
        return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    theirs = get_peft_model(fresh(), LoraConfig(r=4, lora_alpha=8, target_modules=targets, lora_dropout=0.0, fan_in_fan_out=family == "gpt"))
    names = []
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if parameter.requires_grad:
                names.append(name.replace(".default", ""))
                parameter.copy_(begun[names[-1]] / (1 - 1e-3 * 0.1) if "lora_A" in name else torch.zeros_like(parameter))
    assert sorted(names) == sorted(begun), (sorted(names)[:3], sorted(begun)[:3])
    wanted, theirs = losses_of_torch(theirs, text)
    worst = max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))
    ours = PeftModel.from_pretrained(fresh(), out)
    of_theirs = dict(theirs.named_parameters())
    furthest = max((parameter - of_theirs[name]).abs().max().item() for name, parameter in ours.named_parameters() if "lora_" in name)
    print(f"  {family} {targets}: losses {losses[0]:.4f} to {losses[-1]:.4f}, within {worst:.1e} of peft's; "
          f"adapters within {furthest:.1e}")
    assert worst < BOUND and losses[-1] < losses[0] - 0.01 and furthest < 1e-4, (worst, furthest, losses, wanted)
    assert trained(folder, base, "alone", family, workers=1, more=more.split("[checkpoint]")[0])[3] == digest, "one worker has other bits"
    done = subprocess.run([STARLING, "export", out, os.path.join(folder, "one"), "--merge"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    tokens = torch.tensor([list(text[:CONTEXT])])
    ours = ours.merge_and_unload().eval()
    with torch.no_grad():
        apart = (loaded(os.path.join(folder, "one")).eval()(tokens).logits - ours(tokens).logits).abs().max().item()
    assert apart < 1e-4, f"the merged model's logits are {apart} from those that peft merges"
    greedy = ours.generate(torch.tensor([list(b"ab")]), max_new_tokens=25, do_sample=False, pad_token_id=0)[0, 2:].tolist()
    done = subprocess.run([STARLING, "generate", out, "--prompt", "ab", "--tokens", "25", "--temperature", "0", "--ids"], capture_output=True,
                          text=True)
    assert done.stdout.split() == [str(token) for token in greedy], (done.stdout, done.stderr, greedy)
    # What peft writes is read, too, and what computes otherwise is not.
    back = os.path.join(folder, "back")
    PeftModel.from_pretrained(fresh(), out).save_pretrained(back)
    assert subprocess.run([STARLING, "generate", back, "--base", base, "--prompt", "ab", "--tokens", "25", "--temperature", "0", "--ids"],
                          capture_output=True, text=True).stdout == done.stdout, "what peft wrote is other adapters"
    with open(os.path.join(back, "adapter_config.json")) as file:
        config = json.load(file)
    for changed in ({"use_rslora": True}, {"use_dora": True}, {"r": 5}, {"modules_to_save": ["lm_head"]}, {"rank_pattern": {"c_attn": 2}},
                    {"target_modules": "all-linear"}, {"bias": "all"}, {"peft_type": "IA3"}, {"r": 0}):
        written(back, "adapter_config.json", json.dumps(config | changed))
        done = subprocess.run([STARLING, "generate", back, "--base", base, "--prompt", "ab"], capture_output=True, text=True)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, (changed, done.stdout, done.stderr)


def a_gpts_adapters_are_those_of_peft(folder):
    adapters_as_peft_has_them(folder, "gpt", ["attn.c_proj", "c_attn", "c_fc"], halves=False)


def a_llamas_adapters_are_those_of_peft(folder):
    adapters_as_peft_has_them(folder, "llama", ["down_proj", "gate_proj", "q_proj", "v_proj"], halves=True)


def what_is_no_weights_file_is_one_line(folder):
    net = random_gpt2()
    base = os.path.join(folder, "base")
    net.save_pretrained(base)
    torch.save(net.state_dict(), os.path.join(folder, "pytorch_model.bin"))
    for path, expected in ((os.path.join(folder, "pytorch_model.bin"), "config.json"),
                           (os.path.join(base, "config.json"), "config.json")):
        done = subprocess.run([STARLING, "generate", path, "--prompt", "a"], capture_output=True, text=True)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and expected in done.stderr, done.stderr
        assert not re.search("Traceback|terminate", done.stderr) and not done.stdout, done.stdout


if __name__ == "__main__":
    sys.exit(run(a_gpt_is_trained_as_torch_trains_it, a_llama_is_trained_as_torch_trains_it,
                 a_gpt_writes_what_transformers_writes, a_llama_writes_what_transformers_writes,
                 a_mistral_and_a_qwen_write_what_transformers_writes, a_checkpoint_is_exported_in_shards,
                 a_prompt_may_fill_the_context,
                 a_runs_tokenizer_is_that_of_its_tokens, chats_are_written_and_learned_as_by_transformers,
                 a_gpts_adapters_are_those_of_peft, a_llamas_adapters_are_those_of_peft, what_is_no_weights_file_is_one_line))
