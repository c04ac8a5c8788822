"""a model of PyTorch is cut over ranks: gathered around its units, forward, backward and anew, and what goes wrong is said by name."""
import collections
import contextlib
import copy
import dataclasses
import math
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pliant
import pliant.elastic
import pliant.torch
import sharded_core
from sharded_core import attempt, check_gradients, one_rank, sharded, take_step  # noqa: F401: a fixture of every test


class Block(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, scale=1.0):
        return x + scale * self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    """Embedding and output share a weight, and the root uses it outside of the module that has it."""

    def __init__(self, layers=2, width=6, recompute=None, **options):
        super().__init__()
        self.embedding = nn.Embedding(11, width, **options)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.recompute = recompute

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            if self.recompute is None or not torch.is_grad_enabled():
                x = block(x, scale=0.5)
            else:
                x = checkpoint(block, x, 0.5, use_reentrant=self.recompute == "reentrant")
        return nn.functional.cross_entropy((self.norm(x) @ self.embedding.weight.t())[:-1], tokens[1:], reduction="sum")


TOKENS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])


def made(seed=1, kind=Model, *arguments, **options):
    torch.manual_seed(seed)
    return kind(*arguments, **options)


def test_units_are_whole_around_their_forward_and_their_backward_alone_and_gradients_are_those_of_the_plain_model():
    plain, model = made(), made()
    state, core = sharded(model)
    assert core.modules == [("Model", [0, 13, 14]), ("blocks.0", [1, 2, 3, 4, 5, 6]), ("blocks.1", [7, 8, 9, 10, 11, 12])]
    take_step(state, [lambda: model(TOKENS)])
    assert core.visits == ["forward Model", "forward blocks.0", "forward blocks.1", "backward Model", "backward blocks.1", "backward blocks.0"]
    check_gradients(model, core, plain, plain(TOKENS))
    assert isinstance(model, Model) and repr(model) == repr(plain)
    assert [(type(one).__module__, type(one).__qualname__) for one in model.modules()] == [(type(one).__module__, type(one).__qualname__)
                                                                                           for one in plain.modules()]
    assert [one.shape for one in model.parameters()] == [
        one.shape for one in plain.parameters()]


@pytest.mark.parametrize("kind", ["reentrant", "saved"])
def test_what_is_recomputed_in_backward_is_gathered_for_it_once(kind):
    plain, model = made(), made(1, Model, recompute=kind)
    state, core = sharded(model)
    take_step(state, [lambda: model(TOKENS)])
    check_gradients(model, core, plain, plain(TOKENS))
    assert sorted(core.visits) == sorted(["forward Model", "forward blocks.0", "forward blocks.1", "backward Model", "backward blocks.1", "backward blocks.0"])


@pytest.mark.parametrize("reduce_dtype", ["float32", "bfloat16"])
def test_what_is_whole_may_be_bf16_and_gradients_are_added_in_the_type_that_the_config_says(monkeypatch, reduce_dtype):
    monkeypatch.setattr(sharded_core.ShardedModel, "compute_dtype", "bfloat16")
    monkeypatch.setattr(sharded_core.ShardedModel, "reduce_dtype", reduce_dtype)
    plain, model = made().bfloat16(), made()
    state, core = sharded(model)
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}
    take_step(state, [lambda: model(TOKENS)])
    check_gradients(model, core, plain, plain(TOKENS))
    assert core.weights[0].dtype == torch.float32 and not torch.equal(core.weights[0], core.weights[0].bfloat16().float())


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_a_model_of_a_type_that_is_not_kept_is_logged(monkeypatch, caplog, compute_dtype):
    monkeypatch.setattr(sharded_core.ShardedModel, "compute_dtype", compute_dtype)
    sharded(made())
    assert caplog.messages == []
    model = made().bfloat16()
    sharded(model)
    assert {str(one.dtype) for one in model.parameters()} == {f"torch.{compute_dtype}"}
    said = [] if compute_dtype == "bfloat16" else ["parameters of bfloat16 are kept in float32 and computed with in float32"]
    assert [one.partition(" once")[0] for one in caplog.messages] == said


class Twice(nn.Module):
    """A segment of two units is recomputed as one, and one unit is used twice."""

    def __init__(self, kind=None):
        super().__init__()
        self.blocks, self.kind = nn.ModuleList([Block(), Block()]), kind

    def segment(self, x):
        return self.blocks[0](self.blocks[1](self.blocks[0](x)))

    def forward(self, x):
        x = self.segment(x) if self.kind is None or not torch.is_grad_enabled() else checkpoint(self.segment, x, use_reentrant=self.kind == "reentrant")
        return self.segment(x).square().sum()


@pytest.mark.parametrize("kind", [None, "reentrant", "saved"])
def test_units_that_are_used_twice_and_recomputed_together(kind):
    x = torch.randn(3, 6)
    plain, model = made(1, Twice), made(1, Twice, kind)
    state, core = sharded(model)
    leaf = x.clone().requires_grad_()
    take_step(state, [lambda: model(leaf)])
    for name, expected in zip(core.names, torch.autograd.grad(plain(x), list(plain.parameters()))):
        torch.testing.assert_close(core.sums[core.names.index(name)], expected.flatten())
    assert not core.whole and not core.entered


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
        self.layers[3].weight = self.layers[0].weight
        self.layers[2].weight.requires_grad_(False)
        self.layers[2].bias.requires_grad_(False)

    def forward(self, x):
        return self.layers(x).square().sum()


def test_shared_and_frozen_parameters():
    x = torch.randn(2, 4)
    plain, model = made(1, Tied), made(1, Tied)
    state, core = sharded(model)
    assert core.names == ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"] and core.frozen == [False, False, True, True]
    assert core.modules[1:] == [("layers.0", [0, 1]), ("layers.2", [2, 3]), ("layers.3", [0])]
    take_step(state, [lambda: model(x)])
    check_gradients(model, core, plain, plain(x))


class Borrows(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        return (self.blocks[1](self.blocks[0](x)) @ self.blocks[0].up.weight.t()).square().sum()


def test_a_parameter_that_is_used_outside_of_its_unit_is_named_and_external_helps():
    x = torch.randn(2, 6)
    model = made(1, Borrows)
    state, core = sharded(model)
    with pytest.raises(pliant.Error, match=r"parameter blocks.0.up.weight is used within Borrows, and is whole only within blocks.0: .*external="):
        take_step(state, [lambda: model(x)])
    plain, model = made(1, Borrows), made(1, Borrows)
    state, core = sharded(model, external=["blocks.0.up.weight"])
    assert core.modules[0][1] == [core.names.index("blocks.0.up.weight")]
    take_step(state, [lambda: model(x)])
    check_gradients(model, core, plain, plain(x))


class Penalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.scale = nn.ModuleList([Block(), Block()]), nn.Parameter(torch.ones(6))

    def forward(self, x):
        return (self.scale * self.blocks[1](self.blocks[0](x))).square().sum()


def penalised(loss, model):
    return loss + 0.5 * model.blocks[0].up.weight.square().sum() + model.scale.square().sum()


def take_penalised(state, model, x, around="nothing", term=penalised):
    """A step whose loss has a term of parameters outside of the model's forward, which are whole by hand around something."""
    def whole(name):
        return state.whole("blocks.0.up.weight", "scale") if around == name else contextlib.nullcontext()

    step = sharded_core.Step()
    state.begin(step)
    with attempt(state, step), whole("all"):
        with whole("forward"):
            loss = model(x)
            with whole("term"):
                loss = term(loss, model)
        state.backward(step, step.pending, loss)


@pytest.mark.parametrize("external", [[], ["blocks.0.up.weight"]])
def test_a_parameter_that_is_used_outside_of_the_models_forward_is_whole_by_hand_around_all_of_the_pass(external):
    x = torch.randn(2, 6)
    plain, model = made(1, Penalised), made(1, Penalised)
    state, core = sharded(model, external=external)
    with pytest.raises(pliant.Error, match=r"parameter blocks.0.up.weight is used outside of the model's forward, and is whole only within \S+: have "
                                           r"`with state.whole\(\"blocks.0.up.weight\"\):` around the model's call, the use and step.backward"):
        take_penalised(state, model, x)
    core.give_up()
    with pytest.raises(pliant.Error, match=r"gathers nothing between the model's call and step.backward\(loss_sum\): have it around both"):
        take_penalised(state, model, x, "term")
    core.give_up()
    take_penalised(state, model, x, "all")
    for name, expected in zip(core.names, torch.autograd.grad(penalised(plain(x), plain), list(plain.parameters()))):
        torch.testing.assert_close(core.sums[core.names.index(name)], expected.flatten())
    assert not core.whole and not core.entered


def test_what_only_the_model_has_is_whole_by_hand_where_a_unit_is_called_by_itself():
    model = made(1, Penalised)
    state, _ = sharded(model, external=["blocks.0.up.weight"])
    with pytest.raises(pliant.Error, match=r"is used within blocks.0, and is whole only within Penalised: have `with state.whole"):
        with attempt(state, sharded_core.Step()), torch.no_grad():
            model.blocks[0](torch.ones(2, 6))


def test_nan_of_a_parameter_that_is_not_there_is_told_from_that_of_a_loss():
    x = torch.randn(2, 6)
    model = made(1, Penalised)
    state, core = sharded(model)
    some = [model.scale, *model.blocks[0].up.parameters()]
    for parameters, names, by_hand in [
        (some, "scale and blocks.0.up.weight and blocks.0.up.bias", r"\"scale\", \"blocks.0.up.weight\", \"blocks.0.up.bias\""),
        (list(model.parameters()), "scale, blocks.0.norm.weight, blocks.0.norm.bias and 10 more parameters", ""),
    ]:
        with pytest.raises(pliant.Error, match=rf"the loss is NaN, and depends on {names} outside of the model's forward, where none is whole: have "
                                               rf"`with state.whole\({by_hand}\):` around the model's call, the use and step.backward"):
            take_penalised(state, model, x, term=lambda loss, _, all=parameters: loss + sum(one.square().sum() for one in all))
        core.give_up()
    with pytest.raises(pliant.Error, match=r"the gradient of \S+ is NaN, the loss is not, and scale and blocks.0.up.weight are not whole any more: "):
        take_penalised(state, model, x, "forward")
    core.give_up()
    take_penalised(state, model, x, term=lambda loss, _: loss * math.nan)
    core.give_up()
    take_penalised(state, model, x * math.nan, term=lambda loss, _: loss + sum(one.square().sum() for one in some))
    core.give_up()
    model.blocks[1].up.bias.register_hook(lambda gradient: gradient * math.nan)
    take_penalised(state, model, x, "all")
    core.give_up()
    model.blocks[1].up.bias._backward_hooks.popitem()
    take_penalised(state, model, x, "forward", term=lambda loss, model: loss + float(model.scale.detach().sum()))
    assert not core.whole and all(one.isfinite().all() for one in core.sums)


@dataclasses.dataclass
class Outcome:
    hidden: torch.Tensor
    more: dict


class Odd:
    def __init__(self, hidden):
        self.hidden = hidden


class Returns(nn.Module):
    def __init__(self, wrap, unwrap):
        super().__init__()
        self.blocks, self.wrap, self.unwrap = nn.ModuleList([Inner(wrap)]), wrap, unwrap

    def forward(self, x):
        return self.unwrap(self.blocks[0](x)).square().sum()


class Inner(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.linear, self.wrap = nn.Linear(4, 4), wrap

    def forward(self, x):
        return self.wrap(self.linear(x))


FORMS = {
    "tuple": (lambda x: (None, [x]), lambda y: y[1][0]),
    "mapping": (lambda x: collections.OrderedDict(h=x), lambda y: y["h"]),
    "dataclass": (lambda x: Outcome(x, {}), lambda y: y.hidden),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_unit_may_return_tensors_in_what_holds_them(form):
    x = torch.randn(2, 4)
    plain, model = made(1, Returns, *FORMS[form]), made(1, Returns, *FORMS[form])
    state, core = sharded(model)
    take_step(state, [lambda: model(x)])
    check_gradients(model, core, plain, plain(x))


def test_a_unit_that_hides_its_tensors_is_named():
    model = made(1, Returns, Odd, lambda y: y.hidden)
    state, _ = sharded(model)
    with pytest.raises(pliant.Error, match=r"the gradient of blocks.0.linear.* has come, and the backward of blocks.0 did not begin: what its forward returns"):
        take_step(state, [lambda: model(torch.randn(2, 4).requires_grad_())])


def test_evaluation_and_generation_between_steps_and_within_them():
    plain, model = made(), made()
    state, core = sharded(model)
    step = sharded_core.Step((range(0, 1),))
    state.begin(step)
    with attempt(state, step):
        with torch.no_grad():
            assert torch.equal(model(TOKENS), plain(TOKENS))  # before the pass
        assert core.pass_kind is None and not core.passes
        loss = model(TOKENS)
        with torch.no_grad():
            assert torch.equal(model.blocks[0](torch.ones(2, 6)), plain.blocks[0](torch.ones(2, 6)))  # within it
        state.backward(step, step.pending, loss)
    state.committed(step, None)
    for name, expected in zip(core.names, torch.autograd.grad(plain(TOKENS), list(plain.parameters()))):
        assert torch.equal(core.sums[core.names.index(name)], expected.flatten())
    with attempt(state, step):
        for length in (3, 4, 5):
            assert torch.equal(model(TOKENS[:length]), plain(TOKENS[:length]))  # with gradients, and of no micro-batch
        with state.whole(model.embedding, model.norm), torch.no_grad():
            assert torch.equal(model.norm(model.embedding(TOKENS)), plain.norm(plain.embedding(TOKENS)))
    assert core.pass_kind is None and not core.whole


class Lost(pliant.Error):
    pass


@pytest.mark.parametrize("where", [("blocks.1", "forward"), ("blocks.0", "backward")])
def test_after_an_exception_in_a_pass_nothing_is_left_of_it_and_the_step_is_made_again(where):
    plain, model = made(), made()
    state, core = sharded(model)
    core.fails_at, core.failure = where, Lost("gone", pliant.Status.ABORTED)
    step = sharded_core.Step()
    state.begin(step)
    with pytest.raises(Lost), attempt(state, step):
        try:
            state.backward(step, step.pending, model(TOKENS))
        except Lost:
            with pytest.raises(pliant.Error, match="a pass of this attempt has ended with Lost: gone"):
                model(TOKENS)
    assert all(one.isnan().all() and one.grad is None for one in model.parameters())
    core.give_up()
    take_step(state, [lambda: model(TOKENS)])
    check_gradients(model, core, plain, plain(TOKENS))


@pytest.mark.parametrize("goes_on", ["calls the model again", "raises an error of its own", "does nothing more"])
def test_a_program_that_catches_what_a_lost_rank_has_ended_leaves_the_attempt_as_quietly(goes_on):
    model, given = made(), []
    state, core = sharded(model)
    core.fails_at, core.failure = ("blocks.1", "forward"), Lost("rank 1 is lost", pliant.Status.ABORTED)
    step = sharded_core.Step()
    step._state, step._is_lost, step._begin_attempt = state, False, lambda: None
    step._give_up = lambda _, message, __: given.append(message) or message == "rank 1 is lost"
    state.begin(step)
    with pliant.elastic.Attempt(step) as attempt:
        try:
            model(TOKENS)
        except pliant.Error as error:
            if goes_on == "calls the model again":
                model(TOKENS)
            elif goes_on == "raises an error of its own":
                raise ValueError("no loss") from error
    assert given == ["rank 1 is lost"] and not attempt.is_complete


def test_an_exception_of_the_programs_own_forward_comes_out_and_a_micro_batch_whose_backward_is_missing_is_said():
    model = made()
    state, core = sharded(model)
    step = sharded_core.Step()
    state.begin(step)
    with pytest.raises(IndexError), attempt(state, step):
        model(torch.tensor([99, 1]))
    core.give_up()
    with pytest.raises(pliant.Error, match=r"step.backward\(loss_sum\) was not: compute what needs no gradient within torch.no_grad"), attempt(state, step):
        model(TOKENS)


def test_what_computes_elsewhere_than_in_an_attempt_is_refused_by_name():
    model = made()
    state, core = sharded(model)
    step = sharded_core.Step()
    state.begin(step)
    with pytest.raises(pliant.Error, match=r"called within `with step.attempt\(\):`"):
        model(TOKENS)
    with pytest.raises(pliant.Error, match=r"computed by step.backward\(loss_sum\)"), attempt(state, step):
        model(TOKENS).backward()
    core.give_up()
    with pytest.raises(pliant.Error, match=r"comes after the model was called"), attempt(state, step):
        state.backward(step, step.pending, torch.zeros((), requires_grad=True))
    for call in (model.state_dict, state.state_dict, lambda: state.export_safetensors("x"), lambda: state.whole().__enter__()):
        with pytest.raises(pliant.Error, match=r"within `with step.attempt\(\):`"):
            call()
    with pytest.raises(pliant.Error, match="within another one"), attempt(state, step), attempt(state, step):
        pass


OPTIMIZERS = {
    "SGD": dict(lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True), "Adam": dict(lr=0.1, amsgrad=True), "AdamW": dict(lr=0.1, betas=(0.8, 0.9)),
    "NAdam": dict(lr=0.1), "RAdam": dict(lr=0.1), "Adamax": dict(lr=0.1), "RMSprop": dict(lr=0.1, momentum=0.5, centered=True), "Adadelta": dict(),
    "Adagrad": dict(lr=0.1),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_an_optimizer_over_runs_of_elements_has_the_bits_of_one_over_whole_parameters(name):
    def with_optimizer():
        model = made(1, lambda: nn.Sequential(nn.Linear(9, 33), nn.Tanh(), nn.Linear(33, 5)))
        groups = [{"params": [model[0].weight, model[2].weight], "lr": 0.03}, {"params": [model[0].bias, model[2].bias]}]
        optimizer = getattr(torch.optim, name)(groups, **OPTIMIZERS[name])
        return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))

    x = torch.randn(4, 9)
    plain, usual, scheduler = with_optimizer()
    model, optimizer, inner = with_optimizer()
    state, core = sharded(model, optimizer, scheduler=inner)
    for index in range(4):
        usual.zero_grad()
        plain(x).square().sum().backward()
        usual.step()
        scheduler.step()
        take_step(state, [lambda: model(x).square().sum()], index)
        optimizer.step()
        optimizer.zero_grad()
    for mine, theirs in zip(core.weights, plain.parameters()):
        assert torch.equal(mine, theirs.detach().flatten())
    if index == 0:
        assert not optimizer.state
    with pytest.raises(pliant.Error, match="an update comes once after each commit"):
        optimizer.step()


def test_clipping_scales_what_is_applied_and_a_forgotten_update_is_said():
    plain, model = made(), made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    state, core = sharded(model, optimizer)
    with pytest.raises(pliant.Error, match="comes after a commit"):
        state.clip_grad_norm_(1.0)
    take_step(state, [lambda: model(TOKENS)])
    gradients = torch.autograd.grad(plain(TOKENS), list(plain.parameters()))
    norm = state.clip_grad_norm_(0.25)
    assert norm == pytest.approx(torch.cat([one.flatten() for one in gradients]).norm().item(), rel=1e-5) and norm > 0.25
    optimizer.step()
    for mine, theirs, gradient in zip(core.weights, plain.parameters(), gradients):
        torch.testing.assert_close(mine, (theirs.detach() - 0.5 * 0.25 / norm * gradient).flatten())
    take_step(state, [lambda: model(TOKENS)], 1)
    torch.optim.SGD(model.parameters(), lr=0.5).step()  # another one, which finds no gradients
    with pytest.raises(pliant.Error, match=r"the update of the last committed step was not made: call step\(\) of the optimizer that .* or state.update\(\)"):
        state.before_next()
    optimizer.step()
    state.before_next()
    optimizer.param_groups.append({**optimizer.param_groups[-1], "params": [torch.nn.Parameter(torch.zeros(3))]})
    for call in (state.begin, state.before_commit):
        with pytest.raises(pliant.Error, match="the optimizer has .* parameters, and had"):
            call(sharded_core.Step(index=2))
    del optimizer.param_groups[-1]
    with pytest.raises(pliant.Error, match="max_norm is 0"):
        take_step(state, [lambda: model(TOKENS)], 2)
        state.clip_grad_norm_(0)


def test_an_update_of_the_programs_own_goes_over_what_the_rank_owns():
    plain, model = made(), made()
    state, core = sharded(model)
    take_step(state, [lambda: model(TOKENS)])
    gradients = dict(zip(core.names, torch.autograd.grad(plain(TOKENS), list(plain.parameters()))))
    seen = collections.Counter()

    def each(name, first, weights, gradient):
        assert torch.equal(gradient, gradients[name].flatten()[first : first + len(gradient)])
        seen[name] += len(weights)
        weights -= gradient

    state.update(each)
    with pytest.raises(pliant.Error, match=r"before optimizer.step\(\) or state.update\(\)"):
        state.clip_grad_norm_(1.0)
    assert seen == {name: one.numel() for name, one in gradients.items()}
    for mine, theirs, name in zip(core.weights, plain.parameters(), core.names):
        assert torch.equal(mine, (theirs.detach() - gradients[name]).flatten())
    take_step(state, [lambda: model(TOKENS)], 1)
    scale, whole = 0.25 / state.clip_grad_norm_(0.25), {name: one.clone() for name, one in zip(core.names, core.sums)}
    state.update(lambda name, first, _, gradient: torch.testing.assert_close(gradient, whole[name][first : first + len(gradient)] * scale))


def test_what_is_compared_between_the_ranks_says_by_what_the_gradient_was_scaled():
    found = []
    for max_norm in (None, 0.25, 0.5, 0.25):
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state, _ = sharded(model, optimizer)
        take_step(state, [lambda: model(TOKENS)])
        if max_norm is not None:
            state.clip_grad_norm_(max_norm)
        optimizer.step()
        found.append(state.save())
    assert found[1] == found[3] and len(set(found)) == 3
    state.load(found[2])
    assert state.save() == found[2]


@pytest.mark.parametrize("own", [True, False])
def test_after_an_exception_in_an_update_no_further_step_is_made(own, monkeypatch):
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state, _ = sharded(model, optimizer)
    take_step(state, [lambda: model(TOKENS)])
    left = [3]

    def fails(*_):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    if not own:
        monkeypatch.setattr(torch.optim.SGD, "step", fails)
    for words in ("", "KeyboardInterrupt has ended the update .* this worker does not hold its share", "KeyboardInterrupt has ended the update"):
        with pytest.raises(pliant.Error if words else KeyboardInterrupt, match=words):
            state.update(fails) if own else optimizer.step()
    with pytest.raises(pliant.Error, match="KeyboardInterrupt has ended the update .* end the process, another one takes its place"):
        state.before_next()


def test_whole_and_sharded_state_dicts_and_values_that_are_loaded():
    plain, other, model = made(), made(2), made()
    state, core = sharded(model, torch.optim.AdamW(model.parameters()))
    step = sharded_core.Step()
    with attempt(state, step):
        saved = state.state_dict()
        assert list(saved) == list(plain.state_dict()) and all(torch.equal(saved[name], one) for name, one in plain.state_dict().items())
        assert list(model.blocks[1].state_dict(prefix="x.")) == list(plain.blocks[1].state_dict(prefix="x."))
    parts = state.sharded_state_dict()
    assert set(parts) == {one for name in core.names for one in (name, f"{name}.exp_avg", f"{name}.exp_avg_sq")}
    for name, one in plain.named_parameters():
        assert [first for first, _ in parts[name]] == list(range(0, one.numel(), sharded_core.RANGE))
        assert torch.equal(torch.cat([part for _, part in parts[name]]), one.detach().flatten())
    state._session._state = state  # the job has begun
    with attempt(state, step):
        model.load_state_dict(other.state_dict())
        with state.whole("norm.weight", writeback=True), torch.no_grad():
            model.norm.weight.mul_(2)
        with torch.no_grad():
            other.norm.weight.mul_(2)
            assert torch.equal(model(TOKENS), other(TOKENS))
        with pytest.raises(RuntimeError, match="size mismatch for norm.weight"):
            model.load_state_dict({**other.state_dict(), "norm.weight": torch.zeros(3)})
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict({})


def test_an_optimizer_whose_state_is_cut_gives_and_takes_none_and_its_groups_and_schedulers_are_as_usual():
    model, other = made(), made(2)
    optimizer, usual = (torch.optim.AdamW(one.parameters(), lr=0.5) for one in (model, other))
    state, _ = sharded(model, optimizer)
    for call, said in [
        (optimizer.state_dict, r"is cut over the ranks: state.sharded_state_dict\(\) has what .*load_snapshot\(file, model, optimizer\)"),
        (lambda: optimizer.load_state_dict(usual.state_dict()), r"is cut over the ranks, and load_state_dict would change nothing: a job goes on"),
        (lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]}), r"groups are settled when pliant.torch.shard is called: add"),
    ]:
        with pytest.raises(pliant.Error, match=said):
            call()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    take_step(state, [lambda: model(TOKENS)])
    optimizer.step()
    state.save()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05) and scheduler.state_dict()["last_epoch"] == 1
    optimizer.param_groups[0]["weight_decay"] = 0.125
    take_step(state, [lambda: model(TOKENS)], 1)
    optimizer.step()
    optimizer.zero_grad()


def test_values_that_are_loaded_before_the_job_begins_are_its_first():
    other, model = made(2), made()
    state = pliant.torch.shard(model, session=sharded_core.session())
    model.load_state_dict(other.state_dict())
    core = sharded_core.ShardedModel.made
    core.start()
    assert all(torch.equal(mine, theirs.detach().flatten()) for mine, theirs in zip(core.weights, other.parameters()))
    core.weights = []
    core.start()  # a job that begins anew
    assert all(torch.equal(mine, theirs.detach().flatten()) for mine, theirs in zip(core.weights, other.parameters()))
    assert state.memory["gathered_most"] == 5


def test_a_model_on_meta_has_its_first_values_from_its_modules_or_from_a_function():
    def on_meta():
        return nn.Sequential(nn.Linear(3, 4, device="meta"), nn.LayerNorm(4, device="meta"))

    model = on_meta()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = torch.random.get_rng_state()
    state, core = sharded(model, optimizer)
    assert torch.equal(torch.random.get_rng_state(), before)
    first = [one.clone() for one in core.weights]
    assert 0 < first[0].abs().max() < 1 and torch.equal(first[2], torch.ones(4)) and not first[0][:4].equal(first[1])
    core.weights = []
    core.start()
    assert all(torch.equal(one, again) for one, again in zip(first, core.weights))
    take_step(state, [lambda: model(torch.ones(2, 3)).square().sum()])
    optimizer.step()
    assert not torch.equal(core.weights[0], first[0])
    model = on_meta()
    _, core = sharded(model, initialise=lambda name, tensor: tensor.fill_(len(name)))
    assert [one[0].item() for one in core.weights] == [len(name) for name in core.names]
    model = on_meta()
    model.scale = nn.Parameter(torch.empty(2, device="meta"))
    with pytest.raises(pliant.Error, match="parameter scale is on the device meta, and Sequential has no reset_parameters"):
        sharded(model)


def test_micro_batches_without_rows_make_a_pass_that_counts_nothing_or_repeat_one_where_the_program_makes_none():
    model = made()
    state, core = sharded(model)
    step = sharded_core.Step((range(0, 0),))
    with pytest.raises(pliant.Error, match="has no rows for this rank, which has made no pass that it could repeat: take batches from"):
        state.finish(step)
    state.begin(step)
    with attempt(state, step):
        state.backward(step, step.pending, model(TOKENS))
    assert core.passes == [range(0, 0)] and step.losses == [0.0]
    step = sharded_core.Step((range(1, 2), range(2, 2), range(2, 2)))
    state.begin(step)
    with attempt(state, step):
        for _ in range(2):
            state.backward(step, step.pending, model(TOKENS))
    assert len(core.passes) == 3
    state.finish(step)
    assert step.losses[0] > 0 and step.losses[1:] == [0.0, 0.0] and len(core.passes) == 4


def test_what_is_saved_beside_the_shards_is_loaded_and_another_programs_is_refused():
    def make(kind=torch.optim.AdamW, rows=3):
        model = made()
        model.register_buffer("table", torch.arange(rows, dtype=torch.int16))
        optimizer = kind(model.parameters(), lr=0.5)
        return model, optimizer, sharded(model, optimizer, scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1))[0]

    model, optimizer, state = make()
    take_step(state, [lambda: model(TOKENS)])
    optimizer.step()
    state.begin(sharded_core.Step(index=1))
    model.table.add_(5)
    blob = state.save()
    assert blob == state.save()
    model, optimizer, again = make()
    again.load(blob)
    assert again.save() == blob and model.table.tolist() == [5, 6, 7] and optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    assert again._update.numbers == [{"step": 1.0}] and not again._owes_update
    with pytest.raises(pliant.Error, match="is of AdamW, and this program has SGD"):
        make(torch.optim.SGD)[2].load(blob)
    with pytest.raises(pliant.Error, match="other buffers"):
        make(rows=4)[2].load(blob)
    model.register_buffer("later", torch.ones(3), persistent=False)  # a cache that a forward has made
    assert again.save() == blob
    again.load(blob)
    with pytest.raises(pliant.Error, match="damaged|none of pliant.torch"):
        again.load(blob[:-1])
    with pytest.raises(pliant.Error, match="none of pliant.torch"):
        again.load(b"x")


def test_models_and_choices_that_cannot_be_are_refused_before_anything_is_changed():
    model = made()
    kept = [one.detach().clone() for one in model.parameters()]

    class Own(torch.optim.SGD):
        pass

    stepped = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stepped.state[model.norm.weight] = {"momentum_buffer": torch.ones(6)}
    for options, kind, said in [
        (dict(units="blocks"), TypeError, "units is a str"),
        (dict(units=[3]), TypeError, "a unit is a int"),
        (dict(units=["nowhere"]), pliant.Error, "unit nowhere is no module"),
        (dict(units=[nn.Conv2d]), pliant.Error, "is no module of the model"),
        (dict(external="norm"), TypeError, "named by a str"),
        (dict(external=["nowhere"]), pliant.Error, "nowhere is no parameter and no module"),
        (dict(optimizer=Own(model.parameters(), lr=0.1)), pliant.Error, r"Own is not known to update each element by itself.*state.update\(\)"),
        (dict(optimizer=stepped), pliant.Error, "has state already"),
        (dict(optimizer=torch.optim.SGD(made().parameters(), lr=0.1)), pliant.Error, "none of the model"),
        (dict(optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5, dampening=0.5)), pliant.Error, "dampening"),
        (dict(scheduler=object()), pliant.Error, "a scheduler without its optimizer"),
        (dict(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), scheduler=torch.optim.lr_scheduler.StepLR(stepped, 3)), pliant.Error,
         "StepLR moves the rates of another SGD than the one that is given"),
        (dict(initialise="zeros"), TypeError, "initialise is a str: a function of a name and a tensor is needed"),
        (dict(session=None), TypeError, "the session is a NoneType: a pliant.elastic.Session is needed"),
    ]:
        with pytest.raises(kind, match=said):
            pliant.torch.shard(model, **{"session": sharded_core.session(), **options})
    assert all(torch.equal(one, before) for one, before in zip(model.parameters(), kept)) and type(model) is Model
    for wrong, kind, said in [
        (3, TypeError, "the model is a int"),
        (nn.Linear(2, 2).double(), pliant.Error, "parameter weight is of float64"),
        (nn.LazyLinear(2), pliant.Error, "has no shape yet"),
    ]:
        with pytest.raises(kind, match=said):
            pliant.torch.shard(wrong, session=sharded_core.session())
    state, _ = sharded(model)
    with pytest.raises(pliant.Error, match="was cut over the ranks before"):
        sharded(model)
    with pytest.raises(pliant.Error, match="another session"):
        state.attach(sharded_core.session())
    state._session.accelerator = "cuda"
    with pytest.raises(pliant.Error, match="over the memory of the CPU so far"):
        state.attach(state._session)
    for call in (lambda: copy.deepcopy(model), lambda: pickle.dumps(model)):
        with pytest.raises(pliant.Error, match=r"state.state_dict\(\)"):
            call()


def test_units_may_be_named_in_several_ways():
    for units in (["blocks.0", "blocks.1"], Block, [Block], lambda module: isinstance(module, Block)):
        _, core = sharded(made(), units=units)
        assert [name for name, _ in core.modules] == ["Model", "blocks.0", "blocks.1"]
    model = made()
    _, core = sharded(model, units=[model.blocks[1].up])
    assert [name for name, _ in core.modules] == ["Model", "blocks.1.up"]
    _, core = sharded(made(), units=[])
    assert [name for name, _ in core.modules] == ["Model"] and len(core.modules[0][1]) == len(core.names)


class Levels(nn.Module):
    """As a U-Net has them: lists in lists, in mappings and in modules that only hold others, and one list that is called."""

    class Called(nn.ModuleList):
        def forward(self, x):
            for one in self:
                x = one(x)
            return x

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())]), self.Called([nn.Linear(4, 4)])])
        level = nn.Module()
        level.blocks, level.scale = nn.ModuleList([nn.Linear(4, 4)]), nn.Parameter(torch.ones(4))
        self.up = nn.ModuleList([level, nn.ModuleDict({"a": nn.Linear(4, 4)}), nn.ParameterList([nn.Parameter(torch.ones(4))])])

    def forward(self, x):
        for one in (*self.down[0], self.down[1], *self.up[0].blocks, *self.up[1].values()):
            x = one(x)
        return (x * self.up[0].scale + self.up[2][0]).square().sum()


def test_modules_that_are_never_called_are_no_units_but_those_in_them_are():
    plain, model = made(1, Levels), made(1, Levels)
    state, core = sharded(model)
    assert [name for name, _ in core.modules] == ["Levels", "down.0.0", "down.0.1", "down.1", "up.0.blocks.0", "up.1.a"]
    assert [core.names[number] for number in core.modules[0][1]] == ["up.0.scale", "up.2.0"]
    take_step(state, [lambda: model(torch.ones(2, 4))])
    check_gradients(model, core, plain, plain(torch.ones(2, 4)))


CHANGES = {
    "written": (lambda model: model.norm.weight.detach().fill_(math.nan), "parameter norm.weight was written while it was cut over the ranks"),
    "converted": (lambda model: model.norm.double(), "parameter norm.weight was converted or moved"),
    "frozen": (lambda model: model.norm.weight.requires_grad_(False), "parameter norm.weight was frozen after"),
    "replaced": (lambda model: setattr(model.norm, "weight", nn.Parameter(torch.ones(6))), "parameter norm.weight of the model is another one"),
    "added": (lambda model: model.norm.register_parameter("late", nn.Parameter(torch.ones(6))), "parameter norm.late was added to the model after pliant.torch.shard"),
    "added in a module": (lambda model: model.blocks.append(Block()), "parameter blocks.2.norm.weight was added to the model after pliant.torch.shard"),
}


def test_the_layout_says_of_a_cut_model_in_which_group_of_the_optimizer_a_parameter_is():
    def layout(count):
        model = made()
        weights = [*model.parameters()]
        groups = [{"params": weights[:count], "lr": 0.1}, {"params": weights[count:], "lr": 0.2}]
        state, _ = sharded(model, torch.optim.SGD(groups))
        return state.gradient_layout

    assert layout(2) == layout(2) != layout(3)
    assert layout(1).splitlines()[:2] == ["embedding.weight (11, 6) in group 0", "blocks.0.norm.weight (6,) in group 1"]


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_parameters_that_are_changed_afterwards_are_named(change):
    model = made()
    state, _ = sharded(model)
    work, said = CHANGES[change]
    work(model)
    with pytest.raises(pliant.Error, match=said):
        take_step(state, [lambda: model(TOKENS)])


def test_a_gradient_that_takes_the_place_of_ours_counts_also_a_sparse_one():
    plain, model = made(), made(1, Model, sparse=True)
    state, core = sharded(model)
    model.norm.weight.register_hook(lambda gradient: 2 * gradient)
    take_step(state, [lambda: model(TOKENS)])
    gradients = dict(zip(core.names, torch.autograd.grad(plain(TOKENS), list(plain.parameters()))))
    torch.testing.assert_close(core.sums[0], gradients["embedding.weight"].flatten())
    assert torch.equal(core.sums[core.names.index("norm.weight")], 2 * gradients["norm.weight"])


def test_parameters_without_elements_and_modules_without_parameters():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.nothing, self.layers = nn.Parameter(torch.zeros(0, 3)), nn.Sequential(nn.Tanh(), nn.Linear(2, 1), nn.Identity())

        def forward(self, x):
            return self.layers(x).sum() + self.nothing.sum()

    plain, model = made(1, Empty), made(1, Empty)
    state, core = sharded(model)
    assert [name for name, _ in core.modules] == ["Empty", "layers.1"]
    take_step(state, [lambda: model(torch.ones(3, 2))])
    check_gradients(model, core, plain, plain(torch.ones(3, 2)))
