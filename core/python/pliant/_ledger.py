"""The record of a job that has no agent: a ledger of its steps, and snapshots, as `pliant run` leaves them."""
from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable

from pliant import _core
from pliant._core import Assignment, Batch, Batches, Config, Plan

TYPE_CHECKING = False  # as in _errors.py
if TYPE_CHECKING:
    from typing import NamedTuple


if TYPE_CHECKING:

    class Restored(NamedTuple):
        """What a job goes on from: the next step, and what was kept before it; `state` is None where nothing was."""

        step: int
        lr_state: bytes
        state: bytes | None

else:
    Restored = namedtuple("Restored", "step lr_state state")
    Restored.__doc__ = "What a job goes on from: the next step, and what was kept before it; `state` is None where nothing was."


class Ledger:
    """One process of a job has it, rank 0. It does not cross a fork and is not pickled: open it where it is needed."""

    def __init__(self, core: _core.Ledger) -> None:
        self._core = core

    @classmethod
    def begin(cls, config: Config, plan: Plan, batches: Batches) -> Ledger:
        """A new run below [run] log_dir. `plan` and `batches` were made from `config`."""
        return cls(_core.Ledger.begin(config, plan, batches))

    @classmethod
    def open(cls, directory: str | bytes | os.PathLike[str] | os.PathLike[bytes], config: Config, plan: Plan, batches: Batches) -> Ledger:
        """The run in `directory`, to go on with. Raises Error where another process writes to it, or where it is of other data."""
        return cls(_core.Ledger.open(directory, config, plan, batches))

    @property
    def directory(self) -> str:
        return self._core.directory

    @property
    def steps(self) -> int:
        """Committed so far: the number of the next step."""
        return self._core.steps

    @property
    def position(self) -> tuple[int, int]:
        """Where the next step is, by epoch and batch of that epoch: `sampler.load_state_dict(sampler.state_at(*ledger.position))`. Behind
        the last batch of an epoch that has ended."""
        return self._core.position

    def start_generation(self, world_size: int, reason: str) -> None:
        """From here on `world_size` ranks work. Before the first commit of each group."""
        self._core.start_generation(world_size, reason)

    def commit(self, batch: Batch, assignment: Assignment, loss: float, learning_rate: float) -> None:
        """The step `steps` is final: all ranks have reduced it. It is on disk when this returns; then the optimizers apply."""
        self._core.commit(batch, assignment, loss, learning_rate)

    def keep_snapshot(self, state: bytes | Callable[[_core.SnapshotWriter], object], lr_state: bytes = b"") -> None:
        """Keeps the state after `steps` steps, whole or not at all. `state`: bytes, or a function that writes to the file that it is given:
        `ledger.keep_snapshot(lambda file: torch.save(model.state_dict(), file))`."""
        if callable(state):
            self._core._keep_snapshot(lr_state, state)
        else:
            kept = state
            self._core._keep_snapshot(lr_state, lambda file: file.write(kept))

    def restore(self) -> Restored:
        """The newest snapshot. What was committed after it is taken for void: it will be computed again. Step 0 where there is none."""
        return Restored(*self._core._restore())
