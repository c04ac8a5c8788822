"""Reads the newest snapshot of elastic.py's job into its model, without the job."""
import torch
from elastic import Model, Sentences, collate

import pliant.torch

model, data = Model().eval(), Sentences()
steps = pliant.torch.load_snapshot("pliant-runs/elastic_loop/latest", model)
with torch.no_grad():
    loss = model.loss_sum(collate([data[i] for i in range(len(data))])) / sum(n - 1 for n in data.lengths)
print(f"after {steps} steps the loss is {loss:.3f}")
