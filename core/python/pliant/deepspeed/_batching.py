"""DeepSpeed's batches of packs. The sampler seqlen packs; here are DeepSpeed's arguments and results."""
from __future__ import annotations

import logging
import math
import operator
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pliant._core import Batches, Config, Planner
from pliant._errors import Error, Status

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Integers = NDArray[int64]

_log = logging.getLogger("pliant.deepspeed")

_ORDERS = ("dataloader", "random", "seqlen")
_LONGEST = 2**31 - 1

# Batch id, and the sequences of one micro-batch.
MicroBatchIds = tuple[int, list[int]]


def batch_by_seqlens(
    seqlens: Any,
    max_tokens: float,
    sequence_ids_per_mb: Any = None,
    min_batch_size: float | None = 1,
    max_batch_size: float | None = None,
    sequence_picking_order: str = "dataloader",
    effective_batch_size: int = 1,
    required_microbatches_of_same_size: bool = False,
    verbose: bool = False,
    seed: Any = None,
) -> tuple[list[MicroBatchIds], list[int], list[int]]:
    """Packs of at most `max_tokens` tokens, `effective_batch_size` of them a batch: of each pack the number of its batch and its sequences;
    of each batch the number of its sequences, and the length of its longest one.

    The packs are those of DeepSpeed, in time that grows with the number of sequences; what its rule drops, the last sequence of every data
    set among them, is dropped here, too, and said in the log. Raises AssertionError where there is not one whole batch, TypeError for lengths
    with a fraction, ValueError for negative ones or such that have no place in 31 bits.
    """
    if sequence_picking_order not in _ORDERS:
        raise AssertionError(f"sequence_picking_order is {sequence_picking_order!r}; it must be one of {', '.join(_ORDERS)}")
    per_batch = operator.index(effective_batch_size)
    if per_batch < 1:
        raise ValueError(f"effective_batch_size is {per_batch}; it must be at least 1")
    lengths, names = _chosen(seqlens, sequence_ids_per_mb)
    lengths, names, order, plugin_seed = _ordered(lengths, names, sequence_picking_order, seed)
    cap = _cap(max_tokens, lengths)
    least = max(0, math.ceil(min_batch_size or 0))
    most = math.floor(max_batch_size) if max_batch_size else 0
    if len(lengths) == 0 or cap < 0 or (max_batch_size and most < 1):
        raise AssertionError(_not_enough(per_batch, "no sequence can be used"))
    asked, cap = _without_zeros(lengths, cap)
    config = Config.parse(
        _TOML.format(seed=plugin_seed, per_batch=per_batch, max_tokens=cap, least=least, most=most, order=order,
                     same_size="true" if required_microbatches_of_same_size else "false"),
        needs=["elasticity", "sampler"], read_environment=False, name="batch_by_seqlens")
    try:
        batches = Batches(config, Planner(config).plan(), asked)
    except Error as error:
        if error.status in (Status.FAILED_PRECONDITION, Status.OUT_OF_RANGE):
            raise AssertionError(_not_enough(per_batch, error.message)) from error
        raise
    return _listed(batches, lengths, names, verbose)


_TOML = """config_version = 1
[run]
seed = {seed}
[elasticity]
use = "v0.1"
[elasticity."v0.1"]
max_train_batch_size = {per_batch}
micro_batch_sizes = [{per_batch}]
max_gpus = 1
[sampler]
use = "seqlen"
[sampler.seqlen]
max_tokens = {max_tokens}
min_batch_size = {least}
max_batch_size = {most}
sequence_picking_order = "{order}"
required_microbatches_of_same_size = {same_size}
over_long = "drop"
"""


def _not_enough(per_batch: int, why: str) -> str:
    return f"not enough sequences for one batch of {per_batch} packs: {why}"


def _integers(values: Any, name: str) -> Integers:
    import numpy

    array = numpy.asarray(values)
    if array.size == 0:
        return numpy.zeros(0, dtype=numpy.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    if array.ndim != 1:
        raise TypeError(f"{name} must have one dimension, not {array.ndim}")
    return array.astype(numpy.int64)


def _chosen(seqlens: Any, ids: Any) -> tuple[Integers, Sequence[int]]:
    """The lengths, and what the sequences are called."""
    lengths = _integers(seqlens, "seqlens")
    if len(lengths) and (lengths.min() < 0 or lengths.max() > _LONGEST):
        raise ValueError(f"a length of {lengths.min() if lengths.min() < 0 else lengths.max()} tokens; it must be from 0 to {_LONGEST}")
    if ids is None:
        return lengths, range(len(lengths))
    return lengths[_integers(ids, "sequence_ids_per_mb")], list(ids)


def _ordered(lengths: Integers, names: Sequence[int], order: str, seed: Any) -> tuple[Integers, Sequence[int], str, int]:
    """Sequences in an order such that the sampler's own one, by their places, is the one asked for; that order, and its seed."""
    import numpy

    if order == "seqlen" and not isinstance(names, range):  # of equally long ones the smaller id comes first
        places = numpy.argsort(numpy.asarray(names, dtype=numpy.int64), kind="stable").tolist()
        return lengths[places], [names[place] for place in places], order, 0
    if order != "random":
        return lengths, names, order, 0
    if isinstance(seed, int) and abs(seed) < 2**63:
        return lengths, names, order, abs(seed)
    places = list(range(len(names)))  # no seed, or one that no config holds
    random.Random(seed).shuffle(places)
    return lengths[numpy.asarray(places, dtype=numpy.int64)], [names[place] for place in places], "dataloader", 0


def _cap(max_tokens: Any, lengths: Integers) -> int:
    if not isinstance(max_tokens, (int, float)) and not hasattr(max_tokens, "__floor__") and not hasattr(max_tokens, "__index__"):
        raise TypeError(f"max_tokens must be a number, not a {type(max_tokens).__name__}")
    if math.isnan(max_tokens):
        raise ValueError("max_tokens is not a number")
    total = int(lengths.sum()) if len(lengths) else 0  # more is no limit
    whole: int = total if max_tokens >= total else math.floor(max_tokens)
    return whole


def _without_zeros(lengths: Integers, cap: int) -> tuple[Integers, int]:
    """Lengths of at least 1, as Batches wants them, that give the same packs: every token counts as many as there are sequences without
    one, and one more, and each of those counts one."""
    zeros = int((lengths == 0).sum())
    if zeros == 0:
        return lengths.astype("int32"), cap
    scale = zeros + 1
    asked = lengths * scale
    asked[lengths == 0] = 1
    if asked.max() > _LONGEST:
        raise ValueError(f"{zeros} sequences without a token beside one of {lengths.max()} tokens; remove them from seqlens")
    return asked.astype("int32"), cap * scale + scale - 1


def _listed(batches: Batches, lengths: Integers, names: Sequence[int], verbose: bool) -> tuple[list[MicroBatchIds], list[int], list[int]]:
    summary = batches.epoch(0)
    for reason, count in summary.dropped.items():
        if count:
            _log.warning("%d of %d sequences are not used: %s", count, len(lengths), reason.replace("_", " "))
    micro_batches: list[MicroBatchIds] = []
    sizes: list[int] = []
    longest: list[int] = []
    for index in range(summary.batches):
        batch = batches.batch(0, index)
        ids, ends = batch.ids.tolist(), batch.offsets.tolist()
        for first, end in zip(ends, ends[1:]):
            micro_batches.append((index, [names[place] for place in ids[first:end]]))
        sizes.append(len(ids))
        longest.append(int(lengths[batch.ids].max()))
        if verbose:
            _log.info("batch %d: %d micro-batches, %d sequences of at most %d tokens", index, len(ends) - 1, sizes[-1], longest[-1])
    return micro_batches, sizes, longest
