"""Packs under torchtitan: a dataloader whose state serves every data-parallel size, and its config. It needs torchtitan.

    trainer.dataloader = pliant.torchtitan.PackLoader.Config(job="pliant.toml", samples=my_samples)
"""
from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import]
from torchtitan.components.dataloader import ParallelAwareDataloader  # type: ignore[import]

from pliant._errors import Error, Status
from pliant._samplers import PackedBatchSampler
from pliant.torch import Packed, collate

__all__ = ["PackLoader"]


class PackLoader(ParallelAwareDataloader):  # type: ignore[misc]
    """The packs of a job as torchtitan's trainer takes them: `input` and `positions`, and labels. Its state is the same on every rank, and goes on at
    another data-parallel size. A trainer's step is a step of the job where its batches are those of the plan: training.local_batch_size is 1, and
    training.global_batch_size the data-parallel size times the sampler's `micro_batches_per_step`.

    Raises Error (INVALID_ARGUMENT) for a config without its two entries, and (FAILED_PRECONDITION) for another local batch size; a micro-batch that is longer than
    training.seq_len is refused when it is read, at once where a row of the first epoch alone is.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):  # type: ignore[misc]
        job: str = ""
        """The job's pliant.toml: batches, packs and epochs."""

        samples: Callable[[Any], Any] | None = None
        """A function of the tokenizer that gives a data set: `lengths`, tokens of each sequence, and `[i]`, a dict with `input_ids`."""

    def __init__(self, config: Any, *, dp_world_size: int, dp_rank: int, tokenizer: Any, seq_len: int, local_batch_size: int, **others: Any) -> None:
        if not config.job or config.samples is None:
            raise Error("PackLoader.Config needs `job`, a pliant.toml, and `samples`, a function of the tokenizer", Status.INVALID_ARGUMENT, 2)
        if local_batch_size != 1:
            raise Error(
                f"training.local_batch_size is {local_batch_size}, and a micro-batch of packs is one sequence, as long as it is: set 1",
                Status.FAILED_PRECONDITION,
                2,
            )
        samples = config.samples(tokenizer)
        sampler = PackedBatchSampler(config.job, samples.lengths, dp_rank, dp_world_size, placeholders=True)
        _check_length(sampler.batches.epoch(0).longest_row, seq_len)  # before training begins
        super().__init__(
            Packed(samples),
            dp_rank,
            dp_world_size,
            batch_sampler=sampler.whole_job(),
            collate_fn=_Collate(seq_len),
            num_workers=config.num_workers,
            persistent_workers=config.persistent_workers,
            pin_memory=config.pin_memory,
            prefetch_factor=config.prefetch_factor,
            **{name: value for name, value in others.items() if name == "snapshot_every_n_steps" and value is not None},
        )

    def state_dict(self) -> dict[str, Any]:
        return {"loader": pickle.dumps(StatefulDataLoader.state_dict(self))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:  # torchtitan's may be empty
            StatefulDataLoader.load_state_dict(self, pickle.loads(state_dict["loader"]))


def _check_length(tokens: int, seq_len: int) -> None:
    if tokens <= seq_len:
        return
    raise Error(
        f"a micro-batch has {tokens} tokens, more than training.seq_len = {seq_len}: set that to the tokens of a pack times the rows of a micro-batch",
        Status.FAILED_PRECONDITION,
        2,
    )


@dataclass
class _Collate:
    seq_len: int

    def __call__(self, samples: Any) -> Any:
        inputs, labels = collate(samples, style="torchtitan")
        _check_length(labels.numel(), self.seq_len)
        return inputs, labels
