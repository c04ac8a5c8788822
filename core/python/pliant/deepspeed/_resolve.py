"""Configs of DeepSpeed without the elasticity block, which its newer versions refuse."""
from __future__ import annotations

import json
from typing import Any

from pliant import _core
from pliant.deepspeed._elasticity import Rule, config_of, elasticity_enabled, ensure_immutable_elastic_config
from pliant.deepspeed._errors import ConfigTypeError, ConfigValueError, ElasticityConfigError, ElasticityIncompatibleWorldSize

_BLOCK = "elasticity"
_TOTAL, _MICRO, _ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def resolve(ds_config: dict[str, Any], world_size: int, *, strict: bool = False) -> dict[str, Any]:
    """`ds_config` for `world_size` data-parallel ranks, as every DeepSpeed takes it: train_batch_size, train_micro_batch_size_per_gpu and
    gradient_accumulation_steps as its elasticity block plans them, without that block. A block that is off is taken out, and the rest stays.

    A new dict, whose values are those of `ds_config`. Raises what compute_elastic_config raises, and ElasticityConfigError where a batch
    key is there already, unless the block says ignore_non_elastic_batch_info or the key is "auto", or where the block of a resource scheduler
    differs. `strict`: without the faults of the rule; with a model_parallel_size above 1 the rule itself hardly ever gives batches that a
    data-parallel rank can share.
    """
    if not isinstance(ds_config, dict):
        raise ConfigValueError(f"the config must be a dict, not a {type(ds_config).__name__}: {ds_config!r}")
    if not isinstance(world_size, int) or isinstance(world_size, bool):
        raise ConfigTypeError(f"world_size must be an int, not a {type(world_size).__name__}: {world_size!r}")
    if world_size < 1:
        raise ConfigValueError(f"world_size is {world_size}; it must be at least 1")
    resolved = {key: value for key, value in ds_config.items() if key != _BLOCK}
    if not elasticity_enabled(ds_config):
        return resolved
    config = config_of(ds_config)
    ensure_immutable_elastic_config(ds_config[_BLOCK])
    given = [key for key in (_TOTAL, _MICRO, _ACCUMULATION) if resolved.get(key, "auto") != "auto"]
    if given and not config.ignore_non_elastic_batch_info:
        raise ElasticityConfigError(f"{', '.join(given)} beside an elasticity block, which decides the batch: remove "
                                    f"{'it' if len(given) == 1 else 'them'}, or set ignore_non_elastic_batch_info in the block")
    rule = Rule(config)
    if strict:
        rule = Rule(config, sets=[f'elasticity."{rule.policy}".strict=true'])
        plan = rule.checked_plan(world_size)
        micro_batch = plan.micro_batch
    else:
        plan = rule.plan(world_size)
        micro_batch = rule.micro_batch(plan, rule.sizes(plan), world_size)
    batch, at_once = plan.global_batch, micro_batch * world_size
    if batch < 1 or micro_batch < 1 or batch % at_once != 0:
        raise ElasticityIncompatibleWorldSize(f"rule {rule.policy[1:]} answers a global batch of {batch} and micro-batches of {micro_batch}, "
                                              f"which {world_size} ranks cannot share evenly; resolve(..., strict=True) plans without "
                                              "the faults of the rule")
    resolved.update({_TOTAL: batch, _MICRO: micro_batch, _ACCUMULATION: batch // at_once})
    return resolved


def to_toml(ds_config: dict[str, Any]) -> str:
    """The pliant.toml that `pliant config import` writes of a file with this config. Raises pliant.Error for one of which nothing can be
    carried, TypeError for values that JSON has not."""
    return _core._import_deepspeed(json.dumps(ds_config, indent=2), "ds_config")
