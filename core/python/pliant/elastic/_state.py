"""What a program brings to a job, as protocols: any object that has these members will do."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    from pliant._core import Committed
    from pliant.elastic._session import Session, Step

# An array by itself, or its type, shape and place: an address or anything that holds memory. See TrainingState.arrays.
StateArray = Union[tuple[str, Any], tuple[str, str, Sequence[int], Any]]


class TrainingState(Protocol):
    """What every state has. `Session.start` takes it, and keeps it until the session ends.

    All that must be equal on all ranks between two steps is in it: weights, optimizer, the program's own random numbers. What is large is in
    arrays, which are copied from where they lie to where they lie, to workers that join and into snapshots; the rest is in the bytes of
    SavedState. All calls come on the thread of the session, from within its calls.
    """

    @property
    def gradient_size(self) -> int:
        """Number of elements of a gradient. Read once, by `Session.start`. A state may also have `gradient_layout`, a str that says what they belong
        to, in any form: workers whose gradients belong to different things are named before the first step."""

    def arrays(self) -> Iterable[StateArray]:
        """The arrays: `(name, array)` or `(name, dtype, shape, place)` each; the same names, types and shapes in the same order on all workers.

        `name`: unique, of letters, digits and any of ".-_/:". `array`: anything with the buffer protocol or DLPack, dense in row-major order and
        writable, in memory of the CPU or of the rank's device. `dtype`: "float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8",
        "int8" or "bool". `place`: the address of the first element, or such an array of as many bytes.

        Asked for by `Session.start` and `Session.renew_arrays` only: the memory stays where it is as long as the session is used. Arrays are kept
        alive; of an address the program keeps alive what lies there. Pliant reads them in `Session.next`, for snapshots, digests and workers
        that join, and writes them in `Session.next` when this worker joins or begins from a snapshot.
        """


class SavedState(TrainingState, Protocol):
    """A state that has more than arrays. `save` comes with `load`."""

    def save(self) -> bytes:
        """All of the state beside the arrays: the same state, the same bytes. Called by `Session.next` where a snapshot is written, where
        another worker joins and where states are compared ([run] digest_every: each step, unless that says otherwise), so it should be small.
        What it raises for a snapshot keeps that from being written, and the job goes on: the exception is logged and `pliant run` says so. Else
        it comes out of `Session.next`, and this worker's process should end."""

    def load(self, data: bytes) -> int | None:
        """Replaces it by what `save` gave, on this or another worker. The arrays have been written before. Called by `Session.next` when this
        worker joins or begins from a snapshot, before its first step there. Returns None, or how many bytes it has understood: fewer than there
        are is an error, DATA_LOSS. What it raises comes out of `Session.next`."""


class TrainerState(TrainingState, Protocol):
    """What a state may have so that loops need not call it. Each of them may be missing."""

    def attach(self, session: Session) -> None:
        """The state is about to be used: `Session.start` calls it first."""

    def before_next(self) -> None:
        """`Session.next` calls it first. What it raises comes out there; the session may be asked again."""

    def begin(self, step: Step) -> None:
        """A step was handed out: `Session.next` calls it last. What it raises comes out there, and the next call hands the step out again."""

    def backward(self, step: Step, rows: range, loss_sum: Any) -> None:
        """Computes the gradient of `loss_sum`, the summed loss over `rows`, and hands it over: `step.add(rows, float(loss_sum), gradient)`, or
        `step.add_piece` for each piece and `step.add(rows, float(loss_sum))`. `Step.backward` calls it with the micro-batch that is next."""

    def finish(self, step: Step) -> None:
        """`Step.commit` calls it where micro-batches are left: of a state that is cut over the ranks some may have no rows."""

    def begin_attempt(self, step: Step) -> None:
        """`with step.attempt():` begins."""

    def end_attempt(self) -> BaseException | None:
        """It ends. Gives what has ended a pass in it, also where the program has caught that."""

    def before_commit(self, step: Step) -> None:
        """`Step.commit` calls it before this rank votes. What it raises comes out there, and nothing is committed."""

    def committed(self, step: Step, committed: Committed) -> None:
        """The step is final: `Step.commit` calls it before it returns. It puts the mean gradient where the optimizer looks for it, or updates
        the weights itself. After an exception of it the worker does not hold the state of the job: the session hands out no more steps."""
