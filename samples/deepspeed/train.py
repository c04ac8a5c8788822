"""A loop over DeepSpeed whose batch is planned for the world size that it is started at: deepspeed train.py elastic.json

It needs torch and deepspeed, of any release.
"""
import json
import os
import sys

import deepspeed
import torch

from pliant.deepspeed import ElasticityIncompatibleWorldSize, resolve

WIDTH, POINTS = 8, 480


class Plane(torch.utils.data.Dataset):
    """Points, each with its height above a plane."""

    def __len__(self):
        return POINTS

    def __getitem__(self, i):
        point = torch.sin(torch.arange(1.0, WIDTH + 1) * (i + 1))
        return point, point.sum()


def train(ds_config, steps):
    torch.manual_seed(1)
    model = torch.nn.Linear(WIDTH, 1)
    config = resolve(ds_config, int(os.environ.get("WORLD_SIZE", 1)))
    engine, _, loader, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config, training_data=Plane())
    micro_batches = iter(loader)
    for step in range(steps):
        for _ in range(engine.gradient_accumulation_steps()):
            points, heights = next(micro_batches)
            loss = torch.nn.functional.mse_loss(engine(points.to(engine.device))[:, 0], heights.to(engine.device))
            engine.backward(loss)
            engine.step()  # the optimizer steps behind the last micro-batch
        if int(os.environ.get("RANK", 0)) == 0:
            print(f"step {step + 1}: {engine.train_batch_size()} samples, weights {model.weight.sum().item():.4f}")


if __name__ == "__main__":
    with open(next(word for word in sys.argv[1:] if word.endswith(".json")), encoding="utf-8") as file:
        given = json.load(file)
    try:
        train(given, 5)
    except ElasticityIncompatibleWorldSize as error:
        sys.exit(f"train.py: {error}")
