#!/usr/bin/env python3
"""Runs scripts/bench-packers on few sequences: alone, with made-up source trees, and with arguments that are wrong.

    packers_test.py ROOT PLIANT
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, PLIANT = sys.argv[1:3]
HAS_NUMPY, HAS_PYARROW = (importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow"))

DEEPSPEED = """
import numpy as np
from torch.utils.data import DataLoader
from deepspeed.utils import logger
from deepspeed.runtime.constants import *

class Loader(DataLoader):
    pass

def batch_by_seqlens(seqlens, max_tokens):
"""
TRL = """
from collections import defaultdict, deque
import pyarrow.compute as pc
from datasets import Dataset

def _pack_bfd(examples, seq_length):
    lengths = pc.sort(examples)
    segment_tree = None
    bins = []
    for length, idx in zip(lengths.field(0).to_numpy(), lengths.field(1).to_numpy()):
        if not bins or bins[-1]["length"] + length > seq_length:
            bins.append({"ids": [], "length": 0})
        bins[-1]["ids"].append(idx)
        bins[-1]["length"] += length
    return pc.take(examples, bins)
"""
FAIRSEQ = """
import numpy as np
cimport cython
cimport numpy as np
from libc.stdint cimport int32_t, int64_t

@cython.boundscheck(False)
cpdef list batch_by_size_vec(
    np.ndarray[int64_t, ndim=1] indices,
    np.ndarray[int64_t, ndim=1] num_tokens_vec,
    int64_t max_tokens,
    int64_t max_sentences,
    int32_t bsz_mult,
):
    cdef int32_t count = indices.shape[0]
    cdef np.ndarray[int32_t, ndim=1] ends = \\
            np.arange(count, dtype=np.int32)
    cdef int32_t[:] view = ends
    return np.split(indices, view[1:])


@cython.boundscheck(False)
cpdef list batch_by_size_fn(
    num_tokens_fn,
):
    return []
"""


def bench(*words):
    command = [f"{ROOT}/scripts/bench-packers", "--pliant", PLIANT, "--repetitions", "1", "--python", sys.executable]
    command += map(str, words)
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class BenchPackers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tree(self, path, text):
        file = self.folder / path
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        return self.folder

    def deepspeed(self, body, *words):
        tree = self.tree("deepspeed/runtime/data_pipeline/data_sampling/variable_batch_size_and_lr.py",
                         DEEPSPEED + "".join(f"    {line}\n" for line in body.splitlines()))
        done = bench("--deepspeed", tree, "--lengths", "wiki", "--budgets", 512, "--json", *words)
        document = json.loads(done.stdout)
        return done, document, [row for row in document["rows"] if row["packer"] == "DeepSpeed"]

    def test_ours_alone(self):
        done = bench("--sizes", "40,300", "--budgets", "512,700", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["left_out"],
                         {"TRL": "no --trl", "fairseq": "no --fairseq", "DeepSpeed": "no --deepspeed"})
        rows = document["rows"]
        self.assertEqual(len(rows), 2 * 2 * 2 * 6)
        for row in rows:
            self.assertEqual(row["lost"], 1 if row["packer"] == "seqlen" else 0)
        for next_fit, best_fit in zip(rows[0::6], rows[1::6]):
            self.assertLessEqual(best_fit["packs"], next_fit["packs"])
            self.assertGreaterEqual(best_fit["efficiency"], next_fit["efficiency"])

    def test_lengths_of_a_file(self):
        (self.folder / "some.txt").write_text("7\n5\n4\n\n900\n", encoding="utf-8")
        done = bench("--file", self.folder / "some.txt", "--budgets", "9")
        self.assertEqual(done.returncode, 0, done.stderr)
        row = next(line for line in done.stdout.splitlines() if line.startswith("| best_fit | some | 9 |"))
        self.assertIn("| 4 | 3 | 92.59 % |", row)

    def test_a_peer_that_loses_a_sequence(self):
        done, _, rows = self.deepspeed("return [(0, [i]) for i in range(len(seqlens) - 1)], [], []", "--sizes", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(row["sequences"], row["packs"], row["lost"], row["like"]) for row in rows], [(20, 19, 1, "seqlen")])

    def test_wrong_packings_are_found(self):
        for body, words in (("return [(0, [0, 1]), (0, [1])], [], []", "in two packs"),
                            ("return [(0, range(len(seqlens)))], [], []", "of 512 tokens"),
                            ("return [(0, [len(seqlens)])], [], []", "is none of the data")):
            with self.subTest(words):
                self.setUp()
                done, _, rows = self.deepspeed(body, "--sizes", "20")
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, rows[0]["wrong"])

    def test_a_slow_peer_packs_what_it_can(self):
        body = "while len(seqlens) > 500: pass\nreturn [(0, [i]) for i in range(len(seqlens))], [], []"
        done, _, rows = self.deepspeed(body, "--sizes", "2000,3000", "--seconds-limit", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["sequences"] for row in rows], [500])
        self.assertIn("500 of 2,000 in 1 s", rows[0]["notes"])

    def test_a_peer_that_fails_is_left_out(self):
        _, document, rows = self.deepspeed("raise ValueError('no such thing')", "--sizes", "20")
        self.assertEqual((document["left_out"]["DeepSpeed"], rows), ("ValueError: no such thing", []))

    @unittest.skipUnless(HAS_NUMPY, "no numpy")
    def test_fairseq_compiled_or_as_plain_python(self):
        self.tree("fairseq/data/data_utils_fast.pyx", FAIRSEQ)
        done = bench("--fairseq", self.folder, "--sizes", "30", "--lengths", "wiki", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [row for row in json.loads(done.stdout)["rows"] if not row["ours"]]
        self.assertEqual([(row["packs"], row["lost"]) for row in rows], [(30, 0)] * 6)

    @unittest.skipUnless(HAS_NUMPY and not HAS_PYARROW, "no numpy, or pyarrow besides")
    def test_the_loop_of_trl_without_pyarrow(self):
        self.tree("trl/data_utils.py", TRL)
        (self.folder / "ones.txt").write_text("1\n" * 1001, encoding="utf-8")
        done = bench("--trl", self.folder, "--file", self.folder / "ones.txt", "--budgets", 2000, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [row for row in json.loads(done.stdout)["rows"] if not row["ours"]]
        self.assertEqual([(row["packs"], row["lost"]) for row in rows], [(2, 0), (1, 0)])
        self.assertIn("pyarrow", rows[0]["notes"][0])

    @unittest.skipIf(HAS_NUMPY, "numpy is there")
    def test_without_numpy_two_peers_are_left_out(self):
        self.tree("trl/data_utils.py", TRL)
        self.tree("fairseq/data/data_utils_fast.pyx", FAIRSEQ)
        done = bench("--trl", self.folder, "--fairseq", self.folder, "--sizes", "30", "--lengths", "wiki", "--budgets", 512)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Left out: TRL, one window: this Python has no numpy", done.stdout)
        self.assertIn("Left out: fairseq, sorted: this Python has no numpy", done.stdout)

    def test_wrong_arguments_are_refused(self):
        (self.folder / "bad.txt").write_text("7\n-5\n", encoding="utf-8")
        for words, said in ((["--trl", "/no/such/folder"], "--trl /no/such/folder: there is no such folder"),
                            (["--fairseq", self.folder], "has no fairseq/data/data_utils_fast.pyx; give the root of a checkout"),
                            (["--deepspeed", PLIANT], "there is no such folder"),
                            (["--lengths", "books"], "'books' is unknown; allowed are wiki, lognormal"),
                            (["--sizes", "10,0"], "'10,0' is not one or more numbers"),
                            (["--seconds-limit", "0"], "'0' is no time"),
                            (["--file", self.folder / "none.npy"], "No such file"),
                            (["--file", self.folder / "bad.txt"], "'-5' is no length"),
                            (["--python", "/no/such/python"], "--python /no/such/python: cannot be run")):
            with self.subTest(words):
                done = bench(*words)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
