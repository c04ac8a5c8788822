"""A plain loop in PyTorch: a model learns to count on."""
import torch
from torch import nn

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


def main():
    torch.manual_seed(1)
    model, data = Model(), Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate, num_workers=2)
    for _ in range(4):
        for batch in loader:
            optimizer.zero_grad()
            loss = model.loss_sum(batch) / (batch[:, 1:] >= 0).sum()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


if __name__ == "__main__":
    main()
