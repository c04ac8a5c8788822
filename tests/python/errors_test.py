"""an error has its status, its exit code, and each finding with its place."""
import pickle

import pytest
from conftest import toml


def test_all_findings_of_a_config_come_at_once_each_with_its_place(pliant):
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.parse("config_version = 1\n[rum]\nx = 1\n[run]\nworker = 3\nseed = \"a\"\n", name="job.toml")
    error = caught.value
    assert error.status is pliant.Status.INVALID_ARGUMENT
    assert error.exit_code == 2
    assert [(finding.place, finding.line, finding.column) for finding in error.findings] == [
        ("job.toml", 2, 2), ("job.toml", 5, 1), ("job.toml", 6, 8)]
    assert "unknown section [rum]" in error.findings[0].message
    assert "did you mean 'workers'" in error.message


def test_a_finding_of_a_set_has_the_set_as_its_place(pliant):
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.parse("config_version = 1\n", sets=["run.workers=abc"])
    (finding,) = caught.value.findings
    assert finding.place == "--set run.workers=abc" and finding.line == 0


def test_an_error_that_is_not_about_a_config_has_no_findings(pliant, config):
    with pytest.raises(pliant.Error) as caught:
        pliant.plan(config, 7)
    assert caught.value.status == pliant.Status.INCOMPATIBLE_WORLD_SIZE
    assert caught.value.exit_code == 2
    assert caught.value.findings == []
    assert "valid are 1 to 6" in str(caught.value)


def test_findings_are_not_read_from_the_words_of_a_message(pliant):
    assert pliant.Error("job.toml:2:1: error: unknown section [rum]").findings == []
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.parse("config_version = 1\n[run]\n" + "".join(f"wrong_{i} = 1\n" for i in range(150)), name="job.toml")
    assert [(finding.place, finding.line, finding.column) for finding in caught.value.findings] == [("job.toml", 3 + i, 1) for i in range(150)]
    assert caught.value.message.count(": error: ") == 100
    assert "job.toml: 50 more errors" in caught.value.message


def test_a_missing_file_and_a_missing_plugin_have_their_exit_codes(pliant, tmp_path):
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.open(tmp_path / "none.toml")
    assert (caught.value.status, caught.value.exit_code) == (pliant.Status.NOT_FOUND, 2)
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.parse('config_version = 1\n[sampler]\nuse = "no_such"\n')
    assert (caught.value.status, caught.value.exit_code) == (pliant.Status.NOT_FOUND, 3)


def test_an_error_pickles(pliant):
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.parse("config_version = 1\n[rum]\n")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is pliant.Error
    assert (again.message, again.status, again.exit_code, again.findings) == (
        caught.value.message, caught.value.status, caught.value.exit_code, caught.value.findings)


def test_what_is_of_another_type_is_a_type_error(pliant, config):
    for call in (lambda: pliant.Config.parse(3), lambda: pliant.plan(config, "3"), lambda: pliant.Planner("x"),
                 lambda: pliant.Batches(config, None, [1]), lambda: pliant.Config.open(3), lambda: config.has(None)):
        with pytest.raises(TypeError):
            call()


def test_numbers_that_cannot_be_are_refused(pliant, config):
    plan = pliant.plan(config, 3)
    batch = next(pliant.Batches(config, plan, [5] * 100))
    for call in (lambda: pliant.plan(config, -1), lambda: pliant.share_out(8, world_size=0),
                 lambda: pliant.micro_batches(batch, rank=0, world_size=3, micro_batch=0),
                 lambda: pliant.micro_batches(batch, rank=3, world_size=3, micro_batch=2),
                 lambda: pliant.micro_batches(batch, rank=0, world_size=3, micro_batch=2, line="word"),
                 lambda: pliant.BatchSize(rows=-1), lambda: pliant.PackedBatchSampler(config, [5] * 100, 3, 3)):
        with pytest.raises(pliant.Error):
            call()
    with pytest.raises(IndexError):
        batch.row(len(batch))
    with pytest.raises(IndexError):
        pliant.share_out(8, world_size=2).of(2)


def test_an_option_of_the_config_is_named(pliant):
    with pytest.raises(pliant.Error) as caught:
        pliant.Config.parse(toml().replace("max_tokens = 64", "max_tokens = 0"))
    assert "max_tokens" in caught.value.findings[0].message
