"""Transformers' Trainer over packs: it is stopped after some steps, and goes on from its checkpoint at any world size.

Each rank of a group that torchrun starts runs it, or one alone. It needs transformers and accelerate, of any current release.
"""
import argparse
import json
import pathlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import pliant
from pliant.torch import LRScheduler, Packed, collate

SYMBOLS = 32


class Sentences(torch.utils.data.Dataset):
    """Sentence i counts on from i, by as much as it is long."""

    lengths = torch.tensor([4 + i * 7 % 13 for i in range(240)], dtype=torch.int32)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_ids": (i + torch.arange(int(self.lengths[i]))) % SYMBOLS}


class PackTrainer(Trainer):
    """A Trainer whose batches are those of a PackedBatchSampler. Its checkpoints have the sampler's position."""

    def __init__(self, *arguments, sampler, **keywords):
        super().__init__(*arguments, **keywords)
        self.sampler = sampler

    def get_train_dataloader(self):
        loader = torch.utils.data.DataLoader(Packed(self.train_dataset), batch_sampler=self.sampler.whole_job(), collate_fn=collate)
        return self.accelerator.prepare(loader)

    def training_step(self, model, inputs, *others):
        self.position = self.sampler.state_after(inputs)
        if inputs.position[2] == 0:  # the last micro-batch of a step
            self.lr_scheduler.batch(self.sampler.size_of(inputs))
        return super().training_step(model, inputs, *others)

    def _save_checkpoint(self, *arguments):
        super()._save_checkpoint(*arguments)
        folder = pathlib.Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            (folder / "sampler.json").write_text(json.dumps(self.position))


def trainer_of(output, steps, resume=None, **more):
    """`resume`: the folder of a checkpoint."""
    arguments = TrainingArguments(output, max_steps=steps, save_steps=1, ignore_data_skip=True, report_to="none", disable_tqdm=True,
                                  logging_steps=1, use_cpu=True, dataloader_pin_memory=False, remove_unused_columns=False, **more)
    config = pliant.Config.open(pathlib.Path(__file__).with_name("pliant.toml"))
    data = Sentences()
    sampler = pliant.PackedBatchSampler(config, data.lengths, arguments.process_index, arguments.world_size, placeholders=True)
    if resume is not None:
        sampler.load_state_dict(json.loads((pathlib.Path(resume) / "sampler.json").read_text()))
    arguments.gradient_accumulation_steps = sampler.micro_batches_per_step
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=SYMBOLS, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                         num_attention_heads=2, num_key_value_heads=2, attn_implementation="sdpa"))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr.base_lr)
    scheduler = LRScheduler(optimizer, pliant.LearningRate(config))
    return PackTrainer(model, arguments, train_dataset=data, optimizers=(optimizer, scheduler), sampler=sampler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5, help="until this step")
    parser.add_argument("--output", default="checkpoints")
    parser.add_argument("--resume", help="the folder of a checkpoint")
    given = parser.parse_args()
    trainer_of(given.output, given.steps, given.resume).train(resume_from_checkpoint=given.resume)
