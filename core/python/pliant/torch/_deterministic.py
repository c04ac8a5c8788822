"""What deterministic mode needs of torch: one thread, random numbers of each granule's own, and no code that depends on more."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from pliant._errors import Error, Status
from pliant.elastic import _random


def seed_generators(seed: int, step: int, row: int) -> None:
    """Random numbers of the micro-batch that begins with `row` of `step`: torch's generators, of the CPU and of CUDA where it is in use, Python's and
    numpy's. They depend on nothing else, so that what a forward draws is the same on whichever rank it runs."""
    number = _random.key(seed, step, row)
    _random.seed_all(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)


def seed_update(seed: int, step: int) -> None:
    """Random numbers of the update of `step`, the same on all ranks."""
    seed_generators(seed, step, 2**64 - 1)


def require_loss(loss_sum: Any, *, deterministic: bool) -> None:
    """What a backward takes. Where torch may have compiled something the graph of the loss is looked at, too."""
    if not isinstance(loss_sum, torch.Tensor) or loss_sum.numel() != 1:
        raise Error("backward takes the summed loss of a micro-batch, a tensor of one element")
    if not deterministic:
        return
    require_one_thread()
    if "torch._dynamo" in sys.modules:
        require_no_compiled_function(loss_sum)


def require_one_thread() -> None:
    threads = torch.get_num_threads()
    if threads != 1:
        raise Error(f"torch computes with {threads} threads; deterministic mode needs one, for sums of several have other bits: leave "
                    "torch.set_num_threads as pliant.torch.state has set it", Status.FAILED_PRECONDITION)


def require_not_compiled(model: torch.nn.Module) -> None:
    """torch.compile chooses code by shapes, and at another number of ranks it sees others first."""
    for name, module in model.named_modules():
        if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
            raise _compiled(f"module {name}" if name else "the model")


def nodes_of(graph: Iterable[Any]) -> Iterator[Any]:
    """All nodes of autograd behind these. O(nodes)."""
    seen, left = set(), list(graph)
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        left += [following for following, _ in node.next_functions]


def require_no_compiled_function(loss: torch.Tensor) -> None:
    """The same for a function that was compiled, which the graph of the loss shows. O(nodes)."""
    for node in nodes_of([loss.grad_fn]):
        if "CompiledFunction" in node.name():
            raise _compiled("a function that the loss is computed with")
        if node.name() == "CheckpointFunctionBackward" and _has_compiled():
            raise Error("torch.compile has compiled something in this process, and torch.utils.checkpoint with use_reentrant=True hides whether the loss "
                        "is computed with it: pass use_reentrant=False, or set [run] deterministic = false", Status.UNIMPLEMENTED)


def _has_compiled() -> bool:
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("stats", {}).get("unique_graphs", 0) > 0)


def _compiled(what: str) -> Error:
    return Error(f"{what} is compiled; code that torch.compile makes differs with the shapes that it sees, and so do its bits: leave it out, or set "
                 "[run] deterministic = false", Status.UNIMPLEMENTED)


def require_deterministic_algorithms(device: torch.device) -> None:
    """What torch needs on CUDA for the same bits each time."""
    if device.type != "cuda":
        return
    lacking = []
    if not torch.are_deterministic_algorithms_enabled() or torch.is_deterministic_algorithms_warn_only_enabled():  # type: ignore[no-untyped-call]
        lacking.append("torch.use_deterministic_algorithms(True)")
    if torch.backends.cudnn.benchmark:
        lacking.append("torch.backends.cudnn.benchmark = False")
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in (":4096:8", ":16:8"):
        lacking.append("CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment before torch computes on the device")
    if lacking:
        raise Error(f"deterministic mode on CUDA needs {', and '.join(lacking)}", Status.FAILED_PRECONDITION)
