"""The plan of a job, as `pliant plan` and `pliant run` ask for it."""
from __future__ import annotations

import os
from collections.abc import Sequence

from pliant._core import Config, Plan, make_plan


def plan(config: Config | str | bytes | os.PathLike[str] | os.PathLike[bytes], world_size: int = 0, *, sets: Sequence[str] = ()) -> Plan:
    """The plan of a config, or of the file that `config` names, with the micro-batch at `world_size` ranks; 0: at none in particular.

    Raises Error (INCOMPATIBLE_WORLD_SIZE, naming the nearest) for a world size that is not valid. A block of options that a scheduler left
    in the environment must be that of the config, and warnings of the policy go to `logging`: `Planner` does neither.
    """
    if not isinstance(config, Config):
        config = Config.open(config, needs=["elasticity"], sets=list(sets))
    elif sets:
        config = config.with_sets(list(sets))
    return make_plan(config, world_size)
