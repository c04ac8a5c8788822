"""configs and plans are read, changed and pickled."""
import copy
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest
from conftest import toml


def test_a_config_says_what_it_holds(pliant):
    config = pliant.Config.parse(toml(more="[app]\nhidden = 16\nname = \"x\"\nrate = 0.5\non = true\n"))
    assert config.has("elasticity") and not config.has("balancer")
    assert config.use("sampler") == "next_fit" and config.use("balancer") == "contiguous"
    assert (config.run.epochs, config.run.seed) == (3, 7)
    assert (config.lr.base_lr, config.lr.unit, config.lr.beta1) == (0.01, "tokens", None)
    assert (config.app_int("hidden"), config.app_string("name"), config.app_float("rate"), config.app_bool("on")) == (16, "x", 0.5, True)
    assert config.app_int("absent") is None
    with pytest.raises(pliant.Error) as caught:
        config.app_int("name")
    assert caught.value.findings[0].line > 0
    with pytest.raises(pliant.Error):
        config.check_app_keys(["hidden"])


def test_a_config_is_a_file_or_text_and_may_be_changed(pliant, tmp_path):
    file = tmp_path / "job.toml"
    file.write_text(toml())
    for path in (file, str(file)):
        assert pliant.Config.open(path, sets=["run.seed=9"]).run.seed == 9
    assert pliant.Config.open(file).with_sets(["run.epochs=5"]).run.epochs == 5
    assert pliant.plan(file).global_batch == pliant.plan(str(file), sets=["run.seed=1"]).global_batch


class Named:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


def test_a_path_is_what_open_takes_whatever_its_bytes_are(pliant, tmp_path):
    folder = os.fsencode(tmp_path)
    for name in (b"job.toml", b"not utf-8 \xff.toml"):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(toml())
        for given in (path, os.fsdecode(path), Named(path), Named(os.fsdecode(path)), pathlib.Path(os.fsdecode(path))):
            config = pliant.Config.open(given)
            assert config.run.seed == 7 and os.fsencode(config.file) == path
            assert os.fsdecode(name) in repr(config) and pliant.plan(given).global_batch == 12
            assert os.fsencode(pickle.loads(pickle.dumps(config)).file) == path
            assert pliant.PackedBatchSampler(given, [5] * 100, 0, 1).config.run.seed == 7
    for call in (pliant.Config.open, pliant.read_lengths):
        with pytest.raises(pliant.Error, match="none") as caught:
            call(os.path.join(folder, b"none \xff"))
        assert b"none \xff" in os.fsencode(str(caught.value))
        with pytest.raises(ValueError, match="null byte"):
            call(b"a\0b")
        with pytest.raises(TypeError, match="os.PathLike"):
            call(3)
    saved = os.path.join(folder, b"lengths \xff.npy")
    assert pliant.analyse_lengths(saved, 3, lambda i: 5, identity="x") == (3, 0)
    assert list(pliant.read_lengths(saved)) == [5, 5, 5]


def test_what_a_path_raises_comes_out(pliant):
    class Broken:
        def __fspath__(self):
            raise LookupError("own")

    for call in (pliant.Config.open, pliant.read_lengths, pliant.plan, lambda file: pliant.PackedBatchSampler(file, [5], 0, 1),
                 lambda file: pliant.analyse_lengths(file, 3, lambda i: 5, identity="x")):
        with pytest.raises(LookupError, match="own"):
            call(Broken())


def test_the_environment_is_read_unless_told_otherwise(pliant, monkeypatch):
    monkeypatch.setenv("PLIANT__RUN__SEED", "77")
    assert pliant.Config.parse(toml()).run.seed == 77
    assert pliant.Config.parse(toml(), read_environment=False).run.seed == 7


def test_a_pickled_config_is_the_same_in_another_environment(pliant, monkeypatch):
    config = pliant.Config.parse(toml(), sets=["run.seed=9"], name="job.toml")
    saved = pickle.dumps(config)
    monkeypatch.setenv("PLIANT__RUN__SEED", "77")
    for again in (pickle.loads(saved), copy.deepcopy(config)):
        assert again.run.seed == 9
        assert again.resolved_toml() == config.resolved_toml()
        assert pliant.Planner(again).digest == pliant.Planner(config).digest


def test_a_pickled_config_finds_the_plugins_of_the_package_that_reads_it(pliant, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(pathlib.Path(pliant.__file__).parent, elsewhere / "pliant")
    program = "import pickle, sys, pliant; sys.stdout.buffer.write(pickle.dumps(pliant.Config.parse(sys.argv[1])))"
    saved = subprocess.run([sys.executable, "-c", program, toml()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                           env=dict(os.environ, PYTHONPATH=str(elsewhere))).stdout
    assert str(elsewhere).encode() in saved
    shutil.rmtree(elsewhere)
    again = pickle.loads(saved)
    assert pliant.plan(again).global_batch == 12 and str(elsewhere) not in again.resolved_toml()


def test_a_plan_names_its_world_sizes(pliant, config):
    plan = pliant.plan(config, 3)
    assert (plan.global_batch, plan.granule, plan.micro_batch) == (12, 2, 2)
    assert plan.world_sizes == [range(1, 7)]
    assert 3 in plan and 7 not in plan and plan.valid(6) and plan.count() == 6
    assert (plan.largest_valid(100), plan.smallest_valid(0)) == (6, 1)
    assert "nearest valid" in plan.explain_invalid(9)
    again = pickle.loads(pickle.dumps(plan))
    assert (again.global_batch, again.world_sizes, again.micro_batch) == (12, [range(1, 7)], 2)
    planner = pliant.Planner(config)
    assert planner.policy == "exact" and planner.plan(3).micro_batch == 2 and '"exact"' in planner.block


def test_shares_and_assignments_hold_each_row_once(pliant, config):
    shares = [pliant.share_of(12, 2, 5, rank) for rank in range(5)]
    assert sum(count for _, count in shares) == 12
    assignment = pliant.share_out(12, world_size=5, micro_batch=2, granule=2)
    rows = [row for rank in range(5) for first, count in assignment.of(rank) for row in range(first, first + count)]
    assert sorted(rows) == list(range(12)) and assignment.world_size == 5
    costs = [1, 9, 1, 1, 1, 1, 1, 9, 1, 1, 1, 1]
    balancer = pliant.Balancer(pliant.Config.parse(toml(more='[balancer]\nuse = "lpt"\n')))
    assigned = balancer.assign(costs, world_size=3, micro_batch=2, granule=2)
    assert balancer.name == "lpt" and balancer.rates == (1, 0)
    assert balancer.predict(costs, world_size=3, micro_batch=2, granule=2).work == pliant.waiting(costs, assigned).work == sum(costs)
    assert assigned == balancer.assign(costs, world_size=3, micro_batch=2, granule=2)
