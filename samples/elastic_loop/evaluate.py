"""Reads the newest snapshot of elastic.py's job into its model, without the job."""
import pathlib

import torch
from elastic import Model, Sentences, collate

import pliant.torch

model, data = Model().eval(), Sentences()
newest = max(pathlib.Path("pliant-runs/elastic_loop/latest/snapshots").glob("*.snapshot"))
steps = pliant.torch.load_snapshot(newest, model)
with torch.no_grad():
    loss = model.loss_sum(collate([data[i] for i in range(len(data))])) / sum(n - 1 for n in data.lengths)
print(f"after {steps} steps the loss is {loss:.3f}")
