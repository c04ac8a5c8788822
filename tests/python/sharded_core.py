"""A stand-in for pliant._core.ShardedModel on one rank, stricter than any: what is whole lies elsewhere at every visit, and what was released is NaN."""
import contextlib
import ctypes
import math
import types

import pytest
import torch

import pliant.torch
from pliant import _core

RANGE = 7  # elements of a run that the rank "owns": no parameter is one run


def session(deterministic=True, seed=3, accelerator="host"):
    run = types.SimpleNamespace(deterministic=deterministic)
    return types.SimpleNamespace(seed=seed, accelerator=accelerator, config=types.SimpleNamespace(run=run), _core=None, _state=None)


def floats(address, count):
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


class ShardedModel:
    compute_dtype = reduce_dtype = "float32"
    memory = (1, 2, 3, 4, 5)
    made = None  # the last one

    def __init__(self, session, states, initialise):
        self.states, self._initialise = list(states), initialise
        self.names, self.shapes, self.frozen, self.modules = [], [], [], []
        self.weights, self.arrays = [], []
        self.visits, self.pass_kind, self.passes = [], None, []
        self.entered, self.whole, self.gradients, self.reduced = [], {}, {}, set()
        self.by_hand = set()
        self.fails_at = None  # a visit: (module's name, direction)
        self.failure = None
        self._graves = []  # memory that was whole stays, as NaN
        ShardedModel.made = self

    def add_parameter(self, name, shape, frozen):
        self.names.append(name)
        self.shapes.append(tuple(shape))
        self.frozen.append(frozen)
        return len(self.names) - 1

    def add_module(self, name, parent, own):
        assert (parent is None) == (not self.modules)
        self.modules.append((name, list(own)))
        return len(self.modules) - 1

    def start(self):
        """As Session.next does with a job that begins."""
        for number, shape in enumerate(self.shapes):
            values = torch.full((math.prod(shape),), math.nan)
            self._initialise(number, values.data_ptr(), values.numel())
            assert not values.isnan().any(), self.names[number]
            self.weights.append(values)
            self.arrays.append([torch.zeros_like(values) for _ in self.states])
        self.sums = [torch.zeros_like(one) for one in self.weights]

    # Passes.

    def begin_pass(self, rows):
        assert self.pass_kind is None
        self.pass_kind, self.passes = "training", [*self.passes, rows]
        self.gradients, self.reduced, self.uses = {}, set(), {}

    def repeat_pass(self, rows):
        assert not rows
        self.passes.append(rows)

    def can_repeat_pass(self):
        return bool(self.passes)

    def begin_evaluation(self):
        assert self.pass_kind is None
        self.pass_kind = "evaluation"

    def end_pass(self):
        assert self.pass_kind is not None and not self.entered
        for number, values in self.gradients.items():
            if number not in self.reduced:
                self._reduce(number, values)
        self.pass_kind = None

    def enter(self, module, direction):
        name, own = self.modules[module]
        if (name, direction) == self.fails_at:
            raise self.failure
        assert direction != "backward" or self.pass_kind == "training"
        self.visits.append(f"{direction} {name}")
        self.entered.append((module, direction))
        for number in own:
            if number not in self.whole:
                self.whole[number] = self._whole(number)
            if direction == "forward" and self.pass_kind == "training":
                self.uses[number] = self.uses.get(number, 0) + 1

    def leave(self, module, direction):
        assert (module, direction) in self.entered
        if direction == "forward":
            assert self.entered[-1] == (module, direction)
        self.entered.reverse()
        self.entered.remove((module, direction))
        self.entered.reverse()
        still = {number for other, _ in self.entered for number in self.modules[other][1]} | self.by_hand
        for number in self.modules[module][1]:
            if direction == "backward" and self.uses.get(number):
                self.uses[number] -= 1
                if not self.uses[number] and not self.frozen[number]:
                    self._reduce(number, self.gradients.get(number, torch.zeros(0)))
            if number not in still:
                self._bury(self.whole.pop(number))

    def addresses(self, numbers):
        return [self.whole[number].data_ptr() for number in numbers]

    def gradient_addresses(self, numbers):
        made = []
        for number in numbers:
            assert not self.frozen[number] and number not in self.reduced
            zeros = torch.zeros(self.weights[number].shape, dtype=getattr(torch, self.reduce_dtype))
            made.append(self.gradients.setdefault(number, zeros).data_ptr())
        return made

    def _whole(self, number):
        return self.weights[number].to(getattr(torch, self.compute_dtype), copy=True)

    def _reduce(self, number, values):
        self.reduced.add(number)
        if values.numel():
            self.sums[number] += values
            self._bury(values)

    def _bury(self, values):
        values.fill_(math.nan)
        self._graves.append(values)

    def give_up(self):
        """As Step.give_up has core do."""
        self.fails_at, self.pass_kind, self.entered, self.whole = None, None, [], {}
        self.sums = [torch.zeros_like(one) for one in self.weights]

    # The rest.

    def squared_gradient_norm(self):
        return float(sum((one.double() ** 2).sum() for one in self.sums))

    def update(self, each):
        for number, values in enumerate(self.weights):
            for first in range(0, 0 if self.frozen[number] else values.numel(), RANGE):
                self._give(each, number, first, self.sums[number])
        self.sums = [torch.zeros_like(one) for one in self.weights]

    def visit_owned(self, each):
        for number, values in enumerate(self.weights):
            for first in range(0, values.numel(), RANGE):
                self._give(each, number, first, None)

    def _give(self, each, number, first, gradient):
        count = min(RANGE, self.weights[number].numel() - first)
        at = [one.data_ptr() + 4 * first for one in (self.weights[number], *self.arrays[number])]
        each(number, first, count, at[0], 0 if gradient is None else gradient.data_ptr() + 4 * first, at[1:])

    def fetch(self, number):
        assert self.pass_kind is None
        self.by_hand.add(number)
        self.whole.setdefault(number, self._whole(number))

    def release(self, number):
        self.by_hand.remove(number)
        self._bury(self.whole.pop(number))

    def read(self, number, address, count):
        floats(address, count).copy_(self.weights[number]) if count else None

    def write(self, number, address, count):
        self.weights[number] = floats(address, count).clone()


class Step:
    """As pliant.elastic.Step, of one rank."""

    def __init__(self, micro_batches=(range(0, 1),), index=0):
        self.index, self.micro_batches, self.losses = index, micro_batches, []

    @property
    def pending(self):
        return self.micro_batches[len(self.losses)] if len(self.losses) < len(self.micro_batches) else None

    def scaling(self, base_lr=None):
        return types.SimpleNamespace(learning_rate=base_lr or 1.0, one_minus_beta1=1.0, one_minus_beta2=1.0, epsilon=1.0, weight_decay=1.0,
                                     momentum_buffer=1.0, second_moment=1.0)

    def add(self, rows, loss_sum):
        assert rows == self.pending
        self.losses.append(loss_sum)


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    monkeypatch.setattr(_core, "ShardedModel", ShardedModel)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def sharded(model, optimizer=None, **options):
    state = pliant.torch.shard(model, optimizer, session=session(), **options)
    core = ShardedModel.made
    core.start()
    return state, core


@contextlib.contextmanager
def attempt(state, step):
    """As `with step.attempt():`."""
    state.begin_attempt(step)
    try:
        yield
    except BaseException:
        state.end_attempt()
        raise
    broken = state.end_attempt()
    if broken is not None:
        raise broken


def take_step(state, losses, index=0):
    step = Step(tuple(range(row, row + 1) for row in range(len(losses))), index)
    state.begin(step)
    with attempt(state, step):
        for loss in losses:
            state.backward(step, step.pending, loss())
    state.finish(step)
    state.committed(step, None)
    return step


def check_gradients(model, core, plain, loss):
    """Those of `core` are the plain model's, to the bit, zeros where the loss does not depend on one, and nothing is left whole."""
    trained = {name: one for name, one in plain.named_parameters() if one.requires_grad}
    for name, expected in zip(trained, torch.autograd.grad(loss, list(trained.values()), allow_unused=True)):
        expected = torch.zeros_like(trained[name]) if expected is None else expected
        assert torch.equal(core.sums[core.names.index(name)], expected.flatten().float()), name
    assert not core.whole and not core.entered
    assert all(one.isnan().all() for one in model.parameters() if one.numel())
    assert all(one.grad is None for one in model.parameters())
