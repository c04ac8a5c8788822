"""what programs do with a model beside plain steps leaves the same bits where it is cut over workers: recomputing, loading, generating, saving."""
import concurrent.futures
import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys

import forked_ranks
import pytest
import torch

BIN = pathlib.Path(os.environ["PLIANT_TEST_BIN"])
THOROUGH = os.environ.get("PLIANT_THOROUGH_TESTS") == "1"
STEPS = 6
CONFIG = """config_version = 1
[run]
command = ["python3", "worker.py"]
attach = "required"
epochs = 2
deterministic = true
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 8
micro_batch_sizes = [2]
[sampler]
use = "fixed"
[lr]
use = "none"
base_lr = 0.01
"""

# The model and its loop, for workers and for the test.
PROGRAM = """
import pathlib
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
import pliant.elastic, pliant.torch

SYMBOLS, WIDTH, LENGTHS = 16, 24, [4 + i * 7 % 13 for i in range(34)]
SHORT = 4  # a step of 2 rows, in which one rank alone has any


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.gate = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x @ self.gate))))


class Model(nn.Module):
    recomputed = (None, "saved", "reentrant")
    dropped = None  # block, by the step alone

    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(SYMBOLS, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in self.recomputed)
        self.blocks[2].gate = self.blocks[0].gate  # shared by two units, one of which is recomputed
        self.blocks[1].up.weight.requires_grad_(False)

    def scores(self, tokens):
        x = self.embedding(tokens)
        for number, (block, kind) in enumerate(zip(self.blocks, self.recomputed)):
            if number == self.dropped:
                continue
            x = block(x) if kind is None or not torch.is_grad_enabled() else checkpoint(block, x, use_reentrant=kind == "reentrant")
        return self.norm(x @ self.blocks[1].gate) @ self.embedding.weight.t()  # of another unit, and of the first layer

    def forward(self, tokens, only_scores=False):
        if only_scores:
            return self.scores(tokens)
        return nn.functional.cross_entropy(self.scores(tokens[:, :-1].clamp(min=0)).flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")


def made(seed):
    torch.manual_seed(seed)
    return Model()


def sentence(i):
    return (i + torch.arange(LENGTHS[i])) % SYMBOLS


def collate(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-100)


class Sentences:
    def __getitem__(self, i):
        return sentence(i)


def said(step, model):
    tokens = [1]
    for _ in range(6):
        scores = model(torch.tensor([tokens]), only_scores=True)
        assert not scores.requires_grad
        tokens.append(int(scores[0, -1].argmax()))
    return tokens


def main(session):
    cut = session.config.has("coordinator")
    model = made(8 if cut else 7)  # the values of 7 come from a file
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if cut:
        state = pliant.torch.shard(model, optimizer, session=session, external=["blocks.1.gate"])
        state.import_safetensors("first.safetensors")
    else:
        state = pliant.torch.state(model, optimizer)
    session.start(LENGTHS, loss_tokens=[n - 1 for n in LENGTHS], state=state)
    loader, generated = session.loader(Sentences(), collate), []
    for step in session:
        model.dropped = (None, 1, 2)[step.index % 3]
        with step.attempt():
            for batch in loader.of(step):
                if step.index == SHORT:
                    assert model.dropped == 1
                    with torch.no_grad():
                        model(batch.clamp(min=0), only_scores=True)  # a teacher
                loss = model(batch)
                step.metric("loss", float(loss), len(batch))
                step.metric("batches", 1, rule="sum")
                step.backward(loss)
        if not step.commit():
            continue
        state.clip_grad_norm_(0.5)
        if step.index != 3:
            optimizer.step()
        elif cut:
            state.update(lambda name, first, weights, gradient: weights.sub_(gradient, alpha=0.1))
        else:
            with torch.no_grad():
                for one in model.parameters():
                    if one.grad is not None:
                        one.sub_(one.grad, alpha=0.1)
        with step.attempt(), torch.no_grad():
            generated.append(said(step, model))
        if step.index == 1:
            with step.attempt():
                values = {name: value.clone() for name, value in model.state_dict().items()}
                values["norm.weight"] *= 0.5
                values["blocks.0.gate"] += 0.25
                values["blocks.2.gate"] = values["blocks.0.gate"]
                model.load_state_dict(values)
        if step.index == 2:
            with step.attempt(), torch.no_grad():
                if cut:
                    with state.whole("blocks.0", writeback=True):
                        model.blocks[0].up.bias.add_(0.25)
                else:
                    model.blocks[0].up.bias.add_(0.25)
        if step.index == STEPS - 1:
            assert not torch.distributed.is_initialized()
            here = pathlib.Path("cut" if cut else "whole")
            here.mkdir(exist_ok=True)
            with step.attempt():
                values = state.state_dict() if cut else model.state_dict()
                if cut:
                    state.export_safetensors(here / "exported.safetensors")
            names = {id(one): name for name, one in model.named_parameters()}
            kept = {} if cut else {f"{names[id(one)]}.{key}": value for one, found in optimizer.state.items() for key, value in found.items()}
            torch.save({"values": values, "kept": kept, "generated": generated, "own": state.sharded_state_dict() if cut else {}}, here / f"{step.rank}")


STEPS = __STEPS__
if __name__ == "__main__":
    sys.exit(pliant.elastic.run_worker(main))
""".replace("__STEPS__", str(STEPS))


def write_safetensors(file, values):
    header, at = {}, 0
    for name, value in values.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [at, at + 4 * value.numel()]}
        at += 4 * value.numel()
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(value.detach().numpy().tobytes() for value in values.values()))


def read_safetensors(file):
    content = file.read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    found = {}
    for name, one in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = one["data_offsets"]
            found[name] = torch.frombuffer(bytearray(content[8 + size + begin : 8 + size + end]), dtype=torch.float32).view(one["shape"])
    return found


def job(folder, first, workers, coordinator=None):
    """What each rank has left, where, and the metrics of each step."""
    folder.mkdir()
    (folder / "worker.py").write_text(PROGRAM)
    (folder / "pliant.toml").write_text(CONFIG)
    write_safetensors(folder / "first.safetensors", first)
    sets = [f"run.workers={workers}", f"run.max_steps={STEPS}"] + ([f"coordinator.use={coordinator}"] if coordinator else [])
    command = [BIN / "pliant", "run", "pliant.toml", *(word for one in sets for word in ("--set", one))]
    environment = dict(os.environ, PATH=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=150, check=False)
    logs = "\n".join(file.read_text() for file in folder.glob("pliant-runs/*/latest/logs/[0-9]*") if file.is_file())
    assert done.returncode == 0, done.stdout + logs
    left = folder / ("cut" if coordinator else "whole")
    ledger = map(json.loads, next(folder.glob("pliant-runs/*/latest/ledger.jsonl")).read_text().splitlines())
    return [torch.load(left / str(rank)) for rank in range(workers)], left, [line["metrics"] for line in ledger if line["record"] == "commit"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("habits")
    jobs = {"whole": (1,), "planned": (2, "planned")}
    if THOROUGH:
        jobs.update(zero3=(3, "zero3"), eager=(4, "eager"))
    space = {}
    exec(PROGRAM, space)  # runs no job
    first = dict(space["made"](7).named_parameters())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = {name: pool.submit(job, folder / name, first, *how) for name, how in jobs.items()}
    return {name: one.result() for name, one in found.items()}


COORDINATORS = ["planned", *(["zero3", "eager"] if THOROUGH else [])]


@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_the_weights_and_what_was_generated_are_those_of_the_whole_model(made, coordinator):
    (whole,), *_ = made["whole"]
    assert len(whole["generated"]) == STEPS and len({tuple(tokens) for tokens in whole["generated"]}) > 1
    for rank in made[coordinator][0]:
        assert rank["generated"] == whole["generated"]
        assert list(rank["values"]) == list(whole["values"])
        for name, value in whole["values"].items():
            assert torch.equal(rank["values"][name], value), name


@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_metrics_are_of_the_rows_of_the_step_also_where_a_rank_has_none(made, coordinator):
    expected = made["whole"][2]
    assert [one["batches"] for one in expected] == [4, 4, 4, 4, 1, 4] and [one["loss"] > 0 for one in expected] == [True] * STEPS
    assert made[coordinator][2] == expected


@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_what_the_ranks_own_is_each_element_once_and_goes_together_to_the_whole_state(made, coordinator):
    (whole,), *_ = made["whole"]
    ranks, *_ = made[coordinator]
    expected = {**whole["values"], **{name: value for name, value in whole["kept"].items() if value.numel() > 1}}
    expected.pop("blocks.2.gate")  # the shared one has one name
    joined = {name: torch.full((value.numel(),), float("nan")) for name, value in expected.items()}
    for rank in ranks:
        for name, runs in rank["own"].items():
            for first, part in runs:
                if name in joined:
                    assert joined[name][first : first + len(part)].isnan().all(), name
                    joined[name][first : first + len(part)] = part
    for name, value in expected.items():
        assert torch.equal(joined[name], value.flatten()), name
    assert all(rank["own"] for rank in ranks)


@pytest.mark.parametrize("coordinator", COORDINATORS)
def test_an_exported_file_has_the_whole_model(made, coordinator):
    (whole,), *_ = made["whole"]
    found = read_safetensors(made[coordinator][1] / "exported.safetensors")
    assert set(found) == set(whole["values"]) - {"blocks.2.gate"}
    assert all(torch.equal(value, whole["values"][name]) for name, value in found.items())


# That model in 16 bits, which is recomputed, by ranks that one process has forked.
RECOMPUTED = """
import collections, json, os, sys
import torch
import pliant.elastic, pliant.torch
import worker

os.environ["LOCAL_RANK"] = os.environ["RANK"]


def main(session):
    model, calls, types = worker.made(7), collections.Counter(), set()
    for number, block in enumerate(model.blocks):
        block.register_forward_pre_hook(lambda *_, number=number: calls.update([number]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = pliant.torch.shard(model, optimizer, session=session, external=["blocks.1.gate"])
    session.start(worker.LENGTHS, loss_tokens=[n - 1 for n in worker.LENGTHS], state=state)
    loader = session.loader(worker.Sentences(), worker.collate)
    for step in session:
        with step.attempt():
            for batch in loader.of(step):
                loss = model(batch)
                types.add(str(loss.dtype))
                step.backward(loss)
        if step.commit():
            state.clip_grad_norm_(0.5)
            optimizer.step()
    print(json.dumps([*sorted(types), *(calls[number] / calls[0] for number in range(3))]))


sys.exit(pliant.elastic.run_worker(main, "pliant.toml", sets=sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def launcher():
    made = forked_ranks.Launcher()
    yield made
    made.close()


def test_what_is_recomputed_in_16_bits_has_the_same_weights_whatever_gathers_it_at_every_number_of_ranks(launcher, tmp_path):
    for name, text in (("worker.py", PROGRAM), ("recomputed.py", RECOMPUTED), ("pliant.toml", CONFIG)):
        (tmp_path / name).write_text(text)
    found = {}
    for coordinator, ranks in itertools.product(("eager", "zero3", "planned"), (1, 2)):
        name = f"{coordinator}-{ranks}"
        sets = [f"run.name={name}", f"run.max_steps={STEPS}", f"coordinator.use={coordinator}", "coordinator.compute_dtype=bf16"]
        codes, out, err = launcher.run(ranks, tmp_path / "recomputed.py", *sets, folder=tmp_path)
        assert codes == [0] * ranks, err
        assert [json.loads(one) for one in out] == [["torch.bfloat16", 1, 2, 2]] * ranks
        file = tmp_path / f"{name}.safetensors"
        exported = subprocess.run([BIN / "pliant", "snapshot", "export", tmp_path / "pliant-runs" / name / "latest", "-o", file], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
        assert exported.returncode == 0, exported.stdout
        found[name] = {key: value.numpy().tobytes() for key, value in read_safetensors(file).items()}
    assert len(found["eager-1"]) > 20
    for name, values in found.items():
        assert values == found["eager-1"], name
