"""a loader of an elastic job reads ahead, keeps what it has read where rows move, and says which row could not be read."""
import os
import pathlib
import random
import signal
import threading
import types

import pytest
from conftest import CUT, toml
from elastic_jobs import interrupted

WAIT = 60  # seconds, until a test fails


class Texts:
    """Item i is i, with its row. Counts what is asked for."""

    def __init__(self, broken=()):
        self.asked, self.lock, self.read, self.broken = [], threading.Lock(), threading.Condition(), set(broken)

    def __getitem__(self, item):
        with self.read:
            self.asked.append((int(item), item.row))
            self.read.notify_all()
        if int(item) in self.broken:
            raise ValueError(f"no file for {int(item)}")
        return int(item), item.row

    def wait_for(self, count):
        with self.read:
            assert self.read.wait_for(lambda: len(self.asked) >= count, WAIT), self.asked


class Job:
    """A session that hands out steps of a real plan, whose rows it shares out as it is told to."""

    _is_sharded = False

    def __init__(self, pliant, sampler=None):
        config = pliant.Config.parse(toml(*([] if sampler is None else [sampler])))
        self.plan = pliant.plan(config)
        self.batches = pliant.Batches(config, self.plan, [3 + i * 7 % 29 for i in range(400)])
        self.index, self.blocks = 0, lambda index: (range(0, 4), range(4, 6))
        self.seed, self.config = 7, types.SimpleNamespace(run=types.SimpleNamespace(deterministic=True))

    def step(self, index=None):
        index = self.index if index is None else index
        return types.SimpleNamespace(index=index, batch=self.batches.batch(0, index), micro_batches=self.blocks(index), shares=1)

    def coming(self, ahead):
        if self.index + ahead >= self.batches.epoch(0).batches:
            return None
        return self.step(self.index + ahead)

    def expected(self, rows, index=None):
        batch = self.batches.batch(0, self.index if index is None else index)
        return [(int(i), row) for row in rows for i in batch.row(row)]


@pytest.fixture
def job(pliant):
    return Job(pliant)


def loader_of(job, *arguments, **options):
    from pliant.elastic import Loader

    return Loader(job, *arguments, **options)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_each_micro_batch_has_the_samples_of_its_rows_in_order(job, workers):
    loader = loader_of(job, Texts(), num_workers=workers)
    for job.index in range(job.batches.epoch(0).batches):
        expected = [job.expected(range(0, 4)), job.expected(range(4, 6))]
        assert list(loader.of(job.step())) == expected
        assert list(loader.of(job.step())) == expected  # the step was lost


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_makes_the_batch_and_a_rank_without_rows_has_none(job, workers):
    job.blocks = lambda index: (range(0, 1), range(1, 1), range(1, 3))
    assert [type(batch) for batch in loader_of(job, Texts(), tuple, num_workers=workers).of(job.step())] == [tuple, tuple]
    job.blocks = lambda index: ()
    assert list(loader_of(job, Texts(), num_workers=workers).of(job.step())) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_of_a_state_that_is_cut_over_the_ranks_micro_batches_without_rows_have_an_example_each_that_counts_nothing(job, workers):
    job._is_sharded = True
    texts = Texts()
    loader = loader_of(job, texts, num_workers=workers)
    for blocks, examples in (((range(2, 4), range(4, 4), range(4, 4)), range(2, 3)), ((range(6, 6), range(6, 6), range(6, 6)), range(0, 1))):
        job.blocks = lambda index, blocks=blocks: blocks
        for job.index in (0, 1, 1):  # the last one was lost
            step, found, counted = job.step(), [], []
            for batch in loader.of(step):
                found.append(list(batch))
                counted.append(not step._is_example)
                batch.clear()  # a batch is the program's own
            assert found == [job.expected(rows or examples) for rows in blocks] and counted == [bool(rows) for rows in blocks]
            assert not step._is_example
    job.blocks = lambda index: ()  # a spare
    assert list(loader.of(job.step())) == []
    assert workers or len(texts.asked) == len(set(texts.asked)), texts.asked


def test_without_workers_nothing_is_read_before_it_is_asked_for(job):
    texts = Texts()
    batches = loader_of(job, texts).of(job.step())
    assert texts.asked == []
    assert next(batches) == texts.asked == job.expected(range(0, 4))


def test_workers_read_the_next_step_while_this_one_is_computed(job):
    texts = Texts()
    loader = loader_of(job, texts, num_workers=1, prefetch=3)
    batches = loader.of(job.step())
    next(batches)
    ahead = [*job.expected(range(0, 6)), *job.expected(range(0, 6), 1)]  # three micro-batches after the first one
    texts.wait_for(len(ahead))
    assert sorted(texts.asked) == sorted(ahead)
    list(batches)
    before = len(texts.asked)
    job.index = 1
    assert list(loader.of(job.step())) == [job.expected(range(0, 4)), job.expected(range(4, 6))]
    assert not set(job.expected(range(0, 6))) & set(texts.asked[before:])  # they were there


def test_what_was_read_is_kept_where_the_rows_of_the_rank_change(job):
    texts = Texts()
    loader = loader_of(job, texts, num_workers=2, prefetch=2)
    assert len(list(loader.of(job.step()))) == 2
    job.blocks = lambda index: (range(2, 5), range(5, 9))  # a rank has died
    assert list(loader.of(job.step())) == [job.expected(range(2, 5)), job.expected(range(5, 9))]
    counts = [texts.asked.count(one) for one in job.expected(range(0, 9))]
    assert counts == [1] * len(counts)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_raises_is_named_with_its_row_when_it_is_due_and_is_tried_again(pliant, job, workers):
    item, row = job.expected(range(5, 6), index=1)[0]
    texts = Texts(broken=[item])
    loader = loader_of(job, texts, num_workers=workers, prefetch=4)
    assert len(list(loader.of(job.step()))) == 2  # which has read ahead
    job.index = 1
    batches = loader.of(job.step())
    next(batches)
    with pytest.raises(pliant.Error, match=rf"data set item {item} \(row {row} of step 1\): ValueError: no file for {item}") as raised:
        next(batches)
    assert isinstance(raised.value.__cause__, ValueError)
    texts.broken.clear()
    assert list(loader.of(job.step())) == [job.expected(range(0, 4)), job.expected(range(4, 6))]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_that_raises_is_named_with_its_rows(pliant, job, workers):
    with pytest.raises(pliant.Error, match=r"collate of rows 0 to 3 of step 0: ZeroDivisionError"):
        next(loader_of(job, Texts(), lambda samples: 1 // 0, num_workers=workers).of(job.step()))


def test_a_data_set_that_takes_a_list_is_asked_for_a_row_at_a_time(pliant, job):
    class Lists:
        def __getitems__(self, items):
            if items[0].row == 4:
                raise OSError("gone")
            return [int(item) for item in items]

    batches = loader_of(job, Lists()).of(job.step())
    assert next(batches) == [item for item, _ in job.expected(range(0, 4))]
    with pytest.raises(pliant.Error, match=r"data set items [\d, ]+ \(row 4 of step 0\): OSError: gone"):
        next(batches)


def test_pieces_of_sequences_come_with_their_items(pliant):
    class Pieces:
        def __getitem__(self, item):
            return int(item), item.piece

    job = Job(pliant, CUT)
    found = next(loader_of(job, Pieces()).of(job.step()))
    batch = job.batches.batch(0, 0)
    end = batch.offsets[4]
    assert found == [(int(i), (int(first), int(count), bool(last))) for i, first, count, last in
                     zip(batch.ids[:end], batch.first_tokens[:end], batch.token_counts[:end], batch.is_last[:end])]


class Drawing:
    """Adds what Python's generator gives to item i, without one of its own."""

    def __getitem__(self, item):
        return int(item), random.random()


def with_drawn(samples):
    return [*samples, random.random()]


def test_random_numbers_of_samples_and_batches_are_those_of_their_rows(pliant, job):
    random.seed(1)
    first = list(loader_of(job, Drawing(), with_drawn).of(job.step()))
    assert len({drawn for batch in first for _, drawn in batch[:-1]}) == sum(len(batch) - 1 for batch in first)
    random.seed(2)
    other = loader_of(job, Drawing(), with_drawn)
    job.blocks = lambda index: (range(4, 6),)
    assert list(other.of(job.step())) == first[1:]
    job.blocks = lambda index: (range(0, 4), range(4, 6))
    assert list(other.of(job.step())) == first  # rows that were read before among them
    after = random.random()
    random.seed(2)
    assert random.random() == after  # the program's own numbers are those it would draw without the loader


@pytest.mark.parametrize("arguments", [(Drawing(),), (Texts(), with_drawn)])
def test_threads_that_would_draw_from_one_generator_are_refused_in_deterministic_mode(pliant, job, arguments):
    loader = loader_of(job, *arguments, num_workers=2)
    for _ in range(2):
        with pytest.raises(pliant.Error, match="draws random numbers from random, which all threads of a loader share.*num_workers=0") as refused:
            next(loader.of(job.step()))
        assert refused.value.exit_code == 2
    job.config.run.deterministic = False
    assert len(list(loader_of(job, *arguments, num_workers=2).of(job.step()))) == 2


@pytest.fixture
def keeps_handler():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_out_of_the_wait_for_a_thread_that_reads_and_what_it_reads_is_kept(job, keeps_handler):
    slow, _ = job.expected(range(4, 5))[0]  # of the second micro-batch
    goes_on, is_read_to_its_end = threading.Event(), []

    class Slow(Texts):
        def __getitem__(self, item):
            made = super().__getitem__(item)
            if int(item) == slow:
                is_read_to_its_end.append(goes_on.wait(WAIT))
            return made

    texts = Slow()
    loader = loader_of(job, texts, num_workers=1)
    batches = loader.of(job.step())
    next(batches)
    texts.wait_for(len(job.expected(range(0, 4))) + 1)  # the thread is at the slow one
    job.coming = lambda ahead: None  # which else gives the lock of the interpreter back before the loader waits
    own = pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/stat")
    is_asleep = lambda: own.read_text().rpartition(") ")[2].startswith("S")  # noqa: E731 before that a wait of Python's misses a signal
    assert interrupted(lambda: next(batches), when=is_asleep) is None
    assert is_read_to_its_end == []
    goes_on.set()
    assert list(loader.of(job.step())) == [job.expected(range(0, 4)), job.expected(range(4, 6))]
    counts = [texts.asked.count(one) for one in job.expected(range(0, 6))]
    assert is_read_to_its_end == [True] and counts == [1] * len(counts)


def test_an_interrupt_of_a_read_is_no_error_of_the_sample_which_is_read_again(job, keeps_handler):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first, once = job.expected(range(0, 1))[0], iter([signal.SIGINT])

    class Interrupted(Texts):
        def __getitem__(self, item):
            made = super().__getitem__(item)
            for number in once:
                signal.raise_signal(number)
            return made

    texts = Interrupted()
    loader = loader_of(job, texts)
    with pytest.raises(KeyboardInterrupt):
        next(loader.of(job.step()))
    assert texts.asked == [first]
    assert list(loader.of(job.step())) == [job.expected(range(0, 4)), job.expected(range(4, 6))]
    assert texts.asked.count(first) == 2


@pytest.mark.parametrize(("options", "said"), [({"num_workers": -1}, "num_workers is -1"), ({"prefetch": 0}, "prefetch is 0")])
def test_wrong_options_are_refused(pliant, job, options, said):
    with pytest.raises(pliant.Error, match=said):
        loader_of(job, Texts(), **options)


def test_a_data_set_that_knows_no_item_is_refused_before_the_job_begins(pliant):
    from pliant.elastic import Session

    for dataset in (iter([1, 2]), {1, 2}, None):
        with pytest.raises(TypeError, match=r"the data set is a \w+, .* session\.loader asks for `dataset\[i\]`"):
            Session.loader(None, dataset)
    data = pytest.importorskip("torch").utils.data

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter([1, 2])

    class Both(Stream):
        def __getitem__(self, item):
            return int(item)

    with pytest.raises(TypeError, match="the data set is a Stream, "):
        Session.loader(None, Stream())
    assert Session.loader(None, Both()) is not None


def test_a_forked_process_is_refused_in_place_of_waiting_for_threads_that_it_has_not(job):
    loader = loader_of(job, Texts(), num_workers=1)
    list(loader.of(job.step()))
    following = job.step()
    child = os.fork()
    if child == 0:
        try:
            next(loader.of(following))
        except Exception as error:  # noqa: BLE001
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_its_threads_end_with_it(job):
    loader = loader_of(job, Texts(), num_workers=2)
    list(loader.of(job.step()))
    threads = loader._workers._threads
    assert all(thread.is_alive() and thread.daemon for thread in threads)
    del loader
    for thread in threads:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in threads)
