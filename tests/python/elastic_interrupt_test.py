"""an interrupt comes out of a wait for another rank, and one within a method of the state ends the worker only where its step is lost."""
import os

import elastic_jobs
import pytest
from elastic_jobs import check_said, check_whole


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


# Whoever opens a pipe waits for who opens its other end: the second worker does nothing before the first one was interrupted in its wait.
WAITING = """
    class Whole(Toy):
        '''Nothing of it is called within `next`.'''
        save = load = None

        def arrays(self):
            return [("weights", self.weights), ("momentum", self.momentum)]

    def let_go(what):
        open(what, "wb").close()

    def wait_for(what):
        open(what, "rb").close()

    toy = Whole()
    if is_first():
        session.start(LENGTHS, state=toy)
        interrupted(session.next, lambda: let_go("start"))
        step = session.next()
        print("CHECK next", step.index == 0)
        add_all(step, toy)
        interrupted(session.synchronize)
        interrupted(step.commit, lambda: let_go("death"))
        step = session.next()
        print("CHECK again", step.index == 0)
        add_all(step, toy)
        interrupted(step.commit, lambda: let_go("commit"))
        print("CHECK undone", refused(session.next, pliant.Status.FAILED_PRECONDITION, "step 0 is final, but its update was not made"))
        raise KeyboardInterrupt
    if is_first("second"):
        wait_for("start")
        session.start(LENGTHS, state=toy)
        session.next()
        wait_for("death")
        os._exit(1)
    session.start(LENGTHS, state=toy)
    if is_first("third"):
        step = session.next()
        add_all(step, toy)
        wait_for("commit")
        toy.apply(step.commit().gradient, step.learning_rate)
    go_on(session, toy)
"""


def test_an_interrupt_comes_out_of_a_wait_for_another_rank_and_a_step_that_is_not_final_comes_again(tmp_path, reference):
    folder = tmp_path / "job"
    folder.mkdir()
    for name in ("start", "death", "commit"):
        os.mkfifo(folder / name)
    job = elastic_jobs.run(folder, WAITING, workers=2, options=["--set", "elasticity.exact.min_gpus=2"])
    check_whole(job, reference, 2)
    check_said(job, "next", "again", "undone")
    assert job.summary["restarts"] == 2, job.err


# The first `save` within a `next` that has a snapshot to write is for that, and the last one for the digest.
METHOD = """
    class Interrupted(Toy):
        is_due = False

        def save(self):
            if self.is_due:
                self.is_due = False
                signal.raise_signal(signal.SIGINT)
            return Toy.save(self)

    def is_interrupted():
        toy.is_due = True
        try:
            return f"gave step {session.next().index}"
        except KeyboardInterrupt:
            return not toy.is_due

    signal.signal(signal.SIGINT, signal.default_int_handler)
    toy = Interrupted()
    session.start(LENGTHS, state=toy)
    if is_first():
        for _ in range(7):
            step = session.next()
            add_all(step, toy)
            toy.apply(step.commit().gradient, step.learning_rate)
            if step.index == 4:
                print("CHECK snapshot", is_interrupted())
        print("CHECK digest", is_interrupted())
        print("CHECK broken-off", refused(session.next, pliant.Status.FAILED_PRECONDITION, "a method of the state raised within Session.next"))
        raise KeyboardInterrupt
    go_on(session, toy)
"""


def test_an_interrupt_of_save_leaves_a_snapshot_out_and_no_step_comes_where_it_ends_a_digest(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", METHOD, settings="snapshot_every = 5\nkeep_snapshots = 9")
    check_whole(job, reference, 1)
    check_said(job, "snapshot", "digest", "broken-off")
    assert job.summary["restarts"] == 1 and "KeyboardInterrupt" in job.err, job.err
    assert "1 rank from step 0" in job.err.partition("generation 2")[2], job.err  # there was no snapshot to go on from


# Of the worker that gets the state: whoever comes in its place gets it.
LOAD = """
    class Interrupted(Toy):
        def load(self, data):
            if is_first():
                signal.raise_signal(signal.SIGINT)
            Toy.load(self, data)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    toy = Interrupted()
    session.start(LENGTHS, state=toy)
    try:
        go_on(session, toy)
    except KeyboardInterrupt:
        print("CHECK broken-off", refused(session.next, pliant.Status.FAILED_PRECONDITION, "a method of the state raised within Session.next"))
        raise
"""


def test_an_interrupt_of_load_ends_the_worker_that_joins_and_another_one_gets_the_state(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", LOAD, workers=2, options=["--set", "elasticity.exact.min_gpus=2"])
    check_whole(job, reference, 2)
    check_said(job, "broken-off")
    assert job.summary["restarts"] == 1 and job.said.count("Traceback") == 1, job.err + job.said
    assert "was killed by signal 2 (Interrupt)" in job.err, job.err
