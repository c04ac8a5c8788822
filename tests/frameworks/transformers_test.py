"""Transformers' Trainer sees every epoch whole, in an order of its own, and goes on from its checkpoint exactly."""
import importlib.util
import json
import os
import pathlib

import pytest
import torch
import transformers

import pliant
from pliant.torch import Packed, collate

SOURCE = pathlib.Path(__file__).parents[2] / "samples/transformers_trainer/train.py"
SPEC = importlib.util.spec_from_file_location("transformers_trainer", SOURCE)
sample = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(sample)


def train(folder, steps, resume=None, dropout=0.0, **more):
    """What a Trainer has seen, and its weights."""
    trainer = sample.trainer_of(str(folder), steps, **more)
    trainer.model.model.layers[0].self_attn.attention_dropout = dropout
    seen, rates = [], []
    step = trainer.training_step

    def noted(model, inputs, *others):
        seen.append(inputs["input_ids"].tolist())
        loss = step(model, inputs, *others)
        if inputs.position[2] == 0:
            rates.append(trainer.lr_scheduler.get_last_lr())
        return loss

    trainer.training_step = noted
    trainer.train(resume_from_checkpoint=resume)
    return trainer, seen, rates, torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    sampler = sample.trainer_of(str(tmp_path_factory.mktemp("probe")), 1).sampler
    each, epochs = sampler.micro_batches_per_step, []
    for _ in range(3):
        epochs.append([batch["input_ids"].tolist() for batch in
                       torch.utils.data.DataLoader(Packed(sample.Sentences()), batch_sampler=sampler, collate_fn=collate)])
    assert len(epochs[0]) < len(epochs[1])  # a Trainer that knew the first only would leave the rest of the second
    steps = len(epochs[0]) // each
    until = (len(epochs[0]) + len(epochs[1])) // each + 1
    _, seen, rates, weights = train(tmp_path_factory.mktemp("whole"), until)
    return steps, each, until, sum(epochs, []), seen, rates, weights


def test_every_epoch_is_seen_whole_and_has_an_order_of_its_own(whole):
    steps, each, until, expected, seen, rates, _ = whole
    assert seen == expected[: until * each] and len(rates) == until
    assert seen[: steps * each] != seen[steps * each : 2 * steps * each]
    assert len({rate for (rate,) in rates}) > 1


@pytest.mark.parametrize("where", ["within", "at the end of", "in the second"])
def test_a_trainer_goes_on_from_its_checkpoint_exactly(whole, tmp_path, where):
    steps, each, until, _, seen, rates, weights = whole
    first = {"within": steps - 1, "at the end of": steps, "in the second": steps + 1}[where]
    begun = train(tmp_path, first)
    assert begun[1] == seen[: first * each]
    checkpoint = tmp_path / f"checkpoint-{first}"
    assert json.loads((checkpoint / "sampler.json").read_text())["pliant"].count("\n") == 2
    trainer, rest, later, end = train(tmp_path, until, checkpoint)
    assert trainer.state.global_step == until
    assert rest == seen[first * each :] and later == rates[first:]
    assert torch.equal(end, weights)


@pytest.mark.parametrize("workers", [0, 2])
def test_dropout_goes_on_from_a_checkpoint_as_it_would_have(tmp_path, workers):
    more = {"dropout": 0.5, "dataloader_num_workers": workers}
    whole = train(tmp_path, 4, **more)[3]
    assert torch.equal(train(tmp_path / "again", 4, tmp_path / "checkpoint-2", **more)[3], whole)


class Alone(torch.nn.Module):
    """A model that gives the mean of a micro-batch."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(sample.SYMBOLS, sample.SYMBOLS)

    def forward(self, input_ids, labels, position_ids, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k):
        scores = self.table(input_ids)
        return {"loss": torch.nn.functional.cross_entropy(scores[0, :-1], labels[0, 1:]), "logits": scores}


def test_a_model_that_does_not_take_the_labels_of_a_step_is_refused(tmp_path):
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, report_to="none", use_cpu=True, remove_unused_columns=False)
    sampler = sample.trainer_of(str(tmp_path), 1).sampler
    trainer = sample.PackTrainer(Alone(), arguments, train_dataset=sample.Sentences(), sampler=sampler)
    with pytest.raises(pliant.Error, match="mean of each micro-batch.*num_items_in_batch"):
        trainer.train()


@pytest.mark.parametrize(("settings", "names"), [({"lr_scheduler_type": "cosine"}, "lr_scheduler_type='cosine'"), ({"warmup_steps": 2}, "warmup_steps=2")])
def test_schedules_of_trainer_are_refused_where_the_rate_follows_the_batches(tmp_path, settings, names):
    with pytest.raises(pliant.Error, match=names):
        sample.trainer_of(str(tmp_path), 1, **settings).train()


def test_the_newest_checkpoint_is_found_and_nothing_is_skipped_twice(whole, tmp_path):
    _, each, _, _, seen, _, _ = whole
    train(tmp_path, 2)
    trainer, rest, _, _ = train(tmp_path, 4, True, ignore_data_skip=False)
    assert trainer.state.global_step == 4 and rest == seen[2 * each : 4 * each]


def test_an_epoch_of_trainer_is_the_whole_job(whole, tmp_path):
    _, each, until, expected, _, _, _ = whole
    trainer, seen, _, _ = train(tmp_path, -1)
    job = trainer.sampler.config.run.epochs
    assert seen[: len(expected)] == expected and trainer.state.global_step * each == len(seen)
    assert len(seen) == sum(trainer.sampler.batches.epoch(epoch).batches for epoch in range(job)) * each > until * each


def test_a_checkpoint_without_a_position_is_refused(tmp_path):
    train(tmp_path, 1)
    (tmp_path / "checkpoint-1/sampler.json").unlink()
    with pytest.raises(pliant.Error, match="checkpoint-1 has no sampler.json"):
        train(tmp_path, 2, str(tmp_path / "checkpoint-1"))


def test_two_ranks_see_what_one_sees_and_go_on_from_its_checkpoint(whole, tmp_path, run_ranks):
    _, each, _, _, seen, rates, _ = whole
    begun = train(tmp_path, 2)[3]
    alone = train(tmp_path / "alone", 4)[3]
    os.environ["SAMPLE"], os.environ["FOLDER"] = str(SOURCE.parent), str(tmp_path)
    ranks = run_ranks(
        """
        import json, os, sys
        sys.path.insert(0, os.environ["SAMPLE"])
        import train
        trainer = train.trainer_of(os.environ["FOLDER"], 4, ddp_backend="gloo")
        seen, rates = [], []
        step = trainer.training_step
        def noted(model, inputs, *others):
            seen.append([inputs["position_ids"][0].tolist(), inputs["input_ids"][0].tolist()])
            loss = step(model, inputs, *others)
            if inputs.position[2] == 0:
                rates.append(trainer.lr_scheduler.get_last_lr()[0])
            return loss
        trainer.training_step = noted
        trainer.train(resume_from_checkpoint=os.environ["FOLDER"] + "/checkpoint-2")
        weights = [number for weight in trainer.model.parameters() for number in weight.detach().flatten().tolist()]
        print(json.dumps([trainer.state.global_step, trainer.args.world_size, seen, rates, weights]))
        """,
        2,
    )
    assert [rank[:2] for rank in ranks] == [[4, 2], [4, 2]]
    tokens = [token for rank in ranks for _, flat in rank[2] for token in flat]
    theirs = [token for batch in seen[2 * each : 4 * each] for token in batch[0]]
    assert sorted(tokens) == sorted(theirs + [0] * (len(tokens) - len(theirs)))  # padding of empty micro-batches
    for rank in ranks:
        assert rank[3] == pytest.approx([rate for (rate,) in rates[2:4]])
    assert ranks[0][4] == ranks[1][4]
    trained = torch.tensor(ranks[0][4])
    assert (trained - alone).norm() < 1e-4 * (begun - alone).norm()  # up to the order of additions, and others than at the checkpoint
