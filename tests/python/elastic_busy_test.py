"""a worker in Python that says that it is busy is no hang, and one that does not say so, or is busy for too long, is killed and named."""
import concurrent.futures
import os
import select

import elastic_jobs
import pytest
from elastic_jobs import check_whole

WAIT = 60  # seconds, until a test fails


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


IN_A_STEP = """
    session.start(LENGTHS, state=toy)
    for step in session:
        if step.index == 3 and step.rank == 0 and is_first():
            {work}
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
        if step.index == 3:
            break
    go_on(session, toy)
"""
# Until jobs beside it, which began later, were found to hang.
BUSY = """with session.busy("evaluation", 600):
                os.write(os.open("begun", os.O_WRONLY), b".")
                os.read(os.open("enough", os.O_RDONLY), 1)"""
NOT_BUSY = """with session.busy("evaluation", 20):
                pass
            threading.Event().wait()"""
BUSY_FOR_TOO_LONG = """busy = session.busy("evaluation", 0.5)
            threading.Event().wait()"""
HANG = "hang_timeout_s = 2"


def test_who_is_busy_for_longer_than_hang_timeout_s_is_no_hang_and_who_is_not_or_for_too_long_is_one(tmp_path, reference):
    folder = tmp_path / "busy"
    folder.mkdir()
    pipes = {}
    for name in ("begun", "enough"):
        os.mkfifo(folder / name)
        pipes[name] = os.open(folder / name, os.O_RDWR)  # which does not wait for the other end
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        try:
            busy = pool.submit(elastic_jobs.run, folder, IN_A_STEP.format(work=BUSY), workers=2, settings=HANG)
            assert select.select([pipes["begun"]], [], [], WAIT)[0]
            hung, late = pool.map(lambda work: elastic_jobs.run(tmp_path / work[0], IN_A_STEP.format(work=work[1]), settings=HANG),
                                  [("hung", NOT_BUSY), ("late", BUSY_FOR_TOO_LONG)])
            assert not busy.done()
        finally:
            os.write(pipes["enough"], b".")
        busy = busy.result()
    for pipe in pipes.values():
        os.close(pipe)
    check_whole(busy, reference, 2)
    assert busy.summary["restarts"] == 0 and busy.summary["generations"] == 1, busy.err
    for job in (hung, late):
        check_whole(job, reference, 1)
        assert job.summary["restarts"] == 1, job.err
    assert "rank 0 (worker 0) made no progress for " in hung.err and "was busy" not in hung.err, hung.err
    assert "rank 0 (worker 0) was busy for " in late.err and "with evaluation, for which it had announced 0.5 s at most, and was killed" in late.err, late.err
