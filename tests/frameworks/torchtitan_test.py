"""torchtitan's dataloader takes packs as they are, and PackLoader goes on at another data-parallel size."""
import pytest
from conftest import CUT, TOML, Tokens, sampler_of

from pliant.torch import Packed, collate

try:
    from torchtitan.components.dataloader import BaseDataLoader, ParallelAwareDataloader
except ImportError as failure:  # parts of it need a GPU's packages in some releases
    pytest.skip(f"torchtitan cannot be imported: {failure}", allow_module_level=True)

from pliant.torchtitan import PackLoader


@pytest.fixture
def made(tmp_path):
    (tmp_path / "pliant.toml").write_text(TOML + CUT)

    def make(kind, rank, world_size, workers=0):
        if kind is PackLoader:
            config = PackLoader.Config(job=str(tmp_path / "pliant.toml"), samples=lambda tokenizer: Tokens(), num_workers=workers)
            return config.build(dp_world_size=world_size, dp_rank=rank, tokenizer=None, seq_len=128, local_batch_size=1, snapshot_every_n_steps=1)
        return plain_loader(kind, rank, world_size, workers)

    return make


def plain_loader(kind, rank, world_size, workers):
    return kind(Packed(Tokens()), dp_rank=rank, dp_world_size=world_size, batch_sampler=sampler_of(rank, world_size, CUT), num_workers=workers,
                collate_fn=lambda samples: collate(samples, style="torchtitan"))


def plain(batches):
    return [inputs["input"].tolist() for inputs, _ in batches]


@pytest.mark.parametrize("kind", [ParallelAwareDataloader, PackLoader])
def test_it_gives_what_torchtitan_takes_and_goes_on_at_the_same_size(made, kind):
    loader = made(kind, 1, 2)
    assert isinstance(loader, BaseDataLoader)
    iterator = iter(loader)
    for _ in range(3):
        inputs, labels = next(iterator)
    assert set(inputs) == {"input", "positions"} and inputs["input"].shape == inputs["positions"].shape == labels.shape
    state = loader.state_dict()
    rest = plain(iterator)
    again = made(kind, 1, 2)
    again.load_state_dict(state)
    assert plain(again) == rest


def test_that_of_torchtitan_refuses_another_data_parallel_size(made):
    loader = made(ParallelAwareDataloader, 0, 2)
    next(iter(loader))
    with pytest.raises(AssertionError, match="dp_degree"):
        made(ParallelAwareDataloader, 0, 3).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_any_rank_serves_another_data_parallel_size(made, workers):
    loader = made(PackLoader, 1, 2, workers)
    each = sampler_of(0, 2, CUT).micro_batches_per_step
    iterator = iter(loader)
    for _ in range(2 * each):
        next(iterator)
    states = [loader.state_dict()]
    seen = [token for rank in range(2) for batch in plain(made(PackLoader, rank, 2))[: 2 * each] for token in batch[0]]
    for world_size in (1, 3):
        rest = []
        for rank in range(world_size):
            again = made(PackLoader, rank, world_size, workers)
            again.load_state_dict(states[0])
            rest += [token for batch in plain(again) for token in batch[0]]
        every = [token for i in range(len(Tokens.lengths)) for token in Tokens()[i]["input_ids"]] * 3  # epochs
        padding = [0] * (len(seen) + len(rest) - len(every))  # of empty micro-batches
        assert sorted(seen + rest) == sorted(every + padding)
