"""a loop over DeepSpeed whose config was resolved takes the same steps at every world size, over a stand-in for its engine."""
import os
import pathlib
import re

import forked_ranks
import pytest

SAMPLES = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "samples/deepspeed"

# What the sample uses of DeepSpeed, in its words: a config is checked as there, and gradients of micro-batches are means.
STAND_IN = '''
import os

import torch
import torch.distributed as group


class Engine:
    device = torch.device("cpu")

    def __init__(self, model, config):
        self.model, self.config, self.seen = model, config, 0
        self.optimizer = getattr(torch.optim, config["optimizer"]["type"])(model.parameters(), **config["optimizer"]["params"])
        self.world_size = int(os.environ.get("WORLD_SIZE", 1))
        total, micro, steps = (config[key] for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"))
        assert total == micro * steps * self.world_size, "Check batch related parameters"
        assert "elasticity" not in config, "elasticity is not supported"

    def __call__(self, inputs):
        return self.model(inputs)

    def gradient_accumulation_steps(self):
        return self.config["gradient_accumulation_steps"]

    def train_batch_size(self):
        return self.config["train_batch_size"]

    def backward(self, loss):
        (loss / self.gradient_accumulation_steps()).backward()

    def step(self):
        self.seen += 1
        if self.seen % self.gradient_accumulation_steps():
            return
        for weight in self.model.parameters():
            if self.world_size > 1:
                group.all_reduce(weight.grad)
            weight.grad /= self.world_size
        self.optimizer.step()
        self.optimizer.zero_grad()


def initialize(model, model_parameters, config, training_data):
    engine = Engine(model, config)
    if engine.world_size > 1:
        group.init_process_group("gloo")
    share = torch.utils.data.DistributedSampler(training_data, engine.world_size, int(os.environ.get("RANK", 0)), shuffle=False)
    loader = torch.utils.data.DataLoader(training_data, config["train_micro_batch_size_per_gpu"], sampler=share)
    return engine, engine.optimizer, loader, None
'''


@pytest.fixture(scope="module", name="launcher")
def of_this_file():
    launcher = forked_ranks.Launcher()
    yield launcher
    launcher.close()


def run(launcher, folder, world_size, ranks=None):
    """How the ranks ended, all unless `ranks` says which, and what the first of them wrote."""
    (folder / "deepspeed.py").write_text(STAND_IN)
    ended, out, err = launcher.run(world_size, SAMPLES / "train.py", str(SAMPLES / "elastic.json"), folder=folder, ranks=ranks, path=[folder])
    return ended, out[0], err[0]


def test_the_weights_are_the_same_at_every_world_size(launcher, tmp_path):
    found = {}
    for world_size in (1, 3):
        ended, out, err = run(launcher, tmp_path, world_size)
        assert ended == [0] * world_size, err
        found[world_size] = [(int(step), int(samples), float(weights)) for step, samples, weights in
                             re.findall(r"step (\d+): (\d+) samples, weights (-?[\d.]+)", out)]
    assert len(found[1]) == 5 and found[1][0][1] == 48 and len({weights for _, _, weights in found[1]}) == 5
    assert found[3] == [pytest.approx(step, abs=2e-4) for step in found[1]]


def test_a_world_size_that_the_block_does_not_admit_ends_the_job_by_name(launcher, tmp_path):
    ended, _, err = run(launcher, tmp_path, 7, [0])  # no rank waits for another before
    assert ended == [1] and re.search(r"^train.py: world size 7 is not valid", err, re.M), err
