"""a trainer in PyTorch has the same losses at every number of ranks, and after a restart at another."""
import importlib.util
import os
import pathlib
import re

import forked_ranks
import pytest
import torch

import pliant

SAMPLE = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "samples/torch_loop/train.py"
NEXT_FIT = 'use = "next_fit"\n[sampler.next_fit]\nmax_tokens = 48\norder = "random"\n'
CONCAT = 'use = "concat"\n[sampler.concat]\nmax_tokens = 20\norder = "random"\n'


@pytest.fixture(scope="module", name="launcher")
def of_this_file():
    launcher = forked_ranks.Launcher()
    yield launcher
    launcher.close()


def train(launcher, folder, world_size, *arguments, sample=SAMPLE):
    """Losses and rates of the steps, by rank 0 of a group as torchrun starts it."""
    ended, out, err = launcher.run(world_size, sample, *arguments, folder=folder)
    assert ended == [0] * world_size, err
    return [(int(step), float(loss), float(rate)) for step, loss, rate in re.findall(r"step (\d+): loss ([\d.]+), rate ([\d.]+)", out[0])]


def test_the_losses_are_the_same_after_a_restart_at_another_world_size(launcher, tmp_path):
    whole = train(launcher, tmp_path, 1, "--steps", "14", "--checkpoint", "whole.pt")  # more than an epoch
    assert len(whole) == 14 and whole[-1][1] < whole[0][1]
    resumed = train(launcher, tmp_path, 2, "--steps", "6") + train(launcher, tmp_path, 1, "--steps", "8", "--resume")
    assert [step for step, _, _ in resumed] == list(range(1, 15))
    for one, other in zip(whole, resumed):
        assert other == pytest.approx(one, abs=2e-4)


def test_the_loss_is_the_mean_over_the_labels_where_sequences_are_cut_too(launcher, tmp_path):
    sample = tmp_path / "train.py"
    sample.write_text(SAMPLE.read_text())
    text = SAMPLE.with_name("pliant.toml").read_text()
    assert NEXT_FIT in text
    (tmp_path / "pliant.toml").write_text(text.replace(NEXT_FIT, CONCAT))
    of_two = train(launcher, tmp_path, 2, "--steps", "1", sample=sample)

    specification = importlib.util.spec_from_file_location("torch_loop", sample)
    loop = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loop)
    config, data, model = pliant.Config.open(tmp_path / "pliant.toml"), loop.Sentences(), loop.Model()
    batch = pliant.Batches(config, pliant.plan(config), data.lengths).batch(0, 0)
    assert not all(batch.is_last)  # some are cut
    total = labels = 0
    for i, first, count in zip(batch.ids, batch.first_tokens, batch.token_counts):
        tokens = data[i]["input_ids"][first : first + count]
        total += torch.nn.functional.cross_entropy(model.table(tokens[:-1]), tokens[1:], reduction="sum").item()
        labels += len(tokens) - 1
    assert labels < batch.size.tokens - batch.size.sequences
    assert of_two[0][1] == pytest.approx(total / labels, abs=2e-4)
