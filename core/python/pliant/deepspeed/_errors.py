"""DeepSpeed's error classes, and which of them an error of the package becomes."""
from __future__ import annotations

from pliant._errors import Error, Status


class ElasticityError(Exception):
    """Everything that the elasticity calls raise."""


class ElasticityConfigError(ElasticityError):
    """The elasticity block is missing, off or wrong."""


class ElasticityIncompatibleWorldSize(ElasticityError):
    """The plan has no place for that number of ranks."""


# Where DeepSpeed ends with a built-in error, because no check of its own comes first, the error here is both: a program finds it under the
# class that it caught so far, and under that of elasticity.


class ConfigTypeError(ElasticityConfigError, TypeError):
    """A value of the wrong type."""


class ConfigValueError(ElasticityConfigError, ValueError):
    """A value that no plan can have."""


class ConfigAttributeError(ElasticityConfigError, AttributeError):
    """A block that is not a mapping."""


class UnknownVersionError(ElasticityConfigError, NotImplementedError):
    """A version of elasticity that no policy has."""


class NoWorldSizeError(ElasticityConfigError, ZeroDivisionError):
    """A question that only a world size answers."""


class NoValidSizeError(ElasticityIncompatibleWorldSize, TypeError):
    """No world size at all is valid."""


class NoMicroBatchError(ElasticityIncompatibleWorldSize, AssertionError):
    """No micro-batch size divides the share of a rank."""


def raised_for(error: Error) -> ElasticityError:
    """What DeepSpeed raises where a policy, or the import of its options, refuses."""
    message = "; ".join(finding.message for finding in error.findings) or error.message
    if error.status == Status.INCOMPATIBLE_WORLD_SIZE:
        return ElasticityIncompatibleWorldSize(message)
    if error.status == Status.FAILED_PRECONDITION:
        return NoWorldSizeError(message)
    if error.status != Status.OUT_OF_RANGE or "micro_batch_sizes" in error.options:
        return ConfigValueError(message)
    if "min_gpus" in error.options:
        return ConfigTypeError(message)  # DeepSpeed goes on with a list of sizes that is None
    return ElasticityError(message)
