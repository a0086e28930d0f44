"""A tokenizer with the marks of ChatML, and jobs on tokens."""
import json
import os

from harness import written

GPT2 = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "bpe", "gpt2.json")


def chat_tokenizer(place, name="chat.json"):
    """GPT-2's kind with the marks of ChatML."""
    with open(GPT2) as file:
        tokenizer = json.load(file)
    for mark in ("<|im_start|>", "<|im_end|>"):
        tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": 400 + len(tokenizer["added_tokens"]) - 1, "content": mark})
    return written(place, name, json.dumps(tokenizer))


def job_on(place, tokens, vocabulary, **changes):
    with open(place.job(**({"steps": 10} | changes))) as file:
        job = file.read()
    job = job.replace("vocabulary = 256", f"vocabulary = {vocabulary}").split("[data]")[0] + f'[data]\nkind = "tokens"\npath = "{tokens}"\n'
    return written(place, os.path.basename(tokens) + ".toml", job)
