"""DeepSpeed's scheduler for batches of many sizes, over schedulers of torch and of DeepSpeed."""
from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer

from pliant.deepspeed._rate import scale_lr

if TYPE_CHECKING:
    _Scheduler = object  # what torch says of its own differs from version to version
else:  # the public name is newer than some versions in use
    _Scheduler = getattr(torch.optim.lr_scheduler, "LRScheduler", torch.optim.lr_scheduler._LRScheduler)

_log = logging.getLogger("pliant.deepspeed")

# What a state has beside that of the scheduler within, under DeepSpeed's names, so that its checkpoints are read.
_STATE = ("base_batch_size", "lr_scaling_method", "batch_sizes", "base_lrs", "last_epoch", "verbose")


class VariableBatchSizeLR(_Scheduler):
    """Steps `lr_scheduler`, and scales the rate that it sets by the size of the batch that comes next: `batch_sizes[k]` for step k, from the
    first again after the last. `base_batch_size` is what the unscaled rate suits.

    `get_last_lr` gives the unscaled rates, `get_lr` those that the optimizer has. `pliant.torch.LRScheduler` does the same with any rule,
    for a size that is known only when the batch is there.
    """

    def __init__(
        self,
        lr_scheduler: Any,
        base_batch_size: float,
        batch_sizes: Any,
        dataloader: Any,
        lr_scaling_method: str | None = "linear",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        # Not torch's own beginning, which would step this one: rates and steps are those of the scheduler within.
        self.base_lr_scheduler = lr_scheduler
        self.base_batch_size = base_batch_size
        self.batch_sizes = batch_sizes
        self.dataloader = dataloader
        self.lr_scaling_method = lr_scaling_method
        self.last_epoch = last_epoch
        self.verbose = verbose
        # Schedulers of DeepSpeed have no last rate before their first step; those of torch give the next one by get_lr in some versions.
        is_of_torch = isinstance(lr_scheduler, _Scheduler)
        self.base_lrs = list(lr_scheduler.get_last_lr() if is_of_torch else lr_scheduler.get_lr())
        self.step(0)

    @property
    def optimizer(self) -> Any:
        return self.base_lr_scheduler.optimizer

    def step(self, epoch: int | None = None) -> None:
        """The next step; `epoch`: that one. The scheduler within finds the rates that it left."""
        self._set(self.base_lrs if epoch == 0 else self.get_last_lr())
        if epoch is None:
            self.base_lr_scheduler.step()
            self.last_epoch += 1
        else:
            self.base_lr_scheduler.step(epoch)
            self.last_epoch = epoch
        size = self.batch_sizes[self.last_epoch % len(self.batch_sizes)]
        unscaled = self.get_lr()
        self._set(scale_lr(self.base_batch_size, size, rate, self.lr_scaling_method) for rate in unscaled)
        if self.verbose:
            _log.info("step %d: batch of %s over %s, rates %s scaled to %s", self.last_epoch, size, self.base_batch_size, unscaled, self.get_lr())

    def get_lr(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        return list(self.base_lr_scheduler.get_last_lr())

    def state_dict(self) -> dict[str, Any]:
        return {"base_lr_scheduler": self.base_lr_scheduler.state_dict(), **{name: getattr(self, name) for name in _STATE}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The rates are in the state of the optimizer, which has to be loaded, too."""
        self.base_lr_scheduler.load_state_dict(state_dict["base_lr_scheduler"])
        for name in _STATE:
            setattr(self, name, state_dict[name])

    def _set(self, rates: Iterable[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def _always_one(_step: int) -> float:
    return 1.0


def lr_scheduler_for_variable_batch_size(
    base_batch_size: float,
    batch_sizes: Any,
    dataloader: Any,
    lr_scheduler_or_optimizer: Any,
    lr_scaling_method: str | None = "linear",
    verbose: bool = False,
) -> VariableBatchSizeLR:
    """A VariableBatchSizeLR over a scheduler, or over an optimizer, whose rates are constant then."""
    scheduler = lr_scheduler_or_optimizer
    if isinstance(scheduler, Optimizer):
        scheduler = LambdaLR(scheduler, _always_one)
    elif not hasattr(scheduler, "optimizer"):
        raise ValueError(f"lr_scheduler_or_optimizer is a {type(scheduler).__name__}; it must be a scheduler or an optimizer of torch")
    elif not isinstance(scheduler.optimizer, Optimizer):
        raise AssertionError(f"the scheduler is one of a {type(scheduler.optimizer).__name__}, which is no optimizer of torch")
    return VariableBatchSizeLR(scheduler, base_batch_size, batch_sizes, dataloader, lr_scaling_method, verbose=verbose)
