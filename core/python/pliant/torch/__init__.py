"""The bridge to PyTorch: cut sequences, collate functions, a scheduler. The only part of the package that imports torch."""
from __future__ import annotations

from pliant.torch._collate import MicroBatchDict, collate
from pliant.torch._packed import Packed, Sample
from pliant.torch._scheduler import LRScheduler

__all__ = ["LRScheduler", "MicroBatchDict", "Packed", "Sample", "collate"]
