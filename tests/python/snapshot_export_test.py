"""a program takes the best snapshot of a run, or another one, as a .safetensors file, and what cannot be taken is refused in words."""
import json
import os
import pathlib
import shutil
import types

import elastic_jobs
import pytest
from process_test import another_runs, interrupted  # noqa: F401 (fixtures)
from wrong_types_test import RAW, WRONG

BEST = 8
MEASURED = f"""
    session.start(LENGTHS, state=toy)
    for step in session:
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
            session.evaluated("distance", abs(step.index + 1 - {BEST}))
            if step.rank == 0:
                pathlib.Path(f"at-{{step.index + 1}}").write_bytes(toy.weights.tobytes())
    keep(toy)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One whose snapshots of its best step and of its last one are there, and what its weights were after each step."""
    folder = tmp_path_factory.mktemp("export") / "job"
    ended = elastic_jobs.run(folder, MEASURED, workers=2, settings='snapshot_every = 4\nkeep_snapshots = 1\nkeep_best = "distance"')
    assert ended.code == 0, ended.err + ended.said
    run = folder / "pliant-runs" / "job" / "latest"
    assert ended.summary["best_snapshot"]["step"] == BEST
    return types.SimpleNamespace(run=run, best=run / ended.summary["best_snapshot"]["file"],
                                 weights={step: (folder / f"at-{step}").read_bytes() for step in (BEST, elastic_jobs.STEPS)})


def read(file):
    """Metadata, and the bytes of each tensor."""
    data = pathlib.Path(os.fsdecode(file)).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__")
    return metadata, {name: data[begin + one["data_offsets"][0]: begin + one["data_offsets"][1]] for name, one in header.items()}


def test_the_best_snapshot_is_that_of_the_best_step_and_the_newest_that_of_the_last(pliant, job, tmp_path):
    file = tmp_path / "best.safetensors"
    assert pliant.export_snapshot(job.run, file, best=True) == BEST
    metadata, tensors = read(file)
    assert tensors == {"weights": job.weights[BEST]}
    assert (metadata["step"], metadata["metric"], float(metadata["value"])) == (str(BEST), "distance", 0)
    assert pliant.export_snapshot(str(job.run), os.fsencode(file), replace=True) == elastic_jobs.STEPS
    metadata, tensors = read(file)
    assert tensors == {"weights": job.weights[elastic_jobs.STEPS]} and "metric" not in metadata
    assert job.weights[BEST] != job.weights[elastic_jobs.STEPS]


def test_a_snapshot_is_taken_by_its_step_or_its_file(pliant, job, tmp_path):
    assert pliant.export_snapshot(job.run, tmp_path / "step", step=BEST) == BEST
    assert pliant.export_snapshot(job.best, tmp_path / "file") == BEST
    assert read(tmp_path / "step") == read(tmp_path / "file") and read(tmp_path / "step")[1] == {"weights": job.weights[BEST]}


def test_what_cannot_be_taken_is_refused_with_what_to_do_and_leaves_no_file(pliant, job, tmp_path):
    S, refused, file = pliant.Status, elastic_jobs.refused, tmp_path / "made"
    unmeasured, without = tmp_path / "unmeasured", tmp_path / "without"
    for copy, keep_best in ((unmeasured, 'keep_best = "other"'), (without, "")):
        shutil.copytree(job.run, copy)
        (copy / "config.toml").write_text(f"config_version = 1\n[run]\n{keep_best}\n")
    calls = [
        (lambda: pliant.export_snapshot(tmp_path / "nowhere", file), S.NOT_FOUND, "nowhere does not exist", "give the directory of a run"),
        (lambda: pliant.export_snapshot(tmp_path, file), S.NOT_FOUND, "has no ledger.jsonl", "give the directory of a run"),
        (lambda: pliant.export_snapshot(job.run, file, step=12), S.NOT_FOUND, "has no snapshot of step 12", "there are snapshots of step 8, 20"),
        (lambda: pliant.export_snapshot(unmeasured, file, best=True), S.NOT_FOUND, "no snapshot of", "has a finite value of other"),
        (lambda: pliant.export_snapshot(without, file, best=True), S.FAILED_PRECONDITION, "keep_best is not set", "Take the newest one"),
        (lambda: pliant.export_snapshot(job.run, file, best=True, step=BEST), S.INVALID_ARGUMENT, "choose one"),
        (lambda: pliant.export_snapshot(job.best, file, best=True), S.INVALID_ARGUMENT, "only of the directory of a run can a snapshot be chosen"),
        (lambda: pliant.export_snapshot(job.run, ""), S.INVALID_ARGUMENT, "the name of the file to write is empty"),
        (lambda: pliant.export_snapshot(job.run, tmp_path / "none" / "made"), S.NOT_FOUND, "none/made: folder", "does not exist"),
        (lambda: pliant.export_snapshot(job.run, tmp_path, replace=True), S.FAILED_PRECONDITION, "is a directory; name a file"),
    ]
    before = sorted(tmp_path.iterdir())
    for call, status, *words in calls:
        assert refused(call, status, *words) is True
    assert sorted(tmp_path.iterdir()) == before
    file.write_bytes(b"old")
    assert refused(lambda: pliant.export_snapshot(job.run, file), S.FAILED_PRECONDITION, "made exists already; choose another name", "replace") is True
    assert file.read_bytes() == b"old"
    with pytest.raises(pliant.Error) as caught:
        pliant.export_snapshot(tmp_path / "nowhere", file)
    assert caught.value.exit_code == 2


def test_a_damaged_snapshot_is_refused(pliant, job, tmp_path):
    damaged = tmp_path / "damaged.snapshot"
    damaged.write_bytes(job.best.read_bytes()[:-20])
    assert elastic_jobs.refused(lambda: pliant.export_snapshot(damaged, tmp_path / "made"), pliant.Status.DATA_LOSS, "damaged.snapshot") is True
    assert not (tmp_path / "made").exists()


def test_another_thread_runs_meanwhile(pliant, job, tmp_path, another_runs):  # noqa: F811
    assert another_runs(lambda: pliant.export_snapshot(job.run, tmp_path / "made", replace=True))


def test_an_interrupt_comes_out_and_the_file_is_whole(pliant, job, tmp_path, interrupted):  # noqa: F811
    file = tmp_path / "made"
    interrupted(lambda: pliant.export_snapshot(job.run, file, best=True, replace=True))
    assert read(file)[1] == {"weights": job.weights[BEST]}
    assert [one.name for one in tmp_path.iterdir()] == ["made"]


def test_a_wrong_type_is_refused_or_taken_and_nothing_of_cpp_is_seen(pliant, job, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # "x" is a file to write
    fits = {"run": job.run, "file": tmp_path / "made", "best": False, "step": BEST, "replace": True}
    assert pliant.export_snapshot(**fits) == BEST
    for argument in fits:
        refused = 0
        for number, value in enumerate(WRONG):
            try:
                pliant.export_snapshot(**{**fits, argument: value})
            except (TypeError, ValueError, OverflowError, pliant.Error) as failure:
                refused += 1
                assert str(failure) and not any(word in str(failure) for word in RAW), (argument, number, value, failure)
        assert refused, argument
