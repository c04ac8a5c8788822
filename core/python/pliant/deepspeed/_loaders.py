"""DeepSpeed's loaders for batches of packs."""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from pliant._core import read_lengths
from pliant.deepspeed._batching import MicroBatchIds, batch_by_seqlens
from pliant.deepspeed._scheduler import VariableBatchSizeLR, lr_scheduler_for_variable_batch_size

_log = logging.getLogger("pliant.deepspeed")

Collate = Callable[[list[Any]], Any]
Pad = Callable[[Any, int], Any]


class _Collate:
    """The samples of micro-batches, one after the other, padded where all of a batch must have one length, through the program's own
    collate function. A class, so that workers that are spawned take it."""

    def __init__(self, dataset: Any, longest: Sequence[int], pad: Pad | None, collate: Collate | None) -> None:
        self._dataset = dataset
        self._longest = longest
        self._pad = pad
        self._collate = collate

    def __call__(self, micro_batches: Sequence[MicroBatchIds]) -> Any:
        samples = [self._sample(batch, sequence) for batch, sequences in micro_batches for sequence in sequences]
        return samples if self._collate is None else self._collate(samples)

    def _sample(self, batch: int, sequence: int) -> Any:
        sample = self._dataset[sequence]
        if self._pad is None:
            return sample
        longest = self._longest[batch]
        if len(sample) > longest:
            raise AssertionError(f"sample {sequence} has a length of {len(sample)}; by the lengths that were packed, {longest} is the longest "
                                 f"of batch {batch}")
        return self._pad(sample, longest)


def dataloader_for_variable_batch_size(
    dataset: Any,
    microbatch_ids: Sequence[MicroBatchIds],
    batch_max_seqlens: Sequence[int],
    dataloader_rank: int = 0,
    dataloader_batch_size: int = 1,
    dataloader_num_replicas: int = 1,
    dataloader_collate_fn: Collate | None = None,
    dataloader_num_workers: int = 2,
    dataloader_pin_memory: bool = False,
    required_microbatches_of_same_seqlen: bool = False,
    sample_padding_fn: Pad | None = None,
) -> tuple[DataLoader[Any], dict[str, Any]]:
    """A loader of the micro-batches that one rank computes, in turn with the others, and the arguments that make the same of
    `engine.deepspeed_io`. Raises ValueError where the ranks cannot have equally many: DeepSpeed gives some micro-batches twice there."""
    if required_microbatches_of_same_seqlen and sample_padding_fn is None:
        raise AssertionError("required_microbatches_of_same_seqlen needs a sample_padding_fn")
    if len(microbatch_ids) % dataloader_num_replicas != 0:
        raise ValueError(f"{len(microbatch_ids)} micro-batches cannot be shared evenly by {dataloader_num_replicas} ranks, and none is used twice; "
                         "take an effective_batch_size that the ranks divide")
    sampler: Any = DistributedSampler(microbatch_ids, dataloader_num_replicas, dataloader_rank, shuffle=False)  # type: ignore[arg-type]
    pad = sample_padding_fn if required_microbatches_of_same_seqlen else None
    collate = _Collate(dataset, batch_max_seqlens, pad, dataloader_collate_fn)
    same = {"dataset": microbatch_ids, "batch_size": dataloader_batch_size, "pin_memory": dataloader_pin_memory, "collate_fn": collate}
    loader: DataLoader[Any] = DataLoader(sampler=sampler, num_workers=dataloader_num_workers, **same)  # type: ignore[arg-type]
    return loader, {**same, "data_sampler": sampler, "num_local_io_workers": dataloader_num_workers}


def get_dataloader_and_lr_scheduler_for_variable_batch_size(
    dataset: Any,
    dataset_seqlens: Any,
    max_tokens: float,
    effective_batch_size: int,
    dataset_filter_ids: Any = None,
    lr_scaling_method: str | None = "linear",
    min_batch_size: float | None = 1,
    max_batch_size: float | None = None,
    sequence_picking_order: str = "dataloader",
    dataloader_batch_size: int = 1,
    dataloader_rank: int = 0,
    dataloader_num_replicas: int = 1,
    dataloader_num_workers: int = 0,
    dataloader_collate_fn: Collate | None = None,
    dataloader_pin_memory: bool = False,
    lr_scheduler_or_optimizer: Any = None,
    required_microbatches_of_same_size: bool = False,
    required_microbatches_of_same_seqlen: bool = False,
    sample_padding_fn: Pad | None = None,
    verbose: bool = False,
    seed: Any = None,
) -> tuple[DataLoader[Any], VariableBatchSizeLR, dict[str, Any]]:
    """Loader, scheduler and arguments of `engine.deepspeed_io` for the packs of batch_by_seqlens. `effective_batch_size` counts packs, as
    train_batch_size does; the rate is scaled by the sequences of a batch over it."""
    packs, sizes, longest = batch_by_seqlens(
        dataset_seqlens,
        max_tokens,
        dataset_filter_ids,
        min_batch_size,
        max_batch_size,
        sequence_picking_order,
        effective_batch_size,
        required_microbatches_of_same_size,
        verbose,
        seed,
    )
    loader, io_arguments = dataloader_for_variable_batch_size(
        dataset,
        packs,
        longest,
        dataloader_rank,
        dataloader_batch_size,
        dataloader_num_replicas,
        dataloader_collate_fn,
        dataloader_num_workers,
        dataloader_pin_memory,
        required_microbatches_of_same_seqlen,
        sample_padding_fn,
    )
    scheduler = lr_scheduler_for_variable_batch_size(
        effective_batch_size, sizes, loader, lr_scheduler_or_optimizer, lr_scaling_method, verbose
    )
    return loader, scheduler, io_arguments


def get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(
    dataset: Any,
    engine: Any,
    dataset_seqlens: Any = None,
    dataset_filter_ids: Any = None,
    dataloader_collate_fn: Collate | None = None,
    sample_padding_fn: Pad | None = None,
    batch_seqlens_fn: Callable[[Any], Any] | None = None,
) -> tuple[DataLoader[Any], VariableBatchSizeLR, dict[str, Any]]:
    """The same with what an engine of DeepSpeed says: its dynamic_batching block, batch sizes, ranks and optimizer. The lengths are
    `dataset_seqlens`, or those of the metric files in metrics_path, or what `batch_seqlens_fn` says of all samples, which is not kept."""
    efficiency = engine._config.data_efficiency_config
    sampling = efficiency["data_sampling"]
    batching = sampling["dynamic_batching"]
    if not batching["enabled"]:
        raise AssertionError("dynamic_batching is off in this engine's config")
    if dataset_seqlens is None:
        dataset_seqlens = _lengths_of(dataset, batching["metrics_path"], dataloader_collate_fn, batch_seqlens_fn)
    in_pipeline = any(base.__name__ == "PipelineEngine" for base in type(engine).__mro__)
    return get_dataloader_and_lr_scheduler_for_variable_batch_size(
        dataset=dataset,
        dataset_seqlens=dataset_seqlens,
        max_tokens=batching["max_tokens"],
        effective_batch_size=engine.train_batch_size(),
        dataset_filter_ids=dataset_filter_ids,
        lr_scaling_method=batching["lr_scaling_method"],
        min_batch_size=batching["min_batch_size"],
        max_batch_size=batching["max_batch_size"],
        sequence_picking_order=batching["sequence_picking_order"],
        dataloader_batch_size=engine.train_micro_batch_size_per_gpu(),
        dataloader_rank=engine.data_parallel_group.rank(),
        dataloader_num_replicas=engine.data_parallel_group.size(),
        dataloader_num_workers=sampling["num_workers"],
        dataloader_collate_fn=dataloader_collate_fn,
        dataloader_pin_memory=sampling["pin_memory"],
        lr_scheduler_or_optimizer=engine.lr_scheduler or engine.optimizer,
        required_microbatches_of_same_size=in_pipeline,
        required_microbatches_of_same_seqlen=in_pipeline,
        sample_padding_fn=sample_padding_fn,
        verbose=batching["verbose"],
        seed=efficiency["seed"],
    )


_SAMPLES_AT_ONCE = 1024


def _lengths_of(dataset: Any, metrics_path: str, collate: Collate | None, batch_seqlens: Callable[[Any], Any] | None) -> Any:
    stem = os.path.join(metrics_path, "seqlen", "seqlen_sample_to_metric")
    if os.path.exists(stem + ".idx") and os.path.exists(stem + ".bin"):
        lengths = read_lengths(metrics_path)
        if len(lengths) != len(dataset):
            raise AssertionError(f"{stem}.idx has the lengths of {len(lengths)} samples, the data set has {len(dataset)}; remove the files "
                                 "where the data set was changed")
        return lengths
    if batch_seqlens is None:
        raise ValueError(f"no lengths: give dataset_seqlens or batch_seqlens_fn, or write {stem}.idx and .bin")
    _log.warning("%s.idx is not there; the lengths of all %d samples are asked for", stem, len(dataset))
    found: list[int] = []
    for first in range(0, len(dataset), _SAMPLES_AT_ONCE):
        samples = [dataset[number] for number in range(first, min(first + _SAMPLES_AT_ONCE, len(dataset)))]
        found.extend(int(length) for length in batch_seqlens(samples if collate is None else collate(samples)))
    if len(found) != len(dataset):
        raise AssertionError(f"batch_seqlens_fn gave {len(found)} lengths for {len(dataset)} samples")
    return found
