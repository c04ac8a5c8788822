"""a gradient in Python that is not finite ends the job with rows and ranks, or leaves its update out where the user says so."""
import re

import elastic_jobs
from elastic_jobs import STEPS, check_whole, said_by

AT = 5
# On rank 1 the gradient of one micro-batch is none, in each attempt.
NOT_FINITE = """
    session.start(LENGTHS, state=toy)
    step, without = None, []
    for step in session:
        for rows in step.micro_batches:
            loss, gradient = toy.loss_and_gradient(step.batch.ids_of(rows))
            if step.index == 5 and step.rank == 1 and rows == step.micro_batches[-1]:
                gradient[7] = numpy.nan
                pathlib.Path("rows").write_text(f"{rows.start} {rows.stop}")
            step.add(rows, loss, gradient)
        before = toy.weights.tobytes(), toy.momentum.tobytes()
        committed = step.commit()
        if committed:
            toy.apply(committed.gradient, step.learning_rate)
        else:
            without.append(step.index)
            assert before == (toy.weights.tobytes(), toy.momentum.tobytes())
    print("SAID", json.dumps(without))
    keep(toy)
"""
# One worker that makes all updates but that one.
LEFT_OUT = """
    session.start(LENGTHS, state=toy)
    for step in session:
        add_all(step, toy)
        if (committed := step.commit()) and step.index != 5:
            toy.apply(committed.gradient, step.learning_rate)
    keep(toy)
"""


def test_a_job_ends_before_it_commits_a_gradient_that_is_not_finite_and_names_row_and_rank(tmp_path):
    job = elastic_jobs.run(tmp_path / "job", NOT_FINITE, workers=2)
    assert job.code == 1 and job.summary["outcome"] == "failed" and job.summary["steps"] == AT, job.err
    first, end = map(int, (tmp_path / "job/rows").read_text().split())
    assert end == first + 1
    reason = rf'step {AT} is not committed: the gradient or the loss of row {first} on rank 1 is NaN or infinite\. .*\[run\] on_nonfinite = "skip"'
    assert re.search(reason, job.summary["reason"]), job.summary["reason"]
    assert job.summary["restarts"] == 0 and job.said == f"SAID [{AT}]\n" * 2 and "Traceback" not in job.said, job.said
    before = elastic_jobs.run(tmp_path / "before", options=["--set", f"run.max_steps={AT}"])
    assert job.weights == before.weights * 2
    assert job.summary["snapshot"] == f"snapshots/step-{AT:08}.snapshot"


def test_where_such_a_step_is_skipped_its_commit_gives_none_and_the_job_goes_on_without_its_update(tmp_path):
    left_out = elastic_jobs.run(tmp_path / "left_out", LEFT_OUT)
    assert left_out.code == 0 and len(left_out.weights) == 1, left_out.err
    job = elastic_jobs.run(tmp_path / "job", NOT_FINITE, workers=2, settings='on_nonfinite = "skip"')
    check_whole(job, left_out.weights[0], 2)
    assert said_by(job) == [[AT]] * 2
    assert job.summary["steps"] == STEPS and job.summary["steps_skipped"] == 1 and job.summary["restarts"] == 0
    assert "its update is skipped" in job.err, job.err
