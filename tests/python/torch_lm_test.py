"""a PyTorch job has the same bits at every number of workers, killed or not, and its snapshots are read without it."""
import difflib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import pliant
import pliant.torch

BIN = pathlib.Path(os.environ["PLIANT_TEST_BIN"])
SAMPLE = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "samples/torch_lm"
STEPS = 8
SMALL = ["app.dim=16", "app.heads=2", "app.layers=1", "app.max_sequence=64", "app.dropout=0.1", "app.warmup_steps=3", "sampler.best_fit.max_tokens=64",
         f"run.max_steps={STEPS}", "run.snapshot_every=4"]
WORDS = ["It is", "a truth", "universally", "acknowledged", "that", "a single man", "must be", "in want of", "a wife"]
THOROUGH = os.environ.get("PLIANT_THOROUGH_TESTS") == "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("torch_lm")
    sentences = [" ".join(words) + "." for words in itertools.islice(itertools.permutations(WORDS, 3), 400)]
    (made / "text").write_text("\n\n".join(" ".join(sentences[i : i + 5]) for i in range(0, 400, 5)))
    return made


def run(folder, name, workers, *arguments, ends_with=0):
    """The directory of the run."""
    sets = [*SMALL, f"app.text={folder}/text", f"run.workers={workers}", f"run.name={name}"]
    command = [BIN / "pliant", "run", SAMPLE / "pliant.toml", *itertools.chain(*(("--set", one) for one in sets)), *arguments]
    environment = dict(os.environ, PATH=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]), OMP_NUM_THREADS="1")
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=150, check=False)
    made = folder / "pliant-runs" / name / "latest"
    logs = "\n".join(f"{file}: {file.read_text()}" for file in made.glob("logs/*")) if made.exists() else ""
    assert done.returncode == ends_with, done.stdout + logs
    return made


def digests(made):
    """Of the state that each step began with."""
    lines = map(json.loads, (made / "digests.jsonl").read_text().splitlines())
    return {line["step"]: line["root"] for line in lines}


def generations(made):
    return sum(json.loads(line)["record"] == "generation" for line in (made / "ledger.jsonl").read_text().splitlines())


def audit(made, *arguments):
    done = subprocess.run([BIN / "pliant", "audit", made, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def alone(folder):
    return run(folder, "alone", 1)


def program():
    specification = importlib.util.spec_from_file_location("torch_lm", SAMPLE / "train.py")
    made = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(made)
    return made


def built(folder):
    config = pliant.Config.open(SAMPLE / "pliant.toml", sets=SMALL)
    return program().build(config, 5)


@pytest.mark.parametrize("workers", [2, 3, 4] if THOROUGH else [])
def test_the_digests_are_those_of_one_worker(folder, alone, workers):
    assert digests(run(folder, f"of_{workers}", workers)) == digests(alone)


# Points of a step, at which workers are lost one after the other. A snapshot is written by rank 0. Each process takes seconds to load PyTorch:
# elastic_kill_test.py has every point without it.
KILLS = {"reduce, snapshot": (3, ["rank=2,step=1,at=reduce", "rank=0,step=4,at=snapshot"])}
if THOROUGH:
    KILLS["forward, reduce, vote"] = 4, ["rank=3,step=1,at=forward", "rank=2,step=2,at=reduce", "rank=1,step=3,at=vote"]
    KILLS["commit, apply, snapshot"] = 4, ["rank=3,step=1,at=commit", "rank=2,step=2,at=apply", "rank=0,step=4,at=snapshot"]


@pytest.mark.parametrize("points", KILLS)
def test_the_digests_are_those_of_one_worker_whichever_worker_is_killed_wherever(folder, alone, points):
    workers, kills = KILLS[points]
    killed = run(folder, points.replace(", ", "-"), workers, *itertools.chain(*(("--inject", f"kill:{one}") for one in kills)))
    assert len(digests(alone)) >= STEPS and digests(killed) == digests(alone)
    returncode, said = audit(killed, "--against", alone)
    assert returncode == 0, said
    assert generations(killed) > len(kills)


def test_in_fast_mode_gradients_that_travel_in_backward_change_no_bit_and_a_kill_meanwhile_costs_the_step(folder):
    fast = ["--set", "run.deterministic=false"]
    at_commit = digests(run(folder, "at_commit", 2, *fast, "--set", "run.reduce_bucket=0"))
    made = run(folder, "in_backward", 2, *fast, "--set", "run.reduce_bucket=2048", "--inject", "kill:rank=1,step=5,at=bucket")
    found = digests(made)
    assert len(found) >= STEPS and [found[step] for step in range(6)] == [at_commit[step] for step in range(6)]
    returncode, said = audit(made)
    assert returncode == 0 and generations(made) >= 2, said


BREAKS_OFF = """
import sys
import torch
import pliant.elastic, pliant.torch

def main(session):
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    session.start([4] * 96, state=pliant.torch.state(model, optimizer))
    breaks = [True]

    def comes(_):  # the gradient that is made last
        if breaks and step.index == 3 and step.rank == 1 and step.pending == step.micro_batches[-1]:
            breaks.clear()
            raise ZeroDivisionError

    model[0].weight.register_hook(comes)
    for step in session:
        try:
            for rows in step.micro_batches:
                step.backward(model(torch.ones(len(rows), 16)).square().sum())
        except ZeroDivisionError:
            continue
        if step.commit():
            optimizer.step()

sys.exit(pliant.elastic.run_worker(main))
"""


def test_in_fast_mode_a_part_of_the_gradient_is_on_its_way_before_backward_has_ended(folder):
    (folder / "breaks_off.py").write_text(BREAKS_OFF)
    sets = ["run.workers=2", "run.name=breaks_off", "run.deterministic=false", "run.reduce_bucket=2048", "sampler.best_fit.max_tokens=4"]
    command = [BIN / "pliant", "run", SAMPLE / "pliant.toml", "--json", *itertools.chain(*(("--set", one) for one in sets)), "--", sys.executable,
               folder / "breaks_off.py"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert "Session::next was called before Step::commit, when a part of the gradient was on its way" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["samples_used_once"] == 96 and summary["restarts"] == 0


TRAINS_ANOTHER_LAYER = """
import os, sys
import torch
import pliant.elastic, pliant.torch

def main(session):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[int(os.environ["LOCAL_RANK"])].requires_grad_(False)  # as many elements are trained on each rank
    state = pliant.torch.state(model, torch.optim.SGD(model.parameters(), lr=0.1))
    session.start([4] * 24, state=state)
    for step in session:
        raise SystemExit("a step was begun")

sys.exit(pliant.elastic.run_worker(main))
"""


def test_ranks_that_train_other_parameters_of_one_model_are_named_before_a_step(folder):
    (folder / "another.py").write_text(TRAINS_ANOTHER_LAYER)
    command = [BIN / "pliant", "run", SAMPLE / "pliant.toml", "--json", "--set", "run.workers=2", "--set", "run.name=another", "--", sys.executable,
               folder / "another.py"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=150, check=False)
    reason = json.loads(done.stdout)["reason"]
    assert done.returncode == 2, done.stderr
    for rank in range(2):
        assert f"worker {rank}: a gradient of 20 elements of parameters of digest " in reason
    assert "all workers must train the same parameters" in reason


KILLED_UNDER_TORCHRUN = """
import os, signal, sys
sys.path.insert(0, {sample!r})
import train
import pliant.elastic

def commit(step, commit=pliant.elastic.Step.commit):
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and (step.rank, step.index) == (1, 3):
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(step)

pliant.elastic.Step.commit = commit
sys.exit(pliant.elastic.run_worker(train.train, {sample!r} + "/pliant.toml", sets={sets!r}))
"""


@pytest.mark.skipif(not THOROUGH and torch.__version__.startswith("1."), reason="five processes, of which each takes seconds to load PyTorch; "
                    "elastic_torchrun_test.py starts groups without it, and scripts/test-frameworks this one under a current torch")
def test_the_digests_are_those_of_one_worker_under_torchrun_which_restarts_the_group_once(folder, alone):
    sets = [*SMALL, f"app.text={folder}/text", "run.name=torchrun"]
    (folder / "killed.py").write_text(KILLED_UNDER_TORCHRUN.format(sample=str(SAMPLE), sets=sets))
    # Torch 1.13 under Python 3.11 cannot leave the output of ranks alone.
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--max_restarts=1", "--monitor_interval=0.2", "--standalone", "--redirects=2",
               "--tee=2", f"--log_dir={folder}/torchrun", "killed.py"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150, check=False)
    said = "".join(file.read_text() for file in folder.glob("torchrun/**/stderr.log"))
    assert done.returncode == 0 and "2 ranks from step 3" in said, done.stdout + said
    assert digests(folder / "pliant-runs/torchrun/latest") == digests(alone)


def test_the_plain_loop_becomes_elastic_by_fewer_than_fifteen_lines():
    plain, elastic = ((SAMPLE.parent / "elastic_loop" / name).read_text().splitlines() for name in ("plain.py", "elastic.py"))
    changes = [line for line in difflib.ndiff(plain, elastic) if line[2:].strip()]
    assert 0 < sum(line.startswith("+ ") for line in changes) < 15
    assert sum(line.startswith("- ") for line in changes) < 15


def test_a_snapshot_is_read_without_the_job(folder, alone):
    file = alone / f"snapshots/step-{STEPS:08}.snapshot"
    model, optimizer, warm_up = built(folder)
    fresh = {name: one.detach().clone() for name, one in model.named_parameters()}
    assert pliant.torch.load_snapshot(file, model, optimizer, scheduler=warm_up) == STEPS
    assert any(not torch.equal(fresh[name], one) for name, one in model.named_parameters())
    assert all(entries["step"].item() == STEPS and entries["exp_avg_sq"].sum() > 0 for entries in optimizer.state.values())
    assert all(one.grad is None for one in model.parameters())
    other, _, _ = built(folder)
    assert pliant.torch.load_snapshot(os.fsencode(file), other) == STEPS
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), other.parameters()))
    for run in (alone, os.fsencode(alone)):  # its newest one
        another, _, _ = built(folder)
        assert pliant.torch.load_snapshot(run, another) == STEPS
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), another.parameters()))


def test_a_snapshot_of_another_model_is_refused_with_what_differs_and_changes_nothing(folder, alone):
    file = alone / f"snapshots/step-{STEPS:08}.snapshot"
    model = program().Model(8, 1, 2, 64, 0.0)
    before = [one.detach().clone() for one in model.parameters()]
    with pytest.raises(pliant.Error, match=r"is of another model: model\.blocks\.0\.down\.bias is f32\[8\] in this program and f32\[16\] in the snapshot.* more$"):
        pliant.torch.load_snapshot(file, model)
    assert all(torch.equal(one, kept) for one, kept in zip(model.parameters(), before))
    model, _, _ = built(folder)
    with pytest.raises(pliant.Error, match=r"optimizer\.blocks\.0\.down\.bias\.exp_avg is missing in this program"):
        pliant.torch.load_snapshot(file, model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_snapshot_of_another_optimizer_is_refused_by_file_and_changes_nothing(folder, alone):
    file = alone / f"snapshots/step-{STEPS:08}.snapshot"
    for kind, said in (("another kind", "the state is of AdamW, and this program has Adam"), ("one group", "has 2 parameter groups, and this program's optimizer 1"),
                       ("no scheduler", "the state has a scheduler, and this program has none")):
        model, optimizer, warm_up = built(folder)
        if kind == "another kind":
            optimizer = torch.optim.Adam([{"params": group["params"]} for group in optimizer.param_groups])
            warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        elif kind == "one group":
            optimizer = torch.optim.AdamW(model.parameters())
            warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        before = [one.detach().clone() for one in model.parameters()]
        rates = [group["lr"] for group in optimizer.param_groups]
        with pytest.raises(pliant.Error, match=re.escape(str(file)) + f": .*{said}"):
            pliant.torch.load_snapshot(file, model, optimizer, scheduler=None if kind == "no scheduler" else warm_up)
        assert all(torch.equal(one, kept) for one, kept in zip(model.parameters(), before)), kind
        assert rates == [group["lr"] for group in optimizer.param_groups]


def test_files_that_are_no_snapshots_are_refused_by_name(folder, alone):
    model, _, _ = built(folder)
    with pytest.raises(pliant.Error, match="nowhere.snapshot") as raised:
        pliant.torch.load_snapshot(folder / "nowhere.snapshot", model)
    assert raised.value.status == pliant.Status.NOT_FOUND
    with pytest.raises(pliant.Error, match=r"logs has no snapshots/step-N\.snapshot; give the directory of a run, such as pliant-runs/NAME/latest, or a snapshot file$"):
        pliant.torch.load_snapshot(alone / "logs", model)
    content = bytearray((alone / f"snapshots/step-{STEPS:08}.snapshot").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "damaged.snapshot").write_bytes(content)
    with pytest.raises(pliant.Error, match=r"damaged\.snapshot.*checksum"):
        pliant.torch.load_snapshot(folder / "damaged.snapshot", model)
    pliant.export_snapshot(alone, folder / "weights.safetensors")
    with pytest.raises(pliant.Error, match=r"weights is a safetensors file, .*safetensors\.torch\.load_file.*model\.load_state_dict") as raised:
        pliant.torch.load_snapshot((folder / "weights.safetensors").rename(folder / "weights"), model)
    assert raised.value.exit_code == 2
    for other in (b"", b"\x89PLIANT\n", bytes(8) + b"{}"):
        (folder / "other").write_bytes(other)
        with pytest.raises(pliant.Error, match="other is damaged"):
            pliant.torch.load_snapshot(folder / "other", model)


FAULTS = {
    "a batch norm": ("self.norm = nn.LayerNorm(dim)", "self.norm = nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(dim), nn.Unflatten(0, (1, -1)))",
                     r"the forward changes buffer norm\.1\.running_mean of BatchNorm1d|num_batches_tracked"),
    "a sentence that is gone": ("        return item.row, torch", "        if item == 11: raise OSError('gone')\n        return item.row, torch",
                                r"data set item 11 \(row \d+ of step \d\): OSError: gone"),
    "threads": ("    for step in session:\n", "    for step in session:\n        torch.set_num_threads(2)\n", r"torch computes with 2 threads"),
}


@pytest.mark.parametrize("fault", sorted(FAULTS) if THOROUGH else ["a sentence that is gone"])
def test_what_a_worker_ends_with_is_in_its_log(folder, fault):
    old, new, said = FAULTS[fault]
    made = folder / fault.replace(" ", "_")
    made.mkdir()
    source = (SAMPLE / "train.py").read_text()
    assert old in source
    (made / "train.py").write_text(source.replace(old, new))
    (made / "pliant.toml").write_text((SAMPLE / "pliant.toml").read_text())
    sets = itertools.chain(*(("--set", one) for one in [*SMALL, f"app.text={folder}/text", "run.workers=1", "run.max_restarts=0"]))
    environment = dict(os.environ, PATH=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))
    done = subprocess.run([BIN / "pliant", "run", made / "pliant.toml", *sets], cwd=made, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150, check=False)
    logs = "".join(file.read_text() for file in made.glob("pliant-runs/*/latest/logs/*"))
    assert done.returncode != 0
    assert re.search(said, logs), done.stdout + logs
