"""A sharded loop in PyTorch: the model is made on no memory, and no worker ever holds all of it. Start it with `pliant run`."""
import torch
from torch import nn

import pliant.elastic
import pliant.torch

SYMBOLS, HELD_OUT = 16, 24


class Sentences:
    """Sentence i counts on from i, by as much as it is long. The last ones are not trained with."""

    lengths = [4 + i * 7 % 13 for i in range(240)]

    def __getitem__(self, i):
        return (i + torch.arange(self.lengths[i])) % SYMBOLS


class Block(nn.Module):
    def __init__(self, width, **options):
        super().__init__()
        self.norm = nn.LayerNorm(width, **options)
        self.up, self.down = nn.Linear(width, 4 * width, **options), nn.Linear(4 * width, width, **options)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width, layers, **options):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width, **options)
        self.blocks = nn.ModuleList(Block(width, **options) for _ in range(layers))
        self.head = nn.Linear(width, SYMBOLS, **options)

    def forward(self, batch):
        """The summed loss of the symbols that are predicted; -100 is padding."""
        x = self.embedding(batch[:, :-1].clamp(min=0))
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")


def collate(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-100)


def main(session):
    model, data = Model(32, 4, device="meta"), Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = pliant.torch.shard(model, optimizer, session=session, units=[Block])
    loader = session.loader(data, collate, num_workers=1)
    trained = data.lengths[:-HELD_OUT]
    held_out = collate([data[len(trained) + i] for i in range(HELD_OUT)])
    session.start(trained, loss_tokens=[n - 1 for n in trained], state=state)
    for step in session:
        with step.attempt():
            for batch in loader.of(step):
                step.backward(model(batch))
        if not step.commit():
            continue
        state.clip_grad_norm_(1.0)
        optimizer.step()
        if (step.index + 1) % 20 == 0:
            with step.attempt(), torch.no_grad():
                session.evaluated("held_out_loss", float(model(held_out)) / int((held_out[:, 1:] >= 0).sum()))
                state.export_safetensors("torch_shard.safetensors")


if __name__ == "__main__":
    raise SystemExit(pliant.elastic.run_worker(main))
