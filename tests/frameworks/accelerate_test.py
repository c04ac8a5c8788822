"""Accelerate gives every sequence once, whatever it wraps, and its schedulers step once a step."""
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import prepare_data_loader
from accelerate.state import PartialState
from accelerate.utils import DataLoaderConfiguration
from conftest import Tokens, ids, loader_of, sampler_of, sequences

import pliant
from pliant.accelerate import PackLoader
from pliant.torch import LRScheduler

EVERY = list(range(len(Tokens.lengths)))


def prepared(loader, rank, world_size, **keywords):
    """As Accelerator.prepare does on a rank of so many."""
    return prepare_data_loader(loader, torch.device("cpu"), num_processes=world_size, process_index=rank, put_on_device=True, **keywords)


@pytest.fixture(autouse=True)
def state():
    PartialState(cpu=True)


@pytest.mark.parametrize("even_batches", [True, False])
@pytest.mark.parametrize("world_size", [2, 5])
def test_a_loader_that_is_prepared_loses_and_repeats_nothing(world_size, even_batches):
    found = []
    for rank in range(world_size):
        loader = prepared(loader_of(sampler_of(rank, world_size)), rank, world_size, even_batches=even_batches)
        expected = ids(loader_of(sampler_of(rank, world_size)))
        assert len(loader) == len(expected)
        batches = list(loader)
        assert ids(batches) == expected
        found += sequences(batches)
    assert sorted(found) == EVERY


def test_a_loader_that_is_prepared_twice_loses_nothing():
    found = []
    for rank in range(2):
        loader = prepared(prepared(loader_of(sampler_of(rank, 2)), rank, 2), rank, 2)
        found += sequences(loader)
    assert sorted(found) == EVERY
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(accelerator.prepare(loader_of(sampler_of())))
    assert sorted(sequences(loader)) == EVERY


def test_other_ranks_than_those_of_the_sampler_are_refused():
    for own, theirs in (((0, 1), (0, 2)), ((0, 2), (1, 2))):
        loader = prepared(loader_of(sampler_of(*own)), *theirs)
        for call in (len, list):
            with pytest.raises(pliant.Error, match=f"BatchSamplerShard .* rank={theirs[0]} and world_size={theirs[1]}"):
                call(loader)


def test_a_dispatcher_is_refused():
    loader = prepared(loader_of(sampler_of(0, 2)), 0, 2, dispatch_batches=True)
    with pytest.raises(pliant.Error, match="dispatch_batches=False"):
        list(loader)


def test_split_batches_is_refused():
    with pytest.raises((TypeError, ValueError)):  # by Accelerate, which splits batches of a fixed size alone
        prepared(loader_of(sampler_of(0, 2)), 0, 2, split_batches=True)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_loaded_state_goes_on_in_its_epoch_though_the_loader_counts_from_0(world_size):
    sampler = sampler_of(0, world_size)
    expected = [ids(loader_of(sampler)) for _ in range(3)]
    sampler.set_epoch(1)
    for number, batch in enumerate(loader_of(sampler), 1):
        if number == 4:
            state = sampler.state_after(batch)
            break
    again = sampler_of(0, world_size)
    again.load_state_dict(state)
    loader = prepared(loader_of(again), 0, world_size)
    batches = list(loader)
    assert ids(batches) == expected[1][4:] and ids(loader) == expected[2]
    assert again.state_after(batches[-1]) == sampler.state_after(list(loader_of(_at(sampler, 1)))[-1])


def _at(sampler, epoch):
    sampler.set_epoch(epoch)
    return sampler


def test_batches_are_skipped_once():
    expected = ids(loader_of(sampler_of(0, 2)))
    loader = prepared(loader_of(sampler_of(0, 2)), 0, 2)
    assert ids(skip_first_batches(loader, 3)) == expected[3:]
    sampler = sampler_of(0, 2)
    iterator = iter(sampler)
    for _ in range(3):
        next(iterator)
    again = sampler_of(0, 2)
    again.load_state_dict(iterator.state_dict())
    with pytest.raises(pliant.Error, match="load a state or skip"):
        list(skip_first_batches(prepared(loader_of(again), 0, 2), 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_of_accelerate_gives_every_sequence_once(workers):
    found = []
    for rank in range(2):
        loader = prepared(loader_of(sampler_of(rank, 2), num_workers=workers), rank, 2, use_stateful_dataloader=True)
        found += sequences(loader)
    assert sorted(found) == EVERY


def test_two_processes_see_every_sequence_once_and_step_the_rate_once(run_ranks):
    ranks = run_ranks(
        """
        import json
        import torch
        from accelerate import Accelerator
        from conftest import loader_of, sampler_of, sequences
        import pliant
        from pliant.torch import LRScheduler

        accelerator = Accelerator(cpu=True)
        sampler = sampler_of(accelerator.process_index, accelerator.num_processes)
        weight = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(weight.parameters(), lr=0.05)
        inner = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        scheduler = LRScheduler(optimizer, pliant.LearningRate(sampler.config), inner)
        model, optimizer, loader = accelerator.prepare(weight, optimizer, loader_of(sampler))
        wrapped = accelerator.prepare_scheduler(scheduler)
        found, steps, rates = [], 0, []
        for batch in loader:
            found += sequences([batch])
            if batch.position[2] != 0:
                continue
            size = sampler.size_of(batch)
            scheduler.batch(size)
            rates.append(scheduler.get_last_lr()[0] * 500 / size.tokens)
            accelerator.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            wrapped.step()
            optimizer.zero_grad()
            steps += 1
        print(json.dumps([accelerator.num_processes, found, steps, scheduler.steps, rates]))
        """,
        2,
    )
    assert sorted(ranks[0][1] + ranks[1][1]) == EVERY
    for processes, _, steps, counted, rates in ranks:
        assert processes == 2 and counted == steps > 1
        assert rates == pytest.approx([0.05 * 0.5**step for step in range(steps)])  # inner's, once a step


def test_what_accelerate_checkpoints_goes_on(tmp_path):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))

    def made():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.05)
        scheduler = LRScheduler(optimizer, pliant.LearningRate(sampler_of().config), torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
        accelerator.register_for_checkpointing(scheduler)
        return optimizer, scheduler

    size = pliant.BatchSize(rows=12, sequences=30, tokens=500, loss_tokens=500)
    optimizer, scheduler = made()
    assert accelerator.prepare(scheduler) is scheduler
    scheduler.batch(size)
    optimizer.step()
    scheduler.step()
    accelerator.save_state(tmp_path)
    accelerator._custom_objects.clear()
    _, again = made()
    accelerator.load_state(tmp_path)
    again.batch(size)
    assert again.steps == 1 and again.get_last_lr() == pytest.approx([0.025])
    accelerator._custom_objects.clear()


def test_a_loader_of_packs_is_in_the_checkpoints_of_accelerate(tmp_path):
    expected = [ids(loader_of(sampler)) for sampler in [sampler_of()] for _ in range(2)]

    def made():
        accelerator = Accelerator(cpu=True)
        accelerator._custom_objects.clear()
        return accelerator, PackLoader(accelerator, sampler_of(), Tokens())

    accelerator, loader = made()
    iterator = iter(loader)
    assert ids([next(iterator) for _ in range(7)]) == expected[0][:7]  # one of the second step, which begins again
    accelerator.save_state(tmp_path)
    accelerator, again = made()
    accelerator.load_state(tmp_path)
    assert ids(again) == expected[0][6:] and ids(again) == expected[1]
    accelerator._custom_objects.clear()


def test_what_a_loader_of_packs_would_lose_under_accelerate_is_refused_by_name():
    with pytest.raises(pliant.Error, match="process 0 of 1 for Accelerate, and the sampler is of rank 1 of 2"):
        PackLoader(Accelerator(cpu=True), sampler_of(1, 2), Tokens())
    for name in ("dispatch_batches", "split_batches"):
        with pytest.raises(pliant.Error, match=name):
            PackLoader(Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**{name: True})), sampler_of(), Tokens())


def test_two_processes_with_a_loader_of_packs_see_every_sequence_once(run_ranks):
    ranks = run_ranks(
        """
        import json
        from accelerate import Accelerator
        from conftest import Tokens, sampler_of, sequences
        from pliant.accelerate import PackLoader

        accelerator = Accelerator(cpu=True)
        loader = PackLoader(accelerator, sampler_of(accelerator.process_index, accelerator.num_processes), Tokens())
        print(json.dumps([sequences(loader), loader.state_dict()]))
        """,
        2,
    )
    assert sorted(ranks[0][0] + ranks[1][0]) == EVERY and ranks[0][1] == ranks[1][1]


JOB = """
import json, pathlib, torch
from accelerate import Accelerator
from conftest import Tokens, sampler_of, sequences
import pliant
from pliant.accelerate import PackLoader
from pliant.torch import LRScheduler

accelerator = Accelerator(cpu=True)
sampler = sampler_of(accelerator.process_index, accelerator.num_processes)
model, optimizer = accelerator.prepare(*(lambda made: (made, torch.optim.SGD(made.parameters(), lr=0.05)))(torch.nn.Linear(1, 1)))
scheduler = LRScheduler(optimizer, pliant.LearningRate(sampler.config), torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
loader = PackLoader(accelerator, sampler, Tokens())
accelerator.register_for_checkpointing(scheduler)
found, rates = [], []


def train(steps):
    for batch in loader:
        found.extend(sequences([batch]))
        if batch.position[2] != 0:
            continue
        scheduler.batch(sampler.size_of(batch))
        rates.append(scheduler.get_last_lr()[0])
        accelerator.backward(model(torch.ones(1, 1)).sum())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if len(rates) == steps:
            return


def weights():
    return [one.tolist() for one in accelerator.unwrap_model(model).state_dict().values()]
"""
SAVES = "train({steps}); accelerator.save_state('saved'); print(json.dumps([found, rates, weights()]))"
LOADS = "accelerator.load_state('saved'); begun = weights(); train(None); print(json.dumps([found, rates, begun]))"


def test_what_two_processes_have_saved_goes_on_at_any_number_of_them(run_ranks):
    """Sequences of the epoch, rates of its steps, and the weights in between."""
    steps, alone = 3, run_ranks(JOB + "train(None); print(json.dumps([found, rates]))", 1)[0]
    saved = run_ranks(JOB + SAVES.format(steps=steps), 2)
    seen = [number for found, _, _ in saved for number in found]
    assert 0 < len(seen) < len(EVERY) and saved[0][1] == pytest.approx(alone[1][:steps])
    for world_size in (1, 2, 3):
        loaded = run_ranks(JOB + LOADS, world_size)
        assert len(loaded) == world_size
        assert sorted(seen + [number for found, _, _ in loaded for number in found]) == EVERY
        for _, rates, begun in loaded:
            assert rates == pytest.approx(alone[1][steps:]) and begun == saved[0][2]


COUNTED = """
import json, torch
from accelerate import Accelerator
from conftest import Tokens, sampler_of
from pliant.accelerate import PackLoader

torch.manual_seed(1)
sampler = sampler_of(*(lambda of: (of.process_index, of.num_processes))(Accelerator(cpu=True)))
each = sampler.micro_batches_per_step
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=each)
table = torch.nn.Embedding(64, 64)
model, optimizer = accelerator.prepare(table, torch.optim.SGD(table.parameters(), lr=0.5))
loader = PackLoader(accelerator, sampler, Tokens())


def train(until):
    for batch in loader:
        with accelerator.accumulate(model):
            loss_sum = torch.nn.functional.cross_entropy(model(batch["input_ids"])[0, :-1], batch["labels"][0, 1:], reduction="sum")
            accelerator.backward(loss_sum * each * accelerator.num_processes / sampler.size_of(batch).loss_tokens)
            assert accelerator.sync_gradients == (batch.position[2] == 0)
            optimizer.step()
            optimizer.zero_grad()
        if batch.position[1:3] == until:
            break
"""


def test_accumulate_counts_the_micro_batches_of_a_step_at_another_number_of_processes(run_ranks):
    """Of a step 1, 2 and 4 processes have 6, 3 and 2 micro-batches each; the checkpoint is written within the third step."""
    ends = "; print(json.dumps(table.weight.flatten().tolist()))"
    alone = torch.tensor(run_ranks(COUNTED + "train(None)" + ends, 1)[0])
    run_ranks(COUNTED + "train((2, 1)); accelerator.save_state('saved')" + ends, 2)
    found = torch.tensor(run_ranks(COUNTED + "accelerator.load_state('saved'); train(None)" + ends, 4)[0])
    assert (found - alone).abs().max() < 1e-5
