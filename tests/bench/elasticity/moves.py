"""Bytes that a job of samples/sharded_trainer sends when a worker leaves or joins, beside the least that would do."""
import json
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
LAYERS, WIDTH = 6, 200_000
STATE_BYTES = LAYERS * WIDTH * 4  # weights, f32; the trainer keeps no optimizer state
CHANGES = ((8, 7), (7, 8), (4, 3))
# Whoever replaces another takes longer to start than the rest of the group waits, so it joins a group that trains.
LATE = '#!/bin/sh\n[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || sleep 7\nexec sharded_trainer\n'


def least(before, after):
    """Bytes that any way of sharing the state evenly moves at least."""
    return STATE_BYTES * abs(before - after) / max(before, after)


def command_of(jobs, workers, sets, *words):
    command = [jobs.given.pliant, "run", ROOT / "samples/sharded_trainer/pliant.toml", "--json", "--log-dir", jobs.logs,
               "--workers", workers, *words]
    for one in ('elasticity.use="exact"', "elasticity.exact.max_train_batch_size=56", "elasticity.exact.micro_batch_sizes=[1]",
                f"app.layers={LAYERS}", f"app.width={WIDTH}", "run.epochs=1000000", "run.snapshot_every=2", *sets):
        command += ["--set", one]
    return list(map(str, command))


def after_leave(jobs, before):
    _, sent = finished(subprocess.Popen(command_of(jobs, before, ["run.max_steps=8"], "--inject", "leave:rank=1,step=4"),
                                        **quiet(jobs)), 0)
    return sent


def after_join(jobs, folder, after):
    """One dies, the rest goes on without it, and the one that replaces it joins."""
    late = folder / "late.sh"
    late.write_text(LATE, encoding="utf-8")
    late.chmod(0o755)
    job = subprocess.Popen(command_of(jobs, after, ["run.max_steps=1000000", f'run.command=["{late}"]'],
                                      "--inject", "kill:rank=1,step=4"), **quiet(jobs))
    while job.poll() is None and not has_grown(jobs.logs):
        time.sleep(0.1)
    job.send_signal(signal.SIGINT)
    ledger, sent = finished(job, 130)
    worlds = [one["world_size"] for one in ledger if one["record"] == "generation"]
    if worlds[1:] != [after - 1, after]:
        raise ValueError(f"a job of {after} workers that lost one went through groups of {worlds}")
    return sent


def quiet(jobs):
    path = f"{pathlib.Path(jobs.given.pliant).parent}:{os.environ['PATH']}"
    return {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": jobs.logs.parent,
            "env": dict(os.environ, PATH=path, OMP_NUM_THREADS="1")}


def lines_of(logs):
    files = sorted(logs.glob("*/*/ledger.jsonl"), key=os.path.getmtime)
    text = files[-1].read_text(encoding="utf-8") if files else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def has_grown(logs):
    """A third group has committed a step."""
    ledger = lines_of(logs)
    groups = [one["generation"] for one in ledger if one["record"] == "generation"]
    return len(groups) > 2 and any(one["record"] == "commit" and one["generation"] == groups[-1] for one in ledger)


def finished(job, code):
    """Its ledger, and the bytes of state that it says it moved."""
    out, err = job.communicate()
    if job.returncode != code:
        raise ValueError(f"a job ended with {job.returncode}: {err.strip()[-600:]}")
    summary = json.loads(out.splitlines()[-1])
    return lines_of(pathlib.Path(summary["directory"]).parent.parent), summary["bytes_moved"]


def measured(jobs, folder, tell, tell_figures):
    rows = []
    for before, after in CHANGES:
        tell(f"bytes moved, {before} to {after} workers...")
        sent = after_leave(jobs, before) if after < before else after_join(jobs, folder, after)
        tell_figures(sent=f"{sent:,} bytes", the_least=f"{least(before, after):,.0f}")
        rows.append({"before": before, "after": after, "state": STATE_BYTES, "sent": sent, "least": least(before, after),
                     "sent_to_least": sent / least(before, after)})
    return rows
