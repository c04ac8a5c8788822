"""What the tests of frameworks share: a job, its data set, and programs of their own, one for each rank."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap

import pytest
import torch

import pliant
from pliant.torch import Packed, collate

TOML = """config_version = 1
[run]
epochs = 3
seed = 7
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 12
micro_batch_sizes = [2]
max_gpus = 6
[lr]
use = "linear"
base_lr = 0.05
unit = "tokens"
base_batch = 500
[sampler]
"""
WHOLE = 'use = "next_fit"\n[sampler.next_fit]\nmax_tokens = 64\norder = "random"\n'
CUT = 'use = "concat"\n[sampler.concat]\nmax_tokens = 48\norder = "random"\n'
SYMBOLS = 64


class Tokens(torch.utils.data.Dataset):
    """Sequence i has its number in its first two tokens, so that the batches say what is in them."""

    lengths = [3 + i * 7 % 29 for i in range(150)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_ids": [i // SYMBOLS, i % SYMBOLS] + [(i + at) % SYMBOLS for at in range(2, self.lengths[i])]}


def sampler_of(rank=0, world_size=1, sampler=WHOLE, placeholders=True):
    config = pliant.Config.parse(TOML + sampler)
    return pliant.PackedBatchSampler(config, Tokens.lengths, rank, world_size, placeholders=placeholders)


def loader_of(sampler, kind=torch.utils.data.DataLoader, style="transformers", **keywords):
    return kind(Packed(Tokens()), batch_sampler=sampler, collate_fn=lambda samples: collate(samples, style=style), **keywords)


def ids(batches):
    return [batch["input_ids"].tolist() for batch in batches]


def sequences(batches):
    """The numbers of the sequences in batches of whole ones; padding of an empty micro-batch is none."""
    found = []
    for batch in batches:
        if (batch["labels"] == -100).all() and batch["input_ids"].numel() == 1:
            continue
        borders = batch["cu_seq_lens_q"].tolist()
        flat = batch["input_ids"][0].tolist()
        found += [flat[first] * SYMBOLS + flat[first + 1] for first in borders[:-1]]
    return found


@pytest.fixture
def run_ranks(tmp_path):
    """Runs a program as each rank of a group, as torchrun starts it, and gives what each printed as its last line, which is JSON."""

    def run(program, world_size):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        common = dict(os.environ, WORLD_SIZE=str(world_size), LOCAL_WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true", GLOO_SOCKET_IFNAME="lo",
                      PYTHONPATH=os.pathsep.join([str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        ranks = [
            subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)))
            for rank in range(world_size)
        ]
        said = [rank.communicate(timeout=300) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * world_size, said
        return [json.loads(out.splitlines()[-1]) for out, _ in said]

    return run
