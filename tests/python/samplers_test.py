"""a sampler gives each rank equally many micro-batches, and goes on from a state at any rank and world size."""
import json
import os
import pickle
import re
import subprocess

import numpy
import pytest
from conftest import CUT, lengths_of, toml

LENGTHS = numpy.array(lengths_of(), dtype="int32")


@pytest.fixture
def sampler_of(pliant, config):
    def made(rank=0, world_size=3, lengths=LENGTHS, config=config):
        return pliant.PackedBatchSampler(config, lengths, rank, world_size)

    return made


def plain(micro_batches):
    return [[int(item) for item in micro] for micro in micro_batches]


def of_all_ranks(sampler_of, world_size, **keywords):
    return [plain(sampler_of(rank, world_size, **keywords)) for rank in range(world_size)]


def steps_of(pliant, config, epoch=0):
    """The ids of each step, by the batches themselves."""
    batches = pliant.Batches(config, pliant.plan(config), LENGTHS)
    return [sorted(batches.batch(epoch, index).ids) for index in range(batches.epoch(epoch).batches)]


@pytest.mark.parametrize("sizes_are_known", [False, True])
def test_lengths_that_are_changed_after_are_noticed_before_the_next_epoch(pliant, sampler_of, sizes_are_known):
    lengths = LENGTHS.copy()
    sampler, expected = sampler_of(lengths=lengths), [plain(sampler) for sampler in 3 * [sampler_of()]]
    for epoch in (1, 2) if sizes_are_known else ():
        sampler.state_at(epoch, 1)
    iterator = iter(sampler)
    begun = [[int(item) for item in next(iterator)]]
    lengths[3] += 1
    assert begun + plain(iterator) == expected[0]  # of the plan that was made before
    for _ in range(2):
        with pytest.raises(pliant.Error, match="lengths was changed after") as caught:
            next(iter(sampler))
        assert caught.value.status == pliant.Status.FAILED_PRECONDITION
    with pytest.raises(pliant.Error):
        next(iter(pickle.loads(pickle.dumps(sampler))))  # which has the changed ones, and a position among the others
    lengths[3] -= 1
    assert plain(sampler) == expected[1] and plain(sampler) == expected[2]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 6])
def test_all_ranks_together_have_each_batch_once_in_equally_many_micro_batches(pliant, config, sampler_of, world_size):
    ranks = of_all_ranks(sampler_of, world_size)
    sampler = sampler_of(0, world_size)
    assert {len(rank) for rank in ranks} == {len(sampler)}
    each = sampler.micro_batches_per_step
    steps = [sorted(i for rank in ranks for micro in rank[first : first + each] for i in micro) for first in range(0, len(sampler), each)]
    assert steps == steps_of(pliant, config)


def test_a_rank_that_has_no_rows_left_gives_empty_micro_batches(sampler_of):
    # 12 rows by twos over 5 ranks: one has two micro-batches, the others one.
    ranks = of_all_ranks(sampler_of, 5)
    assert all(ranks[0][:2]) and ranks[4][0] and ranks[4][1] == []


def test_an_item_is_an_index_that_carries_row_and_piece(pliant, sampler_of):
    config = pliant.Config.parse(toml(CUT))
    used = numpy.zeros(len(LENGTHS), dtype="int64")
    for rank in range(3):
        for micro in sampler_of(rank, config=config):
            assert type(micro) is pliant.ItemList
            for item in micro:
                assert LENGTHS[item] == LENGTHS[int(item)] and isinstance(item, int) and 0 <= item.row < 12
                first, count, last = item.piece
                used[item] += count
                assert last == (first + count == LENGTHS[item])
    assert (used == LENGTHS).all()
    whole = next(iter(sampler_of()))[0]
    assert whole.piece is None and whole.row == 0


def test_items_pickle_with_what_they_carry(pliant, sampler_of):
    micro = next(iter(sampler_of(config=pliant.Config.parse(toml(CUT)))))
    again = pickle.loads(pickle.dumps(micro))
    assert again == micro and again.position == micro.position and type(again) is pliant.ItemList
    assert [(item.row, item.piece, item.position) for item in again] == [(item.row, item.piece, item.position) for item in micro]


def test_each_iteration_is_the_next_epoch_and_set_epoch_chooses_one(sampler_of):
    sampler = sampler_of()
    epochs = [plain(sampler) for _ in range(5)]  # more than [run] says: the loop decides
    assert len({json.dumps(epoch) for epoch in epochs}) == 5
    sampler.set_epoch(1)
    assert plain(sampler) == epochs[1] and plain(sampler) == epochs[2]
    sampler.sampler.set_epoch(0)
    assert plain(sampler) == epochs[0]


def test_an_iterator_that_is_never_used_takes_no_epoch_and_no_state(sampler_of):
    sampler = sampler_of()
    expected = [plain(sampler_of()), plain(sampler)]
    assert expected[0] == expected[1]
    sampler.set_epoch(0)
    begun = iter(sampler)
    next(begun)
    state = sampler.state_dict()
    loaded = sampler_of()
    loaded.load_state_dict(state)
    unused = iter(loaded), iter(loaded)  # as a loader with workers does
    assert unused[0].state_dict() == state
    assert plain(unused[1]) == expected[0][1:] and plain(loaded) == plain(sampler)


def test_a_loop_that_stops_after_len_without_asking_for_more_has_a_second_epoch(sampler_of):
    sampler, other = sampler_of(), sampler_of()
    expected = [plain(other), plain(other)]
    for epoch in range(2):
        count = len(sampler)
        iterator = iter(sampler)
        assert plain(next(iterator) for _ in range(count)) == expected[epoch]


def test_a_state_is_the_same_bytes_on_every_rank(sampler_of):
    iterators = [iter(sampler_of(rank)) for rank in range(3)]
    for _ in range(15):
        for iterator in iterators:
            next(iterator)
        assert len({pickle.dumps(iterator.state_dict()) for iterator in iterators}) == 1
    assert len(pickle.dumps(iterators[0].state_dict())) <= 1024


def test_a_sampler_goes_on_behind_every_micro_batch_at_the_same_world_size(sampler_of):
    sampler = sampler_of(1)
    whole = plain(sampler) + plain(sampler)
    given = sampler_of(1)
    count = 0
    for _ in range(2):
        for _ in given:
            count += 1
            loaded = sampler_of(1)
            loaded.load_state_dict(given.state_dict())
            rest = plain(loaded)
            if count < len(whole):
                rest += plain(loaded) if len(rest) + count < len(whole) else []
                assert rest[: len(whole) - count] == whole[count:]


@pytest.mark.parametrize("world_size", [1, 2, 4, 6])
def test_a_state_is_loaded_at_any_world_size_repeatedly(pliant, config, sampler_of, world_size):
    given = sampler_of(2)
    iterator = iter(given)
    done = 3 * given.micro_batches_per_step
    for _ in range(done):
        next(iterator)
    state = given.state_dict()
    expected = steps_of(pliant, config)[3:]
    for _ in range(2):
        ranks = [sampler_of(rank, world_size) for rank in range(world_size)]
        for sampler in ranks:
            sampler.load_state_dict(state)
        state = ranks[0].state_dict()  # saved again before anything was asked for
        each = ranks[0].micro_batches_per_step
        parts = [plain(sampler) for sampler in ranks]
        steps = [sorted(i for part in parts for micro in part[first : first + each] for i in micro) for first in range(0, len(parts[0]), each)]
        assert steps == expected


def test_a_step_that_was_not_whole_begins_again_at_another_world_size(pliant, config, sampler_of):
    given = sampler_of(0, 1)
    assert given.micro_batches_per_step == 6
    iterator = iter(given)
    for _ in range(6 + 2):
        next(iterator)
    ranks = [sampler_of(rank, 2) for rank in range(2)]
    for sampler in ranks:
        sampler.load_state_dict(given.state_dict())
    first = [next(iter(sampler)) for sampler in ranks]
    assert {item.row for micro in first for item in micro} == {0, 1, 6, 7} and first[0].position[1] == 1


def test_a_state_at_the_end_of_an_epoch_begins_the_next(sampler_of):
    given = sampler_of()
    first, second = plain(given), plain(sampler_after(given, sampler_of))
    assert plain(given) == second != first


def sampler_after(given, sampler_of):
    loaded = sampler_of()
    loaded.load_state_dict(given.state_dict())
    return loaded


def test_an_iterator_is_loaded_as_a_stateful_loader_does(sampler_of):
    given = sampler_of()
    iterator = iter(given)
    for _ in range(7):
        next(iterator)
    state = iterator.state_dict()
    rest = plain(iterator)
    second = plain(given)
    loaded = sampler_of()
    again = iter(loaded)
    again.load_state_dict(state)
    assert plain(again) == rest and plain(loaded) == second
    ended = iter(sampler_of())
    ended.load_state_dict(iterator.state_dict())
    assert plain(ended) == []


def test_state_after_a_batch_is_the_state_when_it_was_given(sampler_of):
    sampler = sampler_of(1)
    iterator = iter(sampler)
    seen = [(micro, iterator.state_dict()) for micro in iterator]
    for micro, state in seen:
        assert sampler.state_after(micro) == state
        if micro:
            assert sampler.state_after(list(micro)) == state


def test_a_batch_without_position_is_refused(pliant, sampler_of):
    for batch in ([], [1, 2], None, {"input_ids": 3}):
        with pytest.raises(pliant.Error, match="no position"):
            sampler_of().state_after(batch)


def test_a_state_of_other_batches_is_refused_and_changes_nothing(pliant, config, sampler_of):
    given = sampler_of()
    iterator = iter(given)
    next(iterator)
    state = given.state_dict()
    others = {
        "seed": sampler_of(config=config.with_sets(["run.seed=8"])),
        "changed": sampler_of(lengths=LENGTHS[:-1]),
        "sampler": sampler_of(config=pliant.Config.parse(toml(CUT))),
    }
    for begun in (False, True):
        for word, other in others.items():
            before = plain(sampler_of(lengths=other._lengths, config=other.config)) if begun else None
            if begun:
                other.set_epoch(0)
            with pytest.raises(pliant.Error, match=word) as caught:
                other.load_state_dict(state)
            assert caught.value.status == pliant.Status.FAILED_PRECONDITION
            if begun:
                assert plain(other) == before


def test_a_state_that_was_cut_or_changed_is_refused(pliant, sampler_of):
    sampler = sampler_of()
    state = sampler.state_dict()
    (text,) = state.values()
    for wrong in ({}, None, [], {"pliant": 3}, {"other": text}, {"pliant": text[:-2]}, {"pliant": text[: len(text) // 2]},
                  {"pliant": text.replace('"epoch": 0', '"epoch": 1')}, {"pliant": ""}):
        with pytest.raises(pliant.Error) as caught:
            sampler.load_state_dict(wrong)
        assert caught.value.status == pliant.Status.DATA_LOSS
    later = text.replace('"version": 1', '"version": 2').split("\n")[0]
    import zlib

    with pytest.raises(pliant.Error) as caught:
        sampler.load_state_dict({"pliant": f"{later}\n{zlib.crc32(later.encode()):08x}\n"})
    assert caught.value.status == pliant.Status.UNIMPLEMENTED


def test_a_pickled_sampler_goes_on_where_the_original_was(sampler_of):
    sampler = sampler_of(1)
    iterator = iter(sampler)
    for _ in range(5):
        next(iterator)
    again = pickle.loads(pickle.dumps(sampler))
    assert again.state_dict() == sampler.state_dict()
    assert plain(again) == plain(iterator) and plain(again) == plain(sampler)


def test_a_world_size_that_is_not_valid_is_refused(pliant, sampler_of):
    with pytest.raises(pliant.Error) as caught:
        sampler_of(0, 7)
    assert caught.value.status == pliant.Status.INCOMPATIBLE_WORLD_SIZE


def test_lengths_of_a_wrong_type_are_refused_at_once(pliant, config):
    with pytest.raises(TypeError, match="lengths has values of float64"):
        pliant.PackedBatchSampler(config, LENGTHS.astype("float64"), 0, 1)
    with pytest.raises(TypeError, match="loss_tokens is a str"):
        pliant.PackedBatchSampler(config, LENGTHS, 0, 1, loss_tokens="x")


def test_a_balancer_shares_the_rows_out(pliant, sampler_of):
    config = pliant.Config.parse(toml(more='[balancer]\nuse = "lpt"\n'))
    ranks = of_all_ranks(sampler_of, 3, config=config)
    assert {len(rank) for rank in ranks} == {len(sampler_of(0, 3, config=config))}
    assert sorted(i for rank in ranks for micro in rank for i in micro) == list(range(400))
    assert ranks != of_all_ranks(sampler_of, 3)


ALONE = LENGTHS.copy()
ALONE[200] = 60  # in a row of its own, and with other rows beside it dearer than they are together
UNEVEN = "[balancer]\nuse = \"{0}\"\ncost_per_token = 1\ncost_per_square = 1000\n[balancer.{0}]\nequal_counts = {1}\n"


@pytest.mark.parametrize("balancer", ["lpt", "karmarkar_karp", "cost_sort", "round_robin", "contiguous"])
def test_a_loop_that_takes_len_micro_batches_has_every_row_whatever_balancer_shares_them_out(pliant, sampler_of, balancer):
    config = pliant.Config.parse(toml(more=f'[balancer]\nuse = "{balancer}"\ncost_per_square = 1000\n'))
    used = []
    for rank in range(2):
        sampler = sampler_of(rank, 2, ALONE, config)
        count, iterator = len(sampler), iter(sampler)
        assert count % sampler.micro_batches_per_step == 0
        for number in range(count):
            micro = next(iterator)
            used += plain([micro])[0]
            assert (micro.position[2] == 0) == ((number + 1) % sampler.micro_batches_per_step == 0)
    assert sorted(used) == list(range(400))


@pytest.mark.parametrize("balancer", ["lpt", "karmarkar_karp"])
def test_a_balancer_that_gives_ranks_other_counts_is_refused_before_the_job_begins(pliant, sampler_of, balancer):
    assert len(sampler_of(0, 2, ALONE, pliant.Config.parse(toml(more=UNEVEN.format(balancer, "true")))))
    uneven = pliant.Config.parse(toml(more=UNEVEN.format(balancer, "false")))
    with pytest.raises(pliant.Error, match=rf"3 on every rank: set equal_counts = true in \[balancer.{balancer}\]") as caught:
        sampler_of(0, 2, ALONE, uneven)
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION
    assert len(sampler_of(0, 1, ALONE, uneven))  # one rank has all


class Uneven:
    """A balancer that shows its counts late: all rows to rank 0."""

    name, rates = "mine", (1, 0)

    def assign(self, costs, **sharing):
        import pliant

        return pliant.share_out(len(costs), **dict(sharing, granule=len(costs)))


def test_a_balancer_whose_counts_are_other_ones_later_is_refused_then(pliant, sampler_of):
    sampler = sampler_of(0, 2, config=pliant.Config.parse(toml(more='[balancer]\nuse = "lpt"\n')))
    iterator = iter(sampler)
    for _ in range(sampler.micro_batches_per_step):
        next(iterator)
    sampler._balancer = Uneven()
    with pytest.raises(pliant.Error, match="'mine' gives rank 0 6 micro-batches"):
        next(iterator)


def committed(pliant, config, world_size):
    """A run whose every step is committed as the samplers of its ranks share it out."""
    samplers = [pliant.PackedBatchSampler(config, LENGTHS, rank, world_size) for rank in range(world_size)]
    rate, ledger = pliant.LearningRate(config), pliant.Ledger.begin(config, samplers[0].plan, samplers[0].batches)
    ledger.start_generation(world_size, "start")
    rows = {}
    for step_of_ranks in zip(*samplers):
        for rank, micro in enumerate(step_of_ranks):
            rows.setdefault(rank, []).extend((item.row, item.row + 1) for item in micro)
        micro = step_of_ranks[0]
        if micro.position[2] != 0:
            continue
        batch = samplers[0].batch_of(micro)
        assignment = samplers[0].assignment(batch)
        for rank in range(world_size):
            own = {row for first, count in assignment.of(rank) for row in range(first, first + count)}
            assert {row for row, _ in rows[rank]} == own
        rows = {}
        ledger.commit(batch, assignment, 0.5, rate.at(ledger.steps, batch.size))
        rate.commit(ledger.steps - 1, batch.size)
    return ledger.directory


@pytest.mark.parametrize("more", ["", '[balancer]\nuse = "lpt"\n', '[balancer]\nuse = "cost_sort"\n',
                                  '[coordinator]\nuse = "zero3"\n', '[coordinator]\nuse = "zero3"\n[balancer]\nuse = "contiguous"\n'])
@pytest.mark.parametrize("deterministic", ["true", "false"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_an_audit_derives_the_rows_that_samplers_gave(pliant, tmp_path, more, deterministic, world_size):
    text = toml(run=f"epochs = 1\nseed = 7\ndeterministic = {deterministic}\n", more=more)
    config = pliant.Config.parse(text.replace("micro_batch_sizes = [2]", "micro_batch_sizes = [2, 4]"), sets=[f"run.log_dir={tmp_path}/runs"])
    assert pliant.plan(config, 2).micro_batch > pliant.plan(config).granule
    directory = committed(pliant, config, world_size)
    done = subprocess.run([f"{os.environ['PLIANT_TEST_BIN']}/pliant", "audit", directory], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0 and re.search(r"rows of ranks derived +at (\d+) of \1 steps", done.stdout), done.stdout


def test_in_deterministic_mode_a_micro_batch_is_a_granule(pliant, sampler_of):
    text = toml(run="epochs = 1\nseed = 7\ndeterministic = true\n").replace("micro_batch_sizes = [2]", "micro_batch_sizes = [2, 4]")
    config = pliant.Config.parse(text)
    sampler = sampler_of(0, 2, config=config)
    assert sampler.plan.micro_batch > sampler.plan.granule == 2
    assert all(len({item.row for item in micro}) <= 2 for micro in sampler)
    assert len({len(sampler_of(rank, 2, config=config)) for rank in range(2)}) == 1 and sampler.micro_batches_per_step == 3


class Counting:
    """Batches that know which epochs were planned since they were made: one is held at a time."""

    def __init__(self, batches):
        self.inner, self.planned = batches, []

    def of(self, epoch):
        if self.planned[-1:] != [epoch]:
            self.planned.append(epoch)

    def __getattr__(self, name):
        assert name in ("epoch", "batch", "rows", "save", "load"), f"{name} plans epochs that are not counted here"

        def call(*arguments):
            if name in ("epoch", "batch", "rows"):
                self.of(arguments[0])
            return getattr(self.inner, name)(*arguments)

        return call


def counted(sampler):
    sampler._engine = Counting(sampler.batches)
    return sampler._engine.planned


def test_a_job_whose_ledger_ends_in_a_later_epoch_plans_that_one_alone(pliant, config, sampler_of, tmp_path):
    config = config.with_sets([f"run.log_dir={tmp_path}/runs", "run.epochs=12"])
    sampler = sampler_of(config=config)
    ledger = pliant.Ledger.begin(config, sampler.plan, sampler.batches)
    ledger.start_generation(3, "start")
    assert ledger.position == (0, 0)
    sizes = [sampler.batches.epoch(epoch).batches for epoch in range(12)]
    expected = {}
    for epoch, size in enumerate(sizes[:11]):
        for index in range(2 if epoch == 10 else size):
            batch = sampler.batches.batch(epoch, index)
            expected[ledger.steps] = epoch, index
            ledger.commit(batch, sampler.assignment(batch), 0.5, 0.01)
            assert ledger.position == (epoch, index + 1)
        if epoch == 9:
            ledger.keep_snapshot(b"state")
    directory = ledger.directory
    del ledger

    for restores, position, planned in ((False, (10, 2), [10]), (True, (9, sizes[9]), [9, 10])):
        again = sampler_of(0, 2, config=config)
        ledger = pliant.Ledger.open(directory, config, again.plan, again.batches)
        if restores:
            ledger.restore()
        seen = counted(again)
        assert ledger.position == position
        again.load_state_dict(again.state_at(*ledger.position))
        micro = next(iter(again.whole_job()))
        assert seen == planned and micro.position[:2] == ((10, 2) if position[0] == 10 else (10, 0))
        if not restores:
            assert again.batch_of(micro).digest == sampler.batches.at_step(ledger.steps).digest
            assert again.state_at(*position) == again.state_before(sampler.batches.at_step(ledger.steps))
        del ledger


def test_a_place_that_no_epoch_has_is_refused(pliant, sampler_of):
    sampler = sampler_of()
    batches = sampler.batches.epoch(1).batches
    sampler.load_state_dict(sampler.state_at(1, batches))
    assert next(iter(sampler)).position[0] == 2
    for place in ((-1, 0), (0, -1), (1, batches + 1), (-1, 3)):
        with pytest.raises(pliant.Error) as caught:
            sampler.state_at(*place)
        assert caught.value.status == pliant.Status.OUT_OF_RANGE


def test_the_length_of_a_whole_job_plans_each_epoch_once(sampler_of):
    sampler = sampler_of()
    planned = counted(sampler)
    job = sampler.whole_job()
    count = len(job)
    assert planned == [0, 1, 2]
    assert len(job) == len(sampler.whole_job()) == count and len(BatchSamplerShard(job, 3, 0)) == count and len(sampler) and planned == [0, 1, 2]
    assert len(plain(job)) == count and planned == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("world_size", [1, 3, 5])
def test_an_iterator_over_a_whole_job_is_loaded_in_a_later_epoch_at_any_world_size(pliant, config, sampler_of, world_size):
    steps = [step for epoch in range(3) for step in steps_of(pliant, config, epoch)]
    first = sampler_of(1)
    epoch = len(first)
    each = first.micro_batches_per_step
    iterator = iter(first.whole_job())
    assert iterator.state_dict() == first.state_dict()
    for given in range(1, len(steps) * each + 1):
        next(iterator)
        if given % each or given // each not in (1, epoch // each, epoch // each + 2, len(steps)):
            continue
        state = iterator.state_dict()
        assert state == first.whole_job().state_dict()
        parts = []
        for rank in range(world_size):
            sampler = sampler_of(rank, world_size)
            again = iter(sampler.whole_job())
            again.load_state_dict(state)
            assert again.state_dict() == sampler.state_dict()
            assert world_size != 3 or again.state_dict() == state
            parts.append(plain(again))
        count = sampler.micro_batches_per_step
        left = [sorted(i for part in parts for micro in part[at : at + count] for i in micro) for at in range(0, len(parts[0]), count)]
        assert left == steps[given // each :]
    assert next(iterator, None) is None


def test_a_step_can_be_committed_from_what_a_micro_batch_knows(pliant, config, sampler_of, tmp_path):
    config = config.with_sets([f"run.log_dir={tmp_path}/runs", "run.epochs=1"])
    sampler = sampler_of(0, 3, config=config)
    batches = pliant.Batches(config, sampler.plan, LENGTHS)
    ledger = pliant.Ledger.begin(config, sampler.plan, batches)
    ledger.start_generation(3, "start")
    each = sampler.micro_batches_per_step
    for number, micro in enumerate(sampler, 1):
        if number % each == 0:
            batch = sampler.batch_of(micro)
            assert sampler.size_of(micro) == batch.size
            ledger.commit(batch, sampler.assignment(batch), 0.5, 0.01)
            break
    directory, steps = ledger.directory, ledger.steps
    del ledger
    # The group begins again at another world size: where its ledger ends.
    ledger = pliant.Ledger.open(directory, config, sampler.plan, batches)
    ledger.start_generation(1, "restarted")
    again = sampler_of(0, 1, config=config)
    again.load_state_dict(again.state_before(batches.at_step(ledger.steps)))
    used = []
    for number, micro in enumerate(again, 1):
        used += micro
        if number % again.micro_batches_per_step == 0:
            ledger.commit(again.batch_of(micro), again.assignment(again.batch_of(micro)), 0.5, 0.01)
    assert steps == 1 and sorted(used) == sorted(i for step in steps_of(pliant, config)[1:] for i in step)
    assert ledger.steps == batches.expected_steps() == len(sampler_of(0, 3, config=config)) // each


@pytest.mark.parametrize("more", ["micro_batch_sizes = [2, 4]", "micro_batch_sizes = [2, 6]", '[balancer]\nuse = "lpt"\n'])
def test_a_step_that_was_not_whole_begins_again_with_another_micro_batch_or_balancer(pliant, config, sampler_of, more):
    text = toml(more=more) if "balancer" in more else toml().replace("micro_batch_sizes = [2]", more)
    other = pliant.Config.parse(text)
    each = sampler_of(0, 2).micro_batches_per_step
    expected = steps_of(pliant, config)
    for given in range(1, 2 * each):
        iterators = [iter(sampler_of(rank, 2)) for rank in range(2)]
        for _ in range(given):
            for iterator in iterators:
                next(iterator)
        ranks = [sampler_of(rank, 2, config=other) for rank in range(2)]
        for sampler in ranks:
            sampler.load_state_dict(iterators[0].state_dict())
        left = sorted(i for sampler in ranks for micro in sampler for i in micro)
        assert left == sorted(i for step in expected[given // each :] for i in step)


def test_an_interrupt_while_an_iterator_begins_changes_nothing(pliant, sampler_of, monkeypatch):
    given = iter(sampler_of(0, 1))
    for _ in range(8):  # a step and two micro-batches
        next(given)
    loaded = sampler_of(0, 1)
    loaded.load_state_dict(given.state_dict())
    deal = loaded._deal

    def interrupted(*arguments):
        monkeypatch.setattr(loaded, "_deal", deal)
        raise KeyboardInterrupt

    monkeypatch.setattr(loaded, "_deal", interrupted)
    iterator = iter(loaded)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert iterator.state_dict() == loaded.state_dict() == given.state_dict()
    assert plain(iterator) == plain(given)


def test_set_epoch_moves_the_state_of_a_loop_that_was_left(sampler_of):
    sampler = sampler_of()
    next(iter(sampler))
    sampler.set_epoch(1)
    assert plain(sampler_after(sampler, sampler_of)) == plain(sampler)


def test_a_loaded_state_that_set_epoch_drops_is_warned_of(sampler_of, caplog):
    given = sampler_of()
    next(iter(given))
    for epoch, warnings in ((0, 0), (1, 1)):
        loaded = sampler_of()
        loaded.load_state_dict(given.state_dict())
        caplog.clear()
        loaded.set_epoch(epoch)
        assert len(caplog.records) == warnings


class BatchSamplerShard:
    """Deals batches as Accelerate's does: one of another size than batch_size does not count."""

    def __init__(self, batch_sampler, num_processes, process_index):
        self.batch_sampler, self.num_processes, self.process_index = batch_sampler, num_processes, process_index
        self.batch_size = getattr(batch_sampler, "batch_size", None)

    def __len__(self):
        return len(self.batch_sampler) // self.num_processes

    def __iter__(self):
        for number, batch in enumerate(self.batch_sampler):
            if number % self.num_processes == self.process_index:
                own = batch
            if number % self.num_processes == self.num_processes - 1 and self.batch_size in (None, len(batch)):
                yield own


class SkipBatchSampler:
    """As Accelerate's: of a loop that is resumed."""

    def __init__(self, batch_sampler, skip_batches):
        self.batch_sampler, self.skip_batches = batch_sampler, skip_batches

    def __iter__(self):
        for number, batch in enumerate(self.batch_sampler):
            if number >= self.skip_batches:
                yield batch


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("asked_first", ["length", "batches"])
def test_a_wrapper_that_shards_once_more_is_undone_prepared_once_or_twice(sampler_of, asked_first, depth):
    for rank in range(2):
        wrapper = sampler_of(rank, 2)
        for _ in range(depth):
            wrapper = BatchSamplerShard(wrapper, 2, rank)
        expected = plain(sampler_of(rank, 2))
        if asked_first == "length":
            assert len(wrapper) == len(expected)
        assert plain(wrapper) == expected and len(wrapper) == len(expected)
        assert plain(wrapper) != expected  # the next epoch, with all micro-batches, too
        assert len(plain(SkipBatchSampler(wrapper, 3))) == len(wrapper) - 3


def test_a_wrapper_that_was_told_not_to_shard_gives_every_micro_batch(sampler_of):
    for rank in range(2):
        wrapper = BatchSamplerShard(sampler_of(rank, 2), 2, rank)
        wrapper.num_processes, wrapper.process_index = 1, 0
        assert plain(wrapper) == plain(sampler_of(rank, 2))


@pytest.mark.parametrize("own, theirs", [((0, 1), (0, 2)), ((0, 2), (1, 2)), ((1, 3), (1, 2))])
@pytest.mark.parametrize("call", [list, len])
def test_a_wrapper_that_counts_other_ranks_is_refused_and_says_which_ones_to_give(pliant, sampler_of, own, theirs, call):
    wrapper = BatchSamplerShard(sampler_of(*own), theirs[1], theirs[0])
    with pytest.raises(pliant.Error, match=f"BatchSamplerShard.*rank={theirs[0]} and world_size={theirs[1]}") as caught:
        call(wrapper)
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION


class Loader:
    """Iterates as a DataLoader does, and with it the loaders of Accelerate."""

    def __init__(self, batch_sampler, ranks=1):
        self.batch_sampler, self.iteration = batch_sampler, 0
        self.state = type("State", (), {"num_processes": ranks})

    def set_epoch(self, epoch):
        self.iteration = epoch
        self.batch_sampler.set_epoch(epoch)
        self.batch_sampler.sampler.set_epoch(epoch)

    def __iter__(self):
        self.set_epoch(self.iteration)
        yield from iter(self.batch_sampler)
        self.iteration += 1


class DataLoaderDispatcher(Loader):
    pass


def test_a_loader_that_cuts_batches_up_for_other_ranks_is_refused(pliant, sampler_of):
    for own, ranks in (((1, 2), 2), ((0, 1), 2)):
        with pytest.raises(pliant.Error, match="dispatch_batches=False"):
            list(DataLoaderDispatcher(sampler_of(*own), ranks))
    assert plain(DataLoaderDispatcher(sampler_of(0, 1))) == plain(sampler_of(0, 1))


def test_what_a_loaded_state_has_skipped_is_not_skipped_again(pliant, sampler_of):
    given = iter(sampler_of())
    for _ in range(3):
        next(given)
    loaded = sampler_of()
    loaded.load_state_dict(given.state_dict())
    with pytest.raises(pliant.Error, match="ignore_data_skip=True"):
        list(SkipBatchSampler(loaded, 3))
    expected = plain(sampler_of())[3:]
    assert plain(SkipBatchSampler(sampler_of(), 3)) == plain(SkipBatchSampler(loaded, 0)) == expected


def test_a_loader_that_counts_epochs_by_itself_goes_on_with_that_of_the_loaded_state(sampler_of, caplog):
    given = sampler_of()
    expected = [plain(given) for _ in range(4)]
    for count in (7, len(expected[1])):  # within epoch 1, and at its end
        given.set_epoch(1)
        iterator = iter(given)
        for _ in range(count):
            next(iterator)
        loaded = sampler_of()
        loaded.load_state_dict(given.state_dict())
        loader = Loader(loaded)
        rest = expected[1][count:] or expected[2]
        assert plain(loader) == rest and plain(loader) == expected[2 if count == 7 else 3]
        loader.set_epoch(0)  # which a loop says
        assert plain(loader) == expected[0]
    assert not caplog.records


def test_a_whole_job_is_all_its_epochs_one_after_the_other_from_where_the_sampler_is(pliant, sampler_of):
    small = toml().replace("max_train_batch_size = 12", "max_train_batch_size = 4").replace("max_gpus = 6", "max_gpus = 2")
    for seed in range(100):
        config = pliant.Config.parse(small, sets=[f"run.seed={seed}"])
        sampler = sampler_of(1, 2, config=config)
        epochs = [plain(sampler) for _ in range(4)]
        if len({len(epoch) for epoch in epochs[:3]}) > 1:
            break
    assert len({len(epoch) for epoch in epochs[:3]}) > 1
    job = sampler_of(1, 2, config=config).whole_job()
    assert len(job) == sum(map(len, epochs[:3])) and plain(job) == sum(epochs[:3], []) and plain(job) == []
    assert plain(sampler_of(1, 2, config=config).whole_job(4)) == sum(epochs, [])
    for count in (5, len(epochs[0]), len(epochs[0]) + 5, len(epochs[0] + epochs[1] + epochs[2])):
        given = sampler_of(1, 2, config=config)
        iterator = iter(given.whole_job())
        for _ in range(count):
            next(iterator)
        again = sampler_of(1, 2, config=config)
        again.load_state_dict(given.state_dict())
        assert plain(again.whole_job()) == sum(epochs[:3], [])[count:]
    wrapper = BatchSamplerShard(sampler_of(1, 2, config=config).whole_job(), 2, 1)
    assert len(wrapper) == len(job) and plain(wrapper) == sum(epochs[:3], [])
    with pytest.raises(pliant.Error, match="rank=1 and world_size=2"):
        list(BatchSamplerShard(sampler_of(0, 2, config=config).whole_job(), 2, 1))


def test_an_epoch_that_a_loop_leaves_before_its_end_is_warned_of(sampler_of, caplog):
    sampler = sampler_of()
    iterator = iter(sampler)
    for _ in range(len(sampler) - 1):
        next(iterator)
    sampler.set_epoch(1)
    assert ["epoch 0 is left before its end" in record.getMessage() for record in caplog.records] == [True]
    caplog.clear()
    iterator = iter(sampler)
    for _ in range(len(sampler)):
        next(iterator)
    sampler.set_epoch(2)
    assert not caplog.records


def test_an_attribute_that_is_set_on_an_item_is_on_that_item_alone(pliant, sampler_of):
    for config in (pliant.Config.parse(toml()), pliant.Config.parse(toml(CUT))):
        items = next(iter(sampler_of(config=config)))
        items[0].seen = True
        assert len(items) > 1 and not any(hasattr(item, "seen") for item in items[1:])
        assert [item.position for item in items] == [items.position] * len(items)


def test_a_sampler_of_a_memoryview_pickles(sampler_of):
    sampler = sampler_of(lengths=memoryview(LENGTHS))
    assert plain(pickle.loads(pickle.dumps(sampler))) == plain(sampler)
