"""A data set whose sequences may be cut."""
from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch.utils.data

from pliant._errors import Error, Status
from pliant._samplers import Item, Position
from pliant._wrappers import require_items


class Sample(dict[str, Any]):
    """A sample of a data set, or a piece of one, with what its item said."""

    row: int = -1
    piece: tuple[int, int, bool] | None = None
    position: Position | None = None


class Samples(list[Sample]):
    """The samples of a micro-batch, which know their position even where there are none."""

    position: Position | None = None


class Packed(torch.utils.data.Dataset[Any]):
    """`dataset` behind a PackedBatchSampler: an item that stands for a piece of a sequence gives that piece. Samples are mappings; of their
    values those are cut that are as long as the value of `tokens`. Raises TypeError for a data set that knows no `dataset[i]`, such as an IterableDataset."""

    def __init__(self, dataset: Any, *, tokens: str = "input_ids") -> None:
        require_items(dataset, "pliant.torch.Packed")
        self.dataset = dataset
        self.tokens = tokens

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: int) -> Sample:
        if isinstance(item, Item) and item.row < 0:
            return _no_sample(item)
        return self._sample(self.dataset[int(item)], item)

    def __getitems__(self, items: Sequence[int]) -> Samples:
        if len(items) == 1 and isinstance(items[0], Item) and items[0].row < 0:
            return Samples([_no_sample(items[0])])
        numbers = [int(item) for item in items]
        ask = getattr(self.dataset, "__getitems__", None)
        found = ask(numbers) if ask is not None else [self.dataset[number] for number in numbers]
        if len(found) != len(items):
            raise Error(f"the data set gave {len(found)} samples for {len(items)} items", Status.FAILED_PRECONDITION)
        samples = Samples(self._sample(sample, item) for sample, item in zip(found, items))
        samples.position = getattr(items, "position", None)
        return samples

    def _sample(self, found: Any, item: int) -> Sample:
        if not isinstance(found, Mapping):
            raise Error(f"sample {int(item)} is a {type(found).__name__}; Packed takes mappings, such as {{{self.tokens!r}: ...}}", Status.INVALID_ARGUMENT)
        if self.tokens not in found:
            raise Error(f"sample {int(item)} has no {self.tokens!r}; say which value holds the tokens: Packed(dataset, tokens=...)")
        sample = Sample(found)
        if not isinstance(item, Item):
            return sample
        sample.row, sample.piece, sample.position = item.row, item.piece, item.position
        if item.piece is not None:
            first, count, _ = item.piece
            whole = len(found[self.tokens])
            if first + count > whole:
                raise Error(
                    f"sample {int(item)} has {whole} tokens; the lengths that the sampler was given say {first + count} at least",
                    Status.FAILED_PRECONDITION,
                )
            for name, value in found.items():
                if _length_of(value) == whole:
                    sample[name] = value[first : first + count]
        return sample


def _length_of(value: Any) -> int:
    """-1 for what is not cut: text, mappings, a number, in an array of its own or not."""
    if isinstance(value, (str, bytes, Mapping, Set)) or not hasattr(value, "__len__") or getattr(value, "shape", None) == ():
        return -1
    return len(value)


def _no_sample(item: Item) -> Sample:
    """What stands for a micro-batch without sequences."""
    sample = Sample()
    sample.position = item.position
    return sample
