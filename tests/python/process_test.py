"""forks, threads, log lines and the end of the process leave a program whole."""
import collections
import functools
import gc
import itertools
import logging
import operator
import os
import random
import signal
import sys
import threading
import time

import numpy
import pytest
from conftest import ELASTIC, PACKED, lengths_of, toml

IS_WATCHED = "libasan" in os.environ.get("LD_PRELOAD", "")


def test_what_must_not_cross_a_fork_says_so_and_a_sampler_makes_its_own(run_python):
    run_python(
        """
        import os, sys
        import pliant
        config = pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"])
        lengths = list(range(3, 60)) * 3
        plan = pliant.plan(config)
        batches = pliant.Batches(config, plan, lengths)
        rate = pliant.LearningRate(config)
        ledger = pliant.Ledger.begin(config, plan, batches)
        balancer = pliant.Balancer(config)
        sampler = pliant.PackedBatchSampler(config, lengths, 1, 3)
        expected = [list(micro) for micro in sampler]
        sampler.set_epoch(0)
        child = os.fork()
        if child == 0:
            wrong = 0
            for call in (lambda: next(batches), batches.save, rate.save, lambda: ledger.steps, lambda: ledger.position,
                         lambda: balancer.assign([5] * 12, world_size=3), lambda: balancer.predict([5] * 12, world_size=3)):
                try:
                    call()
                    wrong += 1
                except pliant.Error as error:
                    wrong += error.status != pliant.Status.FAILED_PRECONDITION or "fork" not in str(error)
            wrong += [list(micro) for micro in sampler] != expected
            del batches, rate, ledger, sampler
            sys.exit(wrong)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert next(batches).index == 0 and ledger.steps == 0
        assert [list(micro) for micro in sampler] == expected
        """,
        leaves_memory=True,  # a child does not free what is its parent's
    )


# Of AddressSanitizer in GCC 12 the allocator keeps a lock of its own over a fork: a child may wait for a thread that it has not.
@pytest.mark.skipif(IS_WATCHED, reason="AddressSanitizer's allocator is not ready for forks beside threads")
def test_a_process_that_is_forked_while_threads_work_goes_on_and_ends(run_python):
    done = run_python(
        """
        import itertools, os, signal, sys, threading
        import pliant
        text = os.environ["PLIANT_TEST_CONFIG"].replace("max_gpus = 6", "max_gpus = 100")  # of which each plan warns
        config = pliant.Config.parse(text, sets=["run.epochs=1000000"])
        lengths = list(range(3, 60)) * 20
        batches = pliant.Batches(config, pliant.plan(config), lengths)
        begun = threading.Barrier(5)
        is_over = threading.Event()
        numbers = itertools.count()

        def work(call):
            call()
            begun.wait()
            while not is_over.is_set():
                call()

        def measure():
            pliant.analyse_lengths(f"{next(numbers)}.npy", 3000, lambda i: 5, identity="x", threads=1)

        def begin():  # opens plugins, plans, logs and closes them
            parsed = pliant.Config.parse(text)
            pliant.Batches(parsed, pliant.plan(parsed), lengths)

        work_of = (measure, lambda: next(batches), lambda: pliant.plan(config), begin)
        threads = [threading.Thread(target=work, args=(call,)) for call in work_of]
        for thread in threads:
            thread.start()
        begun.wait()
        wrong = 0
        for _ in range(400 if os.environ.get("PLIANT_THOROUGH_TESTS") else 12):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # of one that waits for a thread that it has not
                begin()
                pliant.plan(config)
                try:
                    next(batches)
                except pliant.Error as error:
                    sys.exit("fork" not in str(error))  # by way of what the interpreter does at its end
                sys.exit(3)
            _, status = os.waitpid(child, 0)
            wrong += os.waitstatus_to_exitcode(status) != 0
        is_over.set()
        for thread in threads:
            thread.join()
        print(wrong)
        """,
        leaves_memory=True,  # a child does not free what is its parent's
    )
    assert done.stdout.splitlines()[-1] == "0", done.stderr


def test_warnings_go_to_logging(pliant, caplog, capfd):
    config = pliant.Config.parse("config_version = 1\n" + ELASTIC.replace("max_gpus = 6", "max_gpus = 100"))
    with caplog.at_level(logging.WARNING, logger="pliant"):
        pliant.plan(config)
    (record,) = caplog.records
    assert record.name == "pliant.plugin.exact" and record.levelno == logging.WARNING and "100" in record.getMessage()
    assert capfd.readouterr() == ("", "")


def test_nobody_is_told_who_does_not_listen(run_python):
    done = run_python(
        """
        import os, pliant
        text = os.environ["PLIANT_TEST_CONFIG"].replace("max_gpus = 6", "max_gpus = 100")
        pliant.plan(pliant.Config.parse(text))
        """
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_handler_that_fails_does_not_fail_the_call(pliant, monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: seen.append(failure.exc_type))

    def broken(record):
        raise RuntimeError("broken")

    config = pliant.Config.parse("config_version = 1\n" + ELASTIC.replace("max_gpus = 6", "max_gpus = 100"))
    logger = logging.getLogger("pliant.plugin.exact")
    logger.addFilter(broken)
    try:
        assert pliant.plan(config).global_batch == 12
    finally:
        logger.removeFilter(broken)
    assert seen == [RuntimeError]


def test_a_process_may_end_in_the_midst_of_anything(run_python):
    done = run_python(
        """
        import os, threading
        import pliant
        config = pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"], sets=["run.epochs=100000"])
        lengths = list(range(3, 60)) * 2000
        begun = threading.Barrier(7)

        def work():
            batches = pliant.Batches(config, pliant.plan(config), lengths)
            begun.wait()
            for batch in batches:
                batch.digest

        def free():  # the last one frees the data set, without the lock
            begun.wait()
            while True:
                pliant.Batches(config, plan, lengths).batch(0, 0)

        plan = pliant.plan(config)
        left = pliant.Batches(config, plan, lengths).batch(0, 0), pliant.Batches(config, plan, lengths)  # freed by the interpreter, or not at all
        for call in 4 * (work,) + 2 * (free,):
            threading.Thread(target=call, daemon=True).start()
        begun.wait()
        iterator = iter(pliant.PackedBatchSampler(config, lengths, 0, 3))
        next(iterator)
        """,
        leaves_memory=True,
    )
    assert done.stderr == ""


# Where an interpreter that ends unwinds a thread, the frames that it leaves stay marked, and AddressSanitizer of g++ 12 trips over them itself:
# "CHECK failed: asan_thread.cpp", in what it does before a function that does not return.
@pytest.mark.skipif(IS_WATCHED, reason="AddressSanitizer trips over threads that were unwound")
@pytest.mark.parametrize("work", ["pliant.analyse_lengths('lengths.npy', 10**6, called, identity='x', threads=2)",
                                  "ledger.keep_snapshot(lambda file: [called(0) for _ in range(10**6)])"])
def test_a_process_may_end_while_a_callback_runs(run_python, work):
    done = run_python(
        f"""
        import os, threading, time
        import pliant

        class Last:
            def __del__(self, give_way=time.sleep):
                for _ in range(3000):
                    give_way(0)  # other threads come for the lock of an interpreter that ends

        last = Last()
        config = pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"])
        plan = pliant.plan(config)
        batches = pliant.Batches(config, plan, [5] * 100)
        ledger = pliant.Ledger.begin(config, plan, batches)
        begun = threading.Event()

        def called(i):
            begun.set()
            time.sleep(0)
            return 5

        threading.Thread(target=lambda: {work}, daemon=True).start()
        begun.wait()
        """
    )
    assert done.stderr == ""


def test_objects_may_be_freed_in_any_order(pliant, tmp_path):
    orders = list(itertools.permutations(range(5)))
    some = random.Random(1)
    orders += [some.sample(range(16), 16) for _ in range(100)]
    for order in orders:
        config = pliant.Config.parse(toml(), sets=[f"run.log_dir={tmp_path}/runs"])
        plan = pliant.plan(config)
        lengths = numpy.full(50, 5, dtype="int32")
        batches = pliant.Batches(config, plan, lengths)
        batch = next(batches)
        held = [config, plan, batches, batch, batch.ids]
        if len(order) > 5:
            sampler = pliant.PackedBatchSampler(config, lengths, 0, 1)
            iterator = iter(sampler)
            micro = next(iterator)
            parts = pliant.micro_batches(batch, rank=0, world_size=1, micro_batch=2)
            held += [lengths, sampler, iterator, micro, micro[0], parts[0].ids, batch.offsets, pliant.Balancer(config),
                     pliant.LearningRate(config), pliant.Planner(config), config.run]
            del sampler, iterator, micro, parts
        del config, plan, batches, batch, lengths
        for place in order:
            held[place] = None
            gc.collect(0)


def test_a_ledger_outlives_what_it_was_made_of(pliant, tmp_path):
    def made():
        config = pliant.Config.parse(toml(), sets=[f"run.log_dir={tmp_path}/runs"])
        plan = pliant.plan(config)
        batches = pliant.Batches(config, plan, [5] * 50)
        return pliant.Ledger.begin(config, plan, batches), batches.at_step(0)

    ledger, batch = made()
    gc.collect()
    ledger.start_generation(1, "start")
    ledger.commit(batch, pliant.share_out(len(batch), world_size=1, micro_batch=2, granule=2), 0.5, 0.01)
    files = []
    ledger.keep_snapshot(lambda file: files.append(file) or file.write(b"state"))
    assert ledger.restore().state == b"state"
    del ledger
    gc.collect()
    with pytest.raises(pliant.Error, match="is written"):
        files[0].write(b"more")


def test_calls_of_two_threads_run_at_the_same_time(pliant, tmp_path):
    both = threading.Barrier(2, timeout=60)
    seen = set()

    def length_of(i):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait()  # passes when two threads are in here at once
        return 5

    count = 100_000  # more than one thread takes before the other begins
    assert pliant.analyse_lengths(tmp_path / "lengths.npy", count, length_of, identity="x", threads=2) == (count, 0)


@pytest.fixture
def interrupted():
    """Calls something that gives the lock of the interpreter back, and interrupts it there as Ctrl-C does. Gives what it had returned, or None
    where the interrupt came out of it."""
    main = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where a shell runs the tests in the background
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # another thread runs when this one waits, and at no other time

    def call(work):
        go = threading.Event()
        ready = threading.Event()

        def interrupt():
            ready.set()
            go.wait()
            signal.pthread_kill(main, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        ready.wait()
        returned = []
        with pytest.raises(KeyboardInterrupt):
            go.set()
            returned.append(work())
            thread.join()
        thread.join()
        return returned[0] if returned else None

    yield call
    sys.setswitchinterval(interval)
    signal.signal(signal.SIGINT, before)


WAITS = {
    "plan": lambda pliant, job: pliant.plan(job.config),
    "Planner": lambda pliant, job: pliant.Planner(job.config),
    "Planner.plan": lambda pliant, job: pliant.Planner(job.config).plan(3),
    "Config.open": lambda pliant, job: pliant.Config.open(job.file),
    "Config.parse": lambda pliant, job: pliant.Config.parse(toml()),
    "Config.with_sets": lambda pliant, job: job.config.with_sets(["run.seed=8"]),
    "Config.resolved_toml": lambda pliant, job: job.config.resolved_toml(),
    "Batches": lambda pliant, job: pliant.Batches(job.config, job.plan, job.lengths),
    "next": lambda pliant, job: next(job.batches),
    "Batches.batch": lambda pliant, job: job.batches.batch(2, 0),
    "Batches.rows": lambda pliant, job: job.batches.rows(2, 0, 5),
    "Batches.epoch": lambda pliant, job: job.batches.epoch(1),
    "Batches.dropped": lambda pliant, job: job.batches.dropped(1),
    "Batches.truncated": lambda pliant, job: job.batches.truncated(1),
    "Batches.has_step": lambda pliant, job: job.batches.has_step(3),
    "Batches.at_step": lambda pliant, job: job.batches.at_step(3),
    "Batches.expected_steps": lambda pliant, job: job.batches.expected_steps(),
    "Batches.job_length": lambda pliant, job: job.batches.job_length(),
    "Batches.load": lambda pliant, job: job.batches.load(job.batches.save()),
    "micro_batches": lambda pliant, job: pliant.micro_batches(job.batch, rank=0, world_size=1, micro_batch=2),
    "row_costs": lambda pliant, job: pliant.row_costs(job.batch),
    "share_out": lambda pliant, job: pliant.share_out(12, world_size=3, micro_batch=2, granule=2),
    "waiting": lambda pliant, job: pliant.waiting([5] * 12, pliant.share_out(12, world_size=3)),
    "LearningRate": lambda pliant, job: pliant.LearningRate(job.config),
    "Balancer": lambda pliant, job: pliant.Balancer(job.config),
    "Balancer.predict": lambda pliant, job: pliant.Balancer(job.config).predict([5] * 12, world_size=3),
    "Balancer.assign": lambda pliant, job: pliant.Balancer(job.config).assign([5] * 12, world_size=3),
    "read_lengths": lambda pliant, job: pliant.read_lengths(job.npy),
    "sampler": lambda pliant, job: list(pliant.PackedBatchSampler(job.config, job.lengths, 0, 3)),
    "sampler's state": lambda pliant, job: pliant.PackedBatchSampler(job.config, job.lengths, 0, 3).state_dict(),
}


class Job:
    def __init__(self, pliant, folder, *sets):
        self.file = folder / "job.toml"
        self.file.write_text(toml(more='[balancer]\nuse = "lpt"\n'))
        self.config = pliant.Config.open(self.file, sets=[f"run.log_dir={folder}/runs", *sets])
        self.plan = pliant.plan(self.config)
        self.lengths = numpy.array(lengths_of(), dtype="int32")
        self.npy = folder / "lengths.npy"
        numpy.save(self.npy, self.lengths)
        self.batches = pliant.Batches(self.config, self.plan, self.lengths)
        self.epochs = itertools.count()
        self.batch = self.batches.batch(0, 0)


@pytest.mark.parametrize("wait", WAITS)
def test_an_interrupt_comes_out_of_every_wait_and_leaves_all_as_it_was(pliant, interrupted, tmp_path, wait):
    job = Job(pliant, tmp_path)
    interrupted(lambda: WAITS[wait](pliant, job))
    if wait == "next":  # which was given, and to nobody
        assert job.batches.next_step == 1
        job.batches.load(Job(pliant, tmp_path).batches.save())
    assert WAITS[wait](pliant, job) is not None or wait == "Batches.load"
    expected = pliant.Batches(job.config, job.plan, job.lengths)
    if wait == "next":
        next(expected)
    assert [batch.digest for batch in job.batches] == [batch.digest for batch in expected]


@pytest.fixture
def another_runs():
    """Whether another thread runs while `work` does, which is called until it has, for `most` seconds at most: for as long as this one keeps the
    lock of the interpreter it does not. It is awake after some milliseconds without the lock, however many calls they are of; where other
    programs want the processors, too, that takes a while."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)

    def call(work, most=60):
        ready, go, ran = threading.Event(), threading.Event(), threading.Event()

        def other():
            ready.set()
            go.wait()
            ran.set()

        thread = threading.Thread(target=other)
        thread.start()
        ready.wait()
        go.set()
        end = time.monotonic() + most
        while not ran.is_set() and time.monotonic() < end:
            work()
        found = ran.is_set()
        thread.join()
        return found

    yield call
    sys.setswitchinterval(interval)


@pytest.fixture
def another_runs_as_they_go():
    """Whether another thread runs while the objects of a list are freed, all but the one that goes last. It has asked for the lock by then, so that
    the interpreter gives it away where it is released at all; all of that is one call of C, within which it gives it away nowhere else."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def call(kept):
        ready, go, ran = threading.Event(), threading.Lock(), []
        go.acquire()

        def other():
            ready.set()
            go.acquire()
            ran.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        ready.wait()
        asks = functools.partial(sum, range(10**7))  # that long
        (found,) = collections.deque(map(operator.methodcaller("__call__"), [go.release, asks, *[kept.pop] * len(kept), ran.copy]), maxlen=1)
        thread.join()
        return bool(found)

    yield call
    sys.setswitchinterval(interval)


# Calls that look at an epoch: the next one each time, for a second call would find it planned.
PLANS = {
    "Batches.batch": lambda pliant, job: job.batches.batch(next(job.epochs), 0),
    "Batches.rows": lambda pliant, job: job.batches.rows(next(job.epochs), 0, 5),
    "Batches.epoch": lambda pliant, job: job.batches.epoch(next(job.epochs)),
    "Batches.dropped": lambda pliant, job: job.batches.dropped(next(job.epochs)),
    "Batches.truncated": lambda pliant, job: job.batches.truncated(next(job.epochs)),
    "Batches.at_step": lambda pliant, job: job.batches.at_step(20 * next(job.epochs)),
    "Batches.has_step": lambda pliant, job: job.batches.has_step(20 * next(job.epochs)),
}


@pytest.mark.parametrize("wait", ["plan", "Planner", "Planner.plan", "Config.open", "Config.parse", "Config.with_sets", "Config.resolved_toml", "Batches", "next",
                                  "Batches.load", "LearningRate", "Balancer", "sampler", "sampler's state", *PLANS])
def test_another_thread_runs_during_every_call_that_may_take_long(pliant, another_runs, tmp_path, wait):
    job = Job(pliant, tmp_path, "run.epochs=1000000")
    assert another_runs(lambda: PLANS.get(wait, WAITS[wait])(pliant, job))


# The same of much: all of these take so long that few calls suffice. The costs that some copy before, without the lock, are few.
ROWS = 20_000
RANKS = 100_000
COSTS = [5] * 12
OF_MUCH = {
    "micro_batches": lambda pliant, job: pliant.micro_batches(job.batch, rank=0, world_size=1, micro_batch=2),
    "row_costs": lambda pliant, job: pliant.row_costs(job.batch),
    "share_out": lambda pliant, job: pliant.share_out(50 * ROWS, world_size=3, micro_batch=2, granule=2),
    "waiting": lambda pliant, job: pliant.waiting(COSTS, job.shared),
    "Balancer.predict": lambda pliant, job: job.balancer.predict(COSTS, world_size=RANKS),
    "Balancer.assign": lambda pliant, job: job.balancer.assign(COSTS, world_size=RANKS),
    "read_lengths": lambda pliant, job: pliant.read_lengths(job.npy),
    "Batches.expected_steps": lambda pliant, job: job.batches.expected_steps(),
    "Batches.job_length": lambda pliant, job: job.batches.job_length(),
}


@pytest.fixture(scope="module")
def job_of_much(tmp_path_factory):
    import pliant

    job = Job(pliant, tmp_path_factory.mktemp("much"))
    job.lengths = numpy.full(20 * ROWS, 30, dtype="int32")  # two to a row
    job.long = job.lengths.astype("int64")  # is copied
    numpy.save(job.npy, job.lengths)
    job.batches = pliant.Batches(job.config, job.plan, job.lengths)
    job.batch = job.batches.rows(0, 0, ROWS)
    job.shared = pliant.share_out(len(COSTS), world_size=RANKS)
    job.balancer = pliant.Balancer(job.config)
    job.shuffled = pliant.Config.parse(toml('[sampler]\nuse = "fixed"\n[sampler.fixed]\norder = "random"\n'))
    cut = pliant.Config.parse(toml(PACKED.replace("max_tokens = 64", 'max_tokens = 16\nover_long = "truncate"')))
    job.cut = pliant.Batches(cut, job.plan, job.lengths)
    return job


# What stays behind where these go: the lock is not kept until their memory is given back.
FREED = {
    "Batches": lambda pliant, job: pliant.Batches(job.shuffled, job.plan, job.long, costs=job.long),
    "Batch": lambda pliant, job: pliant.Batches(job.shuffled, job.plan, job.long, costs=job.long).batch(0, 0),
    "Batches.truncated": lambda pliant, job: job.cut.truncated(0),
    "read_lengths": lambda pliant, job: pliant.read_lengths(job.npy),
}
# The same of what closes plugins.
CLOSED = {
    "Config": lambda pliant, job: pliant.Config.open(job.file),
    "Planner": lambda pliant, job: pliant.Planner(pliant.Config.open(job.file)),
    "Balancer": lambda pliant, job: pliant.Balancer(pliant.Config.open(job.file)),
    "LearningRate": lambda pliant, job: pliant.LearningRate(pliant.Config.open(job.file), pliant.BatchSize(rows=1, loss_tokens=1)),
}


@pytest.mark.parametrize("what", [*FREED, *CLOSED])
def test_another_thread_runs_while_what_takes_long_is_freed(pliant, another_runs_as_they_go, job_of_much, what):
    make = {**FREED, **CLOSED}[what]
    assert another_runs_as_they_go([make(pliant, job_of_much) for _ in range(4)])


def test_no_other_thread_runs_while_what_keeps_the_lock_is_freed(another_runs_as_they_go):
    assert not another_runs_as_they_go([object() for _ in range(1000)])  # so that the test above can tell


def test_what_is_large_is_freed_by_the_collector_and_where_something_was_raised(pliant, job_of_much):
    for make in [*FREED.values(), *CLOSED.values()]:
        kept = [make(pliant, job_of_much)]
        kept.append(kept)
        del kept
        assert gc.collect() > 0

        def fail(kept):
            del kept
            raise LookupError("the last of its frame goes after that")

        with pytest.raises(LookupError):
            fail(make(pliant, job_of_much))


@pytest.mark.parametrize("wait", OF_MUCH)
def test_another_thread_runs_during_every_call_on_much(pliant, another_runs, job_of_much, wait):
    assert another_runs(lambda: OF_MUCH[wait](pliant, job_of_much))


def test_another_thread_runs_during_every_call_of_a_ledger(pliant, another_runs, tmp_path):
    job = Job(pliant, tmp_path)
    assert another_runs(lambda: pliant.Ledger.begin(job.config, job.plan, job.batches))
    ledger = pliant.Ledger.begin(job.config, job.plan, job.batches)
    assert another_runs(lambda: ledger.start_generation(1, "start"))
    assignment = pliant.share_out(len(job.batch), world_size=1, micro_batch=2, granule=2)
    assert another_runs(lambda: ledger.commit(job.batch, assignment, 0.5, 0.01))
    assert another_runs(lambda: ledger.keep_snapshot(bytes(100_000)))
    assert another_runs(ledger.restore)
    directory = ledger.directory
    del ledger
    assert another_runs(lambda: pliant.Ledger.open(directory, job.config, job.plan, job.batches))


def test_no_other_thread_runs_during_a_call_that_keeps_the_lock(pliant, another_runs, tmp_path):
    job = Job(pliant, tmp_path)
    assert not another_runs(lambda: job.batch.row(0), 0.5)  # so that the tests above can tell


def test_a_snapshot_is_in_memory_once_when_it_is_restored(run_python):
    done = run_python(
        """
        import os, resource
        import pliant
        config = pliant.Config.parse(os.environ["PLIANT_TEST_CONFIG"])
        plan = pliant.plan(config)
        batches = pliant.Batches(config, plan, [5] * 100)
        ledger = pliant.Ledger.begin(config, plan, batches)
        piece = os.urandom(1 << 20)
        ledger.keep_snapshot(lambda file: [file.write(piece) for _ in range(96)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kept = ledger.restore().state
        assert len(kept) == 96 << 20 and kept[-(1 << 20):] == piece
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    )
    assert int(done.stdout) < 140 << 10  # KiB


def test_an_interrupted_ledger_has_a_step_and_a_snapshot_wholly_or_not_at_all(pliant, interrupted, tmp_path):
    job = Job(pliant, tmp_path)
    interrupted(lambda: pliant.Ledger.begin(job.config, job.plan, job.batches))
    ledger = pliant.Ledger.begin(job.config, job.plan, job.batches)
    interrupted(lambda: ledger.start_generation(1, "start"))
    assignment = pliant.share_out(len(job.batch), world_size=1, micro_batch=2, granule=2)
    interrupted(lambda: ledger.commit(job.batch, assignment, 0.5, 0.01))
    assert ledger.steps == 1
    ledger.keep_snapshot(b"first")

    def write(file):
        file.write(b"half")
        threading.Event().wait()  # is interrupted

    assert interrupted(lambda: ledger.keep_snapshot(write)) is None
    interrupted(ledger.restore)
    assert ledger.restore() == (1, b"", b"first")
    interrupted(lambda: ledger.keep_snapshot(b"second"))
    assert ledger.restore().state in (b"first", b"second")
    directory = ledger.directory
    del ledger
    interrupted(lambda: pliant.Ledger.open(directory, job.config, job.plan, job.batches))
    assert pliant.Ledger.open(directory, job.config, job.plan, job.batches).steps == 1


def test_an_interrupt_in_a_callback_of_progress_ends_the_measuring_of_lengths(pliant, tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    once = iter([signal.SIGINT])  # a second one might come as the first ends the call, and would be the next call's

    def progress(*_):
        for number in once:
            signal.raise_signal(number)

    try:
        with pytest.raises(KeyboardInterrupt):
            pliant.analyse_lengths(tmp_path / "lengths.npy", 10**9, lambda i: 5, identity="x", progress=progress)
    finally:
        signal.signal(signal.SIGINT, before)
    assert pliant.analyse_lengths(tmp_path / "other.npy", 10, lambda i: 5, identity="x") == (10, 0)
