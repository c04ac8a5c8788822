"""Lightning sets the epoch through `.sampler`, takes len() micro-batches an epoch, and goes on from its checkpoint."""
import lightning
import pytest
import torch
from conftest import Tokens, ids, loader_of, sampler_of
from lightning.pytorch.callbacks import ModelCheckpoint
from torchdata.stateful_dataloader import StatefulDataLoader

import pliant
from pliant.lightning import PackCallback
from pliant.torch import LRScheduler


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Embedding(64, 64)
        self.seen = []

    def training_step(self, batch, number):
        self.seen.append((self.current_epoch, batch["input_ids"].tolist()))
        self.position = batch.position
        return torch.nn.functional.cross_entropy(self.table(batch["input_ids"][0][:-1]), batch["labels"][0][1:], ignore_index=-100,
                                                 reduction="sum")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def trainer_of(folder, devices=1, **keywords):
    return lightning.Trainer(accelerator="cpu", devices=devices, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False, default_root_dir=folder, **keywords)


def expected(epochs):
    sampler = sampler_of()
    return [(epoch, batch) for epoch in range(epochs) for batch in ids(loader_of(sampler))]


def test_each_epoch_has_its_batches_and_the_epoch_is_set_by_the_sampler_of_the_sampler(tmp_path, monkeypatch):
    calls = []
    set_epoch = pliant.PackedBatchSampler.set_epoch
    monkeypatch.setattr(pliant.PackedBatchSampler, "set_epoch", lambda self, epoch: calls.append(epoch) or set_epoch(self, epoch))
    module = Module()
    trainer_of(tmp_path, max_epochs=3).fit(module, loader_of(sampler_of()))
    assert module.seen == expected(3)
    assert sorted(set(calls)) == [0, 1, 2]


def test_a_plain_loader_goes_on_from_the_state_of_a_batch(tmp_path):
    whole, steps = expected(1), 7
    module = Module()
    trainer = trainer_of(tmp_path, max_steps=steps)
    trainer.fit(module, loader_of(sampler_of()))
    assert module.seen == whole[:steps]
    sampler = sampler_of()
    sampler.load_state_dict(sampler.state_after(module))
    again = Module()
    trainer_of(tmp_path, max_epochs=1).fit(again, loader_of(sampler))
    assert again.seen == whole[steps:]


class Saves(lightning.Callback):
    def __init__(self, file, step):
        self.file, self.step = file, step

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step == self.step:  # at the end of the step
            self.step = None
            trainer.save_checkpoint(self.file)


def test_a_stateful_loader_goes_on_from_the_checkpoint_of_lightning(tmp_path):
    whole = expected(2)
    trainer_of(tmp_path, max_epochs=1, callbacks=[Saves(tmp_path / "at7.ckpt", 7)]).fit(Module(), loader_of(sampler_of(), StatefulDataLoader))
    again = Module()
    trainer_of(tmp_path, max_epochs=2).fit(again, loader_of(sampler_of(), StatefulDataLoader), ckpt_path=str(tmp_path / "at7.ckpt"),
                                           weights_only=False)
    assert again.seen == whole[7:]


def test_a_stateful_loader_over_a_whole_job_goes_on_in_its_second_epoch(tmp_path):
    whole = [batch for _, batch in expected(3)]
    first = len([batch for epoch, batch in expected(1)])
    at = first + 7
    sampler = sampler_of()
    trainer_of(tmp_path, max_steps=at, callbacks=[Saves(tmp_path / "at.ckpt", at)]).fit(Module(), loader_of(sampler.whole_job(), StatefulDataLoader))
    again = Module()
    trainer_of(tmp_path, max_epochs=1).fit(again, loader_of(sampler_of().whole_job(), StatefulDataLoader), ckpt_path=str(tmp_path / "at.ckpt"),
                                           weights_only=False)
    assert [batch for _, batch in again.seen] == whole[at:]


def test_a_whole_job_is_one_epoch(tmp_path):
    sampler = sampler_of()
    module = Module()
    trainer_of(tmp_path, max_epochs=1).fit(module, loader_of(sampler.whole_job()))
    assert [batch for _, batch in module.seen] == [batch for _, batch in expected(3)]


class Scheduled(Module):
    def __init__(self, sampler):
        super().__init__()
        self.sampler = sampler
        self.rates = []

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        self.scheduler = LRScheduler(optimizer, pliant.LearningRate(self.sampler.config))
        return optimizer

    def training_step(self, batch, number):
        if batch.position[2] == 0:  # the last micro-batch of a step
            self.scheduler.batch(self.sampler.size_of(batch))
        return super().training_step(batch, number)

    def on_train_batch_end(self, outputs, batch, number):
        if batch.position[2] == 0:
            self.scheduler.step()

    def on_before_optimizer_step(self, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])


def test_a_scheduler_that_the_module_keeps_follows_each_step(tmp_path):
    sampler = sampler_of()
    module = Scheduled(sampler)
    trainer_of(tmp_path, max_epochs=1, accumulate_grad_batches=sampler.micro_batches_per_step).fit(module, loader_of(sampler))
    batches = sampler_of().batches
    sizes = [batches.batch(0, index).size for index in range(batches.epoch(0).batches)]
    assert module.rates == pytest.approx([0.05 * size.tokens / 500 for size in sizes]) and module.scheduler.steps == len(sizes)


def test_more_than_one_device_needs_use_distributed_sampler_false():
    from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
    from lightning.pytorch.trainer.states import RunningStage
    from lightning.pytorch.utilities.data import _update_dataloader

    loader = loader_of(sampler_of(0, 2))
    with pytest.raises(TypeError, match="use_distributed_sampler=False"):
        _update_dataloader(loader, DistributedSamplerWrapper(loader.sampler, num_replicas=2, rank=0), mode=RunningStage.TRAINING)


class Rated(Module):
    def __init__(self):
        super().__init__()
        self.rates = []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def on_before_optimizer_step(self, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])


def fit(folder, callbacks=(), **more):
    packs, module = PackCallback(sampler_of()), Rated()
    trainer_of(folder, callbacks=[packs, *callbacks], **packs.trainer_options).fit(module, packs.loader(Tokens()), **more)
    return [batch for _, batch in module.seen], module.rates


def test_a_callback_keeps_rate_and_position_in_the_checkpoints_of_lightning(tmp_path):
    step = len(expected(1)) // sampler_of().micro_batches_per_step + 2  # in the second epoch of the job
    seen, rates = fit(tmp_path, [Saves(tmp_path / "at.ckpt", step)])
    assert seen == [batch for _, batch in expected(3)] and len(set(rates)) > 1
    rest, later = fit(tmp_path, ckpt_path=str(tmp_path / "at.ckpt"), weights_only=False)
    assert rest == seen[step * sampler_of().micro_batches_per_step :] and later == pytest.approx(rates[step:])


RANKS = """
    import json, os
    from conftest import Tokens, sampler_of, sequences
    from lightning_test import Rated, Saves, trainer_of
    from pliant.lightning import PackCallback

    class Noted(Rated):
        found = []

        def training_step(self, batch, number):
            self.found += [[batch.position[0], number] for number in sequences([batch])]
            return super().training_step(batch, number)

    packs, module, ranks = PackCallback(sampler_of(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))), Noted(), int(os.environ["WORLD_SIZE"])
    trainer = trainer_of(".", ranks, strategy="ddp", callbacks=[packs, Saves("at.ckpt", {step})], max_steps={step}, **packs.trainer_options)
    trainer.fit(module, packs.loader(Tokens()), ckpt_path={resume}, weights_only=False)
    print(json.dumps([trainer.world_size, module.rates, module.found]))
"""
EVERY = sorted([epoch, number] for epoch in range(3) for number in range(len(Tokens.lengths)))  # of the job


def test_two_ranks_see_every_sequence_once_an_epoch(tmp_path, run_ranks):
    _, rates = fit(tmp_path)
    ranks = run_ranks(RANKS.format(step=-1, resume=None), 2)
    assert sorted(found for rank in ranks for found in rank[2]) == EVERY
    for world_size, theirs, _ in ranks:
        assert world_size == 2 and theirs == pytest.approx(rates)


# Of a step, 1, 2 and 3 ranks have 6, 3 and 2 micro-batches each: what Lightning counts is another number after the same step.
@pytest.mark.parametrize(("step", "before", "after"), [(5, 2, 1), (5, 1, 2), (13, 1, 2), (6, 2, 3)])
def test_a_checkpoint_goes_on_at_another_number_of_ranks(tmp_path, run_ranks, step, before, after):
    _, rates = fit(tmp_path)
    saved = run_ranks(RANKS.format(step=step, resume=None), before)
    loaded = run_ranks(RANKS.format(step=-1, resume="'at.ckpt'"), after)
    for _, theirs, _ in saved:
        assert theirs == pytest.approx(rates[:step])
    for world_size, theirs, _ in loaded:
        assert world_size == after and theirs == pytest.approx(rates[step:])
    assert sorted(found for rank in [*saved, *loaded] for found in rank[2]) == EVERY


class SavesWithin(lightning.Callback):
    def __init__(self, file):
        self.file = file

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step == 1 and module.position[2] == 2:
            trainer.save_checkpoint(self.file)


def test_a_checkpoint_that_was_written_within_a_step_begins_it_again(tmp_path):
    seen, rates = fit(tmp_path, [SavesWithin(tmp_path / "within.ckpt")])
    rest, later = fit(tmp_path, ckpt_path=str(tmp_path / "within.ckpt"), weights_only=False)
    assert rest == seen[sampler_of().micro_batches_per_step :] and later == pytest.approx(rates[1:])


class Validated(Rated):
    def validation_step(self, batch, number):
        self.log("val_loss", self.table(batch).square().mean())


def test_checkpoints_of_a_validation_within_steps_go_on(tmp_path):
    """They are written by the number of micro-batches, wherever a step ends."""

    def fitted(*callbacks, **more):
        packs, module, values = PackCallback(sampler_of()), Validated(), torch.utils.data.DataLoader([torch.arange(3)])
        trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
                                    callbacks=[packs, *callbacks], val_check_interval=10, **packs.trainer_options)
        trainer.fit(module, packs.loader(Tokens()), values, **more)
        return module.table.weight.detach()

    whole = fitted(ModelCheckpoint(tmp_path / "kept", monitor="val_loss", save_top_k=-1, save_last=False))
    kept = sorted((tmp_path / "kept").iterdir())
    assert len(kept) > 2
    for file in kept[:3]:
        assert torch.equal(fitted(ModelCheckpoint(tmp_path / "again"), ckpt_path=str(file), weights_only=False), whole)


def test_a_loader_beside_that_of_the_callback_is_refused(tmp_path):
    packs = PackCallback(sampler_of())
    with pytest.raises(pliant.Error, match="a dict .*no position"):
        trainer_of(tmp_path, callbacks=[packs], **packs.trainer_options).fit(Rated(), {"packs": packs.loader(Tokens()), "other": packs.loader(Tokens())})


def test_a_callback_refuses_what_lightning_would_compute_otherwise(tmp_path):
    packs = PackCallback(sampler_of())
    with pytest.raises(pliant.Error, match="accumulate_grad_batches=1"):
        trainer_of(tmp_path, callbacks=[packs], max_epochs=1).fit(Rated(), packs.loader(Tokens()))


@pytest.mark.parametrize("limit", [{"limit_train_batches": 8}, {"limit_train_batches": 0.1}, {"overfit_batches": 7}, {"fast_dev_run": True}])
def test_a_trainer_that_ends_within_a_step_is_refused(tmp_path, limit):
    packs, module = PackCallback(sampler_of()), Rated()
    with pytest.raises(pliant.Error, match="a step has 6: .*limit_train_batches.* a multiple of 6, or"):
        trainer_of(tmp_path, callbacks=[packs], **packs.trainer_options, **limit).fit(module, packs.loader(Tokens()))
    assert module.seen == []


@pytest.mark.parametrize("limit", [{"limit_train_batches": 12}, {"max_steps": 2}])
def test_a_trainer_may_end_behind_a_step(tmp_path, limit):
    seen, rates = fit(tmp_path / "whole")
    packs, module = PackCallback(sampler_of()), Rated()
    trainer_of(tmp_path, callbacks=[packs], **packs.trainer_options, **limit).fit(module, packs.loader(Tokens()))
    assert [batch for _, batch in module.seen] == seen[:12] and module.rates == pytest.approx(rates[:2])
