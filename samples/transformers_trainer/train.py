"""Transformers' Trainer over packs: it is stopped after some steps, and goes on from its checkpoint at any world size.

Each rank of a group that torchrun starts runs it, or one alone. It needs transformers and accelerate, of any current release.
"""
import argparse
import pathlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import pliant
from pliant.transformers import PackMixin

SYMBOLS = 32


class Sentences(torch.utils.data.Dataset):
    """Sentence i counts on from i, by as much as it is long."""

    lengths = torch.tensor([4 + i * 7 % 13 for i in range(240)], dtype=torch.int32)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_ids": (i + torch.arange(int(self.lengths[i]))) % SYMBOLS}


class PackTrainer(PackMixin, Trainer):
    pass


def trainer_of(output, steps, **more):
    arguments = TrainingArguments(output, max_steps=steps, save_steps=1, report_to="none", disable_tqdm=True, logging_steps=1, use_cpu=True,
                                  dataloader_pin_memory=False, remove_unused_columns=False, **more)
    config = pliant.Config.open(pathlib.Path(__file__).with_name("pliant.toml"))
    data = Sentences()
    sampler = pliant.PackedBatchSampler(config, data.lengths, arguments.process_index, arguments.world_size, placeholders=True)
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=SYMBOLS, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                         num_attention_heads=2, num_key_value_heads=2, attn_implementation="sdpa"))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr.base_lr)
    return PackTrainer(model, arguments, train_dataset=data, optimizers=(optimizer, None), sampler=sampler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5, help="until this step")
    parser.add_argument("--output", default="checkpoints")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    given = parser.parse_args()
    trainer_of(given.output, given.steps).train(resume_from_checkpoint=given.resume)
