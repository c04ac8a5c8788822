"""The state of torch's optimizers: all of it before the first step, and by the names of parameters."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from pliant._errors import Error, Status

_SHOWN = 3  # names in a message

Entries = dict[str, Any]  # state of one parameter, by the optimizer's own keys
Initialise = Callable[[torch.nn.Parameter, dict[str, Any]], Mapping[str, Any]]

# Whose state is made by the first step, and begins as zeros, but for what _OTHER_BEGINNINGS has.
_BEGIN_AS_ZEROS = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta", "Adagrad")
_KNOWN_KEYS = ("step", "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg", "acc_delta", "sum",
               "mu_product")
_OTHER_BEGINNINGS = {"mu_product": 1}


def make_state(optimizer: Any, names: Mapping[int, str], initialise: Initialise | None = None) -> None:
    """Gives the optimizer the state that its first step would make for the parameters in `names`, which are by their id. Nothing is changed
    where it has some. `initialise`: makes that of a parameter of a group, for optimizers that are not known here."""
    for group in optimizer.param_groups:
        made: Entries | None = None  # of one parameter, which those of the group have, too
        for parameter in group["params"]:
            if id(parameter) not in names or optimizer.state.get(parameter):
                continue
            if initialise is not None:
                entries = dict(initialise(parameter, group))
            else:
                if made is None:
                    made = _of_first_step(optimizer, group, parameter)
                entries = _beginning(made, parameter)
            if entries:
                optimizer.state[parameter] = entries


def _of_first_step(optimizer: Any, group: dict[str, Any], parameter: torch.nn.Parameter) -> Entries:
    """What a step of an optimizer of that kind, under these options and in this release of torch, keeps of a parameter of 3 elements."""
    kind = type(optimizer)
    name = kind.__name__
    if name not in _BEGIN_AS_ZEROS or kind is not getattr(torch.optim, name, None):
        raise Error(f"{kind.__module__}.{name} makes its state in its first step, and how is known of {', '.join(_BEGIN_AS_ZEROS)} of torch.optim: "
                    "give pliant.torch.state(..., initialise=), a function of a parameter and its group that gives its entries, or load or make the "
                    "state before", Status.UNIMPLEMENTED)
    if group.get("dampening"):
        raise Error("SGD takes its first gradient without dampening, which a state made before it does not know: set dampening = 0, or give "
                    "pliant.torch.state(..., initialise=)", Status.UNIMPLEMENTED)
    probe = torch.nn.Parameter(torch.zeros(3, dtype=parameter.dtype, device=parameter.device))
    probe.grad = torch.zeros_like(probe)
    options = {key: value for key, value in group.items() if key not in ("params", "param_names", "initial_lr")}
    one = kind([{"params": [probe], **options}])
    one.step()
    made: Entries = {key: value for key, value in one.state[probe].items() if value is not None}
    unknown = sorted(set(made) - set(_KNOWN_KEYS))
    if unknown:
        raise Error(f"{name} of torch {torch.__version__} keeps {', '.join(unknown)}, and how that begins is not known: give "
                    "pliant.torch.state(..., initialise=)", Status.UNIMPLEMENTED)
    return made


def _beginning(made: Entries, parameter: torch.nn.Parameter) -> Entries:
    entries: Entries = {}
    for key, value in made.items():
        first = _OTHER_BEGINNINGS.get(key, 0)
        if not isinstance(value, torch.Tensor):
            entries[key] = type(value)(first)
        elif value.shape == (3,):
            entries[key] = torch.full_like(parameter, first, dtype=value.dtype, requires_grad=False)
        else:
            entries[key] = torch.full_like(value, first)
    return entries


def arrays_of(optimizer: Any, names: Mapping[int, str]) -> list[tuple[str, Entries, str]]:
    """Parameter's name, what the optimizer keeps of it, and the key of each tensor in there, numbers left out; in the order of `names`, which
    all ranks have."""
    found = [(_name_of(parameter, names), entries, key) for parameter, entries in optimizer.state.items()
             for key, value in entries.items() if value is not None and not is_number(value)]
    order = {name: number for number, name in enumerate(names.values())}
    return sorted(found, key=lambda entry: (order[entry[0]], str(entry[2])))


def numbers_of(optimizer: Any, names: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """What the optimizer keeps of parameters, by their name and its own keys, and is no array."""
    found: dict[str, dict[str, Any]] = {}
    for parameter, entries in optimizer.state.items():
        numbers = {str(key): _number(value, str(key)) for key, value in entries.items() if value is not None and is_number(value)}
        if numbers:
            found[_name_of(parameter, names)] = numbers
    return found


def _number(value: Any, key: str) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else plain(value, f"{key!r}, which the optimizer keeps of a parameter,")


def _name_of(parameter: Any, names: Mapping[int, str]) -> str:
    name = names.get(id(parameter))
    if name is None:
        raise Error("the optimizer has state of a parameter that is none of the model", Status.FAILED_PRECONDITION)
    return name


def is_number(value: Any) -> bool:
    """What goes with the numbers and not with the arrays."""
    return not isinstance(value, torch.Tensor) or value.dim() == 0


def check_groups(optimizer: Any, names: Mapping[int, str]) -> None:
    """Raises Error for a parameter that is none of the model, and for options that are no numbers."""
    for number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) not in names:
                raise Error(f"parameter {place} of group {number} of the optimizer is none of the model; make the optimizer of model.parameters()")
        for key, value in group.items():
            if key not in ("params", "param_names"):
                plain(value, f"{key!r} of group {number} of the optimizer")


def layout_of(parameters: Iterable[tuple[str, torch.nn.Parameter]], optimizer: Any) -> str:
    """A line for each: its name, shape and group. What ranks have alike; the order within a group is no part of it."""
    groups = {id(parameter): number for number, group in enumerate(() if optimizer is None else optimizer.param_groups) for parameter in group["params"]}
    return "".join(f"{name} {tuple(one.shape)}{f' in group {groups[id(one)]}' if id(one) in groups else ''}\n" for name, one in parameters)


def warn_of_others(optimizer: Any, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    """Logs what is trained by another optimizer, or by none."""
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    names = [name for name, parameter in parameters.items() if parameter.requires_grad and id(parameter) not in own]
    if not names:
        return
    from pliant import _log  # late: logging takes long to import

    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    _log.deliver(2, "pliant.torch", f"{shown} need a gradient and are in no group of the optimizer: freeze what is not trained; what another optimizer keeps is "
                 "no part of the job's state, and workers that join or resume lack it: give one optimizer with all groups")


def plain(value: Any, what: str) -> Any:
    """The value in JSON; mappings keep keys that are no text. Raises Error for what no state can hold."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(one, what) for one in value]
    if isinstance(value, Mapping):
        return {"pairs": [[plain(key, what), plain(one, what)] for key, one in value.items()]}
    raise Error(f"{what} is a {type(value).__name__}; a state without pickle holds numbers, text, lists and mappings", Status.UNIMPLEMENTED)


def like(old: Any, found: Any) -> Any:
    """What `plain` made, as a value of the type that `old` has. A tensor is filled where it is."""
    if isinstance(old, torch.Tensor):
        old.fill_(found)
        return old
    if isinstance(found, list):
        values = [like(None, one) for one in found] if not isinstance(old, (list, tuple)) or len(old) != len(found) else [
            like(before, one) for before, one in zip(old, found)]
        return tuple(values) if isinstance(old, tuple) else values
    if isinstance(found, dict):
        pairs = {key: like(None if not isinstance(old, Mapping) else old.get(key), one) for key, one in found["pairs"]}
        return type(old)(pairs) if isinstance(old, dict) else pairs
    return found
