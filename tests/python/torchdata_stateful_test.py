"""under StatefulDataLoader a sampler goes on exactly, with workers and without, at any world size."""
import pytest
from conftest import CUT, lengths_of, toml
from torch_collate_test import Tokens
from torchdata.stateful_dataloader import StatefulDataLoader

import pliant
from pliant.torch import Packed, collate


def loader_of(rank, world_size, workers, sampler=CUT):
    packed = pliant.PackedBatchSampler(pliant.Config.parse(toml(sampler)), lengths_of(), rank, world_size)
    return StatefulDataLoader(Packed(Tokens(lengths_of())), batch_sampler=packed, num_workers=workers, collate_fn=collate)


def plain(batches):
    return [batch["input_ids"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("count", [1, 7, 8])
def test_a_loader_goes_on_behind_the_batch_that_was_given(workers, count):
    whole = plain(loader_of(1, 4, 0))
    loader = loader_of(1, 4, workers)
    iterator = iter(loader)
    first = plain(next(iterator) for _ in range(count))
    state = loader.state_dict()
    second = plain(iterator)
    assert first + second == whole
    third = plain(loader)
    again = loader_of(1, 4, workers)
    again.load_state_dict(state)
    assert plain(again) == second and plain(again) == third


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_at_the_end_of_an_epoch_begins_the_next(workers):
    loader = loader_of(0, 3, workers)
    assert plain(loader)
    state = loader.state_dict()
    expected = plain(loader)
    again = loader_of(0, 3, workers)
    again.load_state_dict(state)
    assert plain(again) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_any_rank_serves_every_rank_of_another_world_size(workers):
    loader = loader_of(2, 3, workers)
    each = loader.batch_sampler.micro_batches_per_step
    iterator = iter(loader)
    for _ in range(2 * each):
        next(iterator)
    state = loader.state_dict()
    seen = sorted(token for rank in range(3) for batch in plain(loader_of(rank, 3, 0))[: 2 * each] for token in batch[0])
    rest = []
    for rank in range(5):
        again = loader_of(rank, 5, workers)
        again.load_state_dict(state)
        rest += [token for batch in plain(again) for token in batch[0]]
    every = sorted(token for i, count in enumerate(lengths_of()) for token in range(i * 1000, i * 1000 + count))
    padding = [0] * (len(seen) + len(rest) - len(every))  # of empty micro-batches
    assert sorted(seen + rest) == padding + every


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_whole_job_goes_on_in_its_second_epoch_at_another_world_size(workers, world_size):
    def job_of(rank, ranks):
        packed = pliant.PackedBatchSampler(pliant.Config.parse(toml(CUT)), lengths_of(), rank, ranks)
        return packed, StatefulDataLoader(Packed(Tokens(lengths_of())), batch_sampler=packed.whole_job(), num_workers=workers, collate_fn=collate)

    def steps_of(ranks, state=None):
        """The tokens of each step."""
        parts = []
        for rank in range(ranks):
            sampler, loader = job_of(rank, ranks)
            if state is not None:
                loader.load_state_dict(state)
            parts.append(plain(loader))
        each = sampler.micro_batches_per_step
        return [sorted(token for part in parts for batch in part[at : at + each] for token in batch[0] if token) for at in range(0, len(parts[0]), each)]

    whole = steps_of(3)
    sampler, loader = job_of(1, 3)
    done = len(whole) // 2  # in the second of three epochs
    iterator = iter(loader)
    for _ in range(done * sampler.micro_batches_per_step):
        next(iterator)
    assert steps_of(world_size, loader.state_dict()) == whole[done:]
