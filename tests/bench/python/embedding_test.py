#!/usr/bin/env python3
"""Runs scripts/bench-embedding on few sequences, and with arguments that are wrong.

    embedding_test.py ROOT BUILD
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = sys.argv[1:3]
# As much of TRL's data_utils.py as is run of it without pyarrow: next fit.
TRL = """
def _pack_bfd(examples, seq_length):
    segment_tree = None
    bins = []
    for length, idx in zip(lengths.field(0).to_numpy(), lengths.field(1).to_numpy()):
        if not bins or bins[-1]["length"] + length > seq_length:
            bins.append({"ids": [], "length": 0})
        bins[-1]["ids"].append(idx)
        bins[-1]["length"] += length
    return bins
"""


def bench(*words):
    return subprocess.run([f"{ROOT}/scripts/bench-embedding", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class BenchEmbedding(unittest.TestCase):
    def test_all_that_this_machine_can_measure_is_in_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "trl").mkdir()
            (pathlib.Path(folder) / "trl/data_utils.py").write_text(TRL, encoding="utf-8")
            done = bench("--build", BUILD, "--sequences", "20000", "--repetitions", "1", "--imports", "2", "--trl", folder, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        rows = {row["what"]: row for row in document["rows"]}
        for begin in ("import pliant", "a micro-batch of 8 sequences: PackedBatchSampler, fixed", "size of a sampler's state", "state_dict()",
                      "to the first micro-batch of a job resumed in epoch 10", "an epoch planned: Python by", "an epoch planned: pliant.Batches, each million", "memory that Batches takes over 32"):
            self.assertTrue(any(what.startswith(begin) for what in rows), begin)
        self.assertEqual(len(rows["import pliant"]["values"]), 2)
        if importlib.util.find_spec("pyarrow") is None:  # else the whole function is run, and there is a part of it here
            self.assertIn("20,000 sequences, windows of 1000", rows["an epoch planned: by TRL, each million sequences"]["note"])
        self.assertLessEqual(rows["size of a sampler's state"]["median"], 1024)
        for row in document["rows"]:
            self.assertTrue(all(value > 0 for value in row["values"]) or "memory" in row["what"] or " adds " in row["what"], row)

    def test_wrong_arguments_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, said in ((["--build", folder], "has no Python package"),
                                (["--build", BUILD, "--trl", folder], "has no trl/data_utils.py"),
                                (["--build", BUILD, "--sequences", "3"], "at least 20000 are needed")):
                with self.subTest(said):
                    done = bench(*words)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
