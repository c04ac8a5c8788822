"""lengths are any array of integers, viewed where they lie if they have 32 bits, and refused by name if they are something else."""
import array
import gc
import sys

import numpy
import pytest
from conftest import lengths_of, toml


@pytest.fixture
def batches_of(pliant, config):
    plan = pliant.plan(config)

    def made(lengths, loss_tokens=None):
        return pliant.Batches(config, plan, lengths, loss_tokens)

    return made


EXPECTED = numpy.array(lengths_of(), dtype="int64")
AS = {
    "list": lambda: lengths_of(),
    "tuple": lambda: tuple(lengths_of()),
    "array": lambda: array.array("i", lengths_of()),
    "array of 64 bits": lambda: array.array("q", lengths_of()),
    "memoryview": lambda: memoryview(array.array("i", lengths_of())),
    "bytes cast": lambda: memoryview(EXPECTED.astype("int32").tobytes()).cast("i"),
    **{name: (lambda name=name: EXPECTED.astype(name)) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    "strided": lambda: numpy.repeat(EXPECTED.astype("int32"), 3)[::3],
    "reversed": lambda: EXPECTED.astype("int32")[::-1][::-1],
    "backwards": lambda: EXPECTED[::-1].astype("int32")[::-1],
    "column": lambda: numpy.stack([EXPECTED, EXPECTED], axis=1).astype("int32")[:, 1],
}


@pytest.mark.parametrize("kind", AS)
def test_every_kind_of_array_gives_the_same_batches(batches_of, kind):
    assert batches_of(AS[kind]()).fingerprint == batches_of(EXPECTED).fingerprint


def test_an_array_that_is_read_only_is_taken(batches_of):
    lengths = EXPECTED.astype("int32")
    lengths.flags.writeable = False
    assert batches_of(lengths).fingerprint == batches_of(EXPECTED).fingerprint


def test_a_file_that_is_mapped_is_taken(batches_of, tmp_path, pliant):
    numpy.save(tmp_path / "lengths.npy", EXPECTED.astype("int32"))
    mapped = numpy.load(tmp_path / "lengths.npy", mmap_mode="r")
    assert batches_of(mapped).fingerprint == batches_of(EXPECTED).fingerprint
    assert (pliant.read_lengths(tmp_path / "lengths.npy") == EXPECTED).all()


@pytest.mark.parametrize("lengths, says", [
    (EXPECTED.astype("float64"), "float64"),
    (EXPECTED.astype("float32"), "float32"),
    (EXPECTED.astype("bool"), "bool"),
    (EXPECTED.astype("complex64"), "complex64"),
    (EXPECTED.reshape(20, 20), "2 dimensions"),
    (numpy.array(7), "0 dimensions"),
    (numpy.array(["a"]), "array of integers"),
    (numpy.array([None, 3]), "array of integers"),
    (EXPECTED.astype(">i4"), "byte order"),
    ([1.5, 2], "does not hold int alone"),
    (["a"], "does not hold int alone"),
    ("12345", "array of integers"),
    ({1: 2}, "array of integers"),
    (7, "array of integers"),
    (object(), "array of integers"),
])
def test_what_is_no_array_of_integers_is_refused_by_name(batches_of, lengths, says):
    with pytest.raises(TypeError, match=says) as caught:
        batches_of(lengths)
    assert str(caught.value).startswith("lengths ")
    with pytest.raises(TypeError, match="^loss_tokens "):
        batches_of(EXPECTED, lengths)


class OnDevice:
    """An array that lies on a GPU, as far as anybody asks."""

    shape = (3,)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **kwargs):
        raise AssertionError("an array on a device was asked for")


def test_an_array_on_a_device_is_refused_before_it_is_asked_for(batches_of):
    with pytest.raises(TypeError, match="lengths lies on a device"):
        batches_of(OnDevice())


class Pinned:
    """An array in host memory that a device reads, too."""

    def __dlpack_device__(self):
        return (3, 0)

    def __dlpack__(self, **kwargs):
        return EXPECTED.astype("int32").__dlpack__()


def test_an_array_in_pinned_memory_is_taken(batches_of):
    assert batches_of(Pinned()).fingerprint == batches_of(EXPECTED).fingerprint


@pytest.mark.parametrize("value", [2**31, 2**40, -2**40])
def test_a_value_beyond_32_bits_is_named_with_its_place(pliant, batches_of, value):
    lengths = EXPECTED.copy()
    lengths[17] = value
    with pytest.raises(pliant.Error, match=rf"lengths\[17\] is {value}") as caught:
        batches_of(lengths)
    assert caught.value.status == pliant.Status.OUT_OF_RANGE
    with pytest.raises(pliant.Error, match=r"lengths\[0\] is 4294967295"):
        batches_of(numpy.array([2**32 - 1], dtype="uint32"))
    with pytest.raises(pliant.Error, match=r"lengths\[1\]"):
        batches_of(numpy.array([1, 2**64 - 1], dtype="uint64"))
    with pytest.raises(pliant.Error, match="beyond 64 bits"):
        batches_of([1, 2**70])


@pytest.mark.parametrize("lengths", [[], numpy.zeros(0, "int32"), [3, 0, 4], [3, -1, 4], [3, 0, 4.0][:2]])
def test_lengths_that_no_data_set_has_are_refused(pliant, batches_of, lengths):
    with pytest.raises(pliant.Error) as caught:
        batches_of(lengths)
    assert caught.value.status == pliant.Status.INVALID_ARGUMENT


def test_loss_tokens_must_fit_the_lengths(pliant, batches_of):
    with pytest.raises(pliant.Error):
        batches_of(EXPECTED, EXPECTED[:-1])


@pytest.mark.parametrize("kind", ["int32", "uint32"])
def test_an_array_of_32_bits_is_viewed_and_kept_alive(batches_of, kind):
    lengths = EXPECTED.astype(kind)
    before = sys.getrefcount(lengths)
    batches = batches_of(lengths)
    assert sys.getrefcount(lengths) > before
    batch = next(batches)
    del batches
    gc.collect()
    assert sys.getrefcount(lengths) > before  # a batch knows its data set
    del batch
    gc.collect()
    assert sys.getrefcount(lengths) == before


def test_an_array_that_is_freed_after_is_there_all_the_same(batches_of):
    lengths = EXPECTED.astype("int32")
    batches, again = batches_of(lengths), batches_of(EXPECTED)
    del lengths
    gc.collect()
    junk = [numpy.full(400, 9, dtype="int32") for _ in range(50)]
    assert [batch.digest for batch in batches] == [batch.digest for batch in again]
    assert junk


def test_an_array_cannot_be_resized_while_it_is_viewed(batches_of):
    lengths = array.array("i", lengths_of())
    batches = batches_of(lengths)
    with pytest.raises(BufferError):
        lengths.append(3)
    assert next(batches)


@pytest.mark.parametrize("kind", ["int32", "uint32"])
def test_an_array_that_is_changed_after_is_noticed_before_the_next_epoch(pliant, batches_of, kind):
    lengths = EXPECTED.astype(kind)
    batches = batches_of(lengths)
    count = batches.epoch(0).batches
    for _ in range(count):
        next(batches)
    lengths[3] += 1
    with pytest.raises(pliant.Error, match="changed after") as caught:
        next(batches)
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION
    with pytest.raises(pliant.Error, match="changed after"):
        batches.batch(2, 0)
    lengths[3] -= 1
    assert next(batches).epoch == 1


CALLS = {
    "batch": lambda batches: batches.batch(1, 0),
    "epoch": lambda batches: batches.epoch(1),
    "dropped": lambda batches: batches.dropped(1),
    "at_step": lambda batches: batches.at_step(batches.epoch(0).batches),
    "has_step": lambda batches: batches.has_step(10**6),
    "expected_steps": lambda batches: batches.expected_steps(),
    "job_length": lambda batches: batches.job_length(),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_array_that_is_changed_after_is_noticed_by_every_call_that_plans(pliant, batches_of, call):
    lengths = EXPECTED.astype("int32")
    batches = batches_of(lengths)
    expected = batches.at_step(0).digest
    assert batches.has_step(1) and batches.at_step(0).digest == expected
    lengths[3] += 1
    with pytest.raises(pliant.Error, match="changed after"):
        CALLS[call](batches)
    with pytest.raises(pliant.Error, match="changed after"):
        batches.batch(0, 1)
    lengths[3] -= 1
    assert CALLS[call](batches) is not None and batches.at_step(0).digest == batches.batch(0, 0).digest == expected


def test_lengths_are_those_of_data_where_none_are_given(pliant, tmp_path, batches_of):
    numpy.save(tmp_path / "lengths.npy", EXPECTED)
    config = pliant.Config.parse(toml(more=f'[data]\nlengths = "{tmp_path}/lengths.npy"\n'))
    batches = pliant.Batches(config, pliant.plan(config))
    assert [batch.digest for batch in batches] == [batch.digest for batch in batches_of(EXPECTED)]
