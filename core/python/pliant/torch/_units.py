"""Which modules of a sharded model are gathered as one, and what is different about them from then on."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Union

import torch

from pliant._errors import Error, Status
from pliant.torch._slots import Slot

Units = Union[Iterable[Any], type, Callable[[torch.nn.Module], bool], None]


class Unit:
    """A module, and the parameters that are whole while it computes, forward and backward."""

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name = name
        self.module = module
        self.number = -1  # of core
        self.parent: Unit | None = None
        self.slots: list[Slot] = []
        self.numbers: list[int] = []  # of slots
        self.trained: list[Slot] = []
        self.trained_numbers: list[int] = []

    def close(self) -> None:
        self.numbers = [slot.number for slot in self.slots]
        self.trained = [slot for slot in self.slots if slot.trained]
        self.trained_numbers = [slot.number for slot in self.trained]


class Guarded(OrderedDict):  # type: ignore[type-arg]
    """The parameters of a module by name. One that is not whole is given to no module that computes."""

    def __init__(self, parameters: Any, require: Callable[[Any], None]) -> None:
        super().__init__(parameters)
        self._require = require

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if found is not None:
            self._require(found)
        return found


class Sharded:
    """A module that `pliant.torch.shard` gathers as one: what it computes with is whole while it is called, and in its backward."""

    _pliant_call: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if "_pliant_call" not in self.__dict__:  # a slice of a Sequential, say
            return super().__call__(*arguments, **named)  # type: ignore[misc]
        return self._pliant_call(super().__call__, arguments, named)  # type: ignore[misc]

    def __deepcopy__(self, memo: Any) -> Any:
        raise Error(f"a copy of {type(self).__name__} would copy nothing: its parameters are cut over the ranks. Copy before pliant.torch.shard, or take "
                    "state.state_dict()", Status.UNIMPLEMENTED)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error(f"{type(self).__name__} is cut over the ranks and cannot be pickled: take state.state_dict()", Status.UNIMPLEMENTED)


_classes: dict[type, type] = {}


def swap_class(module: torch.nn.Module, call: Callable[..., Any]) -> None:
    """As FSDP2 does: the module stays the object that it is, and is of a class of its own. That keeps its name, which Transformers writes into
    config.json, say."""
    kind = type(module)
    if kind not in _classes:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
        _classes[kind] = type(kind.__name__, (Sharded, kind), names)
    module.__dict__["_pliant_call"] = call
    module.__class__ = _classes[kind]


def choose(model: torch.nn.Module, units: Units) -> list[Unit]:
    """The root first, then the others in the order in which torch names modules; each with its parent."""
    names = {id(module): name for name, module in model.named_modules()}
    chosen = _chosen(model, units, names)
    found: list[Unit] = []
    inside: list[tuple[torch.nn.Module, Unit | None, str]] = [(model, None, "")]
    seen: set[int] = set()
    while inside:
        module, parent, name = inside.pop(0)
        if id(module) in seen:
            continue
        seen.add(id(module))
        if parent is None or id(module) in chosen:
            made = Unit(name or type(module).__name__, module)
            made.parent = parent
            found.append(made)
            parent = made
        inside = [(child, parent, f"{name}.{key}" if name else key) for key, child in module._modules.items() if child is not None] + inside
    return found


def _chosen(model: torch.nn.Module, units: Units, names: dict[int, str]) -> set[int]:
    if units is None:
        return set(_of_lists(model))
    if isinstance(units, type):
        units = [units]
    elif callable(units) and not isinstance(units, torch.nn.Module):
        return {id(module) for module in model.modules() if units(module)}
    if isinstance(units, (str, bytes, torch.nn.Module)) or not isinstance(units, Iterable):
        raise TypeError(f"units is a {type(units).__name__}: modules, names or classes of modules in a list, or a function of a module, are needed")
    chosen: set[int] = set()
    for one in units:
        if isinstance(one, str):
            matching = [module for name, module in model.named_modules() if name == one]
        elif isinstance(one, type):
            matching = [module for module in model.modules() if isinstance(module, one)]
        elif isinstance(one, torch.nn.Module):
            matching = [one] if id(one) in names else []
        else:
            raise TypeError(f"a unit is a {type(one).__name__}: a module, its name or its class is needed")
        if not matching:
            shown = one if isinstance(one, (str, type)) else f"of {type(one).__name__}"
            raise Error(f"unit {shown} is no module of the model", Status.NOT_FOUND)
        chosen |= {id(module) for module in matching}
    return chosen


def _of_lists(model: torch.nn.Module) -> Iterable[int]:
    """The modules in the outermost lists: the layers of most models. In place of one that only holds others, those."""
    left: list[tuple[torch.nn.Module, bool]] = [(model, False)]
    while left:
        module, is_in_list = left.pop()
        if not is_in_list or not _is_called(module):
            is_list = isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))
            left += [(child, is_in_list or is_list) for child in module.children()]
        elif any(True for _ in module.parameters()):
            yield id(module)


def _is_called(module: torch.nn.Module) -> bool:
    """Lists, mappings and plain modules have no forward."""
    return type(module).forward is not torch.nn.Module.forward or "forward" in module.__dict__


def assign(units: list[Unit], slots: dict[int, Slot], with_root: set[int]) -> None:
    """Each parameter to the units whose modules use it, those below a unit of their own left out. `with_root`: ids of parameters that the root
    keeps."""
    by_module = {id(unit.module): unit for unit in units}
    for unit in units:
        left = [unit.module]
        while left:
            module = left.pop(0)
            for parameter in module._parameters.values():
                if parameter is not None:
                    _add(units[0] if id(parameter) in with_root else unit, slots[id(parameter)])
            left += [child for child in module._modules.values() if child is not None and id(child) not in by_module]
    for unit in units[1:]:  # what is whole with one around is whole already
        around = unit.parent
        while around is not None:
            unit.slots = [slot for slot in unit.slots if slot not in around.slots]
            around = around.parent
    for unit in units:
        unit.close()
        for slot in unit.slots:
            slot.units.append(unit.name)


def _add(unit: Unit, slot: Slot) -> None:
    if slot not in unit.slots:
        unit.slots.append(slot)
