"""gradients of a last micro-batch are handed in while backward computes the rest, and sums are the same."""
import gc
import weakref

import elastic_jobs
import numpy
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_state_test import Step, commit, model_of, places_of, session

import pliant
import pliant.torch


class Watched(Step):
    """Notes, beside what it is handed in, what backward has come to."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.events = []

    def add_piece(self, rows, offset, *rest):
        super().add_piece(rows, offset, *rest)
        self.events.append(offset)


def layers(count=4, width=6, **options):
    torch.manual_seed(3)
    return nn.Sequential(*(nn.Linear(width, width, **options) for _ in range(count)))


def state_of(model, bucket=4, **options):
    made = pliant.torch.state(model, torch.optim.SGD(model.parameters(), lr=0.1))
    made.attach(session(reduce_bucket=bucket, **options))
    return made


def run(state, loss_of, rows=1, index=0, world_size=2):
    """A step whose micro-batches are single rows."""
    step = Watched(state.gradient_size, tuple(range(row, row + 1) for row in range(rows)), index, world_size=world_size)
    state.begin(step)
    for row in range(rows):
        state.backward(step, step.pending, loss_of(row, step))
    return step


def plain(model, losses):
    for weight in model.parameters():
        weight.grad = None
    for row, loss in enumerate(losses):
        loss(row, None).backward()
    return torch.cat([(torch.zeros_like(one) if one.grad is None else one.grad.detach()).flatten() for one in model.parameters()]).numpy()


def rows_of(step, micro_batch):
    return [(offset, count) for number, offset, count in step.taken if number == micro_batch]


def inputs(row, width=6):
    return torch.arange(1.0, width + 1).reshape(1, width) * (row + 1) / 7


def test_the_last_micro_batch_is_handed_in_from_its_end_while_backward_goes_on_and_the_others_as_one():
    model = layers()
    state = state_of(model)

    def loss(row, step):
        first = model[0](inputs(row))
        if step is not None:
            first.register_hook(lambda gradient: step.events.append("the first layer is left"))
        return model[1:](first).square().sum()

    steps = [run(state, loss, rows=3, index=index) for index in range(2)]
    whole = [(0, state.gradient_size)]
    for step in steps:
        assert rows_of(step, 0) == rows_of(step, 1) == whole
        last = rows_of(step, 2)
        assert [first for first, _ in last] == sorted((first for first, _ in last), reverse=True)
        assert len(last) > 4 and sum(count for _, count in last) == state.gradient_size
        of_last = step.events[4:]  # the micro-batches before have left the first layer, and been handed in
        assert of_last.index("the first layer is left") >= 4
        assert [step.places[i] for i in range(state.gradient_size)] == places_of(model.parameters())
    fresh = layers()

    def same(row, _):
        return fresh(inputs(row)).square().sum()

    assert numpy.array_equal(steps[0].sum, sum(plain(fresh, [lambda _, step, row=row: same(row, step)]) for row in range(3)))


@pytest.mark.parametrize("options", [{"bucket": 0}, {"deterministic": True}, {"world_size": 1}])
def test_all_is_handed_in_at_the_end_where_nothing_travels_meanwhile(options):
    world_size = options.pop("world_size", 2)
    model = layers()
    state = state_of(model, **options)
    for index in range(3):
        step = run(state, lambda row, _: model(inputs(row)).sum(), index=index, world_size=world_size)
        assert [(offset, count) for _, offset, count in step.taken] == [(0, state.gradient_size)]


def sums_after(model, loss, steps=3, freeze=None, **options):
    """What each of some steps has added up, and of the last one the pieces."""
    state = state_of(model, **options)
    made = []
    for index in range(steps):
        if freeze is not None and index == steps - 1:
            freeze(model)
        made.append(run(state, loss, index=index))
    return made


class Conditional(nn.Module):
    """Its middle layer is used where the row says so."""

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, is_whole):
        x = self.first(x)
        return self.last(self.middle(x) if is_whole else x)


def test_a_parameter_that_the_loss_does_not_depend_on_counts_as_complete_when_backward_ends():
    torch.manual_seed(5)
    model = Conditional()
    uses = iter([True, False, True, False])
    steps = sums_after(model, lambda row, _: model(inputs(row), next(uses)).square().sum(), steps=4)
    for step, is_whole in zip(steps, (True, False, True, False)):
        assert numpy.array_equal(step.sum, plain(model, [lambda row, _, is_whole=is_whole: model(inputs(row), is_whole).square().sum()]))
    assert [offset for offset, _ in rows_of(steps[1], 0)][0] >= 84 and len(rows_of(steps[1], 0)) > 2


def test_frozen_tied_sparse_and_halved_parameters_come_out_as_without_early_pieces():
    def tied():
        model = layers(3)
        model[2].weight = model[0].weight
        return model

    def halved():
        model = layers(3)
        model[1] = model[1].bfloat16()
        return model

    def sparse():
        torch.manual_seed(2)
        return nn.Sequential(nn.Embedding(9, 6, sparse=True), nn.Linear(6, 6), nn.Linear(6, 2))

    def of(model):
        def loss(row, _):
            x = torch.tensor([[1, 4]]) if isinstance(model[0], nn.Embedding) else inputs(row)
            for one in model:
                x = one(x.to(one.weight.dtype) if x.is_floating_point() else x)
            return x.float().square().sum()

        return loss

    for make, freeze in ((tied, None), (halved, None), (sparse, None), (layers, lambda model: model[1].weight.requires_grad_(False))):
        model, other = make(), make()
        early, late = sums_after(model, of(model), freeze=freeze), sums_after(other, of(other), freeze=freeze, bucket=0)
        assert len(early[-1].taken) > len(late[-1].taken)
        for one, two in zip(early, late):
            assert numpy.array_equal(one.sum, two.sum)


class Checkpointed(nn.Module):
    """One layer, used in segments that are computed again in backward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, segments):
        for number in range(2):
            x = checkpoint(self.layer, x, use_reentrant=True) if segments > number else self.layer(x)
        return self.last(x)


def test_reentrant_checkpoints_of_one_layer_have_all_handed_in_at_the_end_and_those_that_come_later_are_refused():
    model = Checkpointed()
    steps = sums_after(model, lambda row, _: model(inputs(row).requires_grad_(), 2).square().sum())
    whole = plain(model, [lambda row, _: model(inputs(row).requires_grad_(), 2).square().sum()])
    for step in steps:
        assert numpy.array_equal(step.sum, whole) and len(step.taken) == 1
    state = state_of(model)
    run(state, lambda row, _: model(inputs(row).requires_grad_(), 0).square().sum())
    with pytest.raises(pliant.Error, match=r"parameter layer.\w+ had one more gradient in the same backward.*reduce_bucket = 0") as caught:
        run(state, lambda row, _: model(inputs(row).requires_grad_(), 2).square().sum(), index=1)
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION


def test_a_backward_that_raises_or_is_the_programs_own_leaves_nothing_behind():
    model = layers()
    state = state_of(model)
    run(state, lambda row, _: model(inputs(row)).square().sum())

    def broken(row, step):
        first = model[0](inputs(row))

        def fail(gradient):
            raise RuntimeError("in the middle")

        first.register_hook(fail)
        return model[1:](first).square().sum()

    given_up = Watched(state.gradient_size, index=1, world_size=2)
    state.begin(given_up)
    with pytest.raises(RuntimeError, match="in the middle"):
        state.backward(given_up, given_up.pending, broken(0, given_up))
    for _ in range(2):  # a part of it has travelled
        with pytest.raises(pliant.Error, match=r"the backward of rows 0\.\.0 of step 1 has raised after a part .* go on with the next step of the session"):
            state.backward(given_up, given_up.pending, model(inputs(0)).square().sum())
    assert len(given_up.taken) > 1
    model(inputs(3)).sum().backward()
    for weight in model.parameters():
        weight.grad = None  # as zero_grad does
    step = run(state, lambda row, _: model(inputs(row)).square().sum(), index=1)
    assert len(step.taken) > 4
    assert numpy.array_equal(step.sum, plain(model, [lambda row, _: model(inputs(row)).square().sum()]))
    commit(state, step)


def test_a_gradient_that_takes_the_place_of_the_view_is_handed_in_at_the_end():
    model = layers()
    state = state_of(model)
    run(state, lambda row, _: model(inputs(row)).square().sum())
    step = Watched(state.gradient_size, world_size=2, index=1)
    state.begin(step)
    loss = model(inputs(0)).square().sum()
    handle = model[3].weight.register_hook(lambda gradient: setattr(model[3].weight, "grad", None))
    state.backward(step, step.pending, loss)
    handle.remove()
    assert numpy.array_equal(step.sum, plain(model, [lambda row, _: model(inputs(row)).square().sum()]))


def test_what_is_not_used_any_more_is_freed():
    model = model_of()
    state = state_of(model)
    for index in range(2):
        run(state, lambda row, _: model(torch.ones(1, 4)).sum(), index=index)
    kept = weakref.ref(state), weakref.ref(model), weakref.ref(state._early)
    del state, model
    gc.collect()
    assert [one() for one in kept] == [None] * 3


# All gradients are whole numbers, and the rate is a power of two: whoever adds them in whatever order gets the same bits.
WHOLE_NUMBERS = """
    def gradient_of(ids):
        return sum((i * 7919 + numpy.arange(256) * 104729) % 31 for i in ids).astype("float32")

    RATE = 2.0**-7
"""
IN_NUMPY = WHOLE_NUMBERS + """
    toy.weights, toy.gradient_size = numpy.zeros(256, "float32"), 256
    toy.save = toy.load = None
    session.start(LENGTHS, state=toy)
    for step in session:
        for rows in step.micro_batches:
            step.add(rows, 1.0, gradient_of(step.batch.ids_of(rows)))
        if committed := step.commit():
            toy.weights -= numpy.float32(RATE) * committed.gradient
    keep(toy)
"""
# Rank 1 ends, twice, when its last gradient is made and the others are on their way.
ENDS_IN_BACKWARD = WHOLE_NUMBERS + """
    import torch
    from pliant.torch import state

    def fail():
        raise ValueError("a hook")

    def comes(_):
        end = {3: sys.exit, 7: fail}.get(step.index)
        if end and step.rank == 1 and step.pending == step.micro_batches[-1] and is_first(f"step-{step.index}"):
            print("CHECK under-way", trained._early._left == [-1] * 7 + [1])
            end()

    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(32)) for _ in range(8)])
    model[0].register_hook(comes)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    trained = state(model, optimizer)
    session.start(LENGTHS, state=trained)
    for step in session:
        for rows in step.micro_batches:
            parts = torch.from_numpy(gradient_of(step.batch.ids_of(rows))).split(32)
            step.backward(sum((weight * part).sum() for weight, part in zip(model, parts)))
        if step.commit():
            optimizer.step()
    toy.weights = torch.cat(list(model)).detach().numpy()
    keep(toy)
"""


def test_a_program_may_end_in_backward_while_pieces_travel(tmp_path):
    reference = elastic_jobs.run(tmp_path / "numpy", IN_NUMPY)
    assert len(reference.weights) == 1, reference.err + reference.said
    job = elastic_jobs.run(tmp_path / "job", ENDS_IN_BACKWARD, workers=2, main=elastic_jobs.PLAIN_MAIN, settings="reduce_bucket = 128",
                           config=elastic_jobs.CONFIG.replace("deterministic = true", "deterministic = false"),
                           leaves_memory=True, options=["--set", "elasticity.exact.min_gpus=2"])  # so that each of them comes in time
    elastic_jobs.check_whole(job, reference.weights[0], 2)
    elastic_jobs.check_said(job, "under-way", "under-way")
    ends = [line for line in job.err.splitlines() if line.startswith("warning: rank 1")]
    assert len(ends) == 2 and "exited with code 0 before the job was done" in ends[0] and "exited with code 1: ValueError: a hook" in ends[1], job.err
    assert job.said.count("Traceback") == 1 and "Fatal" not in job.said, job.said
