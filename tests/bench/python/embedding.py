#!/usr/bin/env python3
"""Measures what Pliant costs inside a program in Python or C, beside torch, torchdata, Transformers, TRL and `pliant pack`; one table.

    scripts/bench-embedding [OPTION ...]

Times are by the clock. Each is the median of the repetitions, with the least and the largest; what is compared is measured by
turns. Peers that this Python lacks are left out by name, and so are programs and packages that are not built.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
MICRO = 8  # sequences of a micro-batch
EPOCH = 10  # which a job is resumed in
PACK = 2048  # tokens
TRL_LIMIT = 60.0  # seconds: it packs as many sequences as it can in that time

CONFIG = """config_version = 1
[run]
epochs = 20
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = {batch}
micro_batch_sizes = [{micro}]
max_gpus = 8
"""
ROWS = CONFIG.format(batch=64, micro=MICRO) + '[sampler]\nuse = "fixed"\n[sampler.fixed]\norder = "random"\n'
PACKS = CONFIG.format(batch=64, micro=MICRO) + f'[sampler]\nuse = "best_fit"\n[sampler.best_fit]\nmax_tokens = {PACK}\norder = "random"\n'


def arguments_of(words):
    parser = argparse.ArgumentParser(prog="bench-embedding", description="\n".join(__doc__.splitlines()[:1] + __doc__.splitlines()[4:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR",
                        help="a build that is there. Default: build/release, which is brought up to date")
    parser.add_argument("--sequences", type=int, default=10_000_000, metavar="N", help="of the large data set. Default: 10000000")
    parser.add_argument("--repetitions", type=int, default=9, metavar="N", choices=range(1, 1001), help="of each time. Default: 9")
    parser.add_argument("--imports", type=int, default=30, metavar="N", choices=range(1, 1001), help="processes that import. Default: 30")
    parser.add_argument("--trl", type=pathlib.Path, metavar="DIR",
                        help="a folder with the package trl, as its checkout or its wheel: packs the same lengths, with pyarrow where this Python has it")
    parser.add_argument("--json", action="store_true", help="print one JSON document in place of the table")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if not (options.build / "lib/python/pliant").is_dir():
        parser.error(f"--build {options.build}: has no Python package")
    if options.trl and not (options.trl / "trl/data_utils.py").is_file():
        parser.error(f"--trl {options.trl}: has no trl/data_utils.py")
    if options.sequences < 20_000:
        parser.error(f"--sequences {options.sequences}: at least 20000 are needed")
    return options


class Table:
    def __init__(self):
        self.rows, self.left_out = [], {}

    def add(self, what, values, unit, note=""):
        """`values` in `unit`: one, or one of each repetition."""
        values = list(values)
        self.rows.append({"what": what, "unit": unit, "values": values, "median": statistics.median(values), "note": note})

    def leave_out(self, what, why):
        self.left_out[what] = why


def seconds_of(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def lengths_of(count):
    """Median 300, sigma 1, at most 2048, with a fixed seed: 32-bit."""
    import numpy

    drawn = numpy.random.default_rng(7020).lognormal(numpy.log(300.0), 1.0, count)
    return numpy.minimum(numpy.ceil(drawn), 2048).astype(numpy.int32)


def taken(iterator, count):
    """Seconds for each of so many micro-batches; the first, which plans, is not among them."""
    next(iterator)
    begin = time.perf_counter()
    for _ in range(count):
        next(iterator)
    return (time.perf_counter() - begin) / count


def micro_batches(table, options):
    import pliant

    count = min(1_000_000, options.sequences)
    steps = min(20_000, count // MICRO - 2)
    lengths = lengths_of(count)
    config = pliant.Config.parse(ROWS)

    def ours():
        return taken(iter(pliant.PackedBatchSampler(config, lengths, 0, 1)), steps)

    packs = PACKS.replace("best_fit", "next_fit")

    def ours_packed():
        """Packs, of which 8 have far more sequences: the time is that for each 8 sequences."""
        micros = iter(pliant.PackedBatchSampler(pliant.Config.parse(packs), lengths, 0, 1))
        next(micros)
        begin, seen = time.perf_counter(), 0
        for _ in range(min(steps // 8, count // 200)):
            seen += len(next(micros))
        return (time.perf_counter() - begin) / seen * MICRO

    measured = {"PackedBatchSampler, fixed": ours, "PackedBatchSampler, packs, each 8 sequences": ours_packed}
    try:
        from torch.utils.data import BatchSampler, RandomSampler

        measured["torch BatchSampler over RandomSampler"] = lambda: taken(iter(BatchSampler(RandomSampler(range(count)), MICRO, False)), steps)
    except ImportError:
        table.leave_out("torch BatchSampler", "this Python has no torch")
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torchdata.stateful_dataloader.sampler import BatchSampler as StatefulBatchSampler
        from torchdata.stateful_dataloader.sampler import RandomSampler as StatefulRandomSampler

        measured["torchdata BatchSampler over RandomSampler"] = lambda: taken(
            iter(StatefulBatchSampler(StatefulRandomSampler(range(count)), MICRO, False)), steps)

        def loader(sampler):
            return taken(iter(StatefulDataLoader(range(count), batch_sampler=sampler, collate_fn=len)), min(steps, 2000))

        measured["torchdata StatefulDataLoader over PackedBatchSampler"] = lambda: loader(pliant.PackedBatchSampler(config, lengths, 0, 1))
        measured["torchdata StatefulDataLoader over its BatchSampler"] = lambda: loader(
            StatefulBatchSampler(StatefulRandomSampler(range(count)), MICRO, False))
    except ImportError:
        table.leave_out("torchdata", "this Python has no torchdata")
    found = {name: [] for name in measured}
    for _ in range(options.repetitions):
        for name, run in measured.items():
            found[name].append(run() * 1e6)
    for name, times in found.items():
        table.add(f"a micro-batch of {MICRO} sequences: {name}", times, "us", f"{count:,} sequences")


def transformers_sampler():
    """BatchRebalanceSampler of Transformers as its source has it: the package itself wants a newer torch than there may be."""
    import ast
    import importlib.util
    import math

    import torch

    found = importlib.util.find_spec("transformers")
    source = pathlib.Path(found.origin).with_name("trainer_pt_utils.py").read_text(encoding="utf-8")
    module = ast.parse(source)
    module.body = [one for one in module.body if isinstance(one, ast.ClassDef) and one.name == "BatchRebalanceSampler"]
    names = {"torch": torch, "math": math, "Sampler": torch.utils.data.Sampler}
    exec(compile(module, "trainer_pt_utils.py", "exec"), names)  # pylint: disable=exec-used
    return names["BatchRebalanceSampler"]


def balanced_steps(table, options):
    """What rank 0 takes to find its share of a step whose sequences are balanced over many ranks."""
    import pliant

    count = min(200_000, options.sequences)
    lengths = lengths_of(count)
    try:
        peer = transformers_sampler()
    except (ImportError, AttributeError, KeyError):
        peer = None
        table.leave_out("Transformers' batch_rebalance", "this Python has no transformers with BatchRebalanceSampler, or no torch")
    for ranks in (8, 64):
        batch = MICRO * ranks
        toml = CONFIG.format(batch=batch, micro=MICRO).replace("max_gpus = 8", f"min_gpus = {ranks}\nmax_gpus = {ranks}")
        config = pliant.Config.parse(toml + '[sampler]\nuse = "fixed"\n[sampler.fixed]\norder = "random"\n[balancer]\nuse = "karmarkar_karp"\n')
        measured = {"PackedBatchSampler, karmarkar_karp": lambda: iter(pliant.PackedBatchSampler(config, lengths, 0, ranks))}
        if peer:
            measured["Transformers' batch_rebalance"] = lambda: iter(peer(lengths.tolist(), batch, ranks, 1))
        found = {name: [] for name in measured}
        for _ in range(options.repetitions):
            for name, begin in measured.items():
                found[name].append(taken(begin(), min(20, count // batch - 2)) * 1e6)
        for name, times in found.items():
            table.add(f"a share of {MICRO} sequences, balanced over {ranks} ranks: {name}", times, "us", f"steps of {batch:,} sequences")


def child(options, kind):
    """What a process of its own says in JSON."""
    command = [sys.executable, "-B", __file__, "--build", options.build, "--sequences", options.sequences, "--child", kind]
    return json.loads(subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True).stdout)


def resident():
    """Bytes of memory that are the process's own."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith(("Private_", "Shared_")))


def run_child(options):
    import numpy
    import pliant

    if options.child.startswith("start_torch"):
        from torch.utils.data import BatchSampler, RandomSampler

        before = resident()
        made = iter(BatchSampler(RandomSampler(range(options.sequences)), MICRO, False))
        took = seconds_of(lambda: next(made))
        return {"seconds": took, "bytes": resident() - before}
    lengths = lengths_of(options.sequences)
    if options.child == "64":
        lengths = lengths.astype(numpy.int64)
    config = pliant.Config.parse(ROWS)
    plan = pliant.plan(config, 1)
    before = resident()
    kept = []
    took = seconds_of(lambda: kept.append(pliant.Batches(config, plan, lengths)))
    return {"seconds": took, "bytes": resident() - before}


STEPS = """config_version = 1
[run]
attach = "required"
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 8
micro_batch_sizes = [8]
[lr]
use = "none"
base_lr = 0.001
[app]
sequences = {sequences}
first = {first}
"""


def session_steps(table, options, folder):
    """What a step costs in Python beside the same step in C++: the job has one worker, which computes next to nothing."""
    peer = options.build / "bench/session_steps"
    if not peer.exists():
        table.leave_out("steps of a session", f"{peer} is not built (ninja session_steps)")
        return
    library = options.build / "core/libpliant_core.a"  # which it is linked to
    if library.exists() and library.stat().st_mtime > peer.stat().st_mtime:
        table.leave_out("steps of a session", f"{peer} is of an older build (ninja session_steps)")
        return
    steps = min(4000, options.sequences // 100)
    (folder / "steps.toml").write_text(STEPS.format(sequences=8 * steps, first=steps // 8), encoding="utf-8")
    commands = {"C++": [peer], "Python": [sys.executable, "-B", pathlib.Path(__file__).with_name("session_steps.py")]}
    found = {name: [] for name in commands}
    computed = {name: [] for name in commands}
    for turn in range(options.repetitions):
        for name, command in sorted(commands.items(), reverse=turn % 2 == 1):
            logs = folder / f"runs-{name}-{turn}"
            subprocess.run([options.build / "bin/pliant", "run", folder / "steps.toml", "--json", "--log-dir", logs, "--", *command], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            (log,) = {file.resolve() for file in logs.glob("*/*/logs/*")}  # `latest` leads to the run, too
            took, of_thread, total = log.read_text(encoding="utf-8").split()
            if int(total) != 8 * steps * (8 * steps - 1) // 2:
                raise RuntimeError(f"{log} is not of the whole data")
            found[name].append(float(took))
            computed[name].append(float(of_thread))
    note = f"1 worker, {steps:,} steps, 1,000 elements"
    for name, times in found.items():
        table.add(f"a step of a session in {name}", times, "us", note)
    for name, times in computed.items():
        table.add(f"of it computed by the thread that calls, in {name}", times, "us", note)
    for of_what, times in (("a step", found), ("what that thread computes", computed)):
        table.add(f"what Python adds to {of_what}, of each turn", [one - other for one, other in zip(times["Python"], times["C++"])], "us", note)


def packed_by_trl(table, options, lengths):
    """TRL's own function over the same lengths, in windows of 1000 as TRL calls it; scripts/bench-packers compares it in full."""
    if options.trl is None:
        return table.leave_out("TRL's packing", "no --trl")
    job = {"peer": "trl", "variant": "windows of 1000", "tree": str(options.trl.resolve()), "budget": PACK, "lengths": str(lengths), "limit": TRL_LIMIT,
           "repetitions": options.repetitions}
    command = [sys.executable, "-B", ROOT / "tests/bench/pack/peer_job.py", "pack"]
    try:
        done = subprocess.run(command, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True, timeout=10 * TRL_LIMIT)
        found = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        found = {"left_out": str(error)}
    why = found.get("left_out") or found["wrong"]
    if why:
        return table.leave_out("TRL's packing", why)
    note = ", ".join([f"{found['count']:,} sequences", job["variant"], *filter(None, [found["how"]])])
    table.add("an epoch planned: by TRL, of the same lengths", found["seconds"], "s", note)
    millions = found["count"] / 1e6
    table.add("an epoch planned: by TRL, each million sequences", [one / millions for one in found["seconds"]], "s", note)


def lengths_from_numpy(table, options, folder):
    import numpy
    import pliant

    lengths = lengths_of(options.sequences)
    numpy.save(folder / "lengths.npy", lengths)
    (folder / "pliant.toml").write_text(PACKS + '[data]\nlengths = "lengths.npy"\n', encoding="utf-8")
    config = pliant.Config.parse(PACKS)
    plan = pliant.plan(config, 1)
    program = options.build / "bin/pliant"
    python, command = [], []
    for _ in range(options.repetitions):
        python.append(seconds_of(lambda: pliant.Batches(config, plan, lengths).epoch(0)))
        done = subprocess.run([program, "pack", folder / "pliant.toml", "--json"], stdout=subprocess.PIPE, text=True, check=True)
        command.append(json.loads(done.stdout)["seconds"])
    note = f"{options.sequences:,} sequences, best_fit, {PACK} tokens"
    table.add("an epoch planned: pliant.Batches over a numpy array", python, "s", note)
    table.add("an epoch planned: `pliant pack`, its own seconds, of the same lengths", command, "s", note)
    table.add("an epoch planned: pliant.Batches, each million sequences", [one / options.sequences * 1e6 for one in python], "s", note)
    table.add("an epoch planned: Python by `pliant pack`, of each turn", [one / other for one, other in zip(python, command)], "times")
    packed_by_trl(table, options, folder / "lengths.npy")
    dense = child(options, "32")
    wide = child(options, "64")
    table.add("memory that Batches takes over 32-bit lengths, which it views", [dense["bytes"] / 1e6], "MB", f"{options.sequences:,} sequences, fixed")
    table.add("memory that Batches takes over 64-bit lengths, which it copies", [wide["bytes"] / 1e6], "MB", "the same")
    try:
        peer = [child(options, "start_torch") for _ in range(min(3, options.repetitions))]
        table.add("first batch of torch's BatchSampler over RandomSampler", [one["seconds"] for one in peer], "s", f"{options.sequences:,} sequences")
        table.add("memory that it takes", [one["bytes"] / 1e6 for one in peer], "MB")
    except subprocess.CalledProcessError:
        table.leave_out("torch's start", "this Python has no torch")


def state(table, options):
    import pliant

    lengths = lengths_of(options.sequences)
    config = pliant.Config.parse(PACKS)
    sampler = pliant.PackedBatchSampler(config, lengths, 0, 1)
    micros = iter(sampler)
    for _ in range(5):
        next(micros)
    table.add("size of a sampler's state", [len(sampler.state_dict()["pliant"])], "bytes")
    calls = 1000
    table.add("state_dict()", [seconds_of(lambda: [sampler.state_dict() for _ in range(calls)]) / calls * 1e6
                               for _ in range(options.repetitions)], "us")
    sampler.set_epoch(EPOCH)
    micros = iter(sampler)
    for _ in range(100):
        next(micros)
    saved = sampler.state_dict()
    del micros, sampler

    def begin():
        next(iter(pliant.PackedBatchSampler(config, lengths, 0, 1)))

    def resume():
        again = pliant.PackedBatchSampler(config, lengths, 0, 1)
        again.load_state_dict(saved)
        next(iter(again))

    began, resumed = [], []
    for _ in range(options.repetitions):
        began.append(seconds_of(begin))
        resumed.append(seconds_of(resume))
    note = f"{options.sequences:,} sequences, best_fit"
    table.add("to the first micro-batch of epoch 0, which costs one plan", began, "s", note)
    table.add(f"to the first micro-batch of a job resumed in epoch {EPOCH}", resumed, "s", note)
    table.add("the second by the first, of each turn", [one / other for one, other in zip(resumed, began)], "times")


def imports(table, options):
    program = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    found = {"pliant": [], "numpy": []}
    for _ in range(options.imports):
        for name, times in found.items():
            done = subprocess.run([sys.executable, "-c", program.format(name)], check=True, stdout=subprocess.PIPE, text=True)
            times.append(float(done.stdout) * 1e3)
    table.add("import pliant", found["pliant"], "ms")
    table.add("import numpy, beside it", found["numpy"], "ms")
    version = [options.build / "bin/pliant", "version"]
    table.add("pliant version, the whole process",
              [seconds_of(lambda: subprocess.run(version, check=True, stdout=subprocess.DEVNULL)) * 1e3 for _ in range(options.imports)], "ms")


def c_calls(table, options):
    program = options.build / "bench/bench_capi"
    if not program.exists():
        table.leave_out("calls of libpliant", f"{program} is not built (libbenchmark-dev; ninja bench_capi)")
        return
    command = [program, "--benchmark_format=json", "--benchmark_min_time=0.05", "--benchmark_filter=accessor/|micro_batch/"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    by_name = {}
    for one in json.loads(text[text.index("\n{") + 1:])["benchmarks"]:
        by_name.setdefault(one["run_name"], {})[one["aggregate_name"]] = one["cpu_time"]
    for name, times in by_name.items():
        table.add(f"libpliant: {name}", [times["least"], times["median"], times["largest"]], "ns", "least, median and largest of 9")


def sizes(table, options, folder):
    library = options.build / "lib/libpliant.so"
    if library.exists():
        subprocess.run(["strip", "--strip-unneeded", "-o", folder / "stripped", library], check=True)
        table.add("size of libpliant.so, stripped", [(folder / "stripped").stat().st_size / 1e6], "MB")
    packages = sorted([*(ROOT / "build/packages").glob("*.whl"), *(ROOT / "build/packages").glob("*.deb")])
    for file in packages:
        table.add(f"size of {file.name}", [file.stat().st_size / 1e6], "MB")
    if not packages:
        table.leave_out("sizes of packages", "build/packages is empty; scripts/package fills it")


def machine():
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    import numpy

    return {"cpu": model, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "python": platform.python_version(),
            "numpy": numpy.__version__}


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table_of(document):
    lines = ["{cpu}, {cores} cores, load {load} at the beginning; Python {python}, numpy {numpy}".format(**document["machine"]), "",
             "| what | median (least to largest) | n | note |", "| --- | --- | --- | --- |"]
    for row in document["rows"]:
        values = row["values"]
        spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
        lines.append(f"| {row['what']} | {number(row['median'])} {row['unit']}{spread} | {len(values)} | {row['note']} |")
    lines += [""] * bool(document["left_out"]) + [f"Left out: {name}: {why}" for name, why in document["left_out"].items()]
    return "\n".join(lines)


def main():
    options = arguments_of(sys.argv[1:])
    sys.path.insert(0, str(options.build.resolve() / "lib/python"))
    os.environ["PYTHONPATH"] = sys.path[0]
    os.environ.pop("PLIANT_PLUGIN_PATH", None)
    if options.child:
        print(json.dumps(run_child(options)))
        return
    table = Table()
    document = {"schema": "pliant.bench_embedding/1", "machine": machine()}
    with tempfile.TemporaryDirectory(prefix="bench-embedding-") as folder:
        for part in (imports, micro_batches, balanced_steps, state, c_calls):
            print(f"{part.__name__}...", file=sys.stderr, flush=True)
            part(table, options)
        for part in (session_steps, lengths_from_numpy, sizes):
            print(f"{part.__name__}...", file=sys.stderr, flush=True)
            part(table, options, pathlib.Path(folder))
    document.update(rows=table.rows, left_out=table.left_out)
    print(json.dumps(document) if options.json else table_of(document))


if __name__ == "__main__":
    main()
