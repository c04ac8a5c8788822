"""LRScheduler follows the size of each batch over any optimizer and any scheduler of torch, and equals DeepSpeed's."""
import copy
import gzip
import json
import os
import pathlib
import types

import elastic_jobs
import pytest
import torch
from conftest import toml

import pliant
from pliant.torch import LRScheduler


def parameters(count=1):
    return [torch.nn.Parameter(torch.ones(3)) for _ in range(count)]


def rate_of(text):
    return pliant.LearningRate(pliant.Config.parse("config_version = 1\n[lr]\n" + text))


def size(sequences):
    return pliant.BatchSize(rows=1, sequences=sequences, tokens=sequences, loss_tokens=sequences)


def rows():
    golden = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "tests/parity/golden/variable_batch.jsonl.gz"
    with gzip.open(golden, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row.get("kind") == "lr_trace" and row["base_kind"] in INNER:
                yield row


INNER = {
    "constant": lambda optimizer, p: None,
    "StepLR": lambda optimizer, p: torch.optim.lr_scheduler.StepLR(optimizer, **p),
    "ExponentialLR": lambda optimizer, p: torch.optim.lr_scheduler.ExponentialLR(optimizer, **p),
    "CosineAnnealingLR": lambda optimizer, p: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, **p),
    "LambdaLR_inv": lambda optimizer, p: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
}


def scheduler_of(row):
    optimizer = torch.optim.SGD([{"params": parameters(), "lr": rate} for rate in row["optimizer_lrs"]], lr=0.1)
    rule = "none" if row["method"] in (None, "None") else row["method"]
    rate = rate_of(f'use = "{rule}"\nunit = "sequences"\nbase_lr = {row["optimizer_lrs"][0]}\nbase_batch = {row["base_batch_size"]}\n')
    return LRScheduler(optimizer, rate, INNER[row["base_kind"]](optimizer, row["base_params"]))


@pytest.mark.filterwarnings("ignore")
def test_the_recorded_rates_of_deepspeed_come_out_through_torchs_own_schedulers():
    compared = 0
    for row in rows():
        scheduler, trace, sizes = scheduler_of(row), row["out"]["trace"], row["batch_sizes"]
        for number, entry in enumerate(trace):
            call = row["calls"][number - 1] if number else None
            if isinstance(call, int):
                break  # a jump to another step, which this scheduler has not
            if number and call is None:
                scheduler.step()
            elif call == "reload":
                state = scheduler.state_dict()
                scheduler = scheduler_of(row)
                scheduler.load_state_dict(state)
            scheduler.batch(size(sizes[scheduler.steps % len(sizes)]))
            assert scheduler.get_last_lr() == pytest.approx(entry["lrs"], rel=1e-12, abs=0), (row["id"], number)
            compared += 1
    assert compared > 500


def test_a_step_counts_once_however_often_it_is_called():
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    inner = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scheduler = LRScheduler(optimizer, rate_of('use = "linear"\nunit = "sequences"\nbase_batch = 10\n'), inner)
    for step in range(4):
        scheduler.batch(size(20))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**step * 2)
        optimizer.step()
        for _ in range(8):  # as a launcher with 8 ranks
            scheduler.step()
        assert scheduler.steps == step + 1


def test_a_launcher_may_count_the_calls_that_end_no_step():
    scheduler = LRScheduler(torch.optim.SGD(parameters(), lr=0.1), rate_of('use = "none"\nbase_batch = 10\n'))
    scheduler.batch(size(20))
    scheduler._step_count += 1  # as Accelerate's wrapper does under accumulate()
    assert scheduler.steps == 0
    scheduler.step()
    assert scheduler.steps == 1


def test_a_step_without_a_batch_is_refused():
    scheduler = LRScheduler(torch.optim.SGD(parameters(), lr=0.1), rate_of('use = "none"\nbase_batch = 10\n'))
    with pytest.raises(pliant.Error, match="without a batch") as caught:
        scheduler.step()
    assert caught.value.status == pliant.Status.FAILED_PRECONDITION
    with pytest.raises(pliant.Error, match="the next step"):
        scheduler.batch(size(3), step=4)


def test_a_step_may_be_begun_again_with_another_size():
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = LRScheduler(optimizer, rate_of('use = "linear"\nunit = "sequences"\nbase_batch = 10\n'))
    scheduler.batch(size(20))
    scheduler.batch(size(5))
    assert scheduler.get_last_lr() == [pytest.approx(0.05)]
    scheduler.step()
    assert scheduler.steps == 1


def test_betas_epsilon_and_rate_of_adam_follow_the_batch():
    optimizer = torch.optim.AdamW(parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-8)
    rate = rate_of('use = "adam_sde"\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.01\noptimizer = "adamw"\nbeta1 = 0.9\nbeta2 = 0.99\n'
                   "epsilon = 1e-8\n")
    scheduler = LRScheduler(optimizer, rate)
    asked = scheduler.batch(size(40))
    group = optimizer.param_groups[0]
    assert asked.one_minus_beta1 == pytest.approx(4)
    assert group["lr"] == pytest.approx(0.02) and group["eps"] == pytest.approx(0.5e-8)
    assert group["betas"] == pytest.approx((0.6, 0.96))
    scheduler.batch(size(10))
    assert group["lr"] == pytest.approx(0.01) and group["betas"] == (0.9, 0.99)


NAMED = 'use = "linear"\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.1\n[lr.groups]\nhead = 0.5\n'


def groups_of(*names, rate=0.1):
    return [{"params": parameters(), "lr": rate, **({} if name is None else {"name": name})} for name in names]


def test_options_of_another_form_than_adams_are_left_alone():
    optimizer = torch.optim.SGD([{"params": parameters(), "eps": (1e-30, 1e-3), "betas": (0.9, 0.99, 0.999)}, {"params": parameters(), "eps": None}], lr=0.01)
    scheduler = LRScheduler(optimizer, rate_of('use = "sqrt"\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.01\n'))
    scheduler.batch(size(40))
    first, second = optimizer.param_groups
    assert first["lr"] == second["lr"] == pytest.approx(0.02)
    assert first["eps"] == (1e-30, 1e-3) and first["betas"] == (0.9, 0.99, 0.999) and second["eps"] is None


def test_a_group_with_a_name_has_its_base_rate_in_the_config_and_a_scheduler_moves_it():
    optimizer = torch.optim.SGD(groups_of(None, "head", rate=0.3), lr=0.1)
    scheduler = LRScheduler(optimizer, rate_of(NAMED), torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)))
    for step in range(3):
        scheduler.batch(size(20))
        assert scheduler.get_last_lr() == pytest.approx([2 * 0.3 / (1 + step), 2 * 0.5 / (1 + step)])
        optimizer.step()
        scheduler.step()
    optimizer.add_param_group(groups_of("head", rate=0.01)[0])  # with what the config has, whatever it begins with
    scheduler.batch(size(10))
    assert scheduler.get_last_lr() == pytest.approx([0.3 / 4, 0.5 / 4, 0.5])
    same = torch.optim.SGD(groups_of("head", rate=0.7), lr=0.1)
    LRScheduler(same, rate_of(NAMED)).batch(size(10))
    assert same.param_groups[0]["lr"] == 0.5  # to the bit


def test_names_that_the_config_has_not_and_groups_that_begin_at_nothing_are_refused():
    for name in ("tail", 3, None.__class__):
        with pytest.raises(pliant.Error, match=r"group 1 of the optimizer has the name .*, and \[lr.groups\] has no such group; it has head:") as caught:
            LRScheduler(torch.optim.SGD(groups_of("head", name), lr=0.1), rate_of(NAMED))
        assert caught.value.status == pliant.Status.NOT_FOUND and caught.value.exit_code == 2
    with pytest.raises(pliant.Error, match="group 'head' of the optimizer begins with lr = 0, in whose place"):
        LRScheduler(torch.optim.SGD(groups_of("head", rate=0.0), lr=0.1), rate_of(NAMED))
    for rate in (-1, 0):
        with pytest.raises(pliant.Error, match="lr.groups.head must be above 0"):
            rate_of(NAMED.replace("0.5", str(rate)))
    optimizer = torch.optim.SGD(groups_of("tail"), lr=0.1)  # without the table a name is the program's own affair
    scheduler = LRScheduler(optimizer, rate_of(NAMED[: NAMED.index("[lr.")]))
    scheduler.batch(size(10))
    assert scheduler.get_last_lr() == [0.1]


def test_a_group_of_the_config_that_no_group_has_is_named_once(caplog):
    scheduler = LRScheduler(torch.optim.SGD(groups_of("head"), lr=0.1), rate_of(NAMED + "tail = 1\n"))
    for _ in range(2):
        scheduler.batch(size(10))
    (record,) = caplog.records
    assert record.getMessage() == "[lr.groups] has tail, and no group of the optimizer has that name so far"


def test_the_momentum_buffer_is_scaled_once_a_step():
    weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.5)
    rate = rate_of('use = "linear"\nthen = ["momentum"]\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.1\noptimizer = "sgd_momentum"\nbeta1 = 0.5\n')
    scheduler = LRScheduler(optimizer, rate)
    for number, sequences in enumerate((10, 20, 20)):
        before = [state["momentum_buffer"].clone() for state in optimizer.state.values()]
        asked = scheduler.batch(size(sequences))
        scheduler.batch(size(sequences))
        for old, state in zip(before, optimizer.state.values()):
            assert torch.allclose(state["momentum_buffer"], old * asked.momentum_buffer)
        if number == 0:
            assert not before
        weights[0].grad = torch.ones(3)
        optimizer.step()
        scheduler.step()


def test_the_state_of_a_scheduler_goes_on_with_the_same_rates():
    def made():
        optimizer = torch.optim.SGD(parameters(), lr=0.1)
        rate = rate_of('use = "sqrt"\nschedule = ["cosine"]\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.1\n[lr.cosine]\nby = "steps"\nend = 20\n')
        return LRScheduler(optimizer, rate)

    def run(scheduler, steps):
        rates = []
        for _ in range(steps):
            scheduler.batch(size(10 + scheduler.steps))
            rates += scheduler.get_last_lr()
            scheduler.step()
        return rates

    whole = run(made(), 15)
    first = made()
    run(first, 6)
    again = made()
    again.load_state_dict(first.state_dict())
    assert run(again, 9) == whole[6:]
    other = LRScheduler(torch.optim.SGD([{"params": parameters()}, {"params": parameters()}], lr=0.1), rate_of('use = "none"\nbase_batch = 10\n'))
    with pytest.raises(pliant.Error, match="parameter groups"):
        other.load_state_dict(first.state_dict())


def with_inner(kind, groups=1):
    optimizer = torch.optim.SGD([{"params": parameters()} for _ in range(groups)], lr=0.1)
    inner = {"StepLR": lambda: torch.optim.lr_scheduler.StepLR(optimizer, 3), "LambdaLR": lambda: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
             None: lambda: None}[kind]()
    return LRScheduler(optimizer, rate_of('use = "linear"\nunit = "sequences"\nbase_batch = 10\n'), inner)


def after_steps(scheduler, count):
    for _ in range(count):
        scheduler.batch(size(15))
        scheduler.step()
    return scheduler.state_dict()


def check_state_is_refused(scheduler, state, words):
    """With the package's own error, and the scheduler goes on as if nothing had been tried."""
    before = copy.deepcopy(scheduler.state_dict())
    with pytest.raises(pliant.Error, match=words):
        scheduler.load_state_dict(state)
    assert scheduler.state_dict() == before


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["rule", "steps", "base", "inner", "inner_class", "moments"])
def test_a_state_that_lacks_a_part_is_refused_and_changes_nothing(part):
    state = after_steps(with_inner("StepLR"), 5)
    del state[part]
    check_state_is_refused(with_inner("StepLR"), state, f"cut: it has no {part}$")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part, wrong", [("steps", "five"), ("steps", None), ("base", 3), ("base", [{}]), ("base", [None]), ("moments", (1.0,)), ("moments", None),
                                         ("moments", ("a", "b"))])
def test_a_state_with_a_part_that_is_none_is_refused_and_changes_nothing(part, wrong):
    state = after_steps(with_inner("StepLR"), 5)
    check_state_is_refused(with_inner("StepLR"), {**state, part: wrong}, "was changed")


@pytest.mark.parametrize("state", [None, {}, [], "text"])
def test_what_is_no_state_is_refused(state):
    check_state_is_refused(with_inner(None), state, "not the state of an LRScheduler")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind, of", [("StepLR", None), (None, "StepLR"), ("StepLR", "LambdaLR"), ("LambdaLR", "StepLR")])
def test_a_state_of_another_inner_scheduler_is_refused_and_changes_nothing(kind, of):
    scheduler = with_inner(kind)
    after_steps(scheduler, 2)
    check_state_is_refused(scheduler, after_steps(with_inner(of), 5), f"another inner scheduler: {of or 'none'}, in place of {kind or 'none'}")


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_optimizer_or_no_inner_scheduler_is_refused_with_what_to_give():
    optimizer, rule = torch.optim.SGD(parameters(), lr=0.1), rate_of('use = "none"\nbase_batch = 10\n')
    with pytest.raises(TypeError, match="the optimizer is a list"):
        LRScheduler([optimizer], rule)
    with pytest.raises(pliant.Error, match="ReduceLROnPlateau.step needs metrics"):
        LRScheduler(optimizer, rule, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))


def test_what_an_inner_scheduler_raises_for_its_state_comes_out_and_the_rule_stays():
    state = after_steps(with_inner("LambdaLR"), 5)
    del state["inner"]["lr_lambdas"]
    scheduler = with_inner("LambdaLR")
    before = copy.deepcopy(scheduler.state_dict())
    with pytest.raises(KeyError):
        scheduler.load_state_dict(state)
    assert scheduler.state_dict() == before


def test_sizes_come_from_the_sampler():
    config = pliant.Config.parse(toml())
    sampler = pliant.PackedBatchSampler(config, [5] * 200, 0, 2)
    optimizer = torch.optim.SGD(parameters(), lr=0.01)
    scheduler = LRScheduler(optimizer, pliant.LearningRate(config))
    micro = next(iter(sampler))
    scheduler.batch(sampler.size_of(micro))
    assert scheduler.get_last_lr() == [pytest.approx(0.01 * sampler.size_of(micro).tokens / 500)]
    scheduler.batch(sampler.batch_of(micro))


MOMENTUM = ('use = "linear"\nthen = ["momentum"]\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.1\noptimizer = "sgd_momentum"\n'
            "beta1 = 0.5\n")


def test_a_state_of_a_step_that_was_begun_does_not_scale_its_moments_again():
    def made():
        weights = parameters()
        optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.5)
        return weights, optimizer, LRScheduler(optimizer, rate_of(MOMENTUM))

    weights, optimizer, scheduler = made()
    scheduler.batch(size(10))
    weights[0].grad = torch.ones(3)
    optimizer.step()
    scheduler.step()
    assert scheduler.batch(size(20)).momentum_buffer == 2
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    _, optimizer, scheduler = made()
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    scheduler.batch(size(20))
    (state,) = optimizer.state.values()
    assert state["momentum_buffer"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("made", [lambda: torch.optim.SGD(parameters(), lr=0.1, momentum=0.9),
                                  lambda: torch.optim.AdamW(parameters(), lr=0.1, betas=(0.9, 0.99))])
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_moves_momentum_moves_it_as_it_would_alone(made):
    alone, optimizer = made(), made()
    its = torch.optim.lr_scheduler.OneCycleLR(alone, max_lr=0.1, total_steps=10)
    inner = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    scheduler = LRScheduler(optimizer, rate_of('use = "none"\nbase_batch = 10\n'), inner)
    for _ in range(9):
        scheduler.batch(size(10))
        for name in ("lr", "momentum", "betas"):
            assert optimizer.param_groups[0].get(name) == alone.param_groups[0].get(name)
        its.step()
        scheduler.step()


@pytest.mark.filterwarnings("ignore")
def test_a_rate_that_is_a_tensor_stays_that_tensor():
    optimizer = torch.optim.AdamW(parameters(), lr=torch.tensor(0.1))
    rate = optimizer.param_groups[0]["lr"]
    scheduler = LRScheduler(optimizer, rate_of('use = "linear"\nunit = "sequences"\nbase_batch = 10\n'),
                            torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    for expected in (0.2, 0.1, 0.05):
        scheduler.batch(size(20))
        assert optimizer.param_groups[0]["lr"] is rate and rate.item() == pytest.approx(expected)
        scheduler.step()


def test_a_parameter_group_that_is_added_follows_too():
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = LRScheduler(optimizer, rate_of('use = "linear"\nunit = "sequences"\nbase_batch = 10\n'))
    scheduler.batch(size(20))
    optimizer.add_param_group({"params": parameters(), "lr": 0.3})
    scheduler.batch(size(20))
    assert scheduler.get_last_lr() == pytest.approx([0.2, 0.6])


def test_what_an_inner_scheduler_raises_comes_out_and_leaves_the_rates():
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    inner = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    scheduler = LRScheduler(optimizer, rate_of('use = "linear"\nunit = "sequences"\nbase_batch = 10\n'), inner)
    step = inner.step

    def broken():
        raise LookupError("inner")

    scheduler.batch(size(20))
    optimizer.step()
    inner.step = broken
    with pytest.raises(LookupError, match="inner"):
        scheduler.step()
    assert scheduler.get_last_lr() == pytest.approx([0.2])
    inner.step = step
    scheduler.batch(size(30))
    assert scheduler.get_last_lr() == pytest.approx([0.3])
    scheduler.step()
    scheduler.batch(size(10))
    assert scheduler.get_last_lr() == pytest.approx([0.05])


def test_weight_decay_and_the_power_of_an_average_follow_the_batch():
    groups = [{"params": parameters(), "weight_decay": 0.1}, {"params": parameters(), "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    rate = rate_of('use = "sqrt"\nthen = ["timescale"]\nunit = "sequences"\nbase_batch = 10\nbase_lr = 0.01\noptimizer = "adamw"\n')
    scheduler = LRScheduler(optimizer, rate)
    for sequences, factor in ((40, 4), (40, 4), (10, 1)):
        scheduler.batch(size(sequences))
        # B / (rate * decay) stays: the rate has grown by the root of the factor, and so does the decay.
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * factor**0.5)
        assert optimizer.param_groups[0]["weight_decay"] == pytest.approx(0.1 * factor**0.5)
        assert optimizer.param_groups[1]["weight_decay"] == 0
        assert scheduler.ema_power == pytest.approx(factor)
        optimizer.step()
        scheduler.step()


class Rule:
    """Asks for factors of the moments, alone."""

    def __init__(self):
        self.momentum_buffer, self.second_moment, self.groups = 1.0, 1.0, {}

    def scaling(self, step, size, base_lr):
        return types.SimpleNamespace(learning_rate=base_lr, one_minus_beta1=1.0, one_minus_beta2=1.0, epsilon=1.0, weight_decay=1.0, ema_power=1.0,
                                     momentum_buffer=self.momentum_buffer, second_moment=self.second_moment)

    def commit(self, *arguments):
        pass


def after_a_step(made):
    weights = parameters()
    optimizer, rule = made(weights), Rule()
    scheduler = LRScheduler(optimizer, rule)
    scheduler.batch(size(10))
    weights[0].grad = torch.full((3,), 0.5)
    optimizer.step()
    scheduler.step()
    return optimizer, rule, scheduler


def test_the_moments_of_adam_have_the_factors_that_the_rule_asks_for(caplog):
    optimizer, rule, scheduler = after_a_step(lambda weights: torch.optim.AdamW(weights, lr=0.1, amsgrad=True))
    (state,) = optimizer.state.values()
    before = {name: value.clone() for name, value in state.items() if isinstance(value, torch.Tensor)}
    assert set(before) >= {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} and all(before["exp_avg"] > 0) and all(before["exp_avg_sq"] > 0)
    rule.momentum_buffer, rule.second_moment = 2.0, 4.0
    scheduler.batch(size(20))
    scheduler.batch(size(20))  # the same step once more
    factors = {"exp_avg": 2, "exp_avg_sq": 4, "max_exp_avg_sq": 4}
    for name, value in before.items():
        assert torch.equal(state[name], value * factors.get(name, 1)), name
    assert not caplog.records


def test_moments_of_other_names_are_left_alone_and_named_once(caplog):
    optimizer, rule, scheduler = after_a_step(lambda weights: torch.optim.RMSprop(weights, lr=0.1, momentum=0.9, centered=True))
    (state,) = optimizer.state.values()
    buffer, square = state["momentum_buffer"].clone(), state["square_avg"].clone()
    assert not caplog.records  # no factor was asked for
    for factor in (2.0, 4.0):
        rule.momentum_buffer = rule.second_moment = factor
        scheduler.batch(size(20))
    assert torch.equal(state["momentum_buffer"], buffer * 4) and torch.equal(state["square_avg"], square)
    (record,) = caplog.records
    assert record.name == "pliant.torch" and record.getMessage().startswith("RMSprop keeps grad_avg, square_avg, which")


# The config moves the rates of both groups, and a scheduler of torch the second one's. Says what they are in the updates that are made.
SKIPS = """
    import torch
    from pliant.torch import state

    one, other = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([dict(params=[one]), dict(params=[other], lr=0.03125)], lr=0.0625)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda n: 1, lambda n: 1 / (1 + n)])
    session.start(LENGTHS, state=state(torch.nn.ParameterList([one, other]), optimizer, scheduler=scheduler))
    updates = []
    for step in session:
        for rows in step.micro_batches:
            loss = sum((one - i).square().sum() + (other + i).sum() for i in step.batch.ids_of(rows))
            is_none = step.index == 5 and step.rank == 1 and rows == step.micro_batches[-1]
            step.backward(loss * float("nan") if is_none else loss)
        if step.commit():
            updates.append([step.index, [group["lr"] for group in optimizer.param_groups]])
            optimizer.step()
    print("SAID", json.dumps([updates, scheduler.last_epoch, torch.cat([one, other]).isfinite().all().item()]))
"""


def test_a_step_that_is_skipped_in_a_job_moves_no_scheduler_of_torch_and_takes_no_step_from_one_of_the_config(tmp_path):
    rates = 'use = "linear"\nschedule = ["cosine"]\nunit = "tokens"\nbase_batch = 200\nbase_lr = 0.0625\n[lr.cosine]\nby = "steps"\nend = 20\n'
    config = elastic_jobs.CONFIG.partition("[lr]")[0] + "[lr]\n" + rates
    job = elastic_jobs.run(tmp_path / "job", SKIPS, workers=2, settings='on_nonfinite = "skip"', config=config)
    (updates, scheduled, is_finite), again = elastic_jobs.said_by(job)
    assert again == [updates, scheduled, is_finite] and is_finite and job.summary["steps_skipped"] == 1
    steps = [step for step, _ in updates]
    assert steps == [step for step in range(elastic_jobs.STEPS) if step != 5] and scheduled == len(updates)
    ledger = map(json.loads, pathlib.Path(job.summary["directory"], "ledger.jsonl").read_text().splitlines())
    commits = [line for line in ledger if line["record"] == "commit"]
    assert [line["step"] for line in commits if line.get("skipped")] == [5] and len(commits) == elastic_jobs.STEPS
    rule = rate_of(rates)
    for number, (step, found) in enumerate(updates):
        tokens = commits[step]["tokens"]
        rate = rule.scaling(step, pliant.BatchSize(rows=1, sequences=1, tokens=tokens, loss_tokens=tokens)).learning_rate
        assert found == pytest.approx([rate, rate / 2 / (1 + number)], rel=1e-12)
        assert commits[step]["lr"] == found[0]
