"""DeepSpeed's scaling of the learning rate. The rules linear and sqrt scale; here are DeepSpeed's arguments."""
from __future__ import annotations

import functools
import threading
from typing import Any

from pliant import _core
from pliant._core import BatchSize, Config, LearningRate

_RULES = ("linear", "sqrt")


class _Rule:
    """A rule for one base batch. Each thread has its own, and makes another one in a process that was forked."""

    def __init__(self, method: str, base_batch: float) -> None:
        self._config = Config.parse(
            f'config_version = 1\n[lr]\nuse = "{method}"\nunit = "sequences"\nbase_lr = 1.0\nbase_batch = {float(base_batch)!r}\n',
            needs=["lr"], read_environment=False, name="scale_lr")
        self._own = threading.local()

    def rate(self, batch: int, base_lr: float) -> float:
        own, forks = self._own, _core._forks()
        if getattr(own, "forks", -1) != forks:
            own.rule, own.forks = LearningRate(self._config), forks
        rule: LearningRate = own.rule
        return rule.at(0, BatchSize(rows=batch, sequences=batch, tokens=batch, loss_tokens=batch), base_lr)


@functools.lru_cache(maxsize=64)
def _rule(method: str, base_batch: float) -> _Rule:
    return _Rule(method, base_batch)


def scale_lr(base_batch_size: float, batch_size: int, base_lr: Any = 1, method: str | None = "linear") -> Any:
    """`base_lr`, which suits `base_batch_size`, for a batch of `batch_size`: by "linear", by "sqrt", or as it is for None and "none".

    Raises ZeroDivisionError for a base batch of 0, ValueError for another method, for negative batches and for parts of a sequence.
    """
    if method is None or (method not in _RULES and method.upper() == "NONE"):
        return base_lr
    if method not in _RULES:
        raise ValueError(f"no scaling method is called {method!r}; linear, sqrt and none are there")
    if base_batch_size == 0:
        raise ZeroDivisionError("base_batch_size is 0; every other batch is infinitely larger")
    if base_batch_size < 0 or batch_size < 0 or int(batch_size) != batch_size:
        raise ValueError(f"a batch of {batch_size} over a base batch of {base_batch_size}; they must be above 0, and batch_size whole")
    rule = _rule(method, float(base_batch_size))
    rate = float(base_lr)
    if rate == 0:
        return 0.0
    return rule.rate(int(batch_size), rate) if rate > 0 else -rule.rate(int(batch_size), -rate)
