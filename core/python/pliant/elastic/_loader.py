"""Loaders: the samples of a step's micro-batches."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.elastic._session import Session, Step


class Loader:
    """Reads the samples of a step when they are asked for, on the thread that asks. Made by `Session.loader`; its `of` takes the steps in their order.

    `dataset[item]` is the sample of `item`, a `pliant.Item`: the number of the sequence, with the row and the piece that it is in. `collate`
    makes a batch of the list of a micro-batch's samples; None: the list is the batch.
    """

    def __init__(self, session: Session, dataset: Any, collate: Callable[[list[Any]], Any] | None = None, num_workers: int = 0) -> None:
        if num_workers != 0:
            raise ValueError(f"num_workers is {num_workers}: this loader has none")
        self._dataset = dataset
        self._collate = collate

    def of(self, step: Step) -> Iterator[Any]:
        """A batch for each micro-batch of `step` that has rows, in order."""
        for items in step.items():
            samples = [self._dataset[item] for item in items]
            yield samples if self._collate is None else self._collate(samples)
