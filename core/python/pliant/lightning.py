"""Packs under Lightning: rate and position follow the batches. It needs lightning.

    packs = pliant.lightning.PackCallback(sampler)
    trainer = lightning.Trainer(callbacks=[packs], **packs.trainer_options)
    trainer.fit(module, packs.loader(dataset))
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback  # type: ignore[import]

from pliant._errors import Error, Status
from pliant._samplers import PackedBatchSampler
from pliant.torch import LRScheduler, Packed, collate

__all__ = ["PackCallback"]


def _refused(message: str) -> Error:
    return Error(message, Status.FAILED_PRECONDITION, 2)


class PackCallback(Callback):  # type: ignore[misc]
    """Keeps the position of `sampler`, a PackedBatchSampler with `placeholders`, in Lightning's checkpoints, which go on at any number of devices, and sets the
    optimizer for each step by the rule of the config's [lr]. One epoch of Lightning is the whole job. Callbacks that save checkpoints come after it in
    the list, as ModelCheckpoint always does. From one that was written in the middle of a step, the step begins again, for what was computed of its
    gradient is in no checkpoint.

    `inner`: a function of the optimizer that gives a scheduler of torch, which moves the rates that suit the base batch. `with_rate=False`: rates are the
    module's affair. Raises Error (FAILED_PRECONDITION) where the Trainer counts other ranks than the sampler, accumulates other micro-batches than a step has,
    ends within a step, as `limit_train_batches` may have it, or has several optimizers, for a sampler that has given micro-batches before and goes on from
    no checkpoint, and for batches of another loader than `loader` gives.
    """

    def __init__(self, sampler: PackedBatchSampler, *, inner: Callable[[Any], Any] | None = None, with_rate: bool = True) -> None:
        self.sampler = sampler
        self.scheduler: LRScheduler | None = None
        self._inner = inner
        self._with_rate = with_rate
        self._state = sampler.state_dict()
        self._state_of_scheduler: dict[str, Any] | None = None
        self._has_begun = False  # the sampler, before this fit

    @property
    def trainer_options(self) -> dict[str, Any]:
        """What the Trainer must be given besides."""
        return {"accumulate_grad_batches": self.sampler.micro_batches_per_step, "use_distributed_sampler": False, "max_epochs": 1}

    def loader(self, dataset: Any, collate: Callable[[Any], Any] = collate, **options: Any) -> Any:
        """A DataLoader over the whole job. `options` are its own."""
        batches: Any = self.sampler.whole_job()
        return torch.utils.data.DataLoader(Packed(dataset), batch_sampler=batches, collate_fn=collate, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        own = (trainer.global_rank, trainer.world_size)
        if own != (self.sampler.rank, self.sampler.world_size):
            raise _refused(
                f"this is rank {own[0]} of {own[1]} for Lightning, and the sampler is of rank {self.sampler.rank} of {self.sampler.world_size}: give "
                "PackedBatchSampler the rank and the world size of the group, RANK and WORLD_SIZE under torchrun"
            )
        if not self.sampler.has_placeholders and own[1] > 1:
            raise _refused("every rank takes equally many micro-batches, and some are empty: PackedBatchSampler(..., placeholders=True)")
        each = self.sampler.micro_batches_per_step
        if trainer.accumulate_grad_batches != each:
            raise _refused(f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}), and a step has {each} micro-batches: set {each}")
        self._has_begun = self.sampler._running is not None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._has_begun:
            raise _refused("the sampler has given micro-batches before, and would begin with another epoch: make another PackCallback and sampler, or pass ckpt_path")
        taken, each = trainer.num_training_batches, self.sampler.micro_batches_per_step
        if math.isfinite(taken) and taken % each:
            raise _refused(
                f"the Trainer takes {taken} micro-batches, and a step has {each}: the last step would be made of a part of its batch. Give "
                f"limit_train_batches (or overfit_batches, fast_dev_run) a multiple of {each}, or Trainer(max_steps=), which counts steps"
            )
        if not self._with_rate:
            return
        if len(trainer.optimizers) != 1:
            raise _refused(f"the module has {len(trainer.optimizers)} optimizers, and one rate follows the batches: PackCallback(..., with_rate=False)")
        optimizer = trainer.optimizers[0]
        inner = None if self._inner is None else self._inner(optimizer)
        self.scheduler = LRScheduler(optimizer, self.sampler.learning_rate(), inner)
        if self._state_of_scheduler is not None:
            self.scheduler.load_state_dict(self._state_of_scheduler)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if getattr(batch, "position", None) is None:
            raise _refused(
                f"Lightning gives a {type(batch).__name__} that has no position among the packs: fit(module, packs.loader(dataset)) takes that loader alone, and "
                "its collate keeps the position"
            )
        if self.scheduler is not None and batch.position[2] == 0:  # the last micro-batch of a step
            self.scheduler.batch(self.sampler.size_of(batch))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.scheduler is not None and batch.position[2] == 0:
            self.scheduler.step()
        self._state = self.sampler.state_after(batch)

    def state_dict(self) -> dict[str, Any]:
        scheduler = None if self.scheduler is None else self.scheduler.state_dict()
        return {"sampler": self._state, "scheduler": scheduler, "each": self.sampler.micro_batches_per_step}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Lightning counts micro-batches, of which a step has others at another number of ranks; it goes on in front of a step."""
        if self.state_key not in checkpoint["callbacks"]:  # written without one
            return
        each = checkpoint["callbacks"][self.state_key]["each"]
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        ready = progress["current"]["ready"]
        more = ready // each * self.sampler.micro_batches_per_step - ready
        for counts in (progress["current"], progress["total"]):
            counts.update({name: count + more for name, count in counts.items()})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._has_begun = False
        self._state = self.sampler._in_front_of_step(state_dict["sampler"])
        self._state_of_scheduler = state_dict["scheduler"]
        self.sampler.load_state_dict(self._state)
