"""a session in Python gives batches, takes gradients where they lie, and tells what was measured."""
import elastic_jobs
import numpy
import pytest
from elastic_jobs import ELEMENTS, check_whole, said_by


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


WAYS = """
    def add_whole(step, rows, loss, gradient):
        step.add(rows, loss, gradient)

    def add_in_pieces(step, rows, loss, gradient):
        step.add_piece(rows, 10, gradient[10:])
        step.add_piece(rows, 0, gradient[:10].reshape(2, 5))
        step.add(rows, loss)

    def add_by_address(step, rows, loss, gradient):
        step.add_piece(rows, 0, gradient.ctypes.data, ELEMENTS, "float32")
        step.add(rows, loss)

    def add_buffer(step, rows, loss, gradient):
        step.add(rows, loss, memoryview(gradient.tobytes()).cast("f"))

    class Dlpack:
        def __init__(self, array): self.array = array
        def __dlpack__(self, **how): return self.array.__dlpack__(**how)
        def __dlpack_device__(self): return self.array.__dlpack_device__()

    def add_dlpack(step, rows, loss, gradient):
        step.add(rows, loss, Dlpack(gradient))

    ways = [add_whole, add_in_pieces, add_by_address, add_buffer, add_dlpack]
    session.start(LENGTHS, state=toy)
    for step in session:
        for rows in step.micro_batches:
            assert step.pending is rows
            loss, gradient = toy.loss_and_gradient(step.batch.ids_of(rows))
            ways[(step.index + rows.start) % len(ways)](step, rows, loss, gradient)
        assert step.pending is None
        committed = step.commit()
        assert committed and committed.address == committed.gradient.ctypes.data == numpy.from_dlpack(committed.device_gradient).ctypes.data
        committed.gradient[:] *= 1  # it is the program's
        toy.apply(committed.gradient, step.learning_rate)
    print("SAID", json.dumps([committed.loss, session.accelerator, session.device, session.seed == session.config.run.seed]))
    keep(toy)
"""


def test_gradients_go_in_whole_in_pieces_by_address_and_by_dlpack(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", WAYS)
    check_whole(job, reference, 1)
    ((loss, *facts),) = said_by(job)
    assert loss == pytest.approx(job.summary["loss_last"], rel=0.5) and facts == ["host", 0, True]


HALVES = """
    session.start(LENGTHS, state=toy)
    for step in session:
        for rows in step.micro_batches:
            loss, gradient = toy.loss_and_gradient(step.batch.ids_of(rows))
            step.add_piece(rows, 0, gradient.astype("float16")[:20])
            step.add_piece(rows, 20, gradient[20:])
            step.add(rows, loss)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
    keep(toy)
"""


def test_halves_are_added_as_floats(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", HALVES)
    assert job.code == 0, job.err + job.said
    (weights,) = (numpy.frombuffer(one, "float32") for one in job.weights)
    expected = numpy.frombuffer(reference, "float32")
    assert (weights[:20] != expected[:20]).any() and numpy.allclose(weights, expected, rtol=0.01, atol=0.01)


STATES = """

    class Other(Toy):
        '''The arrays by type, shape and place, one of them by its address; nothing is saved beside them.'''
        save = load = None
        calls = []

        def __init__(self):
            Toy.__init__(self)
            self.count = numpy.zeros((), "int64")
            self.flags = numpy.zeros(3, "bool")
            self.ready, self.asks = None, 0

        def arrays(self):
            self.calls.append("arrays")
            return [("weights", "float32", (6, 8), self.weights.ctypes.data), ("momentum", "float32", self.momentum.shape, memoryview(self.momentum)),
                    ("count", self.count), ("a:flag/x-1", self.flags), ("none", numpy.zeros((0, 5), "float64"))]

        def attach(self, session):
            self.calls.append("attach")

        def begin(self, step):
            self.step = step

        def backward(self, step, rows, loss):
            step.add(rows, *self.loss_and_gradient(loss.ids))

        def before_next(self):
            self.asks += 1

        def before_commit(self, step):
            assert step is self.step and step.pending is None
            if self.ready is not step:
                self.ready = step
                raise LookupError("not yet")

        def committed(self, step, committed):
            assert step is self.step is self.ready
            self.apply(committed.gradient, step.learning_rate)
            self.count += 1
            self.flags[1] = True

    toy = Other()

    class Loss:
        def __init__(self, items): self.ids = [int(item) for item in items]

    loader = session.loader(numpy.arange(SEQUENCES), Loss)
    session.start(LENGTHS, state=toy)
    for step in session:
        if step.index == 0 and step.micro_batches:
            try:
                step.commit()
            except pliant.Error as error:
                assert f"rows {step.pending[0]}..{step.pending[-1]} have no gradient yet: step.backward(loss_sum)" in error.message, error
        for loss in loader.of(step):
            step.backward(loss)
        try:
            step.commit()
        except LookupError:
            step.commit()  # nothing has come of it
    assert toy.asks > toy.count or toy.count == 0
    if toy.count == STEPS:  # else it came too late to join
        print("SAID", json.dumps([toy.flags.tolist(), toy.calls]))
        keep(toy)
"""


def test_a_state_may_do_the_work_of_the_loop_and_joins_with_all_of_its_arrays(tmp_path, reference):
    job = elastic_jobs.run(tmp_path / "job", STATES, workers=3, options=["--inject=kill:rank=1,step=7"])
    check_whole(job, reference)
    said = said_by(job)
    assert len(said) >= 2 and said == [[[False, True, False], ["attach", "arrays"]]] * len(said)


LOOKING = """
    def held_out_loss():
        return 1 / (step.index + 1)

    session.start(LENGTHS, state=toy)
    expected, seen, longest = {}, 0, 0
    for step in session:
        if step.index in expected:
            batch, shares, rows = expected.pop(step.index)
            assert step.batch is batch
            assert shares != step.shares or rows == step.micro_batches
            seen += 1
        for ahead in (1, 2, 3):
            coming = session.coming(ahead)
            if coming is None:
                break
            assert coming.index == step.index + ahead and (coming.batch.epoch > step.batch.epoch or coming.batch.index == step.batch.index + ahead)
            assert [int(item) for item in coming.items()[0]] == coming.batch.ids_of(coming.micro_batches[0]).tolist() if coming.micro_batches else True
            expected[coming.index] = coming.batch, coming.shares, coming.micro_batches
            longest = max(longest, ahead)
        assert [int(item) for items in step.items() for item in items] == [int(i) for rows in step.micro_batches for i in step.batch.ids_of(rows)]
        add_all(step, toy)
        step.metric("rows", sum(map(len, step.micro_batches)), rule="sum")
        step.metric("largest", step.rank, rule="max")
        step.metric("mean", step.rank + 1.0, 2.0)
        assert session.last_evaluation is None or session.last_evaluation.values == {"held_out_loss": 1 / session.last_evaluation.step}
        committed = step.commit()
        if committed is None:
            continue
        toy.apply(committed.gradient, step.learning_rate)
        assert step.scaling().learning_rate == step.learning_rate and step.scaling(0.5).learning_rate == 0.5
        assert step.scaling("head").learning_rate == 0.25 and session.config.lr.groups == {"head": 0.25}
        assert refused(lambda: step.scaling("tail"), pliant.Status.NOT_FOUND, "[lr.groups] has no group 'tail'; it has head") is True
        if step.index % 4 == 3 and step.rank == 0:
            with session.busy("evaluation", 60):
                session.evaluated("held_out_loss", held_out_loss())
        found = session.last_evaluation
        if found and found.values["held_out_loss"] < 0.1:
            session.end_after_step("the loss is below 0.1")
    print("SAID", json.dumps([seen > 0, longest, step.index]))
"""


def test_coming_batches_come_and_what_was_measured_is_told(tmp_path):
    job = elastic_jobs.run(tmp_path / "job", LOOKING, workers=2, options=["--set", "lr.groups.head=0.25"])
    assert job.summary["outcome"] == "ended early" and job.summary["steps"] == 14, job.err + job.said
    assert said_by(job) == [[True, 3, 13]] * 2
    assert job.summary["metrics"] == {"rows": 12, "largest": 1, "mean": 1.5}
    assert [(one["step"], one["metrics"]) for one in job.summary["evaluations"]] == [(step, {"held_out_loss": 1 / step}) for step in (4, 8, 12)]


REFUSED = """
    S = pliant.Status
    session.start(LENGTHS, state=toy)
    step = session.next()
    calls = {
        "rule": lambda: step.metric("x", 1, rule="median"), "weight": lambda: step.metric("x", 1, 2, rule="sum") or step.metric("y", 1, -1),
        "name": lambda: step.metric("a b", 1), "busy": lambda: session.busy("", 1), "time": lambda: session.busy("x", 0), "reason": lambda: session.end_after_step(""),
        "ahead": lambda: session.coming(0), "base": lambda: step.scaling(-1.0), "evaluated": lambda: session.evaluated("x", 1, rule=""),
    }
    for name, call in calls.items():
        assert refused(call, S.INVALID_ARGUMENT) is True, name
    try:
        step.backward(3)
    except pliant.Error as error:
        assert error.status == S.UNIMPLEMENTED
    session.start  # nothing was lost
    go_on(session, toy)
"""


def test_what_is_none_of_a_metric_is_refused(tmp_path, reference):
    check_whole(elastic_jobs.run(tmp_path / "job", REFUSED), reference)


WRONG_TYPES = """
    from wrong_types_test import RAW, WRONG

    core = session._core
    tried = [0, 0]

    def try_all(call, **fits):
        for argument in fits:
            for value in WRONG:
                tried[0] += 1
                try:
                    call(**{**fits, argument: value})
                except (TypeError, ValueError, IndexError, OverflowError, pliant.Error) as failure:
                    tried[1] += 1
                    assert str(failure) and not any(word in str(failure) for word in RAW), (call, argument, value, failure)

    start = {"lengths": LENGTHS, "loss_tokens": None, "source": "x", "content": 0, "rows": None, "costs": None, "row_costs": None}
    for argument in start:
        for value in WRONG:
            try:
                core.start(**{**start, argument: value}, state=object())  # which none takes
                assert False
            except (TypeError, ValueError, OverflowError, pliant.Error) as failure:
                assert str(failure) and not any(word in str(failure) for word in RAW), (argument, value, failure)
    for value in WRONG:
        try:
            core.start(**start, state=value)
            assert False
        except (TypeError, ValueError, pliant.Error) as failure:
            assert str(failure) and not any(word in str(failure) for word in RAW), (value, failure)
    session.start(LENGTHS, state=toy)
    try_all(core.busy, what="x", at_most=1.0)
    try_all(core.evaluated, name="x", value=1.0, weight=1.0, rule="mean")
    try_all(core.coming, ahead=1)
    try_all(core.end_after_step, reason=3)
    try_all(core.on_snapshot, before=3, after=None)
    try_all(core.busy(what="x", at_most=1.0).__exit__, type=None, value=None, traceback=None)
    core.on_snapshot(None, None)
    step = session.next()
    gradient = numpy.zeros(ELEMENTS, "float32")
    try_all(step.scaling, base_lr=0.5)
    try_all(step.metric, name="x", value=1.0, weight=1.0, rule="mean")
    try_all(step.add, rows=range(99, 100), loss_sum=1.0, gradient=gradient)
    try_all(step.add_piece, rows=range(99, 100), offset=0, piece=gradient, count=None, dtype=None)
    try_all(step.batch.ids_of, rows=range(1))
    print("SAID", json.dumps(tried))
    session.next()
    go_on(session, toy)
"""


def test_a_wrong_type_is_refused_in_words_of_python(tmp_path):
    job = elastic_jobs.run(tmp_path / "job", WRONG_TYPES)
    ((tried, wrong),) = said_by(job)
    assert 0 < wrong < tried


OUTLIVING = """
    class Kept(Toy):
        def attach(self, session):
            self.session = session  # a cycle
        def begin(self, step):
            self.step = step  # and another one

    toy = Kept()
    session.on_snapshot(toy.save, None)
    session.on_snapshot(None, lambda *_: toy)
    session.start(numpy.array(LENGTHS, "int32"), state=toy)
    for step in session:
        add_all(step, toy)
        batch = step.batch
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
            gradient = committed.gradient
    keep(toy)
    held = {"toy": toy, "step": step, "committed": committed, "gradient": gradient, "batch": batch, "ids": batch.ids, "config": session.config,
            "busy": session.busy("x", 1), "session": session}
    gone = weakref.ref(toy)
    del session, toy, step, committed, gradient, batch
    for name in os.environ["TOY_ORDER"].split():
        del held[name]
        gc.collect()
        if "gradient" in held:
            assert abs(held["gradient"]).sum() >= 0  # its memory is there
    print("SAID", json.dumps(gone() is None))
"""


@pytest.mark.parametrize("order", ["session toy step committed batch ids config busy gradient", "gradient busy config ids batch committed step toy session",
                                   "toy gradient session step busy committed config batch ids"])
def test_objects_may_be_freed_in_any_order_and_cycles_are_found(tmp_path, reference, order):
    job = elastic_jobs.run(tmp_path / "job", OUTLIVING, env={"TOY_ORDER": order}, main=elastic_jobs.PLAIN_MAIN)
    check_whole(job, reference, 1)
    assert said_by(job) == [True]


DATA = """
    session.start(state=toy, content=5)
    go_on(session, toy)
"""


def test_lengths_may_be_those_of_the_config(tmp_path, reference):
    numpy.save(tmp_path / "lengths.npy", numpy.array(elastic_jobs.LENGTHS, "int32"))
    check_whole(elastic_jobs.run(tmp_path, DATA, settings=f'[data]\nlengths = "{tmp_path}/lengths.npy"'), reference)


CHANGED = """
    lengths = numpy.array(LENGTHS, "int32")
    session.start(lengths, state=toy)
    for step in session:
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
        if step.index == 9:  # the last one of the first epoch
            lengths[3] += 1
"""


def test_lengths_that_the_program_changes_are_noticed_when_the_epoch_ends(tmp_path):
    job = elastic_jobs.run(tmp_path / "job", CHANGED, settings="max_restarts = 0")
    assert job.code != 0 and "the array of lengths was changed" in job.said
