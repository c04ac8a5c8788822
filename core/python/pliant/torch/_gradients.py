"""The gradients of a model in one piece of memory for each type of its parameters."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pliant import _core
from pliant._errors import Error, Status

# In the order in which they follow one another in the gradient. All are added in float32.
_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class Piece(NamedTuple):
    """Elements [offset, offset + elements) of the gradient, as they lie in memory."""

    offset: int
    elements: int
    address: int
    dtype: str


class Slot(NamedTuple):
    """A parameter, and its place in the gradient."""

    name: str
    parameter: torch.nn.Parameter
    view: torch.Tensor
    address: int
    offset: int  # of its first element


class Gradients:
    """Of the parameters that are given and need a gradient, which are of one device. `.grad` of each is a view of the buffer of its type:
    float32, bfloat16 or float16, in this order.

    What takes the place of a view, as `zero_grad()` does with None, is put right by `collect`.
    """

    def __init__(self, parameters: Sequence[tuple[str, torch.nn.Parameter]]) -> None:
        wanted = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
        for name, parameter in wanted:
            if parameter.dtype not in _TYPES:
                raise Error(f"parameter {name} is of {_name(parameter.dtype)}; gradients are added in float32, of parameters of float32, bfloat16 or "
                            "float16: convert the model, or freeze the parameter")
        devices = {parameter.device: name for name, parameter in wanted}
        if len(devices) > 1:
            raise Error("parameters are on several devices: " + ", ".join(f"{name} on {device}" for device, name in devices.items()))
        self.device: torch.device = next(iter(devices), torch.device("cpu"))
        self._buffers: list[torch.Tensor] = []
        self.slots: list[Slot] = []  # in the order of the gradient
        self.pieces: list[Piece] = []
        self.size = 0  # elements
        for dtype, word in _TYPES.items():
            of_type = [(name, parameter) for name, parameter in wanted if parameter.dtype == dtype]
            count = sum(parameter.numel() for _, parameter in of_type)
            if not of_type:
                continue
            buffer = torch.zeros(count, dtype=dtype, device=self.device)
            self._buffers.append(buffer)
            if count:
                self.pieces.append(Piece(self.size, count, buffer.data_ptr(), word))
            first = 0
            for name, parameter in of_type:
                view = buffer[first : first + parameter.numel()].view(parameter.shape)
                self.slots.append(Slot(name, parameter, view, view.data_ptr(), self.size + first))
                first += parameter.numel()
            self.size += count

    def zero(self) -> None:
        """Sets all of it to 0, and each `.grad` to its view."""
        for buffer in self._buffers:
            buffer.zero_()
        self.require_kept()
        for _, parameter, view, _, _ in self.slots:
            if parameter.grad is not view:
                parameter.grad = view

    def collect(self) -> None:
        """Copies what has taken the place of a view into it; None is 0. Raises Error where that is none of this parameter."""
        self.require_kept()
        for name, parameter, view, _, _ in self.slots:
            found = parameter.grad
            if found is view:
                continue
            if found is None:
                view.zero_()
            else:
                view.copy_(_dense(name, view, found))
            parameter.grad = view

    def hide(self) -> None:
        """Takes `.grad` of each parameter away, so that an optimizer has nothing to update. `zero` and `put` give it back."""
        for slot in self.slots:
            slot.parameter.grad = None

    def require_kept(self) -> None:
        """Raises Error for a parameter that was converted, or whose gradient has other memory."""
        for name, parameter, view, address, _ in self.slots:
            if view.data_ptr() != address or parameter.dtype is not view.dtype:
                raise _moved(name, parameter)

    def piece(self, first: Slot, last: Slot) -> Piece:
        """From one parameter to another, which are of one type."""
        return Piece(first.offset, last.offset + last.view.numel() - first.offset, first.address, _TYPES[first.view.dtype])

    def put(self, mean: torch.Tensor) -> None:
        """Replaces it by `mean`, of `size` elements in float32. A parameter that is frozen by now has no gradient: optimizers skip it."""
        if mean.numel() != self.size:
            raise Error(f"a gradient of {mean.numel()} elements for a model of {self.size}", Status.INTERNAL)
        first = 0
        for buffer in self._buffers:
            buffer.copy_(mean[first : first + buffer.numel()])
            first += buffer.numel()
        for _, parameter, view, _, _ in self.slots:
            wanted = view if parameter.requires_grad else None
            if parameter.grad is not wanted:
                parameter.grad = wanted

    def scale(self, by: float) -> None:
        for buffer in self._buffers:
            buffer.mul_(by)

    def norm(self, mean: Any, parameters: Sequence[tuple[str, torch.nn.Parameter]]) -> float:
        """Of `mean`, as `put` has it. `parameters`: all of the model, in its order; what has no gradient counts as zeros."""
        if len(self._buffers) == 1 and len(self.slots) == len(parameters):
            return math.sqrt(_core._squared_norm(int(mean.ctypes.data), mean.size))
        whole, parts, first = torch.from_numpy(mean), {}, 0
        for slot in self.slots:
            parts[slot.name] = whole[first : first + slot.parameter.numel()]
            first += slot.parameter.numel()
        flat = torch.cat([parts.get(name, torch.zeros(parameter.numel())) for name, parameter in parameters])
        return math.sqrt(_core._squared_norm(flat.data_ptr(), flat.numel()))


def _moved(name: str, parameter: torch.Tensor) -> Error:
    """Module.to, half and their like give the gradient, which is the view, other memory."""
    return Error(f"parameter {name} was converted or moved after pliant.torch.state was called, and is of {_name(parameter.dtype)} on {parameter.device} "
                 "now: do that before", Status.FAILED_PRECONDITION)


def _dense(name: str, view: torch.Tensor, found: Any) -> torch.Tensor:
    if not isinstance(found, torch.Tensor):
        raise Error(f".grad of parameter {name} is a {type(found).__name__}; it must be a tensor")
    for what, given, needed in (("shape", tuple(found.shape), tuple(view.shape)), ("type", _name(found.dtype), _name(view.dtype)),
                                ("device", str(found.device), str(view.device))):
        if given != needed:
            raise Error(f".grad of parameter {name} was replaced by a tensor of {what} {given}; the parameter has {needed}")
    dense: torch.Tensor = found.detach().to_dense() if found.layout != torch.strided else found.detach()
    return dense


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
