"""Loader: the samples of a step's micro-batches, read ahead by threads and kept where the rows of a rank change."""
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pliant import _core
from pliant._core import Batch
from pliant._errors import Error, Status
from pliant._samplers import Item, ItemList
from pliant._wrappers import require_items
from pliant.elastic import _random

if TYPE_CHECKING:
    from pliant.elastic._session import ComingStep, Session, Step


class _Task:
    """Something that is computed once, by the thread that comes first. Its error is kept for all that ask for what it made."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work: Callable[[], Any] | None = work
        self._turn = threading.Lock()
        self._made: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Waits for another thread that is at it. An interrupt leaves it to the next one."""
        with self._turn:
            if self._work is None:
                return
            try:
                self._made = self._work()
            except Exception as error:  # noqa: BLE001 what a data set raises is the business of who asked for the sample
                self._error = error
            self._work = None

    def result(self) -> Any:
        self.run()
        if self._error is not None:
            raise self._error
        return self._made


class _Workers:
    """Threads that run tasks in the order in which they were given. They keep no process alive, and end with the object that has them."""

    def __init__(self, count: int) -> None:
        import queue

        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=_run, args=(self._tasks,), name="pliant loader", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def give(self, task: _Task) -> None:
        self._tasks.put(task)

    def __del__(self) -> None:
        for _ in getattr(self, "_threads", ()):
            self._tasks.put(None)


def _run(tasks: Any) -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        task.run()
        del task  # and what it holds, while this waits


class Loader:
    """Batches for each micro-batch of a step. Made by `Session.loader`; other loaders have the same `of`.

    `dataset[item]` is the sample of `item`, a `pliant.Item`: the number of the sequence, with the row and the piece that it is in. A data set that
    has `__getitems__` is asked for a whole row. `collate` makes a batch of the list of a micro-batch's samples; None: the list is the batch.
    `num_workers`: threads of this process that read ahead, `prefetch` micro-batches each, into the next steps; 0: all is read when it is asked
    for, by the thread that asks. With workers the data set and `collate` are used on several threads at a time.

    Random numbers that the data set and `collate` draw from Python's `random`, `numpy.random` and torch without a generator of their own are keyed by the
    seed of the job, the step and the row where `num_workers` is 0. Threads share these generators and draw in any order: in deterministic mode a
    data set or `collate` that draws from them is refused with workers, when the first batch is asked for. One that has a generator of its own,
    keyed by the item, is not.

    A sample that was read is kept until its step is committed: where the group changes, only rows that are new to this rank are read. What the
    data set or `collate` raises is raised, as Error with the row and the first cause, when the batch is asked for; not earlier.
    """

    def __init__(
        self,
        session: Session,
        dataset: Any,
        collate: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        *,
        prefetch: int = 2,
    ) -> None:
        require_items(dataset, "session.loader")
        if num_workers < 0:
            raise Error(f"num_workers is {num_workers}; it must be at least 0", Status.OUT_OF_RANGE)
        if prefetch < 1:
            raise Error(f"prefetch is {prefetch}; it must be at least 1", Status.OUT_OF_RANGE)
        self._session = session
        self._dataset = dataset
        self._collate = collate
        self._ahead = num_workers * prefetch
        self._num_workers = num_workers
        self._workers: _Workers | None = None
        self._process = -1  # that has the workers
        self._is_looked_at = num_workers == 0  # whether threads may read: they must not draw random numbers
        self._rows: dict[tuple[int, int], _Task] = {}  # samples, by step and row
        self._batches: dict[tuple[int, int, range], _Task] = {}  # by step, micro-batch and rows

    def of(self, step: Step) -> Iterator[Any]:
        """A batch for each micro-batch of `step` that has rows, in order. Of a model that is cut over the ranks (`pliant.torch.shard`) those without
        rows have one, too, with a row of the step as an example: this rank computes as the others do, for they wait for it. Its gradient, its loss
        and the metrics that are given meanwhile count nothing. `step.pending` is empty then."""
        self._start_workers()
        self._forget(step.index)
        waiting: list[_Task] = []
        coming = self._in_order(step)
        for number, rows in self._due(step):
            while len(waiting) <= self._ahead:  # the one that is due, and those that are read ahead
                following = next(coming, None)
                if following is None:
                    break
                waiting.append(self._ask(*following))
            batch = waiting.pop(0)
            self._batches.pop((step.index, number, rows), None)  # a batch may be changed by who gets it; its samples stay
            step._is_example = not step.micro_batches[number]
            try:
                yield batch.result() if self._num_workers else _random.apart(batch.result)
            finally:
                step._is_example = False

    def _due(self, step: Step | ComingStep) -> list[tuple[int, range]]:
        """Number and rows of each micro-batch that has a batch."""
        micro_batches = step.micro_batches
        example = next((rows[:1] for rows in micro_batches if rows), range(1)) if self._session._is_sharded else range(0)
        return [(number, rows or example) for number, rows in enumerate(micro_batches) if rows or example]

    def _in_order(self, step: Step) -> Iterator[tuple[int, Batch, int, range]]:
        """Micro-batches of this step, and of those that come."""
        following: Step | ComingStep | None = step
        ahead = 0
        while following is not None:
            for number, rows in self._due(following):
                yield following.index, following.batch, number, rows
            if not self._num_workers:
                return
            ahead += 1
            following = self._session.coming(ahead)

    def _ask(self, index: int, batch: Batch, number: int, rows: range) -> _Task:
        """Samples first: a batch waits for them, and the thread that takes it from the queue finds them taken or done."""
        found = self._batches.get((index, number, rows))
        if found is not None:
            return found
        missing = [row for row in rows if (index, row) not in self._rows]
        tasks = []
        for row, items in zip(missing, _items(batch, missing)):
            tasks.append(_Task(_reading(self._dataset, index, row, items, self._key(index, row, b"sample"))))
            self._rows[index, row] = tasks[-1]
        made = _Task(_collating(self._collate, index, rows, [self._rows[index, row] for row in rows], self._key(index, rows[0], b"batch")))
        self._batches[index, number, rows] = made
        if not self._is_looked_at:
            self._look(made)
        if self._workers is not None:
            for task in [*tasks, made]:
                self._workers.give(task)
        return made

    def _key(self, index: int, row: int, what: bytes) -> int | None:
        """Of the random numbers that are drawn for it, where this thread alone draws."""
        return None if self._num_workers else _random.key(self._session.seed, index, row, what)

    def _look(self, first: _Task) -> None:
        """Reads the first batch on this thread, before others read."""
        drawn = _random.drawn_by(first.run) if self._session.config.run.deterministic else []
        if drawn:
            self._rows, self._batches = {}, {}
            raise Error(f"the data set or collate draws random numbers from {' and '.join(drawn)}, which all threads of a loader share: in deterministic mode "
                        "pass num_workers=0, and Pliant keys them by step and row, or draw from a generator of its own, keyed by the item",
                        Status.FAILED_PRECONDITION, 2)
        self._is_looked_at = True

    def _forget(self, index: int) -> None:
        """Steps before this one are committed, or as good as: what comes after it may still be wanted. What failed is tried again."""
        self._rows = {key: task for key, task in self._rows.items() if key[0] >= index and task._error is None}
        self._batches = {key: task for key, task in self._batches.items() if key[0] >= index and task._error is None}

    def _start_workers(self) -> None:
        if self._process == os.getpid():
            return
        if self._process != -1:
            raise Error("a loader is used in the process that made its threads; this one was forked from it", Status.FAILED_PRECONDITION)
        self._process = os.getpid()
        if self._num_workers:
            self._workers = _Workers(self._num_workers)


def _items(batch: Batch, rows: list[int]) -> list[ItemList]:
    dealt: list[ItemList] = _core._deal(batch, 0, [(row, 1) for row in rows], batch.epoch, batch.index, len(rows), Item, ItemList, False)
    dealt.reverse()
    return dealt


def _reading(dataset: Any, index: int, row: int, items: ItemList, key: int | None) -> Callable[[], list[Any]]:
    def read() -> list[Any]:
        _random.seed_all(key)
        ask = getattr(dataset, "__getitems__", None)
        item: Any = None
        try:
            if ask is not None:
                return list(ask(items))
            samples = []
            for item in items:
                samples.append(dataset[item])
            return samples
        except Exception as error:
            which = "data set items " + ", ".join(str(int(one)) for one in items) if item is None else f"data set item {int(item)}"
            raise _failed(f"{which} (row {row} of step {index})", error) from error

    return read


def _collating(collate: Callable[[list[Any]], Any] | None, index: int, rows: range, tasks: list[_Task], key: int | None) -> Callable[[], Any]:
    def make() -> Any:
        samples = [sample for task in tasks for sample in task.result()]
        _random.seed_all(key)
        if collate is None:
            return samples
        try:
            return collate(samples)
        except Exception as error:
            raise _failed(f"collate of rows {rows[0]} to {rows[-1]} of step {index}", error) from error

    return make


def _failed(what: str, error: Exception) -> Error:
    return Error(f"{what}: {type(error).__name__}: {error}", Status.FAILED_PRECONDITION)
