"""what a callback raises comes out as it was, and what was measured or kept before stays."""
import _thread
import signal

import numpy
import pytest
from conftest import lengths_of


class Own(Exception):
    pass


def test_what_length_of_raises_comes_out_and_the_next_run_goes_on(pliant, tmp_path):
    file = tmp_path / "lengths.npy"

    def length_of(i):
        if i == 900:
            raise Own("at 900")
        return i + 1

    with pytest.raises(Own, match="at 900"):
        pliant.analyse_lengths(file, 1000, length_of, identity="x")
    assert not file.exists()
    measured, resumed = pliant.analyse_lengths(file, 1000, lambda i: i + 1, identity="x")
    assert measured + resumed == 1000
    assert (numpy.load(file) == numpy.arange(1, 1001)).all()
    assert pliant.analyse_lengths(file, 1000, length_of, identity="x") == (0, 0)
    with pytest.raises(pliant.Error) as caught:
        pliant.analyse_lengths(file, 1000, length_of, identity="y")
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION


@pytest.mark.parametrize("length, raised", [(1.5, TypeError), ("a", TypeError), (None, TypeError), (2**80, OverflowError)])
def test_what_is_no_length_is_refused(pliant, tmp_path, length, raised):
    with pytest.raises(raised):
        pliant.analyse_lengths(tmp_path / "lengths.npy", 10, lambda i: length, identity="x")


@pytest.mark.parametrize("length", [0, -1, 2**31])
def test_a_length_out_of_range_is_named_with_its_sequence(pliant, tmp_path, length):
    with pytest.raises(pliant.Error, match="7"):
        pliant.analyse_lengths(tmp_path / "lengths.npy", 10, lambda i: length if i == 7 else 1, identity="x")


def test_what_progress_raises_comes_out(pliant, tmp_path):
    def progress(done, total):
        raise Own

    with pytest.raises(Own):
        pliant.analyse_lengths(tmp_path / "lengths.npy", 10, lambda i: 1, identity="x", progress=progress)


class Raises:
    """Raises in each method by which it is asked what it is."""

    def raise_own(self, *_, **__):
        raise Own("asked")

    __index__ = __int__ = __len__ = __getitem__ = __iter__ = __dlpack_device__ = raise_own


def test_what_an_object_raises_that_is_asked_for_its_value_comes_out(pliant, config, tmp_path):
    plan = pliant.plan(config)
    for call in (lambda: pliant.analyse_lengths(tmp_path / "lengths.npy", 10, lambda i: Raises(), identity="x"),
                 lambda: pliant.Batches(config, plan, Raises()), lambda: pliant.PackedBatchSampler(config, Raises(), 0, 1),
                 lambda: pliant.Balancer(config).assign(Raises(), world_size=1)):
        with pytest.raises(Own, match="asked"):
            call()
    assert pliant.analyse_lengths(tmp_path / "lengths.npy", 10, lambda i: 5, identity="x") == (10, 0)


def test_an_interrupt_ends_the_analysis(pliant, tmp_path):
    file = tmp_path / "lengths.npy"

    def length_of(i):
        if i == 3:
            _thread.interrupt_main()
        return 5

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell runs the tests in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            pliant.analyse_lengths(file, 10**9, length_of, identity="x")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not file.exists()


@pytest.fixture
def record(pliant, config, tmp_path):
    config = config.with_sets([f"run.log_dir={tmp_path}/runs"])
    plan = pliant.plan(config)
    batches = pliant.Batches(config, plan, lengths_of())
    return config, plan, batches


def commit_steps(pliant, ledger, batches, world_size, steps):
    ledger.start_generation(world_size, "start")
    for step in range(ledger.steps, ledger.steps + steps):
        batch = batches.at_step(step)
        ledger.commit(batch, pliant.share_out(len(batch), world_size=world_size, micro_batch=2, granule=2), 0.5, 0.01)


def test_a_job_goes_on_where_its_ledger_ends_at_another_world_size(pliant, record):
    config, plan, batches = record
    ledger = pliant.Ledger.begin(config, plan, batches)
    commit_steps(pliant, ledger, batches, 3, 4)
    ledger.keep_snapshot(b"weights of step 4", b"rate")
    commit_steps(pliant, ledger, batches, 3, 2)
    directory = ledger.directory
    with pytest.raises(pliant.Error):
        pliant.Ledger.open(directory, config, plan, batches)  # the first one still writes
    del ledger
    again = pliant.Ledger.open(directory, config, plan, batches)
    assert again.restore() == (4, b"rate", b"weights of step 4")
    assert again.steps == 4
    commit_steps(pliant, again, batches, 5, 3)
    assert again.steps == 7
    again.keep_snapshot(lambda file: [file.write(memoryview(b"ab")), file.write(bytearray(b"cd")), file.flush()])
    assert again.restore().state == b"abcd"


def test_what_write_raises_comes_out_and_the_snapshot_before_stays(pliant, record):
    ledger = pliant.Ledger.begin(*record)
    assert ledger.restore() == (0, b"", None)
    commit_steps(pliant, ledger, record[2], 2, 1)
    ledger.keep_snapshot(b"first")
    files = []

    def write(file):
        files.append(file)
        file.write(b"half")
        raise Own("half")

    with pytest.raises(Own, match="half"):
        ledger.keep_snapshot(write)
    with pytest.raises(pliant.Error, match="is written"):
        files[0].write(b"more")
    with pytest.raises(TypeError):
        ledger.keep_snapshot(lambda file: file.write("text"))
    assert ledger.restore() == (1, b"", b"first")


def test_a_commit_out_of_place_is_refused(pliant, record):
    config, plan, batches = record
    ledger = pliant.Ledger.begin(config, plan, batches)
    batch = batches.at_step(0)
    assignment = pliant.share_out(len(batch), world_size=2, micro_batch=2, granule=2)
    with pytest.raises(pliant.Error) as caught:
        ledger.commit(batch, assignment, 0.5, 0.01)
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION
    ledger.start_generation(3, "start")
    with pytest.raises(pliant.Error) as caught:
        ledger.commit(batch, assignment, 0.5, 0.01)
    assert caught.value.status == pliant.Status.INVALID_ARGUMENT
    assert ledger.steps == 0
    other = pliant.Batches(config, plan, lengths_of(399))
    directory = ledger.directory
    del ledger
    with pytest.raises(pliant.Error) as caught:
        pliant.Ledger.open(directory, config, plan, other)
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION
