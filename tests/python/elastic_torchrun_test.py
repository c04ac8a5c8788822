"""a group that torchrun starts is a job of its own agent, and goes on when it is started again, at any size."""
import json
import os
import re
import signal
import textwrap

import elastic_jobs
import launched_jobs
import pytest

# One rank is gone in the first attempt, in the middle of a step.
DIES = """
    session.start(LENGTHS, state=toy)
    step = None
    for step in session:
        if ATTEMPT == 0 and RANK == {rank} and step.index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
    keep(toy)
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return elastic_jobs.reference_of(tmp_path_factory.mktemp("elastic"))


def runs(folder):
    return sorted(file.name for file in (folder / "pliant-runs/job").iterdir() if not file.is_symlink())


def check_whole(job, folder, reference, ranks):
    assert job.codes == [0] * ranks, job.said
    assert job.weights == [reference] * ranks, job.said
    code, said = launched_jobs.audit(folder)
    assert code == 0 and len(runs(folder)) == 1, said


def test_a_group_ends_with_the_weights_of_pliant_run(tmp_path, reference):
    job = launched_jobs.run(tmp_path)
    check_whole(job, tmp_path, reference, 2)
    assert job.attempts == 1 and "generation 1: 2 ranks from step 0" in job.logs["log-0-0"], job.said
    address = job.stored.pop("pliant-0-agent")  # all that goes through torchrun's store, beside counts of those that attached
    assert re.fullmatch("pliant-[0-9a-f]{32}", address) and job.stored == {f"pliant-0-attached-{rank}.1": "" for rank in range(2)}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_costs_no_step_when_the_group_is_started_again(tmp_path, reference, rank):
    job = launched_jobs.run(tmp_path, DIES.format(rank=rank), restarts=1)
    check_whole(job, tmp_path, reference, 2)
    assert job.attempts == 2 and "2 ranks from step 7" in job.logs["log-1-0"], job.said
    assert f"rank {rank} (worker {rank}) ended (its launcher knows how)" in job.logs["log-0-0"], job.said


def test_another_start_of_torchrun_goes_on_at_another_size_where_it_is_asked_to_resume(tmp_path, reference):
    assert 0 not in launched_jobs.run(tmp_path, DIES.format(rank=1)).codes
    job = launched_jobs.run(tmp_path, ranks=3, resume=True, run_id="another")
    check_whole(job, tmp_path, reference, 3)
    assert "3 ranks from step 7" in job.said, job.said


def test_pliant_run_goes_on_with_a_run_of_torchrun(tmp_path, reference):
    job = launched_jobs.run(tmp_path, DIES.format(rank=1))
    assert "pliant run " in job.said and "--resume " in job.said, job.said
    whole = elastic_jobs.run(tmp_path, options=("--resume",), workers=1)
    assert whole.code == 0 and set(whole.weights) == {reference}, whole.err
    assert whole.summary["resumed_from"] == 7 and whole.summary["samples_repeated"] == 0


def test_a_start_that_does_not_resume_begins_a_run_of_its_own(tmp_path, reference):
    launched_jobs.run(tmp_path, DIES.format(rank=1))
    job = launched_jobs.run(tmp_path, ranks=1, run_id="another")
    assert job.codes == [0] and job.weights == [reference] and len(runs(tmp_path)) == 2, job.said


@pytest.mark.parametrize("resume", [False, True])
def test_a_group_that_is_started_again_finds_its_own_run_behind_one_of_another_start(tmp_path, reference, resume):
    launched_jobs.run(tmp_path, DIES.format(rank=1), run_id="one")
    assert launched_jobs.run(tmp_path, ranks=1, run_id="another").codes == [0]
    job = launched_jobs.run(tmp_path, run_id="one", resume=resume)
    assert job.codes == [0, 0] and job.weights == [reference] * 2 and len(runs(tmp_path)) == 2, job.said
    assert "2 ranks from step 7" in job.said, job.said


KILLS_THE_AGENT = """
    session.start(LENGTHS, state=toy)
    for step in session:
        if ATTEMPT == 0 and RANK == 0 and step.index == 7:
            os.kill(session._agent._process.pid, signal.SIGKILL)
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
    keep(toy)
"""


def test_ranks_end_when_the_agent_is_killed_and_the_group_that_is_started_again_goes_on(tmp_path, reference):
    job = launched_jobs.run(tmp_path, KILLS_THE_AGENT, restarts=1, settings="snapshot_every = 5")
    check_whole(job, tmp_path, reference, 2)
    assert "the agent of this job is gone" in job.said and "2 ranks from step 5" in job.logs["log-1-0"], job.said


STOPS = """
    session.start(LENGTHS, state=toy)
    for step in session:
        if step.index == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
"""


def test_sigterm_to_the_ranks_stops_the_job_after_the_step_with_a_snapshot(tmp_path, reference):
    job = launched_jobs.run(tmp_path, STOPS)
    assert job.codes[0] == 128 + signal.SIGTERM and "stopped after step" in job.said, job.said
    job = launched_jobs.run(tmp_path, resume=True)
    check_whole(job, tmp_path, reference, 2)
    assert int(re.search("2 ranks from step ([0-9]+)", job.said)[1]) >= 8, job.said


def test_a_child_of_a_rank_that_is_ended_by_a_signal_stops_no_job(tmp_path, reference):
    job = launched_jobs.run(tmp_path, """
        if (child := os.fork()) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        os.waitpid(child, 0)
        session.start(LENGTHS, state=toy)
        go_on(session, toy)
    """, ranks=1)
    check_whole(job, tmp_path, reference, 1)


def test_a_mistake_in_the_config_ends_all_ranks(tmp_path):
    absent = launched_jobs.MAIN.replace("'pliant.toml'", "'absent.toml'")
    for word, settings, main in (("snapshot_evry", "snapshot_evry = 5", launched_jobs.MAIN), ("absent.toml", "", absent)):
        job = launched_jobs.run(tmp_path, settings=settings, main=main)
        heard = [rank for rank, code in enumerate(job.codes) if code > 0]  # the launcher ends a rank that is slower
        assert heard and word in job.logs["log-0-0"], job.said
        for rank in heard:  # the agent may be gone already when it calls
            assert re.search(f"{word}|no agent is at|agent of this job ended before", job.logs[f"log-0-{rank}"]), job.said


def test_a_rank_that_does_not_attach_is_named_after_start_timeout_s(tmp_path):
    main = launched_jobs.MAIN.replace("sys.exit(", "if RANK == 1: signal.pause()\nsys.exit(")
    job = launched_jobs.run(tmp_path, settings="start_timeout_s = 1", main=main)
    assert job.codes[0] == 1 and "rank 1 of 2 did not attach within 1 s" in job.logs["log-0-0"], job.said


def test_a_rank_that_ends_before_the_others_attach_ends_the_wait(tmp_path):
    main = launched_jobs.MAIN.replace("sys.exit(", "if RANK == 1: sys.exit(9)\nsys.exit(")
    job = launched_jobs.run(tmp_path, main=main)
    assert job.codes[1] == 9 and job.codes[0] != 0, job.said


def test_a_rank_that_ends_between_the_start_of_the_agent_and_its_own_call_ends_the_agent(tmp_path):
    """Else the output of the group stays open, and the run taken, until the agent has waited for ten minutes."""
    end = "pliant._core.Session.attach_at = lambda *_: os.kill(os.getpid(), 9)\n"
    main = launched_jobs.MAIN.replace("sys.exit(", f"if RANK == 0: {end}else: sys.exit(0)\nsys.exit(")
    job = launched_jobs.run(tmp_path, main=main, settings="start_timeout_s = 600")
    assert job.codes[0] == -9 and "the process that started this agent ended before ranks 0, 1 of 2 had attached" in job.said, job.said


# Whoever opens a pipe waits for who opens its other end: the other rank attaches once the first one was interrupted in its wait for it.
ATTACHES = """
attach_at = pliant._core.Session.attach_at
def interrupted_attach(*given):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the launcher, where the agent has ended the other rank before
    interrupted(lambda: attach_at(*given), lambda: open("go", "wb").close())
    raise KeyboardInterrupt
def later_attach(*given):
    open("go", "rb").close()
    return attach_at(*given)
if ATTEMPT == 0:
    pliant._core.Session.attach_at = interrupted_attach if RANK == {rank} else later_attach
sys.exit("""


@pytest.mark.parametrize("rank", [0, 1])
def test_an_interrupt_of_a_rank_that_waits_for_others_to_attach_ends_it_and_the_group_may_be_started_again(tmp_path, reference, rank):
    os.mkfifo(tmp_path / "go")
    job = launched_jobs.run(tmp_path, restarts=1, main=launched_jobs.MAIN.replace("sys.exit(", ATTACHES.format(rank=rank)))
    check_whole(job, tmp_path, reference, 2)
    assert job.attempts == 2 and job.all_codes[rank] == -signal.SIGINT and "in interrupted_attach" in job.logs[f"log-0-{rank}"], job.said
    assert f"pliant: error: worker {rank} ended" in job.logs["log-0-0"], job.said


# Rank 0 has started the agent, and nobody is told where it is.
TELLS_NOBODY = """
import subprocess
wait = subprocess.Popen.wait
def noted_wait(process, *given):
    print("agent ended with code", wait(process, *given))
def interrupted_set(*_):
    subprocess.Popen.wait = noted_wait
    raise KeyboardInterrupt
torch.Store.set = interrupted_set
sys.exit("""


def test_an_interrupt_of_rank_0_before_it_attaches_ends_the_agent_too(tmp_path):
    job = launched_jobs.run(tmp_path, ranks=1, main=launched_jobs.MAIN.replace("sys.exit(", TELLS_NOBODY))
    assert job.codes == [-signal.SIGINT] and "ended before rank 0 of 1 had attached" in job.said and "agent ended with code 1" in job.said, job.said


# Rank 1 has left when rank 0 was interrupted in its wait for the agent, which waits for rank 1.
LEAVES = """
    session.start(LENGTHS, state=toy)
    go_on(session, toy)
    if RANK == 1:
        return open("go", "rb").close()
    process = session._agent._process
    wait = process.wait
    def interrupted_wait(*given):
        process.wait = wait
        interrupted(lambda: wait(*given), lambda: open("go", "wb").close())
        raise KeyboardInterrupt
    process.wait = interrupted_wait
"""


def test_an_interrupt_of_rank_0_in_its_wait_for_the_agent_ends_it_and_takes_nothing_from_the_job(tmp_path, reference):
    os.mkfifo(tmp_path / "go")
    job = launched_jobs.run(tmp_path, LEAVES)
    assert job.codes == [-signal.SIGINT, 0] and job.weights == [reference] * 2, job.said
    assert job.logs["log-0-0"].count("Traceback") == 1 and "agent.leave()" in job.logs["log-0-0"], job.said
    code, said = launched_jobs.audit(tmp_path)
    assert code == 0, said


MISUSE = """
    attach, environment = pliant.elastic.Session.attach, dict(os.environ)

    def with_variables(*words, **changed):
        os.environ.update(changed)
        found = refused(lambda: attach("pliant.toml"), S.INVALID_ARGUMENT, *words)
        os.environ.clear()
        os.environ.update(environment)
        return found

    said = {
        "no number": with_variables("RANK is 'x'", RANK="x"),
        "negative": with_variables("RANK is '-1'", RANK="-1"),
        "too large": with_variables("RANK is 2 and WORLD_SIZE 2", RANK="2", WORLD_SIZE="2"),
        "machines": with_variables("2 of 4 ranks are on this machine", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2"),
        "no config": refused(attach, S.FAILED_PRECONDITION, "torchrun started this program", "config"),
    }
    del sys.modules["torch"]
    said["no torch"] = refused(lambda: attach("pliant.toml"), S.FAILED_PRECONDITION, "import torch before")
    del os.environ["RANK"]
    said["nothing"] = refused(lambda: attach("pliant.toml"), S.FAILED_PRECONDITION, "start it with `pliant run CONFIG -- PROGRAM`")
    os.environ.update(environment)
    import torch
    session = attach("pliant.toml", sets=["run.epochs=1"])
    said["sets"] = session.config.run.epochs == 1
    said["twice"] = refused(lambda: attach("pliant.toml"), S.FAILED_PRECONDITION, "as this rank before")
    print("SAID", json.dumps(said))
    session.start(LENGTHS, state=Toy())
"""


def test_what_torchrun_does_not_do_is_refused_with_what_is_wrong(tmp_path):
    job = launched_jobs.run(tmp_path, "", ranks=1, main=launched_jobs.IMPORTS + textwrap.dedent(MISUSE).replace("{", "{{").replace("}", "}}"))
    (line,) = [line for line in job.said.splitlines() if line.startswith("SAID ")]
    assert {name: found for name, found in json.loads(line[5:]).items() if found is not True} == {}, job.said
    assert job.codes == [0], job.said


def test_an_address_that_no_agent_has_is_refused_by_the_module(tmp_path):
    import pliant

    for address, rank, world_size, status in [("pliant-nowhere", 0, 1, pliant.Status.FAILED_PRECONDITION), ("", 0, 1, pliant.Status.INVALID_ARGUMENT),
                                              ("pliant-nowhere", 1, 1, pliant.Status.INVALID_ARGUMENT)]:
        with pytest.raises(pliant.Error) as raised:
            pliant._core.Session.attach_at(address, rank, world_size, False)
        assert raised.value.status == status


def test_options_of_launchers_that_make_no_sense_are_refused(tmp_path):
    launched_jobs.prepare(tmp_path, elastic_jobs.PLAIN)

    def run(*options, folder=tmp_path):
        return elastic_jobs.run(folder, options=options)

    assert "cannot take the calls of workers" in run("--listen", "77").err
    job = run("--launcher", "x")
    assert job.code == 2 and "--listen" in job.err, job.err
    job = run("--resume-or-begin", folder=tmp_path / "new")
    assert job.code == 0 and job.summary["resumed_from"] is None, job.summary
    job = run("--resume-or-begin", folder=tmp_path / "new")
    assert job.code == 0 and job.summary["resumed_from"] == 20, job.summary
