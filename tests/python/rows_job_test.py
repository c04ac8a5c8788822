"""a job of a packer in Python, whose workers are killed and which goes on at another size, ends with the weights of one that was not."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import elastic_jobs
import numpy
from conftest import lengths_of, toml
from rows_test import packed

ROWS = '[sampler]\nuse = "rows"\n[sampler.rows]\norder = "random"\noffsets = "offsets.npy"\nids = "ids.npy"\n'
MOST_RANKS = 3

# A trainer whose arithmetic is exact, over pipes. Rank 0 has the ledger; each step is committed before it is applied.
WORKER = """
    import os
    import pathlib
    import signal
    import sys

    import pliant
    from conftest import lengths_of

    LENGTHS, PRIME, BYTES = lengths_of(), 2**61 - 1, 8
    rank, world_size, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
    until, is_disturbed = int(sys.argv[1]), "--disturbed" in sys.argv

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    # Opening waits for the other side.
    others = range(1, world_size)
    if rank == 0:
        pipes = {other: (open(f"up-{other}", "rb", 0), open(f"down-{other}", "wb", 0)) for other in others}
    else:
        up, down = open(f"up-{rank}", "wb", 0), open(f"down-{rank}", "rb", 0)

    def read(pipe):
        number = pipe.read(BYTES)
        if len(number) < BYTES:
            sys.exit("a peer is gone")
        return int.from_bytes(number, "big")

    def sent(*numbers):
        '''Of rank 0, to all.'''
        if rank != 0:
            return [read(down) for _ in numbers]
        for _, pipe in pipes.values():
            for number in numbers:
                pipe.write(number.to_bytes(BYTES, "big"))
        return numbers

    config = pliant.Config.open("pliant.toml")
    sampler = pliant.PackedBatchSampler(config, LENGTHS, rank, world_size)
    batches = pliant.Batches(config, sampler.plan, LENGTHS)
    rate = pliant.LearningRate(config)
    step, weight = 0, 1
    if rank == 0:
        run = pathlib.Path("pliant-runs/job/latest")
        ledger = (pliant.Ledger.open(run, config, sampler.plan, batches) if run.exists()
                  else pliant.Ledger.begin(config, sampler.plan, batches))
        kept = ledger.restore()
        if kept.state is not None:
            step, weight = kept.step, int.from_bytes(kept.state, "big")
            rate.load(kept.lr_state)
        ledger.start_generation(world_size, "restart" if attempt else "start")
    step, weight = sent(step, weight)
    sampler.load_state_dict(sampler.state_before(batches.at_step(step)))
    gradient = 0
    for micro in sampler:
        gradient = (gradient + sum((int(item) + 1) * (weight + LENGTHS[item]) for item in micro)) % PRIME
        if micro.position[2] != 0:
            continue  # the step has more micro-batches
        batch = sampler.batch_of(micro)
        if is_disturbed and attempt == 0 and step == 3 and rank == world_size - 1:
            die()  # in the middle of a step
        if rank == 0:
            gradient = (gradient + sum(read(pipe) for pipe, _ in pipes.values())) % PRIME
            ledger.commit(batch, sampler.assignment(batch), 0.5, rate.at(step, batch.size))
            if is_disturbed and attempt == 1 and step == 5:
                die()  # between the commit and its update
        else:
            up.write(gradient.to_bytes(BYTES, "big"))
        (gradient,) = sent(gradient)
        weight, gradient = (3 * weight + gradient) % PRIME, 0
        rate.commit(step, batch.size)
        step += 1
        if rank == 0 and (step % 2 == 0 or step == until):
            ledger.keep_snapshot(weight.to_bytes(BYTES, "big"), rate.save())
        if step == until:
            break
    if rank == 0:
        pathlib.Path("weight").write_text(str(weight))
"""


def run(folder, world_size, *arguments):
    """The summary of a job that finished."""
    done = subprocess.run([pathlib.Path(os.environ["PLIANT_TEST_BIN"]) / "pliant", "run", "--json", "--workers", str(world_size),
                           "--log-dir", "agent-runs", "--", sys.executable, "worker.py", *arguments],
                          cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=150,
                          check=False, env=dict(os.environ, PYTHONPATH=elastic_jobs.python_path()))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def begin(folder):
    folder.mkdir()
    offsets, ids = packed()
    numpy.save(folder / "offsets.npy", offsets)
    numpy.save(folder / "ids.npy", ids)
    (folder / "pliant.toml").write_text(toml(ROWS, run='name = "job"\nseed = 7\n'))
    (folder / "worker.py").write_text(textwrap.dedent(WORKER))
    for rank in range(1, MOST_RANKS):
        os.mkfifo(folder / f"up-{rank}")
        os.mkfifo(folder / f"down-{rank}")
    return folder


def audit(folder):
    done = subprocess.run([pathlib.Path(os.environ["PLIANT_TEST_BIN"]) / "pliant", "audit", "pliant-runs/job/latest", "--json"], cwd=folder,
                          stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    return json.loads(done.stdout)


def test_the_weights_are_those_of_a_job_that_nothing_disturbed(tmp_path):
    whole = begin(tmp_path / "whole")
    assert run(whole, 1, "999")["restarts"] == 0
    steps = audit(whole)["steps"]
    assert steps > 8
    disturbed = begin(tmp_path / "disturbed")
    assert run(disturbed, 3, "7", "--disturbed")["restarts"] == 2
    assert audit(disturbed)["steps"] == 7
    assert run(disturbed, 2, "999")["restarts"] == 0
    assert (disturbed / "weight").read_text() == (whole / "weight").read_text()
    for folder in (whole, disturbed):
        audited = audit(folder)
        assert audited["exit_code"] == 0 and audited["steps"] == audited["assignments"] == steps
        assert audited["samples_used_once"] == audited["samples_expected"] == len(lengths_of())
        assert audited["samples_repeated"] == audited["samples_missing"] == 0
