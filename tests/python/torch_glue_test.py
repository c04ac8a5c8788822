"""what joins packs to Transformers, Accelerate, Lightning and torchtitan keeps positions, and refuses what would lose samples: by what these call."""
import dataclasses
import importlib.util
import json
import pathlib
import sys
import types

import pytest
import torch

import pliant
import pliant.torch

TOML = """config_version = 1
[run]
epochs = 2
seed = 7
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 12
micro_batch_sizes = [2]
max_gpus = 6
[lr]
use = "linear"
base_lr = 0.05
unit = "tokens"
base_batch = 500
[sampler]
use = "next_fit"
[sampler.next_fit]
max_tokens = 64
order = "random"
"""
MODULES = ("transformers", "accelerate", "lightning", "torchtitan")


class Tokens(torch.utils.data.Dataset):
    lengths = [3 + i * 7 % 29 for i in range(150)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"input_ids": [i] * self.lengths[i]}


def sampler_of(rank=0, world_size=1, placeholders=True, rates=None):
    config = TOML if rates is None else TOML.partition("[lr]")[0] + rates + "[sampler]" + TOML.partition("[sampler]")[2]
    return pliant.PackedBatchSampler(pliant.Config.parse(config), Tokens.lengths, rank, world_size, placeholders=placeholders)


def seen_in(batches):
    return [batch["input_ids"].tolist() for batch in batches]


@pytest.fixture
def glue(monkeypatch):
    """Imports a module of the package beside modules that stand for the framework."""

    def load(name, **modules):
        for module, names in modules.items():
            made = types.ModuleType(module.replace("__", "."))
            made.__dict__.update(names)
            monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.delitem(sys.modules, f"pliant.{name}", raising=False)
        made = importlib.import_module(f"pliant.{name}")
        monkeypatch.delitem(sys.modules, f"pliant.{name}")
        return made

    return load


def refused(*words):
    return pytest.raises(pliant.Error, match=".*".join(words))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_short_and_needs_its_framework(name):
    file = pathlib.Path(pliant.__file__).parent / f"{name}.py"
    assert len(file.read_text().splitlines()) <= 150
    if importlib.util.find_spec(name) is None:
        with pytest.raises(ModuleNotFoundError, match=name if name != "torchtitan" else "torch(titan|data)"):
            importlib.import_module(f"pliant.{name}")


def test_a_data_set_that_knows_no_item_is_refused_by_what_reads_packs():
    class Stream(torch.utils.data.IterableDataset):
        pass

    for given, name in ((Stream(), "Stream"), (iter([{}]), "list_iterator")):
        with pytest.raises(TypeError, match=f"a {name}, which knows no item by its number; pliant.torch.Packed asks for .*map-style"):
            pliant.torch.Packed(given)


# Transformers.


class Trainer:
    """What of Transformers' Trainer the mixin goes by."""

    def __init__(self, model=None, args=None, train_dataset=None, optimizers=(None, None)):
        self.model, self.args, self.train_dataset = model, args, train_dataset
        self.optimizer, self.lr_scheduler = optimizers
        self.accelerator = types.SimpleNamespace(prepare=lambda loader: loader)
        self.callbacks, self.seen, self.rates = [], [], []
        self.loss_is_scaled_for_ga, self.counted = None, torch.tensor(1)

    def add_callback(self, callback):
        self.callbacks.append(callback)

    def training_step(self, model, inputs, more=None):
        self.seen += seen_in([inputs])

    def train(self, resume_from_checkpoint=None, trial=None):
        assert resume_from_checkpoint is None or isinstance(resume_from_checkpoint, str)
        step = 0 if resume_from_checkpoint is None else int(resume_from_checkpoint.rpartition("-")[2])
        assert step == 0 or self.args.ignore_data_skip
        scheduler = self.create_scheduler(99)
        for number, batch in enumerate(self.get_train_dataloader(), 1):
            self.training_step(self.model, batch, self.counted)
            if number % self.args.gradient_accumulation_steps == 0:
                self.rates += scheduler.get_last_lr()
                scheduler.step()
                step += 1
                (pathlib.Path(self.args.output_dir) / f"checkpoint-{step}").mkdir()
                for callback in self.callbacks:
                    callback.on_save(self.args, types.SimpleNamespace(global_step=step), None, model=self.model)
            if step == self.args.max_steps:
                return step
        return step


def newest(folder):
    found = sorted(pathlib.Path(folder).glob("checkpoint-*"), key=lambda one: int(one.name.rpartition("-")[2]))
    return str(found[-1]) if found else None


@pytest.fixture
def trainer_of(glue, tmp_path):
    module = glue("transformers", transformers={"TrainerCallback": object}, transformers__trainer_utils={"get_last_checkpoint": newest})

    class PackTrainer(module.PackMixin, Trainer):
        pass

    def make(sampler=None, scheduler=None, **settings):
        defaults = {"process_index": 0, "world_size": 1, "gradient_accumulation_steps": 1, "max_steps": -1, "num_train_epochs": 3, "should_save": True,
                    "ignore_data_skip": False, "dataloader_num_workers": 0, "output_dir": str(tmp_path),
                    "average_tokens_across_devices": True, "auto_find_batch_size": False, "lr_scheduler_type": "linear", "warmup_steps": 0,
                    "train_sampling_strategy": "random", "accelerator_config": types.SimpleNamespace(split_batches=False, dispatch_batches=None)}
        arguments = types.SimpleNamespace(**{**defaults, **settings})
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.05)
        return PackTrainer(None, arguments, train_dataset=Tokens(), optimizers=(optimizer, scheduler), sampler=sampler or sampler_of())

    make.kind = PackTrainer
    return make


def test_a_trainer_goes_on_behind_its_checkpoint_and_skips_nothing(trainer_of, tmp_path):
    whole = trainer_of(output_dir=str(tmp_path / "whole"))
    (tmp_path / "whole").mkdir()
    steps = whole.train()
    assert whole.args.num_train_epochs == 1 and whole.args.gradient_accumulation_steps == whole.sampler.micro_batches_per_step
    alone = sampler_of()
    loader = torch.utils.data.DataLoader(pliant.torch.Packed(Tokens()), batch_sampler=alone.whole_job(), collate_fn=pliant.torch.collate)
    assert whole.seen == seen_in(loader) and len(set(whole.rates)) > 1
    begun = trainer_of(max_steps=4)
    assert begun.train() == 4 and json.loads((tmp_path / "checkpoint-4/sampler.json").read_text())["pliant"]
    again = trainer_of()
    assert again.train(True) == steps
    assert begun.seen + again.seen == whole.seen and begun.rates + again.rates == whole.rates


def test_what_a_trainer_would_compute_otherwise_is_refused(trainer_of, tmp_path):
    each = sampler_of().micro_batches_per_step
    with refused("rank 0 of 2 for Trainer", "rank 0 of 1"):
        trainer_of(world_size=2)
    with refused("gradient_accumulation_steps is 5", f"{each} micro-batches"):
        trainer_of(gradient_accumulation_steps=5)
    with refused("placeholders=True"):
        trainer_of(sampler_of(placeholders=False))
    with refused("average_tokens_across_devices=False"):
        trainer_of(average_tokens_across_devices=False)
    for name in ("dispatch_batches", "split_batches"):
        with refused(f"{name}=True", "cannot be cut"):
            trainer_of(accelerator_config=types.SimpleNamespace(**{name: True}))
    with refused("auto_find_batch_size=True"):
        trainer_of(auto_find_batch_size=True)
    with refused("train_sampling_strategy=.group_by_length.", "order are the sampler's"):
        trainer_of(train_sampling_strategy="group_by_length")
    for name, value in (("lr_scheduler_type", "cosine"), ("warmup_steps", 3)):
        with refused(f"{name}={value!r}", "schedule", "optimizers="):
            trainer_of(**{name: value}).train()
    with refused("needs TrainingArguments"):
        trainer_of.kind(sampler=sampler_of())
    (tmp_path / "checkpoint-1").mkdir()
    with refused("checkpoint-1 has no sampler.json"):
        trainer_of().train(str(tmp_path / "checkpoint-1"))
    (tmp_path / "checkpoint-1/sampler.json").write_text('{"pliant": "cut"}')
    with refused("checksum does not match"):
        trainer_of().train(tmp_path / "checkpoint-1")


def test_a_trainer_that_has_trained_goes_on_from_a_checkpoint_alone(trainer_of, tmp_path):
    trainer = trainer_of(max_steps=2)
    trainer.train()
    with refused("has given micro-batches before", "another Trainer", "resume_from_checkpoint"):
        trainer.train()
    trainer.args.max_steps = 4
    assert trainer.train(str(tmp_path / "checkpoint-2")) == 4
    assert trainer.seen == seen_in(trainer_of().get_train_dataloader())[: 4 * trainer.sampler.micro_batches_per_step]


# What Trainer gives for the labels of a step, and loss_is_scaled_for_ga.
@pytest.mark.parametrize(("counted", "is_scaled"), [(None, None), (torch.tensor(1), False), (None, False)])
def test_a_mean_of_means_is_refused(trainer_of, counted, is_scaled):
    trainer = trainer_of(max_steps=1)
    trainer.counted, trainer.loss_is_scaled_for_ga = counted, is_scaled
    with refused("mean of each micro-batch", "num_items_in_batch", "compute_loss_func", "loss_is_scaled_for_ga"):
        trainer.train()
    with refused("has given micro-batches before"):
        trainer.train()


@pytest.mark.parametrize(("counted", "is_scaled"), [(None, True), (torch.tensor(1), True)])
def test_a_loss_that_the_program_has_scaled_is_taken(trainer_of, counted, is_scaled):
    trainer = trainer_of(max_steps=1)
    trainer.counted, trainer.loss_is_scaled_for_ga = counted, is_scaled
    assert trainer.train() == 1


def test_a_trainers_loader_draws_no_random_numbers_of_the_program(trainer_of):
    before = torch.get_rng_state()
    list(trainer_of().get_train_dataloader())
    assert torch.equal(before, torch.get_rng_state())


def test_a_scheduler_of_ones_own_is_left_alone(trainer_of):
    own = types.SimpleNamespace(get_last_lr=lambda: [1.0], step=lambda: None)
    trainer = trainer_of(scheduler=own, max_steps=1, lr_scheduler_type="cosine", warmup_steps=3)
    trainer.train()
    assert trainer.lr_scheduler is own and trainer.rates == [1.0]


# The mean batch and the length of the job are the sampler's to know.
DEFAULTS = ['[lr]\nuse = "none"\n', '[lr]\nuse = "linear"\nschedule = ["cosine"]\nunit = "tokens"\n']


def rates_of_pliant(rates):
    """Those that the chain of rules gives for the batches of the job, of a group that begins with 0.05."""
    sampler = sampler_of(rates=rates)
    rule = pliant.LearningRate(sampler.config, sampler.batches.epoch(0).mean_batch())
    if rule.wants_job_length:
        rule.set_job_length(sampler.batches.job_length())
    made = []
    for step in range(sampler.batches.job_length().steps):
        size = sampler.batches.at_step(step).size
        made.append(rule.at(step, size, 0.05))
        rule.commit(step, size, None, 0.05)
    return made


@pytest.mark.parametrize("rates", DEFAULTS)
def test_a_trainer_takes_the_base_batch_and_the_end_of_the_job_from_the_sampler(trainer_of, rates):
    trainer = trainer_of(sampler_of(rates=rates))
    trainer.train()
    assert trainer.rates == pytest.approx(rates_of_pliant(rates))


# Accelerate.


class Shard:
    """Deals whole batches out in turn, as Accelerate's BatchSamplerShard."""

    def __init__(self, batch_sampler, num_processes, process_index):
        self.batch_sampler, self.num_processes, self.process_index = batch_sampler, num_processes, process_index

    def __iter__(self):
        for number, batch in enumerate(self.batch_sampler):
            if number % self.num_processes == self.process_index:
                yield batch

    def __len__(self):
        return len(self.batch_sampler) // self.num_processes


class Accelerator:
    def __init__(self, rank=0, world_size=1, accumulates=1, **settings):
        self.process_index, self.num_processes, self.gradient_accumulation_steps = rank, world_size, accumulates
        self.dataloader_config = types.SimpleNamespace(**settings)
        self.kept = []
        self.step = 9  # as a checkpoint counts micro-batches

    def prepare(self, loader):
        shard = Shard(loader.batch_sampler, self.num_processes, self.process_index)
        return torch.utils.data.DataLoader(loader.dataset, batch_sampler=shard, collate_fn=loader.collate_fn, generator=loader.generator)

    def register_for_checkpointing(self, one):
        self.kept.append(one)


@pytest.fixture
def accelerate(glue):
    return glue("accelerate", accelerate={"Accelerator": Accelerator})


@pytest.mark.parametrize("world_size", [1, 3])
def test_processes_see_all_of_their_shares_and_go_on_at_another_number(accelerate, world_size):
    def numbers(batches):
        return [i for batch in batches for i in set(batch["input_ids"][0].tolist()) if (batch["labels"] != -100).any()]

    found, states = [], []
    for rank in range(world_size):
        accelerator = Accelerator(rank, world_size)
        loader = accelerate.PackLoader(accelerator, sampler_of(rank, world_size), Tokens())
        iterator = iter(loader)
        found += numbers(next(iterator) for _ in range(2 * loader.sampler.micro_batches_per_step))
        states.append(accelerator.kept[0].state_dict())
    assert states == [states[0]] * world_size
    for rank in range(2):
        accelerator = Accelerator(rank, 2)
        loader = accelerate.PackLoader(accelerator, sampler_of(rank, 2), Tokens())
        accelerator.kept[0].load_state_dict(states[0])
        assert accelerator.kept[0].state_dict() == states[0]
        found += numbers(loader)
    assert sorted(found) == list(range(150))


def test_the_position_is_that_of_the_loop_and_of_the_whole_job(accelerate):
    loader = accelerate.PackLoader(Accelerator(), sampler_of(), Tokens(), whole_job=True)
    whole = seen_in(loader)
    assert len(whole) == len(loader)
    accelerator = Accelerator()
    iterator = iter(accelerate.PackLoader(accelerator, sampler_of(), Tokens(), whole_job=True))
    first = seen_in(next(iterator) for _ in range(len(whole) - 2 * sampler_of().micro_batches_per_step))
    again = accelerate.PackLoader(Accelerator(), sampler_of(), Tokens(), whole_job=True)
    again.load_state_dict(accelerator.kept[0].state_dict())
    assert first + seen_in(again) == whole


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_step_that_was_not_whole_begins_again(accelerate, world_size):
    loader = accelerate.PackLoader(Accelerator(0, world_size), sampler_of(0, world_size), Tokens())
    each = loader.sampler.micro_batches_per_step
    expected = seen_in(loader)
    iterator = iter(accelerate.PackLoader(Accelerator(0, world_size), begun := sampler_of(0, world_size), Tokens()))
    for _ in range(each + 1):
        last = next(iterator)
    accelerator = Accelerator(0, world_size)
    again = accelerate.PackLoader(accelerator, sampler_of(0, world_size), Tokens())
    again.load_state_dict(begun.state_after(last))
    assert accelerator.step == 0 and again.state_dict() == begun.state_at(0, 1)
    assert seen_in(again) == expected[each:]


def test_a_loader_of_packs_draws_no_random_numbers_of_the_program(accelerate):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    list(accelerate.PackLoader(Accelerator(), sampler_of(), Tokens()))
    assert torch.equal(before, torch.get_rng_state())


def test_what_accelerate_would_deal_out_again_or_cut_is_refused(accelerate):
    for wrong, words in ((Accelerator(1, 2), "process 1 of 2"), (Accelerator(accumulates=5), "gradient_accumulation_steps=5"),
                         (Accelerator(dispatch_batches=True), "dispatch_batches"), (Accelerator(split_batches=True), "split_batches"),
                         (Accelerator(use_stateful_dataloader=True), "use_stateful_dataloader")):
        with refused(words):
            accelerate.PackLoader(wrong, sampler_of(), Tokens())
        assert wrong.kept == []
    with refused("placeholders=True"):
        accelerate.PackLoader(Accelerator(0, 2), sampler_of(0, 2, placeholders=False), Tokens())


# Lightning.


@pytest.fixture
def lightning(glue):
    return glue("lightning", lightning={}, lightning__pytorch={}, lightning__pytorch__callbacks={"Callback": object})


def fit(packs, until=None, state=None, optimizers=1, **settings):
    """The micro-batches and the rates of a Trainer, which asks callbacks in the order of Lightning's."""
    options = {**packs.trainer_options, "global_rank": 0, "world_size": 1, **settings}
    trainer = types.SimpleNamespace(**options, optimizers=[torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.05) for _ in range(optimizers)])
    packs.setup(trainer, None, "fit")
    if state is not None:
        packs.load_state_dict(state)
    loader = packs.loader(Tokens())
    trainer.num_training_batches = settings.get("limit_train_batches", len(loader))
    packs.on_train_start(trainer, None)
    seen, rates = [], []
    for number, batch in enumerate(loader):
        packs.on_train_batch_start(trainer, None, batch, number)
        seen += seen_in([batch])
        if batch.position[2] == 0:
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        packs.on_train_batch_end(trainer, None, None, batch, number)
        if len(rates) == until and batch.position[2] == 0:
            break
    return seen, rates


def test_a_lightning_job_goes_on_behind_its_checkpoint_with_its_rates(lightning):
    def packs():
        return lightning.PackCallback(sampler_of(), inner=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9))

    whole = fit(packs())
    begun = packs()
    first = fit(begun, until=4)
    rest = fit(packs(), state=begun.state_dict())
    assert first[0] + rest[0] == whole[0] and first[1] + rest[1] == pytest.approx(whole[1])
    without = lightning.PackCallback(sampler_of(), with_rate=False)
    assert set(fit(without, optimizers=2)[1]) == {0.05} and without.state_dict()["scheduler"] is None


def test_a_second_fit_goes_on_from_a_checkpoint_alone(lightning):
    packs = lightning.PackCallback(sampler_of())
    first = fit(packs, until=3)
    with refused("has given micro-batches before", "another PackCallback and sampler", "ckpt_path"):
        fit(packs)
    assert first[0] + fit(packs, state=packs.state_dict())[0] == fit(lightning.PackCallback(sampler_of()))[0]


def test_a_checkpoint_of_lightning_within_a_step_begins_it_again(lightning):
    whole = fit(lightning.PackCallback(sampler_of()))
    packs = lightning.PackCallback(sampler_of())
    each = packs.sampler.micro_batches_per_step
    batches = iter(packs.loader(Tokens()))
    for _ in range(2 * each + 1):
        packs.on_train_batch_end(None, None, None, next(batches), 0)
    again = lightning.PackCallback(sampler_of())
    progress = {name: {"ready": 2 * each + 1, "completed": 2 * each} for name in ("current", "total")}
    again.state_key = "packs"
    again.on_load_checkpoint(None, None, {"callbacks": {"packs": packs.state_dict()}, "loops": {"fit_loop": {"epoch_loop.batch_progress": progress}}})
    assert progress == {name: {"ready": 2 * each, "completed": 2 * each - 1} for name in ("current", "total")}
    assert fit(again, state=packs.state_dict())[0] == whole[0][2 * each :]


@pytest.mark.parametrize("rates", DEFAULTS)
def test_a_lightning_job_takes_the_base_batch_and_the_end_of_the_job_from_the_sampler(lightning, rates):
    assert fit(lightning.PackCallback(sampler_of(rates=rates)))[1] == pytest.approx(rates_of_pliant(rates))


def test_what_lightning_would_compute_otherwise_is_refused(lightning):
    with refused("rank 1 of 2 for Lightning", "rank 0 of 1"):
        fit(lightning.PackCallback(sampler_of()), world_size=2, global_rank=1)
    with refused("accumulate_grad_batches=1", "micro-batches: set"):
        fit(lightning.PackCallback(sampler_of()), accumulate_grad_batches=1)
    with refused("2 optimizers", "with_rate=False"):
        fit(lightning.PackCallback(sampler_of()), optimizers=2)
    each = sampler_of().micro_batches_per_step
    with refused(f"takes {each + 1} micro-batches, and a step has {each}: .*limit_train_batches", f"a multiple of {each}, or Trainer.max_steps="):
        fit(lightning.PackCallback(sampler_of(), with_rate=False), limit_train_batches=each + 1)
    with refused("placeholders=True"):
        fit(lightning.PackCallback(sampler_of(0, 2, placeholders=False)), world_size=2)
    for given in ({"a": None}, torch.ones(1)):
        with refused(f"a {type(given).__name__} .*no position", r"packs.loader\(dataset\)"):
            lightning.PackCallback(sampler_of()).on_train_batch_start(None, None, given, 0)
    other = lightning.PackCallback(sampler_of(1, 2))
    other.setup(types.SimpleNamespace(), None, "validate")  # which has no packs


# torchtitan.


class StatefulDataLoader(torch.utils.data.DataLoader):
    def __init__(self, dataset, snapshot_every_n_steps=1, **keywords):
        super().__init__(dataset, **keywords)

    def state_dict(self):
        return self.batch_sampler.state_dict()

    def load_state_dict(self, state):
        self.batch_sampler.load_state_dict(state)


class ParallelAwareDataloader(StatefulDataLoader):
    @dataclasses.dataclass(kw_only=True)
    class Config:
        num_workers: int = 0
        persistent_workers: bool = False
        pin_memory: bool = False
        prefetch_factor: int | None = None

    def __init__(self, dataset, dp_rank, dp_world_size, **keywords):
        del keywords["persistent_workers"], keywords["prefetch_factor"]
        super().__init__(dataset, **keywords)


@pytest.fixture
def titan(glue, tmp_path):
    (tmp_path / "pliant.toml").write_text(TOML)
    module = glue("torchtitan", torchdata={}, torchdata__stateful_dataloader={"StatefulDataLoader": StatefulDataLoader}, torchtitan={},
                  torchtitan__components={}, torchtitan__components__dataloader={"ParallelAwareDataloader": ParallelAwareDataloader})

    def make(rank=0, world_size=1, seq_len=128, batch=1, job=None, samples=lambda tokenizer: Tokens()):
        config = module.PackLoader.Config(job=str(tmp_path / "pliant.toml") if job is None else job, samples=samples)
        return module.PackLoader(config, dp_world_size=world_size, dp_rank=rank, tokenizer="words", seq_len=seq_len, local_batch_size=batch,
                                 snapshot_every_n_steps=None)

    return make


def test_a_state_of_torchtitan_serves_another_data_parallel_size(titan):
    def numbers(batches):
        return [i for inputs, labels in batches for i in set(inputs["input"][0].tolist()) if (labels != -100).any()]

    loader = titan(1, 2)
    other = iter(titan(0, 2))
    iterator = iter(loader)
    found = numbers(next(one) for one in (iterator, other) for _ in range(2 * loader.batch_sampler._sampler.micro_batches_per_step))
    state = loader.state_dict()
    again = titan(0, 1)
    again.load_state_dict({})
    again.load_state_dict(state)
    assert sorted(found + numbers(again)) == sorted([*range(150)] * 2)


def test_a_config_of_torchtitan_that_cannot_be_is_refused(titan):
    for settings, words in (({"job": ""}, "needs `job`"), ({"samples": None}, "`samples`"), ({"batch": 2}, "local_batch_size is 2"),
                            ({"seq_len": 40}, "tokens, more than training.seq_len = 40"), ({"job": "absent.toml"}, "absent.toml")):
        with refused(words):
            titan(**settings)
    with refused("more than training.seq_len = 64"):  # of two rows in one micro-batch
        list(titan(seq_len=64))
