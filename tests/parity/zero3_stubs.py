"""Loads DeepSpeed's partitioned_param_coordinator.py alone, the rest of its package replaced by what it imports.

    reference = load(path)      the module, of August 2026 ("head") or of April 2023 ("seed")

Nothing else of DeepSpeed is needed, and no torch.
"""
import enum
import functools
import itertools
import logging
import sys
import types
import typing

class Status(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class Backward:
    """Whether an operation is inside backward, which the reference asks torch for."""
    task = -1


class Nothing:
    """A context manager, a stream and a profiler that do nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def __getattr__(self, _):
        return lambda *_args, **_named: None


class Device:
    """An accelerator whose events are those of the replay in progress."""
    Stream = object
    replay = None

    def Event(self):
        replay = self.replay
        return types.SimpleNamespace(record=lambda: None, query=lambda: replay.events_finish, synchronize=replay.synchronized)

    def stream(self, _):
        return Nothing()

    def current_stream(self):
        return Nothing()

    def handles_memory_backpressure(self):
        return False

    def resolves_data_dependency(self):
        return False


DEVICE = Device()


def load(path):
    """The module of the file `path`."""
    def stub(name, **members):
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
        return module

    def plain(*given, **_):
        return given[0] if given and callable(given[0]) else lambda function: function

    logger = logging.getLogger("zero3_reference")
    logger.setLevel(logging.CRITICAL)
    torch = stub("torch", no_grad=lambda: lambda function: function, empty=lambda *_a, **_n: None, device=str,
                 _C=types.SimpleNamespace(_current_graph_task_id=lambda: Backward.task))
    stub("deepspeed")
    communication = stub("deepspeed.comm", get_rank=lambda: 0)
    stub("deepspeed.utils", z3_leaf_module=lambda module: module.leaf)
    stub("deepspeed.utils.logging", logger=logger)
    stub("deepspeed.utils.debug", debug_param2name_id_shape=str, debug_module2name_id=str, debug_param2name_id=str)
    for package in ("deepspeed.runtime", "deepspeed.runtime.zero", "deepspeed.runtime.swap_tensor"):
        stub(package)
    device_kind = enum.Enum("OffloadDeviceEnum", "none nvme")
    swap_status = enum.Enum("PartitionedParamStatus", "NOT_AVAILABLE")
    stub("deepspeed.runtime.zero.offload_config", OffloadDeviceEnum=device_kind)
    stub("deepspeed.runtime.zero.partitioned_param_profiler", PartitionedParameterProfiler=lambda *_: Nothing())
    stub("deepspeed.runtime.swap_tensor.partitioned_param_swapper", PartitionedParamStatus=swap_status)
    stub("deepspeed.runtime.zero.utils", assert_ints_same_as_other_ranks=lambda _: None)
    stub("deepspeed.accelerator", get_accelerator=lambda: DEVICE)
    stub("deepspeed.runtime.compiler", disable=plain, enable=plain, is_compiling=lambda: False)
    names = {"torch": torch, "Module": object, "Parameter": object, "Enum": enum.Enum, "functools": functools,
             "itertools": itertools, "Iterable": typing.Iterable, "ZeroParamStatus": Status, "dist": communication,
             "AllGatherCoalescedHandle": Nothing, "instrument_w_nvtx": plain, "get_accelerator": lambda: DEVICE,
             "print_rank_0": lambda *_a, **_n: None, "assert_ints_same_as_other_ranks": lambda _: None,
             "PartitionedParamStatus": swap_status, "OffloadDeviceEnum": device_kind, "logger": logger}
    stub("deepspeed.runtime.zero.partition_parameters", __all__=list(names), **names)
    reference = types.ModuleType(f"coordinator of {path}")
    reference.__file__ = str(path)
    sys.modules[reference.__name__] = reference
    with open(path, encoding="utf-8") as text:
        exec(compile(text.read(), str(path), "exec"), reference.__dict__)
    return reference
