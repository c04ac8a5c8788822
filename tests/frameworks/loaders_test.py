"""a current DataLoader and StatefulDataLoader give every sequence once and go on exactly."""
import pytest
import torch
from conftest import CUT, WHOLE, Tokens, ids, loader_of, sampler_of, sequences
from torchdata.stateful_dataloader import StatefulDataLoader


@pytest.mark.parametrize("kind", [torch.utils.data.DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 5])
def test_every_sequence_comes_once_and_every_rank_has_equally_many_batches(kind, workers, world_size):
    ranks = [list(loader_of(sampler_of(rank, world_size), kind, num_workers=workers)) for rank in range(world_size)]
    assert sorted(number for rank in ranks for number in sequences(rank)) == list(range(len(Tokens.lengths)))
    assert len({len(rank) for rank in ranks}) == 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [WHOLE, CUT])
def test_a_plain_loader_goes_on_from_the_state_of_a_batch(workers, sampler):
    whole = ids(loader_of(sampler_of(1, 3, sampler)))
    given = sampler_of(1, 3, sampler)
    for number, batch in enumerate(loader_of(given, num_workers=workers), 1):
        if number == 5:
            state = given.state_after(batch)
            break
    again = sampler_of(1, 3, sampler)
    again.load_state_dict(state)
    assert ids(loader_of(again, num_workers=workers)) == whole[5:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [WHOLE, CUT])
def test_a_stateful_loader_goes_on_exactly_and_into_the_next_epoch(workers, sampler):
    loader = loader_of(sampler_of(0, 2, sampler), StatefulDataLoader, num_workers=workers)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = loader.state_dict()
    rest, second = ids(iterator), ids(loader)
    again = loader_of(sampler_of(1, 2, sampler), StatefulDataLoader, num_workers=workers)
    again.load_state_dict(state)
    other = loader_of(sampler_of(0, 2, sampler), StatefulDataLoader, num_workers=workers)
    other.load_state_dict(state)
    assert ids(other) == rest and ids(other) == second
    assert len(ids(again)) == len(rest)


@pytest.mark.parametrize("style", ["transformers", "flash_attn", "torchtitan", "sdpa"])
def test_a_pinned_batch_keeps_its_position(style, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: tensor.clone())  # no GPU is needed
    sampler = sampler_of()
    batch = next(iter(loader_of(sampler, style=style)))
    assert sampler.state_after(torch.utils.data._utils.pin_memory.pin_memory(batch)) == sampler.state_after(batch)
