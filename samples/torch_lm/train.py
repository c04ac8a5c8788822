"""torch_lm: trains a small language model on the bytes of plain text as an elastic Pliant job. Start it with `pliant run` or torchrun."""
import math
import os
import pathlib
import re
import sys
import zlib

import torch
from torch import nn

import pliant.elastic
import pliant.torch


def read_text(config):
    """[app] text, or the text that scripts/fetch-text leaves."""
    if config.app_string("text"):
        return (pathlib.Path(config.file).parent / config.app_string("text")).read_bytes()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return (cache / "pliant/text/austen.txt").read_bytes()


class Sentences:
    """Sentence i with the row that it is asked for: bytes, of which there are `longest` at most."""

    def __init__(self, text, longest):
        paragraphs = (b" ".join(paragraph.split()) for paragraph in re.split(rb"\n\s*\n", text))
        sentences = (one for paragraph in paragraphs for one in re.split(rb"(?<=[.!?]) (?=[A-Z\"'(])", paragraph))
        cut = (one[first : first + longest] for one in sentences for first in range(0, len(one), longest))
        self.bytes = [one for one in cut if len(one) > 1]

    def __getitem__(self, item):
        return item.row, torch.frombuffer(bytearray(self.bytes[item]), dtype=torch.uint8)


def collate(samples):
    """Tokens, places within their sequence, and numbers of the sequences: a line for each row, padded by sequence 0."""
    rows = {}
    for row, tokens in samples:
        rows.setdefault(row, []).append(tokens)
    lengths = [sum(len(one) for one in sequences) for sequences in rows.values()]
    batch = torch.zeros(3, len(rows), max(lengths), dtype=torch.int64)
    for line, (sequences, length) in enumerate(zip(rows.values(), lengths)):
        batch[0, line, :length] = torch.cat(sequences)
        batch[1, line, :length] = torch.cat([torch.arange(len(one)) for one in sequences])
        batch[2, line, :length] = torch.repeat_interleave(torch.tensor([len(one) for one in sequences])) + 1
    return batch


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.mix = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask):
        rows, width, dim = x.shape
        queries, keys, values = self.qkv(self.norm1(x)).view(rows, width, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(queries @ keys.transpose(-1, -2) / math.sqrt(dim // self.heads) + mask, -1)
        x = x + self.drop(self.mix((weights @ values).transpose(1, 2).reshape(x.shape)))
        return x + self.drop(self.down(torch.relu(self.up(self.norm2(x)))))


class Model(nn.Module):
    def __init__(self, dim, layers, heads, longest, dropout):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(256, dim), nn.Embedding(longest, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * layers) if name.endswith(("mix.weight", "down.weight")) else 0.02)

    def forward(self, batch):
        """The summed loss: the step divides by the tokens of the whole batch, whichever rank computed them."""
        tokens, places, sequences = batch.to(self.embedding.weight.device)
        width = tokens.shape[1]
        may_look = (sequences[:, :, None] == sequences[:, None, :]) & torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()
        mask = torch.zeros(may_look.shape, device=tokens.device).masked_fill(~may_look, -math.inf)[:, None]
        x = self.embedding(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x, mask)
        scores = self.norm(x[:, :-1]) @ self.embedding.weight.t()
        is_predicted = (sequences[:, 1:] == sequences[:, :-1]) & (sequences[:, 1:] > 0)
        return nn.functional.cross_entropy(scores[is_predicted], tokens[:, 1:][is_predicted], reduction="sum")


def device_of(session):
    """Of [accelerator]: the CPU, or a GPU of CUDA, where torch needs more for the same bits each time."""
    if session.accelerator != "cuda":
        return torch.device("cpu")
    if session.config.run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    return torch.device("cuda", session.device)


def build(config, seed, device="cpu"):
    """Model, optimizer and the warm-up of its rates."""
    torch.manual_seed(seed)
    model = Model(config.app_int("dim"), config.app_int("layers"), config.app_int("heads"), config.app_int("max_sequence"), config.app_float("dropout"))
    model.to(device)
    weights = list(model.parameters())
    groups = [{"params": [one for one in weights if one.dim() == 2], "weight_decay": config.app_float("weight_decay")},
              {"params": [one for one in weights if one.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.lr.base_lr, betas=(config.lr.beta1, config.lr.beta2))
    steps = config.app_int("warmup_steps")
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(steps, 1)))


def train(session):
    sentences = Sentences(read_text(session.config), session.config.app_int("max_sequence"))
    model, optimizer, warm_up = build(session.config, session.seed, device_of(session))
    loader = session.loader(sentences, collate, num_workers=1)
    lengths = [len(one) for one in sentences.bytes]
    if session.config.has("coordinator"):  # weights, gradients and the optimizer's state are cut over the workers
        state = pliant.torch.shard(model, optimizer, scheduler=warm_up, session=session)
    else:
        state = pliant.torch.state(model, optimizer, scheduler=warm_up)
    session.start(lengths, loss_tokens=[one - 1 for one in lengths], content=zlib.crc32(b"\n".join(sentences.bytes)), state=state)
    for step in session:
        with step.attempt():
            for batch in loader.of(step):
                step.backward(model(batch))
        if step.commit():
            state.clip_grad_norm_(session.config.app_float("clip_norm"))
            optimizer.step()


if __name__ == "__main__":
    own = pathlib.Path(__file__).with_name("pliant.toml")  # for torchrun; `pliant run` has its own
    sys.exit(pliant.elastic.run_worker(train, own, resume="--resume" in sys.argv))
