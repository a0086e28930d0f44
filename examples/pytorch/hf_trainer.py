"""A causal language model of transformers, trained from a folder and a text as its own run_clm.py does it:

    pip install torch transformers accelerate build/wheel/starling_elastic-*.whl
    WORKERS=4 python hf_trainer.py --model_name_or_path gpt2/ --train_file book.txt --output_dir out \\
        --max_steps 100 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --lr_scheduler_type cosine

It is evaluated while it trains with --validation_file other.txt --eval_strategy steps --eval_steps 20.

The folder that it leaves is read by AutoModelForCausalLM.from_pretrained("out")."""

import math
import os
from dataclasses import dataclass, field
from typing import Optional

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, TrainingArguments, default_data_collator

from starling.hf import Trainer


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "folder of the model and its tokenizer"})
    train_file: str = field(metadata={"help": "a text file"})
    validation_file: Optional[str] = field(default=None, metadata={"help": "another, which is held out"})
    block_size: int = field(default=128, metadata={"help": "tokens of a sample"})


class Blocks(torch.utils.data.Dataset):
    """A text's tokens, cut into samples of one length."""

    def __init__(self, tokens, size):
        self.blocks = torch.tensor(tokens[:len(tokens) // size * size]).view(-1, size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


def preprocess_logits_for_metrics(logits, labels):
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)


def compute_metrics(eval_preds):
    predictions, labels = eval_preds  # those of a token are of the one after it
    return {"accuracy": float((predictions[:, :-1] == labels[:, 1:]).mean())}


def main():
    model_arguments, training_arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(model_arguments.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(model_arguments.model_name_or_path)

    def blocks_of(path):
        with open(path, encoding="utf-8") as file:
            return Blocks(tokenizer(file.read(), verbose=False)["input_ids"], model_arguments.block_size)

    do_eval = model_arguments.validation_file is not None

    trainer = Trainer(
        model=model,
        args=training_arguments,
        train_dataset=blocks_of(model_arguments.train_file),
        eval_dataset=blocks_of(model_arguments.validation_file) if do_eval else None,
        processing_class=tokenizer,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics if do_eval else None,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics if do_eval else None,
        job={"workers": int(os.environ.get("WORKERS", "2"))},
    )
    result = trainer.train()
    trainer.save_state()
    if do_eval:
        metrics = trainer.evaluate()
        print(f"accuracy {metrics['eval_accuracy']:.4f}, perplexity {math.exp(metrics['eval_loss']):.2f}")
    print(f"steps {result.global_step}, loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
