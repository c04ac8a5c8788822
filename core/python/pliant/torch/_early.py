"""Pieces of a gradient that are handed in while backward computes the rest."""
from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import torch

from pliant._errors import Error, Status
from pliant.torch._gradients import Gradients, Piece


class EarlyPieces:
    """Of a rank's last micro-batch of each step, so that they travel to the other ranks meanwhile.

    Parameters that lie side by side form groups of a quarter of a bucket or more, from the end of the gradient to its beginning. Autograd calls a hook once
    a parameter's gradient is added up; that of a whole group is handed in at once. A parameter without such a call, which the loss does not
    depend on, say, holds its group back until backward has ended. The first backward only counts: where one has several of a parameter, as with
    checkpoints that are reentrant, all pieces are handed in at the end from then on.
    """

    def __init__(self, gradients: Gradients, bucket: int) -> None:
        """Memory of the CPU, of which autograd adds up gradients on the thread that calls backward. `bucket`: elements that the session reduces
        together, or half of the gradient where that is less."""
        self._gradients = gradients
        self._thread = threading.get_ident()
        self._groups: list[Piece] = []  # from the end of the gradient
        self._group_of: list[int] = [0] * len(gradients.slots)
        self._make_groups(min(bucket, gradients.size // 2) // 4)
        self._left: list[int] = []  # gradients that each group lacks; of a group that was handed in, -1
        self._times: list[int] = []  # that each parameter had its gradient in this backward
        self._step: Any = None  # what takes pieces
        self._rows: range | None = None
        self._is_open = False
        self._is_sure = False  # a backward was counted
        self._is_off = False
        self._late: int | None = None  # a parameter that had one more gradient after its group was handed in
        self._broken: tuple[Any, range] | None = None  # a step and rows of which a part was handed in when backward raised
        self._hooks = [self._hook(number) for number in range(len(gradients.slots))]

    def open(self, step: Any, rows: range) -> None:
        """The backward over `rows` comes next."""
        if self._broken is not None and self._broken[0] is step and self._broken[1] == rows:
            raise Error(f"the backward of rows {rows.start}..{rows.stop - 1} of step {step.index} has raised after a part of their gradient was handed in: go on "
                        "with the next step of the session, which is this one again", Status.FAILED_PRECONDITION)
        self._broken = None
        self._times = [0] * len(self._group_of)
        self._late, self._is_open = None, True
        self._step = None
        if self._is_sure and not self._is_off and rows == step.micro_batches[-1]:
            self._step, self._rows = step, rows
            self._left = [0] * len(self._groups)
            for number, slot in enumerate(self._gradients.slots):
                self._left[self._group_of[number]] += 1 if slot.parameter.requires_grad else 0

    def close(self) -> None:
        """It has raised."""
        if self._step is not None and self._rows is not None and -1 in self._left:
            self._broken = self._step, self._rows
        self._is_open, self._step = False, None

    def rest(self) -> list[Piece]:
        """It has ended, and what has replaced a gradient was put right: the pieces that are not handed in."""
        step, self._is_open, self._step = self._step, False, None
        self._is_sure = True
        if self._late is not None:
            raise Error(f"parameter {self._gradients.slots[self._late].name} had one more gradient in the same backward after its gradient was handed in, which "
                        "no backward before it had: set [run] reduce_bucket = 0, or use checkpoints that are not reentrant", Status.FAILED_PRECONDITION)
        if max(self._times, default=0) > 1:
            self._is_off = True
        if step is None:
            return self._gradients.pieces
        return [piece for piece, left in zip(self._groups, self._left) if left >= 0 and piece.elements]

    def _make_groups(self, elements: int) -> None:
        slots = self._gradients.slots
        last = len(slots) - 1
        for number in range(len(slots) - 1, -1, -1):
            piece = self._gradients.piece(slots[number], slots[last])
            self._group_of[number] = len(self._groups)
            is_first = number == 0 or slots[number - 1].view.dtype != slots[number].view.dtype
            if is_first or piece.elements >= max(elements, 1):
                self._groups.append(piece)
                last = number - 1

    def _hook(self, number: int) -> Any:
        """Autograd's node of the parameter, which must be held to live on, and the hook."""
        parameter = self._gradients.slots[number].parameter
        with torch.enable_grad():
            view = parameter.expand_as(parameter)
        if view.grad_fn is None:  # it is frozen
            return None
        node = view.grad_fn.next_functions[0][0]
        return node, node.register_hook(functools.partial(_call, weakref.ref(self), number))

    def _is_complete(self, number: int) -> None:
        """Parameter `number` has a gradient."""
        if not self._is_open:  # a backward of the program's own
            return
        self._times[number] += 1
        if self._step is None:
            return
        group, slot = self._group_of[number], self._gradients.slots[number]
        if self._left[group] < 0:
            self._late = number
        elif self._times[number] == 1 and slot.parameter.grad is slot.view and threading.get_ident() == self._thread:
            self._left[group] -= 1
            piece = self._groups[group]
            if self._left[group] == 0 and piece.elements:
                self._left[group] = -1
                self._step.add_piece(self._rows, piece.offset, piece.address, piece.elements, piece.dtype)


def _call(early: weakref.ref[EarlyPieces], number: int, *_: Any) -> None:
    found = early()
    if found is not None:
        found._is_complete(number)
