"""VariableBatchSizeLR and the loaders of pliant.deepspeed give the recorded rates and samples of DeepSpeed's."""
import collections
import gzip
import json
import os
import pathlib

import pytest
import torch

from pliant.deepspeed import (
    VariableBatchSizeLR,
    batch_by_seqlens,
    dataloader_for_variable_batch_size,
    get_dataloader_and_lr_scheduler_for_variable_batch_size,
    get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed,
    lr_scheduler_for_variable_batch_size,
)

GOLDEN = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "tests/parity/golden/variable_batch.jsonl.gz"
SCHEDULERS = torch.optim.lr_scheduler
OF_TORCH = {
    "constant": lambda optimizer, _: optimizer,
    "StepLR": lambda optimizer, p: SCHEDULERS.StepLR(optimizer, **p),
    "ExponentialLR": lambda optimizer, p: SCHEDULERS.ExponentialLR(optimizer, **p),
    "CosineAnnealingLR": lambda optimizer, p: SCHEDULERS.CosineAnnealingLR(optimizer, **p),
    "LambdaLR_inv": lambda optimizer, p: SCHEDULERS.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
}

pytestmark = pytest.mark.filterwarnings("ignore")


def rows(kind):
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] == kind:
                yield row


class Recorded:
    """A scheduler of DeepSpeed's, which is no torch scheduler: it plays the unscaled rates that were recorded. As the original it keeps its
    step in its state, and its rates not."""

    def __init__(self, optimizer, row):
        self.optimizer = optimizer
        self._first = row["out"]["base_lrs"]
        self._rates = {entry["last_epoch"]: entry["last_lr"] for entry, call in zip(row["out"]["trace"], [None, *row["calls"]]) if call != "reload"}
        self._step = -1

    def get_lr(self):
        return self._first

    def get_last_lr(self):
        return self._last_lr

    def step(self, step=None):
        self._step = self._step + 1 if step is None else step
        self._last_lr = self._rates[self._step]
        for group, rate in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = rate

    def state_dict(self):
        return {"last_batch_iteration": self._step}

    def load_state_dict(self, state):
        self._step = state["last_batch_iteration"]


def scheduler_of(row):
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in row["optimizer_lrs"]]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    make = OF_TORCH.get(row["base_kind"], lambda optimizer, _: Recorded(optimizer, row))
    return lr_scheduler_for_variable_batch_size(row["base_batch_size"], row["batch_sizes"], None, make(optimizer, row["base_params"]), row["method"])


def assert_entry(scheduler, entry, row):
    near = {"rel": 1e-12, "abs": 0} if row["base_kind"] == "CosineAnnealingLR" else {"rel": 0, "abs": 0}
    assert scheduler.last_epoch == entry["last_epoch"], row["id"]
    assert scheduler.get_lr() == pytest.approx(entry["lrs"], **near), (row["id"], entry)
    assert scheduler.get_last_lr() == pytest.approx(entry["last_lr"], **near), (row["id"], entry)


def test_recorded_rates_are_deepspeeds_over_every_base_scheduler():
    passed = collections.Counter()
    for row in rows("lr_trace"):
        scheduler = scheduler_of(row)
        assert scheduler.base_lrs == row["out"]["base_lrs"], row["id"]
        assert_entry(scheduler, row["out"]["trace"][0], row)
        for call, entry in zip(row["calls"], row["out"]["trace"][1:]):
            if call == "reload":
                states = scheduler.state_dict(), scheduler.optimizer.state_dict()
                scheduler = scheduler_of(row)
                scheduler.load_state_dict(states[0])
                scheduler.optimizer.load_state_dict(states[1])
            else:
                scheduler.step(call)
            assert_entry(scheduler, entry, row)
        passed[row["base_kind"]] += 1
    assert sum(passed.values()) == 150
    assert len(passed) == 7


class Sample(tuple):
    """A number and a length."""

    def __len__(self):
        return self[1]


def test_recorded_loaders_give_each_rank_deepspeeds_samples():
    counted = collections.Counter()
    for row in rows("loader"):
        dataset = [Sample(sample) for sample in enumerate(row["seqlens"])]
        arguments = dict(
            dataset=dataset,
            microbatch_ids=[(batch, ids) for batch, ids in row["microbatch_ids"]],
            batch_max_seqlens=row["batch_max_seqlens"],
            dataloader_num_replicas=row["num_replicas"],
            dataloader_batch_size=row["dataloader_batch_size"],
            dataloader_num_workers=0,
            required_microbatches_of_same_seqlen=row["pad_to_batch_max"],
            sample_padding_fn=lambda sample, length: (sample[0], length),
        )
        if len(row["microbatch_ids"]) % row["num_replicas"] != 0:
            with pytest.raises(ValueError, match="cannot be shared evenly"):
                dataloader_for_variable_batch_size(dataloader_rank=0, **arguments)
            counted["rows-used-twice"] += 1
            continue
        given = []
        for rank in range(row["num_replicas"]):
            loader, io_arguments = dataloader_for_variable_batch_size(dataloader_rank=rank, **arguments)
            given.append([[[sample[0], sample[1]] for sample in batch] for batch in loader])
            assert set(io_arguments) == {"dataset", "batch_size", "pin_memory", "data_sampler", "collate_fn", "num_local_io_workers"}
        assert given == row["out"]["per_rank"], row["id"]
        counted["passed"] += 1
    assert counted == {"passed": 73, "rows-used-twice": 38}


def collate(samples):
    return torch.stack(samples)


def pad(sample, length):
    return torch.nn.functional.pad(sample, (0, length - len(sample)))


def sequences(count=40):
    return [torch.full((3 + number * 7 % 11,), number) for number in range(count)]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_and_scheduler_go_together_whatever_the_workers(workers):
    dataset = sequences()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    lengths = [len(sample) for sample in dataset]
    packs, sizes, longest = batch_by_seqlens(lengths, 20, effective_batch_size=4)
    seen = []
    for rank in range(2):
        loader, scheduler, _ = get_dataloader_and_lr_scheduler_for_variable_batch_size(
            dataset, lengths, 20, 4, dataloader_rank=rank, dataloader_num_replicas=2, dataloader_num_workers=workers, dataloader_batch_size=2,
            lr_scheduler_or_optimizer=optimizer, required_microbatches_of_same_seqlen=True, sample_padding_fn=pad, dataloader_collate_fn=collate)
        for step, batch in enumerate(loader):
            assert batch.shape[1] == longest[step]
            assert optimizer.param_groups[0]["lr"] == 0.1 * sizes[step] / 4
            seen.extend(batch[:, 0].tolist())
            optimizer.step()
            scheduler.step()
        optimizer.param_groups[0]["lr"] = 0.1
    assert sorted(seen) == sorted(sequence for _, pack in packs for sequence in pack)


def test_a_sample_longer_than_its_packed_length_is_named():
    loader, _ = dataloader_for_variable_batch_size([[1, 2, 3]], [(0, [0])], [2], dataloader_num_workers=0,
                                                   required_microbatches_of_same_seqlen=True, sample_padding_fn=pad)
    with pytest.raises(AssertionError, match="sample 0"):
        next(iter(loader))
    with pytest.raises(AssertionError, match="sample_padding_fn"):
        dataloader_for_variable_batch_size([[1]], [(0, [0])], [1], required_microbatches_of_same_seqlen=True)


def test_a_scheduler_over_neither_scheduler_nor_optimizer_is_refused():
    with pytest.raises(ValueError, match="object"):
        lr_scheduler_for_variable_batch_size(4, [4], None, object())


class Engine:
    """What the loaders ask of an engine of DeepSpeed's."""

    class Group:
        def rank(self):
            return 0

        def size(self):
            return 1

    def __init__(self, metrics_path):
        self._config = self
        self.data_efficiency_config = {
            "seed": 1234,
            "data_sampling": {
                "num_workers": 0,
                "pin_memory": False,
                "dynamic_batching": {
                    "enabled": True,
                    "metrics_path": str(metrics_path),
                    "max_tokens": 20,
                    "lr_scaling_method": "sqrt",
                    "min_batch_size": 1,
                    "max_batch_size": None,
                    "sequence_picking_order": "seqlen",
                    "verbose": False,
                },
            },
        }
        self.data_parallel_group = Engine.Group()
        self.lr_scheduler = None
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)

    def train_batch_size(self):
        return 4

    def train_micro_batch_size_per_gpu(self):
        return 2


def test_an_engine_says_what_the_loaders_need(tmp_path):
    dataset = sequences()
    lengths = [len(sample) for sample in dataset]
    engine = Engine(tmp_path)
    with pytest.raises(ValueError, match="batch_seqlens_fn"):
        get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(dataset, engine)
    expected, _, _ = batch_by_seqlens(lengths, 20, effective_batch_size=4, sequence_picking_order="seqlen")
    for given in ({"dataset_seqlens": lengths}, {"batch_seqlens_fn": lambda samples: torch.tensor([len(sample) for sample in samples])}):
        loader, scheduler, _ = get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(dataset, engine, **given)
        assert list(loader.dataset) == expected
        assert isinstance(scheduler, VariableBatchSizeLR) and scheduler.lr_scaling_method == "sqrt"
        assert [sample[0].item() for batch in loader for sample in batch] == [sequence for _, pack in expected for sequence in pack]


def test_the_metric_files_of_deepspeeds_analyser_are_read(tmp_path):
    (tmp_path / "seqlen").mkdir()
    values = [3 + number * 7 % 11 for number in range(40)]
    recorded = next(row for row in rows("seqlen_file") if row["dtype"] == "uint8" and len(row["values"]) == 1)
    header = bytearray(bytes.fromhex(recorded["out"]["idx_hex"])[:18])
    header += (40).to_bytes(8, "little") + (2).to_bytes(8, "little")
    header += b"".join((1).to_bytes(4, "little") for _ in values) + b"".join(place.to_bytes(8, "little") for place in range(40))
    header += (0).to_bytes(8, "little") + (40).to_bytes(8, "little")
    (tmp_path / "seqlen/seqlen_sample_to_metric.idx").write_bytes(bytes(header))
    (tmp_path / "seqlen/seqlen_sample_to_metric.bin").write_bytes(bytes(values))
    loader, _, _ = get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(sequences(), Engine(tmp_path))
    assert list(loader.dataset) == batch_by_seqlens(values, 20, effective_batch_size=4, sequence_picking_order="seqlen")[0]
    with pytest.raises(AssertionError, match="40 samples, the data set has 7"):
        get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed(sequences(7), Engine(tmp_path))
