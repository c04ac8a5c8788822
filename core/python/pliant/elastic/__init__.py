"""A training loop that is resized in place: the worker's side of a job of `pliant run`.

    session = pliant.elastic.Session.attach()
    session.start(lengths, state=state)                # a TrainingState
    for step in session:
        for rows in step.micro_batches:
            ...                                        # forward, backward of the summed loss over rows
            step.add(rows, loss_sum, gradient)
        if committed := step.commit():
            ...                                        # an optimizer step with committed.gradient and step.learning_rate

A killed worker costs the step in progress; survivors keep their processes and their state. Neither torch nor numpy is imported here.
"""
from __future__ import annotations

from pliant._core import Busy, Committed
from pliant.elastic._loader import Loader
from pliant.elastic._session import Attempt, ComingStep, Evaluation, Session, Step, run_worker
from pliant.elastic._state import SavedState, StateArray, TrainerState, TrainingState

__all__ = [
    "Attempt",
    "Busy",
    "ComingStep",
    "Committed",
    "Evaluation",
    "Loader",
    "SavedState",
    "Session",
    "StateArray",
    "Step",
    "TrainerState",
    "TrainingState",
    "run_worker",
]
