#!/usr/bin/env python3
"""Runs scripts/bench-embedding on few sequences, and with arguments that are wrong.

    embedding_test.py ROOT BUILD
"""
import json
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = sys.argv[1:3]


def bench(*words):
    return subprocess.run([f"{ROOT}/scripts/bench-embedding", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class BenchEmbedding(unittest.TestCase):
    def test_all_that_this_machine_can_measure_is_in_the_table(self):
        done = bench("--build", BUILD, "--sequences", "20000", "--repetitions", "1", "--imports", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        rows = {row["what"]: row for row in document["rows"]}
        for begin in ("import pliant", "a micro-batch of 8 sequences: PackedBatchSampler, fixed", "size of a sampler's state", "state_dict()",
                      "to the first micro-batch of a job resumed in epoch 10", "an epoch planned: Python by", "memory that Batches takes over 32"):
            self.assertTrue(any(what.startswith(begin) for what in rows), begin)
        self.assertEqual(len(rows["import pliant"]["values"]), 2)
        self.assertLessEqual(rows["size of a sampler's state"]["median"], 1024)
        for row in document["rows"]:
            self.assertTrue(all(value > 0 for value in row["values"]) or "memory" in row["what"] or " adds " in row["what"], row)

    def test_wrong_arguments_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, said in ((["--build", folder], "has no Python package"),
                                (["--build", BUILD, "--sequences", "3"], "at least 20000 are needed")):
                with self.subTest(said):
                    done = bench(*words)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
