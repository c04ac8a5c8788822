#!/usr/bin/env python3
"""Runs scripts/bench-elasticity on few, small steps, and checks its arithmetic and that it sees two runs that differ.

    elasticity_test.py ROOT BUILD
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = sys.argv[1:3]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import elasticity  # noqa: E402

THOROUGH = "PLIANT_THOROUGH_TESTS" in os.environ  # each worker of tinylm takes a second before it does anything
HAS_TINYLM = pathlib.Path(BUILD, "bench/bare_tinylm").exists()
SMALL = ["app.dim=32", "app.layers=1", "app.heads=2", "app.warmup_steps=2"]


def text_of_few_words(lines):
    words = "the river runs down to old mill where children laugh and a grey heron waits for small fish".split()
    made = random.Random(7)
    return "".join("So " + " ".join(made.choices(words, k=made.randint(4, 30))) + ".\n" for _ in range(lines))


def bench(*words, folder):
    command = [f"{ROOT}/scripts/bench-elasticity", "--build", BUILD, *map(str, words)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=dict(os.environ, XDG_CACHE_HOME=str(folder)))


class Arithmetic(unittest.TestCase):
    def test_a_spread_is_the_median_and_both_ends(self):
        self.assertEqual(elasticity.spread([4.0, 1.0, 9.0, 2.0]), {"n": 4, "median": 3.0, "least": 1.0, "largest": 9.0})

    def test_ratios_are_of_the_runs_of_one_round(self):
        found = elasticity.ratios([10.0, 30.0, 20.0], [20.0, 30.0, 10.0])
        self.assertEqual(found, {"n": 3, "median": 1.0, "least": 0.5, "largest": 2.0})
        with self.assertRaises(ValueError):
            elasticity.ratios([1.0], [1.0, 2.0])

    def test_a_usual_step_is_the_mean_of_all_but_the_first(self):
        commits = [{"tokens": tokens} for tokens in (1000, 30, 50, 40)]
        self.assertAlmostEqual(elasticity.usual_step({"tokens_per_second": 20.0}, commits), 2.0)

    def test_what_falls_with_the_workers_is_fitted(self):
        found = elasticity.fit([(1, 110.0), (2, 60.0), (4, 35.0)])
        self.assertAlmostEqual(found["a"], 10.0)
        self.assertAlmostEqual(found["b"], 100.0)

    def test_losses_of_the_loop_must_be_those_of_the_job_to_the_bit(self):
        elasticity.check_same([1.0, 2.0], [1.0, 2.0], "it")
        for losses, step in (([1.0, 2.0000000000000004], 1), ([1.0], 1), ([1.0, 2.0, 3.0], 2)):
            with self.assertRaisesRegex(elasticity.Wrong, f"it has not the losses of the job: .* of step {step} "):
                elasticity.check_same(losses, [1.0, 2.0], "it")

    def test_losses_of_a_peer_must_begin_as_those_of_the_job(self):
        elasticity.check_near([6.0, 5.00001] + [9.0] * 5, [6.0, 5.0, 9.0, 9.0, 9.0, 1.0, 1.0], "it")
        with self.assertRaisesRegex(elasticity.Wrong, "its loss at step 1 is 5.001, that of the job 5.0"):
            elasticity.check_near([6.0, 5.001], [6.0, 5.0], "it")


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        elasticity.ENVIRONMENT["XDG_CACHE_HOME"] = folder.name
        (self.folder / "some.txt").write_text(text_of_few_words(1500), encoding="utf-8")
        self.sets = [word for one in [*SMALL, f"data.text={self.folder}/some.txt"] for word in ("--set", one)]

    def document(self, *words):
        done = bench(*words, "--json", folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    @unittest.skipUnless(HAS_TINYLM and THOROUGH, "no libtorch, or not thorough")
    def test_the_bare_loop_has_the_losses_of_a_job_to_the_bit(self):
        """The program itself refuses a round in which it has not."""
        found = self.document("--rounds", 1, "--steps", 4, "--workers", 2, "--python", "/bin/false", *self.sets)
        self.assertIn("torch", found["left_out"]["DistributedDataParallel"])
        one = found["one_worker"]
        self.assertAlmostEqual(one["fast_to_bare"]["median"], one["fast"]["median"] / one["bare"]["median"])
        self.assertEqual([row["workers"] for row in found["workers"]], [2])

    @unittest.skipUnless(HAS_TINYLM and THOROUGH, "no libtorch, or not thorough")
    def test_another_rate_is_another_computation(self):
        jobs = elasticity.Jobs(elasticity.arguments_of(["--build", BUILD, "--steps", "4", *self.sets]), self.folder)
        _, losses = jobs.tinylm(1, False, "lr.base_lr=1e-3")
        with self.assertRaises(elasticity.Wrong):
            elasticity.check_same(json.loads(jobs.bare())["losses"], losses, "it")

    def test_kills_are_counted_and_timed_and_each_is_told_at_once(self):
        done = bench("--recovery", "--kills", 2, "--workers", 2, "--json", folder=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        told = re.findall(r"^    kill (\d), lost ([\d.]+) ms, usual step [\d.]+ ms$", done.stderr, re.MULTILINE)
        self.assertEqual([number for number, _ in told], ["1", "2", "1", "2"])
        self.assertAlmostEqual(max(float(lost) for _, lost in told[:2]), 1e3 * found["recovery"][0]["seconds_lost"]["largest"], 1)
        self.assertEqual([(row["on_loss"], row["seconds_lost"]["n"]) for row in found["recovery"]], [("replace", 2), ("shrink", 2)])
        for row in found["recovery"]:
            self.assertGreater(row["seconds_lost"]["median"], 0)
            self.assertGreater(row["usual_step_s"]["median"], 0)

    @unittest.skipUnless(HAS_TINYLM and THOROUGH, "no libtorch, or not thorough")
    def test_sharded_jobs_stand_beside_replicated_ones(self):
        found = self.document("--sharded", "--rounds", 1, "--steps", 3, "--workers", 2, *self.sets)
        self.assertEqual([(row["workers"], row["deterministic"]) for row in found["sharded"]], [(2, False), (2, True)])
        for row in found["sharded"]:
            self.assertAlmostEqual(row["zero3_to_replicated"]["median"], row["zero3"]["median"] / row["replicated"]["median"])

    @unittest.skipUnless(HAS_TINYLM and THOROUGH, "no libtorch, or not thorough")
    def test_memory_of_a_worker_is_seen_while_it_runs_and_in_its_books(self):
        self.folder.joinpath("jobs").mkdir()
        large, elasticity.LARGE = elasticity.LARGE, []  # the sets of this test make it small
        self.addCleanup(setattr, elasticity, "LARGE", large)
        jobs = elasticity.Jobs(elasticity.arguments_of(["--build", BUILD, *self.sets]), self.folder / "jobs")
        seen = {how: elasticity.memory_of(jobs, 2, how) for how in ("replicated", "zero3", "eager")}
        for how, one in seen.items():
            self.assertGreater(one["pss"], 1 << 20, how)
        self.assertEqual(seen["replicated"]["books"], 0)
        self.assertGreater(seen["zero3"]["books"], seen["eager"]["books"])
        self.assertGreater(seen["eager"]["books"], 0)

    def test_memory_that_falls_as_its_parts_do_is_fitted_to_the_byte(self):
        found = elasticity.fit([(workers, 100 + 60 / workers) for workers in (1, 2, 4)])
        self.assertAlmostEqual(found["a"], 100)
        self.assertAlmostEqual(found["b"], 60)

    def test_a_leave_sends_what_it_must(self):
        self.folder.joinpath("jobs").mkdir()
        jobs = elasticity.Jobs(elasticity.arguments_of(["--build", BUILD]), self.folder / "jobs")
        sent = elasticity.moves.after_leave(jobs, 2)
        self.assertLessEqual(abs(sent - elasticity.moves.least(2, 1)), 4096)

    def test_wrong_arguments_are_refused(self):
        for words, said in ((["--steps", 1], "at least 2 steps"), (["--rounds", 0], "'0' is no number of at least 1"),
                            (["--workers", "1,x"], "'x' is no number")):
            with self.subTest(words):
                done = bench(*words, folder=self.folder)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
