"""A model of Transformers that is cut over the workers of a job trains as a whole one, to the bit, and generates what a whole one does."""
import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

BIN = pathlib.Path(os.environ["PLIANT_TEST_BIN"])
STEPS = 4
CONFIG = f"""config_version = 1
[run]
attach = "required"
max_steps = {STEPS}
deterministic = true
snapshot_every = 2
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 8
micro_batch_sizes = [2]
max_gpus = 4
[sampler]
use = "fixed"
[sampler.fixed]
order = "random"
[lr]
use = "none"
base_lr = 0.01
[app]
checkpointing = "none"  # of Transformers, or "reentrant", "not reentrant"
leaves_at = 0           # rank 1 generates fewer tokens after so many steps
"""
WORKER = """
import contextlib, json, pathlib, sys, zlib
import accelerate, torch
from transformers import LlamaConfig, LlamaForCausalLM
import pliant.elastic, pliant.torch

SYMBOLS, TOKENS, FROZEN = 32, 6, ("model.layers.0.self_attn.k_proj.weight", "model.norm.weight")


class Sentences:
    lengths = [4 + i * 7 % 13 for i in range(240)]

    def __getitem__(self, i):
        return (i + torch.arange(self.lengths[i])) % SYMBOLS


def collate(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True, padding_value=-100)


def model_of(device="cpu"):
    with accelerate.init_empty_weights() if device == "meta" else contextlib.nullcontext():  # buffers have memory
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=SYMBOLS, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=64, tie_word_embeddings=True, attn_implementation="sdpa"))
    model.tie_weights()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in FROZEN)
        if device == "cpu":
            first(name, parameter)
    return model


@torch.no_grad()
def first(name, weights):
    torch.manual_seed(zlib.crc32(name.encode()))
    weights.fill_(1) if weights.dim() == 1 else weights.normal_(std=0.3)


def loss_of(model, batch):
    scores = model(input_ids=batch[:, :-1].clamp(min=0), use_cache=False).logits
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")


def generate(model, rank, tokens=TOKENS):
    # A prompt of its own on each rank, also in length; no symbol ends it.
    model.eval()
    made = model.generate(torch.arange(3, 8 + rank)[None] * 5 % SYMBOLS, max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0,
                          output_logits=True, return_dict_in_generate=True)
    model.train()
    return made.sequences[0].tolist(), torch.cat(made.logits).tolist()


def main(session):
    is_cut, checkpointing = session.config.has("coordinator"), session.config.app_string("checkpointing")
    model, data = model_of("meta" if is_cut else "cpu"), Sentences()
    if checkpointing != "none":
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = session.loader(data, collate)
    state = pliant.torch.shard(model, optimizer, session=session, initialise=first) if is_cut else pliant.torch.state(model, optimizer)
    session.start(data.lengths, loss_tokens=[n - 1 for n in data.lengths], state=state)
    said, calls = [], []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    for step in session:
        calls.clear()
        with step.attempt():
            batches = [step.backward(loss_of(model, batch)) for batch in loader.of(step)]
        if not step.commit():
            continue
        state.clip_grad_norm_(1.0)
        optimizer.step()
        forwards = len(calls) / len(batches)
        leaves = step.index + 1 == session.config.app_int("leaves_at")
        with step.attempt():
            tokens, scores = generate(model, step.rank, TOKENS // 2 if leaves and step.rank == 1 else TOKENS)
        if leaves:
            continue
        with step.attempt():
            weights = state.state_dict() if is_cut else model.state_dict()
        whole = model_of()
        whole.load_state_dict(weights)
        said.append([tokens, (tokens, scores) == generate(whole, step.rank), forwards])
    torch.save(weights, f"weights-{step.rank}")
    pathlib.Path(f"said-{step.rank}").write_text(json.dumps(said))


if __name__ == "__main__":
    sys.exit(pliant.elastic.run_worker(main))
"""
CUT = ["run.workers=2", "coordinator.use=planned"]


def run(folder, *sets):
    folder.mkdir(exist_ok=True)
    (folder / "worker.py").write_text(WORKER)
    (folder / "pliant.toml").write_text(CONFIG)
    command = [BIN / "pliant", "run", "pliant.toml", "--json", *itertools.chain(*(("--set", one) for one in sets)), "--", sys.executable, "worker.py"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300,
                          check=False)
    logs = "\n".join(f"{file}: {file.read_text()}" for file in folder.glob("pliant-runs/*/latest/logs/[0-9]*") if file.is_file())
    return done, done.stderr + logs


def ended_well(folder, workers, *sets):
    """Of each worker: its weights at the end, and what it has said of each step."""
    done, said = run(folder, *sets)
    assert done.returncode == 0, said
    return [(torch.load(folder / f"weights-{rank}"), json.loads((folder / f"said-{rank}").read_text())) for rank in range(workers)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    ((weights, _),) = ended_well(tmp_path_factory.mktemp("whole"), 1, "run.workers=1")
    return weights


@pytest.mark.parametrize(("checkpointing", "forwards"), [("none", 1), ("reentrant", 2), ("not reentrant", 2)])
def test_it_trains_as_a_whole_one_and_generates_what_a_whole_one_does(whole, tmp_path, checkpointing, forwards):
    ranks = ended_well(tmp_path, 2, *CUT, f"app.checkpointing={checkpointing}")
    for weights, said in ranks:
        assert weights.keys() == whole.keys() and all(torch.equal(weights[name], whole[name]) for name in whole)
        assert [found[1:] for found in said] == [[True, forwards]] * STEPS
    tokens = [[found[0] for found in said] for _, said in ranks]
    assert all(len(first) == 11 and len(second) == 12 for first, second in zip(*tokens))
    assert len({str(one) for one in tokens[0]}) > 1  # training has changed them
    assert torch.equal(whole["lm_head.weight"], whole["model.embed_tokens.weight"])
    assert (whole["model.norm.weight"] == 1).all() and not (whole["model.layers.0.input_layernorm.weight"] == 1).any()  # one is frozen


def test_a_rank_that_generates_fewer_tokens_is_named(tmp_path):
    done, said = run(tmp_path, *CUT, "app.leaves_at=2")
    assert done.returncode != 0 and "step 2 is not committed: rank 0 began an evaluation, rank 1 ended the step after " in said, said


def test_after_the_last_step_the_rank_that_waits_for_it_is_named(tmp_path):
    done, said = run(tmp_path, *CUT, f"app.leaves_at={STEPS}", "run.hang_timeout_s=100000")
    assert done.returncode == 1, said
    assert f"after step {STEPS - 1}, which is committed: rank 0 began an evaluation, rank 1 ended the step after " in said, said
