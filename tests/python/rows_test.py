"""rows of a packer and costs of a program are shared out, recorded and resumed like those of any sampler."""
import array
import pickle

import numpy
import pytest
from conftest import lengths_of, toml

ROWS = '[sampler]\nuse = "rows"\n[sampler.rows]\norder = "random"\n'
BALANCED = '[balancer]\nuse = "lpt"\n'
LENGTHS = numpy.array(lengths_of(), dtype="int32")


def packed(lengths=LENGTHS, budget=64):
    """First fit, the longest first."""
    rows, left = [], []
    for i in numpy.argsort(-lengths, kind="stable"):
        at = next((row for row, room in enumerate(left) if room >= lengths[i]), None)
        if at is None:
            at = len(rows)
            rows.append([])
            left.append(budget)
        rows[at].append(int(i))
        left[at] -= lengths[i]
    offsets = numpy.cumsum([0] + [len(row) for row in rows])
    return offsets, numpy.array([i for row in rows for i in row])


@pytest.fixture
def rows_config(pliant):
    return pliant.Config.parse(toml(ROWS))


@pytest.fixture
def batches_of(pliant, rows_config):
    def made(rows, config=rows_config, **more):
        return pliant.Batches(config, pliant.plan(config), LENGTHS, rows=rows, **more)

    return made


def rows_of(batches, epoch=0):
    all_rows = []
    for index in range(batches.epoch(epoch).batches):
        batch = batches.batch(epoch, index)
        all_rows += [tuple(batch.row(row)) for row in range(len(batch))]
    return all_rows


def test_an_epoch_is_the_rows_that_were_given(batches_of):
    offsets, ids = packed()
    batches = batches_of((offsets, ids))
    given = [tuple(ids[offsets[i] : offsets[i + 1]]) for i in range(len(offsets) - 1)]
    assert sorted(rows_of(batches)) == sorted(given)
    assert rows_of(batches) != given and rows_of(batches, 1) != rows_of(batches)
    assert batches.epoch(0).tokens == LENGTHS.sum() and batches.epoch(0).dropped == {}


def test_rows_are_any_arrays_of_integers(batches_of):
    offsets, ids = packed()
    expected = batches_of((offsets, ids)).fingerprint
    for kind in (list, lambda values: array.array("i", values), lambda values: numpy.array(values, dtype="uint16")):
        assert batches_of((kind(offsets.tolist()), kind(ids.tolist()))).fingerprint == expected


def test_rows_from_files_are_rows_from_memory(pliant, batches_of, tmp_path):
    offsets, ids = packed()
    numpy.save(tmp_path / "offsets.npy", offsets)
    numpy.save(tmp_path / "ids.npy", ids.astype("int32"))
    (tmp_path / "pliant.toml").write_text(toml(ROWS + 'offsets = "offsets.npy"\nids = "ids.npy"\n'))
    config = pliant.Config.open(tmp_path / "pliant.toml")
    from_files = pliant.Batches(config, pliant.plan(config), LENGTHS)
    assert from_files.fingerprint == batches_of((offsets, ids)).fingerprint


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_a_sampler_goes_on_from_a_state_of_another_world_size(pliant, rows_config, world_size):
    rows = packed()
    sampler = pliant.PackedBatchSampler(rows_config, LENGTHS, 0, 4, rows=rows)
    micro_batches = iter(sampler)
    for _ in range(3 * sampler.micro_batches_per_step):
        next(micro_batches)
    state = sampler.state_dict()
    left = []
    for rank in range(world_size):
        resumed = pliant.PackedBatchSampler(rows_config, LENGTHS, rank, world_size, rows=rows)
        resumed.load_state_dict(state)
        left += [int(item) for micro in pickle.loads(pickle.dumps(resumed)) for item in micro]
    whole = pliant.Batches(rows_config, pliant.plan(rows_config), LENGTHS, rows=rows)
    expected = [whole.batch(0, index).ids for index in range(3, whole.epoch(0).batches)]
    assert sorted(left) == sorted(numpy.concatenate(expected))


def test_a_state_of_other_rows_is_refused(pliant, rows_config, batches_of):
    offsets, ids = packed()
    state = pliant.PackedBatchSampler(rows_config, LENGTHS, 0, 2, rows=(offsets, ids)).state_dict()
    other = ids.copy()
    other[[0, 1]] = other[[1, 0]]
    assert batches_of((offsets, other)).fingerprint != batches_of((offsets, ids)).fingerprint
    sampler = pliant.PackedBatchSampler(rows_config, LENGTHS, 0, 2, rows=(offsets, other))
    with pytest.raises(pliant.Error, match="with its rows has changed since the position was saved"):
        sampler.load_state_dict(state)


@pytest.mark.parametrize(
    "offsets, ids, words",
    [
        ([0, 2], [0, 400], "id 1 is 400, in row 0; the data set has 400 sequences"),
        ([0, 1, 2], [7, 7], "sequence 7 is id 0, in row 0, and id 1, in row 1"),
        ([0, 2, 1, 2], [0, 1], "offset 2 is 1, below offset 1"),
        ([1, 2], [0, 1], "offset 0 is 1; the first offset must be 0"),
        ([0, 1], [0, 1], "the last offset, 1 of 2, is 1, but the ids of rows has 2 ids"),
        ([0, 2], [0, 1], "398 of 400 sequences are in no row"),
        ([], [], "None stands for no rows"),
    ],
)
def test_rows_that_are_none_are_refused_by_their_place(pliant, batches_of, offsets, ids, words):
    with pytest.raises(pliant.Error, match=words):
        batches_of((offsets, ids))


def test_rows_of_floats_and_rows_for_another_sampler_are_refused(pliant, config, batches_of):
    offsets, ids = packed()
    with pytest.raises(TypeError, match="the ids of rows has values of float64; integers are needed"):
        batches_of((offsets, ids.astype("float64")))
    with pytest.raises(pliant.Error, match="sampler 'next_fit' makes its own"):
        batches_of((offsets, ids), config=config)
    with pytest.raises(pliant.Error, match="there are no rows"):
        batches_of(None)


def test_costs_of_sequences_and_of_rows_take_the_place_of_rates(pliant, batches_of):
    offsets, ids = packed()
    costs = numpy.arange(400)
    batch = batches_of((offsets, ids), costs=costs).batch(0, 0)
    assert pliant.row_costs(batch).tolist() == [costs[batch.row(row)].sum() for row in range(len(batch))]
    of_rows = {tuple(ids[offsets[i] : offsets[i + 1]]): i / 8 for i in range(len(offsets) - 1)}
    batch = batches_of((offsets, ids), row_costs=numpy.array(list(of_rows.values()), dtype="float32")).batch(0, 0)
    expected = numpy.array([of_rows[tuple(batch.row(row))] for row in range(len(batch))])
    assert (pliant.row_costs(batch) * expected.max() == expected * pliant.row_costs(batch).max()).all()
    for wrong, words in ((costs[:-1], "399 costs for 400 sequences"), ([float("nan")] * 400, "cost 0 is nan"), (-costs, "cost 1 is -1")):
        with pytest.raises(pliant.Error, match=words):
            batches_of((offsets, ids), costs=wrong)
    with pytest.raises(pliant.Error, match="costs for"):
        batches_of((offsets, ids), row_costs=costs)


def test_a_balanced_sampler_shares_rows_out_by_the_costs_of_rows(pliant):
    config = pliant.Config.parse(toml(ROWS, more=BALANCED))
    offsets, ids = packed()
    costs = numpy.ones(len(offsets) - 1)
    costs[0] = 1000
    samplers = [pliant.PackedBatchSampler(config, LENGTHS, rank, 3, rows=(offsets, ids), row_costs=costs) for rank in range(3)]
    batches = pliant.Batches(config, pliant.plan(config), LENGTHS, rows=(offsets, ids), row_costs=costs)
    used = []
    for index in range(batches.epoch(0).batches):
        batch = batches.batch(0, index)
        assignment = samplers[0].assignment(batch)
        assert all(sampler.assignment(batch) == assignment for sampler in samplers)
        used += batch.ids.tolist()
    assert sorted(used) == sorted(int(item) for sampler in samplers for micro in sampler for item in micro)
