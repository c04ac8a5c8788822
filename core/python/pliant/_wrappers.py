"""What lies between a sampler and a loop: wrappers that deal its micro-batches out once more, or skip some of them, and data sets."""
from __future__ import annotations

import sys

from pliant._errors import Error, Status

TYPE_CHECKING = False  # as in _errors.py
if TYPE_CHECKING:
    from typing import Any

    from pliant._samplers import PackedBatchSampler


def see_to_wrappers(sampler: PackedBatchSampler, inner: Any) -> None:
    """To be called by what a wrapper calls of `inner`, the sampler or what stands for it: the wrappers are those in whose methods that call is,
    the innermost first.

    A wrapper that deals whole micro-batches to `num_processes`, as Accelerate's BatchSamplerShard does, then counts one process where it
    would give this rank its share of what is this rank's share already. Raises Error where it counts other ranks than the sampler, where a
    DataLoaderDispatcher cuts batches up, and where a SkipBatchSampler skips what a loaded state has skipped.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        outer = frame.f_locals.get("self") if _is_of_wrapper(frame.f_code.co_name) else None
        if outer is not None and outer is not inner and _inside(outer) is inner:
            if any(base.__name__ == "DataLoaderDispatcher" for base in type(outer).__mro__):
                _check_dispatcher(outer, sampler)
            elif hasattr(outer, "num_processes") and hasattr(outer, "process_index"):
                _undo(outer, sampler)
                inner = outer
            elif hasattr(outer, "skip_batches"):
                _check_skipped(outer, sampler)
                inner = outer
        frame = frame.f_back


def loader_that_counts() -> Any:
    """The loader whose `__iter__` calls, through its own `set_epoch`, what calls this, with its own count of epochs, as Accelerate's do: it
    begins at 0 whatever was loaded. None: a loop says which epoch it means."""
    frame = sys._getframe(1).f_back
    outer = None if frame is None else frame.f_back
    if frame is None or outer is None or (frame.f_code.co_name, outer.f_code.co_name) != ("set_epoch", "__iter__"):
        return None
    loader = frame.f_locals.get("self")
    return loader if outer.f_locals.get("self") is loader and hasattr(loader, "iteration") else None


def require_items(dataset: Any, reader: str) -> None:
    """Raises TypeError where `reader` could ask `dataset` for no item."""
    ask = getattr(type(dataset), "__getitem__", None)
    known = getattr(sys.modules.get("torch.utils.data"), "Dataset", None)  # whose own raises NotImplementedError
    if hasattr(dataset, "__getitems__") or (ask is not None and (known is None or ask is not known.__getitem__)):
        return
    raise TypeError(
        f"the data set is a {type(dataset).__name__}, which knows no item by its number; {reader} asks for `dataset[i]`, in the order of the job's "
        "batches: give a data set with __getitem__, such as a list or a map-style data set of torch"
    )


def _is_of_wrapper(method: str) -> bool:
    return method in ("__iter__", "__len__", "total_length") or method.startswith("_iter_")


def _inside(outer: Any) -> Any:
    try:
        return getattr(outer, "batch_sampler", None)
    except Exception:  # of a property: it is nobody who wraps a sampler
        return None


def _undo(shard: Any, sampler: PackedBatchSampler) -> None:
    ranks = shard.num_processes
    if ranks == 1:
        return
    if (shard.process_index, ranks) != (sampler.rank, sampler.world_size):
        raise Error(
            f"{type(shard).__name__} deals the micro-batches of rank {sampler.rank} of {sampler.world_size} out to {ranks} processes, so "
            f"that steps are no global batches any more and samples may be lost: give PackedBatchSampler rank={shard.process_index} and "
            f"world_size={ranks}, such as accelerator.process_index and accelerator.num_processes",
            Status.FAILED_PRECONDITION,
            2,
        )
    shard.num_processes, shard.process_index = 1, 0
    from pliant import _log  # late: logging takes long to import

    text = f"{type(shard).__name__} shards no more: the sampler gives rank {sampler.rank} of {sampler.world_size} its share"
    _log.deliver(1, "pliant.sampler", text)


def _check_skipped(skipping: Any, sampler: PackedBatchSampler) -> None:
    resume = sampler._resume
    if skipping.skip_batches and resume is not None and not resume[3] and resume[1:3] != (0, 0):
        raise Error(
            f"the sampler goes on within epoch {resume[0]} where the loaded state says, and {type(skipping).__name__} skips "
            f"{skipping.skip_batches} micro-batches of the rest: load a state or skip, not both (Trainer: ignore_data_skip=True)",
            Status.FAILED_PRECONDITION,
            2,
        )


def _check_dispatcher(dispatcher: Any, sampler: PackedBatchSampler) -> None:
    ranks = getattr(getattr(dispatcher, "state", None), "num_processes", 1)
    if ranks != 1 or sampler.world_size != 1:
        raise Error(
            f"{type(dispatcher).__name__} reads batches in one process and cuts them up for all; packs cannot be cut, and each rank has a "
            "sampler of its own: DataLoaderConfiguration(dispatch_batches=False)",
            Status.FAILED_PRECONDITION,
            2,
        )
