"""The groups of an optimizer and their scheduler in an elastic job: rates of one step, and what is kept of them."""
from __future__ import annotations

import math
from typing import Any

import torch

from pliant._core import Scaling
from pliant._errors import Error, Status
from pliant.torch import _optimizers
from pliant.torch._scheduler import NamedRates, _apply, _base_of, require_optimizer, require_scheduler


def other(how: str) -> Error:
    return Error(f"the state {how}", Status.FAILED_PRECONDITION)


class Rates:
    """Either may be None; a scheduler needs its optimizer."""

    def __init__(self, optimizer: Any, scheduler: Any) -> None:
        if optimizer is not None:
            require_optimizer(optimizer)
        if scheduler is not None:
            if optimizer is None:
                raise Error("a scheduler without its optimizer")
            require_scheduler(scheduler)
            its = getattr(scheduler, "optimizer", None)
            if isinstance(its, torch.optim.Optimizer) and its.param_groups is not optimizer.param_groups:
                raise Error(f"{type(scheduler).__name__} moves the rates of another {type(its).__name__} than the one that is given: make the scheduler of that optimizer")
        self.optimizer = optimizer
        self.scheduler = scheduler
        self._named: NamedRates | None = None  # once a session says what [lr.groups] has
        self._base: list[dict[str, Any]] | None = None  # what the groups had before the rates of the step under way were set
        self._set: list[dict[str, Any]] = []  # what they were given for it
        self._count = self._parameters()

    def require_same_groups(self) -> None:
        """Raises Error where parameters were added to the optimizer since."""
        count = self._parameters()
        if count != self._count:
            raise Error(f"the optimizer has {count} parameters, and had {self._count} when it became part of the job's state, in which what comes later has no "
                        "place: add it before pliant.torch.state or pliant.torch.shard is called", Status.FAILED_PRECONDITION)

    def begin(self, config: Any) -> None:
        """A session begins, whose config has this section [lr]."""
        if self.optimizer is None:
            return
        self._named = NamedRates(config.groups, self.optimizer)
        unused = self._named.unused(self.optimizer)
        if unused:
            named = [str(group["name"]) for group in self.optimizer.param_groups if "name" in group]
            raise Error(f"[lr.groups] has {', '.join(unused)}, and no group of the optimizer has that name: "
                        + (f"they are {', '.join(named)}" if named else 'give groups a "name"'), Status.NOT_FOUND, 2)
        self._warn_of_base(config)

    def _warn_of_base(self, config: Any) -> None:
        """The agent knows the rates of the config alone, and writes them into the ledger."""
        own = list(dict.fromkeys(float(group.get("initial_lr", group["lr"])) for group in self.optimizer.param_groups if group.get("name") not in config.groups))
        if not own or any(math.isclose(rate, config.base_lr) for rate in own):
            return
        from pliant import _log  # late: logging takes long to import

        rates = f"a rate of {own[0]}" if len(own) == 1 else f"rates of {' and '.join(map(str, own))}"
        _log.deliver(2, "pliant.torch", f"the optimizer begins with {rates}, and [lr] base_lr is {config.base_lr}: the optimizer keeps its own, and the live line, the ledger "
                     "and `pliant report` show that of the config. Make the optimizer with lr=session.config.lr.base_lr, or have base_lr say what the program has")

    def set(self, step: Any) -> tuple[float, float]:
        """The step is final: the groups have its rates. Gives the factors of first and second moments."""
        if self.optimizer is None:
            return 1.0, 1.0
        self._base = [_base_of(group) for group in self.optimizer.param_groups]
        rates = [base["lr"] if self._named is None else self._named.base(number, base["lr"]) for number, base in enumerate(self._base)]
        scalings: list[Scaling] = [step.scaling(rate) if rate > 0 else step.scaling() for rate in rates]
        for group, base, scaling in zip(self.optimizer.param_groups, self._base, scalings):
            _apply(group, base, scaling)
        self._set = [_base_of(group) for group in self.optimizer.param_groups]
        return (scalings[0].momentum_buffer, scalings[0].second_moment) if scalings else (1.0, 1.0)

    def settle(self) -> None:
        """The update of the last committed step was made: the groups get back what they had, and the scheduler goes on."""
        if self._base is None:
            return
        base, self._base = self._base, None
        for number, (group, before, given) in enumerate(zip(self.optimizer.param_groups, base, self._set)):
            for name, value in _base_of(group).items():
                if value != given[name]:
                    raise Error(f"{name!r} of group {number} of the optimizer was changed after commit(), to which it belongs from there to the next step: "
                                "give a scheduler to pliant.torch.state(..., scheduler=), which calls it, and change rates before commit()",
                                Status.FAILED_PRECONDITION)
            for name, value in before.items():
                if isinstance(group[name], torch.Tensor):
                    group[name].fill_(value)
                else:
                    group[name] = value
        if self.scheduler is not None:
            self.scheduler.step()

    def _parameters(self) -> int:
        return 0 if self.optimizer is None else sum(len(group["params"]) for group in self.optimizer.param_groups)

    def drop(self) -> None:
        """The groups are about to be others."""
        self._base = None

    def save(self, kept: dict[str, Any]) -> None:
        if self.optimizer is not None:
            kept["optimizer"] = type(self.optimizer).__name__
            kept["groups"] = [{key: _optimizers.plain(value, f"{key!r} of group {number} of the optimizer") for key, value in group.items()
                               if key not in ("params", "param_names")} for number, group in enumerate(self.optimizer.param_groups)]
        if self.scheduler is not None:
            try:
                kept["scheduler"] = _optimizers.plain(self.scheduler.state_dict(), f"what {type(self.scheduler).__name__} keeps")
            except Error as error:
                raise Error(f"{error.message}. Of functions a newer torch may keep the names; LambdaLR and the schedules of [lr] need none", error.status) from None

    def require_like(self, kept: dict[str, Any]) -> None:
        """Raises Error for what another program kept."""
        if (kept.get("scheduler") is None) != (self.scheduler is None):
            raise other("has a scheduler, and this program has none" if self.scheduler is None else "has no scheduler, and this program has one")
        if self.optimizer is None:
            return
        kind = type(self.optimizer).__name__
        if kept.get("optimizer") != kind:
            raise other(f"is of {kept.get('optimizer') or 'no optimizer'}, and this program has {kind}")
        if len(kept["groups"]) != len(self.optimizer.param_groups):
            raise other(f"has {len(kept['groups'])} parameter groups, and this program's optimizer {len(self.optimizer.param_groups)}")

    def load(self, kept: dict[str, Any]) -> None:
        for group, saved in zip(() if self.optimizer is None else self.optimizer.param_groups, kept.get("groups", ())):
            for key, value in saved.items():
                group[key] = _optimizers.like(group.get(key), value)
        if self.scheduler is not None:
            before = self.scheduler.state_dict()
            self.scheduler.load_state_dict(_optimizers.like(before, kept["scheduler"]))
