"""Small language models with random parameters, as folders, and a text, for tests of scripts that read them."""

import os
import random

from cases import written


def base_of(folder, kind):
    """Saves a model and its tokenizer; returns their folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(5)
    if kind == "gpt2":
        net = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0,
                                         eos_token_id=0))
    else:
        net = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32))
    base = os.path.join(folder, kind)
    net.save_pretrained(base)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=letters[0]).save_pretrained(base)
    return base


def text_in(folder):
    words = random.Random(3).choices(["the", "worker", "comes", "and", "goes", "a", "step", "has", "same", "bits"], k=1200)
    return written(folder, "text.txt", " ".join(words))
