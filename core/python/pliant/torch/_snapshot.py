"""Snapshots of a job into a model, without a job."""
from __future__ import annotations

import glob
import os
from typing import Any

import torch

from pliant import _core
from pliant._errors import Error, Status
from pliant.torch._buffers import load_buffers, require_like
from pliant.torch._state import State, _array_name, parts_of_blob, read_blob

_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "uint8": "u8", "int8": "u8",
          "bool": "u8"}
_SHOWN = 5  # differences that are named


def load_snapshot(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes], model: torch.nn.Module, optimizer: Any = None, *, scheduler: Any = None
) -> int:
    """Copies the state in a snapshot of a job into `model`, and into `optimizer` and `scheduler` where they are given; for evaluation and export.
    Returns the number of steps that the state has made. Needs no job.

    `path`: the directory of a run, whose newest snapshot it is, such as pliant-runs/NAME/latest, or a snapshot file, such as
    pliant-runs/NAME/latest/snapshots/step-00000050.snapshot.

    The snapshot is of a job with `pliant.torch.state` or one with `pliant.torch.shard`: the model here is whole either way.

    Raises Error where the file is damaged, and where it is of another model, optimizer or scheduler, with what differs; nothing is changed then. On a device
    other than the CPU the state goes through the CPU's memory.
    """
    file = _file_of(os.fsdecode(path))
    _require_no_safetensors(file)
    state = State(model, optimizer, scheduler, trains=False)
    own = {name: (kind, shape, tensor) for (name, kind, shape, _), (_, tensor) in zip(state.arrays(), state._tensors())}
    held: list[tuple[torch.Tensor, torch.Tensor]] = []  # a tensor of the CPU, and where it belongs
    steps, was_sharded = 0, False

    def look(step: int, arrays: list[tuple[str, str, tuple[int, ...]]], is_sharded: bool) -> list[int]:
        nonlocal steps, was_sharded
        steps, was_sharded = step, is_sharded
        if is_sharded:
            arrays = [(_name_of_whole(name), kind, shape) for name, kind, shape in arrays]
            _require_same(file, _without_buffers(own, model), _without_frozen(arrays, own), with_optimizer=optimizer is not None)
        else:
            _require_same(file, own, arrays, with_optimizer=optimizer is not None)
        return [0] * len(arrays)

    def place(step: int, arrays: list[tuple[str, str, tuple[int, ...]]], is_sharded: bool) -> list[int]:
        places = []
        for name, _, _ in arrays:
            known = own.get(_name_of_whole(name) if is_sharded else name)
            if known is None or not known[2].numel():
                places.append(0)
                continue
            tensor = known[2]
            there = tensor if tensor.device.type == "cpu" else torch.empty_like(tensor, device="cpu", requires_grad=False)
            held.append((there, tensor))
            places.append(there.data_ptr())
        return places

    blob = _core._load_snapshot(file, look)  # first, so that nothing is changed where something differs
    kept: dict[str, Any] = {}
    buffers = memoryview(b"")
    if was_sharded:
        kept, buffers = parts_of_blob(blob)
    elif optimizer is not None:
        kept = read_blob(blob)
    try:
        if was_sharded:
            require_like(list(model.named_buffers()), kept)
            if optimizer is not None:
                numbers = zip(optimizer.param_groups, kept.get("numbers", ()))
                kept["numbers"] = {state._names[id(one)]: found for group, found in numbers for one in group["params"]}
        if optimizer is not None:
            state.require_like(kept)
    except Error as error:
        raise Error(f"{file}: {error.message}", error.status, 2) from None
    _core._load_snapshot(file, place)
    with torch.no_grad():
        for there, tensor in held:
            if there is not tensor:
                tensor.copy_(there)
    if was_sharded:
        load_buffers(list(model.named_buffers()), kept, buffers)
    if optimizer is not None:
        state.load(kept)
    return steps


def _file_of(path: str) -> str:
    """The newest snapshot of a run, or the file that `path` is."""
    if not os.path.isdir(path):
        return path
    found = sorted(glob.glob(os.path.join(glob.escape(path), "snapshots", "step-*.snapshot")))
    if not found:
        raise Error(f"{path} has no snapshots/step-N.snapshot; give the directory of a run, such as pliant-runs/NAME/latest, or a snapshot file",
                    Status.NOT_FOUND, 2)
    return found[-1]


def _require_no_safetensors(file: str) -> None:
    """One begins with the size of its header, which is JSON."""
    if not os.path.isfile(file) or not os.access(file, os.R_OK):
        return  # as core says
    with open(file, "rb") as opened:
        begin = opened.read(9)
    size = int.from_bytes(begin[:8], "little")
    if begin[8:] == b"{" and 2 <= size <= os.path.getsize(file) - 8:
        raise Error(f"{file} is a safetensors file, as `pliant snapshot export` writes them, and no snapshot: weights = safetensors.torch.load_file(file) reads it, and "
                    "model.load_state_dict(weights) takes what is the model's, without \"model.\" in front of names that have it", Status.FAILED_PRECONDITION, 2)


def _name_of_whole(name: str) -> str:
    """The name that `pliant.torch.state` gives what a sharded job has under this one."""
    kind, _, parameter = name.partition("/")
    return f"model.{parameter}" if kind == "weights" else f"optimizer.{parameter}.{_array_name(kind)}"


def _without_buffers(own: dict[str, Any], model: torch.nn.Module) -> dict[str, Any]:
    """They are not among the arrays of a sharded job."""
    buffers = {f"model.{_array_name(name)}" for name, _ in model.named_buffers()}
    return {name: array for name, array in own.items() if name not in buffers}


def _without_frozen(arrays: list[tuple[str, str, tuple[int, ...]]], own: dict[str, Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    """A sharded job keeps room for the optimizer's state of what is frozen, too."""
    kept = {name.removeprefix("optimizer.").rpartition(".")[0] for name in own if name.startswith("optimizer.")}
    return [array for array in arrays if not array[0].startswith("optimizer.") or array[0].removeprefix("optimizer.").rpartition(".")[0] in kept]


def _require_same(file: str, own: dict[str, Any], arrays: list[tuple[str, str, tuple[int, ...]]], with_optimizer: bool) -> None:
    here = {name: f"{_SHORT[kind]}{list(shape)}" for name, (kind, shape, _) in own.items()}
    there = {name: f"{kind}{list(shape)}" for name, kind, shape in arrays if with_optimizer or not name.startswith("optimizer.")}
    differences = [f"{name} is {here.get(name, 'missing')} in this program and {there.get(name, 'missing')} in the snapshot"
                   for name in sorted({*here, *there}) if here.get(name) != there.get(name)]
    if differences:
        more = f", and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise Error(f"{file} is of another model: {'; '.join(differences[:_SHOWN])}{more}", Status.FAILED_PRECONDITION, 2)
