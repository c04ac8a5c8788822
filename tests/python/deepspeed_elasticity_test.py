"""Through pliant.deepspeed the recorded calls of compute_elastic_config give what DeepSpeed gave, value by value and class by class."""
import collections
import gzip
import hashlib
import json
import math
import os
import pathlib
import pickle
import subprocess
import sys

import pytest

import pliant
from pliant import deepspeed

GOLDEN = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "tests/parity/golden"
COUNTS = ("max_train_batch_size", "min_gpus", "max_gpus", "model_parallel_size", "num_gpus_per_node")
WIDEST = 9223372036854775295  # as a double below 2^63

# DeepSpeed's classes, and what the libraries that it uses have in place of a built-in one.
CLASSES = {
    "ElasticityError": deepspeed.ElasticityError,
    "ElasticityConfigError": deepspeed.ElasticityConfigError,
    "ElasticityIncompatibleWorldSize": deepspeed.ElasticityIncompatibleWorldSize,
    "AssertionError": AssertionError,
    "AttributeError": AttributeError,
    "InvalidVersion": ValueError,
    "JSONDecodeError": json.JSONDecodeError,
    "NotImplementedError": NotImplementedError,
    "OverflowError": OverflowError,
    "TypeError": TypeError,
    "UFuncTypeError": TypeError,
    "ValueError": ValueError,
    "ZeroDivisionError": ZeroDivisionError,
}


def rows(name):
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def is_wide(value):
    if isinstance(value, list):
        return any(is_wide(item) for item in value)
    return isinstance(value, int) and abs(value) > WIDEST


def rule_for(row):
    """The rule by which Pliant may refuse what DeepSpeed answers, or refuse it for another reason; by the input alone."""
    config = row["config"]
    block = config.get("elasticity") if isinstance(config, dict) else None
    block = block if isinstance(block, dict) else {}
    world_size = row["world_size"]
    if type(world_size) is int and world_size < 0:
        return "negative-world-size"
    sizes = block.get("micro_batch_sizes")
    environment = row["env"].get("WORLD_SIZE", "")
    wide = [block.get(key) for key in COUNTS] + [sizes, world_size, int(environment) if environment.isdecimal() else 0]
    if any(is_wide(value) for value in wide):
        return "int64"
    if isinstance(sizes, list) and sizes and all(type(size) is int and size > 0 for size in sizes):
        node = block.get("num_gpus_per_node", 1)
        if is_wide(math.lcm(*sizes) * (node if isinstance(node, int) else 1)):
            return "int64"
    return ""


def in_shape_of(expected, answer):
    """The answer as a row records one."""
    shown = {"final_batch_size": answer[0], "valid_gpus": None}
    sizes = answer[1]
    if sizes is not None:
        shown["valid_gpus"] = {"n": len(sizes), "all": sizes}
        if "sha256" in (expected.get("valid_gpus") or {}):
            text = ",".join(str(size) for size in sizes)
            shown["valid_gpus"] = {"n": len(sizes), "first": sizes[:8], "last": sizes[-8:],
                                   "sha256": hashlib.sha256(text.encode()).hexdigest()}
    if len(answer) == 3:
        shown["micro_batch_size"] = answer[2]
    return shown


def verdict(row):
    """ "" where the row holds, the rule that excuses it, or what differs."""
    expected = row["out"]
    try:
        answer = deepspeed.compute_elastic_config(row["config"], row["target_version"], row["world_size"], row["return_microbatch"])
    except (deepspeed.ElasticityError, ValueError, TypeError) as error:
        if "error" in expected and isinstance(error, CLASSES[expected["error"]["type"]]):
            return "", ""
        return rule_for(row), f"{row['id']}: {expected} but {type(error).__name__}: {error}"
    if type(answer) is not tuple or type(answer[0]) is not int or not all(type(size) is int for size in answer[1] or []):
        return "", f"{row['id']}: other types than DeepSpeed's: {answer}"
    actual = in_shape_of(expected, answer)
    return "", "" if actual == expected else f"{row['id']}: {expected} but {actual}"


def test_recorded_calls_give_what_deepspeed_gave(monkeypatch):
    counted = collections.Counter()
    wrong = []
    for row in rows("elasticity.jsonl.gz"):
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        for name, value in row["env"].items():
            monkeypatch.setenv(name, value)
        rule, difference = verdict(row)
        counted[rule or ("passed" if not difference else "failed")] += 1
        if difference and not rule:
            wrong.append(difference)
    assert not wrong, f"{len(wrong)} of {sum(counted.values())}: " + "\n".join(wrong[:20])
    assert counted == {"passed": 4194, "negative-world-size": 46, "int64": 7}


def test_recorded_comparisons_with_a_scheduler_end_as_deepspeeds(monkeypatch, caplog):
    passed = 0
    for row in rows("elasticity_immutable.jsonl.gz"):
        text, expected = row["env_DEEPSPEED_ELASTICITY_CONFIG"], row["out"]
        monkeypatch.delenv("DEEPSPEED_ELASTICITY_CONFIG", raising=False)
        if text is not None:
            monkeypatch.setenv("DEEPSPEED_ELASTICITY_CONFIG", text)
        caplog.clear()
        try:
            assert deepspeed.ensure_immutable_elastic_config(row["runtime"]) is None
        except (deepspeed.ElasticityError, ValueError) as error:
            assert "error" in expected, (row["id"], error)
            assert isinstance(error, CLASSES[expected["error"]["type"]]), (row["id"], error)
        else:
            assert expected.get("ok"), row["id"]
            assert bool(caplog.records) == expected.get("warned", False), row["id"]
        passed += 1
    assert passed == 120


def test_the_block_is_on_only_where_it_says_so():
    assert deepspeed.elasticity_enabled({}) is False
    assert deepspeed.elasticity_enabled({"elasticity": {}}) is False
    assert deepspeed.elasticity_enabled({"elasticity": {"enabled": True}}) is True


def test_errors_are_found_under_the_classes_that_programs_catch():
    with pytest.raises(deepspeed.ElasticityConfigError, match="max_train_batch_size"):
        deepspeed.compute_elastic_config({"elasticity": {"enabled": True}}, "0.19.6")
    block = {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "version": 0.1}
    with pytest.raises(deepspeed.ElasticityIncompatibleWorldSize, match="nearest valid: 10, 12"):
        deepspeed.compute_elastic_config({"elasticity": block}, "0.19.6", world_size=11)
    for caught in (ZeroDivisionError, deepspeed.ElasticityConfigError):  # a bare ZeroDivisionError helps nobody
        with pytest.raises(caught, match="world size"):
            deepspeed.compute_elastic_config({"elasticity": block}, "0.19.6", return_microbatch=True)


CONFIG = {
    "optimizer": {"type": "AdamW"},
    "elasticity": {"enabled": True, "version": 0.1, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "max_gpus": 64},
}


def test_a_resolved_config_has_the_batch_keys_and_no_block():
    before = json.dumps(CONFIG)
    assert deepspeed.resolve(CONFIG, 12) == {
        "optimizer": {"type": "AdamW"},
        "train_batch_size": 1680,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 35,
    }
    assert json.dumps(CONFIG) == before
    for size in deepspeed.compute_elastic_config(CONFIG, "0.19.6")[1]:
        made = deepspeed.resolve(CONFIG, size)
        assert made["train_batch_size"] == made["train_micro_batch_size_per_gpu"] * made["gradient_accumulation_steps"] * size == 1680


def test_a_block_that_is_off_is_taken_out_and_nothing_else_changes():
    plain = {"train_batch_size": 8, "fp16": {"enabled": True}}
    assert deepspeed.resolve(plain, 3) == plain
    assert deepspeed.resolve({**plain, "elasticity": {"enabled": False}}, 3) == plain


@pytest.mark.parametrize("key", ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"])
def test_a_batch_key_beside_the_block_is_refused_unless_the_block_says_that_it_counts(key):
    with pytest.raises(deepspeed.ElasticityConfigError, match=key):
        deepspeed.resolve({**CONFIG, key: 8}, 12)
    assert deepspeed.resolve({**CONFIG, key: "auto"}, 12) == deepspeed.resolve(CONFIG, 12)
    ignoring = {**CONFIG, "elasticity": {**CONFIG["elasticity"], "ignore_non_elastic_batch_info": True}, key: 8}
    assert deepspeed.resolve(ignoring, 12) == deepspeed.resolve(CONFIG, 12)


def test_a_world_size_that_the_plan_has_no_place_for_is_not_resolved():
    with pytest.raises(deepspeed.ElasticityIncompatibleWorldSize, match="nearest valid: 10, 12"):
        deepspeed.resolve(CONFIG, 11)
    for wrong in (0, -4):
        with pytest.raises(deepspeed.ElasticityConfigError, match="at least 1"):
            deepspeed.resolve(CONFIG, wrong)
    with pytest.raises(TypeError):
        deepspeed.resolve(CONFIG, 4.0)


def test_a_schedulers_block_that_differs_is_not_resolved(monkeypatch):
    monkeypatch.setenv("DEEPSPEED_ELASTICITY_CONFIG", json.dumps({**CONFIG["elasticity"], "max_train_batch_size": 1000}))
    with pytest.raises(deepspeed.ElasticityConfigError, match="max_train_batch_size is 2000"):
        deepspeed.resolve(CONFIG, 12)


def test_under_model_parallelism_the_rule_hardly_resolves_and_strict_does():
    block = {"enabled": True, "version": 0.2, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "num_gpus_per_node": 8,
             "model_parallel_size": 4}
    resolved, strict = 0, 0
    for size in range(2, 64, 2):
        for is_strict in (False, True):
            try:
                made = deepspeed.resolve({"elasticity": block}, size, strict=is_strict)
            except deepspeed.ElasticityIncompatibleWorldSize:
                continue
            assert made["train_batch_size"] == made["train_micro_batch_size_per_gpu"] * made["gradient_accumulation_steps"] * size
            resolved, strict = resolved + (not is_strict), strict + is_strict
    assert resolved < strict
    assert strict > 10


def test_a_batch_of_zero_is_deepspeeds_answer_and_no_config():
    block = {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6]}
    assert deepspeed.compute_elastic_config({"elasticity": block}, "0.19.6", 4000) == (0, [4000], 6)
    with pytest.raises(deepspeed.ElasticityIncompatibleWorldSize, match="strict=True"):
        deepspeed.resolve({"elasticity": block}, 4000)


def test_what_a_policy_says_against_its_answer_is_logged(caplog):
    block = {"enabled": True, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "max_gpus": 4, "num_gpus_per_node": 8}
    deepspeed.compute_elastic_config({"elasticity": block}, "0.19.6", 8)
    assert any(record.name == "pliant.deepspeed" and "max_gpus 4" in record.getMessage() for record in caplog.records)


def test_a_config_made_by_a_program_becomes_toml():
    config = pliant.Config.parse(deepspeed.to_toml(CONFIG), needs=["elasticity"])
    assert pliant.Planner(config).plan(12).global_batch == 1680
    with pytest.raises(pliant.Error):
        deepspeed.to_toml({"fp16": {"enabled": True}})


def test_errors_pickle():
    for made in (deepspeed.ElasticityIncompatibleWorldSize("no"), deepspeed._errors.ConfigAttributeError("none")):
        again = pickle.loads(pickle.dumps(made))
        assert (type(again), str(again)) == (type(made), str(made))


def test_the_elasticity_calls_load_neither_torch_nor_numpy_and_print_nothing():
    program = f"import sys\nfrom pliant.deepspeed import resolve\nresolve({CONFIG!r}, 12)\nassert not {{'torch', 'numpy'}} & set(sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
