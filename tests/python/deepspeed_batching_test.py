"""Through pliant.deepspeed the recorded calls of batch_by_seqlens and scale_lr give what DeepSpeed gave."""
import collections
import gzip
import json
import math
import os
import pathlib
import random
import threading

import numpy
import pytest

from pliant.deepspeed import batch_by_seqlens, scale_lr

GOLDEN = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "tests/parity/golden/variable_batch.jsonl.gz"
CLASSES = {
    "AssertionError": AssertionError,
    "AttributeError": AttributeError,
    "IndexError": IndexError,
    "TypeError": TypeError,
    "ValueError": ValueError,
    "ZeroDivisionError": ZeroDivisionError,
}


def rows(kind):
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] == kind:
                yield row


def batch_rule(row):
    """The rule by which Pliant may refuse what DeepSpeed answers, or refuse it for another reason; by the input alone."""
    lengths = row["seqlens"]
    if any(isinstance(length, float) for length in lengths):
        return "float-length"
    if any(length < 0 for length in lengths):
        return "negative-length"
    if row["args"]["effective_batch_size"] < 1:
        return "batch-below-1"
    return ""


def batch_verdict(row):
    """The rule that excuses a refusal, and what differs."""
    args, out = dict(row["args"]), row["out"]
    lengths = numpy.array(row["seqlens"], dtype=numpy.int64) if row.get("numpy_in") else row["seqlens"]
    if args["sequence_picking_order"] == "random" and args["seed"] is None:  # DeepSpeed's own order, which nobody can ask for again
        ids = args["sequence_ids_per_mb"] or range(len(lengths))
        args.update(sequence_ids_per_mb=[ids[place] for place in row["permutation"]], sequence_picking_order="dataloader")
    try:
        packs, sizes, longest = batch_by_seqlens(lengths, row["max_tokens"], **args)
    except (AssertionError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        if "error" in out and isinstance(error, CLASSES[out["error"]["type"]]):
            return "", ""
        return batch_rule(row), f"{row['id']}: {out} but {type(error).__name__}: {error}"
    if not all(type(pack) is tuple and type(pack[1]) is list for pack in packs):
        return "", f"{row['id']}: other shapes than DeepSpeed's"
    actual = {"microbatch_ids": [list(pack) for pack in packs], "batch_sizes": sizes, "batch_max_seqlens": longest}
    return "", "" if actual == out else f"{row['id']}: {out} but {actual}"


def test_recorded_packs_are_deepspeeds():
    counted = collections.Counter()
    wrong = []
    for row in rows("batch"):
        rule, difference = batch_verdict(row)
        counted[rule or ("passed" if not difference else "failed")] += 1
        if difference and not rule:
            wrong.append(difference)
    assert not wrong, f"{len(wrong)} of {sum(counted.values())}: " + "\n".join(wrong[:20])
    assert counted == {"passed": 1670, "batch-below-1": 2, "float-length": 2, "negative-length": 1}


def test_recorded_rates_are_deepspeeds_to_the_bit():
    counted = collections.Counter()
    for row in rows("scale_lr"):
        out = row["out"]
        arguments = (row["base_batch_size"], row["batch_size"], row["base_lr"], row["method"])
        try:
            rate = scale_lr(*arguments)
        except (AttributeError, ValueError, ZeroDivisionError) as error:
            is_same = "error" in out and isinstance(error, CLASSES[out["error"]["type"]])
            assert is_same or min(arguments[:2]) < 0, (row, error)  # a batch below 0
            counted["passed" if is_same else "negative-batch"] += 1
        else:
            assert "error" not in out and rate == out["lr"] and math.copysign(1, rate) == math.copysign(1, out["lr"]), (row, rate)
            counted["passed"] += 1
    assert counted == {"passed": 248, "negative-batch": 2}


def greedy(lengths, cap):
    """Packs without limits, in order; the last sequence is never used."""
    packs, pack = [], []
    for place, length in enumerate(lengths[:-1]):
        if pack and sum(lengths[other] for other in pack) + length > cap:
            packs.append(pack)
            pack = []
        pack.append(place)
    return packs + [pack]


@pytest.mark.parametrize("zeros", [1, 3, 40])
def test_sequences_without_a_token_take_no_room(zeros):
    order = random.Random(zeros)
    lengths = [0] * zeros + [order.randrange(1, 30) for _ in range(60)]
    order.shuffle(lengths)
    packs, _, longest = batch_by_seqlens(lengths, 50)
    assert [pack for _, pack in packs] == greedy(lengths, 50)
    assert longest == [max(lengths[place] for place in pack) for _, pack in packs]


def test_a_data_set_of_any_integers_is_taken_and_one_with_fractions_is_not():
    plain = batch_by_seqlens([3, 4, 5, 6, 7], 10)
    for array in (numpy.array([3, 4, 5, 6, 7], dtype=numpy.uint8), numpy.arange(0, 10)[3:8], (3, 4, 5, 6, 7)):
        assert batch_by_seqlens(array, 10) == plain
    with pytest.raises(TypeError, match="integers"):
        batch_by_seqlens([3.5, 4.0], 10)
    with pytest.raises(TypeError, match="dimension"):
        batch_by_seqlens([[3], [4]], 10)
    with pytest.raises(ValueError, match="-1 tokens"):
        batch_by_seqlens([3, -1], 10)
    with pytest.raises(ValueError, match="4294967296 tokens"):
        batch_by_seqlens([3, 2**32], 10)


def test_every_seed_of_random_orders_as_python_does():
    for seed in (0, 7, -7, 2**63, 10**30, "text"):
        places = list(range(20))
        random.Random(seed).shuffle(places)
        packs, _, _ = batch_by_seqlens([1] * 20, 1, sequence_picking_order="random", seed=seed)
        assert [pack for _, pack in packs] == [[place] for place in places[:-1]], seed


def test_what_is_not_used_is_said_in_the_log(caplog):
    batch_by_seqlens([3, 99, 4, 5], 10)
    assert "1 of 4 sequences are not used: too long" in [record.getMessage() for record in caplog.records]


def test_a_hundred_thousand_sequences_take_no_days():
    lengths = numpy.random.default_rng(7).integers(1, 1000, 100_000)
    packs, sizes, _ = batch_by_seqlens(lengths, 4096, effective_batch_size=8)
    assert len(packs) == 8 * len(sizes)
    assert sum(sizes) > 99_000


def test_rates_are_scaled_by_threads_and_by_a_forked_process():
    expected = scale_lr(32, 48, 0.1, "sqrt")
    assert expected == 0.1 * math.sqrt(48 / 32)
    wrong = []

    def work():
        wrong.extend(rate for rate in (scale_lr(32, 48, 0.1, "sqrt") for _ in range(500)) if rate != expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    child = os.fork()
    if child == 0:
        os._exit(0 if scale_lr(32, 48, 0.1, "sqrt") == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_methods_without_a_rule_leave_the_rate_or_are_refused():
    assert scale_lr(32, 48, 0.1, None) == 0.1
    assert scale_lr(32, 48, 0.1, "None") == 0.1
    with pytest.raises(ValueError, match="Linear"):
        scale_lr(32, 48, 0.1, "Linear")
    with pytest.raises(ValueError, match="whole"):
        scale_lr(32, 1.5, 0.1)
