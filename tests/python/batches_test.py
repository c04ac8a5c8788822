"""batches are arrays that live as long as they are held, the same wherever a saved position is loaded."""
import gc

import numpy
import pytest
from conftest import CUT, lengths_of, toml

LENGTHS = numpy.array(lengths_of(), dtype="int32")


@pytest.fixture
def job(pliant, config):
    return config, pliant.plan(config), LENGTHS


def test_the_epochs_hold_each_sequence_once(pliant, job):
    batches = pliant.Batches(*job)
    seen = {}
    for batch in batches:
        seen.setdefault(batch.epoch, []).append(batch.ids)
        assert batch.offsets[0] == 0 and batch.offsets[-1] == len(batch.ids) and len(batch.offsets) == len(batch) + 1
        rows = [batch.row(row) for row in range(len(batch))]
        assert (numpy.concatenate(rows) == batch.ids).all() and (batch[-1] == rows[-1]).all()
        assert all(LENGTHS[row].sum() <= 64 for row in rows)
        assert batch.size.tokens == LENGTHS[batch.ids].sum()
        assert batch.first_tokens is batch.token_counts is batch.is_last is None
    assert sorted(seen) == [0, 1, 2]
    for ids in seen.values():
        assert sorted(numpy.concatenate(ids)) == list(range(400))
    summary = batches.epoch(1)
    assert (summary.sequences, summary.tokens, summary.dropped) == (400, LENGTHS.sum(), {})
    assert batches.expected_steps() == batches.job_length().steps == batches.next_step
    assert batches.has_step(0) and not batches.has_step(batches.next_step)
    assert batches.dropped(0).size == 0 and batches.truncated(0).size == 0


def test_pieces_of_cut_sequences_make_them_up(pliant):
    config = pliant.Config.parse(toml(CUT))
    used = numpy.zeros(400, dtype="int64")
    ends = numpy.zeros(400, dtype="int64")
    batches = pliant.Batches(config, pliant.plan(config), LENGTHS)
    for batch in [batches.batch(0, index) for index in range(batches.epoch(0).batches)]:
        numpy.add.at(used, batch.ids, batch.token_counts)
        numpy.add.at(ends, batch.ids, batch.is_last)
        assert (batch.first_tokens + batch.token_counts <= LENGTHS[batch.ids]).all()
        for row in range(len(batch)):
            assert batch.token_counts[batch.offsets[row] : batch.offsets[row + 1]].sum() <= 48
    assert (used == LENGTHS).all() and (ends == 1).all()


def test_arrays_outlive_the_batch_and_cannot_be_written(pliant, job):
    batches = pliant.Batches(*job)
    batch = next(batches)
    ids, expected = batch.ids, batch.ids.copy()
    with pytest.raises(ValueError):
        ids[0] = 3
    del batch, batches
    gc.collect()
    junk = [numpy.full(len(ids), 7) for _ in range(50)]
    assert (ids == expected).all() and junk


def test_a_saved_position_goes_on_with_the_same_batches(pliant, job):
    one = pliant.Batches(*job)
    for _ in range(one.epoch(0).batches + 2):
        next(one)
    state = one.save()
    assert state == one.save() and len(state) < 1024
    opened = pliant.Batches(*job, state=state)
    loaded = pliant.Batches(*job)
    loaded.load(state)
    rest = [batch.digest for batch in one]
    assert rest and [batch.digest for batch in opened] == rest == [batch.digest for batch in loaded]


def test_a_position_of_other_batches_is_refused_and_changes_nothing(pliant, job):
    config, plan, lengths = job
    batches = pliant.Batches(*job)
    next(batches)
    state = batches.save()
    others = {
        "seed": pliant.Batches(config.with_sets(["run.seed=8"]), plan, lengths),
        "changed": pliant.Batches(config, plan, lengths[:-1]),
        "sampler": pliant.Batches(pliant.Config.parse(toml(CUT)), plan, lengths),
    }
    for word, other in others.items():
        with pytest.raises(pliant.Error, match=word) as caught:
            other.load(state)
        assert caught.value.status == pliant.Status.FAILED_PRECONDITION
        assert other.next_step == 0
    for cut in (b"", state[:-1], state[:50], state + b"x", b"\xff" * 100):
        with pytest.raises(pliant.Error) as caught:
            batches.load(cut)
        assert caught.value.status == pliant.Status.DATA_LOSS
        with pytest.raises(pliant.Error):
            pliant.Batches(*job, state=cut)
    assert batches.next_step == 1


def test_padded_micro_batches_hold_each_row_once(pliant, job):
    batch = next(pliant.Batches(*job))
    parts = [part for rank in range(5)
             for part in pliant.micro_batches(batch, rank=rank, world_size=5, micro_batch=2, granule=2, multiple=8)]
    assert sorted(row for part in parts for row in part.rows) == list(range(len(batch)))
    for part in parts:
        assert (part.lengths % 8 == 0).all() and part.tokens == LENGTHS[part.ids].sum() and part.pieces is None
    shapes = [pliant.micro_batches(batch, rank=rank, world_size=5, micro_batch=2, granule=2, one_shape=True) for rank in range(5)]
    assert len({len(shape) for shape in shapes}) == 1
    assert len({(len(part.lengths), int(part.lengths[0])) for shape in shapes for part in shape}) == 1


def test_costs_of_rows_are_those_of_their_lengths(pliant, job):
    batch = next(pliant.Batches(*job))
    assert list(pliant.row_costs(batch)) == [LENGTHS[batch.row(row)].sum() for row in range(len(batch))]
    squares = [int((LENGTHS[batch.row(row)].astype("int64") ** 2).sum()) for row in range(len(batch))]
    assert list(pliant.row_costs(batch, 0, 1)) == squares


def test_a_rate_follows_the_batch_and_its_state_is_kept(pliant, job):
    config = job[0]
    rate = pliant.LearningRate(config)
    size = pliant.BatchSize(rows=12, sequences=40, tokens=250, loss_tokens=250)
    assert rate.at(0, size) == pytest.approx(0.005) and rate.at(0, size, 0.1) == pytest.approx(0.05)
    scaling = rate.scaling(0, size)
    assert (scaling.scheduled_learning_rate, scaling.learning_rate_factor, scaling.epsilon) == (0.01, 0.5, 1)
    rate.commit(0, size)
    with pytest.raises(pliant.Error):
        rate.commit(0, size)
    again = pliant.LearningRate(config)
    again.load(rate.save())
    again.commit(1, size)
    with pytest.raises(pliant.Error):
        again.load(b"nothing")
    assert not rate.wants_gradient_norms and not rate.wants_job_length
