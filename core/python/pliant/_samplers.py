"""Samplers: the micro-batches of one rank as lists of integers, in the protocol of torch's `batch_sampler`. Without torch."""
from __future__ import annotations

import operator
import os
import zlib
from collections.abc import Iterator

from pliant import _core
from pliant._core import Assignment, Balancer, Batch, Batches, BatchSize, Config, LearningRate, Plan, Planner
from pliant._errors import Error, Status
from pliant._wrappers import loader_that_counts, see_to_wrappers

TYPE_CHECKING = False  # as in _errors.py
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object  # for who asks for the hints of a function

_VERSION = 1
_KEY = "pliant"

# Where a rank goes on: epoch, batch of the epoch, micro-batch of the batch, and whether the epoch has ended.
Position = tuple[int, int, int, bool]


class Item(int):
    """A sequence by its number, which any data set takes for an index. `row`: the row of the global batch that it is in. `piece`: None for a
    whole sequence, else its first token, the number of its tokens and whether no other piece comes after it. `position`: where a loop goes
    on behind the micro-batch that it is in."""

    row: int = -1
    piece: tuple[int, int, bool] | None = None
    position: Position | None = None


class ItemList(list[Item]):
    """A micro-batch: what a rank computes at once. Empty where other ranks have one more than this rank, which computes nothing then."""

    __slots__ = ("position",)
    position: Position


def _picklable(array: Any) -> Any:
    return array.tolist() if isinstance(array, memoryview) else array


def _failed(message: str, status: Status = Status.FAILED_PRECONDITION) -> Error:
    return Error(message, status, 2)


class _MicroBatches(Iterator[ItemList]):
    """One epoch of a sampler, from a position on. It has the position; the sampler only knows which epoch comes next. Which one this is, its
    first micro-batch decides: loaders with workers make an iterator that they never use."""

    def __init__(self, sampler: PackedBatchSampler) -> None:
        self._sampler = sampler
        self._position: Position | None = None  # not begun
        self._waiting: list[ItemList] = []  # of the batch before _next_batch, the last one first
        self._is_over = False

    def _go_to(self, position: Position) -> None:
        self._epoch, self._next_batch, self._skipped, ended = position
        self._waiting = []
        self._rows = -1  # of the epoch; not known yet
        self._is_over = ended

    def _fill(self) -> None:
        if self._rows < 0:
            self._rows = self._sampler._epoch_size(self._epoch)[0]
        dealt = self._sampler._deal(self._epoch, self._next_batch, self._rows)
        del dealt[len(dealt) - self._skipped :]
        # An interrupt of what comes before leaves the batch to the next call.
        self._waiting, self._next_batch, self._skipped = dealt, self._next_batch + 1, 0

    def __iter__(self) -> _MicroBatches:
        return self

    def __next__(self) -> ItemList:
        if self._position is None:  # one that fails here, or is interrupted, was not used
            position = self._sampler._begins_at()
            self._go_to(position)
            self._fill()
            self._sampler._has_begun(self, position[0])
            self._position = position
        elif not self._waiting:
            if self._is_over:
                raise StopIteration
            self._fill()
        given = self._waiting[-1]
        if given.position[3]:
            self._is_over = True
            self._sampler._has_ended(self._epoch)
        # An interrupt comes at a call: before this line nothing was given, behind it all was.
        self._position = given.position
        del self._waiting[-1]
        return given

    def state_dict(self) -> dict[str, Any]:
        """Where this goes on: behind the micro-batch that it gave last."""
        return self._sampler.state_dict() if self._position is None else self._sampler._state_at(self._position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        position = self._sampler._position_in(state)
        self._sampler._has_begun(self, position[0])
        self._go_to(position)
        self._position = position


class _Epochs(Iterator[ItemList]):
    """What is left of a job, epoch after epoch. As for one epoch: one that is never used takes nothing from the sampler."""

    def __init__(self, sampler: PackedBatchSampler, epochs: int) -> None:
        self._sampler = sampler
        self._epochs = epochs
        self._current: _MicroBatches | None = None

    def __iter__(self) -> _Epochs:
        return self

    def __next__(self) -> ItemList:
        while True:
            if self._current is None:
                if self._sampler._next_epoch >= self._epochs:
                    raise StopIteration
                self._current = _MicroBatches(self._sampler)
            try:
                return next(self._current)
            except StopIteration:
                self._current = None

    def state_dict(self) -> dict[str, Any]:
        """Where this goes on: behind the micro-batch that it gave last."""
        return self._sampler.state_dict() if self._current is None else self._current.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        current = _MicroBatches(self._sampler)
        current.load_state_dict(state)
        self._current = current


class _WholeJob:
    """What `PackedBatchSampler.whole_job` gives. It has no `set_epoch`, so that no loop sends the sampler back to its first epoch."""

    batch_size: int | None = None

    def __init__(self, sampler: PackedBatchSampler, epochs: int) -> None:
        self._sampler = sampler
        self._epochs = epochs

    def __iter__(self) -> Iterator[ItemList]:
        see_to_wrappers(self._sampler, self)
        return _Epochs(self._sampler, self._epochs)

    def __len__(self) -> int:
        see_to_wrappers(self._sampler, self)
        return sum(self._sampler._epoch_size(epoch)[1] for epoch in range(self._epochs)) * self._sampler.micro_batches_per_step

    # Of the sampler: a StatefulDataLoader asks for these.

    def state_dict(self) -> dict[str, Any]:
        return self._sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sampler.load_state_dict(state)


class PackedBatchSampler:
    """The micro-batches that `rank` of `world_size` computes, for `DataLoader(dataset, batch_sampler=...)`.

    Every rank has equally many of them, the same number in each step: `micro_batches_per_step`. A rank that has no rows left gives empty ones.
    Accelerate's `prepare` would deal them out to the ranks a second time; the sampler undoes that when it is asked for its length or iterated.
    Each `iter` that is used is the next epoch, or goes on where a loaded state was. Only rows decide what is in a batch: every world size that the plan
    admits sees the same batches in the same order. With `[run] deterministic = true` a micro-batch is a granule, as `pliant run` computes them.

    A balancer must give equal counts, for a loader counts micro-batches: lpt and karmarkar_karp with `equal_counts = false` are refused.

    `placeholders`: an empty micro-batch holds one item whose row is -1, which stands for no sequence. pliant.torch.Packed makes an empty
    sample of it, so that collate knows the position with every version of torch; other data sets would take it for an index.

    `config`: a Config, or the file. `lengths`: tokens of each sequence, any array of integers; None: what [data] names. `rows`: offsets
    and ids of rows that a packer made, for `[sampler] use = "rows"`; row i is ids[offsets[i]] to ids[offsets[i + 1] - 1]. `costs` of
    sequences, or `row_costs` of those rows, take the place of the rates of [balancer]. A copy of the
    sampler, pickled or of a forked process, makes its own plan and begins where the original was.
    """

    def __init__(
        self,
        config: Config | str | bytes | os.PathLike[str] | os.PathLike[bytes],
        lengths: Any,
        rank: int,
        world_size: int,
        *,
        loss_tokens: Any = None,
        source: str = "",
        content: int = 0,
        rows: tuple[Any, Any] | None = None,
        costs: Any = None,
        row_costs: Any = None,
        placeholders: bool = False,
    ) -> None:
        self.config = config if isinstance(config, Config) else Config.open(config)
        if not 0 <= rank < world_size:
            raise Error(f"rank {rank} of {world_size}: ranks are counted from 0", Status.INVALID_ARGUMENT)
        self.rank = rank
        self.world_size = world_size
        for name, array in (("lengths", lengths), ("loss_tokens", loss_tokens)):
            if array is not None:
                _core._check_lengths(array, name)
        self._lengths = lengths
        self._loss_tokens = loss_tokens
        self._source = source
        self._content = content
        self._rows = None if rows is None else (rows[0], rows[1])
        self._costs = costs
        self._row_costs = row_costs
        self._placeholders = placeholders
        self.plan: Plan = Planner(self.config).plan(world_size)
        self._base: bytes | None = None  # what the batches say of themselves at their beginning: the same on every rank
        self._epoch_sizes: dict[int, tuple[int, int]] = {}  # rows and batches of the epochs that were planned
        self._next_epoch = 0
        self._len_epoch = 0
        self._resume: Position | None = None
        self._running: _MicroBatches | None = None
        self._prepare()

    def _prepare(self) -> None:
        self._engine: Batches | None = None
        self._balancer: Balancer | None = None
        self._forks = -1
        plan, is_deterministic = self.plan, self.config.run.deterministic
        # As an audit derives who has computed what.
        self._sharing: dict[str, Any] = {
            "world_size": self.world_size,
            "micro_batch": plan.micro_batch,
            "granule": plan.granule,
            "deterministic": is_deterministic,
            "in_turn": is_deterministic and self.config.has("coordinator"),
        }
        self._block = plan.granule if is_deterministic else plan.micro_batch  # rows of a micro-batch
        self._global_batch = plan.global_batch
        self._share: tuple[int, tuple[int, int, list[tuple[int, int]]]] = (0, (0, 0, []))  # rows of a batch, and what is this rank's of them
        share = _core.share_of(plan.global_batch, plan.granule, self.world_size, 0)[1]  # the first has the largest
        self.micro_batches_per_step = -(-share // self._block)
        if self.config.has("balancer"):
            # One row that is as dear as all others shows a balancer whose counts are its own, before a job has begun.
            rows = plan.global_batch
            self._check_counts(Balancer(self.config), [rows, *[1] * (rows - 1)])

    def _batches(self) -> Batches:
        if self._engine is not None and self._forks == _core._forks():
            return self._engine
        made = self._open(self._base)
        if self._base is None:
            self._base = made.save()
        return made

    def _open(self, base: bytes | None) -> Batches:
        """A state that was loaded names the batches, and spares the plan of epoch 0 that it takes to know them."""
        self._engine = Batches(
            self.config,
            self.plan,
            self._lengths,
            self._loss_tokens,
            source=self._source,
            content=self._content,
            rows=self._rows,
            costs=self._costs,
            row_costs=self._row_costs,
            state=base,
        )
        self._balancer = Balancer(self.config) if self.config.has("balancer") else None
        self._forks = _core._forks()
        return self._engine

    def _epoch_size(self, epoch: int) -> tuple[int, int]:
        """Rows and batches of an epoch. It is planned once, however often it is asked for; a look at its rows notices lengths that were
        changed."""
        if epoch not in self._epoch_sizes:
            found = self._batches().epoch(epoch)
            self._epoch_sizes[epoch] = found.rows, found.batches
        return self._epoch_sizes[epoch]

    # What a loop asks for.

    @property
    def batches(self) -> Batches:
        """The global batches that it deals out, for a Ledger: others, made of the same lengths, would be planned once more."""
        return self._batches()

    def __iter__(self) -> _MicroBatches:
        """Raises Error where a wrapper around the sampler would lose samples, see `see_to_wrappers`."""
        see_to_wrappers(self, self)
        return _MicroBatches(self)

    def __len__(self) -> int:
        """Micro-batches of the whole epoch that is under way, or of the next one where none is. Raises as `iter` does."""
        see_to_wrappers(self, self)
        return self._epoch_size(self._len_epoch)[1] * self.micro_batches_per_step

    def whole_job(self, epochs: int | None = None) -> _WholeJob:
        """All epochs one after the other, for DataLoader(batch_sampler=...): `epochs` of them, or as many as [run] says. For loops that ask for
        the length of an epoch once and take as much of each, as Trainer and Lightning do: epochs of packs differ. It goes on where the sampler
        is. `len` is that of the job from its beginning, and plans each epoch, once."""
        if epochs is None:
            epochs = self.config.run.epochs
        if operator.index(epochs) < 1:
            raise Error(f"epochs is {epochs}; it must be at least 1", Status.OUT_OF_RANGE)
        return _WholeJob(self, epochs)

    def set_epoch(self, epoch: int) -> None:
        """The next `iter` is `epoch`; from its beginning, unless a state within it was loaded. A loader that counts epochs by itself goes on
        with the epoch of the state."""
        if epoch < 0:
            raise Error(f"epoch {epoch}: epochs are counted from 0", Status.OUT_OF_RANGE)
        loader = None if self._resume is None else loader_that_counts()
        if loader is not None:
            loader.iteration = self._next_epoch  # that of the state
            return
        if self._resume is not None and (self._resume[0] != epoch or self._resume[3]):
            if not self._resume[3] and self._resume[1:3] != (0, 0):
                from pliant import _log  # late: logging took a quarter of the time in which the package is imported

                within = self._resume[0]
                _log.deliver(2, "pliant.sampler", f"set_epoch({epoch}) drops the state that was loaded, which is within epoch {within}")
            self._resume = None
        running = self._running
        if running is not None and running._position is not None and not running._is_over and running._epoch + 1 == epoch:
            from pliant import _log  # late, as above

            text = f"epoch {running._epoch} is left before its end; a loop that takes as many micro-batches of every epoch needs whole_job()"
            _log.deliver(2, "pliant.sampler", text)
        self._running = None
        self._next_epoch = self._len_epoch = epoch

    @property
    def sampler(self) -> PackedBatchSampler:
        """Itself: some trainers call `set_epoch` of a batch sampler's `sampler` only."""
        return self

    @property
    def has_placeholders(self) -> bool:
        """Whether an empty micro-batch holds an item that stands for no sequence."""
        return self._placeholders

    # No number: items of a micro-batch are counted by nobody. A loader that is told one takes micro-batches of that many items only.
    # And no drop_last: Lightning would take it for a sampler that it can make anew for each device.
    batch_size: int | None = None

    # Where it is.

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator goes on, or where the next one begins. The same on every rank, for any rank and world size."""
        return self._state_at(self._position())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter` goes on where the state was. A step that was not whole begins again where the world size, the micro-batch or the
        balancer is another."""
        self._resume = self._position_in(state)
        self._running = None
        self._next_epoch = self._len_epoch = self._resume[0] + int(self._resume[3])

    def state_after(self, batch: Any) -> dict[str, Any]:
        """The state behind a batch of a loader that reads ahead: the items of a micro-batch, or what `pliant.torch.collate` made of
        samples of `pliant.torch.Packed`."""
        return self._state_at(self._position_of(batch))

    def state_before(self, batch: Batch) -> dict[str, Any]:
        """The state in front of a global batch, such as `batches.at_step(step)`, which counts the batches of all epochs before it; for a
        ledger that says how far a job is, `state_at(*ledger.position)` plans one epoch."""
        if not isinstance(batch, Batch):
            raise TypeError(f"batch is a {type(batch).__name__}; a Batch is needed")
        return self._state_at((batch.epoch, batch.index, 0, False))

    def state_at(self, epoch: int, index: int) -> dict[str, Any]:
        """The state in front of batch `index` of an epoch, or behind its last one, such as `ledger.position`."""
        batches = self._epoch_size(epoch)[1] if index else 1
        if epoch < 0 or not 0 <= index <= batches:
            raise Error(f"batch {index} of epoch {epoch}, which has {batches}", Status.OUT_OF_RANGE)
        return self._state_at((epoch, index, 0, index == batches))

    def batch_of(self, batch: Any) -> Batch:
        """The whole global batch that a micro-batch is of, for the ledger, the rate and the loss."""
        epoch, index, micro, _ = self._position_of(batch)
        return self._batches().batch(epoch, index if micro else index - 1)  # the position is behind the micro-batch

    def size_of(self, batch: Any) -> BatchSize:
        """The size of that global batch."""
        return self.batch_of(batch).size

    def learning_rate(self) -> LearningRate:
        """The rules of the config's [lr] for these batches: `base_batch = 0` is their mean in the first epoch, `end = 0` the end of the job. The same on
        every rank, and after a restart."""
        batches = self._batches()
        made = LearningRate(self.config, batches.epoch(0).mean_batch())
        if made.wants_job_length:
            made.set_job_length(batches.job_length())
        return made

    def assignment(self, batch: Batch) -> Assignment:
        """Which rank computes which rows of a global batch."""
        self._batches()
        if self._balancer is None:
            return _core.share_out(len(batch), **self._sharing)
        return self._check_counts(self._balancer, _core.row_costs(batch, *self._balancer.rates))

    def _check_counts(self, balancer: Balancer, row_costs: Any) -> Assignment:
        """What `balancer` gives. Raises Error where that is more micro-batches for a rank than a step has."""
        assignment = balancer.assign(row_costs, **self._sharing)
        for rank in range(self.world_size):
            given = len(assignment.of(rank))
            if given > self.micro_batches_per_step:
                raise _failed(
                    f"balancer '{balancer.name}' gives rank {rank} {given} micro-batches of a step, and a step of a loader has "
                    f"{self.micro_batches_per_step} on every rank: set equal_counts = true in [balancer.{balancer.name}], or use a balancer "
                    "of equal counts"
                )
        return assignment

    # Between it and its iterators.

    def _position(self) -> Position:
        if self._resume is not None:
            return self._resume
        running = self._running
        if running is not None and running._position is not None and running._epoch + 1 == self._next_epoch:
            return running._position
        return self._next_epoch, 0, 0, False

    @staticmethod
    def _position_of(batch: Any) -> Position:
        found: Position | None = getattr(batch, "position", None)
        if found is None and isinstance(batch, (list, tuple)) and batch:
            found = getattr(batch[0], "position", None)
        if found is None:
            raise _failed("this batch has no position: pliant.torch.collate keeps it, for data sets in pliant.torch.Packed")
        return found

    def _begins_at(self) -> Position:
        """Where an iterator begins that was not used before."""
        position = self._resume or (self._next_epoch, 0, 0, False)
        if position[3]:
            position = (position[0] + 1, 0, 0, False)
        return position

    def _has_begun(self, iterator: _MicroBatches, epoch: int) -> None:
        self._running = iterator
        self._resume = None
        self._next_epoch = epoch + 1
        self._len_epoch = epoch

    def _has_ended(self, epoch: int) -> None:
        self._len_epoch = epoch + 1

    def _deal(self, epoch: int, index: int, rows: int) -> list[ItemList]:
        """The micro-batches of batch `index` of an epoch of `rows` rows, the last one first."""
        batches = self._batches()
        before = index * self._global_batch
        left = rows - before
        count = self.micro_batches_per_step
        batch: Batch | None = None
        first = 0
        if self._balancer is None and not self._sharing["in_turn"]:  # only its own rows are looked at
            first, own, blocks = self._own_share(min(left, self._global_batch))
            if own:
                batch = batches.rows(epoch, before + first, own)
        else:
            batch = batches.batch(epoch, index)
            blocks = self.assignment(batch).of(self.rank)
        is_last = left <= self._global_batch
        dealt: list[ItemList] = _core._deal(batch, first, blocks, epoch, index, count, Item, ItemList, is_last)
        if self._placeholders:
            for items in dealt:
                if not items:
                    none = Item(0)
                    none.position = items.position
                    items.append(none)
        return dealt

    def _own_share(self, rows: int) -> tuple[int, int, list[tuple[int, int]]]:
        """First row, rows and micro-batches of this rank in a batch of `rows` rows: nearly all batches have as many."""
        if self._share[0] != rows:
            first, own = _core.share_of(rows, self.plan.granule, self.world_size, self.rank)
            self._share = rows, (first, own, [(row, min(self._block, first + own - row)) for row in range(first, first + own, self._block)])
        return self._share[1]

    def _state_at(self, position: Position) -> dict[str, Any]:
        import json  # late: it takes a sixth of the time in which the package is imported

        self._batches()
        assert self._base is not None
        epoch, batch, micro, ended = position
        text = json.dumps(
            {
                "version": _VERSION,
                "epoch": epoch,
                "batch": batch,
                "micro_batch": micro,
                "ended": ended,
                "dealt": self._dealt(),
                "batches": self._base.decode(),
            }
        )
        return {_KEY: f"{text}\n{zlib.crc32(text.encode()):08x}\n"}

    def _position_in(self, state: dict[str, Any]) -> Position:
        """The position in `state`. Raises Error and changes nothing where it is of other batches, or is none."""
        fields = _fields_of(state)
        base = fields["batches"].encode()
        if base != self._base:
            if self._engine is None:
                self._open(base)
            else:
                self._batches().load(base)  # says what differs
            self._base = base
        micro = fields["micro_batch"] if fields["dealt"] == self._dealt() else 0
        return fields["epoch"], fields["batch"], micro, fields["ended"]

    def _in_front_of_step(self, state: dict[str, Any]) -> dict[str, Any]:
        """`state`, or where it is within a step the one in front of that."""
        epoch, index, micro, _ = self._position_in(state)
        return self.state_at(epoch, index) if micro else state

    def _dealt(self) -> list[Any]:
        """What decides which rows of a batch are in which micro-batch of which rank."""
        self._batches()
        balancer = [] if self._balancer is None else [self._balancer.name, *self._balancer.rates]
        dealt = [self.world_size, self._block, *balancer]
        return [*dealt, "in turn"] if self._sharing["in_turn"] else dealt

    # Pickles.

    def __getstate__(self) -> dict[str, Any]:
        kept = dict(self.__dict__, _resume=self._position(), _running=None)
        for name in ("_engine", "_balancer", "_forks"):
            del kept[name]
        for name in ("_lengths", "_loss_tokens", "_costs", "_row_costs"):
            kept[name] = _picklable(kept[name])
        if kept["_rows"] is not None:
            kept["_rows"] = tuple(_picklable(array) for array in kept["_rows"])
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


def _fields_of(state: dict[str, Any]) -> dict[str, Any]:
    import json

    text = state.get(_KEY) if isinstance(state, dict) else None
    if not isinstance(text, str):
        raise _failed("this is not the state of a sampler of Pliant", Status.DATA_LOSS)
    line, _, check = text.partition("\n")
    if check != f"{zlib.crc32(line.encode()):08x}\n":
        raise _failed("this state of a sampler was cut or changed: its checksum does not match", Status.DATA_LOSS)
    fields: dict[str, Any] = json.loads(line)
    if fields["version"] != _VERSION:
        raise _failed(f"this state has version {fields['version']}; this Pliant reads version {_VERSION}", Status.UNIMPLEMENTED)
    return fields
