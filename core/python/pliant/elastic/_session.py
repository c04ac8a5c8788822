"""Session: a worker's side of an elastic job."""
from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pliant import _core
from pliant._core import Batch, Busy, Config
from pliant._errors import Error, Status
from pliant._samplers import Item, ItemList
from pliant.elastic import _torchrun
from pliant.elastic._loader import Loader

if TYPE_CHECKING:
    from pliant.elastic._state import TrainingState


class Evaluation(NamedTuple):
    """What ranks said of the state after `step` committed steps. `ranks`: how many gave values; `lost`: how many were lost before they could."""

    step: int
    ranks: int
    lost: int
    values: dict[str, float]


def _items(batch: Batch, blocks: tuple[range, ...]) -> list[ItemList]:
    ranges = [(rows.start, len(rows)) for rows in blocks if rows]
    dealt: list[ItemList] = _core._deal(batch, 0, ranges, batch.epoch, batch.index, len(ranges), Item, ItemList, False)
    dealt.reverse()
    return dealt


class ComingStep(_core.ComingStep):
    """A step that is to come, as far as is known: for loaders that read ahead. It stays as it is."""

    __slots__ = ()

    def items(self) -> list[ItemList]:
        """As `Step.items`."""
        return _items(self.batch, self.micro_batches)


class Step(_core.Step):
    """One attempt at one step, until `Session.next` is called again: then it may still be read, and takes no calls."""

    __slots__ = ()

    def items(self) -> list[ItemList]:
        """The sequences of each micro-batch, in order: what a data set is asked for, as `pliant.PackedBatchSampler` gives it."""
        return _items(self.batch, self.micro_batches)

    def attempt(self) -> Attempt:
        """`with step.attempt():` around the calls of a model that is cut over the ranks (`pliant.torch.shard`), before the commit and, for evaluation,
        after it. Where the group changes meanwhile, the block is left early and quietly, `commit` gives None, and the session hands out the step
        again. Any other exception comes out, as from every block; a program that catches it goes on with the session's next step, which is
        this one again on all ranks. Of a state that is whole on every rank nothing waits in there, and nothing changes.
        """
        return Attempt(self)


class Attempt:
    """What `Step.attempt` gives. `is_complete`: the block came to its end."""

    __slots__ = ("_step", "is_complete")

    def __init__(self, step: Step) -> None:
        self._step = step
        self.is_complete = False

    def __enter__(self) -> Attempt:
        step = self._step
        if step._is_lost:
            raise Error(f"an attempt of step {step.index} was given up: go on with the next step of the session", Status.FAILED_PRECONDITION)
        step._begin_attempt()
        begin = getattr(step._state, "begin_attempt", None)
        if begin is not None:
            begin(step)
        step._is_attempted = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> bool:
        step = self._step
        step._is_attempted = False
        end = getattr(step._state, "end_attempt", None)
        if end is None:
            self.is_complete = error is None
            return False
        broken = end()
        is_consequence = broken is not None and (error is None or error.__cause__ is broken)  # the program has caught what has ended the pass
        ended_by = broken if is_consequence else error
        if ended_by is None:
            self.is_complete = True
            return False
        if isinstance(ended_by, Error):
            is_by_group = step._give_up(int(ended_by.status), ended_by.message, ended_by.exit_code)
        else:
            is_by_group = step._give_up(int(Status.INTERNAL), f"{type(ended_by).__name__}: {ended_by}", 1)
        if error is None and not is_by_group:
            raise Error(f"a pass has ended with {type(ended_by).__name__}: {ended_by}; all ranks make step {step.index} again",
                        Status.FAILED_PRECONDITION) from ended_by
        return is_by_group


def _within_attempt(finish: Callable[[Step], None]) -> Callable[[Step], None]:
    def finish_step(step: Step) -> None:
        if step._is_attempted:
            finish(step)
        else:
            with step.attempt():
                finish(step)

    return finish_step


class Session(Iterator[Step]):
    """A worker's side of a job: hands out the batches, reduces the gradients, runs the commit and carries the program through every change of
    the worker group. All calls come from the thread that attached, in the process that attached; what is used elsewhere raises Error
    (FAILED_PRECONDITION). Threads of its own end every wait when the group changes."""

    def __init__(self, core: _core.Session) -> None:
        self._core = core
        core._hand_out(Step, ComingStep)
        self._state: TrainingState | None = None
        self._is_sharded = False  # the state is cut over the ranks
        self._agent: _torchrun.Agent | None = None
        self._store: Any = None  # of torchrun, while it may be needed

    @classmethod
    def attach(
        cls,
        config: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        sets: Iterable[str] = (),
        leave_stop_signals: bool = True,
    ) -> Session:
        """Joins the job whose agent started this process. Raises Error (FAILED_PRECONDITION) when there is none: start it with `pliant run`;
        and when this process joined before.

        With `config`, a file, a process that torchrun started is a worker, too, on one machine: rank 0 starts the agent, for as many workers
        as there are ranks, and waits until all have attached; so do the others. `sets` change the config as `pliant run --set` does. Where
        torchrun starts the group again the run goes on; with `resume` also where the newest run of this name is of another torchrun, at any
        number of ranks that its plan has, and a new one begins where there is none. Under `pliant run` these three are not looked at. Torch
        must be imported. Raises Error (INVALID_ARGUMENT) for variables of torchrun that make no sense, what `pliant run` refuses, and
        DEADLINE_EXCEEDED where a rank does not come within [run] start_timeout_s.

        SIGINT, SIGTERM and SIGHUP are the agent's business, which gets them, too, from a terminal, systemd or Slurm, and ends the job after the
        step under way and a snapshot: the session then hands out no more steps. So they do nothing in this process from here on, and no
        KeyboardInterrupt comes. With leave_stop_signals=False they stay as they are. An interrupt of a handler of the program's own comes out
        of a wait when that ends: of `next` the step is handed out again, unless a method of the state was interrupted; of `commit` see there.
        """
        if "PLIANT_AGENT_FD" in os.environ or not _torchrun.is_launched():
            return cls(_core.Session.attach(leave_stop_signals))
        if config is None:
            raise Error(
                "torchrun started this program, and no agent of `pliant run`: give Session.attach the config of the job, and it starts one",
                Status.FAILED_PRECONDITION,
                exit_code=2,
            )
        core, agent, store = _torchrun.attach(config, resume, sets, leave_stop_signals)
        session = cls(core)
        session._agent, session._store = agent, store
        return session

    @property
    def config(self) -> Config:
        """The config of the job; may be kept."""
        return self._core.config

    @property
    def seed(self) -> int:
        """The seed of the job, for weights."""
        return self._core.seed

    @property
    def accelerator(self) -> str:
        """The name of what this rank computes on: "host", "cuda", "level_zero"."""
        return self._core.accelerator

    @property
    def device(self) -> int:
        """Its number among the devices of the accelerator. Raises Error (NOT_FOUND) where the machine has none."""
        return self._core.device

    def synchronize(self) -> None:
        """Waits until Pliant has read all pieces of gradients that lie in memory of the device."""
        self._core.synchronize()

    def busy(self, what: str, at_most: float) -> Busy:
        """Says that this worker does `what` from now on, for `at_most` seconds at most: evaluation, compilation, an upload, which are no hang then.
        Until the end of `with session.busy("evaluation", 600):`, or until `end` is called, on any thread. May be called from `attach` on, and in
        hooks of snapshots."""
        return self._core.busy(what, at_most)

    def evaluated(self, name: str, value: float, weight: float = 1.0, *, rule: str = "mean") -> None:
        """Gives a result of an evaluation of the present state. After a `commit` that gave a value, this state has the update of the step in hand, which the
        program has made by then; else those of the steps before. Combined over ranks as by `Step.metric`; the ledger keeps it with the number of
        committed steps. What is given before a commit that comes to nothing is dropped: the step is made again, and the evaluation with it. Raises Error
        (FAILED_PRECONDITION) before the first step, when a worker that joins does not hold the job's state."""
        self._core.evaluated(name, value, weight, rule)

    @property
    def last_evaluation(self) -> Evaluation | None:
        """The last evaluation that came with a commit; the same on all ranks that have made that commit. A worker that joins or resumes has it as the others do."""
        found = self._core.last_evaluation
        return None if found is None else Evaluation(*found)

    def end_after_step(self, reason: str) -> None:
        """Asks for the end of the job after the step whose `commit` comes next. One rank is enough. A snapshot follows; the job ends with exit
        code 0 and `reason`."""
        self._core.end_after_step(reason)

    def on_snapshot(self, before: Callable[[int], object] | None = None, after: Callable[[int, str, str], object] | None = None) -> None:
        """What the program does around a snapshot that this rank writes, within calls of the session; a second call replaces both.

        `before(step)`: with the committed steps in the state; what it raises keeps this snapshot from being written, and is logged.
        `after(step, file, error)`: with the absolute path, and why it was not written, or ""; what it raises is logged.
        """
        self._core.on_snapshot(before, after)

    def start(
        self,
        lengths: Any = None,
        *,
        state: TrainingState,
        loss_tokens: Any = None,
        source: str = "",
        content: int = 0,
        rows: tuple[Any, Any] | None = None,
        costs: Any = None,
        row_costs: Any = None,
    ) -> None:
        """Declares data and state, the same on all workers. `lengths` and what goes with them are as for `pliant.Batches`; None: those that [data]
        of the config names. The first weights come from one worker and are copied to the others; after a restart they come from the snapshot.
        Raises Error (INVALID_ARGUMENT) for arrays that are none, and keeps nothing of `state` then: it may be tried again."""
        attach = getattr(state, "attach", None)
        if attach is not None:
            attach(self)
        is_sharded = getattr(state, "sharded", None) is not None
        self._core.start(lengths, loss_tokens, source, content, rows, costs, row_costs, state, is_sharded)
        self._state, self._is_sharded = state, is_sharded
        finish = getattr(state, "finish", None)
        within = ("before_next", "begin", "backward", "before_commit", "committed")
        self._core._use(finish=finish and _within_attempt(finish), **{name: getattr(state, name, None) for name in within})

    def renew_arrays(self) -> None:
        """Asks the state for its arrays again, whose memory has moved. Names, types and shapes are as at `start`: Raises Error
        (FAILED_PRECONDITION) otherwise, and keeps the old ones."""
        self._core.renew_arrays()

    def __iter__(self) -> Iterator[Step]:
        return self._core._steps(self)

    def __next__(self) -> Step:
        step: Step | None = self._core.next()
        if step is None:
            raise StopIteration
        return step

    def next(self) -> Step | None:
        """The next step for this worker; None when the job is done or was stopped. Blocks while this worker is a spare. A step that was not
        committed is handed out again. Raises Error (PEER_LOST) when the agent is gone: the process has one second to end then."""
        return next(self, None)

    def coming(self, ahead: int = 1) -> ComingStep | None:
        """The step `ahead` steps, at least 1, after the one that was handed out last, for a loader that reads ahead. None where there is none up
        to the end of the next epoch and of the job, before the first step and after the last."""
        coming: ComingStep | None = self._core.coming(ahead)
        return coming

    def loader(self, dataset: Any, collate: Callable[[list[Any]], Any] | None = None, *, num_workers: int = 0, **options: Any) -> Loader:
        """A loader over `dataset`: `loader.of(step)` gives the batches of the step's micro-batches. See `Loader` for the rest. May be called before
        `start`. Raises TypeError for a data set that knows no `dataset[i]`, such as an IterableDataset."""
        return Loader(self, dataset, collate, num_workers, **options)


def run_worker(
    train: Callable[[Session], object], config: str | os.PathLike[str] | None = None, *, resume: bool = False, sets: Iterable[str] = ()
) -> int:
    """What the main part of most workers is: `sys.exit(pliant.elastic.run_worker(train))`. Calls `train` with a session that has joined the job,
    and returns the exit code that the agent understands: 0, `exit_code` of an Error, which is said on stderr, or 1. A mistake of the user's
    ends the job then, where another failure has the worker replaced. `config` and the others are those of `Session.attach`; under torchrun the
    exit code of rank 0 is that of the job. Log lines go to stderr, unless the program has set up `logging`."""
    logger = logging.getLogger("pliant")
    if not logging.getLogger().handlers and all(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        session = Session.attach(config, resume=resume, sets=sets)
        train(session)
        return 0 if session._agent is None else session._agent.leave()
    except Error as error:
        if error.__traceback__ is not None and error.exit_code == 1:
            traceback.print_exc()
        else:
            print(error.message, file=sys.stderr)
        return error.exit_code
    except Exception:
        traceback.print_exc()
        return 1
