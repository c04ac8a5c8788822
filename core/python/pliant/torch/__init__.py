"""The bridge to PyTorch: elastic state, cut sequences, collate functions, a scheduler. The only part of the package that imports torch."""
from __future__ import annotations

from pliant.torch._collate import MicroBatchDict, collate
from pliant.torch._packed import Packed, Sample
from pliant.torch._scheduler import LRScheduler
from pliant.torch._shard import ShardedState, shard
from pliant.torch._snapshot import load_snapshot
from pliant.torch._state import State, state

__all__ = ["LRScheduler", "MicroBatchDict", "Packed", "Sample", "ShardedState", "State", "collate", "load_snapshot", "shard", "state"]
