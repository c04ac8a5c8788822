"""Buffers of a model, which a forward must not change, and their bytes beside shards."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from pliant._errors import Error, Status
from pliant.torch._rates import other


_SHOWN = 3  # buffers that a message names


class Buffers:
    """Notices a forward that changes a buffer, as BatchNorm in training does: ranks compute different rows, and would hold different ones."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._homes = [(f"{prefix}{'.' if prefix else ''}{name}", module, name)
                       for prefix, module in model.named_modules() for name, buffer in module._buffers.items() if buffer is not None]
        self._known = {(id(module), name) for _, module, name in self._homes}
        self._model = model
        self._looks_for_others = False
        self._before: list[tuple[torch.Tensor, int]] = []
        self._written: set[int] = set()  # buffers that a forward wrote what they held, as InstanceNorm in eval() does
        self._copies: dict[int, torch.Tensor] = {}  # of these; of all for the first forward: some of torch's functions count no versions

    def watch(self, copies: bool) -> None:
        """A forward comes next. `copies`: compare values, too, and look for buffers that it adds."""
        self._looks_for_others = copies
        found = [self._now(module, name) for _, module, name in self._homes]
        self._before = [(buffer, buffer._version) for buffer in found]
        self._copies = {number: buffer.detach().clone() for number, buffer in enumerate(found) if copies or number in self._written}

    def check(self) -> None:
        """Raises Error where a buffer is another one or holds another value than when `watch` was called."""
        for number, ((buffer, version), (full, module, name)) in enumerate(zip(self._before, self._homes)):
            now = module._buffers.get(name)
            same = now is buffer and (buffer._version == version or number in self._copies)
            if same and number in self._copies:
                same = torch.equal(self._copies[number].view(-1), buffer.view(-1)) or _both_nan(self._copies[number], buffer)
            if same and buffer._version != version:
                self._written.add(number)
            if not same:
                raise Error(f"the forward changes buffer {full} of {type(module).__name__}: each rank computes other rows and would keep another one. "
                            "Layers that normalise by statistics of the batch must not keep any (track_running_stats=False) or be in eval(); GroupNorm "
                            "and LayerNorm have none. A table is as large as it gets before pliant.torch.state, and what counts forwards, such as spectral_norm, "
                            "is in eval() in them and goes on after commit()", Status.UNIMPLEMENTED)
        if self._looks_for_others:
            self._require_no_others()

    def has(self, module: torch.nn.Module, name: str) -> bool:
        """Whether it is one of these: others were added since."""
        return (id(module), name) in self._known

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """All by name, as they are now; one that several modules have by its first."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for full, module, name in self._homes:
            buffer = self._now(module, name)
            found.setdefault(id(buffer), (full, buffer))
        return list(found.values())

    def _require_no_others(self) -> None:
        for prefix, module in self._model.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and not self.has(module, name) and name not in module._non_persistent_buffers_set:
                    raise Error(f"the forward adds buffer {prefix}{'.' if prefix else ''}{name} of {type(module).__name__}, which has no place in the job's state: "
                                "each rank makes one of the rows that it computes. Add it before, or, where it does not depend on them, with "
                                "persistent=False", Status.UNIMPLEMENTED)

    @staticmethod
    def _now(module: Any, name: str) -> torch.Tensor:
        buffer = module._buffers.get(name)
        if buffer is None:
            raise Error(f"buffer {name} of {type(module).__name__} is gone since it became part of the job's state", Status.FAILED_PRECONDITION)
        kept: torch.Tensor = buffer
        return kept


def _both_nan(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.is_floating_point() and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True))


def described(named: Iterable[tuple[str, torch.Tensor]]) -> list[Any]:
    """Name, type and shape of each buffer, as JSON has them."""
    return [[name, str(buffer.dtype), list(buffer.shape)] for name, buffer in named]


def bytes_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    made: bytes = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return made


def require_like(named: Sequence[tuple[str, torch.Tensor]], kept: Mapping[str, Any]) -> None:
    """Raises Error where `kept` describes other buffers, with some that differ."""
    if kept.get("buffers") == described(named):
        return
    here, there = ({name: f"{kind.replace('torch.', '')} {shape}" for name, kind, shape in found} for found in (described(named), kept.get("buffers") or ()))
    differences = [f"{name} is {here.get(name, 'missing')} in this program and {there.get(name, 'missing')} there"
                   for name in sorted({*here, *there}) if here.get(name) != there.get(name)]
    raise other(f"has other buffers of the model than this program's has: {'; '.join(differences[:_SHOWN]) or 'they are in another order'}")


def load_buffers(named: Sequence[tuple[str, torch.Tensor]], kept: Mapping[str, Any], found: memoryview) -> None:
    """`found`: the bytes of all buffers, which `kept` describes."""
    require_like(named, kept)
    buffers = [buffer for _, buffer in named if buffer.numel()]
    if sum(buffer.numel() * buffer.element_size() for buffer in buffers) != len(found):
        raise Error("the state beside the shards is damaged: its buffers have other bytes than they say", Status.DATA_LOSS)
    at = 0
    with torch.no_grad():
        for buffer in buffers:
            end = at + buffer.numel() * buffer.element_size()
            buffer.copy_(torch.frombuffer(bytearray(found[at:end]), dtype=torch.uint8).view(buffer.dtype).view(buffer.shape))
            at = end
