#!/usr/bin/env python3
"""Trains what samples/tinylm trains with PyTorch's DistributedDataParallel on gloo; needs a Python with torch.

    torchrun --standalone --nproc_per_node RANKS ddp_peer.py FOLDER

FOLDER holds what `bare_tinylm --dump` writes: rows of every step, rates, first weights. The same model, attention blocks, loss and
AdamW, one thread a rank; each rank computes its part of the rows in micro-batches of the same size, and DDP adds the gradients of
the last one and of those before it, which were kept back (no_sync). Index tensors are made before the clock starts. Rank 0 prints
one object: `steps`, `losses`, and `tokens` and `seconds` from the end of the first step to the end of the last.
"""
import contextlib
import json
import math
import os
import pathlib
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch
import torch.distributed
import torch.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel

SMALLEST_BLOCK = 64


class Group:
    """Attention blocks of one width, as samples/tinylm lays them out: short sequences share a block, each sees itself alone."""

    def __init__(self, width):
        self.width, self.places, self.owners, self.used = width, [], [], []

    def take(self, length):
        block = next((i for i, used in enumerate(self.used) if used + length <= self.width), len(self.used))
        if block == len(self.used):
            self.used.append(0)
            self.places += [0] * self.width
            self.owners += [-1] * self.width
        first = block * self.width + self.used[block]
        self.used[block] += length
        return first

    def tensors(self):
        owners = torch.tensor(self.owners).view(-1, self.width)
        sees = (owners[:, :, None] == owners[:, None, :]).tril_()
        mask = torch.zeros(sees.shape).masked_fill_(~sees, -math.inf)
        return torch.tensor(self.places), mask[:, None]


class Layout:
    """The sequences of a micro-batch, laid end to end, and their places in attention blocks."""

    def __init__(self, sequences):
        groups, homes, tokens, positions, predictors, targets = {}, [], [], [], [], []
        for number, sequence in enumerate(sequences):
            width = SMALLEST_BLOCK
            while width < len(sequence):
                width *= 2
            group = groups.setdefault(width, Group(width))
            first, here, length = group.take(len(sequence)), len(tokens), len(sequence)
            group.places[first:first + length] = range(here, here + length)
            group.owners[first:first + length] = [number] * length
            homes += [(width, first + i) for i in range(length)]
            tokens += sequence
            positions += range(length)
            predictors += range(here, here + length - 1)
            targets += sequence[1:]
        before, places = {}, 0
        for width in sorted(groups):
            before[width] = places
            places += len(groups[width].places)
        self.tokens, self.positions = torch.tensor(tokens), torch.tensor(positions)
        self.predictors, self.targets = torch.tensor(predictors), torch.tensor(targets)
        self.groups = [groups[width].tensors() for width in sorted(groups)]
        self.from_blocks = torch.tensor([before[width] + place for width, place in homes])


class Block(torch.nn.Module):
    def __init__(self, dim, heads, part):
        super().__init__()
        self.heads = heads
        self.norm1_weight, self.norm1_bias = part(dim), part(dim)
        self.qkv_weight, self.qkv_bias = part(3 * dim, dim), part(3 * dim)
        self.mix_weight, self.mix_bias = part(dim, dim), part(dim)
        self.norm2_weight, self.norm2_bias = part(dim), part(dim)
        self.up_weight, self.up_bias = part(4 * dim, dim), part(4 * dim)
        self.down_weight, self.down_bias = part(dim, 4 * dim), part(dim)

    def attend(self, x, layout):
        dim = x.shape[1]
        qkv, mixed = functional.linear(x, self.qkv_weight, self.qkv_bias), []
        for places, mask in layout.groups:
            blocks, width = mask.shape[0], mask.shape[2]
            queries, keys, values = qkv.index_select(0, places).view(blocks, width, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            queries = queries * (1 / math.sqrt(dim // self.heads))
            weights = torch.softmax(queries @ keys.transpose(-1, -2) + mask, -1)
            mixed.append((weights @ values).permute(0, 2, 1, 3).reshape(blocks * width, dim))
        return functional.linear(torch.cat(mixed).index_select(0, layout.from_blocks), self.mix_weight, self.mix_bias)

    def forward(self, x, layout):
        shape = x.shape[1:]
        x = x + self.attend(functional.layer_norm(x, shape, self.norm1_weight, self.norm1_bias), layout)
        hidden = functional.layer_norm(x, shape, self.norm2_weight, self.norm2_bias)
        hidden = torch.relu(functional.linear(hidden, self.up_weight, self.up_bias))
        return x + functional.linear(hidden, self.down_weight, self.down_bias)


class Model(torch.nn.Module):
    """forward() gives the summed cross-entropy of a layout."""

    def __init__(self, job, weights):
        super().__init__()
        taken = 0

        def part(*sizes):
            nonlocal taken
            first, taken = taken, taken + math.prod(sizes)
            return torch.nn.Parameter(weights[first:taken].view(sizes).clone())

        dim = job["dim"]
        self.embedding, self.positions = part(job["vocab"], dim), part(job["max_sequence"], dim)
        self.blocks = torch.nn.ModuleList(Block(dim, job["heads"], part) for _ in range(job["layers"]))
        self.final_weight, self.final_bias = part(dim), part(dim)
        assert taken == len(weights), "weights.f32 is of another model"

    def forward(self, layout):
        x = functional.embedding(layout.tokens, self.embedding) + functional.embedding(layout.positions, self.positions)
        for block in self.blocks:
            x = block(x, layout)
        x = functional.layer_norm(x.index_select(0, layout.predictors), x.shape[1:], self.final_weight, self.final_bias)
        return functional.nll_loss(torch.log_softmax(x @ self.embedding.t(), 1), layout.targets, reduction="sum")

    def decays(self, name):
        return name == "embedding" or name.endswith("_weight") and "norm" not in name and name != "final_weight"


def micro_batches(rows, size, ranks, rank):
    """Consecutive rows of this rank, the first ranks one more where they do not come out even."""
    least, more = divmod(len(rows), ranks)
    first = rank * least + min(rank, more)
    own = rows[first:first + least + (rank < more)]
    return [Layout([each for row in own[at:at + size] for each in row]) for at in range(0, len(own), size)]


def main():
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    folder = pathlib.Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    weights = torch.frombuffer(bytearray((folder / "weights.f32").read_bytes()), dtype=torch.float32)
    size = min(job["micro_batch"], max(1, min(len(step["rows"]) for step in job["steps"]) // ranks))
    steps = [(step, micro_batches(step["rows"], size, ranks, rank)) for step in job["steps"]]
    model = Model(job, weights)
    groups = [{"params": [one for name, one in model.named_parameters() if model.decays(name) == decays],
               "weight_decay": job["weight_decay"] if decays else 0.0} for decays in (True, False)]
    adamw = torch.optim.AdamW(groups, betas=(job["beta1"], job["beta2"]), eps=job["epsilon"])
    parallel = DistributedDataParallel(model)
    losses, tokens, began, ended = [], 0, 0.0, 0.0
    for index, (step, micros) in enumerate(steps):
        adamw.zero_grad(set_to_none=False)
        mean = 0.0
        for number, layout in enumerate(micros):
            with contextlib.nullcontext() if number + 1 == len(micros) else parallel.no_sync():
                loss = parallel(layout) * (ranks / step["loss_tokens"])  # DDP takes the mean over the ranks
                loss.backward()
            mean += loss.item() / ranks
        if job["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip_norm"])
        for group in adamw.param_groups:
            group["lr"] = step["learning_rate"]
        adamw.step()
        losses.append(mean)
        ended = time.monotonic()
        began, tokens = (ended, 0) if index == 0 else (began, tokens + step["tokens"])
    total = torch.tensor(losses, dtype=torch.float64)
    torch.distributed.all_reduce(total)
    if rank == 0:
        said = {"steps": len(steps), "tokens": tokens, "seconds": ended - began, "losses": total.tolist(),
                "torch": torch.__version__}
        (folder / "peer.json").write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main()
