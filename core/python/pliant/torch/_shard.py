"""A model that is cut over the ranks of an elastic job, and its optimizer."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Union

import torch

from pliant import _core
from pliant._errors import Error, Status
from pliant.torch import _deterministic, _optimizers, _slots
from pliant.torch._buffers import Buffers, bytes_of, described, load_buffers
from pliant.torch._members import Members
from pliant.torch._passes import Passes
from pliant.torch._rates import Rates, other
from pliant.torch._shard_optimizer import ShardOptimizer, copy_of
from pliant.torch._slots import Slot, over
from pliant.torch._state import _array_name, _require_kept, _tensors_of, clip_scale, parts_of_blob
from pliant.torch._units import Guarded, Units, assign, choose, swap_class

Initialise = Callable[[str, torch.Tensor], object]
Chosen = Union[str, torch.nn.Parameter, torch.nn.Module]
_FORMAT = 1


def shard(
    model: torch.nn.Module,
    optimizer: Any = None,
    *,
    session: Any,
    scheduler: Any = None,
    units: Units = None,
    external: Iterable[Chosen] = (),
    initialise: Initialise | None = None,
) -> ShardedState:
    """Cuts the parameters of `model`, their gradients and the state of `optimizer` over the ranks of the job (ZeRO-3), and gives what
    `Session.start` takes in place of `pliant.torch.state`. The config has [coordinator]. A rank owns a share of each; a parameter is whole on a rank
    only while a module that uses it computes. Weights are those of `pliant.torch.state`, to the bit in deterministic mode.

    `model`: on the CPU, or on the "meta" device, where it takes no memory. It stays the object that it is; its parameters keep name, shape and place
    in the optimizer's groups, and hold NaN while they are not whole. From here on it is called within `with step.attempt():`.
    First values of parameters and buffers, and the optimizer's options, are those of rank 0.
    `optimizer`: of torch.optim, one that works element by element and has made no step. Its `step` updates what this rank owns. Its groups stay as
    they are; `state_dict` and `load_state_dict` are refused, for its state is in `sharded_state_dict` and in snapshots.
    `scheduler`: as for `pliant.torch.state`.
    `units`: the modules that are gathered as one, as FSDP's users wrap them: modules, their names or classes in a list, or a function of a module;
    left out, the modules in the outermost `ModuleList`s and `Sequential`s, and in place of one without a forward, such as a list in a list, those in
    it. What is in none of them belongs to the model itself, which is a unit, too, and is whole from its call to the end of its backward.
    `external`: parameters, their names or modules with them, that the forward uses outside of their unit: the model itself has them.
    `initialise`: writes the first values of a parameter, `initialise(name, tensor)`, one after the other, the same on all ranks; left out, those that the
    model has, or what `reset_parameters` of the module makes of one on the "meta" device.
    """
    return ShardedState(model, optimizer, session, scheduler, units, external, initialise)


class ShardedState:
    """What `shard` gives. Calls come on the thread of the session, but for the model's own."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any,
        session: Any,
        scheduler: Any,
        units: Units,
        external: Iterable[Chosen],
        initialise: Initialise | None,
    ) -> None:
        _require_model(model)
        if not hasattr(session, "_core"):
            raise TypeError(f"the session is a {type(session).__name__}: a pliant.elastic.Session is needed")
        if initialise is not None and not callable(initialise):
            raise TypeError(f"initialise is a {type(initialise).__name__}: a function of a name and a tensor is needed")
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self._session = session
        self._rates = Rates(optimizer, scheduler)
        self._seed = int(session.seed)
        self._is_deterministic = bool(session.config.run.deterministic)
        self._is_new = True  # no forward was looked at
        self._owes_update = False
        self._is_updating = False  # what this rank owns is changed in part
        self._ended_by = ""  # the kind of exception that an update has ended with, so that it stays so
        self._gradient_scale = 1.0  # of the update that is owed
        found = dict(model.named_parameters())
        chosen = choose(model, units)
        if optimizer is not None:
            _optimizers.check_groups(optimizer, {id(parameter): name for name, parameter in found.items()})
            _optimizers.warn_of_others(optimizer, found)
        self._update = None if optimizer is None else ShardOptimizer(optimizer, {id(one) for one in found.values() if one.requires_grad})
        self._firsts = _FirstValues(model, found, initialise, self._seed)  # which the parameters still have
        _chosen_parameters(model, external)
        self.sharded = _core.ShardedModel(session._core, [] if self._update is None else self._update.names, self._initialise)
        _leave_meta(model, found, optimizer)
        with_root = _chosen_parameters(model, external)
        dtype, reduce = (getattr(torch, one) for one in (self.sharded.compute_dtype, self.sharded.reduce_dtype))
        _warn_of_types(found, dtype)
        self._firsts.keep(found)
        _slots.reserve(max((one.numel() for one in found.values()), default=1) * 4)
        self._slots = [Slot(name, parameter, dtype, reduce) for name, parameter in found.items()]
        by_id = {id(slot.parameter): slot for slot in self._slots}
        self._by_name = {slot.name: slot for slot in self._slots}
        self._passes = Passes(self.sharded, self._slots)
        for slot in self._slots:
            slot.number = self.sharded.add_parameter(_array_name(slot.name), list(slot.shape), not slot.trained)
            if slot.trained:
                slot.parameter.register_hook(functools.partial(self._passes.gradient_comes, slot))  # type: ignore[no-untyped-call]
        assign(chosen, by_id, with_root)
        for unit in chosen:
            parent = None if unit.parent is None else unit.parent.number
            unit.number = self.sharded.add_module(_array_name(unit.name), parent, unit.numbers)
            swap_class(unit.module, functools.partial(self._passes.call, unit))
        if self._update is not None:
            self._update.close(by_id, self._step)
        for module in model.modules():
            _watch_module(module, self, by_id)
        self._passes.members = Members(model, "pliant.torch.shard")
        self._buffers = Buffers(model)
        self._buffer_bytes: tuple[list[int], bytes] | None = None
        self.save()  # what cannot be saved is said now

    # What a session asks for.

    def attach(self, session: Any) -> None:
        if session is not self._session:
            raise Error("pliant.torch.shard was given another session than the one that starts", Status.FAILED_PRECONDITION)
        if session.accelerator != "host":
            raise Error(f"models of PyTorch are cut over the memory of the CPU so far: [accelerator] use = \"host\", not \"{session.accelerator}\"",
                        Status.UNIMPLEMENTED, 2)
        self._rates.begin(session.config.lr)
        if self._is_deterministic:
            torch.set_num_threads(1)
            _deterministic.require_not_compiled(self.model)

    @property
    def gradient_size(self) -> int:
        return 0

    @property
    def gradient_layout(self) -> str:
        """Which parameters are trained, and by which group of the optimizer: each rank updates what it owns."""
        return _optimizers.layout_of([(slot.name, slot.parameter) for slot in self._slots if slot.trained], self.optimizer)

    def arrays(self) -> list[Any]:
        return []

    def save(self) -> bytes:
        """What is the same on all ranks: numbers of the optimizer, its groups, the scheduler, and buffers of the model."""
        self._rates.settle()
        kept: dict[str, Any] = {"format": _FORMAT}
        if self._update is not None:
            kept["numbers"] = [{key: _number(value) for key, value in numbers.items()} for numbers in self._update.numbers]
        self._rates.save(kept)
        kept["gradient_scale"] = self._gradient_scale  # of the last update, which no other rank makes again: a rank alone may have clipped
        kept["buffers"] = described(self._buffers.named())
        text = json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + self._bytes_of_buffers()

    def load(self, blob: bytes) -> None:
        self._rates.drop()
        self._owes_update, self._ended_by = False, ""
        kept, buffers = parts_of_blob(blob)
        self._rates.require_like(kept)
        numbers = kept.get("numbers", [])
        if self._update is not None:
            if [sorted(one) for one in numbers] != [sorted(one) for one in self._update.numbers]:
                raise other("keeps other numbers of the optimizer than this program's does")
            self._update.numbers = [{key: _optimizers.like(copy_of(value), there[key]) for key, value in here.items()}
                                    for here, there in zip(self._update.numbers, numbers)]
        self._rates.load(kept)
        self._gradient_scale = float(kept.get("gradient_scale", 1.0))
        load_buffers(self._buffers.named(), kept, buffers)

    def before_next(self) -> None:
        self._require_whole_update()
        if self._owes_update:
            raise Error("the update of the last committed step was not made: call step() of the optimizer that pliant.torch.shard was given, or state.update(), "
                        "where step.commit() is true", Status.FAILED_PRECONDITION)

    def begin(self, step: Any) -> None:
        """A step is handed out, maybe again."""
        self._rates.settle()
        self._rates.require_same_groups()
        self._open(step)

    def begin_attempt(self, step: Any) -> None:
        def pending() -> range | None:
            rows: range | None = step.pending
            return rows

        self._passes.begin_attempt(pending)

    def end_attempt(self) -> BaseException | None:
        return self._passes.end_attempt()

    def backward(self, step: Any, rows: range, loss_sum: torch.Tensor) -> None:
        """Makes the gradient of the summed loss over `rows`, the step's next micro-batch."""
        _deterministic.require_loss(loss_sum, deterministic=self._is_deterministic)
        self._passes.backward(loss_sum)
        self._buffers.check()
        self._is_new = False
        step.add(rows, float(loss_sum.detach()) if rows else 0.0)
        self._open(step)

    def finish(self, step: Any) -> None:
        """Micro-batches without rows, which come last, and for which the program has computed nothing: this rank takes part in what the others
        gather, as far as they visit what it has visited last."""
        while (rows := step.pending) is not None and not rows:
            if not self.sharded.can_repeat_pass():
                raise Error(f"step {step.index} has no rows for this rank, which has made no pass that it could repeat: take batches from session.loader, "
                            "which gives one that counts nothing, or compute any other", Status.FAILED_PRECONDITION)
            self.sharded.repeat_pass(rows)
            step.add(rows, 0.0)

    def before_commit(self, step: Any) -> None:
        self._rates.require_same_groups()

    def committed(self, step: Any, committed: Any) -> None:
        moments = self._rates.set(step)
        self._owes_update = any(slot.trained and slot.elements for slot in self._slots)
        self._gradient_scale = 1.0
        if self._update is not None:
            self._update.moments = moments
        _deterministic.seed_update(self._seed, step.index)

    # What a program asks for.

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scales the mean gradient of the step that was committed, where its norm is above `max_norm`, and gives the norm it had: of all parameters, on
        all ranks. What `optimizer.step()` and `update` are given then is scaled. The bits are those of `pliant.torch.state(...).clip_grad_norm_`."""
        if not self._owes_update:
            raise Error("clip_grad_norm_ comes after a commit() that returned a value, and before optimizer.step() or state.update()",
                        Status.FAILED_PRECONDITION)
        norm = math.sqrt(self.sharded.squared_gradient_norm())
        self._gradient_scale = clip_scale(norm, max_norm)
        return norm

    def update(self, each: Callable[[str, int, torch.Tensor, torch.Tensor], object]) -> None:
        """In place of `optimizer.step()`, after each commit() that returned a value: `each(name, first, weights, gradient)` for every run of elements
        that this rank owns, from element `first` of the parameter on. It changes `weights` in place."""
        def take(number: int, first: int, count: int, weights: int, gradient: int, _: list[int]) -> None:
            own, mean = (over(address, count, torch.float32, (count,)) for address in (weights, gradient))
            with torch.no_grad():
                each(self._slots[number].name, first, own, mean if self._gradient_scale == 1 else mean * self._gradient_scale)

        self._make_update(lambda: self.sharded.update(self._noted(take)))

    @contextlib.contextmanager
    def whole(self, *chosen: Chosen, writeback: bool = False) -> Iterator[None]:
        """Has parameters whole, on all ranks alike and outside of the model's forward: `with state.whole(model.head):`; all of them without an
        argument. Where a loss depends on them there, the block is around the model's call and `step.backward`, too. They are read only unless
        `writeback`: then what all ranks have written into them, the same, is kept."""
        wanted = self._slots_of(chosen)
        self._require_attempt("whole")
        if self._passes.kind and not writeback:
            raise Error("state.whole gathers nothing between the model's call and step.backward(loss_sum): have it around both",
                        Status.FAILED_PRECONDITION)
        values: list[torch.Tensor] = []
        try:
            if writeback:
                for slot in wanted:
                    values.append(self._read(slot))
                    slot.parameter.grad = None
                    slot.hold(values[-1].data_ptr())
            else:
                for slot in wanted:
                    self.sharded.fetch(slot.number)
                    slot.hold(self.sharded.addresses([slot.number])[0])
            yield
        except BaseException as error:
            self._passes.broken = self._passes.broken or error
            raise
        for slot, value in zip(wanted, values):
            slot.let_go()
            slot.take()
            self.sharded.write(slot.number, value.data_ptr(), slot.elements)
        if not writeback:
            for slot in wanted:
                slot.let_go()
                self.sharded.release(slot.number)
            self._passes.let_go(wanted)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All parameters, whole and of float32, and buffers, on every rank, as `model.state_dict()` gives them, too. All ranks take part, within
        `with step.attempt():`. `export_safetensors` holds no more than one parameter at a time."""
        self._require_attempt("state_dict")
        made: dict[str, torch.Tensor] = dict(self.model.state_dict())
        return made

    def sharded_state_dict(self) -> dict[str, list[tuple[int, torch.Tensor]]]:
        """What this rank owns: runs of each parameter, and of what the optimizer keeps of it under `NAME.KEY`, as the first element and a copy. On
        this rank alone."""
        names = [] if self._update is None else self._update.names
        made: dict[str, list[tuple[int, torch.Tensor]]] = {}

        def take(number: int, first: int, count: int, weights: int, _: int, states: list[int]) -> None:
            name = self._slots[number].name
            for key, address in [(name, weights), *((f"{name}.{key}", one) for key, one in zip(names, states))]:
                made.setdefault(key, []).append((first, over(address, count, torch.float32, (count,)).clone()))

        self.sharded.visit_owned(take)
        return made

    def export_safetensors(self, file: str | os.PathLike[str]) -> None:
        """All parameters by name, of float32, in a .safetensors file that rank 0 writes. All ranks take part, within `with step.attempt():`."""
        self._require_attempt("export_safetensors")
        self.sharded.export_safetensors(file)

    def import_safetensors(self, file: str | os.PathLike[str]) -> None:
        """Has the first values of all parameters come from a .safetensors file, or from several beside their index: before `Session.start`."""
        self.sharded.import_safetensors(file)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of this rank: of its weights, of the optimizer's state, of sums of gradients, of what is whole now and at most so far."""
        return dict(zip(("weights", "state", "sums", "gathered", "gathered_most"), self.sharded.memory))

    # Inside.

    def _open(self, step: Any) -> None:
        """The step's next micro-batch, if there is one, is computed from here on."""
        rows = step.pending
        if rows is None:
            return
        self._buffers.watch(copies=self._is_new)
        _deterministic.seed_generators(self._seed, step.index, rows.start)

    def _step(self) -> None:
        assert self._update is not None
        update = self._update
        update.gradient_scale = self._gradient_scale
        self._make_update(lambda: update.step(lambda each: self.sharded.update(self._noted(each))))

    def _make_update(self, make: Callable[[], None]) -> None:
        self._require_whole_update()
        if not self._owes_update:
            raise Error("an update comes once after each commit() that returned a value: what is not committed is not applied", Status.FAILED_PRECONDITION)
        self._is_updating = False
        try:
            make()
        except BaseException as error:
            if self._is_updating:
                self._ended_by = type(error).__name__
            raise
        self._owes_update = False

    def _noted(self, each: Callable[..., object]) -> Callable[..., None]:
        def change(*run: Any) -> None:
            self._is_updating = True
            each(*run)

        return change

    def _require_whole_update(self) -> None:
        if self._ended_by:
            raise Error(f"{self._ended_by} has ended the update of the last committed step, which is made in part: this worker does not hold its share of the state "
                        "of the job any more; end the process, another one takes its place", Status.FAILED_PRECONDITION)

    def _require_attempt(self, what: str) -> None:
        if not self._passes.is_attempted:
            raise Error(f"{what} waits for all ranks and comes within `with step.attempt():`, which ends well where the group changes meanwhile",
                        Status.FAILED_PRECONDITION)

    def _slots_of(self, chosen: tuple[Chosen, ...]) -> list[Slot]:
        if not chosen:
            return self._slots
        wanted = _chosen_parameters(self.model, chosen)
        return [slot for slot in self._slots if id(slot.parameter) in wanted]

    def _read(self, slot: Slot) -> torch.Tensor:
        made = torch.empty(slot.shape, dtype=torch.float32)
        self.sharded.read(slot.number, made.data_ptr(), slot.elements)
        return made

    def _write(self, slot: Slot, values: torch.Tensor) -> None:
        """The first values before the job begins, and later ones on all ranks."""
        whole = values.detach().to(torch.float32).contiguous()
        if self._session._state is not None:
            self._require_attempt("load_state_dict")
            self.sharded.write(slot.number, whole.data_ptr(), slot.elements)
        else:
            self._firsts.replace(slot.name, whole)

    def _initialise(self, number: int, address: int, count: int) -> None:
        slot = self._slots[number]
        self._firsts.write(slot.name, over(address, count, torch.float32, slot.shape))

    def _bytes_of_buffers(self) -> bytes:
        buffers = [buffer for _, buffer in self._buffers.named()]
        versions = [number for buffer in buffers for number in (buffer.data_ptr(), buffer._version)]
        if self._buffer_bytes is None or self._buffer_bytes[0] != versions:
            self._buffer_bytes = versions, b"".join(bytes_of(buffer) for buffer in buffers)
        return self._buffer_bytes[1]


class _FirstValues:
    """First values of parameters, by name. Those that the model had lie in a file without a name: a job may begin again, and no rank is to hold a
    model."""

    def __init__(self, model: torch.nn.Module, parameters: Mapping[str, torch.nn.Parameter], initialise: Initialise | None, seed: int) -> None:
        self._initialise = initialise
        self._seed = seed
        self._at: dict[str, tuple[int, int]] = {}  # place and elements in the file
        self._file: Any = None
        self._makers: dict[str, tuple[str, str, torch.nn.Module]] = {}  # of those on "meta": module and name in it
        self._made: tuple[str, dict[str, torch.Tensor]] = ("", {})  # the module that was made last
        homes: dict[int, tuple[str, str, torch.nn.Module]] = {}
        for prefix, module in model.named_modules():
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    homes.setdefault(id(parameter), (prefix, key, module))
        for name, parameter in parameters.items():
            if not parameter.is_meta or initialise is not None:
                continue
            prefix, key, module = homes[id(parameter)]
            if not callable(getattr(module, "reset_parameters", None)):
                raise Error(f"parameter {name} is on the device meta, and {type(module).__name__} has no reset_parameters: give pliant.torch.shard(..., "
                            "initialise=), a function of a name and a tensor that writes its first values")
            self._makers[name] = (prefix, key, module)

    def keep(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        """What is not made again each time."""
        for name, parameter in parameters.items():
            if self._initialise is None and name not in self._makers:
                self.replace(name, parameter.detach())

    def replace(self, name: str, values: torch.Tensor) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="pliant-")
        at = self._file.seek(0, os.SEEK_END)
        self._file.write(bytes_of(values.to(torch.float32)))
        self._file.flush()
        self._at[name] = at, values.numel()

    def write(self, name: str, to: torch.Tensor) -> None:
        if name in self._at:
            at, count = self._at[name]
            if count:
                data = os.pread(self._file.fileno(), count * 4, at) if count < 1 << 28 else self._read(at, count * 4)
                to.copy_(torch.frombuffer(bytearray(data), dtype=torch.float32).view(to.shape))
            return
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if self._initialise is not None:
                torch.manual_seed(_key(self._seed, name))
                self._initialise(name, to)
            else:
                prefix, key, module = self._makers[name]
                if self._made[0] != prefix or key not in self._made[1]:
                    torch.manual_seed(_key(self._seed, prefix))
                    self._made = prefix, _reset(module)
                to.copy_(self._made[1].pop(key))

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        data: bytes = self._file.read(size)
        return data


def _reset(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What the module's own reset_parameters makes of memory of its own."""
    kept = module.__dict__["_parameters"]
    made = {key: parameter if parameter is None else torch.nn.Parameter(torch.zeros(parameter.shape), requires_grad=False)
            for key, parameter in kept.items()}
    module.__dict__["_parameters"] = made
    try:
        module.reset_parameters()  # type: ignore[operator]
    finally:
        module.__dict__["_parameters"] = kept
    return {key: parameter.detach() for key, parameter in made.items() if parameter is not None}


def _key(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(struct.pack("<Q", seed & (2**64 - 1)) + name.encode(), digest_size=8).digest(), "little")


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _require_model(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"the model is a {type(model).__name__}: a torch.nn.Module is needed")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise Error("DistributedDataParallel has a copy on each rank: give pliant.torch.shard the model inside, ddp.module")
    _require_kept(model)
    for name, module in model.named_modules():
        if "_pliant_call" in module.__dict__:
            raise Error(f"module {name or type(module).__name__} was cut over the ranks before: pliant.torch.shard takes a model once",
                        Status.FAILED_PRECONDITION)
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin):  # type: ignore[attr-defined]
            raise Error(f"parameter {name} has no shape yet: let the model see a batch before pliant.torch.shard")
        if parameter.device.type not in ("cpu", "meta") or parameter.layout != torch.strided:
            raise Error(f"parameter {name} is on {parameter.device} in layout {parameter.layout}: models are cut over the memory of the CPU so far, from "
                        "there or from the device meta", Status.UNIMPLEMENTED)
        if parameter.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise Error(f"parameter {name} is of {str(parameter.dtype).replace('torch.', '')}; the ranks keep parameters of float32: convert it")
    for name, tensor in _tensors_of(model):
        if tensor.is_meta and not isinstance(tensor, torch.nn.Parameter):
            raise Error(f"buffer {name} is on the device meta and is no parameter: make it with its values, on the CPU")


def _warn_of_types(found: Mapping[str, torch.nn.Parameter], dtype: torch.dtype) -> None:
    others = sorted({str(one.dtype).replace("torch.", "") for one in found.values()} - {str(dtype).replace("torch.", ""), "float32"})
    if others:
        from pliant import _log  # late: logging takes long to import

        text = (f"parameters of {' and '.join(others)} are kept in float32 and computed with in {str(dtype).replace('torch.', '')} once they are cut over the ranks; "
                "[coordinator] compute_dtype = \"bf16\" computes in bfloat16")
        _log.deliver(2, "pliant.torch", text)


def _leave_meta(model: torch.nn.Module, found: dict[str, torch.nn.Parameter], optimizer: Any) -> None:
    """Parameters on "meta" cannot be moved: others take their places, in the model and in the optimizer."""
    others = {id(parameter): torch.nn.Parameter(torch.zeros(()).expand(parameter.shape), parameter.requires_grad)
              for parameter in found.values() if parameter.is_meta}
    for name, parameter in found.items():
        found[name] = others.get(id(parameter), parameter)
    for module in model.modules():
        for key, held in list(module._parameters.items()):
            if held is not None and id(held) in others:
                setattr(module, key, others[id(held)])  # nn.LSTM and the like keep lists of their own
    for group in () if optimizer is None else optimizer.param_groups:
        group["params"] = [others.get(id(parameter), parameter) for parameter in group["params"]]


def _chosen_parameters(model: torch.nn.Module, chosen: Iterable[Chosen]) -> set[int]:
    """Ids of parameters that are named one way or another."""
    if isinstance(chosen, (str, bytes, torch.Tensor, torch.nn.Module)):
        raise TypeError(f"parameters are named by a {type(chosen).__name__}: a list of parameters, their names or modules is needed")
    named, modules = dict(model.named_parameters()), dict(model.named_modules())
    own = {id(parameter) for parameter in named.values()}
    made: set[int] = set()
    for one in chosen:
        if isinstance(one, str) and one in named:
            made.add(id(named[one]))
        elif isinstance(one, str) and one in modules:
            made |= {id(parameter) for parameter in modules[one].parameters()}
        elif isinstance(one, torch.nn.Module) and all(id(parameter) in own for parameter in one.parameters()):
            made |= {id(parameter) for parameter in one.parameters()}
        elif isinstance(one, torch.nn.Parameter) and id(one) in own:
            made.add(id(one))
        elif isinstance(one, (str, torch.nn.Module, torch.nn.Parameter)):
            raise Error(f"{one if isinstance(one, str) else 'a ' + type(one).__name__} is no parameter and no module of the model", Status.NOT_FOUND)
        else:
            raise TypeError(f"a parameter is named by a {type(one).__name__}: a parameter, its name or a module is needed")
    return made


def _watch_module(module: torch.nn.Module, state: ShardedState, slots: Mapping[int, Slot]) -> None:
    """Computes with what is whole only; what it saves is whole, and what it loads is written to the owners."""
    own = {key: slots[id(parameter)] for key, parameter in module._parameters.items() if parameter is not None}
    if not own:
        return

    def require(parameter: Any) -> None:
        slot = slots.get(id(parameter))
        if slot is not None:
            state._passes.require_whole(slot)

    def saved(_: Any, state_dict: Any, prefix: str, __: Any) -> None:
        for key, slot in own.items():
            if f"{prefix}{key}" in state_dict:
                state._require_attempt("state_dict")
                state_dict[f"{prefix}{key}"] = state._read(slot)

    usual = module._load_from_state_dict

    def load(state_dict: Any, prefix: str, *rest: Any) -> None:
        values = {key: torch.full(slot.shape, math.nan, dtype=slot.parameter.dtype) for key, slot in own.items() if f"{prefix}{key}" in state_dict}
        for key, value in values.items():
            own[key].put(value.data_ptr())
        try:
            usual(state_dict, prefix, *rest)  # type: ignore[no-untyped-call]
        finally:
            for key in values:
                own[key].take()
        for key, value in values.items():
            if value.shape == state_dict[f"{prefix}{key}"].shape:
                state._write(own[key], state_dict[f"{prefix}{key}"])

    module.__dict__["_parameters"] = Guarded(module._parameters, require)
    state._passes.homes.append((module._parameters, own))
    module._register_state_dict_hook(saved)  # type: ignore[no-untyped-call]
    module.__dict__["_load_from_state_dict"] = load
