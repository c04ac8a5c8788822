"""Jobs of `pliant run` whose workers are programs in Python: what tests start, and the toy that their workers train."""
import gc
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import types

import numpy

SEQUENCES, ELEMENTS, STEPS = 117, 48, 20
LENGTHS = [3 + i * 37 % 29 for i in range(SEQUENCES)]

CONFIG = """config_version = 1
[run]
name = "job"
epochs = 2
deterministic = true
{run}
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 12
micro_batch_sizes = [1, 2]
[sampler]
use = "fixed"
[sampler.fixed]
order = "random"
[lr]
use = "none"
base_lr = 0.01
"""


class Toy:
    """One half of the state is an array, the other is not. Each sequence pulls every weight towards a value of its own."""

    def __init__(self):
        self.weights = numpy.arange(ELEMENTS, dtype="float32") / ELEMENTS
        self.momentum = numpy.zeros(ELEMENTS, "float32")
        self.gradient_size = ELEMENTS

    def arrays(self):
        return [("weights", self.weights)]

    def save(self):
        return self.momentum.tobytes()

    def load(self, data):
        self.momentum[:] = numpy.frombuffer(data, "float32")

    def loss_and_gradient(self, ids):
        loss, gradient = 0.0, numpy.zeros(ELEMENTS, "float32")
        for i in ids:
            error = self.weights - (i * 7919 + numpy.arange(ELEMENTS) * 104729) % 2003 / numpy.float32(2003)
            gradient += error.astype("float32") * LENGTHS[i]
            loss += float((error * error).sum()) * LENGTHS[i] / 2
        return loss, gradient

    def apply(self, gradient, rate):
        self.momentum *= numpy.float32(0.9)
        self.momentum += gradient
        self.weights -= numpy.float32(rate) * self.momentum


def add_all(step, toy):
    for rows in step.micro_batches:
        step.add(rows, *toy.loss_and_gradient(step.batch.ids_of(rows)))


def keep(toy):
    pathlib.Path(f"weights-{os.getpid()}").write_bytes(toy.weights.tobytes())


def go_on(session, toy):
    """The rest of the job, and what it ends with is in a file for each worker that was a rank in the end."""
    step = None
    for step in session:
        add_all(step, toy)
        if committed := step.commit():
            toy.apply(committed.gradient, step.learning_rate)
    if step is not None:
        keep(toy)


def is_first(what="first"):
    """Whether no worker of the job has asked this before."""
    try:
        os.close(os.open(f"{what}.asked", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def refused(call, status, *words):
    """Whether `call` raises a pliant.Error with that status and those words; else what it did."""
    import pliant

    try:
        returned = call()
    except pliant.Error as error:
        missing = [word for word in words if word not in str(error)]
        return True if error.status == status and not missing else f"{error.status.name}: {error}"
    return f"returned {returned!r}"


def interrupted(call, then=None, when=lambda: True):
    """Interrupts `call` by a handler of the program's own, where it gives the lock of the interpreter back: in its wait. The signal comes once `when` is
    true, and `then` runs behind it, both on a thread of their own. Gives what `call` returned, or None where the interrupt came before that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main, go, ready = threading.get_ident(), threading.Event(), threading.Event()

    def interrupt():
        ready.set()
        go.wait()
        while not when():
            pass
        signal.pthread_kill(main, signal.SIGINT)
        if then is not None:
            then()

    gc.collect()
    gc.disable()  # what is raised while garbage is collected comes out nowhere
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # another thread runs when this one waits, and at no other time
    thread = threading.Thread(target=interrupt)
    thread.start()
    ready.wait()
    returned, came = [], False
    try:
        go.set()
        returned.append(call())
        thread.join()
    except KeyboardInterrupt:
        came = True
    thread.join()
    sys.setswitchinterval(interval)
    gc.enable()
    assert came, "no interrupt came"
    return returned[0] if returned else None


PLAIN = """
    session.start(LENGTHS, state=toy)
    go_on(session, toy)
"""


IMPORTS = "import gc, json, os, pathlib, signal, sys, threading, weakref\nimport numpy\nimport pliant, pliant.elastic\nfrom elastic_jobs import *\n\n"
MAIN = IMPORTS + "def train(session):\n    toy = Toy()\n{work}\nsys.exit(pliant.elastic.run_worker(train))\n"
# The session is the program's alone.
PLAIN_MAIN = IMPORTS + "def train():\n    session, toy = pliant.elastic.Session.attach(), Toy()\n{work}\ntrain()\n"


def python_path():
    """Where a worker finds the package, which may be installed, and what stands here."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(pathlib.Path(__file__).parent)]))


def run(folder, work=PLAIN, *, workers=1, options=(), settings="", env=None, main=MAIN, config=CONFIG, leaves_memory=False):
    """Runs a job in `folder`, whose workers do `work` with `session` and `toy`. Gives exit code, summary, stderr, what each worker has ended with,
    and what the workers wrote. `leaves_memory`: at the end of a process it may hold what nobody can free."""
    folder.mkdir(exist_ok=True)
    (folder / "worker.py").write_text(main.format(work=textwrap.indent(textwrap.dedent(work), "    ")))
    (folder / "pliant.toml").write_text(config.format(run=f"workers = {workers}\n{settings}"))
    for file in folder.glob("weights-*"):
        file.unlink()
    program = pathlib.Path(os.environ["PLIANT_TEST_BIN"]) / "pliant"
    environment = dict(os.environ, PYTHONPATH=python_path(), **(env or {}))
    if leaves_memory and "ASAN_OPTIONS" in environment:
        environment["ASAN_OPTIONS"] += ":detect_leaks=0"
    command = [program, "run", "pliant.toml", "--json", *options, "--", sys.executable, "worker.py"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                          check=False, env=environment, start_new_session=True)
    lines = done.stdout.splitlines()
    runs = folder / "pliant-runs"
    logs = sorted({file.resolve() for file in runs.glob("job/*/logs/*")})  # `latest` is one of them
    return types.SimpleNamespace(code=done.returncode, summary=json.loads(lines[-1]) if lines else {}, err=done.stderr,
                                 said="".join(file.read_text(errors="replace") for file in logs),
                                 weights=[file.read_bytes() for file in folder.glob("weights-*")])


def check_whole(job, reference, workers=None):
    """The job came to its end, each sample was used once an epoch, and all workers hold the weights of `reference`."""
    assert job.code == 0, job.err + job.said
    assert job.summary["steps"] == STEPS and job.summary["samples_used_once"] == 2 * SEQUENCES
    assert job.summary["samples_repeated"] == job.summary["samples_missing"] == 0
    assert job.weights and set(job.weights) == {reference}, job.err + job.said
    if workers is not None:
        assert len(job.weights) == workers


def check_said(job, *lines):
    """The worker printed these lines, which say what was as it should be, and nothing else of that kind."""
    said = [line for line in job.said.splitlines() if line.startswith("CHECK ")]
    assert said == [f"CHECK {line} True" for line in lines], job.err + job.said


def said_by(job):
    """What the workers printed as JSON, by line."""
    assert job.code == 0, job.err + job.said
    return [json.loads(line.split(" ", 1)[1]) for line in job.said.splitlines() if line.startswith("SAID ")]


def reference_of(folder):
    """The weights of one worker that nothing disturbed."""
    job = run(folder / "reference")
    assert job.code == 0 and len(job.weights) == 1, job.err + job.said
    return job.weights[0]
