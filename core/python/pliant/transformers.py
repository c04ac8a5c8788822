"""Transformers' Trainer over the packs of a PackedBatchSampler. It needs transformers.

    class Trainer(pliant.transformers.PackMixin, transformers.Trainer): pass

    trainer = Trainer(model, arguments, train_dataset=data, sampler=sampler)
    trainer.train(resume_from_checkpoint=True)
"""
from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback  # type: ignore[import]
from transformers.trainer_utils import get_last_checkpoint  # type: ignore[import]

from pliant._errors import Error, Status
from pliant._samplers import PackedBatchSampler
from pliant.torch import LRScheduler, Packed, collate

__all__ = ["PackMixin"]

_FILE = "sampler.json"


def _refused(message: str) -> Error:
    return Error(message, Status.FAILED_PRECONDITION, 2)


class _Positions(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not args.should_save or self._trainer.position is None:
            return
        file = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}" / _FILE
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(self._trainer.position))
        os.replace(partial, file)


class PackMixin:
    """Comes before Trainer among the bases of a class. Its batches are those of `sampler`, a PackedBatchSampler with `placeholders`, of this
    rank; one epoch of Trainer is the whole job, all epochs of [run]. Checkpoints have the sampler's position in `sampler.json`, and `train` goes on there,
    at any world size: batches are not skipped a second time. Where no scheduler is given, that of the config's [lr] follows the batches. The loader draws
    nothing from torch's own generator, so that dropout goes on as it would have.

    `collate` makes a micro-batch of the samples of `train_dataset`. Raises Error (FAILED_PRECONDITION) where Trainer counts other ranks than the sampler,
    accumulates other micro-batches than a step has, has settings that packs leave without effect, takes the mean of the micro-batches' means for the
    loss of a step, or goes on from a checkpoint without a position.
    """

    args: Any
    optimizer: Any
    lr_scheduler: Any
    accelerator: Any
    train_dataset: Any

    def __init__(self, *arguments: Any, sampler: PackedBatchSampler, collate: Callable[[Any], Any] = collate, **keywords: Any) -> None:
        given = keywords.get("args", arguments[1] if len(arguments) > 1 else None)
        if given is None:
            raise _refused("a Trainer over packs needs TrainingArguments: their default accumulates no micro-batches")
        self.sampler = sampler
        self.position: dict[str, Any] | None = None  # behind the micro-batch that was computed last
        self._collate = collate
        _settle(given, sampler)
        super().__init__(*arguments, **keywords)
        self.add_callback(_Positions(self))  # type: ignore[attr-defined]

    def get_train_dataloader(self) -> Any:
        batches: Any = self.sampler.whole_job()
        options = {"num_workers": self.args.dataloader_num_workers, "generator": torch.Generator().manual_seed(torch.initial_seed())}
        loader = torch.utils.data.DataLoader(Packed(self.train_dataset), batch_sampler=batches, collate_fn=self._collate, **options)
        return self.accelerator.prepare(loader)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            why = "the rate follows the batches by the config's [lr]: write it there, as `schedule`, or pass optimizers=(optimizer, scheduler)"
            _require(self.args, why, lr_scheduler_type=("linear", "constant"), warmup_steps=(0,))
            self.lr_scheduler = LRScheduler(self.optimizer if optimizer is None else optimizer, self.sampler.learning_rate())
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None, *others: Any, **keywords: Any) -> Any:
        is_scaled = getattr(self, "loss_is_scaled_for_ga", None)  # None: where the labels of the step are counted
        if not (num_items_in_batch is not None if is_scaled is None else is_scaled):
            raise _refused(
                "Trainer would take the mean of each micro-batch, and the mean of these, which depends on the number of ranks. Have the model's forward take num_items_in_batch "
                "by **kwargs and divide its summed loss by it, pass a compute_loss_func that does, or set loss_is_scaled_for_ga = True for a compute_loss that does"
            )
        after = self.sampler.state_after(inputs)
        if inputs.position[2] == 0 and isinstance(self.lr_scheduler, LRScheduler):  # the last micro-batch of a step
            self.lr_scheduler.batch(self.sampler.size_of(inputs))
        loss = super().training_step(model, inputs, num_items_in_batch, *others, **keywords)  # type: ignore[misc]
        self.position = after
        return loss

    def train(self, resume_from_checkpoint: Any = None, *others: Any, **keywords: Any) -> Any:
        """As Trainer's. True: from the newest checkpoint in `output_dir`, of which there must be one."""
        folder = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        if isinstance(folder, (str, os.PathLike)):
            self._go_on(pathlib.Path(folder))
            folder = os.fspath(folder)
        elif resume_from_checkpoint is True:
            folder = True  # Trainer says what is missing
        elif self.sampler._running is not None:
            raise _refused("the sampler has given micro-batches before, and would begin with another epoch: make another Trainer and sampler, or pass resume_from_checkpoint")
        return super().train(folder, *others, **keywords)  # type: ignore[misc]

    def _go_on(self, folder: pathlib.Path) -> None:
        file = folder / _FILE
        if not file.is_file():
            raise _refused(f"the checkpoint {folder} has no {_FILE}: no Trainer over packs wrote it, or it was killed before it was whole; take another one")
        self.args.ignore_data_skip = True  # whatever was set since: the sampler itself goes on
        position = json.loads(file.read_text())
        self.sampler.load_state_dict(position)
        self.position = position


def _require(given: Any, why: str, **known: tuple[Any, ...]) -> None:  # what settings must be, the default first
    for name, values in known.items():
        found = getattr(given, name, values[0])  # not all releases have all of them
        found = getattr(found, "value", found)  # of an enumeration
        if found not in values:
            raise _refused(f"TrainingArguments({name}={found!r}): {why}")


def _settle(given: Any, sampler: PackedBatchSampler) -> None:
    """Has the arguments say what is so, and refuses those that say something else."""
    if (given.process_index, given.world_size) != (sampler.rank, sampler.world_size):
        raise _refused(
            f"this is rank {given.process_index} of {given.world_size} for Trainer, and the sampler is of rank {sampler.rank} of {sampler.world_size}: "
            "give PackedBatchSampler arguments.process_index and arguments.world_size"
        )
    if not sampler.has_placeholders:
        raise _refused("Trainer takes equally many micro-batches on every rank, and some are empty: PackedBatchSampler(..., placeholders=True)")
    each = sampler.micro_batches_per_step
    if given.gradient_accumulation_steps not in (1, each):
        raise _refused(f"gradient_accumulation_steps is {given.gradient_accumulation_steps}, and a step has {each} micro-batches: leave it out, or set {each}")
    why = "the batches and their order are the sampler's, and [sampler] in its config says what they are; leave it out"
    _require(given, why, train_sampling_strategy=("random",), auto_find_batch_size=(False,))
    _require(given.accelerator_config, "packs cannot be cut; leave it out", split_batches=(False,), dispatch_batches=(None, False))
    _require(given, "the mean of the ranks' means depends on how many there are; leave it out", average_tokens_across_devices=(True,))
    given.gradient_accumulation_steps = each
    given.ignore_data_skip = True
    if given.max_steps <= 0:
        given.num_train_epochs = 1
