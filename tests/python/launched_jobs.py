"""Groups of workers that a launcher starts as torchrun does, with a store that is a folder: what costs seconds is torch, which none of this needs."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types

import elastic_jobs

TORCH = """
import os, pathlib, time

class Store:
    def __init__(self):
        self.folder = pathlib.Path(os.environ["TEST_STORE"])  # of all attempts, as in current releases of torch

    def set(self, key, value):
        file = self.folder / key.replace("/", "-")
        file.with_suffix(".partial").write_bytes(value.encode())
        file.with_suffix(".partial").rename(file)

    def get(self, key):
        file = self.folder / key.replace("/", "-")
        while not file.exists():
            time.sleep(0.002)
        return file.read_bytes()

    def add(self, key, amount):
        while True:
            count = len(list(self.folder.glob(key.replace("/", "-") + ".*"))) + 1
            try:
                (self.folder / f"{key.replace('/', '-')}.{count}").touch(exist_ok=False)
                return count
            except FileExistsError:
                pass

class distributed:
    @staticmethod
    def rendezvous(url, timeout):
        assert url == "env://" and timeout.total_seconds() > 1
        yield Store(), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""

IMPORTS = elastic_jobs.IMPORTS + "import torch\nS, RANK, ATTEMPT = pliant.Status, int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
MAIN = IMPORTS + "def train(session):\n    toy = Toy()\n{work}\nsys.exit(pliant.elastic.run_worker(train, 'pliant.toml', resume={resume}))\n"


def prepare(folder, work, settings="", main=MAIN, resume=False):
    folder.mkdir(exist_ok=True)
    (folder / "torch.py").write_text(TORCH)
    (folder / "worker.py").write_text(main.format(work=textwrap.indent(textwrap.dedent(work), "    "), resume=resume))
    (folder / "pliant.toml").write_text(elastic_jobs.CONFIG.format(run=settings))
    for file in folder.glob("weights-*"):
        file.unlink()


def start(folder, ranks, attempt, store, run_id, env):
    """The processes of one attempt."""
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, PYTHONPATH=elastic_jobs.python_path(), RANK=str(rank), LOCAL_RANK=str(rank),
                           WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID=run_id,
                           TORCHELASTIC_RESTART_COUNT=str(attempt), TEST_STORE=store, OMP_NUM_THREADS="1", **env)
        one = subprocess.Popen([sys.executable, "worker.py"], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        one.reader = threading.Thread(target=keep, args=(one.stdout, folder / f"log-{attempt}-{rank}"))
        one.reader.start()
        processes.append(one)
    return processes


def keep(pipe, log):
    """What comes until all have closed it: that of rank 0 is the agent's, too."""
    with pipe:
        log.write_bytes(pipe.read())


def wait(processes, limit=100):
    """Until all have ended well, or one has not: then the others get SIGTERM, and SIGKILL after some seconds, as torchrun does it."""
    deadline = time.monotonic() + limit
    while any(one.poll() is None for one in processes) and not any(one.poll() for one in processes) and time.monotonic() < deadline:
        time.sleep(0.01)
    failed = any(one.poll() != 0 for one in processes)
    for one in processes:
        if one.poll() is None:
            one.send_signal(signal.SIGTERM)
    for one in processes:
        try:
            one.wait(20)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
    return failed


def run(folder, work=elastic_jobs.PLAIN, *, ranks=2, restarts=0, settings="", main=MAIN, resume=False, run_id="none", env=None):
    """Starts a group as torchrun would. Gives the exit codes of the last attempt and of all, how many were made, what the store holds, what was written, and
    the weights."""
    prepare(folder, work, settings, main, resume)
    for file in folder.glob("log-*"):
        file.unlink()
    with tempfile.TemporaryDirectory() as store:
        every = []
        for attempt in range(restarts + 1):
            processes = start(folder, ranks, attempt, store, run_id, env or {})
            every += processes
            if not wait(processes):
                break
        for one in every:
            one.reader.join()
        stored = {file.name: file.read_text() for file in pathlib.Path(store).iterdir()}
    return types.SimpleNamespace(codes=[one.returncode for one in processes], all_codes=[one.returncode for one in every], attempts=attempt + 1, stored=stored,
                                 said="".join(file.read_text(errors="replace") for file in sorted(folder.glob("log-*"))),
                                 logs={file.name: file.read_text(errors="replace") for file in folder.glob("log-*")},
                                 weights=[file.read_bytes() for file in folder.glob("weights-*")])


def audit(folder, run="latest"):
    """Exit code and words of `pliant audit`."""
    program = pathlib.Path(os.environ["PLIANT_TEST_BIN"]) / "pliant"
    done = subprocess.run([program, "audit", folder / "pliant-runs/job" / run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout
