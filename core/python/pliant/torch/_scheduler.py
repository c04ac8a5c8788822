"""A scheduler that follows the size of each batch."""
from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping
from typing import Any

import torch

from pliant._core import Batch, BatchSize, LearningRate, Scaling
from pliant._errors import Error, Status


_FIRST_MOMENTS = ("momentum_buffer", "exp_avg")
_SECOND_MOMENTS = ("exp_avg_sq", "max_exp_avg_sq")


class LRScheduler:
    """Sets the learning rate of each parameter group, and betas, epsilon, weight decay and moments, from the size of each batch.

        for batch in loader:
            scheduler.batch(sampler.size_of(batch))   # before optimizer.step()
            ...
            optimizer.step()
            scheduler.step()                          # the step is final

    `rule`: the chain of rules that a config has. What the optimizer has at the beginning is what suits the base batch; `inner`, any
    scheduler of torch, moves these rates as it would move them alone. `step` counts once for each `batch`, however often it is called:
    some launchers call it once for each rank.

    Where the config has [lr.groups], a parameter group with a "name" has its base rate there, in place of the one that it begins with; `inner`
    moves it in the same proportion. Raises Error (NOT_FOUND) for a name that is not there. One that no group has is logged, for groups may
    be added.

    Moments are found by their names in the optimizer's state: momentum_buffer and exp_avg, exp_avg_sq and max_exp_avg_sq. Where a rule asks
    for a factor and the optimizer keeps other tensors of a parameter's shape, a warning names them, once; they are left as they are.
    """

    def __init__(self, optimizer: Any, rule: LearningRate, inner: Any = None) -> None:
        require_optimizer(optimizer)
        if inner is not None:
            require_scheduler(inner)
        self.optimizer = optimizer
        self.rule = rule
        self.inner = inner
        self.steps = 0  # that are final: the number of the next one
        self.ema_power = 1.0  # an average of the weights decays by decay ** ema_power at this step
        self._step_count = 0  # Accelerate adds to it where a call is not the last of a step
        self._size: BatchSize | None = None
        self._is_final = False
        self._moments = (1.0, 1.0)  # factors that the moments have for the step under way
        self._warned: set[str] = set()  # names of the optimizer's state that are no moments known here
        self._base = [_base_of(group) for group in optimizer.param_groups]
        self._rates = NamedRates(rule.groups, optimizer)
        self._has_begun = False

    def batch(self, size: BatchSize | Batch, *, step: int | None = None) -> Scaling:
        """Sets the optimizer for a step over a batch of that size. Again with another size, where a step is computed again. `step`: its number,
        where it is not the one after the last. Gives what the rule asks for, for the first parameter group."""
        if isinstance(size, Batch):
            size = size.size
        if step is not None and step != self.steps:
            raise Error(f"step {step}: the next step of this scheduler is {self.steps}; load the state of another job's scheduler first",
                        Status.FAILED_PRECONDITION)
        self._base += [_base_of(group) for group in self.optimizer.param_groups[len(self._base) :]]  # were added
        self._rates.read(self.optimizer)
        if not self._has_begun:
            self._has_begun = True
            self._rates.warn_of_unused(self.optimizer)
        scalings = [self.rule.scaling(self.steps, size, self._rates.base(number, base["lr"])) for number, base in enumerate(self._base)]
        for group, base, scaling in zip(self.optimizer.param_groups, self._base, scalings):
            _apply(group, base, scaling)
        first = scalings[0]
        self._rescale_moments(first.momentum_buffer, first.second_moment)
        self.ema_power = first.ema_power
        self._size = size
        self._is_final = False
        return first

    def step(self, norms: tuple[int, float, float] | None = None) -> None:
        """The step that `batch` began is final: rules move on. Called again before the next `batch` it does nothing."""
        if self._size is None:
            raise Error("step() without a batch: call batch(size) before optimizer.step()", Status.FAILED_PRECONDITION)
        if self._is_final:
            return
        self.rule.commit(self.steps, self._size, norms, self._rates.base(0, self._base[0]["lr"]))
        self._is_final = True
        self._moments = (1.0, 1.0)
        self.steps += 1
        if self.inner is not None:
            self._step_inner()

    def get_last_lr(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule.save(),
            "steps": self.steps,
            "base": [dict(base) for base in self._base],
            "inner": None if self.inner is None else self.inner.state_dict(),
            "inner_class": None if self.inner is None else type(self.inner).__name__,
            "moments": self._moments,  # of the optimizer's state at the same time
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state` was taken. Raises Error and changes nothing where `state` lacks a part, or is of another optimizer or
        inner scheduler."""
        steps, base, moments = self._fields_of(state)
        before = self.rule.save()
        self.rule.load(state["rule"])
        if self.inner is not None:
            try:
                self.inner.load_state_dict(state["inner"])
            except BaseException:
                self.rule.load(before)
                raise
        self.steps = steps
        self._base = base
        self._size = None
        self._is_final = False
        self._moments = moments

    def _fields_of(self, state: dict[str, Any]) -> tuple[int, list[dict[str, Any]], tuple[float, float]]:
        """What is in `state` beside the rule and the inner scheduler."""
        own = self.state_dict()
        lacks = [name for name in own if name not in state] if isinstance(state, Mapping) else list(own)
        if lacks:
            raise Error(f"this is not the state of an LRScheduler of Pliant, or it was cut: it has no {', '.join(lacks)}", Status.DATA_LOSS, 2)
        try:
            steps = operator.index(state["steps"])
            base = [{**kept, "lr": float(kept["lr"])} for kept in state["base"]]
            first, second = (float(factor) for factor in state["moments"])
        except (KeyError, TypeError, ValueError) as error:
            raise Error(f"this state of an LRScheduler was changed: {error!r} in its steps, base or moments", Status.DATA_LOSS, 2) from error
        if len(base) != len(self._base):
            raise Error(f"the state is of {len(base)} parameter groups, the optimizer has {len(self._base)}", Status.FAILED_PRECONDITION)
        if state["inner_class"] != own["inner_class"]:
            raise Error(f"the state is of a scheduler with another inner scheduler: {state['inner_class'] or 'none'}, in place of "
                        f"{own['inner_class'] or 'none'}", Status.FAILED_PRECONDITION)
        return steps, base, (first, second)

    def _step_inner(self) -> None:
        """It finds what it left, rates, and for some schedulers momentum, and leaves the next ones, which are for the base batch."""
        groups = self.optimizer.param_groups
        scaled = [{name: group[name] for name in _base_of(group)} for group in groups]
        for group, base in zip(groups, self._base):
            group.update(base)
        try:
            self.inner.step()
            self._base = [_base_of(group) for group in groups]
        finally:
            for group, values in zip(groups, scaled):
                group.update(values)

    def _rescale_moments(self, first: float, second: float) -> None:
        """Once a step: a batch of another size for the same step takes back what the one before it did."""
        by = (first / self._moments[0], second / self._moments[1])
        self._moments = (first, second)
        _scale_moments(self.optimizer, by, self._warned)


class NamedRates:
    """Base rates of the parameter groups that [lr.groups] has by name. Names count where the config has that table, and only there."""

    def __init__(self, rates: Mapping[str, float], optimizer: Any) -> None:
        self._by_name = rates
        self._of_groups: list[tuple[float, float] | None] = []  # the config's rate of each group, and the one that it had in the program
        self.read(optimizer)

    def read(self, optimizer: Any) -> None:
        """Looks at the groups that were added since."""
        for number, group in enumerate(optimizer.param_groups[len(self._of_groups) :], len(self._of_groups)):
            self._of_groups.append(self._rate_of(number, group) if self._by_name and "name" in group else None)

    def unused(self, optimizer: Any) -> list[str]:
        """Names in the config that no group has."""
        names = {group.get("name") for group in optimizer.param_groups}
        return [name for name in self._by_name if name not in names]

    def warn_of_unused(self, optimizer: Any) -> None:
        unused = self.unused(optimizer)
        if not unused:
            return
        from pliant import _log  # late: logging takes long to import

        _log.deliver(2, "pliant.torch", f"[lr.groups] has {', '.join(unused)}, and no group of the optimizer has that name so far")

    def base(self, number: int, lr: float) -> float:
        """The base rate of a group whose rate in the program is `lr` by now, that is, where a scheduler has moved it to."""
        named = self._of_groups[number]
        if named is None:
            return lr
        rate, first = named
        return rate * (lr / first)

    def _rate_of(self, number: int, group: dict[str, Any]) -> tuple[float, float]:
        name = group["name"]
        rate = self._by_name.get(name) if isinstance(name, str) else None
        if rate is None:
            raise Error(f"group {number} of the optimizer has the name {name!r}, and [lr.groups] has no such group; it has {', '.join(self._by_name)}: add "
                        "it there, or take the name from the group", Status.NOT_FOUND, 2)
        first = float(group.get("initial_lr", group["lr"]))
        if not first > 0:
            raise Error(f"group {name!r} of the optimizer begins with lr = {first:g}, in whose place [lr.groups] has {rate:g}: begin with a rate above 0, or "
                        "take the name from the group", Status.INVALID_ARGUMENT, 2)
        return rate, first


def require_optimizer(optimizer: Any) -> None:
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"the optimizer is a {type(optimizer).__name__}: Pliant takes one optimizer of torch; parameters that need options of their own are "
                        'a group of it, {"params": ..., "lr": ...}')


def require_scheduler(scheduler: Any) -> None:
    """One whose `step` needs nothing."""
    kind = type(scheduler).__name__
    step = getattr(scheduler, "step", None)
    if not callable(step):
        raise TypeError(f"the scheduler is a {kind}: Pliant takes one scheduler of torch; ChainedScheduler and SequentialLR make one of several")
    try:
        needed = [one.name for one in inspect.signature(step).parameters.values()
                  if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    except (TypeError, ValueError):  # of a function that is not Python's
        return
    if needed:
        raise Error(f"{kind}.step needs {', '.join(needed)}, and Pliant calls it without: give a scheduler that goes by the step alone, such as "
                    "CosineAnnealingLR or LambdaLR, or change the rates of the optimizer's groups yourself, before commit() and the same on all ranks",
                    Status.UNIMPLEMENTED)


def _scale_moments(optimizer: Any, by: tuple[float, float], warned: set[str]) -> None:
    """First and second moments by a factor each. `warned`: names that were logged, of the optimizer's state that is scaled by nothing here."""
    if by == (1, 1):
        return
    factors = {**dict.fromkeys(_FIRST_MOMENTS, by[0]), **dict.fromkeys(_SECOND_MOMENTS, by[1])}
    unknown: set[str] = set()
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if not isinstance(value, torch.Tensor):
                continue
            if name in factors:
                value.mul_(factors[name])
            elif value.dim() and value.numel() > 1 and value.shape == getattr(parameter, "shape", None):
                unknown.add(str(name))
    if unknown <= warned:
        return
    warned |= unknown
    from pliant import _log  # late: logging takes long to import

    names = ", ".join(sorted(unknown))
    text = (f"{type(optimizer).__name__} keeps {names}, which the rule's factors of moments do not reach: only "
            f"{', '.join((*_FIRST_MOMENTS, *_SECOND_MOMENTS))} are scaled")
    _log.deliver(2, "pliant.torch", text)


def _base_of(group: dict[str, Any]) -> dict[str, Any]:
    """What rules change of a group. Options of another form than Adam's, such as the two epsilons of Adafactor or three betas, are none of them."""
    names = ("lr", "betas", "momentum", "eps", "weight_decay")
    base: dict[str, Any] = {name: group[name] for name in names if name in group and _is_of_known_form(name, group[name])}
    base["lr"] = float(base["lr"])
    return base


def _is_of_known_form(name: str, value: Any) -> bool:
    if name == "betas":
        return isinstance(value, (tuple, list)) and len(value) == 2
    return name == "lr" or isinstance(value, (int, float, torch.Tensor))


def _set_rate(group: dict[str, Any], rate: float) -> None:
    """A rate that is a tensor stays that tensor: graphs of a device and compiled optimizers read it."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _beta(beta: float, factor: float) -> float:
    return beta if factor == 1 else 1 - factor * (1 - beta)


def _apply(group: dict[str, Any], base: dict[str, Any], scaling: Scaling) -> None:
    _set_rate(group, scaling.learning_rate if base["lr"] > 0 else 0.0)
    if "betas" in base:
        beta1, beta2 = base["betas"]
        group["betas"] = (_beta(beta1, scaling.one_minus_beta1), _beta(beta2, scaling.one_minus_beta2))
    if base.get("momentum", 0) > 0:
        group["momentum"] = _beta(base["momentum"], scaling.one_minus_beta1)
    if "eps" in base:
        group["eps"] = base["eps"] * scaling.epsilon
    if "weight_decay" in base:
        group["weight_decay"] = base["weight_decay"] * scaling.weight_decay
