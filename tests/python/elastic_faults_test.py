"""what a program does wrong with a session is named, and the job loses nothing by it."""
import os
import re
import subprocess
import sys

import elastic_jobs
import pytest
from elastic_jobs import check_said, check_whole

import pliant


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


def test_without_an_agent_there_is_no_session():
    without = {name: value for name, value in os.environ.items() if not name.startswith("PLIANT_") or name.startswith("PLIANT_TEST")}
    for program, code in (("pliant.elastic.Session.attach()", 1), ("sys.exit(pliant.elastic.run_worker(print))", 2)):
        done = subprocess.run([sys.executable, "-c", f"import sys, pliant.elastic; {program}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=without, timeout=60, check=False)
        assert done.returncode == code and "`pliant run" in done.stderr
        assert ("Traceback" in done.stderr) == (code == 1)


MISUSE = """
    S = pliant.Status
    print("CHECK attached-twice", refused(pliant.elastic.Session.attach, S.FAILED_PRECONDITION, "a worker attaches once"))
    print("CHECK next-before-start", refused(session.next, S.FAILED_PRECONDITION, "Session.start"))
    print("CHECK renew-before-start", refused(session.renew_arrays, S.FAILED_PRECONDITION, "Session.start"))

    def in_thread(call, *words):
        found = []
        thread = threading.Thread(target=lambda: found.append(refused(call, S.FAILED_PRECONDITION, *words)))
        thread.start()
        thread.join()
        return found[0]

    def in_fork(*calls):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.exit(sum(refused(call, S.FAILED_PRECONDITION, "forked") is not True for call in calls))  # by way of what an interpreter does at its end
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    busy = session.busy("testing", 60)
    print("CHECK thread", in_thread(lambda: session.start(LENGTHS, state=toy), "another one"))
    print("CHECK fork", in_fork(session.next, lambda: session.busy("x", 1), lambda: session.start(LENGTHS, state=toy), lambda: session.seed))
    print("CHECK program", os.system(f'{sys.executable} -c "import pliant.elastic; pliant.elastic.Session.attach()" 2> program.err') != 0
          and "a worker attaches once" in pathlib.Path("program.err").read_text())
    session.start(LENGTHS, state=toy)
    print("CHECK started-twice", refused(lambda: session.start(LENGTHS, state=toy), S.FAILED_PRECONDITION, "twice"))
    step = session.next()
    rows, gradient = step.micro_batches, numpy.zeros(ELEMENTS, "float32")
    print("CHECK thread-in-step", in_thread(session.next, "another one") is in_thread(lambda: step.add(rows[0], 0, gradient), "another one")
          is in_thread(step.commit, "another one") is in_thread(lambda: step.batch, "another one") is True)
    print("CHECK fork-in-step", in_fork(step.commit, session.next, lambda: step.add(rows[0], 0.0, gradient), lambda: step.metric("x", 1.0)))

    def wrong_rows(given):
        return refused(lambda: step.add(given, 0.0, gradient), S.INVALID_ARGUMENT)

    print("CHECK rows", all(wrong_rows(given) is True for given in (rows[1], range(0), range(rows[0].start, rows[0].stop + 1), range(100, 101),
                                                                     range(0, 4, 2), range(2, 1))))
    print("CHECK size", refused(lambda: step.add(rows[0], 0.0, gradient[1:]), S.INVALID_ARGUMENT, "47 elements", "48") is
          refused(lambda: step.add(rows[0], 0.0, gradient[1:].astype("float16")), S.INVALID_ARGUMENT, "47 elements", "48") is
          refused(lambda: step.add(rows[0], 0.0), S.INVALID_ARGUMENT, "lacks") is True)

    def raises(call, kind, *words):
        try:
            call()
        except kind as error:
            return all(word in str(error) for word in words) or str(error)
        return "nothing raised"

    print("CHECK dtype", raises(lambda: step.add(rows[0], 0.0, gradient.astype("float64")), TypeError, "float64", "float32"))
    print("CHECK array", all(raises(lambda: step.add(rows[0], 0.0, given), TypeError, "gradient") is True for given in ([0.0] * 48, "x", 1.5, numpy.array("x"))))
    print("CHECK dense", raises(lambda: step.add(rows[0], 0.0, numpy.zeros(2 * ELEMENTS, "float32")[::2]), ValueError, "contiguous"))
    print("CHECK address", raises(lambda: step.add(rows[0], 0.0, 4096), TypeError, "count and dtype"))
    print("CHECK nowhere", refused(lambda: step.add_piece(rows[0], 0, 4096, ELEMENTS, "float32"), S.INVALID_ARGUMENT))
    print("CHECK outside", refused(lambda: step.add_piece(rows[0], 1, gradient), S.INVALID_ARGUMENT, "48 elements at 1"))
    print("CHECK incomplete", refused(step.commit, S.FAILED_PRECONDITION, "0 of"))
    old, step = step, session.next()  # which was not committed: it comes again
    print("CHECK again", (step.index, step.micro_batches) == (0, rows))
    print("CHECK over", refused(lambda: old.add(rows[0], 0.0, gradient), S.FAILED_PRECONDITION, "step 0 is over")
          is refused(old.commit, S.FAILED_PRECONDITION, "is over") is True and old.index == 0)
    add_all(step, toy)
    step = session.next()  # the program may have caught an exception of its own
    add_all(step, toy)
    print("CHECK uncommitted", refused(session.next, S.FAILED_PRECONDITION, "step 0 was handed out 2 times", "call step.commit()"))
    print("CHECK too-many", refused(lambda: step.add(rows[-1], 0.0, gradient), S.INVALID_ARGUMENT, "added already") if step.pending is None else step.pending)
    committed = step.commit()
    print("CHECK committed-twice", refused(step.commit, S.FAILED_PRECONDITION, "Step.commit was called"))
    print("CHECK late", refused(lambda: step.metric("x", 1.0), S.FAILED_PRECONDITION, "comes after"))
    kept = committed.gradient
    toy.apply(kept, step.learning_rate)
    following = session.next()
    print("CHECK old-gradient", refused(lambda: committed.gradient, S.FAILED_PRECONDITION, "until Session.next") and len(kept) == ELEMENTS)
    busy.end()
    busy.end()
    go_on(session, toy)
    print("CHECK after-the-end", session.next() is None and session.coming() is None)
"""


def test_calls_that_fit_nothing_are_refused_and_the_step_stays_as_it_was(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", MISUSE, leaves_memory=True)  # a child does not free what is its parent's
    check_whole(job, reference)
    check_said(job, "attached-twice", "next-before-start", "renew-before-start", "thread", "fork", "program", "started-twice", "thread-in-step", "fork-in-step", "rows", "size",
               "dtype", "array", "dense", "address", "nowhere", "outside", "incomplete", "again", "over", "uncommitted", "too-many", "committed-twice", "late",
               "old-gradient", "after-the-end")


STATES = """
    class Wrong(Toy):
        gradient_size = ELEMENTS

        def __init__(self, **other):
            Toy.__init__(self)
            self.__dict__.update(other)

    def arrays(*made):
        return Wrong(arrays=lambda: made)

    def outcome(state):
        try:
            session.start(LENGTHS, state=state)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "started"

    w = toy.weights
    fixed = w.copy()
    fixed.flags.writeable = False

    class Raising(Toy):
        def arrays(self):
            raise LookupError("no arrays today")

    for what, state in {
        "nothing": object(), "none": None, "size-none": Wrong(gradient_size=None), "size-below": Wrong(gradient_size=-1),
        "size-above": Wrong(gradient_size=2**62), "size-real": Wrong(gradient_size=48.0), "save-alone": Wrong(load=None), "no-list": Wrong(arrays=lambda: 3),
        "no-pair": arrays(w), "three": arrays(("w", "float32", (48,))), "name": arrays((3, w)), "bad-name": arrays(("a b", w)), "twice": arrays(("w", w), ("w", w)),
        "list": arrays(("w", [1.0])), "read-only": arrays(("w", fixed)), "gaps": arrays(("w", w[::2])), "complex": arrays(("w", w.astype("complex64"))),
        "dtype": arrays(("w", "float33", (48,), w)), "bytes": arrays(("w", "float32", (47,), w)), "shape": arrays(("w", "float32", (-1,), w)),
        "huge": arrays(("w", "float32", (2**40, 2**40), w)), "null": arrays(("w", "float32", (48,), 0)), "nowhere": arrays(("w", "float32", (48,), 4096)),
        "raises": Raising(),
    }.items():
        print("CHECK", what, outcome(state))
    session.start(LENGTHS, state=toy)
    toy.arrays = lambda: [("weights", toy.weights[1:])]
    print("CHECK renewed", refused(session.renew_arrays, pliant.Status.FAILED_PRECONDITION, "other arrays"))
    del toy.arrays
    for step in session:
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
        if step.index == 5:
            toy.weights = toy.weights.copy()
            session.renew_arrays()
        if step.index == 6:
            break
    go_on(session, toy)
"""
REFUSED = {
    "nothing": "TypeError: state is a object without gradient_size or arrays", "none": "TypeError: state is a NoneType",
    "size-none": "TypeError: gradient_size of the state is a NoneType", "size-below": "ValueError: gradient_size of the state is -1",
    "size-above": "Error: gradient_size of the state is 4611686018427387904", "size-real": "TypeError: gradient_size of the state is a float",
    "save-alone": "Error: state has save or load, not both", "no-list": "TypeError: ", "no-pair": "TypeError: an array of the state is a ndarray",
    "three": "TypeError: an array of the state has 3 parts", "name": "TypeError: the name of an array of the state is a int",
    "bad-name": "Error: TrainingState::arrays: 'a b' is not a valid array name", "twice": "Error: TrainingState::arrays: two arrays have the name 'w'",
    "list": "TypeError: array 'w' of the state is a list", "read-only": "ValueError: array 'w' of the state may be read only",
    "gaps": "ValueError: array 'w' of the state is not dense", "complex": "TypeError: array 'w' of the state has elements of complex64",
    "dtype": "Error: array 'w' of the state has the dtype \"float33\"", "bytes": "Error: array 'w' of the state has 188 bytes by dtype and shape, but its memory has 192",
    "shape": "ValueError: a length in the shape of array 'w' of the state is -1", "huge": "Error: array 'w' of the state has a shape that does not fit memory",
    "null": "Error: TrainingState::arrays: 'w' has no memory", "nowhere": "Error: TrainingState::arrays: 'w'", "raises": "LookupError: no arrays today",
    "renewed": "True",
}


def test_states_that_are_none_are_refused_and_one_that_is_comes_after_them(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", STATES)
    said = dict(line.split(" ", 2)[1:] for line in job.said.splitlines() if line.startswith("CHECK "))
    assert {what: words[: len(REFUSED[what])] for what, words in said.items()} == REFUSED, job.err + job.said
    check_whole(job, reference)


FAILING = """
    class Failing(Toy):
        {method}

    toy = Failing()
    session.start(LENGTHS, state=toy)
    try:
        go_on(session, toy)
    except Exception:
        print("CHECK broken-off", refused(session.next, pliant.Status.FAILED_PRECONDITION))
        raise
"""
UNSAVED = "def save(self):\n            if is_first(): raise ValueError('not now')\n            return Toy.save(self)"
# Of the worker that joins, and is replaced.
UNREAD = "def load(self, data):\n            if not is_first(): Toy.load(self, data)\n            else: return len(data) - 1"
UNLOADED = "def load(self, data):\n            if is_first(): raise ValueError('not that')\n            Toy.load(self, data)"


def test_a_snapshot_whose_state_cannot_be_saved_is_left_out_and_the_traceback_is_logged(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", FAILING.format(method=UNSAVED), settings="snapshot_every = 5\ndigest_every = 0")
    check_whole(job, reference)
    assert "ValueError: not now" in job.err
    assert job.said.count("Traceback") == 1 and "ValueError: not now" in job.said


@pytest.mark.parametrize("method, words", [(UNREAD, "load of the state understood 191 of the 192 bytes"), (UNLOADED, "ValueError: not that")])
def test_a_worker_that_cannot_load_the_state_is_replaced(tmp_path, reference, method, words):
    job = elastic_jobs.run(tmp_path / "job", FAILING.format(method=method), workers=2)
    check_whole(job, reference)
    assert words in job.said and job.summary["restarts"] == 1


HOOKED = """
    seen = []

    def before(step):
        seen.append(step)
        if step == 5: raise ValueError("before 5")
        with session.busy("a copy", 60): pass
        print("CHECK reentered", refused(session.next, pliant.Status.FAILED_PRECONDITION, "another call"))

    def after(step, file, error):
        print("CHECK after", step, os.path.basename(file), os.path.exists(file), error)
        if step == 10: raise ValueError("after 10")

    session.on_snapshot(before, after)
    session.start(LENGTHS, state=toy)
    go_on(session, toy)
"""


def test_hooks_see_each_snapshot_and_what_they_raise_is_logged(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", HOOKED, settings="snapshot_every = 5\nkeep_snapshots = 9")
    check_whole(job, reference)
    said = [line.split(" ", 1)[1] for line in job.said.splitlines() if line.startswith("CHECK ")]
    written = [f"after {step} step-{step:08}.snapshot True " for step in (10, 15, 20)]
    assert [line for line in said if line.startswith("after")][1:] == written
    assert said[0].startswith("after 5 step-00000005.snapshot False ") and "ValueError: before 5" in said[0]
    assert said.count("reentered True") == 3
    assert "ValueError: before 5" in job.err and job.said.count("Traceback") == 2 and "ValueError: after 10" in job.said


# What the first worker that comes to step 3 does, once.
LEAVING = """
    session.start(LENGTHS, state=toy)
    for step in session:
        add_all(step, toy)
        if step.index == 3 and is_first():
            {leave}
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
        if step.index == 6:
            break
    go_on(session, toy)
"""


@pytest.mark.parametrize("leave, left", [("sys.exit()", ""), ("raise ValueError('a loss')", "ValueError: a loss"), ("os.abort()", "Aborted")])
def test_a_program_may_end_in_the_midst_of_a_step(tmp_path, reference, leave, left):
    job = elastic_jobs.run(tmp_path / "job", LEAVING.format(leave=leave), workers=2)
    check_whole(job, reference)
    assert job.summary["restarts"] == 1
    if left == "":
        assert job.said == ""
    elif left != "Aborted":
        assert left in job.said and job.said.count("Traceback") == 1


# Whoever leaves has two loaders with a thread each in the midst of a sample that never ends: one waits, the other is at work. The other thread of each
# loader waits for it.
READING = """
    inside = threading.Semaphore(0)

    class Texts:
        def __init__(self, step, stay):
            self.own, self.stay = {int(i) for rows in step.micro_batches for i in step.batch.ids_of(rows)}, stay

        def __getitem__(self, item):
            if int(item) not in self.own:  # read ahead
                inside.release()
                self.stay(item)
            return item

    def wait(item):
        threading.Event().wait()

    def work(item):
        while pathlib.Path("worker.py").read_bytes():
            assert item.row >= 0 and item.position

    def leave(step):
        reading = [session.loader(Texts(step, stay), num_workers=2, prefetch=8).of(step) for stay in (wait, work)]
        for batches in reading:
            next(batches)
            inside.acquire()
        if step.index == 3:
            raise ValueError("a loss")
        if step.index == 5:
            sys.kept = session, step, reading  # until the interpreter ends
        sys.exit()

    session.start(LENGTHS, state=toy)
    for step in session:
        add_all(step, toy)
        if step.index in (3, 5, 7) and is_first(f"step-{step.index}"):
            leave(step)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
        if step.index == 8:
            break
    go_on(session, toy)
"""


def test_a_program_may_end_while_threads_of_its_loader_read(tmp_path, reference):
    options = ["--set", "elasticity.exact.min_gpus=2"]  # so that each of them comes in time
    job = elastic_jobs.run(tmp_path / "job", READING, workers=2, options=options, leaves_memory=True)
    check_whole(job, reference, 2)
    assert job.summary["restarts"] == 3, job.err
    ends = [re.sub(r"rank \d \(worker \d\) ", "", line) for line in job.err.splitlines() if line.startswith("warning: ")]
    assert ends == ["warning: exited with code 1: ValueError: a loss", *["warning: exited with code 0 before the job was done"] * 2], job.err
    assert job.said.count("Traceback") == 1 and "ValueError: a loss" in job.said and "Fatal" not in job.said, job.said


UNAPPLIED = """
    class Failing(Toy):
        def committed(self, step, committed):
            if step.index == 3 and is_first(): raise ValueError("no update")
            self.apply(committed.gradient, step.learning_rate)

    toy = Failing()
    session.start(LENGTHS, state=toy)
    step = None
    for step in session:
        add_all(step, toy)
        try:
            step.commit()
        except ValueError as error:
            print("CHECK undone", refused(session.next, pliant.Status.FAILED_PRECONDITION, "step 3 is final, but its update was not made"))
            raise
    if step is not None:  # a worker that came too late has first weights
        keep(toy)
"""


def test_a_worker_whose_update_was_not_made_takes_no_further_step(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", UNAPPLIED, workers=2)
    check_whole(job, reference)
    check_said(job, "undone")
    assert job.summary["restarts"] == 1


INTERRUPTED = """
    if is_first():
        interrupted(lambda: session.start(LENGTHS, state=toy))
        started = refused(lambda: session.start(LENGTHS, state=toy), pliant.Status.FAILED_PRECONDITION, "twice")
        print("CHECK started", started is True or started == "returned None")  # it came before the state was asked, or behind all
        step = session.next()  # asks the state, whose methods are not to be interrupted here
        add_all(step, toy)
        toy.apply(step.commit().gradient, step.learning_rate)
        interrupted(session.next)
        step = session.next()
        print("CHECK next", step.index == 1)
        add_all(step, toy)
        interrupted(step.commit)
        print("CHECK commit", refused(session.next, pliant.Status.FAILED_PRECONDITION, "its update was not made"))
        raise KeyboardInterrupt
    session.start(LENGTHS, state=toy)
    go_on(session, toy)
"""


def test_an_interrupt_of_the_programs_own_handler_comes_out_of_each_wait(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", INTERRUPTED, settings="digest_every = 0")  # which would call the state within `next`
    check_whole(job, reference)
    check_said(job, "started", "next", "commit")
    assert job.summary["restarts"] == 1


NEVER_SAVED = """
    class Never(Toy):
        def save(self):
            raise ValueError("no room for it")

    session.start(LENGTHS, state=Never())
    for step in session:
        pass
"""


def test_a_job_whose_state_nobody_can_give_ends_with_the_failure_of_who_holds_it(tmp_path):
    job = elastic_jobs.run(tmp_path / "job", NEVER_SAVED, workers=2)
    assert job.code == 1 and job.summary["steps"] == 0, job.err
    reason = r"no workers are left; .* holds a part of a state that no worker holds completely: rank 0 \(worker \d\) exited .*: ValueError: no room for it"
    assert re.fullmatch(reason, job.summary["reason"]), job.summary["reason"]
