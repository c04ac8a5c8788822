"""what is of a wrong type is refused in words of Python, whatever is called with it."""
import ast
import copy
import pathlib
import types

import numpy
import pytest
from conftest import lengths_of, toml

import pliant._core

WRONG = [None, 3, -1, 2**70, 1.5, float("nan"), True, "x", "\ud800", b"x", b"\xff", bytearray(b"x"), [], [None], ["x"], (), {}, {"a": 1}, set(),
         object(), int, lambda: 0, pathlib.Path("x"), range(3), numpy.array([1.5]), numpy.array(3), numpy.array([[1]]), numpy.array(["x"]),
         slice(1)]
# The words of C++ and of what binds it.
RAW = ("std::", "bad_cast", "bad_alloc", "basic_string", "vector", "nanobind", "nb_", "_M_", "what()", "terminate")


def made(folder):
    """One of everything."""
    config = pliant.Config.parse(toml(), sets=[f"run.log_dir={folder}/runs"])
    plan = pliant.plan(config)
    batches = pliant.Batches(config, plan, lengths_of())
    batch = batches.batch(0, 0)
    assignment = pliant.share_out(len(batch), world_size=1, micro_batch=2, granule=2)
    ledger = pliant.Ledger.begin(config, plan, batches)
    ledger.start_generation(1, "start")
    closed = pliant.Ledger.begin(config, plan, batches).directory
    sampler = pliant.PackedBatchSampler(config, lengths_of(), 0, 3)
    numpy.save(folder / "lengths.npy", numpy.array(lengths_of(), dtype="int32"))
    (folder / "job.toml").write_text(toml())
    return types.SimpleNamespace(
        closed=closed, config=config, plan=plan, batches=batches, batch=batch, assignment=assignment, ledger=ledger, sampler=sampler, folder=folder,
        rate=pliant.LearningRate(config), balancer=pliant.Balancer(config), planner=pliant.Planner(config), micro=next(iter(sampler)),
    )


SHARING = {"world_size": 1, "micro_batch": 2, "granule": 2, "deterministic": False, "in_turn": False}
OPEN = {"needs": None, "sets": [], "plugin_dirs": [], "read_environment": True}

# What is called, and arguments that fit, by name.
CALLS = {
    "Config.open": lambda all: (pliant.Config.open, {"file": all.folder / "job.toml", **OPEN}),
    "Config.parse": lambda all: (pliant.Config.parse, {"toml": toml(), **OPEN, "name": "x"}),
    "Config.with_sets": lambda all: (all.config.with_sets, {"sets": []}),
    "Config.has": lambda all: (all.config.has, {"section": "lr"}),
    "Config.use": lambda all: (all.config.use, {"section": "lr"}),
    "Config.app_int": lambda all: (all.config.app_int, {"key": "x"}),
    "Config.app_float": lambda all: (all.config.app_float, {"key": "x"}),
    "Config.app_bool": lambda all: (all.config.app_bool, {"key": "x"}),
    "Config.app_string": lambda all: (all.config.app_string, {"key": "x"}),
    "Config.check_app_keys": lambda all: (all.config.check_app_keys, {"known": []}),
    "Plan.valid": lambda all: (all.plan.valid, {"world_size": 1}),
    "Plan.__contains__": lambda all: (lambda world_size: world_size in all.plan, {"world_size": 1}),
    "Plan.largest_valid": lambda all: (all.plan.largest_valid, {"at_most": 1}),
    "Plan.smallest_valid": lambda all: (all.plan.smallest_valid, {"at_least": 1}),
    "Plan.explain_invalid": lambda all: (all.plan.explain_invalid, {"world_size": 9}),
    "Planner.__init__": lambda all: (pliant.Planner, {"config": all.config}),
    "Planner.plan": lambda all: (all.planner.plan, {"world_size": 1}),
    "make_plan": lambda all: (pliant._core.make_plan, {"config": all.config, "world_size": 1}),
    "share_of": lambda all: (pliant.share_of, {"rows": 12, "granule": 2, "world_size": 1, "rank": 0}),
    "BatchSize.__init__": lambda all: (pliant.BatchSize, dict.fromkeys(("rows", "sequences", "tokens", "loss_tokens", "padding_rows"), 1)),
    "BatchSize.__eq__": lambda all: (lambda other: all.batch.size == other, {"other": all.batch.size}),
    "JobLength.__init__": lambda all: (pliant.JobLength, {"steps": 1, "size": all.batch.size}),
    "Batch.row": lambda all: (all.batch.row, {"row": 0}),
    "Batch.__getitem__": lambda all: (lambda row: all.batch[row], {"row": 0}),
    "Batch.ids_of": lambda all: (all.batch.ids_of, {"rows": range(2)}),
    "Batches.__init__": lambda all: (pliant.Batches, {"config": all.config, "plan": all.plan, "lengths": lengths_of(), "loss_tokens": None,
                                                      "source": "", "content": 0, "state": None}),
    "Batches.at_step": lambda all: (all.batches.at_step, {"step": 0}),
    "Batches.batch": lambda all: (all.batches.batch, {"epoch": 0, "index": 0}),
    "Batches.rows": lambda all: (all.batches.rows, {"epoch": 0, "first": 0, "count": 1}),
    "Batches.epoch": lambda all: (all.batches.epoch, {"epoch": 0}),
    "Batches.dropped": lambda all: (all.batches.dropped, {"epoch": 0}),
    "Batches.truncated": lambda all: (all.batches.truncated, {"epoch": 0}),
    "Batches.has_step": lambda all: (all.batches.has_step, {"step": 0}),
    "Batches.load": lambda all: (all.batches.load, {"state": all.batches.save()}),
    "micro_batches": lambda all: (pliant.micro_batches, {"batch": all.batch, "rank": 0, "world_size": 1, "micro_batch": 2, "granule": 2,
                                                         "rows": "contiguous", "line": "row", "pad_to": "batch", "multiple": 8,
                                                         "even": False, "one_shape": False}),
    "Assignment.of": lambda all: (all.assignment.of, {"rank": 0}),
    "Assignment.__eq__": lambda all: (lambda other: all.assignment == other, {"other": all.assignment}),
    "Balancer.__init__": lambda all: (pliant.Balancer, {"config": all.config}),
    "Balancer.assign": lambda all: (all.balancer.assign, {"row_costs": [1] * 12, **SHARING}),
    "Balancer.predict": lambda all: (all.balancer.predict, {"row_costs": [1] * 12, **SHARING}),
    "row_costs": lambda all: (pliant.row_costs, {"batch": all.batch, "per_token": 1, "per_square": 0}),
    "share_out": lambda all: (pliant.share_out, {"rows": 12, **SHARING}),
    "waiting": lambda all: (pliant.waiting, {"row_costs": [1] * 12, "assignment": all.assignment}),
    "LearningRate.__init__": lambda all: (pliant.LearningRate, {"config": all.config, "mean_batch": all.batch.size}),
    "LearningRate.scaling": lambda all: (all.rate.scaling, {"step": 0, "size": all.batch.size, "base_lr": 0.1}),
    "LearningRate.at": lambda all: (all.rate.at, {"step": 0, "size": all.batch.size, "base_lr": 0.1}),
    "LearningRate.commit": lambda all: (all.rate.commit, {"step": 0, "size": all.batch.size, "norms": None, "base_lr": 0.1}),
    "LearningRate.set_job_length": lambda all: (all.rate.set_job_length, {"length": all.batches.job_length()}),
    "LearningRate.load": lambda all: (all.rate.load, {"state": all.rate.save()}),
    "SnapshotWriter.write": lambda all: (lambda data: all.ledger.keep_snapshot(lambda file: file.write(data)), {"data": b"x"}),
    "Ledger.begin": lambda all: (pliant.Ledger.begin, {"config": all.config, "plan": all.plan, "batches": all.batches}),
    "Ledger.open": lambda all: (pliant.Ledger.open, {"directory": all.closed, "config": all.config, "plan": all.plan, "batches": all.batches}),
    "Ledger.start_generation": lambda all: (all.ledger.start_generation, {"world_size": 1, "reason": "x"}),
    "Ledger.commit": lambda all: (all.ledger.commit, {"batch": all.batch, "assignment": all.assignment, "loss": 0.5, "learning_rate": 0.1}),
    "Ledger._keep_snapshot": lambda all: (all.ledger.keep_snapshot, {"state": b"x", "lr_state": b""}),
    "analyse_lengths": lambda all: (pliant.analyse_lengths, {"file": all.folder / "measured.npy", "count": 3, "length_of": lambda i: 5,
                                                             "identity": "x", "threads": 1, "progress": None}),
    "read_lengths": lambda all: (pliant.read_lengths, {"file": all.folder / "lengths.npy", "column": "length"}),
    # In Python.
    "plan": lambda all: (pliant.plan, {"config": all.config, "world_size": 1, "sets": []}),
    "PackedBatchSampler": lambda all: (pliant.PackedBatchSampler, {"config": all.config, "lengths": lengths_of(), "rank": 0, "world_size": 1,
                                                                   "loss_tokens": None, "source": "", "content": 0, "placeholders": False}),
    "PackedBatchSampler.whole_job": lambda all: (all.sampler.whole_job, {"epochs": 2}),
    "PackedBatchSampler.set_epoch": lambda all: (all.sampler.set_epoch, {"epoch": 0}),
    "PackedBatchSampler.load_state_dict": lambda all: (all.sampler.load_state_dict, {"state": all.sampler.state_dict()}),
    "PackedBatchSampler.state_after": lambda all: (all.sampler.state_after, {"batch": all.micro}),
    "PackedBatchSampler.state_before": lambda all: (all.sampler.state_before, {"batch": all.batch}),
    "PackedBatchSampler.batch_of": lambda all: (all.sampler.batch_of, {"batch": all.micro}),
    "PackedBatchSampler.size_of": lambda all: (all.sampler.size_of, {"batch": all.micro}),
    "PackedBatchSampler.assignment": lambda all: (all.sampler.assignment, {"batch": all.batch}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_type_is_refused_or_taken_and_nothing_of_cpp_is_seen(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)  # "x" may be a file to write
    all_of = made(tmp_path)
    call, fits = CALLS[name](all_of)
    call(**fits)
    refused = 0
    for argument in fits:
        for number, value in enumerate(WRONG):
            call, fits = CALLS[name](all_of)
            try:
                call(**{**fits, argument: value})
            except (TypeError, ValueError, IndexError, OverflowError, pliant.Error) as failure:
                refused += 1
                assert str(failure) and not any(word in str(failure) for word in RAW), (argument, number, value, failure)
    assert refused or "__eq__" in name


ELASTIC_CONFIG = {"elasticity": {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "min_gpus": 1, "max_gpus": 100,
                                 "min_time": 20, "version": 0.1}}
DEEPSPEED = {
    "compute_elastic_config": {"ds_config": ELASTIC_CONFIG, "target_deepspeed_version": "0.6.0", "world_size": 0, "return_microbatch": False},
    "elasticity_enabled": {"ds_config": ELASTIC_CONFIG},
    "resolve": {"ds_config": ELASTIC_CONFIG, "world_size": 2},
    "to_toml": {"ds_config": ELASTIC_CONFIG},
    "batch_by_seqlens": {"seqlens": [5, 6, 7, 8], "max_tokens": 16, "sequence_ids_per_mb": None, "min_batch_size": 1, "max_batch_size": None,
                         "sequence_picking_order": "dataloader", "effective_batch_size": 1, "seed": None},
    "scale_lr": {"base_batch_size": 8, "batch_size": 16, "base_lr": 0.1, "method": "linear"},
}


@pytest.mark.parametrize("name", DEEPSPEED)
def test_so_it_is_with_the_functions_of_deepspeed(name):
    import pliant.deepspeed

    call = getattr(pliant.deepspeed, name)
    fits = DEEPSPEED[name]
    call(**copy.deepcopy(fits))
    for argument in fits:
        for value in WRONG:
            try:
                call(**{**copy.deepcopy(fits), argument: value})
            except Exception as failure:  # of DeepSpeed's classes, or of Python's
                assert not isinstance(failure, (RuntimeError, SystemError, MemoryError)) or isinstance(failure, NotImplementedError), failure
                assert not any(word in str(failure) for word in RAW), (argument, value, failure)


# What takes something in a job alone: elastic_session_test.py tries it there.
IN_JOBS = {"Session.attach", "Session.attach_at", "Session.busy", "Session.evaluated", "Session.end_after_step", "Session.on_snapshot",
           "Session.start", "Session.coming", "Step.scaling", "Step.add", "Step.add_piece", "Step.backward", "Step.metric",
           "Busy.__exit__"}
# What needs a run with a snapshot: snapshot_export_test.py.
IN_JOBS |= {"export_snapshot"}
# Only pliant.torch calls them.
IN_JOBS |= {f"ShardedModel.{name}" for name in ("__init__", "add_parameter", "add_module", "import_safetensors", "export_safetensors", "begin_pass",
                                                "repeat_pass", "enter", "leave", "addresses", "gradient_addresses", "prefetch", "fetch", "release",
                                                "read", "write", "update", "visit_owned")}


def test_the_table_has_every_function_that_takes_something():
    stub = ast.parse(pathlib.Path(pliant._core.__file__).with_name("_core.pyi").read_text())
    known = set()
    for node in stub.body:
        of = [("", node)] if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.ClassDef):
            of = [(f"{node.name}.", one) for one in node.body if isinstance(one, ast.FunctionDef)]
        for before, function in of:
            taken = [one.arg for one in function.args.args + function.args.kwonlyargs if one.arg != "self"]
            if (taken or len(function.args.posonlyargs) > 1) and not (function.name.startswith("_") and not function.name.endswith("__")):
                known.add(before + function.name)
    assert known - set(CALLS) == IN_JOBS
