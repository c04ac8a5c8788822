"""torchtitan's dataloader takes packs as they are, and PackLoader goes on at another data-parallel size."""
import importlib.metadata

import pytest
from conftest import CUT, TOML, Tokens, sampler_of

from pliant.torch import Packed, collate

try:
    from torchtitan.components.dataloader import BaseDataLoader, ParallelAwareDataloader
except ImportError as failure:  # parts of it need a GPU's packages in some releases
    versions = [one.version for one in importlib.metadata.distributions(name="torchtitan")]
    known = f"torchtitan {versions[0]} is installed and cannot be imported" if versions else "torchtitan is not installed"
    pytest.skip(f"{known}: {failure}", allow_module_level=True)

from pliant.torchtitan import PackLoader


@pytest.fixture
def made(tmp_path):
    (tmp_path / "pliant.toml").write_text(TOML + CUT)

    def make(kind, rank, world_size, workers=0):
        if kind is PackLoader:
            config = PackLoader.Config(job=str(tmp_path / "pliant.toml"), samples=lambda tokenizer: Tokens(), num_workers=workers)
            return config.build(dp_world_size=world_size, dp_rank=rank, tokenizer=None, seq_len=128, local_batch_size=1, snapshot_every_n_steps=1)
        return plain_loader(kind, rank, world_size, workers)

    return make


def plain_loader(kind, rank, world_size, workers):
    return kind(Packed(Tokens()), dp_rank=rank, dp_world_size=world_size, batch_sampler=sampler_of(rank, world_size, CUT), num_workers=workers,
                collate_fn=lambda samples: collate(samples, style="torchtitan"))


def plain(batches):
    return [inputs["input"].tolist() for inputs, _ in batches]


@pytest.mark.parametrize("kind", [ParallelAwareDataloader, PackLoader])
def test_it_gives_what_torchtitan_takes_and_goes_on_at_the_same_size(made, kind):
    loader = made(kind, 1, 2)
    assert isinstance(loader, BaseDataLoader)
    iterator = iter(loader)
    for _ in range(3):
        inputs, labels = next(iterator)
    assert set(inputs) == {"input", "positions"} and inputs["input"].shape == inputs["positions"].shape == labels.shape
    state = loader.state_dict()
    rest = plain(iterator)
    again = made(kind, 1, 2)
    again.load_state_dict(state)
    assert plain(again) == rest


def test_that_of_torchtitan_refuses_another_data_parallel_size(made):
    loader = made(ParallelAwareDataloader, 0, 2)
    next(iter(loader))
    with pytest.raises(AssertionError, match="dp_degree"):
        made(ParallelAwareDataloader, 0, 3).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_any_rank_serves_another_data_parallel_size(made, workers):
    loader = made(PackLoader, 1, 2, workers)
    each = sampler_of(0, 2, CUT).micro_batches_per_step
    iterator = iter(loader)
    for _ in range(2 * each):
        next(iterator)
    states = [loader.state_dict()]
    seen = [token for rank in range(2) for batch in plain(made(PackLoader, rank, 2))[: 2 * each] for token in batch[0]]
    for world_size in (1, 3):
        rest = []
        for rank in range(world_size):
            again = made(PackLoader, rank, world_size, workers)
            again.load_state_dict(states[0])
            rest += [token for batch in plain(again) for token in batch[0]]
        every = [token for i in range(len(Tokens.lengths)) for token in Tokens()[i]["input_ids"]] * 3  # epochs
        padding = [0] * (len(seen) + len(rest) - len(every))  # of empty micro-batches
        assert sorted(seen + rest) == sorted(every + padding)


TRAINER = """
    import dataclasses, json, os, types
    import torch
    torch._utils._get_available_device_type, torch.cpu.current_device = lambda: "cpu", lambda: 0  # torchtitan takes a GPU for granted
    import torchtitan.components.metrics
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.components.metrics import DeviceMemStats, MetricsProcessor
    from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.config import ParallelismConfig, TrainingConfig
    from torchtitan.protocols.model import BaseModel
    from torchtitan.protocols.model_spec import ModelSpec
    from torchtitan.trainer import Trainer
    from conftest import CUT, Tokens, sampler_of
    from pliant.torchtitan import PackLoader

    torchtitan.components.metrics.build_device_memory_monitor = lambda: types.SimpleNamespace(
        device_name="CPU", get_peak_stats=lambda: DeviceMemStats(0, 0, 0, 0, 0, 0), reset_peak_stats=lambda: None)

    class NoTokenizer(BaseTokenizer):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseTokenizer.Config):
            pass

        def __init__(self, config, **others):
            super().__init__()

        encode = decode = get_vocab_size = None

    class Model(BaseModel):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(BaseModel.Config):
            def update_from_config(self, *, config, **others):
                pass

            def get_nparams_and_flops(self, model, seq_len):
                return 64 * 64, 1

        def __init__(self, config):
            super().__init__()
            self.table = torch.nn.Parameter(torch.empty(64, 64))

        def reset_parameters(self):
            torch.nn.init.zeros_(self.table)

        def forward(self, tokens, positions):
            seen[-1] += tokens[0].tolist()
            return self.table[tokens]

    class Noted(Trainer):
        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(Trainer.Config):
            pass

        def train_step(self, data_iterator):
            seen.append([])
            super().train_step(data_iterator)

    seen, ranks = [], int(os.environ["WORLD_SIZE"])
    trainer = Noted.Config(
        model_spec=ModelSpec("table", "small", Model.Config(), lambda model, **others: model, None, None, None),
        tokenizer=NoTokenizer.Config(), dump_folder="dump", loss=CrossEntropyLoss.Config(), metrics=MetricsProcessor.Config(log_freq=1),
        dataloader=PackLoader.Config(job="pliant.toml", samples=lambda tokenizer: Tokens()),
        optimizer=OptimizersContainer.Config(param_groups=[ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs=dict(lr=0.1))],
                                             implementation="for-loop"),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=0),
        training=TrainingConfig(local_batch_size=1, global_batch_size=ranks * sampler_of(0, ranks, CUT).micro_batches_per_step, seq_len=128,
                                steps=STEPS, disable_cuda_graphs=True),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
        checkpoint=CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0, last_save_model_only=False),
    ).build()
    trainer.train()
    trainer.close()
    print(json.dumps([trainer.step, trainer.gradient_accumulation_steps, seen]))
"""


def test_its_trainer_takes_the_steps_of_the_job_and_goes_on_from_its_checkpoint_at_another_size(tmp_path, made, run_ranks):
    each, alone = sampler_of(sampler=CUT).micro_batches_per_step, plain(made(PackLoader, 0, 1))
    steps = [sum((batch[0] for batch in alone[first : first + each]), []) for first in range(0, len(alone), each)]
    begun = run_ranks(TRAINER.replace("STEPS", "3"), 2)
    ((last, accumulated, rest),) = run_ranks(TRAINER.replace("STEPS", str(len(steps) + 1)), 1)
    assert [one[:2] for one in begun] == [[3, each // 2]] * 2 and accumulated == each
    assert [sorted(first + second) for first, second in zip(begun[0][2], begun[1][2])] == [sorted(step) for step in steps[:3]]
    assert rest == [*steps[3:], []] and last == len(steps) + 1  # which it gives up: the job has ended
