"""a worker in Python that says that it is busy is no hang, and one that does not say so, or is busy for too long, is killed and named."""
import concurrent.futures
import contextlib
import os
import select

import elastic_jobs
import pytest
from elastic_jobs import check_whole

WAIT = 60  # seconds, until a test fails


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


@contextlib.contextmanager
def held_up(folder, work, **options):
    """A job that runs `work`, from where that has written to `begun`; when the block ends, it can read from `enough`."""
    folder.mkdir()
    pipes = {}
    for name in ("begun", "enough"):
        os.mkfifo(folder / name)
        pipes[name] = os.open(folder / name, os.O_RDWR)  # which does not wait for the other end
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            job = pool.submit(elastic_jobs.run, folder, work, **options)
            assert select.select([pipes["begun"]], [], [], WAIT)[0]
            yield job
        finally:
            os.write(pipes["enough"], b".")
    for pipe in pipes.values():
        os.close(pipe)


def run_together(folder, settings, **works):
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(lambda name: elastic_jobs.run(folder / name, works[name], settings=settings), works))


def check_killed_once(job, reference, *words):
    check_whole(job, reference, 1)
    assert job.summary["restarts"] == 1 and all(word in job.err for word in words), job.err


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
AT_START = """
    if is_first():
        {work}
    session.start(LENGTHS, state=toy)
    go_on(session, toy)
"""
# Until jobs beside it, which began later, were found to be late.
BUSY = """with session.busy("compilation", 600):
    os.write(os.open("begun", os.O_WRONLY), b".")
    os.read(os.open("enough", os.O_RDONLY), 1)"""
NOT_BUSY = """with session.busy("compilation", 20):
    pass
threading.Event().wait()"""
BUSY_FOR_TOO_LONG = """busy = session.busy("compilation", 0.5)
threading.Event().wait()"""


@pytest.mark.parametrize(("place", "settings", "said"), [
    (IN_A_STEP, "hang_timeout_s = 2", "rank 0 (worker 0) made no progress for "),
    (AT_START, "start_timeout_s = 2", "was not ready 2 s after its start and was killed ([run] start_timeout_s)")])
def test_who_is_busy_may_take_longer_than_others_in_a_step_and_before_start_and_who_is_not_or_for_too_long_is_killed(tmp_path, reference, place, settings, said):
    def at_place(work):
        indent = next(line for line in place.splitlines() if "{work}" in line).partition("{")[0]
        return place.format(work=work.replace("\n", "\n" + indent))

    with held_up(tmp_path / "busy", at_place(BUSY), workers=2, settings=settings) as busy:
        hung, late = run_together(tmp_path, settings, hung=at_place(NOT_BUSY), late=at_place(BUSY_FOR_TOO_LONG))
        assert not busy.done()
    check_whole(busy.result(), reference, 2)
    assert busy.result().summary["restarts"] == 0 and busy.result().summary["generations"] == 1, busy.result().err
    check_killed_once(hung, reference, said)
    assert "was busy" not in hung.err, hung.err
    check_killed_once(late, reference, "was busy for ", "with compilation, for which it had announced 0.5 s at most, and was killed")
