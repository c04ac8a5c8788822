"""The same loop, elastic: workers come and go. Start it with `pliant run`."""
import torch
from torch import nn

import pliant.elastic
import pliant.torch

SYMBOLS = 16


class Sentences:
    """Sentence i counts on from i, by as much as it is long."""

    lengths = [4 + i * 7 % 13 for i in range(240)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return (i + torch.arange(self.lengths[i])) % SYMBOLS


class Model(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Embedding(SYMBOLS, 8), nn.Dropout(0.1), nn.Linear(8, SYMBOLS))

    def loss_sum(self, batch):
        """Of the symbols that are predicted; -100 is padding."""
        scores = self(batch[:, :-1].clamp(min=0)).flatten(0, 1)
        return nn.functional.cross_entropy(scores, batch[:, 1:].flatten(), reduction="sum")


def collate(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-100)


def main(session):
    torch.manual_seed(1)
    model, data = Model(), Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    loader = session.loader(data, collate, num_workers=2)
    session.start(data.lengths, loss_tokens=[n - 1 for n in data.lengths], state=pliant.torch.state(model, optimizer))
    for step in session:
        for batch in loader.of(step):
            step.backward(model.loss_sum(batch))
        if step.commit():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


if __name__ == "__main__":
    raise SystemExit(pliant.elastic.run_worker(main))
