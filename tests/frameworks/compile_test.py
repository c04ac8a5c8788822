"""What torch.compile has made is refused in deterministic mode, wherever it is, and computes in the other one."""
import os
import pathlib
import sys

import pytest
import torch

import pliant
import pliant.torch

sys.path.append(str(pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "tests/python"))
from torch_state_test import Step, model_of, plain_gradient, session, threads  # noqa: E402, F401: `threads` is a fixture of every test

BACKEND = "aot_eager"  # makes graphs of its own forward and backward, without a compiler of C++
DATA = torch.arange(24.0).view(6, 4) / 24


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def square_sum(scores):
    return scores.square().sum()


def wrapped(model):
    return torch.compile(model, backend=BACKEND)


def in_place(model):
    model.compile(backend=BACKEND)
    return model


def part_wrapped(model):
    model[2] = wrapped(model[2])
    return model


def part_in_place(model):
    in_place(model[0])
    return model


def begun(model, deterministic, micro_batches):
    state = pliant.torch.state(model)
    state.attach(session(deterministic))
    step = Step(state.gradient_size, tuple(range(row, row + 1) for row in range(micro_batches)))
    state.begin(step)
    return state, step


@pytest.mark.parametrize(("way", "said"), [(wrapped, "the model is compiled"), (in_place, "the model is compiled"),
                                           (part_wrapped, "module 2 is compiled"), (part_in_place, "module 0 is compiled")])
def test_a_compiled_model_is_refused_in_deterministic_mode(way, said):
    with pytest.raises(pliant.Error, match=said) as raised:
        pliant.torch.state(way(model_of())).attach(session(True))
    assert raised.value.status == pliant.Status.UNIMPLEMENTED


@pytest.mark.parametrize("way", [wrapped, in_place, part_wrapped, part_in_place])
def test_a_compiled_model_computes_in_fast_mode(way):
    model = way(model_of())
    state, step = begun(model, False, len(DATA))
    for row in range(len(DATA)):
        state.backward(step, step.pending, square_sum(model(DATA[row : row + 1])))
    plain = model_of()
    torch.testing.assert_close(torch.from_numpy(step.sum), plain_gradient(plain, square_sum(plain(DATA))))


@pytest.mark.parametrize("before", [0, 1, 3])  # micro-batches without it
@pytest.mark.parametrize("what", ["loss", "model", "model in place", "forward"])
def test_what_is_compiled_behind_the_back_of_the_state_is_refused_at_whichever_micro_batch_uses_it_first(what, before):
    model = model_of()
    state, step = begun(model, True, before + 1)
    for row in range(before):
        state.backward(step, step.pending, square_sum(model(DATA[row : row + 1])))
    if what == "loss":
        loss = wrapped(square_sum)(model(DATA[:1]))
    elif what == "forward":
        model.forward = wrapped(model.forward)
        loss = square_sum(model(DATA[:1]))
    else:
        loss = square_sum((wrapped if what == "model" else in_place)(model)(DATA[:1]))
    with pytest.raises(pliant.Error, match="a function that the loss is computed with is compiled"):
        state.backward(step, step.pending, loss)
    assert step.added == before


@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_hides_no_compiled_function(reentrant, compiles):
    model = model_of()
    state, step = begun(model, True, 1)
    inner = wrapped(model[0].forward) if compiles else model[0].forward
    data = DATA[:1].clone().requires_grad_()
    loss = square_sum(model[2](torch.utils.checkpoint.checkpoint(inner, data, use_reentrant=reentrant)))
    if not compiles:
        state.backward(step, step.pending, loss)
        return
    with pytest.raises(pliant.Error, match="pass use_reentrant=False" if reentrant else "a function that the loss is computed with is compiled"):
        state.backward(step, step.pending, loss)
    assert step.added == 0


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_compiled_loss_computes_in_fast_mode(before):
    model, loss_of = model_of(), wrapped(square_sum)
    state, step = begun(model, False, len(DATA))
    for row in range(len(DATA)):
        state.backward(step, step.pending, (square_sum if row < before else loss_of)(model(DATA[row : row + 1])))
    plain = model_of()
    torch.testing.assert_close(torch.from_numpy(step.sum), plain_gradient(plain, square_sum(plain(DATA))))


def test_deterministic_mode_computes_where_torch_has_compiled_what_the_loss_does_not_use():
    score = wrapped(square_sum)
    model = model_of()
    state, step = begun(model, True, 1)
    with torch.no_grad():
        score(model(DATA))
    state.backward(step, step.pending, square_sum(model(DATA)))
    assert step.added == 1
