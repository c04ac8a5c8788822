"""An optimizer of torch whose state is cut over the ranks: each updates the elements that it owns."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pliant._errors import Error, Status
from pliant.torch import _optimizers
from pliant.torch._scheduler import _scale_moments
from pliant.torch._slots import Slot, over

# What would give or take whole parameters, or nothing.
_REFUSED = {
    "state_dict": "the optimizer's state is cut over the ranks: state.sharded_state_dict() has what this rank owns of it, and "
                  "pliant.torch.load_snapshot(file, model, optimizer) makes a whole one of a snapshot, without the job",
    "load_state_dict": "the optimizer's state is cut over the ranks, and load_state_dict would change nothing: a job goes on from a snapshot of its "
                       "own (`pliant run --resume`). Options alone are in optimizer.param_groups",
    "add_param_group": "the optimizer's groups are settled when pliant.torch.shard is called: add them before",
}
Ranges = Callable[[Callable[[int, int, int, int, int, list[int]], object]], None]


class ShardOptimizer:
    """Has the optimizer of the program step over shards. Its groups stay as they are, with the parameters of the model; its state is no mapping of
    theirs any more: arrays are core's, numbers those of a group."""

    def __init__(self, optimizer: Any, trained: set[int]) -> None:
        """`trained`: ids of the parameters that are."""
        self._optimizer = optimizer
        self._kind: Any = type(optimizer)
        name = self._kind.__name__
        if name not in _optimizers._BEGIN_AS_ZEROS or self._kind is not getattr(torch.optim, name, None):
            raise Error(f"{self._kind.__module__}.{name} is not known to update each element by itself, as shards need it; known are "
                        f"{', '.join(_optimizers._BEGIN_AS_ZEROS)} of torch.optim. state.update() takes a function that does it", Status.UNIMPLEMENTED)
        if not all(_is_beginning(value) for entries in optimizer.state.values() for value in entries.values()):
            raise Error("the optimizer has state already, of whole parameters: give pliant.torch.shard one that has made no step", Status.FAILED_PRECONDITION)
        self._group_of: dict[int, int] = {}  # by number of the parameter
        self.numbers: list[dict[str, Any]] = []  # of each group
        self.names: list[str] = []  # of arrays
        self.moments = (1.0, 1.0)  # by which first and second moments are multiplied in the next step
        self.gradient_scale = 1.0
        self._warned: set[str] = set()
        for group in optimizer.param_groups:
            if group.get("dampening"):
                raise Error("SGD takes its first gradient without dampening, which a state made before it does not know: set dampening = 0",
                            Status.UNIMPLEMENTED)
            is_trained = any(id(one) in trained for one in group["params"])
            made = _optimizers._of_first_step(optimizer, group, torch.nn.Parameter(torch.zeros(3))) if is_trained else {}
            arrays = [key for key, value in made.items() if not _optimizers.is_number(value)]
            self.names += [key for key in arrays if key not in self.names]
            self.numbers.append({key: _first(key, value) for key, value in made.items() if key not in arrays})

    def close(self, slots: Mapping[int, Slot], step: Callable[[], None]) -> None:
        """`slots`: by the id of the parameter. `step`: what `optimizer.step()` is from now on."""
        self._group_of = {slots[id(one)].number: number for number, group in enumerate(self._optimizer.param_groups) for one in group["params"]}
        self._optimizer.state.clear()  # Adagrad makes it at once
        self._optimizer.step = _replacement(self._optimizer, step)
        for name, said in _REFUSED.items():
            setattr(self._optimizer, name, _refusal(said))

    def step(self, update: Ranges) -> None:
        groups = self._optimizer.param_groups
        after = [self._advanced(number) for number in range(len(groups))]
        update(self._each)
        self.numbers = after
        self.moments, self.gradient_scale = (1.0, 1.0), 1.0

    # Inside.

    def _each(self, parameter: int, first: int, count: int, weights: int, gradient: int, states: list[int]) -> None:
        number = self._group_of.get(parameter)
        if number is None:
            return
        kind = torch.float32
        part = torch.nn.Parameter(over(weights, count, kind, (count,)))
        part.grad = over(gradient, count, kind, (count,))
        if self.gradient_scale != 1:
            part.grad = part.grad * self.gradient_scale
        entries = {key: copy_of(value) for key, value in self.numbers[number].items()}
        entries.update((name, over(address, count, kind, (count,))) for name, address in zip(self.names, states))
        self._run(number, part, entries)

    def _advanced(self, number: int) -> dict[str, Any]:
        """The numbers of a group after the step that is due. All its parameters have the same."""
        if not self.numbers[number]:
            return {}
        part = torch.nn.Parameter(torch.zeros(3))
        part.grad = torch.zeros(3)
        entries = {key: copy_of(value) for key, value in self.numbers[number].items()}
        entries.update((name, torch.zeros(3)) for name in self.names)
        self._run(number, part, entries)
        return {key: entries[key] for key in self.numbers[number]}

    def _run(self, number: int, part: torch.nn.Parameter, entries: dict[str, Any]) -> None:
        """A step of the program's optimizer over one parameter of one group."""
        optimizer = self._optimizer
        groups, state = optimizer.param_groups, optimizer.state
        group = {**groups[number], "params": [part]}
        optimizer.param_groups = [group]
        optimizer.state = defaultdict(dict, {part: entries})
        try:
            _scale_moments(optimizer, self.moments, self._warned)
            self._kind.step(optimizer)
        finally:
            optimizer.param_groups, optimizer.state = groups, state


def _replacement(optimizer: Any, take: Callable[[], None]) -> Callable[..., Any]:
    def step(closure: Any = None) -> None:
        if closure is not None:
            raise Error("an optimizer of a sharded model takes no closure: gradients are computed by step.backward(loss_sum)", Status.UNIMPLEMENTED)
        optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1
        optimizer._opt_called = True
        take()

    # Schedulers of torch look whether what they have wrapped is still called; it is counted here.
    step._with_counter = True  # type: ignore[attr-defined]
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    return step


def _refusal(said: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise Error(said, Status.UNIMPLEMENTED)

    return refuse


def _is_beginning(value: Any) -> bool:
    return not value.any() if isinstance(value, torch.Tensor) else not value


def _first(key: str, value: Any) -> Any:
    begins = _optimizers._OTHER_BEGINNINGS.get(key, 0)
    return torch.full_like(value, begins) if isinstance(value, torch.Tensor) else type(value)(begins)


def copy_of(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
