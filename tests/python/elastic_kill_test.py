"""a loop in Python whose workers are killed, join and resume ends with the weights of one that nothing disturbed."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import elastic_jobs
import pytest
from elastic_jobs import STEPS, check_whole

IS_THOROUGH = os.environ.get("PLIANT_THOROUGH_TESTS") == "1"
POINTS = ("forward", "reduce", "vote", "commit", "apply")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


@pytest.mark.parametrize("workers", [2, 3, 4] if IS_THOROUGH else [4])
def test_the_weights_are_those_of_one_worker(tmp_path, reference, workers):
    check_whole(elastic_jobs.run(tmp_path / "job", workers=workers), reference, workers)


# Of what a test has the time for: each point once, by one rank or another.
KILLS = [[(point, rank)] for point in (*POINTS, "snapshot") for rank in (0, 2)] if IS_THOROUGH else [
    [("forward", 0), ("vote", 2)], [("reduce", 2), ("apply", 0)], [("commit", 1)]]


@pytest.mark.parametrize("kills", KILLS, ids=["-".join(point for point, _ in kills) for kills in KILLS])
def test_a_worker_that_is_killed_at_any_point_of_a_step_is_replaced(tmp_path, reference, kills):
    options = [f"--inject=kill:rank={rank},step={9 + at},at={point}" for at, (point, rank) in enumerate(kills)]
    job = elastic_jobs.run(tmp_path / "job", workers=4, options=options, settings="snapshot_every = 3")
    check_whole(job, reference)
    assert job.summary["restarts"] == len(kills)


def test_where_all_are_killed_the_job_goes_back_to_its_snapshot(tmp_path, reference):
    kills = [f"--inject=kill:rank={rank},step=13,at=apply" for rank in range(2)]
    job = elastic_jobs.run(tmp_path / "job", workers=2, options=kills, settings="snapshot_every = 5")
    check_whole(job, reference, 2)


def test_a_worker_that_dies_while_it_copies_the_state_is_replaced(tmp_path, reference):
    deaths = ["--inject=kill:rank=1,step=5", "--inject=kill:rank=1,step=5,at=copy"]
    job = elastic_jobs.run(tmp_path / "job", workers=2, options=["--set", "elasticity.exact.min_gpus=2", *deaths])  # so that no step is made without it
    check_whole(job, reference, 2)
    assert job.summary["restarts"] == 2 and "did not happen" not in job.err, job.err


EVALUATES = """
    session.start(LENGTHS, state=toy)
    for step in session:
        found = session.last_evaluation
        assert (found and found.values) == ({"steps": float(step.index - 1)} if step.index > 1 else None), (step.index, found)
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
            session.evaluated("steps", step.index + 1, rule="max")
    keep(toy)
"""


def test_a_worker_that_joins_or_resumes_knows_the_last_evaluation_as_the_others_do(tmp_path, reference):
    kills = ["--inject=kill:rank=1,step=6,at=forward", "--inject=kill:rank=0,step=13,at=apply", "--inject=kill:rank=1,step=13,at=apply"]
    begun = elastic_jobs.run(tmp_path / "job", EVALUATES, workers=2, options=[*kills, "--set", "run.max_steps=16"], settings="snapshot_every = 5")
    assert begun.code == 0 and begun.summary["restarts"] == 3 and "2 ranks from step 10" in begun.err, begun.err
    job = elastic_jobs.run(tmp_path / "job", EVALUATES, workers=3, options=["--resume", "--set", "run.max_steps=20"], settings="snapshot_every = 5")
    assert job.code == 0 and job.summary["resumed_from"] == 16 and set(job.weights) == {reference}, job.err


LAST = STEPS - 1
ENDS = {"commit": ["rank=0"], "snapshot": ["rank=0"], "apply-of-all": ["rank=0", "rank=1"]}
if IS_THOROUGH:
    ENDS.update({"vote": ["rank=0"], "apply": ["rank=0"], "commit-of-all": ["rank=0", "rank=1"]})


@pytest.mark.parametrize("end", ENDS)
def test_whoever_dies_in_the_last_step_the_snapshot_that_the_job_ends_with_is_written(tmp_path, reference, end):
    deaths = [f"--inject=kill:{rank},step={LAST},at={end.partition('-')[0]}" for rank in ENDS[end]]
    job = elastic_jobs.run(tmp_path / "job", workers=2, options=deaths, settings="snapshot_every = 7")
    check_whole(job, reference)
    assert job.err.count("injected kill of ") == len(deaths) and "did not happen" not in job.err, job.err
    assert ("2 ranks from step 14" in job.err) == end.endswith("-of-all"), job.err  # nobody has the state, but a snapshot
    assert job.summary["snapshot"] == f"snapshots/step-{STEPS:08}.snapshot"
    newest, older = (pathlib.Path(job.summary["directory"], f"snapshots/step-{step:08}.snapshot").read_bytes() for step in (STEPS, 14))
    assert reference in newest and reference not in older


@pytest.mark.parametrize(("at", "step", "kept"), [("vote", 13, 10), ("commit", LAST, 15)])
def test_a_job_whose_agent_is_killed_goes_on_from_its_snapshot_at_another_size(tmp_path, reference, at, step, kept):
    folder, settings = tmp_path / "job", "snapshot_every = 5"
    killed = elastic_jobs.run(folder, workers=2, options=[f"--inject=kill:agent,step={step},at={at}"], settings=settings)
    assert killed.code == -signal.SIGKILL and not killed.weights, killed.err
    resumed = elastic_jobs.run(folder, workers=1, options=["--resume"], settings=settings)
    check_whole(resumed, reference, 1)
    assert resumed.summary["resumed_from"] == kept and resumed.summary["steps_this_run"] == STEPS - kept


STOPPED = """
    session.start(LENGTHS, state=toy)
    for step in session:
        add_all(step, toy)
        if step.index == 7:  # as a terminal does it, where the agent and all workers get the signal
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            if step.rank == 0:
                os.kill(os.getppid(), signal.SIGINT)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
"""


def test_a_signal_to_all_stops_the_job_whole_and_it_goes_on_at_another_size(tmp_path, reference):
    folder = tmp_path / "job"
    stopped = elastic_jobs.run(folder, STOPPED, workers=3)
    assert stopped.code == 130 and stopped.summary["outcome"] == "stopped", stopped.err + stopped.said
    assert 8 <= stopped.summary["steps"] < STEPS
    assert stopped.summary["restarts"] == 0 and "Traceback" not in stopped.said
    resumed = elastic_jobs.run(folder, workers=2, options=["--resume"])
    check_whole(resumed, reference)
    assert resumed.summary["resumed_from"] == stopped.summary["steps"]


def test_the_sample_learns_and_a_killed_worker_changes_no_bit(tmp_path):
    program = pathlib.Path(os.environ["PLIANT_TEST_BIN"]) / "pliant"
    config = pathlib.Path(os.environ["PLIANT_TEST_SOURCE"]) / "samples/python_elastic/pliant.toml"
    environment = dict(os.environ, PATH=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))

    def run(name, *options):
        command = [program, "run", config, "--json", "--log-dir", tmp_path / name, "--set", "run.digest_every=1", *options]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    killed = run("killed", "--inject", "kill:rank=2,step=20")
    assert killed["restarts"] == 1 and killed["samples_used_once"] == 4000
    alone = run("alone", "--workers", "1")
    audit = subprocess.run([program, "audit", killed["directory"], "--against", alone["directory"], "--json"], stdout=subprocess.PIPE, text=True, check=False)
    against = json.loads(audit.stdout)["against"]
    assert against["equal"] and against["states"] > 0, against
    logs = "".join(file.read_text() for file in pathlib.Path(alone["directory"]).glob("logs/*"))
    assert float(logs.split("%")[0].split()[-1]) > 75, logs
