"""A micro-batch as one flat sequence of tokens, under the names that models and kernels ask for."""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pliant._errors import Error, Status
from pliant._samplers import Position
from pliant.torch._packed import Sample

_STYLES = ("transformers", "flash_attn", "torchtitan", "sdpa")


_PINNER = "torch.utils.data._utils.pin_memory"
_CARRIED = "pliant.position"


class MicroBatchDict(dict[str, Any]):
    """What `collate` gives, with torchtitan in front of the labels. `position`: where a loop goes on behind it, for PackedBatchSampler.state_after; None where the samples did not
    come through Packed."""

    position: Position | None = None

    def to(self, device: Any, **how: Any) -> MicroBatchDict:
        """The same with its tensors on `device`; `how` as for Tensor.to."""
        return self._with({name: value.to(device, **how) if isinstance(value, torch.Tensor) else value for name, value in self.items()})

    def pin_memory(self) -> MicroBatchDict:
        """The same with its tensors in pinned memory. A DataLoader with pin_memory=True calls it."""
        return self._with({name: value.pin_memory() if isinstance(value, torch.Tensor) else value for name, value in self.items()})

    def _with(self, values: dict[str, Any]) -> MicroBatchDict:
        made = type(self)(values)
        made.position = self.position
        return made


class _MicroBatchDictOfOldTorch(MicroBatchDict):
    """For releases of torch, such as 1.13, that pin a mapping as type(batch)({name: pinned(value) for name, value in batch.items()}) and ask no
    batch to do it itself: the position goes along as an item that is seen there only."""

    def __init__(self, *values: Any, **more: Any) -> None:
        super().__init__(*values, **more)
        carried = self.pop(_CARRIED, None)
        if carried is not None:
            epoch, batch, step, is_last = carried  # which was pinned, too: a list
            self.position = (epoch, batch, step, is_last)

    def items(self) -> Any:
        if sys._getframe(1).f_globals.get("__name__") == _PINNER:
            return {**self, _CARRIED: self.position}.items()
        return super().items()


def _type_of_batches() -> type[MicroBatchDict]:
    """The plain one wherever torch pins it with its position."""
    try:
        from torch.utils.data._utils import pin_memory

        pinned: Any = pin_memory.pin_memory
        batch = MicroBatchDict()
        batch.position = (0, 0, 0, False)
        is_kept = getattr(pinned(batch), "position", None) == batch.position
    except (ImportError, AttributeError, RuntimeError, TypeError):
        return MicroBatchDict
    if is_kept:
        return MicroBatchDict
    return _MicroBatchDictOfOldTorch


_Made = _type_of_batches()


def collate(
    samples: Sequence[Mapping[str, Any]],
    *,
    style: str = "transformers",
    multiple: int = 1,
    pad_token: int = 0,
    ignore: int = -100,
    tokens: str = "input_ids",
    labels: str = "labels",
) -> Any:
    """One flat sequence of the samples' tokens.

    `style`: whose names and shapes.
        transformers   input_ids, labels, position_ids [1, n]; cu_seq_lens_q, cu_seq_lens_k int32; max_length_q, max_length_k
        flash_attn     input_ids, labels, position_ids [n]; cu_seqlens int32; max_seqlen
        torchtitan     ({input, positions}, labels), [1, n] each; a label is the token that follows
        sdpa           as transformers, and in place of the lengths attention_mask [1, 1, n, n]: true where a token may look
    The first label of each sequence is `ignore` (with torchtitan's the last): no token is predicted from another sequence. Samples without
    labels are their own. n is rounded up to a multiple of `multiple` by `pad_token`, which is a sequence of its own without labels; a
    micro-batch without samples is such padding alone.
    """
    if style not in _STYLES:
        raise Error(f"style is {style!r}; it must be one of {', '.join(_STYLES)}", Status.INVALID_ARGUMENT)
    if multiple < 1:
        raise Error(f"multiple is {multiple}; it must be at least 1", Status.INVALID_ARGUMENT)
    position = _position_of(samples)
    samples = [sample for sample in samples if sample or not isinstance(sample, Sample)]  # an empty one stands for none
    ids = [_flat(sample[tokens], tokens) for sample in samples]
    targets = [_flat(sample[labels], labels) if sample.get(labels) is not None else own for sample, own in zip(samples, ids)]
    for number, (own, target) in enumerate(zip(ids, targets)):
        if len(own) != len(target):
            raise Error(f"sample {number} has {len(own)} tokens and {len(target)} labels", Status.INVALID_ARGUMENT)
    masked = [_next_tokens(target, ignore) if style == "torchtitan" else _without_first(target, ignore) for target in targets]
    count = sum(len(own) for own in ids)
    padding = -count % multiple if count else multiple
    if padding:
        ids.append(torch.full((padding,), pad_token, dtype=torch.int64))
        masked.append(torch.full((padding,), ignore, dtype=torch.int64))
    lengths = [len(own) for own in ids if len(own)]
    made = _styled(style, torch.cat(ids), torch.cat(masked), lengths)
    (made[0] if style == "torchtitan" else made).position = position
    return made


def _flat(value: Any, name: str) -> torch.Tensor:
    flat = torch.as_tensor(value)
    if flat.dim() != 1:
        raise Error(f"{name} has {flat.dim()} dimensions; one is needed", Status.INVALID_ARGUMENT)
    wide: torch.Tensor = flat.to(torch.int64)
    return wide


def _without_first(target: torch.Tensor, ignore: int) -> torch.Tensor:
    masked: torch.Tensor = target.clone()
    masked[:1] = ignore
    return masked


def _next_tokens(target: torch.Tensor, ignore: int) -> torch.Tensor:
    last = torch.full((min(len(target), 1),), ignore, dtype=torch.int64)
    return torch.cat([target[1:], last])


def _position_of(samples: Sequence[Mapping[str, Any]]) -> Position | None:
    found: Position | None = getattr(samples, "position", None)
    if found is None and samples:
        found = getattr(samples[0], "position", None)
    return found


def _styled(style: str, ids: torch.Tensor, labels: torch.Tensor, lengths: list[int]) -> Any:
    positions = torch.cat([torch.arange(length) for length in lengths])
    if style == "torchtitan":
        return _Made(input=ids[None], positions=positions[None]), labels[None]
    if style == "flash_attn":
        return _Made(
            input_ids=ids, labels=labels, position_ids=positions, cu_seqlens=_borders(lengths), max_seqlen=max(lengths)
        )
    made = _Made(input_ids=ids[None], labels=labels[None], position_ids=positions[None])
    if style == "sdpa":
        sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        may_look = (sequence[:, None] == sequence[None, :]) & (positions[:, None] >= positions[None, :])
        made["attention_mask"] = may_look[None, None]
        return made
    borders = _borders(lengths)
    made.update(cu_seq_lens_q=borders, cu_seq_lens_k=borders, max_length_q=max(lengths), max_length_k=max(lengths))
    return made


def _borders(lengths: list[int]) -> torch.Tensor:
    borders: torch.Tensor = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return borders
