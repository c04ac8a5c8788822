"""collate makes one flat sequence under the names of each framework, and no sequence sees another."""
import pickle

import pytest
import torch
from conftest import CUT, lengths_of, toml
from torch.utils.data._utils.pin_memory import pin_memory

import pliant.torch
from pliant.torch import MicroBatchDict, Packed, collate

SAMPLES = [{"input_ids": [5, 6, 7], "labels": [1, 2, 3]}, {"input_ids": [8], "labels": [4]}, {"input_ids": [9, 10], "labels": [5, 6]}]


def flattening(samples, separator=-100):
    """What transformers' DataCollatorWithFlattening(return_flash_attn_kwargs=True) computes, value by value, in its own order."""
    made = {"input_ids": [], "labels": [], "position_ids": []}
    borders, longest = [0], 0
    for sample in samples:
        ids = sample["input_ids"]
        made["input_ids"] += ids
        made["labels"] += [separator] + sample.get("labels", ids)[1:]
        made["position_ids"] += list(range(len(ids)))
        borders.append(borders[-1] + len(ids))
        longest = max(longest, len(ids))
    made = {name: torch.tensor([values], dtype=torch.int64) for name, values in made.items()}
    made["cu_seq_lens_q"] = made["cu_seq_lens_k"] = torch.tensor(borders, dtype=torch.int32)
    made["max_length_q"] = made["max_length_k"] = longest
    return made


def same(one, other):
    assert set(one) == set(other)
    for name, value in other.items():
        if isinstance(value, torch.Tensor):
            assert one[name].dtype == value.dtype and torch.equal(one[name], value), name
        else:
            assert one[name] == value and type(one[name]) is type(value), name


@pytest.mark.parametrize("samples", [SAMPLES, SAMPLES[:1], [{"input_ids": [3, 4]}, {"input_ids": [5]}]])
def test_it_equals_the_collator_of_transformers_value_by_value(samples):
    same(collate(samples), flattening(samples))
    same(collate([{name: torch.tensor(values) for name, values in sample.items()} for sample in samples]), flattening(samples))


def test_each_style_has_its_names_and_shapes():
    made = collate(SAMPLES, style="flash_attn")
    assert made["input_ids"].tolist() == [5, 6, 7, 8, 9, 10] and made["labels"].tolist() == [-100, 2, 3, -100, -100, 6]
    assert made["cu_seqlens"].tolist() == [0, 3, 4, 6] and made["cu_seqlens"].dtype == torch.int32 and made["max_seqlen"] == 3
    assert made["position_ids"].tolist() == [0, 1, 2, 0, 0, 1]
    inputs, labels = collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8]}], style="torchtitan")
    assert inputs["input"].tolist() == [[5, 6, 7, 8]] and inputs["positions"].tolist() == [[0, 1, 2, 0]]
    assert labels.tolist() == [[6, 7, -100, -100]]


def test_padding_is_a_sequence_of_its_own_without_labels():
    made = collate(SAMPLES, style="flash_attn", multiple=8, pad_token=99)
    assert made["input_ids"].tolist() == [5, 6, 7, 8, 9, 10, 99, 99] and made["labels"].tolist()[6:] == [-100, -100]
    assert made["cu_seqlens"].tolist() == [0, 3, 4, 6, 8] and made["position_ids"].tolist()[6:] == [0, 1]
    assert collate(SAMPLES, style="flash_attn", multiple=6)["cu_seqlens"].tolist() == [0, 3, 4, 6]


@pytest.mark.parametrize("style", ["transformers", "flash_attn", "torchtitan", "sdpa"])
def test_a_micro_batch_without_samples_is_padding_alone(style):
    made = collate([], style=style, multiple=4)
    labels = made[1] if style == "torchtitan" else made["labels"]
    assert labels.numel() == 4 and (labels == -100).all()


def attend(ids, mask):
    """A layer of attention over random embeddings."""
    torch.manual_seed(1)
    table = torch.randn(128, 8, dtype=torch.float64)
    x = table[ids]
    scores = (x @ x.transpose(-1, -2)).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ x


def test_no_sequence_sees_another_and_each_sees_itself():
    made = collate(SAMPLES, style="sdpa", multiple=8)
    mask = made["attention_mask"]
    assert mask.shape == (1, 1, 8, 8) and mask.dtype == torch.bool
    together = attend(made["input_ids"], mask[:, 0])
    at = 0
    for sample in SAMPLES:
        alone = collate([sample], style="sdpa")
        count = len(sample["input_ids"])
        expected = attend(alone["input_ids"], alone["attention_mask"][:, 0])
        assert torch.allclose(together[:, at : at + count], expected, rtol=1e-12)
        other = made["input_ids"].clone()
        other[:, [i for i in range(8) if not at <= i < at + count]] += 50  # all tokens but its own
        assert torch.equal(attend(other, mask[:, 0])[:, at : at + count], together[:, at : at + count])
        at += count


def test_wrong_samples_are_refused():
    for samples, keywords in (([{"input_ids": [1, 2], "labels": [1]}], {}), ([{"input_ids": [[1]]}], {}), (SAMPLES, {"style": "x"}),
                              (SAMPLES, {"multiple": 0})):
        with pytest.raises(pliant.Error):
            collate(samples, **keywords)


def test_a_tensor_cannot_be_resized_while_its_lengths_are_viewed():
    lengths = torch.tensor(lengths_of(), dtype=torch.int32)
    config = pliant.Config.parse(toml())
    batches = pliant.Batches(config, pliant.plan(config), lengths)
    assert batches.fingerprint == pliant.Batches(config, pliant.plan(config), lengths_of()).fingerprint
    with pytest.raises(RuntimeError, match="resiz"):
        lengths.resize_(10**7)
    assert batches.batch(1, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_lengths_on_a_gpu_are_refused_and_their_copy_on_the_cpu_is_taken():
    lengths = torch.tensor(lengths_of(), dtype=torch.int32, device="cuda")
    config = pliant.Config.parse(toml())
    plan = pliant.plan(config)
    with pytest.raises(TypeError, match=r"lengths lies on a device: .*\.cpu\(\)"):
        pliant.Batches(config, plan, lengths)
    assert pliant.Batches(config, plan, lengths.cpu()).fingerprint == pliant.Batches(config, plan, lengths_of()).fingerprint


class Tokens(torch.utils.data.Dataset):
    """Sequence i is i * 1000, i * 1000 + 1, ..."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_ids": list(range(i * 1000, i * 1000 + self.lengths[i])), "name": f"sequence {i}"}


def loader_of(sampler, workers=0, dataset=None):
    return torch.utils.data.DataLoader(Packed(dataset or Tokens(lengths_of())), batch_sampler=sampler, num_workers=workers,
                                       collate_fn=collate)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [toml(), toml(CUT)])
def test_through_a_loader_every_token_comes_once(workers, sampler):
    config = pliant.Config.parse(sampler)
    lengths = lengths_of()
    tokens = []
    for rank in range(3):
        loader = loader_of(pliant.PackedBatchSampler(config, lengths, rank, 3), workers)
        for batch in loader:
            tokens += batch["input_ids"][0][batch["input_ids"][0] > 0].tolist()
    tokens = sorted(tokens)
    assert tokens == sorted(token for i, count in enumerate(lengths) for token in range(i * 1000, i * 1000 + count) if token > 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loader_that_reads_ahead_goes_on_from_the_state_of_a_batch(workers):
    config = pliant.Config.parse(toml(CUT))
    whole = [batch["input_ids"].tolist() for batch in loader_of(pliant.PackedBatchSampler(config, lengths_of(), 1, 4))]
    sampler = pliant.PackedBatchSampler(config, lengths_of(), 1, 4)
    for number, batch in enumerate(loader_of(sampler, workers), 1):
        if number == 7:
            state = sampler.state_after(batch)
            break
    again = pliant.PackedBatchSampler(config, lengths_of(), 1, 4)
    again.load_state_dict(state)
    assert [batch["input_ids"].tolist() for batch in loader_of(again, workers)] == whole[7:]


def test_the_state_of_a_batch_is_known_without_samples_too():
    class Items(list):
        position = (0, 1, 0, False)

    assert collate(Packed(Tokens([3])).__getitems__(Items())).position == (0, 1, 0, False)


def test_a_placeholder_carries_the_position_of_an_empty_micro_batch():
    config = pliant.Config.parse(toml())
    sampler = pliant.PackedBatchSampler(config, lengths_of(), 4, 5, placeholders=True)
    states = [iterator.state_dict() for iterator in [iter(sampler)] for _ in iterator]
    batches = list(loader_of(pliant.PackedBatchSampler(config, lengths_of(), 4, 5, placeholders=True)))
    assert [sampler.state_after(batch) for batch in batches] == states
    empty = batches[1]
    assert (empty["labels"] == -100).all() and empty["input_ids"].numel() == 1
    micro = list(pliant.PackedBatchSampler(config, lengths_of(), 4, 5, placeholders=True))[1]
    assert collate(Packed(Tokens([3])).__getitems__(micro)).position == empty.position


def test_any_data_set_serves_whole_sequences():
    config = pliant.Config.parse(toml())
    sampler = pliant.PackedBatchSampler(config, lengths_of(), 0, 1)
    loader = torch.utils.data.DataLoader(torch.arange(400), batch_sampler=sampler, collate_fn=lambda samples: [int(i) for i in samples])
    assert sorted(i for batch in loader for i in batch) == list(range(400))


def test_a_data_set_that_does_not_fit_the_lengths_is_named():
    config = pliant.Config.parse(toml(CUT))
    sampler = pliant.PackedBatchSampler(config, lengths_of(), 0, 1)
    with pytest.raises(pliant.Error, match="the lengths that the sampler was given"):
        for _ in loader_of(sampler, dataset=Tokens([2] * 400)):
            pass
    with pytest.raises(pliant.Error, match="takes mappings, such as {'input_ids': ...}"):
        Packed([[1, 2]])[0]
    with pytest.raises(pliant.Error, match="has no 'input_ids'"):
        Packed([{"ids": [1]}])[0]


@pytest.mark.parametrize("style", ["transformers", "flash_attn", "torchtitan", "sdpa"])
def test_a_batch_of_every_style_carries_its_position(style):
    sampler = pliant.PackedBatchSampler(pliant.Config.parse(toml()), lengths_of(), 0, 1)
    loader = torch.utils.data.DataLoader(Packed(Tokens(lengths_of())), batch_sampler=sampler,
                                         collate_fn=lambda samples: collate(samples, style=style))
    iterator = iter(pliant.PackedBatchSampler(sampler.config, lengths_of(), 0, 1))
    for batch, _ in zip(loader, iterator):
        assert sampler.state_after(batch) == iterator.state_dict()


def test_a_micro_batch_on_another_device_keeps_its_position():
    class Items(list):
        position = (0, 1, 0, False)

    made = collate(Packed(Tokens([3])).__getitems__(Items([0])), style="flash_attn")
    moved = made.to("meta", non_blocking=True)
    assert moved.position == made.position == (0, 1, 0, False) and moved["max_seqlen"] == 3
    assert all(moved[name].is_meta for name in ("input_ids", "labels", "position_ids", "cu_seqlens"))


@pytest.mark.parametrize("style", ["transformers", "flash_attn", "torchtitan", "sdpa"])
def test_a_pinned_batch_keeps_its_position(style, monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: pinned.append(1) or tensor.clone())  # no GPU is needed
    iterator = iter(pliant.PackedBatchSampler(pliant.Config.parse(toml()), lengths_of(), 0, 1))
    items = next(iterator)
    made = collate(Packed(Tokens(lengths_of())).__getitems__(items), style=style)
    again = pin_memory(pickle.loads(pickle.dumps(made)))  # as of a worker
    assert iterator._sampler.state_after(again) == iterator.state_dict()
    batches = [batch[0] if style == "torchtitan" else batch for batch in (made, again)]
    assert isinstance(batches[1], MicroBatchDict) and batches[1].position == items.position
    same(*reversed(batches))
    same(batches[0].pin_memory(), batches[0])
    assert batches[0].pin_memory().position == items.position and len(pinned) > 2
    assert dict(again[0] if style == "torchtitan" else again).keys() == {name for name, _ in batches[1].items()}


def test_a_batch_without_position_is_pinned_without(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
    made = collate(SAMPLES)
    again = pin_memory(made)
    assert again.position is None
    same(again, made)


def test_values_that_are_no_rows_of_tokens_are_not_cut():
    sampler = pliant.PackedBatchSampler(pliant.Config.parse(toml(CUT)), [60] * 20, 0, 1)
    item = next(item for micro in sampler for item in micro if item.piece[0] > 0)
    first, count, _ = item.piece
    sample = {"input_ids": torch.arange(60), "mask": list(range(60)), "number": torch.tensor(7), "names": {str(i): i for i in range(60)},
              "text": "a" * 60}
    cut = Packed([sample] * 20)[item]
    assert cut["input_ids"].tolist() == cut["mask"] == list(range(first, first + count))
    assert all(cut[name] is sample[name] for name in ("number", "names", "text"))


def test_a_data_set_that_gives_too_few_samples_is_refused():
    class Short(Tokens):
        def __getitems__(self, items):
            return [self[item] for item in items[1:]]

    with pytest.raises(pliant.Error, match="1 samples for 2 items"):
        Packed(Short([3, 3])).__getitems__([0, 1])


def test_a_worker_that_is_killed_ends_the_loop_and_the_sampler_goes_on(run_python):
    run_python(
        """
        import os, sys
        sys.path.insert(0, os.environ["PLIANT_TEST_HELP"])
        import pliant, torch
        from conftest import lengths_of
        from torch_collate_test import Tokens, loader_of

        def sampler():
            return pliant.PackedBatchSampler(pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"]), lengths_of(), 0, 1)

        class Killed(Tokens):
            def __getitem__(self, i):
                if torch.utils.data.get_worker_info() is not None and i == killed:
                    os.kill(os.getpid(), 9)
                return super().__getitem__(i)

        killed = int(list(sampler())[6][0])
        given, seen = sampler(), []
        try:
            for batch in loader_of(given, 1, Killed(lengths_of())):
                seen.append(batch)
            sys.exit("the loop has not ended")
        except (RuntimeError, OSError, EOFError):  # of torch, by what it was at
            pass
        assert len(seen) <= 6, len(seen)
        again = sampler()
        again.load_state_dict(given.state_after(seen[-1]) if seen else sampler().state_dict())
        count = len(again)
        assert len(list(loader_of(again))) == count - len(seen)
        os._exit(0)  # without the loader's farewell to a worker that is gone
        """
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_process_may_end_in_mid_iteration(run_python, workers):
    done = run_python(
        f"""
        import os, sys
        sys.path.insert(0, os.environ["PLIANT_TEST_HELP"])
        import pliant
        from conftest import lengths_of
        from torch_collate_test import loader_of

        sampler = pliant.PackedBatchSampler(pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"]), lengths_of(), 0, 1)
        iterator = iter(loader_of(sampler, {workers}))
        batch = next(iterator)
        """
    )
    assert done.stderr == ""


class Own(Exception):
    pass


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_data_set_raises_comes_out_and_the_sampler_goes_on(workers):
    class Broken(Tokens):
        is_broken = True

        def __getitem__(self, i):
            if self.is_broken and i == wrong:
                raise Own(f"sequence {i}")
            return super().__getitem__(i)

    sampler = pliant.PackedBatchSampler(pliant.Config.parse(toml()), lengths_of(), 0, 1)
    whole = [[int(item) for item in micro] for micro in sampler]
    wrong = whole[4][0]
    sampler.set_epoch(0)
    given = []
    with pytest.raises(Own, match=f"sequence {wrong}"):
        for batch in loader_of(sampler, workers, Broken(lengths_of())):
            given.append(batch)
    assert len(given) == 4
    again = pliant.PackedBatchSampler(sampler.config, lengths_of(), 0, 1)
    again.load_state_dict(sampler.state_after(given[-1]))
    assert [[int(item) for item in micro] for micro in again] == whole[4:]
