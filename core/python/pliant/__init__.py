"""Pliant: plan, batches, learning rate and ledger of elastic training, in any Python program.

Neither torch nor numpy is imported before an array is asked for; what needs torch is in `pliant.torch`.
"""
from __future__ import annotations

try:
    from pliant._core import (
        Assignment,
        Balancer,
        Batch,
        Batches,
        BatchSize,
        Config,
        EpochSummary,
        JobLength,
        LearningRate,
        MicroBatch,
        Plan,
        Planner,
        Scaling,
        Waiting,
        __version__,
        analyse_lengths,
        export_snapshot,
        micro_batches,
        read_lengths,
        row_costs,
        share_of,
        share_out,
        waiting,
    )
except ImportError as _missing:
    if "GLIBCXX_" not in str(_missing):
        raise
    raise ImportError(
        f"{_missing}: this process has an older libstdc++ than Pliant was built with, as some conda environments have; update it there "
        "(conda install -c conda-forge libstdcxx-ng)"
    ) from _missing
from pliant._errors import Error, Finding, Status
from pliant._ledger import Ledger, Restored
from pliant._plan import plan
from pliant._samplers import Item, ItemList, PackedBatchSampler

__all__ = [
    "Assignment",
    "Balancer",
    "Batch",
    "BatchSize",
    "Batches",
    "Config",
    "EpochSummary",
    "Error",
    "Finding",
    "Item",
    "ItemList",
    "JobLength",
    "LearningRate",
    "Ledger",
    "MicroBatch",
    "PackedBatchSampler",
    "Plan",
    "Planner",
    "Restored",
    "Scaling",
    "Status",
    "Waiting",
    "__version__",
    "analyse_lengths",
    "export_snapshot",
    "micro_batches",
    "plan",
    "read_lengths",
    "row_costs",
    "share_of",
    "share_out",
    "waiting",
]
