"""A trainer in PyTorch whose batches are packs: it is stopped after some steps, and goes on at any world size from its checkpoint.

Each rank of a group that torchrun starts runs it, or one alone.
"""
import argparse
import os
import pathlib

import torch
import torch.distributed as group

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


class Model(torch.nn.Module):
    """Says the next symbol by the one before it, which is in the same sequence or is none."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Embedding(SYMBOLS, SYMBOLS)

    def forward(self, micro):
        """The summed loss: the step divides by the labels of the whole batch, whichever rank computed them."""
        scores = self.table(micro["input_ids"][:-1])
        return torch.nn.functional.cross_entropy(scores, micro["labels"][1:], ignore_index=-100, reduction="sum")


def summed(value, world_size):
    if world_size > 1:
        group.all_reduce(value)
    return value


def train(steps, checkpoint, resume):
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        group.init_process_group("gloo")
    config = pliant.Config.open(pathlib.Path(__file__).with_name("pliant.toml"))
    data = Sentences()
    sampler = pliant.PackedBatchSampler(config, data.lengths, rank, world_size, placeholders=True)
    loader = torch.utils.data.DataLoader(Packed(data), batch_sampler=sampler,
                                         collate_fn=lambda samples: collate(samples, style="flash_attn", multiple=8))
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr.base_lr)
    scheduler = LRScheduler(optimizer, pliant.LearningRate(config))
    if resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        scheduler.load_state_dict(saved["scheduler"])
        sampler.load_state_dict(saved["sampler"])
    until = scheduler.steps + steps
    while scheduler.steps < until:
        totals = torch.zeros(2, dtype=torch.float64)  # loss and labels
        optimizer.zero_grad()
        for micro in loader:
            loss = model(micro)
            loss.backward()
            totals[0] += loss.detach()
            totals[1] += (micro["labels"] != -100).sum()
            if micro.position[2] != 0:
                continue  # the step has more micro-batches
            summed_loss, labels = summed(totals, world_size)
            scheduler.batch(sampler.size_of(micro))
            for weight in model.parameters():
                summed(weight.grad, world_size).div_(labels)
            optimizer.step()
            scheduler.step()
            if rank == 0:
                print(f"step {scheduler.steps}: loss {summed_loss / labels:.4f}, rate {scheduler.get_last_lr()[0]:.4f}")
            totals.zero_()
            optimizer.zero_grad()
            if scheduler.steps == until:
                break
    if rank == 0:
        torch.save({"model": model.state_dict(), "scheduler": scheduler.state_dict(), "sampler": sampler.state_after(micro)}, checkpoint)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=5)
    arguments.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("checkpoint.pt"))
    arguments.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    given = arguments.parse_args()
    train(given.steps, given.checkpoint, given.resume)
