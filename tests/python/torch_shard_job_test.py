"""a PyTorch model that is cut over workers has the weights of the whole one, to the bit, and workers that do other things are named."""
import concurrent.futures
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import pliant
import pliant.torch
import sharded_core
from pliant import _core

BIN = pathlib.Path(os.environ["PLIANT_TEST_BIN"])
SAMPLES = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "samples"
STEPS = 6
SMALL = ["app.dim=16", "app.heads=2", "app.layers=2", "app.max_sequence=64", "app.dropout=0.1", "app.warmup_steps=3", "app.clip_norm=0.5",
         "sampler.best_fit.max_tokens=64", f"run.max_steps={STEPS}", "run.snapshot_every=2"]
WORDS = ["It is", "a truth", "universally", "acknowledged", "that", "a single man", "must be", "in want of", "a wife"]
THOROUGH = os.environ.get("PLIANT_THOROUGH_TESTS") == "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("torch_shard")
    sentences = [" ".join(words) + "." for words in itertools.islice(itertools.permutations(WORDS, 3), 400)]
    (made / "text").write_text("\n\n".join(" ".join(sentences[i : i + 5]) for i in range(0, 400, 5)))
    return made


def run(folder, config, sets, *arguments):
    command = [BIN / "pliant", "run", config, "--json", *itertools.chain(*(("--set", one) for one in sets)), *arguments]
    environment = dict(os.environ, PATH=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=150, check=False)
    logs = "\n".join(f"{file}: {file.read_text()}" for file in folder.glob("pliant-runs/*/latest/logs/[0-9]*") if file.is_file())
    summary = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    return done, summary, done.stderr + logs


def weights_in(file):
    """Of the model, by its names."""
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    made = {}
    for key, tensor in header.items():
        if key != "__metadata__" and not key.startswith("optimizer."):
            begin, end = tensor["data_offsets"]
            made[key.removeprefix("model.")] = content[8 + size + begin : 8 + size + end]
    return made


def weights_of(folder, name, sets, *arguments):
    """Of the job's last snapshot, by the model's names, and its summary."""
    done, summary, said = run(folder, SAMPLES / "torch_lm/pliant.toml", [*SMALL, f"app.text={folder}/text", f"run.name={name}", *sets], *arguments)
    assert done.returncode == 0, said
    file = folder / f"{name}.safetensors"
    exported = subprocess.run([BIN / "pliant", "snapshot", "export", folder / "pliant-runs" / name / "latest", "-o", file], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
    assert exported.returncode == 0, exported.stdout
    return weights_in(file), summary


def cut(workers, coordinator="planned"):
    return [f"run.workers={workers}", f"coordinator.use={coordinator}"]


# Where ranks die, and the step of the newest snapshot, to which the job goes back: a share of the state is lost.
DEATHS = {"killed": {"rank=1,step=3,at=gather": 2, "rank=0,step=4,at=finish": 2}}
if THOROUGH:
    DEATHS["killed_again"] = {"rank=0,step=3,at=scatter": 2, "rank=1,step=4,at=snapshot": 2}
    DEATHS["killed_late"] = {"rank=1,step=3": 2, f"rank=0,step={STEPS},at=snapshot": 4}


@pytest.fixture(scope="module")
def made(folder):
    """Weights and summaries of jobs, by name."""
    jobs = {"whole": ["run.workers=1"], **dict.fromkeys(DEATHS, cut(2))}
    if THOROUGH:
        jobs.update({f"{coordinator}_{workers}": cut(workers, coordinator) for workers, coordinator in [(1, "eager"), (3, "zero3"), (4, "planned")]})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = {name: pool.submit(weights_of, folder, name, sets, *(f"--inject=kill:{one}" for one in DEATHS.get(name, ()))) for name, sets in jobs.items()}
    return {name: one.result() for name, one in found.items()}


def test_the_weights_are_those_of_the_whole_model_at_every_number_of_workers_and_after_deaths(made):
    whole, _ = made["whole"]
    assert len(whole) == 28
    for name, (weights, summary) in made.items():
        assert weights == whole, name
        assert summary["steps"] == STEPS and summary["samples_repeated"] == 0, name
        ledger = map(json.loads, pathlib.Path(summary["directory"], "ledger.jsonl").read_text().splitlines())
        assert [line["step"] for line in ledger if line["record"] == "restart"] == list(DEATHS.get(name, {}).values()), name
        assert summary["restarts"] == len(DEATHS.get(name, ())), name


def test_a_snapshot_of_shards_goes_into_a_model_and_an_optimizer_that_are_whole(folder, made):
    specification = importlib.util.spec_from_file_location("torch_lm", SAMPLES / "torch_lm/train.py")
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    found = {}
    for name in ("whole", "killed"):
        config = pliant.Config.open(SAMPLES / "torch_lm/pliant.toml", sets=[*SMALL, f"app.text={folder}/text"])
        model, optimizer, warm_up = program.build(config, 5)
        file = folder / f"pliant-runs/{name}/latest/snapshots/step-{STEPS:08}.snapshot"
        assert pliant.torch.load_snapshot(file, model, optimizer, scheduler=warm_up) == STEPS
        names = {id(parameter): key for key, parameter in model.named_parameters()}
        found[name] = {key: tensor.numpy().tobytes() for key, tensor in model.state_dict().items()}
        found[name].update({f"{names[id(one)]} {key}": value.numpy().tobytes() for one, kept in optimizer.state.items() for key, value in kept.items()})
        found[name]["rates"] = [group["lr"] for group in optimizer.param_groups], warm_up.state_dict()
    assert found["killed"] == found["whole"] and len(found["whole"]) > 3 * len(made["whole"][0])
    other = program.Model(8, 1, 2, 64, 0.0)
    with pytest.raises(pliant.Error, match=r"is of another model: model\.blocks\.0\.down\.bias is f32\[8\] in this program and f32\[16\] in the snapshot"):
        pliant.torch.load_snapshot(file, other)
    buffered = program.build(config, 5)[0]
    buffered.register_buffer("seen", torch.zeros(2))
    before = {key: value.clone() for key, value in buffered.state_dict().items()}
    with pytest.raises(pliant.Error, match=r"snapshot: the state has other buffers of the model than this program's has: seen is float32 \[2\] in this program and missing there"):
        pliant.torch.load_snapshot(file, buffered)
    assert all(torch.equal(before[key], value) for key, value in buffered.state_dict().items())


@pytest.mark.skipif(not THOROUGH, reason="five processes, of which each takes seconds to load PyTorch")
def test_a_job_in_shards_goes_on_at_another_number_of_workers_with_the_same_bits(folder, made):
    sets = [*SMALL, f"app.text={folder}/text", "run.name=goes_on"]
    done, _, said = run(folder, SAMPLES / "torch_lm/pliant.toml", [*sets, *cut(3)], "--inject", "kill:agent,step=3")
    assert done.returncode == -9, said
    weights, summary = weights_of(folder, "goes_on", cut(2), "--resume")
    assert summary["resumed_from"] == 2 and weights == made["whole"][0]


WORKER = """
import json, pathlib, sys
import torch
import pliant.elastic, pliant.torch
sys.path.insert(0, {sample!r})
import train as sample


class Model(sample.Model):
    order = (0, 1, 2, 3)

    def forward(self, batch):
        x = self.embedding(batch[:, :-1].clamp(min=0))
        for number in self.order:
            x = self.blocks[number](x)
        return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")


def main(session):
    model, data = Model(32, 4, device="meta"), sample.Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = pliant.torch.shard(model, optimizer, session=session)
    session.start(data.lengths, loss_tokens=[n - 1 for n in data.lengths], state=state)
    loader = session.loader(data, sample.collate)
    thrown = set()
    for step in session:
        if step.index == 0:
            with step.attempt():
                torch.save(state.state_dict(), f"first-{{step.rank}}")
        try:
            with step.attempt():
                for batch in loader.of(step):
                    if step.rank == 1 and step.index == 1 and "forward" not in thrown:
                        thrown.add("forward")
                        model(batch[:, :3] + 99)
                    loss = model(batch)
                    if step.rank == 0 and step.index == 2 and "hook" not in thrown:
                        thrown.add("hook")
                        loss.register_hook(lambda _: 1 / 0)
                    step.backward(loss)
        except (IndexError, ZeroDivisionError):
            continue
        if not step.commit():
            continue
        optimizer.step()
        if step.index == 3:
            with step.attempt() as tried:
                whole = state.state_dict()
                with torch.no_grad():
                    loss = float(model(sample.collate([data[0]])))
            assert tried.is_complete
            elements = sum(one.numel() for one in whole.values())
            said = dict(rank=step.rank, loss=loss, sum=float(sum(one.double().sum() for one in whole.values())), elements=elements, memory=state.memory,
                        thrown=sorted(thrown))
            pathlib.Path(f"said-{{step.rank}}").write_text(json.dumps(said))
            model.order = (0, 1, 2, 3) if step.rank != 1 else (0, 2, 1, 3)


sys.exit(pliant.elastic.run_worker(main))
"""


@pytest.fixture(scope="module")
def other(folder):
    """A job whose ranks throw, and go different ways in the end."""
    (folder / "worker.py").write_text(WORKER.format(sample=str(SAMPLES / "torch_shard")))
    (folder / "other.toml").write_text((SAMPLES / "torch_shard/pliant.toml").read_text())
    done, summary, said = run(folder, folder / "other.toml", ["run.workers=2", "run.name=other", f"run.seed={sharded_core.session().seed}"], "--", "python3",
                              "worker.py")
    return done, summary, said, [json.loads((folder / f"said-{rank}").read_text()) for rank in range(2)]


def test_first_values_of_a_model_on_meta_are_those_that_one_rank_makes(folder, other, monkeypatch):
    monkeypatch.setattr(_core, "ShardedModel", sharded_core.ShardedModel)
    specification = importlib.util.spec_from_file_location("torch_shard", SAMPLES / "torch_shard/train.py")
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    _, core = sharded_core.sharded(program.Model(32, 4, device="meta"))
    for rank in range(2):
        values = torch.load(folder / f"first-{rank}")
        assert set(values) == set(core.names)
        for name, value in zip(core.names, core.weights):
            assert torch.equal(values[name].flatten(), value), name


def test_exceptions_leave_the_group_whole_and_a_worker_that_visits_other_modules_is_named(other):
    done, summary, said, told = other
    assert done.returncode != 0
    for words in ("step 4 is not committed: ", "rank 1 entered blocks.2 (forward) as visit", "rank 0 entered blocks.1 (forward) as visit"):
        assert words in said, said
    assert summary["restarts"] == 0
    assert [one["thrown"] for one in told] == [["hook"], ["forward"]]
    assert len({(one["loss"], one["sum"]) for one in told}) == 1
    for kind in ("weights", "sums", "state"):
        bytes_of_all = sum(one["memory"][kind] for one in told)
        assert max(one["memory"][kind] for one in told) < 0.6 * bytes_of_all, kind
    assert sum(one["memory"]["weights"] for one in told) < 1.2 * 4 * told[0]["elements"]


# Ranks begin with other parameters, another buffer and other rates.
UNEQUAL = """
import os, sys
import torch
import pliant.elastic, pliant.torch
sys.path.insert(0, {sample!r})
import train as sample


class Model(sample.Model):
    def __init__(self, scale):
        super().__init__(8, 2)
        self.register_buffer("scale", torch.tensor([scale]))

    def forward(self, batch):
        return self.scale * super().forward(batch)


def main(session):
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    model, data = Model(1.0 + rank), sample.Sentences()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 * (1 + rank), weight_decay=0.1 * rank)
    state = pliant.torch.shard(model, optimizer, session=session)
    session.start(data.lengths, loss_tokens=[n - 1 for n in data.lengths], state=state)
    loader = session.loader(data, sample.collate)
    for step in session:
        with step.attempt():
            for batch in loader.of(step):
                step.backward(model(batch))
        if step.commit():
            optimizer.step()


sys.exit(pliant.elastic.run_worker(main))
"""


def test_a_job_begins_with_what_rank_0_has_also_after_a_death_before_the_first_step(folder):
    (folder / "unequal.py").write_text(UNEQUAL.format(sample=str(SAMPLES / "torch_shard")))
    (folder / "unequal.toml").write_text((SAMPLES / "torch_shard/pliant.toml").read_text())
    ended = {}
    for workers, deaths in ((1, []), (3, ["--inject=kill:rank=1,step=0,at=copy"])):
        name = f"unequal_{workers}"
        done, summary, said = run(folder, folder / "unequal.toml", [f"run.workers={workers}", f"run.name={name}", "run.max_steps=4", "run.digest_every=1"],
                                  *deaths, "--", "python3", "unequal.py")
        assert done.returncode == 0 and summary["restarts"] == len(deaths), said
        file = folder / f"{name}.safetensors"
        pliant.export_snapshot(folder / "pliant-runs" / name / "latest", file)
        ended[workers] = weights_in(file), summary["loss_first"]
    assert len(ended[1][0]) == 15 and ended[1] == ended[3]
