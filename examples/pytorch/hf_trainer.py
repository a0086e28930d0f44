"""A causal language model of transformers, trained from a folder and a text as its own run_clm.py does it:

    pip install torch transformers accelerate build/wheel/starling_elastic-*.whl
    WORKERS=4 python hf_trainer.py --model_name_or_path gpt2/ --train_file book.txt --output_dir out \\
        --max_steps 100 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --lr_scheduler_type cosine

The folder that it leaves is read by AutoModelForCausalLM.from_pretrained("out")."""

import os
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, TrainingArguments, default_data_collator

from starling.hf import Trainer


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "folder of the model and its tokenizer"})
    train_file: str = field(metadata={"help": "a text file"})
    block_size: int = field(default=128, metadata={"help": "tokens of a sample"})


class Blocks(torch.utils.data.Dataset):
    """A text's tokens, cut into samples of one length."""

    def __init__(self, tokens, size):
        self.blocks = torch.tensor(tokens[:len(tokens) // size * size]).view(-1, size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


def main():
    model_arguments, training_arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(model_arguments.model_name_or_path)
    model = AutoModelForCausalLM.from_pretrained(model_arguments.model_name_or_path)
    with open(model_arguments.train_file, encoding="utf-8") as file:
        blocks = Blocks(tokenizer(file.read(), verbose=False)["input_ids"], model_arguments.block_size)

    trainer = Trainer(
        model=model,
        args=training_arguments,
        train_dataset=blocks,
        processing_class=tokenizer,
        data_collator=default_data_collator,
        job={"workers": int(os.environ.get("WORKERS", "2"))},
    )
    result = trainer.train()
    trainer.save_state()
    print(f"steps {result.global_step}, loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
