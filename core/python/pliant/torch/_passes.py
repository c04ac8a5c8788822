"""Passes over a sharded model: its modules are entered and left as they are called, forward, backward and where they are computed once more."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from pliant import _core
from pliant._errors import Error, Status
from pliant.torch import _deterministic
from pliant.torch._members import Members
from pliant.torch._slots import Slot
from pliant.torch._units import Unit

_SHOWN = 3  # parameters that a message names


class _Call:
    """A unit was called in a pass with gradients."""

    __slots__ = ("around", "is_done", "is_running", "is_watched", "number", "unit")

    def __init__(self, unit: Unit, around: tuple[_Call, ...], number: int) -> None:
        self.unit = unit
        self.around = around  # calls that this one lies in, the outermost first
        self.number = number  # of the pass
        self.is_watched = torch.is_grad_enabled()  # else its forward is computed again before its backward, or it has none
        self.is_running = False  # its backward computes; else it is entered because its forward is computed again
        self.is_done = False


class Passes:
    """What the program does with its model, as core is to hear of it. One thread at a time, whichever."""

    members: Members  # of the model, once it is cut

    def __init__(self, core: _core.ShardedModel, slots: list[Slot]) -> None:
        self._core = core
        self._slots = slots
        self.homes: list[tuple[Mapping[str, Any], Mapping[str, Slot]]] = []  # parameters of a module as it has them, and as it had
        self._pending: Callable[[], range | None] = lambda: None
        self.is_attempted = False  # within `with step.attempt():`
        self.broken: BaseException | None = None  # that ended a pass of the attempt
        self.kind = ""  # of the pass: "training", "evaluation"
        self.rows: range | None = None  # of the pass, where it trains
        self._number = 0  # of the pass
        self._calls: dict[int, list[_Call]] = {}  # forward, of the pass, by number of the unit
        self._stack: list[_Call] = []  # forward, the innermost last
        self._open: list[_Call] = []  # entered backward
        self._made: list[Any] = []  # nodes of the graph that the units have returned in the pass
        self._returned: list[torch.Tensor] = []  # what the program was given in the pass, until its backward
        self._let_go: list[Slot] = []  # were whole by hand until after the forward of the pass
        self._is_nan = False  # the loss whose backward computes
        self._in_backward = False

    # Attempts.

    def begin_attempt(self, pending: Callable[[], range | None]) -> None:
        if self.is_attempted:
            raise Error("step.attempt() was entered within another one", Status.FAILED_PRECONDITION)
        self._pending = pending
        self.is_attempted = True

    def end_attempt(self) -> BaseException | None:
        """What has ended a pass in it, if something has."""
        broken = self.broken
        if broken is None and self.kind:
            broken = Error("the model was called for the rows of a micro-batch, and step.backward(loss_sum) was not: compute what needs no gradient "
                           "within torch.no_grad()", Status.FAILED_PRECONDITION)
        self.is_attempted = False
        if broken is not None:
            self.reset()
        self.broken = None
        return broken

    def reset(self) -> None:
        """Gives up what is under way in this process."""
        self.kind, self.rows = "", None
        self._number += 1
        self._calls, self._stack, self._open, self._in_backward = {}, [], [], False
        self._made, self._returned, self._let_go = [], [], []
        for slot in self._slots:
            slot.reset()

    # Forward.

    def call(self, unit: Unit, forward: Callable[..., Any], arguments: Any, named: Any) -> Any:
        self._require_attempt()
        if self._in_backward:
            return self._call_again(unit, forward, arguments, named)
        is_outermost = not self.kind
        try:
            if is_outermost:
                self._begin()
            call = _Call(unit, self._around(unit), self._number)
            self._calls.setdefault(unit.number, []).append(call)
            self._enter(unit, "forward")
            self._stack.append(call)
            made = forward(*arguments, **named)
            self._stack.pop()
            self._leave(unit, "forward")
            if self.kind == "training" and torch.is_grad_enabled():
                self._watch(call, made)
                if not self._stack:
                    self._returned += tensors_in(made)
            if is_outermost and self.kind == "evaluation":
                self._core.end_pass()
                self.kind, self._calls = "", {}
            return made
        except BaseException as error:
            self.broken = self.broken or error
            raise

    def _begin(self) -> None:
        self._require_same_model()
        rows = self._pending() if torch.is_grad_enabled() else None
        self._number += 1
        if rows is None:
            self._core.begin_evaluation()
            self.kind = "evaluation"
        else:
            self._core.begin_pass(rows)
            self.kind, self.rows = "training", rows

    def _require_same_model(self) -> None:
        for slot in self._slots:
            slot.require_unwritten()
        for parameters, known in self.homes:
            for key, slot in known.items():
                if parameters.get(key) is not slot.parameter:
                    raise Error(f"parameter {slot.name} of the model is another one than when pliant.torch.shard was called: load values with load_state_dict",
                                Status.FAILED_PRECONDITION)
        self.members.require_none_added()

    def _call_again(self, unit: Unit, forward: Callable[..., Any], arguments: Any, named: Any) -> Any:
        """A forward within backward, as torch.utils.checkpoint makes it. It may be left before its end, by an exception of torch's own."""
        if not torch.is_grad_enabled():
            self._enter(unit, "recompute")
            made = forward(*arguments, **named)
            self._leave(unit, "recompute")
            return made
        first = next((one for one in reversed(self._calls.get(unit.number, ())) if not one.is_watched and not one.is_done), None)
        if first is None and any(one.unit is unit for one in self._open):
            return forward(*arguments, **named)  # for a backward that is under way
        # Its backward follows: it stays whole until then.
        call = _Call(unit, self._around(unit), self._number)
        if first is not None:
            first.is_done = True
        self._enter_backward(call)
        self._stack.append(call)
        try:
            made = forward(*arguments, **named)
        finally:
            self._stack.pop()
        self._watch(call, made)
        return made

    def _around(self, unit: Unit) -> tuple[_Call, ...]:
        """What a call of it lies in: within backward, where its forward was computed before."""
        if self._stack:
            return (*self._stack[-1].around, self._stack[-1])
        before = [call for call in self._calls.get(unit.number, ()) if not call.is_done] if self._in_backward else []
        return before[-1].around if before else ()

    def _watch(self, call: _Call, made: Any) -> None:
        """Its backward begins when the gradient of something that it made is known."""

        def comes(_: torch.Tensor) -> None:
            self._backward_comes(call)

        for tensor in tensors_in(made):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(comes)  # type: ignore[no-untyped-call]
                self._made.append(tensor.grad_fn)

    # Backward.

    def backward(self, loss_sum: torch.Tensor) -> None:
        """All of the backward of the pass, and the pass ends."""
        self._require_attempt()
        if self.kind != "training":
            raise Error("step.backward(loss_sum) comes after the model was called for the micro-batch, with gradients and within `with step.attempt():`",
                        Status.FAILED_PRECONDITION)
        try:
            self._is_nan = math.isnan(float(loss_sum.detach()))
            if self._is_nan:
                self._require_whole_in(loss_sum)
            self._returned = []
            self._in_backward = True
            loss_sum.backward()  # type: ignore[no-untyped-call]
            self._in_backward = False
            while self._open:
                self._leave_backward(self._open[-1])
            self._core.end_pass()
            self.kind, self.rows, self._calls = "", None, {}
            self._made, self._let_go = [], []
        except BaseException as error:
            self.broken = self.broken or error
            raise

    def _backward_comes(self, call: _Call) -> None:
        if call.number != self._number or not self._in_backward:
            raise Error("gradients of a sharded model are computed by step.backward(loss_sum), once for all that its pass has made",
                        Status.FAILED_PRECONDITION)
        if call.is_running or call.is_done:
            return  # of another tensor that it made, or for what lies in it
        # Torch goes back through what was computed in turn: whatever else was begun is done, unless this lies in it.
        for other in [one for one in self._open if one.is_running and one is not call and one not in call.around]:
            self._leave_backward(other)
        for one in (*call.around, call):
            self._run_backward(one)

    def _run_backward(self, call: _Call) -> None:
        if call.is_running or call.is_done:
            return
        if call not in self._open:
            # Of the same unit another call is open where its forward was computed again for this backward.
            again = next((one for one in self._open if one.unit is call.unit and not one.is_running), None)
            if again is None:
                self._enter_backward(call)
            else:
                again.is_done = True
                self._open[self._open.index(again)] = call
        call.is_running = True

    def _enter_backward(self, call: _Call) -> None:
        self._enter(call.unit, "backward")
        self._open.append(call)
        for slot, address in zip(call.unit.trained, self._core.gradient_addresses(call.unit.trained_numbers)):
            slot.take_gradient(address)

    def _leave_backward(self, call: _Call) -> None:
        self._open.remove(call)
        call.is_running, call.is_done = False, True
        for slot in call.unit.trained:
            slot.give_gradient()
        self._leave(call.unit, "backward")

    # Both.

    def _enter(self, unit: Unit, direction: str) -> None:
        self._core.enter(unit.number, direction)
        for slot, address in zip(unit.slots, self._core.addresses(unit.numbers)):
            slot.hold(address)

    def _leave(self, unit: Unit, direction: str) -> None:
        for slot in unit.slots:
            slot.let_go()
        self._core.leave(unit.number, direction)

    def _require_attempt(self) -> None:
        if not self.is_attempted:
            raise Error("a sharded model is called within `with step.attempt():`, which ends well where the group changes meanwhile",
                        Status.FAILED_PRECONDITION)
        if self.broken is not None:
            raise Error(f"a pass of this attempt has ended with {type(self.broken).__name__}: {self.broken}; leave `with step.attempt():` and go on with the "
                        "next step of the session, which is this one again", Status.FAILED_PRECONDITION) from self.broken

    # What parameters ask.

    def gradient_comes(self, slot: Slot, gradient: torch.Tensor) -> None:
        if slot.backward:
            if self._let_go and not self._is_nan and _is_nan(gradient):
                raise Error(f"the gradient of {slot.name} is NaN, the loss is not, and {_listed(self._let_go)} are not whole any more: "
                            f"{_by_hand(self._let_go)}", Status.FAILED_PRECONDITION)
            return
        if self._in_backward:
            raise Error(f"the gradient of {slot.name} has come, and the backward of {' and '.join(slot.units)} did not begin: what its forward returns must be "
                        "tensors, or tensors in lists, tuples, mappings and dataclasses", Status.FAILED_PRECONDITION)
        raise Error(f"the gradient of {slot.name} has come outside of step.backward(loss_sum), which alone computes gradients of a sharded model",
                    Status.FAILED_PRECONDITION)

    def require_whole(self, slot: Slot) -> None:
        """A program that is about to compute with it gets NaN otherwise."""
        if slot.holders or not self.is_attempted or not slot.elements:
            return
        whole = f"and is whole only within {' and '.join(slot.units)}"
        if not self._stack:
            raise Error(f"parameter {slot.name} is used outside of the model's forward, {whole}: {_by_hand([slot])}", Status.FAILED_PRECONDITION)
        # Where a unit is called by itself nothing has what is the model's own.
        is_of_model = self._stack[0].unit.parent is None
        advice = f"give pliant.torch.shard(..., external=[\"{slot.name}\"]), which has it whole with the whole model, or other units="
        raise Error(f"parameter {slot.name} is used within {self._stack[-1].unit.name}, {whole}: {advice if is_of_model else _by_hand([slot])}",
                    Status.FAILED_PRECONDITION)

    def let_go(self, slots: list[Slot]) -> None:
        """They were whole by hand; between forward and backward autograd may have saved them."""
        if self.kind == "training" and torch.is_grad_enabled():
            self._let_go = list(dict.fromkeys([*self._let_go, *slots]))

    def _require_whole_in(self, loss: torch.Tensor) -> None:
        """Names parameters that an iteration over all of them, which asks for none by name, has read where they are not whole."""
        if any(_is_nan(tensor.detach()) for tensor in self._returned):
            return
        inside = set(_deterministic.nodes_of(self._made))
        used = {id(getattr(following, "variable", None)) for node in _deterministic.nodes_of([loss.grad_fn]) if node not in inside
                for following, _ in node.next_functions}
        found = [slot for slot in self._slots if id(slot.parameter) in used and slot.elements and not slot.holders]
        if found:
            raise Error(f"the loss is NaN, and depends on {_listed(found)} outside of the model's forward, where none is whole: {_by_hand(found)}",
                        Status.FAILED_PRECONDITION)


def _listed(slots: list[Slot]) -> str:
    names = [slot.name for slot in slots]
    return " and ".join(names) if len(names) <= _SHOWN else f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more parameters"


def _by_hand(slots: list[Slot]) -> str:
    shown = ", ".join(f"\"{slot.name}\"" for slot in slots) if len(slots) <= _SHOWN else ""
    return f"have `with state.whole({shown}):` around the model's call, the use and step.backward(loss_sum)"


def _is_nan(tensor: torch.Tensor) -> bool:
    return bool(tensor.isnan().any()) if tensor.is_floating_point() and tensor.layout == torch.strided else False


def tensors_in(made: Any) -> Iterator[torch.Tensor]:
    """Of what a module returns, in order."""
    if isinstance(made, torch.Tensor):
        yield made
    elif isinstance(made, Mapping):
        for one in made.values():
            yield from tensors_in(one)
    elif isinstance(made, (list, tuple)):
        for one in made:
            yield from tensors_in(one)
    elif dataclasses.is_dataclass(made) and not isinstance(made, type):
        for field in dataclasses.fields(made):
            yield from tensors_in(getattr(made, field.name))
