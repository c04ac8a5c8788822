"""DeepSpeed's elasticity calls. The policies v0.1 and v0.2 plan; here are DeepSpeed's arguments, results and order of checks."""
from __future__ import annotations

import json
import logging
import math
import operator
import os
import re
from collections.abc import Sequence
from typing import Any

from pliant import _core
from pliant._core import Config, Plan, Planner
from pliant._errors import Error
from pliant.deepspeed._errors import (
    ConfigAttributeError,
    ConfigTypeError,
    ConfigValueError,
    ElasticityConfigError,
    ElasticityError,
    ElasticityIncompatibleWorldSize,
    NoMicroBatchError,
    NoValidSizeError,
    NoWorldSizeError,
    UnknownVersionError,
    raised_for,
)

_log = logging.getLogger("pliant.deepspeed")

_BLOCK = "elasticity"
_SCHEDULER_VARIABLE = "DEEPSPEED_ELASTICITY_CONFIG"
_LATEST_VERSION = 0.2
_POLICIES = {0.1: "v0.1", 0.2: "v0.2"}

# Key, default and least value, in the order in which DeepSpeed looks at them.
_COUNTS: tuple[tuple[str, int, int], ...] = (
    ("min_gpus", 1, 1),
    ("max_gpus", 10000, 1),
    ("model_parallel_size", 1, 1),
    ("num_gpus_per_node", 1, 1),
    ("min_time", 0, 0),
)

Answer = tuple[int, list[int] | None] | tuple[int, list[int] | None, int | None]


class ElasticityConfig:
    """An elasticity block with DeepSpeed's defaults, under DeepSpeed's attribute names. Raises ElasticityConfigError for a wrong one."""

    enabled: Any
    max_acceptable_batch_size: Any
    micro_batches: list[int]
    min_gpus: Any
    max_gpus: Any
    model_parallel_size: Any
    num_gpus_per_node: Any
    min_time: Any
    version: Any
    prefer_larger_batch_size: Any
    ignore_non_elastic_batch_info: Any

    def __init__(self, param_dict: dict[str, Any]) -> None:
        block = _mapping(param_dict)
        self.enabled = block.get("enabled", False)
        for key in ("max_train_batch_size", "micro_batch_sizes"):
            if self.enabled and key not in block:
                raise ElasticityConfigError(f"the elasticity block has no {key}, which it needs where it is enabled")
        self.max_acceptable_batch_size = block.get("max_train_batch_size", 2000)
        self.micro_batches = _micro_batches(block.get("micro_batch_sizes", [2, 4, 6]))
        for key, fallback, least in _COUNTS:
            value = _number(key, block.get(key, fallback))
            if value < least:
                raise ElasticityConfigError(f"{key} is {value}; it must be at least {least}")
            setattr(self, key, value)
            if key == "max_gpus" and value < self.min_gpus:
                raise ElasticityConfigError(f"max_gpus is {value}, less than min_gpus, which is {self.min_gpus}")
        self.version = block.get("version", _LATEST_VERSION)
        self.prefer_larger_batch_size = block.get("prefer_larger_batch", True)
        self.ignore_non_elastic_batch_info = block.get("ignore_non_elastic_batch_info", False)

    def repr(self) -> dict[str, Any]:
        return self.__dict__

    def __repr__(self) -> str:
        return json.dumps(self.__dict__, sort_keys=True, indent=4)


def elasticity_enabled(ds_config: dict[str, Any]) -> Any:
    """What `enabled` of the elasticity block says; False where there is none."""
    return _mapping(ds_config[_BLOCK]).get("enabled", False) if _BLOCK in ds_config else False


def ensure_immutable_elastic_config(runtime_elastic_config_dict: dict[str, Any]) -> None:
    """Raises ElasticityConfigError where the block that a resource scheduler left in DEEPSPEED_ELASTICITY_CONFIG has another
    max_train_batch_size, micro_batch_sizes or version than this one; warns where it left none."""
    text = os.environ.get(_SCHEDULER_VARIABLE)
    if text is None:
        _log.warning("%s is not set: nothing says that the scheduler picks world sizes that this job can have", _SCHEDULER_VARIABLE)
        return
    seen = ElasticityConfig(json.loads(text))
    ours = ElasticityConfig(runtime_elastic_config_dict)
    for key, attribute in (
        ("max_train_batch_size", "max_acceptable_batch_size"),
        ("micro_batch_sizes", "micro_batches"),
        ("version", "version"),
    ):
        theirs, own = getattr(seen, attribute), getattr(ours, attribute)
        if theirs != own:
            raise ElasticityConfigError(f"{key} is {own!r} in this job's elasticity block, but the scheduler's, in "
                                        f"{_SCHEDULER_VARIABLE}, has {theirs!r}")


def compute_elastic_config(
    ds_config: dict[str, Any], target_deepspeed_version: str, world_size: int = 0, return_microbatch: bool = False
) -> Answer:
    """The global batch and the valid world sizes, and at `world_size`, or where `return_microbatch` says so, the micro-batch.

    The numbers are those of DeepSpeed, its oddities included; what a policy says against them goes to the logger `pliant.deepspeed`.
    Raises ElasticityConfigError for a block that is missing, off or wrong, ElasticityIncompatibleWorldSize for a world size that is not
    valid, ElasticityError for a target version without elasticity or a model_parallel_size that does not divide a node.
    """
    if not isinstance(ds_config, dict):
        raise ConfigValueError(f"the config must be a dict, not a {type(ds_config).__name__}: {ds_config!r}")
    config = config_of(ds_config)
    version = _version_of(config)
    _check_target(target_deepspeed_version)
    rule = Rule(config, version)
    size = _world_size_of(world_size)
    plan = rule.plan(size)
    sizes = rule.sizes(plan)
    _log.info("valid world sizes: %s", sizes)
    if size > 0:
        return plan.global_batch, sizes, rule.micro_batch(plan, sizes, size)
    if not return_microbatch:
        return plan.global_batch, sizes
    if rule.policy == "v0.1":
        rule.ask(0, wants_micro_batch=True)  # says that it needs a world size
    return plan.global_batch, sizes, plan.micro_batch or None


def config_of(ds_config: dict[str, Any]) -> ElasticityConfig:
    """The elasticity block of a config, which must be there and enabled."""
    if _BLOCK not in ds_config:
        raise ElasticityConfigError(f"the config has no block '{_BLOCK}'; an elastic job needs one")
    if not elasticity_enabled(ds_config):
        raise ElasticityConfigError(f"elasticity is off: set 'enabled' to true in the block '{_BLOCK}'")
    return ElasticityConfig(ds_config[_BLOCK])


class Rule:
    """The policy for a block, with its options as DeepSpeed's solver sees them. What the policy refuses is an ElasticityError."""

    def __init__(self, config: ElasticityConfig, version: float | None = None, *, sets: Sequence[str] = ()) -> None:
        version = _version_of(config) if version is None else version
        if version not in _POLICIES:
            raise UnknownVersionError(f"no policy has version {config.version} of elasticity; 0.1 and 0.2 do")
        self.policy = _POLICIES[version]
        self._config = config
        self._planner = self._made(sets)

    def _made(self, sets: Sequence[str]) -> Planner:
        micro_batches = self._config.micro_batches
        if not any(type(size) is int for size in micro_batches):
            raise ConfigTypeError(f"micro_batch_sizes is {micro_batches}; it must be a list of numbers such as [2, 4, 6]")
        block: dict[str, Any] = {
            "enabled": True,
            "version": float(self.policy[1:]),
            "max_train_batch_size": _number("max_train_batch_size", self._config.max_acceptable_batch_size),
            "micro_batch_sizes": micro_batches,
            "min_gpus": self._config.min_gpus,
            "max_gpus": self._config.max_gpus,
            "prefer_larger_batch": bool(self._config.prefer_larger_batch_size),
        }
        if self.policy == "v0.2":  # which the other one ignores
            block["model_parallel_size"] = self._config.model_parallel_size
            block["num_gpus_per_node"] = self._config.num_gpus_per_node
        try:
            toml = _core._import_deepspeed(json.dumps({_BLOCK: block}), "ds_config")
            return Planner(Config.parse(toml, needs=["elasticity"], sets=list(sets), read_environment=False, name="ds_config"))
        except Error as error:
            raise raised_for(error) from error

    def ask(self, world_size: int, wants_micro_batch: bool = False, devices: str | None = None) -> Plan:
        """The policy's own answer, without any further check."""
        try:
            return _core._unchecked_plan(self._planner, world_size, wants_micro_batch, devices)
        except Error as error:
            raise raised_for(error) from error

    def checked_plan(self, world_size: int) -> Plan:
        try:
            return self._planner.plan(world_size)
        except Error as error:
            raise raised_for(error) from error

    def plan(self, world_size: int) -> Plan:
        """The plan for no rank in particular. v0.2 plans for the devices that exist: `world_size` of them, or WORLD_SIZE for 0."""
        devices = None
        if self.policy == "v0.2":
            devices = str(world_size or _devices_of_environment())
        plan = self.ask(0, devices=devices)
        for line in plan.warnings:
            _log.warning("%s", line)
        return plan

    def sizes(self, plan: Plan) -> list[int] | None:
        """The valid sizes. DeepSpeed's rule 0.1 has None for a list where no batch beat the one that it begins with."""
        found = [size for sizes in plan.world_sizes for size in sizes]
        return None if not found and plan.global_batch == min(self._config.micro_batches) else found

    def micro_batch(self, plan: Plan, sizes: list[int] | None, world_size: int) -> int:
        if sizes is None:
            raise NoValidSizeError(plan.explain_invalid(world_size))
        if world_size not in plan:
            raise ElasticityIncompatibleWorldSize(plan.explain_invalid(world_size))
        try:
            return self.ask(world_size, wants_micro_batch=True).micro_batch
        except ElasticityIncompatibleWorldSize as error:
            raise NoMicroBatchError(str(error)) from error


def _mapping(block: Any) -> dict[str, Any]:
    if isinstance(block, dict):
        return block
    raise ConfigAttributeError(f"the elasticity block must be a dict, not a {type(block).__name__}: {block!r}")


def _micro_batches(sizes: Any) -> list[int]:
    if not isinstance(sizes, list):
        raise ElasticityConfigError(f"micro_batch_sizes must be a list, not a {type(sizes).__name__}: {sizes!r}")
    if not all(isinstance(size, int) for size in sizes):
        raise ElasticityConfigError(f"micro_batch_sizes must hold integers only: {sizes!r}")
    if not all(size > 0 for size in sizes):
        raise ElasticityConfigError(f"micro_batch_sizes must hold integers above 0 only: {sizes!r}")
    return sizes


def _number(key: str, value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    if hasattr(value, "__index__"):  # an integer of numpy
        return operator.index(value)
    raise ConfigTypeError(f"{key} must be a number, not a {type(value).__name__}: {value!r}")


def _version_of(config: ElasticityConfig) -> float:
    try:
        version = float(config.version)
    except TypeError as error:
        raise ConfigTypeError(f"version must be a number, not a {type(config.version).__name__}: {config.version!r}") from error
    except ValueError as error:
        raise ConfigValueError(f"version must be a number: {config.version!r}") from error
    if config.model_parallel_size > 1 and version != _LATEST_VERSION:
        raise ElasticityConfigError(f"model_parallel_size is {config.model_parallel_size}, which version {config.version} of elasticity "
                                    "does not know; version 0.2 does")
    if version > _LATEST_VERSION:
        raise ElasticityConfigError(f"version {config.version} of elasticity is newer than the newest, {_LATEST_VERSION}")
    return version


# A version of a Python package by PEP 440, as far as it takes to compare it with a release.
_PEP_440 = re.compile(
    r"\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?P<before>[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
    r"(?P<after>-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?"
    r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?\s*",
    re.IGNORECASE,
)
_FIRST_WITH_ELASTICITY = (0, 3, 8)


def _check_target(version: Any) -> None:
    """Raises ElasticityError for a DeepSpeed that had no elasticity yet."""
    if not isinstance(version, str):
        raise ConfigTypeError(f"target_deepspeed_version must be a str, not a {type(version).__name__}: {version!r}")
    parsed = _PEP_440.fullmatch(version)
    if parsed is None:
        raise ConfigValueError(f"target_deepspeed_version is no version: {version!r}")
    release = tuple(int(number) for number in parsed["release"].split("."))
    release += (0,) * (len(_FIRST_WITH_ELASTICITY) - len(release))
    length = len(release)
    first = _FIRST_WITH_ELASTICITY + (0,) * (length - len(_FIRST_WITH_ELASTICITY))
    is_before_release = bool(parsed["before"]) or (bool(parsed["dev"]) and not parsed["after"])
    if int(parsed["epoch"] or 0) == 0 and (release < first or (release == first and is_before_release)):
        raise ElasticityError(f"DeepSpeed {version} has no elasticity; 0.3.8 is the first that has it")


def _world_size_of(world_size: Any) -> int:
    """DeepSpeed divides world sizes by sizes of other groups, so that they come as 4.0, too."""
    if not isinstance(world_size, (int, float)):
        raise ConfigTypeError(f"world_size must be an integer, not a {type(world_size).__name__}: {world_size!r}")
    if world_size < 0 or (isinstance(world_size, float) and not math.isfinite(world_size)):
        raise ConfigValueError(f"world_size is {world_size}; it must be at least 1, or 0 for none in particular")
    if int(world_size) != world_size:
        raise ElasticityIncompatibleWorldSize(f"world_size is {world_size}; it must be a whole number")
    return int(world_size)


def _devices_of_environment() -> int:
    text = os.environ.get("WORLD_SIZE")
    if text is None or not text.isnumeric():
        raise ElasticityConfigError("version 0.2 of elasticity plans for the devices that exist: give world_size, or set WORLD_SIZE, which "
                                    f"is {'not set' if text is None else repr(text)}")
    try:
        devices = int(text)
    except ValueError as error:
        raise ConfigValueError(f"WORLD_SIZE is {text!r}, which is no number") from error
    if devices == 0:
        raise NoWorldSizeError("version 0.2 of elasticity plans for the devices that exist, but WORLD_SIZE says that there are none")
    return devices
