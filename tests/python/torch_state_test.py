"""a model of PyTorch is the state of a job: gradients in place, optimizers from their first step, what cannot be kept refused by name."""
import ctypes
import json
import random
import re
import sys
import types

import numpy
import pytest
import torch
from torch import nn

import pliant
import pliant.torch

SCALING = {"learning_rate": 1.0, "one_minus_beta1": 1.0, "one_minus_beta2": 1.0, "epsilon": 1.0, "weight_decay": 1.0, "momentum_buffer": 1.0,
           "second_moment": 1.0}


class Step:
    """As pliant.elastic.Step, of a job with one rank that adds what it is given."""

    def __init__(self, size, micro_batches=(range(0, 1),), index=0, scaling=None, world_size=1):
        self.index, self.micro_batches, self.size, self.world_size = index, micro_batches, size, world_size
        self.sum, self.loss, self.added, self.norms = numpy.zeros(size, numpy.float32), 0.0, 0, []
        self._open, self._scaling, self.taken, self.places = [], scaling or {}, [], {}

    @property
    def pending(self):
        return self.micro_batches[self.added] if self.added < len(self.micro_batches) else None

    def scaling(self, base_lr=None):
        return types.SimpleNamespace(**{**SCALING, "learning_rate": base_lr or 1.0, **self._scaling})

    def add_piece(self, rows, offset, address, count, dtype):
        assert rows == self.pending
        width = {"float32": 4, "float16": 2, "bfloat16": 2}[dtype]
        memory = torch.frombuffer(bytearray(ctypes.string_at(address, count * width)), dtype=getattr(torch, dtype))
        self._open.append((offset, memory.float().numpy()))
        self.taken.append((self.added, offset, count))
        self.places.update({offset + i: address + i * width for i in range(count)})

    def add(self, rows, loss_sum):
        whole = numpy.concatenate([values for _, values in sorted(self._open, key=lambda piece: piece[0])])
        assert len(whole) == self.size
        self._open = []
        self.sum += whole
        self.norms.append(float(numpy.square(whole).sum()))
        self.loss += loss_sum
        self.added += 1


def session(deterministic=False, seed=7, accelerator="host", groups=None, reduce_bucket=0, base_lr=0.1):
    run = types.SimpleNamespace(deterministic=deterministic, reduce_bucket=reduce_bucket)
    rates = types.SimpleNamespace(groups=groups or {}, base_lr=base_lr)
    return types.SimpleNamespace(seed=seed, accelerator=accelerator, config=types.SimpleNamespace(run=run, lr=rates))


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def model_of(seed=1, *layers):
    torch.manual_seed(seed)
    return nn.Sequential(*(layers or (nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))))


def commit(state, step, divisor=1.0):
    state.committed(step, types.SimpleNamespace(gradient=(step.sum / divisor).astype(numpy.float32)))


def take_step(state, loss_of, scaling=None, index=0, rows=1):
    step = Step(state.gradient_size, tuple(range(row, row + 1) for row in range(rows)), index, scaling)
    state.begin(step)
    for row in range(rows):
        state.backward(step, step.pending, loss_of(row))
    commit(state, step)
    return step


def plain_gradient(model, loss):
    return torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])


def test_gradients_are_views_whatever_zero_grad_does_and_hold_the_mean_after_the_commit():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    data = torch.randn(2, 4)
    expected = plain_gradient(model, model(data).sum())
    views = [one.grad for one in model.parameters()]
    assert all(view is not None for view in views)
    for reset in (lambda: None, lambda: optimizer.zero_grad(set_to_none=True), lambda: optimizer.zero_grad(set_to_none=False)):
        step = Step(state.gradient_size, (range(0, 1), range(1, 2)))
        state.begin(step)
        for row in range(2):
            reset()
            state.backward(step, step.pending, model(data[row : row + 1]).sum())
        numpy.testing.assert_allclose(step.sum, expected.numpy(), rtol=1e-5)
        commit(state, step, divisor=2.0)
        assert all(one.grad is view for one, view in zip(model.parameters(), views))
        numpy.testing.assert_allclose(torch.cat([view.flatten() for view in views]).numpy(), step.sum / 2)


def test_a_backward_of_the_programs_own_before_that_of_the_step_counts():
    model = model_of()
    state = pliant.torch.state(model)
    data = torch.randn(1, 4)
    expected = plain_gradient(model, 3 * model(data).sum())
    step = Step(state.gradient_size)
    state.begin(step)
    (2 * model(data).sum()).backward()
    state.backward(step, step.pending, model(data).sum())
    numpy.testing.assert_allclose(step.sum, expected.numpy(), rtol=1e-5)


def places_of(parameters):
    """Where each element of the gradient lies, of parameters in its order."""
    return [one.grad.data_ptr() + i * one.grad.element_size() for one in parameters for i in range(one.numel())]


def test_what_is_handed_in_lies_where_backward_adds_and_the_mean_comes_to_the_same_place():
    model = nn.ModuleList([nn.Linear(2, 3), nn.Linear(2, 1, dtype=torch.bfloat16)])  # in the order of the gradient
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    places = places_of(model.parameters())
    data = torch.tensor([[2.0, 3.0]])
    for index in range(2):
        step = Step(state.gradient_size, (range(0, 1), range(1, 2)), index)
        state.begin(step)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            step.places.clear()
            state.backward(step, step.pending, model[0](data).sum() + model[1](data.bfloat16()).float().sum())
            assert [step.places[i] for i in range(state.gradient_size)] == places == places_of(model.parameters())
        commit(state, step, divisor=2.0)
        assert places_of(model.parameters()) == places and model[0].weight.grad.tolist() == [[2.0, 3.0]] * 3
        ctypes.cast(places[0], ctypes.POINTER(ctypes.c_float))[0] = 8.0
        weight = model[0].weight[0, 0].item()
        optimizer.step()
        assert model[0].weight[0, 0].item() == pytest.approx(weight - 0.8)


def test_what_the_loss_does_not_depend_on_and_what_a_hook_takes_away_is_zero():
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)})
    state = pliant.torch.state(model)
    step = Step(state.gradient_size)
    state.begin(step)
    model["used"].bias.grad = None
    state.backward(step, step.pending, model["used"](torch.ones(1, 2)).sum())
    assert step.sum.tolist() == [1, 1, 1, 0, 0, 0]
    assert model["unused"].weight.grad is not None


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_an_attempt_that_was_not_committed_leaves_an_optimizer_nothing_to_update(kind):
    model = model_of()
    optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.5)
    state = pliant.torch.state(model, optimizer)
    kept, before = state.save(), [one.detach().clone() for one in model.parameters()]
    for _ in range(2):
        step = Step(state.gradient_size)
        state.begin(step)
        state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
        state.before_commit(step)  # the group has changed: no `committed` follows
        optimizer.step()
        assert state.save() == kept and all(torch.equal(one, was) for one, was in zip(model.parameters(), before))
    state.begin(step)
    state.before_commit(step)
    commit(state, step)
    assert torch.equal(torch.cat([one.grad.flatten() for one in model.parameters()]), torch.from_numpy(step.sum))


def test_a_gradient_that_takes_the_place_of_a_view_is_copied_into_it():
    model = nn.Embedding(5, 2, sparse=True)
    state = pliant.torch.state(model)
    step = Step(state.gradient_size)
    state.begin(step)
    view = model.weight.grad
    model.weight.grad = torch.full_like(model.weight, 0.5)
    state.backward(step, step.pending, model(torch.tensor([1, 1, 3])).sum())
    assert step.sum.tolist() == [0.5, 0.5, 2.5, 2.5, 0.5, 0.5, 1.5, 1.5, 0.5, 0.5]
    assert model.weight.grad is view


def test_a_sparse_gradient_that_stands_in_place_of_a_view_is_copied_too():
    model = nn.Embedding(3, 2, sparse=True)
    state = pliant.torch.state(model)
    step = Step(state.gradient_size)
    state.begin(step)
    model.weight.grad = torch.sparse_coo_tensor([[2]], [[4.0, 5.0]], (3, 2))
    state.backward(step, step.pending, model(torch.tensor([0, 0])).sum())
    assert step.sum.tolist() == [2, 2, 0, 0, 4, 5]


def test_parameters_of_16_bits_have_gradients_of_their_own_type():
    model = nn.ModuleList([nn.Linear(2, 1, dtype=torch.bfloat16), nn.Linear(2, 1), nn.Linear(1, 1, bias=False, dtype=torch.float16)])
    state = pliant.torch.state(model)
    step = Step(state.gradient_size)
    state.begin(step)
    data = torch.tensor([[2.0, 3.0]])
    loss = model[0](data.bfloat16()).float().sum() + model[1](data).sum() + (model[2].weight * 5).float().sum()
    state.backward(step, step.pending, loss)
    assert step.sum.tolist() == [2, 3, 1, 2, 3, 1, 5]  # float32, bfloat16, float16
    commit(state, step)
    assert {one.grad.dtype for one in model.parameters()} == {torch.float32, torch.bfloat16, torch.float16}
    assert model[2].weight.grad.item() == 5


@pytest.mark.parametrize("convert", [lambda model: model.double(), lambda model: model.half()])
def test_a_model_that_is_converted_afterwards_is_refused(convert):
    model = model_of()
    state = pliant.torch.state(model)
    convert(model)
    with pytest.raises(pliant.Error, match=r"parameter 0\.weight was converted or moved|is another one"):
        state.begin(Step(state.gradient_size))


@pytest.mark.parametrize("reset", [True, False])
def test_a_model_that_is_converted_before_the_commit_is_refused_there(reset):
    model = model_of()
    state = pliant.torch.state(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    step = Step(state.gradient_size)
    state.begin(step)
    state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
    state.before_commit(step)
    if reset:
        model.zero_grad(set_to_none=True)
    model.half()
    with pytest.raises(pliant.Error, match=r"parameter 0\.weight was converted or moved.*is of float16"):
        state.before_commit(step)


def test_types_that_no_gradient_has_are_refused_by_name():
    with pytest.raises(pliant.Error, match=r"parameter 0\.weight is of float64"):
        pliant.torch.state(model_of().double())
    frozen = model_of().double().requires_grad_(False)
    assert pliant.torch.state(frozen).gradient_size == 0


def test_a_parameter_that_is_frozen_later_has_no_gradient_and_stays():
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    state = pliant.torch.state(model, optimizer)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    step = take_step(state, lambda row: model(torch.ones(1, 4)).sum())
    assert step.sum[:12].tolist() == [0] * 12 and model[0].weight.grad is None and model[0].bias.grad is not None
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    model[0].weight.requires_grad_(True)
    state.begin(Step(state.gradient_size))
    assert model[0].weight.grad is not None


def test_a_parameter_that_was_frozen_first_must_stay_so():
    model = model_of()
    model[0].weight.requires_grad_(False)
    state = pliant.torch.state(model)
    assert state.gradient_size == 11
    names = [name for name, *_ in state.arrays()]
    assert "model.0.weight" in names  # it is part of the state all the same
    take_step(state, lambda row: model(torch.ones(1, 4)).sum())
    model[0].weight.requires_grad_(True)
    for call in (state.arrays, lambda: state.begin(Step(state.gradient_size))):
        with pytest.raises(pliant.Error, match=r"parameter 0\.weight was frozen when"):
            call()


def test_a_worker_that_joins_trains_what_the_others_train_by_then():
    def program(frozen):
        model = model_of()
        state = pliant.torch.state(model, torch.optim.AdamW(model.parameters(), lr=0.1))
        model[frozen].requires_grad_(False)
        return model, state

    def frozen_in(model):
        return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]

    (one, state), (other, joining) = program(2), program(0)
    joining.load(state.save())
    assert frozen_in(one) == frozen_in(other) == ["2.weight", "2.bias"]
    step = take_step(joining, lambda row: other(torch.ones(1, 4)).sum())
    assert step.sum[:12].any() and other[2].weight.grad is None
    one.requires_grad_(True)
    joining.load(state.save())
    assert frozen_in(other) == [] and joining.save() == state.save()
    one[0].requires_grad_(False)
    assert joining.save() != state.save()  # which the digests of the ranks show
    before = json.loads(state.save())
    del before["frozen"]
    joining.load(json.dumps(before).encode())  # a snapshot of a release that kept none
    assert frozen_in(other) == []


def test_what_was_frozen_before_the_state_was_made_stays_so_whatever_a_snapshot_says():
    def made(*frozen):
        model = model_of()
        for number in frozen:
            model[number].requires_grad_(False)
        return model, pliant.torch.state(model, torch.optim.SGD(model.parameters(), lr=0.1))

    model, state = made(0)
    state.load(made()[1].save())
    assert not model[0].weight.requires_grad and model[2].weight.requires_grad
    model, state = made()
    model[0].requires_grad_(False)
    state.load(made(0)[1].save())  # which never trained it
    assert not model[0].weight.requires_grad and model[2].weight.requires_grad


def test_the_layout_of_the_gradient_says_which_parameters_are_trained():
    model = model_of()
    whole = pliant.torch.state(model).gradient_layout
    assert whole.splitlines()[0] == "0.weight (3, 4)" and len(whole.splitlines()) == 4
    layouts = {whole}
    for frozen in (model[0].bias, model[2].weight):
        frozen.requires_grad_(False)
        layouts.add(pliant.torch.state(model).gradient_layout)
        frozen.requires_grad_(True)
    assert len(layouts) == 3


def test_the_layout_of_the_gradient_says_which_group_of_the_optimizer_a_parameter_is_in():
    def layout(*members):
        model = model_of()
        named = dict(model.named_parameters())
        groups = [{"params": [named[name] for name in names.split()], "lr": 0.1 * (number + 1)} for number, names in enumerate(members)]
        return pliant.torch.state(model, torch.optim.SGD(groups, lr=0.1)).gradient_layout

    one = layout("0.weight 0.bias", "2.weight 2.bias")
    assert one.splitlines()[2] == "2.weight (2, 3) in group 1"
    assert layout("0.bias 0.weight", "2.weight 2.bias") == one != layout("0.weight", "0.bias 2.weight 2.bias")


def test_parameters_that_are_replaced_or_come_later_are_refused_by_name():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    kept = model[2].bias
    model[2].bias = nn.Parameter(torch.zeros(2))
    with pytest.raises(pliant.Error, match=r"parameter 2\.bias of the model is another one"):
        state.begin(Step(state.gradient_size))
    model[2].bias = kept
    model.flat = nn.Flatten()  # has none
    state.begin(Step(state.gradient_size))
    for add, name in [(lambda: setattr(model, "late", nn.Linear(1, 1)), "late.weight"),
                      (lambda: setattr(model[3], "inner", nn.Linear(1, 1)), "3.inner.weight"),
                      (lambda: model[0].register_parameter("scale", nn.Parameter(torch.ones(1))), "0.scale"),
                      (lambda: setattr(model[4], "bias", nn.Parameter(torch.ones(1))), "4.bias")]:
        model = nn.Sequential(*model_of(), nn.Flatten(), nn.Linear(2, 1, bias=False))
        state = pliant.torch.state(model)
        take_step(state, lambda row: model(torch.ones(1, 4)).sum())
        add()
        for call in (state.arrays, lambda: state.begin(Step(state.gradient_size))):
            with pytest.raises(pliant.Error, match=f"parameter {re.escape(name)} was added"):
                call()
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    model.late = nn.Linear(1, 1)
    optimizer.add_param_group({"params": list(model.late.parameters())})
    for call in (state.begin, state.before_commit):
        with pytest.raises(pliant.Error, match="the optimizer has 6 parameters, and had 4"):
            call(Step(state.gradient_size))


def test_a_shared_parameter_counts_once_and_memory_that_two_share_is_refused():
    model = nn.ModuleDict({"embedding": nn.Embedding(3, 2), "head": nn.Linear(2, 3, bias=False)})
    model["head"].weight = model["embedding"].weight
    state = pliant.torch.state(model)
    assert state.gradient_size == 6 and [name for name, *_ in state.arrays()] == ["model.embedding.weight"]
    model["head"].weight = nn.Parameter(model["embedding"].weight.detach())
    with pytest.raises(pliant.Error, match=r"model\.embedding\.weight and model\.head\.weight share memory"):
        pliant.torch.state(model)


def test_arrays_are_the_tensors_where_they_lie_with_names_that_a_state_may_have():
    model = nn.ModuleDict({"a b": nn.Linear(2, 1), "n": nn.BatchNorm1d(1)})
    model.register_buffer("mask", torch.ones(2, dtype=torch.bool))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    arrays = {name: rest for name, *rest in state.arrays()}
    assert arrays["model.a:20:b.weight"] == ["float32", (1, 2), model["a b"].weight.data_ptr()]
    assert arrays["model.mask"][:2] == ["bool", (2,)] and arrays["model.n.num_batches_tracked"][:2] == ["int64", ()]
    assert arrays["optimizer.a:20:b.weight.exp_avg"] == ["float32", (1, 2), optimizer.state[model["a b"].weight]["exp_avg"].data_ptr()]
    assert not any("step" in name for name in arrays)  # numbers are no arrays


def test_tensors_that_cannot_be_copied_are_refused_by_name():
    model = model_of()
    model.register_buffer("turned", torch.zeros(2, 3).t())
    with pytest.raises(pliant.Error, match="turned does not lie row by row"):
        pliant.torch.state(model)
    with pytest.raises(pliant.Error, match="weight is on the device meta"):
        pliant.torch.state(nn.Linear(2, 2, device="meta"))
    with pytest.raises(pliant.Error, match="weight has no shape yet"):
        pliant.torch.state(nn.LazyLinear(2))

    class Own(nn.Linear):
        def get_extra_state(self):
            return {"scale": 1}

    with pytest.raises(pliant.Error, match="get_extra_state"):
        pliant.torch.state(nn.Sequential(Own(1, 1)))


def test_a_session_on_another_device_and_a_wrapped_model_are_refused():
    with pytest.raises(pliant.Error, match=r"the model is on cpu, and \[accelerator\] use = \"cuda\""):
        pliant.torch.state(model_of()).attach(session(accelerator="cuda"))

    class Wrapped(nn.parallel.DistributedDataParallel):
        def __init__(self):
            nn.Module.__init__(self)

    with pytest.raises(pliant.Error, match="ddp.module"):
        pliant.torch.state(Wrapped())


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.Adam, {"lr": 0.1}), (torch.optim.Adam, {"lr": 0.1, "amsgrad": True}), (torch.optim.AdamW, {"lr": 0.1}),
    (torch.optim.NAdam, {"lr": 0.1}), (torch.optim.RAdam, {"lr": 0.1}), (torch.optim.Adamax, {"lr": 0.1}),
    (torch.optim.RMSprop, {"lr": 0.1, "momentum": 0.5, "centered": True}), (torch.optim.Adadelta, {}),
    (torch.optim.Adagrad, {"initial_accumulator_value": 0.5}),
]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS, ids=lambda value: getattr(value, "__name__", None))
def test_an_optimizer_whose_state_is_there_first_computes_as_without(kind, options):
    one, other = model_of(), model_of()
    ours, plain = kind(one.parameters(), **options), kind(other.parameters(), **options)
    state = pliant.torch.state(one, ours)
    kept = len(state.arrays())
    for index in range(4):
        data = torch.full((1, 4), 0.5 + index)
        take_step(state, lambda row, data=data: one(data).square().sum(), index=index)
        ours.step()
        plain.zero_grad()
        other(data).square().sum().backward()
        plain.step()
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one.parameters(), other.parameters()))
    assert len(state.arrays()) == kept  # nothing came later
    assert {key for entries in ours.state.values() for key in entries} >= {key for entries in plain.state.values() for key in entries if entries[key] is not None}


def test_optimizers_whose_beginning_is_not_known_are_refused_by_name_unless_their_state_is_there():
    class Own(torch.optim.SGD):
        pass

    for kind, options, said in ((torch.optim.Rprop, {}, "Rprop"), (torch.optim.LBFGS, {}, "LBFGS"), (Own, {"lr": 0.1}, "Own"),
                                (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}, "dampening")):
        model = model_of()
        with pytest.raises(pliant.Error, match=said):
            pliant.torch.state(model, kind(model.parameters(), **options))
    model = model_of()
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    names = [name for name, *_ in pliant.torch.state(model, optimizer).arrays()]
    assert "optimizer.0.weight.prev" in names
    model = model_of()
    optimizer = Own(model.parameters(), lr=0.1, momentum=0.9)
    made = pliant.torch.state(model, optimizer, initialise=lambda parameter, group: {"momentum_buffer": torch.ones_like(parameter)})
    assert "optimizer.2.bias.momentum_buffer" in [name for name, *_ in made.arrays()]


def test_an_optimizer_of_other_parameters_and_one_with_options_that_are_no_numbers_are_refused():
    model = model_of()
    with pytest.raises(pliant.Error, match="parameter 0 of group 0 of the optimizer is none of the model"):
        pliant.torch.state(model, torch.optim.SGD(model_of().parameters(), lr=0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["rule"] = object()
    with pytest.raises(pliant.Error, match="'rule' of group 0 of the optimizer is a object"):
        pliant.torch.state(model, optimizer)


def schedulers(optimizer):
    rates = torch.optim.lr_scheduler
    return {"steps": rates.MultiStepLR(optimizer, [1, 3], 0.5), "lambda": rates.LambdaLR(optimizer, lambda step: 1 / (step + 1)),
            "cosine": rates.CosineAnnealingLR(optimizer, 10)}


@pytest.mark.parametrize("name", ["steps", "lambda", "cosine"])
def test_what_is_saved_makes_another_program_the_same(name):
    def program():
        model = model_of()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        scheduler = schedulers(optimizer)[name]
        return model, optimizer, scheduler, pliant.torch.state(model, optimizer, scheduler=scheduler)

    def train(made, steps):
        model, optimizer, _, state = made
        for index in steps:
            take_step(state, lambda row: model(torch.ones(1, 4)).square().sum(), index=index)
            optimizer.step()

    one, other = program(), program()
    train(one, range(3))
    saved = one[3].save()
    assert saved == one[3].save() and json.loads(saved)["optimizer"] == "Adam"
    for (_, mine), (_, theirs) in zip(one[3]._tensors(), other[3]._tensors()):
        theirs.data.copy_(mine)
    assert other[3].load(saved) is None
    assert other[3].save() == saved
    train(one, range(3, 6))
    train(other, range(3, 6))
    assert one[3].save() == other[3].save()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(one[0].parameters(), other[0].parameters()))
    assert one[2].last_epoch == other[2].last_epoch == 6


def test_a_state_that_cannot_be_saved_is_refused_at_once():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    scheduler.extra = object()
    with pytest.raises(pliant.Error, match=r"what LambdaLR keeps is a object.*a newer torch may.*LambdaLR and the schedules of \[lr\]"):
        pliant.torch.state(model, optimizer, scheduler=scheduler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    optimizer.param_groups[0]["rule"] = len
    with pytest.raises(pliant.Error, match="'rule' of group 0 of the optimizer is a builtin_function_or_method; a state without pickle holds"):
        state.save()


def test_what_is_no_optimizer_or_no_scheduler_is_refused_with_what_to_give():
    model = model_of()
    parts = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
    with pytest.raises(TypeError, match="the optimizer is a list: .* one optimizer .* group"):
        pliant.torch.state(model, parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for scheduler, kind, said in [(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), pliant.Error, r"ReduceLROnPlateau\.step needs metrics, .*before commit"),
                                  ([schedulers(optimizer)["steps"]], TypeError, "the scheduler is a list: .*ChainedScheduler")]:
        with pytest.raises(kind, match=said):
            pliant.torch.state(model, optimizer, scheduler=scheduler)
    with pytest.raises(TypeError, match=r"the model is a list: a torch.nn.Module is needed"):
        pliant.torch.state([nn.Linear(1, 1)])


@pytest.mark.parametrize(("blob", "said"), [(b"", "none of pliant.torch"), (b"[]", "none of pliant.torch"), (b'{"format":9}', "has format 9")])
def test_bytes_that_are_no_state_are_refused(blob, said):
    model = model_of()
    with pytest.raises(pliant.Error, match=said):
        pliant.torch.state(model, torch.optim.SGD(model.parameters(), lr=0.1)).load(blob)


def test_the_state_of_another_program_is_refused_with_what_differs():
    def saved(kind, scheduled=False, groups=1):
        model = model_of()
        parameters = [{"params": [one]} for one in model.parameters()] if groups > 1 else model.parameters()
        optimizer = kind(parameters, lr=0.1)
        return pliant.torch.state(model, optimizer, scheduler=schedulers(optimizer)["steps"] if scheduled else None)

    state = saved(torch.optim.Adam)
    for other, said in ((saved(torch.optim.SGD), "is of SGD, and this program has Adam"), (saved(torch.optim.Adam, True), "has a scheduler"),
                        (saved(torch.optim.Adam, groups=4), "has 4 parameter groups")):
        with pytest.raises(pliant.Error, match=said):
            state.load(other.save())


def test_the_rates_of_a_step_are_those_of_its_batch_and_are_taken_back_after_it():
    model = model_of()
    optimizer = torch.optim.AdamW([{"params": [model[0].weight], "lr": 0.5}, {"params": [model[2].weight]}], lr=0.1, betas=(0.9, 0.99))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    state = pliant.torch.state(model, optimizer, scheduler=scheduler)
    for index in range(3):
        base = 1 / (index + 1)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.5 * base, 0.1 * base])
        step = Step(state.gradient_size, scaling={"one_minus_beta1": 2.0})
        step.scaling = lambda base_lr, step=step: types.SimpleNamespace(**{**SCALING, "learning_rate": 3 * base_lr, "one_minus_beta1": 2.0})
        state.begin(step)
        state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
        commit(state, step)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1.5 * base, 0.3 * base])
        assert optimizer.param_groups[0]["betas"] == (pytest.approx(0.8), 0.99)
        optimizer.step()
        state.save()
        assert optimizer.param_groups[1]["betas"] == (0.9, 0.99)


def program_of_groups(*names, rate=0.1):
    model = model_of()
    optimizer = torch.optim.SGD([{"params": [one], "lr": rate, "name": name} for one, name in zip(model.parameters(), names)], lr=0.1)
    return model, optimizer


def test_groups_have_the_rates_that_the_config_has_by_name_and_a_scheduler_moves_them():
    model, optimizer = program_of_groups("body", "head", rate=0.3)
    optimizer.add_param_group({"params": [model[2].weight], "lr": 0.2})
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    state = pliant.torch.state(model, optimizer, scheduler=scheduler)
    state.attach(session(groups={"head": 0.5, "body": 0.7}))
    for index in range(2):
        take_step(state, lambda row: model(torch.ones(1, 4)).sum(), index=index)
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.7 / (index + 1), 0.5 / (index + 1), 0.2 / (index + 1)])
        optimizer.step()
    state.save()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1, 0.1, 0.2 / 3])  # the program's own


def test_groups_that_config_and_optimizer_do_not_share_are_refused_by_name():
    for names, groups, said in ((("body",), {"head": 1.0}, "group 0 of the optimizer has the name 'body', and [lr.groups] has no such group; it has head"),
                                (("head",), {"head": 1.0, "tail": 2.0}, "[lr.groups] has tail, and no group of the optimizer has that name: they are head")):
        state = pliant.torch.state(*program_of_groups(*names))
        with pytest.raises(pliant.Error) as caught:
            state.attach(session(groups=groups))
        assert said in caught.value.message and (caught.value.status, caught.value.exit_code) == (pliant.Status.NOT_FOUND, 2)
    model = model_of()
    state = pliant.torch.state(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(pliant.Error, match='no group of the optimizer has that name: give groups a "name"'):
        state.attach(session(groups={"head": 1.0}))
    state = pliant.torch.state(*program_of_groups("head", rate=0.0))
    with pytest.raises(pliant.Error, match="begins with lr = 0"):
        state.attach(session(groups={"head": 1.0}))


def test_rates_that_the_ledger_does_not_show_are_logged(caplog):
    def begun(optimizer, scheduler=None, groups=None):
        caplog.clear()
        pliant.torch.state(model, optimizer, scheduler=scheduler).attach(session(base_lr=0.1, groups=groups))
        return caplog.text

    model = model_of()
    sgd = torch.optim.SGD
    said = begun(sgd(model.parameters(), lr=0.3))
    assert "the optimizer begins with a rate of 0.3, and [lr] base_lr is 0.1" in said and "lr=session.config.lr.base_lr" in said
    assert "rates of 0.3 and 0.2," in begun(sgd([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.2}], lr=0.3))
    assert begun(sgd([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.2}], lr=0.1)) == ""  # one is a multiple
    warm = sgd(model.parameters(), lr=0.1)
    assert begun(warm, torch.optim.lr_scheduler.LambdaLR(warm, lambda step: step / 10)) == ""
    assert begun(sgd([{"params": model.parameters(), "name": "body"}], lr=0.3), groups={"body": 0.7}) == ""


def test_moments_are_scaled_once_where_the_rule_says_so():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    take_step(state, lambda row: model(torch.ones(1, 4)).sum())
    optimizer.step()
    before = optimizer.state[model[0].weight]["exp_avg"].clone()
    take_step(state, lambda row: model(torch.ones(1, 4)).sum(), {"momentum_buffer": 0.5}, index=1)
    assert torch.equal(optimizer.state[model[0].weight]["exp_avg"], before * 0.5)


def test_a_rate_that_is_changed_between_commit_and_the_next_step_is_refused():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    take_step(state, lambda row: model(torch.ones(1, 4)).sum())
    optimizer.step()
    scheduler.step()
    with pytest.raises(pliant.Error, match=r"'lr' of group 0 of the optimizer was changed after commit"):
        state.begin(Step(state.gradient_size, index=1))


def test_a_tensor_that_has_moved_since_the_session_asked_is_refused_by_name():
    model = model_of()
    model.register_buffer("scale", torch.ones(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = pliant.torch.state(model, optimizer)

    def move():
        optimizer.state[model[0].weight]["exp_avg"] = torch.zeros(3, 4)

    def replace():
        model.scale = torch.zeros(2)

    for change, said in ((lambda: optimizer.load_state_dict(optimizer.state_dict()), r"the optimizer's state of 0\.weight is another one"),
                         (move, r"optimizer\.0\.weight\.exp_avg lies elsewhere"), (replace, r"model\.scale lies elsewhere")):
        state.arrays()
        state.save()
        change()
        with pytest.raises(pliant.Error, match=said + ".*renew_arrays"):
            state.save()
    state.arrays()
    state.save()


@pytest.mark.parametrize("deterministic", [True, False])
def test_what_a_forward_draws_depends_on_the_job_the_step_and_the_row_alone(deterministic):
    def drawn(rows, seed=7, index=0):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5))
        state = pliant.torch.state(model)
        state.attach(session(deterministic, seed))
        step = Step(state.gradient_size, tuple(range(row, row + 1) for row in rows), index)
        state.begin(step)
        seen = []
        for _ in rows:
            seen.append(model(torch.ones(1, 1)) * random.random() * numpy.random.rand())
            torch.rand(3)  # what one rank draws besides
            state.backward(step, step.pending, seen[-1].sum())
        commit(state, step)
        after.add((torch.rand(()).item(), random.random(), numpy.random.rand()))
        return [one.detach().tolist() for one in seen]

    after = set()

    alone = drawn(range(4))
    assert alone == drawn(range(2)) + drawn(range(2, 4))
    assert len(after) == 1  # what ranks draw for an update is alike
    assert len({str(one) for one in alone}) == 4
    assert drawn(range(4), seed=8) != alone and drawn(range(4), index=1) != alone


def test_deterministic_mode_computes_on_one_thread_and_refuses_more():
    torch.set_num_threads(2)
    model = model_of()
    state = pliant.torch.state(model)
    state.attach(session(True))
    assert torch.get_num_threads() == 1
    step = Step(state.gradient_size)
    state.begin(step)
    torch.set_num_threads(2)
    with pytest.raises(pliant.Error, match="torch computes with 2 threads"):
        state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
    assert step.added == 0


@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm1d(4), (3, 4)), (nn.BatchNorm2d(4, momentum=None), (3, 4, 2, 2)),
                                              (nn.InstanceNorm1d(4, track_running_stats=True), (3, 4, 2))], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_buffer_that_a_forward_changes_is_refused_by_name(layer, shape, deterministic):
    model = nn.Sequential(nn.Dropout(0.0), layer)
    layer.train()
    state = pliant.torch.state(model)
    state.attach(session(deterministic))
    step = Step(state.gradient_size or 8)
    parameter = nn.Parameter(torch.ones(()))  # so that there is something to go backward through
    state.begin(step)
    with pytest.raises(pliant.Error, match=r"the forward changes buffer 1\.\w+ of (Batch|Instance)Norm\dd"):
        state.backward(step, step.pending, model(parameter * torch.randn(shape)).sum())
    assert step.added == 0
    layer.eval()
    state.begin(step)
    loss = model(parameter * torch.randn(shape)).sum()
    state._buffers.check()
    assert loss.requires_grad


@pytest.mark.parametrize("persistent", [True, False])
def test_a_buffer_that_the_first_forward_adds_is_refused_by_name_unless_it_is_not_kept(persistent):
    class Scaled(nn.Linear):
        def forward(self, x):
            if not hasattr(self, "scale"):
                self.register_buffer("scale", x.detach().std(), persistent=persistent)
            return super().forward(x / self.scale)

    model = model_of(1, Scaled(4, 3), nn.Tanh())
    state = pliant.torch.state(model)
    before = [name for name, *_ in state.arrays()]
    if persistent:
        with pytest.raises(pliant.Error, match=r"the forward adds buffer 0\.scale of Scaled.*persistent=False"):
            take_step(state, lambda row: model(torch.randn(2, 4)).sum())
    else:
        take_step(state, lambda row: model(torch.randn(2, 4)).sum())
        assert [name for name, *_ in state.arrays()] == before


def test_an_update_that_is_left_out_is_logged_once_for_gradients_are_not_added_up_over_steps(caplog):
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        model = model_of()
        optimizer = kind(model.parameters(), lr=0.1)
        state = pliant.torch.state(model, optimizer)
        for index in range(6):
            caplog.clear()
            take_step(state, lambda row: model(torch.ones(1, 4)).sum(), index=index)
            if index % 2 == 0:
                optimizer.step()
            assert len(caplog.messages) == (index == 2)
            if index == 2:
                assert "step 1 was committed" in caplog.text and "max_train_batch_size" in caplog.text


def test_parameters_that_the_optimizer_does_not_have_are_logged(caplog):
    model = model_of()
    pliant.torch.state(model)
    pliant.torch.state(model, torch.optim.Adam(model.parameters()))
    assert caplog.messages == []
    pliant.torch.state(model, torch.optim.Adam(model[0].parameters()))
    assert len(caplog.messages) == 1 and "2.weight, 2.bias need a gradient and are in no group of the optimizer" in caplog.text
    model[2].requires_grad_(False)
    pliant.torch.state(model, torch.optim.Adam(model[0].parameters()))
    assert len(caplog.messages) == 1


def test_deterministic_mode_on_cuda_says_all_that_torch_must_be_told(monkeypatch):
    require = pliant.torch._deterministic.require_deterministic_algorithms
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 0)
    require(cpu)
    told = "torch.use_deterministic_algorithms(True)"
    fast, workspace = "torch.backends.cudnn.benchmark = False", "CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment"
    try:
        for tell, lacking in [
            (lambda: None, [told, fast, workspace]),
            (lambda: torch.use_deterministic_algorithms(True, warn_only=True), [told, fast, workspace]),
            (lambda: torch.use_deterministic_algorithms(True), [fast, workspace]),
            (lambda: monkeypatch.setattr(torch.backends.cudnn, "benchmark", False), [workspace]),
            (lambda: monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8"), []),
        ]:
            tell()
            if not lacking:
                require(cuda)
                continue
            with pytest.raises(pliant.Error, match="deterministic mode on CUDA needs") as raised:
                require(cuda)
            assert [what for what in (told, fast, workspace) if what in raised.value.message] == lacking
    finally:
        torch.use_deterministic_algorithms(False)


class CompiledFunction(torch.autograd.Function):
    """Under the name that torch.compile gives."""

    @staticmethod
    def forward(context, value):
        return value * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def test_compiled_code_is_refused_in_deterministic_mode_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo", torch)  # loaded by whoever compiles

    class OptimizedModule(nn.Module):
        """As torch.compile wraps a model."""

        def __init__(self, inside):
            super().__init__()
            self.inside = inside

    wrapped = nn.Sequential(OptimizedModule(nn.Linear(1, 1)))
    with pytest.raises(pliant.Error, match="module 0 is compiled"):
        pliant.torch.state(wrapped).attach(session(True))
    pliant.torch.state(wrapped).attach(session(False))
    for deterministic in (True, False):
        model = model_of()
        state = pliant.torch.state(model)
        state.attach(session(deterministic))
        step = Step(state.gradient_size, (range(0, 1), range(1, 2)))
        state.begin(step)
        state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
        loss = CompiledFunction.apply(model(torch.ones(1, 4))).sum()
        if deterministic:
            with pytest.raises(pliant.Error, match="a function that the loss is computed with is compiled"):
                state.backward(step, step.pending, loss)
        else:
            state.backward(step, step.pending, loss)


def test_a_loss_that_is_none_is_refused_and_an_error_in_backward_leaves_the_step_open():
    model = model_of()
    state = pliant.torch.state(model)
    step = Step(state.gradient_size)
    state.begin(step)
    for loss in (1.0, model(torch.ones(1, 4))):
        with pytest.raises(pliant.Error, match="a tensor of one element"):
            state.backward(step, step.pending, loss)
    with pytest.raises(RuntimeError):
        state.backward(step, step.pending, torch.zeros(()))  # depends on nothing
    assert step.added == 0
    state.begin(step)
    state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
    assert step.added == 1


@pytest.mark.parametrize("fails", ["within backward", "behind it"])
def test_a_micro_batch_whose_backward_has_failed_is_computed_again_from_its_beginning(fails):
    def computed(fails):
        model = model_of(1, nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
        model.register_buffer("seen", torch.zeros(1))
        state = pliant.torch.state(model)
        state.attach(session(deterministic=True))
        step = Step(state.gradient_size)
        state.begin(step)
        if fails == "within backward":
            hook = model[0].weight.register_hook(lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
            hook.remove()
        elif fails:
            model.seen += 1
            with pytest.raises(pliant.Error, match="the forward changes buffer seen"):
                state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
        assert step.added == 0
        state.backward(step, step.pending, model(torch.ones(1, 4)).sum())
        return step.sum

    numpy.testing.assert_array_equal(computed(fails), computed(""))


def test_a_loss_that_is_not_finite_is_handed_over_as_it_is():
    model = model_of()
    state = pliant.torch.state(model)
    step = Step(state.gradient_size)
    state.begin(step)
    state.backward(step, step.pending, (model(torch.ones(1, 4)) * float("nan")).sum())
    assert numpy.isnan(step.loss) and numpy.isnan(step.sum).any()


def test_clipping_scales_the_mean_gradient_and_gives_the_norm_that_it_had():
    model = model_of()
    model[2].bias.requires_grad_(False)
    state = pliant.torch.state(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(pliant.Error, match="comes after a commit"):
        state.clip_grad_norm_(1.0)
    data = torch.randn(1, 4)
    step = take_step(state, lambda row: 10 * model(data).sum())
    mean = torch.from_numpy(step.sum.copy())
    norm = state.clip_grad_norm_(0.5)
    assert norm == pytest.approx(mean.norm().item()) and norm > 0.5
    gradient = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    torch.testing.assert_close(gradient, mean * (0.5 / norm))
    with pytest.raises(pliant.Error, match="comes after a commit"):
        state.clip_grad_norm_(1.0)
    take_step(state, lambda row: model(data).sum())
    with pytest.raises(pliant.Error, match="max_norm is -1"):
        state.clip_grad_norm_(-1)
