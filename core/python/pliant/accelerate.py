"""Packs under Accelerate: a loader that is dealt out once, and whose position is in the checkpoints. It needs accelerate.

    loader = pliant.accelerate.PackLoader(accelerator, sampler, dataset)
    for batch in loader: ...
    accelerator.save_state(folder)
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import Accelerator  # type: ignore[import]

from pliant._errors import Error, Status
from pliant._samplers import PackedBatchSampler
from pliant.torch import Packed, collate

__all__ = ["PackLoader"]


def _refused(message: str) -> Error:
    return Error(message, Status.FAILED_PRECONDITION, 2)


class PackLoader:
    """The micro-batches of `sampler`, a PackedBatchSampler with `placeholders`, of the process of `accelerator`, as `accelerator.prepare` makes them: on its
    device, and not dealt out to the processes a second time. Each `iter` is the next epoch; `whole_job` makes one of all.

    `accelerator.save_state` keeps the position behind the batch that the loop got last, which is the same on every process, and `load_state` goes on there at any number of
    them: `skip_first_batches` is not needed. A step that was not whole begins again, for what was computed of its gradient is in no checkpoint. The loader draws
    nothing from torch's own generator, so that dropout goes on as it would have. `options` are DataLoader's.

    Raises Error (FAILED_PRECONDITION) for another rank than the sampler's, for `dispatch_batches`, `split_batches` and `use_stateful_dataloader`, and where
    `accelerator.accumulate` would count other micro-batches than a step has.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        sampler: PackedBatchSampler,
        dataset: Any,
        collate: Callable[[Any], Any] = collate,
        *,
        whole_job: bool = False,
        **options: Any,
    ) -> None:
        _check(accelerator, sampler)
        self.sampler = sampler
        self._accelerator = accelerator
        self._state = sampler.state_dict()
        batches: Any = sampler.whole_job() if whole_job else sampler
        options.setdefault("generator", torch.Generator().manual_seed(torch.initial_seed()))
        self._loader = accelerator.prepare(torch.utils.data.DataLoader(Packed(dataset), batch_sampler=batches, collate_fn=collate, **options))
        accelerator.register_for_checkpointing(self)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._state = self.sampler.state_after(batch)
            yield batch

    def __len__(self) -> int:
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Behind the batch that was given last."""
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on in front of the step that was under way, where `accelerator.accumulate` begins to count again: of a step another number of processes
        has other micro-batches than its checkpoint counts."""
        self._state = self.sampler._in_front_of_step(state)
        self.sampler.load_state_dict(self._state)
        self._accelerator.step = 0


def _check(accelerator: Any, sampler: PackedBatchSampler) -> None:
    own = (accelerator.process_index, accelerator.num_processes)
    if own != (sampler.rank, sampler.world_size):
        raise _refused(
            f"this is process {own[0]} of {own[1]} for Accelerate, and the sampler is of rank {sampler.rank} of {sampler.world_size}: give "
            "PackedBatchSampler accelerator.process_index and accelerator.num_processes"
        )
    if not sampler.has_placeholders and own[1] > 1:
        raise _refused("every process takes equally many micro-batches, and some are empty: PackedBatchSampler(..., placeholders=True)")
    settings = accelerator.dataloader_config
    for name, why in (
        ("dispatch_batches", "packs cannot be cut, and each process has a sampler of its own"),
        ("split_batches", "packs cannot be cut"),
        ("use_stateful_dataloader", "the position is in the checkpoint already"),
    ):
        if getattr(settings, name, False):
            raise _refused(f"DataLoaderConfiguration({name}=True): {why}; set it to False")
    each = sampler.micro_batches_per_step
    if accelerator.gradient_accumulation_steps not in (1, each):
        raise _refused(
            f"Accelerator(gradient_accumulation_steps={accelerator.gradient_accumulation_steps}), and a step has {each} micro-batches: set {each}, or leave it "
            "out and end a step where batch.position[2] is 0"
        )
