"""DeepSpeed's elasticity and its batches of packs under DeepSpeed's own names: `from pliant.deepspeed import compute_elastic_config`.

Neither DeepSpeed nor torch is needed; loaders and schedulers import torch when they are asked for.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pliant._log  # what nobody listens to is not printed
from pliant.deepspeed._batching import batch_by_seqlens
from pliant.deepspeed._elasticity import (
    ElasticityConfig,
    compute_elastic_config,
    elasticity_enabled,
    ensure_immutable_elastic_config,
)
from pliant.deepspeed._errors import ElasticityConfigError, ElasticityError, ElasticityIncompatibleWorldSize
from pliant.deepspeed._rate import scale_lr
from pliant.deepspeed._resolve import resolve, to_toml

if TYPE_CHECKING:
    from pliant.deepspeed._loaders import (
        dataloader_for_variable_batch_size,
        get_dataloader_and_lr_scheduler_for_variable_batch_size,
        get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed,
    )
    from pliant.deepspeed._scheduler import VariableBatchSizeLR, lr_scheduler_for_variable_batch_size

__all__ = [
    "ElasticityConfig",
    "ElasticityConfigError",
    "ElasticityError",
    "ElasticityIncompatibleWorldSize",
    "VariableBatchSizeLR",
    "batch_by_seqlens",
    "compute_elastic_config",
    "dataloader_for_variable_batch_size",
    "elasticity_enabled",
    "ensure_immutable_elastic_config",
    "get_dataloader_and_lr_scheduler_for_variable_batch_size",
    "get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed",
    "lr_scheduler_for_variable_batch_size",
    "resolve",
    "scale_lr",
    "to_toml",
]

_WITH_TORCH = {
    "VariableBatchSizeLR": "_scheduler",
    "lr_scheduler_for_variable_batch_size": "_scheduler",
    "dataloader_for_variable_batch_size": "_loaders",
    "get_dataloader_and_lr_scheduler_for_variable_batch_size": "_loaders",
    "get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed": "_loaders",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
