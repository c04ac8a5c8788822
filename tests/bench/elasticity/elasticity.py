#!/usr/bin/env python3
"""Measures what elasticity costs: jobs of samples/tinylm beside a bare loop, killed workers, digests, sharded state; one table.

    scripts/bench-elasticity [--cost] [--digest] [--recovery] [--sharded] [--schedules] [--trace] [--memory] [--moves] [--all] [OPTION ...]

--cost, the default: in each round a job of one worker in fast mode, the bare loop, the same job in deterministic mode; then jobs
at --workers in both modes, each followed by PyTorch's DistributedDataParallel at as many ranks. Speeds are tokens a second from
the end of the first step to the end of the last, which leaves the start out: `tokens_per_second` of `pliant run --json`, and what
the bare loop and the peer measure likewise. Ratios are of the two runs of one round; shown is their median, least and largest.
Every process computes on one thread. That the bare loop has the losses of the job to the bit is checked in each round.

--digest: rounds of jobs with run.digest_every = 1 and = 0. --recovery: jobs of samples/device_trainer, or of --trainer, with next to no weights,
in each of which one worker is killed, by turns of every rank and at every point of a step; `seconds_lost` of `pliant run --json` is
the time between the commits before and after the kill less a usual step.

--sharded: in each round the replicated job and those with [coordinator] use = "planned", "zero3" and "eager", in both modes; losses in
deterministic mode must be the same to the bit. --schedules: a tinylm of 8 blocks in shards, at the most workers, with each coordinator,
micro-batch after micro-batch and block after block, and "planned" with room for 2, 4 and 8 blocks: speed, and what a rank gathers and waits
for in a step. --trace: the same job with and without `pliant run --trace`. --memory: a model of 38 million weights, replicated and with each coordinator, a few
steps at 1, 2 and 4 workers: the most that a worker held, in proportional shares of pages (PSS) and by the job's own
books; a + b / N is fitted to both. --moves: jobs of samples/sharded_trainer that a worker leaves or joins: the bytes of state that the
job counted as sent, beside |N - M| / max(N, M) of it, which no way of sharing it evenly does without.

What each round has found is told on stderr as it comes; the tables come at the end.

The peer needs a Python with torch (Debian: python3-torch), which Pliant itself does not; without it it is left out.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

import moves
import schedules
import tables

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
POINTS = ("forward", "reduce", "vote", "commit", "apply")
SMALL = ["app.dim=16", "app.heads=2", "app.layers=1", "app.max_sequence=64", "sampler.best_fit.max_tokens=64"]
# Samples whose steps are near-empty, with this set.
TRAINERS = {"device_trainer": ["app.weights=64"], "python_elastic": [], "tinylm": SMALL, "torch_lm": SMALL}
COORDINATORS = ("planned", "zero3", "eager")
LARGE = ["app.dim=768", "app.layers=5", "app.heads=12", "app.vocab=2048", "sampler.best_fit.max_tokens=512",
         'elasticity."v0.1".max_train_batch_size=4', 'elasticity."v0.1".micro_batch_sizes=[1]']
GOAL_S = 0.1  # a kill should cost no more, with near-empty steps
# Rounding alone takes the losses of another implementation apart, step by step; by then they are still the same.
STEPS_THAT_AGREE, AGREE_TO = 5, 1e-5
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


class Absent(Exception):
    """What cannot be measured here, and why."""


class Wrong(Exception):
    """Two runs that should compute the same do not."""


def spread(values):
    return {"n": len(values), "median": statistics.median(values), "least": min(values), "largest": max(values)}


def ratios(above, below):
    """Of the runs of each round."""
    if len(above) != len(below):
        raise ValueError(f"{len(above)} runs and {len(below)} do not make pairs")
    return spread([one / other for one, other in zip(above, below)])


def speed(said):
    """Tokens a second of what the bare loop and the peer print."""
    return said["tokens"] / said["seconds"]


def usual_step(summary, commits):
    """Seconds of a step of an undisturbed job: all but the first, whose beginning nobody measured."""
    return sum(one["tokens"] for one in commits[1:]) / summary["tokens_per_second"] / (len(commits) - 1)


def check_same(losses, reference, what):
    if losses != reference:
        step = next((i for i, (a, b) in enumerate(zip(losses, reference)) if a != b), min(len(losses), len(reference)))
        raise Wrong(f"{what} has not the losses of the job: the first that differs is of step {step} "
                    f"({len(losses)} and {len(reference)} steps)")


def check_near(losses, reference, what):
    for step, (one, other) in enumerate(zip(losses[:STEPS_THAT_AGREE], reference)):
        if abs(one - other) > AGREE_TO * abs(other):
            raise Wrong(f"{what} computes something else: its loss at step {step} is {one}, that of the job {other}")


def run(command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=ENVIRONMENT, **options)
    if done.returncode:
        raise Wrong(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def tell(words):
    print(words, file=sys.stderr, flush=True)


def tell_figures(**figures):
    """What a round has found, at once: a run that is interrupted leaves it."""
    tell("    " + ", ".join(f"{name.replace('_', ' ')} {figure}" for name, figure in figures.items()))


def a_second(tokens):
    return f"{tokens:,.0f} tokens/s"


class Jobs:
    """Runs of `pliant run` whose ledgers are read and thrown away."""

    def __init__(self, given, folder):
        self.given, self.logs = given, folder / "runs"

    def job(self, config, sets, *words):
        """Summary and commits."""
        command = [self.given.pliant, "run", config, "--json", "--log-dir", self.logs, *words]
        for one in sets:
            command += ["--set", one]
        summary = json.loads(run(command, cwd=self.logs.parent).splitlines()[-1])
        lines = (pathlib.Path(summary["directory"]) / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
        commits = [one for one in map(json.loads, lines) if one["record"] == "commit"]
        shutil.rmtree(self.logs)
        return summary, commits

    def tinylm(self, workers, deterministic, *sets):
        """Tokens a second, and the losses."""
        how = [f"run.max_steps={self.given.steps}", "run.snapshot_every=0", f"run.deterministic={str(deterministic).lower()}"]
        summary, commits = self.job(self.given.config, [*self.given.set, *how, *sets], "--workers", str(workers))
        return summary["tokens_per_second"], [one["loss"] for one in commits]

    def bare(self, *words):
        command = [self.given.bare, self.given.config, *words]
        for one in [*self.given.set, f"run.max_steps={self.given.steps}"]:
            command += ["--set", one]
        return run(command)


class Peer:
    """DistributedDataParallel on the rows that the bare loop would train on."""

    def __init__(self, jobs, folder):
        self.python = next((each for each in [jobs.given.python] if each), None) or self.found()
        probe = subprocess.run([self.python, "-c", "import torch.distributed.run"], stderr=subprocess.PIPE, check=False)
        if probe.returncode:
            raise Absent(f"{self.python} has no torch (Debian: python3-torch); --python names one that has")
        self.folder = folder / "peer"
        self.folder.mkdir()
        jobs.bare("--dump", self.folder)

    @staticmethod
    def found():
        return next((each for each in (sys.executable, "/usr/bin/python3") if os.access(each, os.X_OK) and not subprocess.run(
            [each, "-c", "import torch"], stderr=subprocess.PIPE, check=False).returncode), sys.executable)

    def train(self, ranks):
        # torch 1.13 under Python 3.11 refuses to redirect nothing.
        run([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks, "--redirects", "1", "--tee",
             "1", "--log_dir", self.folder / "logs", HERE / "ddp_peer.py", self.folder])
        return json.loads((self.folder / "peer.json").read_text(encoding="utf-8"))


def cost_of_one(jobs, rounds):
    """Job, bare loop and deterministic job by turns, in every other round backwards: a machine that grows slower favours none."""
    speeds = {"fast": [], "bare": [], "deterministic": []}
    for number in range(rounds):
        tell(f"one worker, round {number + 1} of {rounds}...")
        losses = {}
        for how in speeds if number % 2 == 0 else reversed(speeds):
            if how == "bare":
                said = json.loads(jobs.bare())
                found, losses[how] = speed(said), said["losses"]
            else:
                found, losses[how] = jobs.tinylm(1, how == "deterministic")
            speeds[how].append(found)
        check_same(losses["bare"], losses["fast"], "the bare loop")
        tell_figures(**{how: a_second(found[-1]) for how, found in speeds.items()})
    fast, bare, fixed = speeds["fast"], speeds["bare"], speeds["deterministic"]
    return {**{how: spread(found) for how, found in speeds.items()}, "fast_to_bare": ratios(fast, bare),
            "deterministic_to_bare": ratios(fixed, bare), "deterministic_to_fast": ratios(fixed, fast)}


def cost_of_several(jobs, peer, rounds):
    """Both modes and the peer at every number of workers, by turns."""
    found = {}
    for number in range(rounds):
        for workers in jobs.given.workers:
            tell(f"{workers} workers, round {number + 1} of {rounds}...")
            at = found.setdefault(workers, {"fast": [], "deterministic": [], "ddp": []})
            fast, losses = jobs.tinylm(workers, False)
            at["fast"].append(fast)
            at["deterministic"].append(jobs.tinylm(workers, True)[0])
            if peer:
                said = peer.train(workers)
                check_near(said["losses"], losses, "DistributedDataParallel")
                at["ddp"].append(speed(said))
            tell_figures(**{how: a_second(found_[-1]) for how, found_ in at.items() if found_})
    rows = []
    for workers, at in found.items():
        row = {"workers": workers, "fast": spread(at["fast"]), "deterministic": spread(at["deterministic"]),
               "deterministic_to_fast": ratios(at["deterministic"], at["fast"])}
        if at["ddp"]:
            row.update(ddp=spread(at["ddp"]), fast_to_ddp=ratios(at["fast"], at["ddp"]))
        rows.append(row)
    return rows


def cost_of_digests(jobs, rounds):
    rows = []
    for workers in jobs.given.workers:
        compared, not_compared = [], []
        for number in range(rounds):
            tell(f"digests, {workers} workers, round {number + 1} of {rounds}...")
            compared.append(jobs.tinylm(workers, False, "run.digest_every=1")[0])
            not_compared.append(jobs.tinylm(workers, False, "run.digest_every=0")[0])
            tell_figures(every_step=a_second(compared[-1]), never=a_second(not_compared[-1]))
        rows.append({"workers": workers, "every_step": spread(compared), "never": spread(not_compared),
                     "every_step_to_never": ratios(compared, not_compared)})
    return rows


def cost_of_shards(jobs, rounds):
    """Replicated and sharded jobs by turns, in every other round backwards."""
    rows = []
    for workers in jobs.given.workers:
        for deterministic in (False, True):
            speeds = {how: [] for how in ("replicated", *COORDINATORS)}
            for number in range(rounds):
                tell(f"sharded, {workers} workers, {'deterministic' if deterministic else 'fast'}, round {number + 1} of {rounds}...")
                reference = None
                for how in speeds if number % 2 == 0 else reversed(speeds):
                    sets = [] if how == "replicated" else [f'coordinator.use="{how}"']
                    found, losses = jobs.tinylm(workers, deterministic, *sets)
                    speeds[how].append(found)
                    reference = reference or losses
                    if deterministic:
                        check_same(losses, reference, f"the job with {how}")
                tell_figures(**{how: a_second(found_[-1]) for how, found_ in speeds.items()})
            rows.append({"workers": workers, "deterministic": deterministic, **{how: spread(all_) for how, all_ in speeds.items()},
                         **{f"{how}_to_replicated": ratios(speeds[how], speeds["replicated"]) for how in COORDINATORS}})
    return rows


def pss_of(pid):
    """Bytes, or 0 where the process is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def workers_below(pid):
    """Processes of tinylm that descend from `pid`."""
    parents = {}
    for each in os.listdir("/proc"):
        try:
            fields = pathlib.Path("/proc", each, "stat").read_text(encoding="utf-8").rsplit(")", 1)
            parents[int(each)] = (int(fields[1].split()[1]), fields[0].split("(", 1)[1])
        except (OSError, ValueError, IndexError):
            continue
    found = []
    for each, (_, name) in parents.items():
        at = each
        while at in parents and at != pid:
            at = parents[at][0]
        if at == pid and name == "tinylm":
            found.append(each)
    return found


def memory_of(jobs, workers, how):
    """Bytes of the worker that held most: by PSS while the job ran, and by its books."""
    command = [jobs.given.pliant, "run", jobs.given.config, "--json", "--log-dir", jobs.logs, "--workers", workers]
    sets = [*jobs.given.set, *LARGE, "run.max_steps=3", "run.snapshot_every=0", "run.digest_every=0"]
    for one in sets + ([] if how == "replicated" else [f'coordinator.use="{how}"']):
        command += ["--set", one]
    job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
                           cwd=jobs.logs.parent)
    most, done = {}, threading.Event()

    def watch():
        while not done.wait(0.05):
            for pid in workers_below(job.pid):
                most[pid] = max(most.get(pid, 0), pss_of(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = job.communicate()
    done.set()
    watcher.join()
    if job.returncode:
        raise Wrong(f"a job of 38 million weights ended with {job.returncode}: {err.strip()[-600:]}")
    summary = json.loads(out.splitlines()[-1])
    shutil.rmtree(jobs.logs)
    return {"pss": max(most.values(), default=0), "books": sum(summary.get("bytes_of_a_rank", {}).values())}


def fit(points):
    """a and b of a + b / N by least squares; `points`: (N, bytes)."""
    xs, ys = [1 / n for n, _ in points], [y for _, y in points]
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    return {"a": mean_y - slope * mean_x, "b": slope}


def memories(jobs, rounds):
    """Medians of jobs that took as many workers; the fits go through the medians."""
    rows = []
    for how in ("replicated", *COORDINATORS):
        row = {"how": how, "workers": []}
        for workers in (1, 2, 4):
            tell(f"memory of 38 million weights, {workers} workers, {how}...")
            seen = [memory_of(jobs, workers, how) for _ in range(rounds)]
            row["workers"].append({"workers": workers, **{kind: spread([one[kind] for one in seen]) for kind in ("pss", "books")}})
            tell_figures(**{kind: f"{row['workers'][-1][kind]['median'] / (1 << 20):,.0f} MiB" for kind in ("pss", "books")})
        row.update({f"{kind}_fit": fit([(one["workers"], one[kind]["median"]) for one in row["workers"]]) for kind in ("pss", "books")})
        rows.append(row)
    return rows


def recoveries(jobs, kills):
    """A job for each kill: seconds lost, by how the job goes on and how many workers it has."""
    config, steps = ROOT / "samples" / jobs.given.trainer / "pliant.toml", 120
    sets = [*TRAINERS[jobs.given.trainer], f"run.max_steps={steps}", "run.epochs=1000", "run.snapshot_every=0"]
    rows = []
    for workers in (one for one in jobs.given.workers if one > 1):
        for on_loss in ("replace", "shrink"):
            tell(f"recovery, {workers} workers, {on_loss}, {kills} kills...")
            lost, usual = [], []
            for number in range(kills):
                every = [*sets, f"run.on_loss={on_loss}"]
                if number % 5 == 0:
                    usual.append(usual_step(*jobs.job(config, every, "--workers", str(workers))))
                # One that runs past all ranks at a point before it comes to the next meets every pair of the two.
                point = POINTS[number // workers % len(POINTS)]
                kill = f"kill:rank={number % workers},step={50 + number % 7},at={point}"
                summary, commits = jobs.job(config, every, "--workers", str(workers), "--inject", kill)
                if len(commits) != steps or summary["generations"] < 2:
                    raise Wrong(f"{kill} did not strike, or left {len(commits)} commits of {steps}")
                lost.append(summary["seconds_lost"])
                tell_figures(kill=number + 1, lost=f"{1e3 * lost[-1]:.2f} ms", usual_step=f"{1e3 * usual[-1]:.2f} ms")
            rows.append({"trainer": jobs.given.trainer, "workers": workers, "on_loss": on_loss, "seconds_lost": spread(lost), "usual_step_s": spread(usual),
                         "within_goal": max(lost) <= GOAL_S})
    return rows


def machine():
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "load_before": round(os.getloadavg()[0], 1)}


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def several(text):
    return [positive(word) for word in text.split(",")]


def steps(text):
    if positive(text) < 2:
        raise argparse.ArgumentTypeError("at least 2 steps are needed: the first is not timed")
    return int(text)


def arguments_of(words):
    parser = argparse.ArgumentParser(prog="bench-elasticity", description=__doc__.split("\n\n", 1)[0],
                                     epilog=__doc__.split("\n\n", 2)[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", action="store_true", help="jobs beside the bare loop and the peer; the default")
    parser.add_argument("--digest", action="store_true", help="what comparing the ranks' states costs")
    parser.add_argument("--recovery", action="store_true", help="what a kill costs")
    parser.add_argument("--sharded", action="store_true", help="what cutting the state over the workers costs in speed")
    parser.add_argument("--schedules", action="store_true", help="what budgets and orders cost it")
    parser.add_argument("--trace", action="store_true", help="what recording a trace costs it")
    parser.add_argument("--memory", action="store_true", help="what it saves in memory")
    parser.add_argument("--moves", action="store_true", help="what a worker that leaves or joins costs in bytes")
    parser.add_argument("--all", action="store_true", help="all eight")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="Default: 7")
    parser.add_argument("--steps", type=steps, default=30, metavar="N", help="of each run of tinylm. Default: 30")
    parser.add_argument("--kills", type=positive, default=20, metavar="N", help="for each row of --recovery. Default: 20")
    parser.add_argument("--trainer", choices=TRAINERS, default="device_trainer", help="whose workers --recovery kills: device_trainer, the default, and tinylm are in C++, python_elastic and torch_lm in Python")
    parser.add_argument("--workers", type=several, default=[1, 2, 4], metavar="N,...", help="Default: 1,2,4")
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "samples/tinylm/pliant.toml", metavar="FILE",
                        help="of a job of tinylm. Default: samples/tinylm/pliant.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes that config; may be repeated")
    parser.add_argument("--python", metavar="PROGRAM", help="a Python with torch. Default: this one, or Debian's")
    parser.add_argument("--build", type=pathlib.Path, metavar="FOLDER",
                        help="where pliant and bare_tinylm are built. Default: build/release, which is brought up to date")
    parser.add_argument("--json", action="store_true", help="print one JSON document in place of the tables")
    given = parser.parse_args(words)
    if given.all:
        given.cost = given.digest = given.recovery = given.sharded = given.memory = given.moves = True
        given.schedules = given.trace = True
    given.cost = given.cost or not (given.digest or given.recovery or given.sharded or given.memory or given.moves or
                                    given.schedules or given.trace)
    build = (given.build or ROOT / "build/release").resolve()
    given.pliant, given.bare, given.config = build / "bin/pliant", build / "bench/bare_tinylm", given.config.resolve()
    if not os.access(given.pliant, os.X_OK):
        parser.error(f"there is no {given.pliant}")
    return given


def measure(given, folder, document):
    jobs = Jobs(given, folder)
    # The package of the build, and the python3 that it is for.
    build = given.pliant.parents[1]
    ENVIRONMENT.update(PYTHONPATH=str(build / "lib/python"), PATH=os.pathsep.join([str(build / "libexec/python"), os.environ["PATH"]]))
    if given.cost and not os.access(given.bare, os.X_OK):
        document["left_out"]["tinylm"] = f"there is no {given.bare}, which needs libtorch"
    elif given.cost:
        document["one_worker"] = cost_of_one(jobs, given.rounds)
        peer = None
        try:
            peer = Peer(jobs, folder)
        except Absent as absent:
            document["left_out"]["DistributedDataParallel"] = str(absent)
        document["workers"] = cost_of_several(jobs, peer, given.rounds)
    if given.digest:
        document["digests"] = cost_of_digests(jobs, given.rounds)
    if given.recovery:
        document["recovery"] = recoveries(jobs, given.kills)
    if given.sharded:
        document["sharded"] = cost_of_shards(jobs, given.rounds)
    how = (jobs, folder, given.rounds, spread, ratios, tell, tell_figures)
    if given.schedules:
        document["schedules"] = schedules.measured(*how)
    if given.trace:
        document["traces"] = schedules.traced(*how)
    if given.memory:
        document["memory"] = memories(jobs, given.rounds)
    if given.moves:
        document["moves"] = moves.measured(jobs, folder, tell, tell_figures)


def main():
    given = arguments_of(sys.argv[1:])
    document = {"schema": "pliant.bench_elasticity/1", "machine": machine(), "steps": given.steps, "rounds": given.rounds,
                "goal_s": GOAL_S, "left_out": {}}
    try:
        with tempfile.TemporaryDirectory(prefix="bench-elasticity-") as folder:
            measure(given, pathlib.Path(folder), document)
    except (Wrong, ValueError) as wrong:
        sys.exit(f"bench-elasticity: {wrong}")
    document["machine"]["load_after"] = round(os.getloadavg()[0], 1)
    print(json.dumps(document) if given.json else tables.text_of(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
