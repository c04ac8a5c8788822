"""A model and its optimizer as the state of an elastic job."""
from __future__ import annotations

import json
import re
import struct
from typing import Any

import torch

from pliant._errors import Error, Status
from pliant.torch import _deterministic, _optimizers
from pliant.torch._buffers import Buffers
from pliant.torch._early import EarlyPieces
from pliant.torch._gradients import Gradients
from pliant.torch._members import Members
from pliant.torch._rates import Rates, other
from pliant.torch._scheduler import _scale_moments

# Type of an array in a state, and what elements of torch's type there are in one element of it: a type that a state has not is held as
# parts that it has.
_TYPES: dict[torch.dtype, tuple[str, tuple[int, ...]]] = {
    **{dtype: (str(dtype).replace("torch.", ""), ()) for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                                                                   torch.int32, torch.uint8, torch.int8, torch.bool)},
    torch.int16: ("uint8", (2,)), torch.complex64: ("float32", (2,)), torch.complex128: ("float64", (2,)),
}
_FORMAT = 1

Array = tuple[str, str, tuple[int, ...], int]  # name, type, shape, address


def state(model: torch.nn.Module, optimizer: Any = None, *, scheduler: Any = None, initialise: _optimizers.Initialise | None = None) -> State:
    """What `pliant.elastic.Session.start` takes of a PyTorch program. Call it once the model and its optimizer are made and on their device.

    `model`: of one device. All its parameters and buffers are part of the state, by name and where they lie. From here on `.grad` of those
    that need a gradient are views of Pliant's buffers. Which these are must stay; one that is frozen later has no gradient, and optimizers
    skip it. A parameter that the loss does not depend on has a gradient of zeros.
    `optimizer`: of torch.optim; its state is made here, as its first step would, where it has none. The rates that it has when a step is
    committed are those of [lr] base_lr's place, one for each parameter group; they are scaled for that step alone, and with them betas,
    epsilon and weight decay where the rule says so. Where the config has [lr.groups], a group with a "name" has its rate there, in place of the
    one that it begins with, and a scheduler moves it in the same proportion.
    `scheduler`: any of torch that moves these rates once a step; Pliant calls it for each step whose update is made, and keeps its state.
    `initialise`: a function of a parameter and its group that gives the entries of the optimizer's state before the first step, for
    optimizers that are not known here.
    """
    return State(model, optimizer, scheduler, initialise)


class State:
    """What `state` gives. A session calls its methods, from the thread that it is used on."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Any = None,
        scheduler: Any = None,
        initialise: _optimizers.Initialise | None = None,
        *,
        trains: bool = True,
    ) -> None:
        """`trains`: with memory for gradients."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"the model is a {type(model).__name__}: a torch.nn.Module is needed")
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            raise Error("DistributedDataParallel adds gradients itself: give pliant.torch.state the model inside, ddp.module")
        self._rates = Rates(optimizer, scheduler)
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self._parameters = dict(model.named_parameters())
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        self._homes = [(module._parameters, name, parameter, _joined(prefix, name))
                       for prefix, module in model.named_modules() for name, parameter in module._parameters.items() if parameter is not None]
        _require_kept(model)
        for name, tensor in _tensors_of(model):
            _require_dense(name, tensor)
        self._gradients = Gradients(list(self._parameters.items()) if trains else [])
        trained = {id(parameter): name for name, parameter in self._parameters.items() if parameter.requires_grad}
        self._frozen = [(name, parameter) for name, parameter in self._parameters.items() if not parameter.requires_grad]
        self._members = Members(model, "pliant.torch.state")
        self._buffers = Buffers(model)
        if optimizer is not None:
            _optimizers.check_groups(optimizer, self._names)
            if trains:
                _optimizers.warn_of_others(optimizer, self._parameters)
            _optimizers.make_state(optimizer, trained, initialise)
        self._entries: dict[Any, dict[str, Any]] = {}  # the optimizer's state, as it was when the session asked for the arrays
        self._mean: Any = None  # gradient of the last committed step
        self._warned: set[str] = set()
        self._awaits_update: tuple[int, torch.Tensor, int] | None = None  # number of the committed step, what the optimizer has to update, and its version
        self._is_deterministic = False
        self._bucket = 0  # elements that are worth handing in before backward has ended; 0: none are
        self._early: EarlyPieces | None = None
        self._seed = 0
        self._is_new = True  # no forward was looked at
        self._places: list[tuple[str, Any, str, torch.Tensor, int]] = []  # of the arrays, as the session knows them: who holds which tensor, where
        self._gradients.zero()
        self.save()  # what cannot be saved is said now
        _require_apart(self._tensors())

    # What a session asks for.

    def attach(self, session: Any) -> None:
        """The session that this is the state of begins."""
        self._seed = int(session.seed)
        self._is_deterministic = bool(session.config.run.deterministic)
        self._rates.begin(session.config.lr)
        accelerator = session.accelerator
        if self._gradients.device.type != ("cuda" if accelerator == "cuda" else "cpu"):
            raise Error(f"the model is on {self._gradients.device}, and [accelerator] use = \"{accelerator}\": move the one or set the other",
                        Status.FAILED_PRECONDITION, 2)
        self._bucket = 0
        if not self._is_deterministic and self._gradients.device.type == "cpu":
            self._bucket = -(-int(session.config.run.reduce_bucket) // 4)
        if self._is_deterministic:
            torch.set_num_threads(1)
            _deterministic.require_not_compiled(self.model)
            _deterministic.require_deterministic_algorithms(self._gradients.device)

    @property
    def gradient_size(self) -> int:
        return self._gradients.size

    @property
    def gradient_layout(self) -> str:
        """Which parameters are trained, in the order of the gradient, and by which group of the optimizer."""
        return _optimizers.layout_of([(slot.name, slot.parameter) for slot in self._gradients.slots], self.optimizer)

    def arrays(self) -> list[Array]:
        """Name, type, shape and address of each tensor."""
        self._settle()
        self._require_same_parameters()
        made, self._places = [], []
        self._entries = {} if self.optimizer is None else dict(self.optimizer.state)
        for name, holder, key, tensor in self._held():
            _require_dense(name, tensor)
            kind, parts = _TYPES[tensor.dtype]
            place = tensor.data_ptr() if tensor.numel() else 0
            made.append((name, kind, (*tensor.shape, *parts), place))
            self._places.append((name, holder, key, tensor, place))
        return made

    def save(self) -> bytes:
        """Numbers of the optimizer's state and groups, the scheduler's state, and which parameters are frozen, as JSON."""
        self._settle()
        self._require_same_places()
        kept: dict[str, Any] = {"format": _FORMAT, "frozen": [name for name, parameter in self._parameters.items() if not parameter.requires_grad]}
        if self.optimizer is not None:
            kept["numbers"] = _optimizers.numbers_of(self.optimizer, self._names)
        self._rates.save(kept)
        return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()

    def load(self, blob: Any) -> None:
        """What `save` gave, on this rank or another, or what is in that. The arrays are there already."""
        self._rates.drop()
        kept = blob if isinstance(blob, dict) else read_blob(blob)
        self.require_like(kept)
        if self.optimizer is not None:
            self._load_numbers(kept["numbers"])
        self._rates.load(kept)
        if "frozen" in kept:  # releases before kept none
            frozen = set(kept["frozen"])
            for slot in self._gradients.slots:
                slot.parameter.requires_grad_(slot.name not in frozen)

    def require_like(self, kept: dict[str, Any]) -> None:
        """Raises Error for what another program's `save` gave; nothing is changed."""
        self._rates.require_like(kept)
        for name, key, _ in self._numbers():
            if key not in kept["numbers"].get(name, ()):
                raise other(f"has no {key!r} of {name}")

    def begin(self, step: Any) -> None:
        """A step is handed out, maybe again."""
        self._look_for_update()
        self._settle()
        self._require_same_parameters()
        if self._bucket and self._early is None and step.world_size > 1:
            self._early = EarlyPieces(self._gradients, self._bucket)
        self._open(step)

    def backward(self, step: Any, rows: range, loss_sum: torch.Tensor) -> None:
        """Adds the gradient of the summed loss over `rows`, the step's next micro-batch."""
        _deterministic.require_loss(loss_sum, deterministic=self._is_deterministic)
        self._gradients.collect()
        early = self._early if step.world_size > 1 else None
        try:
            if early is not None:
                early.open(step, rows)
            loss_sum.backward()  # type: ignore[no-untyped-call]
            self._gradients.collect()
            self._buffers.check()
        except BaseException:
            if early is not None:
                early.close()
            self._open(step)  # a program that catches it computes the micro-batch from its beginning
            raise
        self._is_new = False
        self._synchronise()
        for offset, count, address, kind in self._gradients.pieces if early is None else early.rest():
            step.add_piece(rows, offset, address, count, kind)
        step.add(rows, float(loss_sum.detach()))
        self._open(step)

    def before_commit(self, step: Any) -> None:
        """What this rank has is of the parameters that the mean is put into. Until the step is final they have no gradient: a program that updates them though
        `commit` gave None changes nothing."""
        self._require_same_parameters()
        self._gradients.require_kept()
        self._gradients.hide()

    def committed(self, step: Any, committed: Any) -> None:
        """The step is final: `.grad` of each parameter is its part of the mean gradient, and the groups have the rates of the step."""
        self._gradients.put(torch.from_numpy(committed.gradient))
        self._mean = committed.gradient
        moments = self._rates.set(step)
        if self.optimizer is not None:
            _scale_moments(self.optimizer, moments, self._warned)
        self._await_update(step.index)
        _deterministic.seed_update(self._seed, step.index)

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scales the mean gradient of the step that was committed, where its norm is above `max_norm`, and gives the norm it had: of all parameters, in
        an order of additions of Pliant's, so that a model which is cut over the ranks (`pliant.torch.shard`) gets the same bits."""
        if self._mean is None:
            raise Error("clip_grad_norm_ comes after a commit() that returned a value, and before the next step", Status.FAILED_PRECONDITION)
        norm = self._gradients.norm(self._mean, list(self._parameters.items()))
        scale = clip_scale(norm, max_norm)
        if scale != 1:
            self._gradients.scale(scale)
        self._mean = None
        return norm

    # Inside.

    def _open(self, step: Any) -> None:
        """The step's next micro-batch, if there is one, is computed from here on."""
        rows = step.pending
        if rows is None:
            return
        self._gradients.zero()
        self._buffers.watch(copies=self._is_new)
        _deterministic.seed_generators(self._seed, step.index, rows[0])

    def _await_update(self, index: int) -> None:
        """Of an optimizer of torch, which updates each parameter that has a gradient in place, where it is counted: not by fused code."""
        if "update" in self._warned or self.optimizer is None or type(self.optimizer).__module__.partition(".")[0] != "torch":
            return
        groups = [group for group in self.optimizer.param_groups if not group.get("fused")]
        found = next((one for group in groups for one in group["params"] if one.grad is not None), None)
        self._awaits_update = None if found is None else (index, found, found._version)

    def _look_for_update(self) -> None:
        """A program that steps every few steps only, to add gradients up, would lose the others."""
        awaited, self._awaits_update = self._awaits_update, None
        if awaited is None or awaited[1]._version != awaited[2]:
            return
        self._warned.add("update")
        from pliant import _log  # late: logging takes long to import

        _log.deliver(2, "pliant.torch", f"step {awaited[0]} was committed, and the optimizer has updated nothing: its gradient is lost, for no step adds to that of another. "
                     "Call optimizer.step() after each commit() that returned a value; for more sequences a step raise max_train_batch_size of the elasticity policy")

    def _settle(self) -> None:
        self._rates.settle()
        self._mean = None

    def _held(self) -> list[tuple[str, Any, str, torch.Tensor]]:
        """Name of the array, the mapping that holds the tensor, under which key, and it: in an order that all ranks have."""
        found = []
        for kind in ("_parameters", "_buffers"):
            seen = set()
            for prefix, module in self.model.named_modules():
                for key, tensor in getattr(module, kind).items():
                    if tensor is not None and id(tensor) not in seen and (kind == "_parameters" or self._buffers.has(module, key)):
                        seen.add(id(tensor))
                        found.append((f"model.{_array_name(_joined(prefix, key))}", getattr(module, kind), key, tensor))
        if self.optimizer is not None:
            found += [(f"optimizer.{_array_name(name)}.{_array_name(str(key))}", entries, key, entries[key])
                      for name, entries, key in _optimizers.arrays_of(self.optimizer, self._names)]
        return found

    def _tensors(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, tensor) for name, _, _, tensor in self._held()]

    def _numbers(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name of the parameter, key of a number that the optimizer keeps of it, and the mapping that holds it."""
        entries = () if self.optimizer is None else self.optimizer.state.items()
        return [(self._names[id(parameter)], key, kept) for parameter, kept in entries
                for key, value in kept.items() if value is not None and _optimizers.is_number(value)]

    def _load_numbers(self, found: dict[str, Any]) -> None:
        for name, key, entries in self._numbers():
            entries[key] = _optimizers.like(entries[key], found[name][key])

    def _require_same_parameters(self) -> None:
        for home, name, parameter, full in self._homes:
            if home.get(name) is not parameter:
                raise Error(f"parameter {full} of the model is another one than when pliant.torch.state was called; change it in place, with torch.no_grad()",
                            Status.FAILED_PRECONDITION)
        self._rates.require_same_groups()
        self._members.require_none_added()
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise Error(f"parameter {name} was frozen when pliant.torch.state was called, and needs a gradient now: have it need one there, and freeze it "
                            "afterwards", Status.FAILED_PRECONDITION)

    def _require_same_places(self) -> None:
        """And lets what torch's streams of a device have to do on the tensors be done."""
        self._synchronise()
        for name, holder, key, tensor, place in self._places:
            if holder.get(key) is not tensor or (place and tensor.data_ptr() != place):
                raise Error(f"{name} lies elsewhere than when the session asked for it: call session.renew_arrays() where it was moved",
                            Status.FAILED_PRECONDITION)
        for parameter, entries in () if self.optimizer is None else self.optimizer.state.items():
            if self._entries and self._entries.get(parameter) is not entries:
                raise Error(f"the optimizer's state of {self._names.get(id(parameter), 'a parameter')} is another one than when the session asked for it: "
                            "call session.renew_arrays() after load_state_dict", Status.FAILED_PRECONDITION)

    def _synchronise(self) -> None:
        if self._gradients.device.type == "cuda":
            torch.cuda.synchronize(self._gradients.device)


def _tensors_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _array_name(name: str) -> str:
    """Names of arrays hold letters, digits and .-_/; what else a name of torch has comes as its code."""
    return re.sub(r"[^A-Za-z0-9._/-]", lambda found: f":{ord(found[0]):x}:", name)


def _require_kept(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
            raise Error(f"module {name or type(module).__name__} has a state of its own, get_extra_state, which is no tensor: it cannot be kept",
                        Status.UNIMPLEMENTED)


def _require_dense(name: str, tensor: torch.Tensor) -> None:
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):  # type: ignore[attr-defined]
        raise Error(f"{name} has no shape yet: let the model see a batch before pliant.torch.state")
    if tensor.device.type not in ("cpu", "cuda"):
        raise Error(f"{name} is on the device {tensor.device}, where it has no memory that can be copied")
    if tensor.layout != torch.strided or tensor.dtype not in _TYPES:
        raise Error(f"{name} is of {tensor.dtype} in layout {tensor.layout}, which no state holds")
    if not tensor.is_contiguous():
        raise Error(f"{name} does not lie row by row in memory (strides {tuple(tensor.stride())}): give the model a contiguous copy")


def _require_apart(tensors: list[tuple[str, torch.Tensor]]) -> None:
    """No element belongs to two arrays: it would be written twice."""
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), name) for name, tensor in tensors if tensor.numel())
    for (_, end, name), (begin, _, other) in zip(places, places[1:]):
        if begin < end:
            raise Error(f"{name} and {other} share memory and are two tensors: use one parameter in both places, as in head.weight = embedding.weight")


def read_blob(blob: Any) -> dict[str, Any]:
    """The JSON that `save` of a state gave."""
    try:
        kept = json.loads(bytes(blob))
        known = kept["format"]
    except (ValueError, KeyError, TypeError) as damaged:
        raise Error(f"the state beside the arrays is none of pliant.torch: {damaged}", Status.DATA_LOSS) from damaged
    if known != _FORMAT:
        raise Error(f"the state beside the arrays has format {known}, and this release of Pliant reads {_FORMAT}", Status.FAILED_PRECONDITION)
    made: dict[str, Any] = kept
    return made


def parts_of_blob(blob: bytes) -> tuple[dict[str, Any], memoryview]:
    """What a sharded model's `save` gave: its JSON, and the bytes of buffers."""
    (size,) = struct.unpack("<Q", blob[:8]) if len(blob) >= 8 else (0,)
    return read_blob(blob[8 : 8 + size]), memoryview(blob)[8 + size :]


def clip_scale(norm: float, max_norm: float) -> float:
    if not max_norm > 0:
        raise Error(f"max_norm is {max_norm}; it must be above 0", Status.OUT_OF_RANGE)
    return max_norm / norm if norm > max_norm else 1.0
