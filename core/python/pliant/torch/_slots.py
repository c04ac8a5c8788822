"""Where the parameters of a sharded model lie: one storage each, whose pointer is set to what is whole, and to nothing once it is not."""
from __future__ import annotations

import ctypes
from typing import Any

import torch

from pliant import _core
from pliant._errors import Error, Status

_WORD = ctypes.sizeof(ctypes.c_size_t)
_WORDS_OF_STORAGE = 8  # of torch's StorageImpl that may be looked at; it has more
_offset: int | None = None  # in bytes, of the pointer to the elements


def _address_of_storage(tensor: torch.Tensor) -> int:
    """Of torch's StorageImpl, which a tensor and its views share."""
    storage: Any = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()  # type: ignore[no-untyped-call]
    return int(storage._cdata)


def over(address: int, elements: int, dtype: torch.dtype, shape: Any) -> torch.Tensor:
    """A tensor over memory that it does not keep."""
    if elements == 0:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * (elements * _width(dtype))).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _width(dtype: torch.dtype) -> int:
    return torch.finfo(dtype).bits // 8


def _word_of(tensor: torch.Tensor) -> ctypes.c_size_t:
    """The pointer to the elements in the storage of `tensor`. Views follow it, also those that autograd has saved."""
    global _offset
    if _offset is None:
        _offset = _find_offset()
    return ctypes.c_size_t.from_address(_address_of_storage(tensor) + _offset)


def _find_offset() -> int:
    """No function of torch sets that pointer: it is found by its value, and tried."""
    first, second = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)(5, 6, 7, 8)
    tensor = torch.frombuffer(first, dtype=torch.float32)
    view = tensor.view(2, 2).t()
    begin = _address_of_storage(tensor)
    here, there = ctypes.addressof(first), ctypes.addressof(second)
    found = [at for at in range(0, _WORDS_OF_STORAGE * _WORD, _WORD) if ctypes.c_size_t.from_address(begin + at).value == here]
    if len(found) == 1:
        word = ctypes.c_size_t.from_address(begin + found[0])
        word.value = there
        follows = tensor.data_ptr() == there and view.data_ptr() == there and view.tolist() == [[5, 7], [6, 8]]
        word.value = here
        if follows and tensor.tolist() == [1, 2, 3, 4]:
            return found[0]
    raise Error(f"torch {torch.__version__} keeps the memory of tensors in a way that this release of Pliant does not know: it cannot cut models",
                Status.UNIMPLEMENTED)


class _Absent:
    """Addresses where nothing lies: NaN."""

    def __init__(self) -> None:
        self._begin = 0
        self._bytes = 0

    def of(self, size: int) -> int:
        if size > self._bytes:
            self._begin, self._bytes = int(_core._absent(size)), size
        return self._begin


_absent = _Absent()


def reserve(size: int) -> None:
    """The largest of the parameters to come has `size` bytes."""
    _absent.of(size)


class Place:
    """A tensor whose memory comes and goes."""

    def __init__(self, shape: Any, dtype: torch.dtype) -> None:
        self.elements = 1
        for length in shape:
            self.elements *= int(length)
        self._nowhere = _absent.of(self.elements * _width(dtype)) if self.elements else 0
        self.tensor = over(self._nowhere, self.elements, dtype, shape)
        self._word = _word_of(self.tensor) if self.elements else ctypes.c_size_t(0)

    def put(self, address: int) -> None:
        self._word.value = address

    def take(self) -> None:
        self._word.value = self._nowhere

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` lies in here."""
        return not self.elements or tensor.data_ptr() == self._word.value


class Slot:
    """A parameter of the model, from when it is cut on."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, dtype: torch.dtype, reduce_dtype: torch.dtype) -> None:
        self.name = name
        self.number = -1  # of core
        self.parameter = parameter
        self.shape = tuple(parameter.shape)
        self.trained = bool(parameter.requires_grad)
        self.units: list[str] = []  # names of those that hold it
        self.holders = 0  # visits under way, by hand too
        self.backward = 0  # of them those that take its gradient
        self.has_own_sum = reduce_dtype != dtype  # gradients are added up in another type than they are computed in
        self._place = Place(self.shape, dtype)
        self.elements = self._place.elements
        self._gradient = Place(self.shape, reduce_dtype) if self.trained else None
        parameter.data = self._place.tensor
        parameter.grad = None
        self._version = parameter._version

    def hold(self, address: int) -> None:
        if self.holders == 0:
            self._require_here()
            self._place.put(address)
        self.holders += 1

    def let_go(self) -> None:
        self.holders -= 1
        if self.holders == 0:
            self._place.take()

    def take_gradient(self, address: int) -> None:
        assert self._gradient is not None
        self._gradient.put(address)
        self.backward += 1
        if not self.has_own_sum and self.parameter.grad is not self._gradient.tensor:
            self.parameter.grad = self._gradient.tensor

    def give_gradient(self) -> None:
        """All that came in this visit is where core looks for it."""
        assert self._gradient is not None
        found, there = self.parameter.grad, self._gradient.tensor
        if found is not there and found is not None:
            found = found.detach()
            if found.layout != torch.strided:
                found = found.to_dense()
            if self.has_own_sum:
                there.add_(found)
            else:
                there.copy_(found)
        self.backward -= 1
        self.parameter.grad = there if self.backward and not self.has_own_sum else None
        if not self.backward:
            self._gradient.take()

    def reset(self) -> None:
        """Whatever was under way has ended."""
        self.holders = self.backward = 0
        self._place.take()
        if self._gradient is not None:
            self._gradient.take()
        if self.parameter.grad is not None:
            self.parameter.grad = None

    def put(self, address: int) -> None:
        self._place.put(address)

    def take(self) -> None:
        self._place.take()
        self._version = self.parameter._version

    def require_unwritten(self) -> None:
        self._require_here()
        if self.holders == 0 and self.parameter._version != self._version:
            raise Error(f"parameter {self.name} was written while it was cut over the ranks, which changes nothing: give pliant.torch.shard(..., initialise=) "
                        "its first values, and later ones within `with state.whole(...):`", Status.FAILED_PRECONDITION)
        self._version = self.parameter._version

    def _require_here(self) -> None:
        parameter = self.parameter
        if not self._place.is_of(parameter):
            raise Error(f"parameter {self.name} was converted or moved after pliant.torch.shard was called: do that before", Status.FAILED_PRECONDITION)
        if self.trained != parameter.requires_grad:
            how = "needs a gradient now, and was frozen when" if parameter.requires_grad else "was frozen after"
            raise Error(f"parameter {self.name} {how} pliant.torch.shard was called; which parameters are trained is the same from then on: set requires_grad "
                        "before", Status.FAILED_PRECONDITION)
