#!/usr/bin/env python3
"""Measures what a job costs a loop in PyTorch: samples/torch_lm beside the same loop bare, and beside DistributedDataParallel over gloo.

    scripts/bench-torch [--workers 1,2,4] [--rounds N] [--steps N] [--set KEY=VALUE ...] [--json]

Speeds are tokens a second from the end of the first step to the end of the last, which leaves the start out: `tokens_per_second` of
`pliant run --json`, and the same of the others. All have the batches, micro-batches and rates of the job in fast mode, one thread a process, and memory that malloc keeps; the bare loop
and DDP have no agent, ledger, digest, look for NaN or read-ahead. Where their losses are not near those of the job they compute something else, and
nothing is printed. They take turns, in every other round the other way round. `at commit` is fast mode with [run] reduce_bucket = 0: nothing
of a gradient travels before backward has ended.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "samples/torch_lm"
AGREE_TO = 1e-3  # of a loss: sums in another order
STEPS_THAT_AGREE = 10  # later ones drift apart


def program_of(given):
    import pliant

    specification = importlib.util.spec_from_file_location("torch_lm", SAMPLE / "train.py")
    sample = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(sample)
    return sample, pliant.Config.open(SAMPLE / "pliant.toml", sets=given.set)


def rows_of(count, micro, ranks, rank):
    """Consecutive rows of a rank, the first ranks one more where they do not come out even, as micro-batches."""
    least, more = divmod(count, ranks)
    first = rank * least + min(rank, more)
    end = first + least + (rank < more)
    return [range(at, min(at + micro, end)) for at in range(first, end, micro)]


def train_plainly(given, ranks=1, rank=0):
    """Losses, and tokens a second, of a loop without Pliant; with several ranks DDP adds their gradients."""
    import torch

    import pliant
    from pliant.elastic._loader import _items
    from pliant.torch import LRScheduler

    sample, config = program_of(given)
    sentences = sample.Sentences(sample.read_text(config), config.app_int("max_sequence"))
    lengths = [len(one) for one in sentences.bytes]
    model, optimizer, warm_up = sample.build(config, config.run.seed)
    parallel = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    plan = pliant.Planner(config).plan(ranks)
    batches = pliant.Batches(config, plan, lengths, [one - 1 for one in lengths])
    scheduler = LRScheduler(optimizer, pliant.LearningRate(config, batches.epoch(0).mean_batch()), warm_up)
    losses, tokens, begin, end = [], 0, 0.0, 0.0
    for batch in batches:
        if len(losses) == given.steps:
            break
        optimizer.zero_grad()
        loss = 0.0
        micros = rows_of(batch.size.rows, plan.micro_batch, ranks, rank)
        for rows in micros:
            micro = sample.collate([sentences[item] for items in _items(batch, list(rows)) for item in items])
            with parallel.no_sync() if ranks > 1 and rows is not micros[-1] else contextlib.nullcontext():
                summed = parallel(micro)
                (summed * ranks).backward()  # DDP takes the mean over the ranks
            loss += float(summed.detach())
        for weight in model.parameters():
            weight.grad.div_(batch.size.loss_tokens)
        scheduler.batch(batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.app_float("clip_norm"))
        optimizer.step()
        scheduler.step()
        losses.append(loss / batch.size.loss_tokens)
        end = time.perf_counter()
        if len(losses) == 1:
            begin = end
        else:
            tokens += batch.size.tokens
    return losses, tokens / (end - begin)


def bare(given):
    losses, speed = train_plainly(given)
    print(json.dumps({"losses": losses, "speed": speed}))


def ddp(given):
    """One of the processes that torchrun has started."""
    import torch

    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    losses, speed = train_plainly(given, ranks, rank)
    total = torch.tensor(losses, dtype=torch.float64)
    torch.distributed.all_reduce(total)
    if rank == 0:
        given.ddp.write_text(json.dumps({"losses": total.tolist(), "speed": speed}), encoding="utf-8")
    torch.distributed.barrier()  # gloo aborts a rank whose peer has gone
    torch.distributed.destroy_process_group()


def output_of(command, folder):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def plain(given, folder, workers):
    words = ["--build", given.build, "--steps", given.steps, *(word for one in given.set for word in ("--set", one))]
    start = [sys.executable, "-B", __file__, "--bare"]
    if workers > 1:
        start = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--redirects", "1", "--tee", "1", "--log_dir", folder / "logs", "--nproc_per_node", workers, __file__, "--ddp",
                 folder / "ddp.json"]
    said = output_of([*start, *words], folder)
    said = json.loads(said if workers == 1 else (folder / "ddp.json").read_text(encoding="utf-8"))
    return said["speed"], said["losses"]


def job(given, folder, workers, *sets):
    command = [given.build / "bin/pliant", "run", SAMPLE / "pliant.toml", "--json", "--workers", workers, "--log-dir", folder / "runs"]
    for one in [*given.set, f"run.max_steps={given.steps}", "run.snapshot_every=0", *sets]:
        command += ["--set", one]
    summary = json.loads(output_of(command, folder))
    records = map(json.loads, (pathlib.Path(summary["directory"]) / "ledger.jsonl").read_text(encoding="utf-8").splitlines())
    return summary["tokens_per_second"], [one["loss"] for one in records if one["record"] == "commit"]


FAST, EXACT, AT_COMMIT = "run.deterministic=false", "run.deterministic=true", "run.reduce_bucket=0"


def loops_of(given, folder, workers):
    """By name; the first is the one that the others are measured by."""
    made = {}
    if workers == 1:
        made["bare loop"] = lambda: plain(given, folder, 1)
    elif given.has_ddp:
        made["DDP, gloo"] = lambda: plain(given, folder, workers)
    made["fast"] = lambda: job(given, folder, workers, FAST)
    if workers > 1:
        made["fast, at commit"] = lambda: job(given, folder, workers, FAST, AT_COMMIT)
    made["deterministic"] = lambda: job(given, folder, workers, EXACT)
    return made


def measure(given, folder, workers):
    loops = loops_of(given, folder, workers)
    speeds = {name: [] for name in loops}
    for number in range(given.rounds):
        print(f"{workers} workers, round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
        losses = {}
        for name, loop in sorted(loops.items(), reverse=number % 2 == 1):
            speed, losses[name] = loop()
            speeds[name].append(speed)
        for name, found in losses.items():
            if len(found) != len(losses["fast"]):
                sys.exit(f"{name} has made {len(found)} steps, the job {len(losses['fast'])}")
            for step, (one, other) in enumerate(zip(found[:STEPS_THAT_AGREE], losses["fast"])):
                if abs(one - other) > AGREE_TO * abs(other):
                    sys.exit(f"{name} computes something else: its loss at step {step} is {one}, that of the job {other}")
    return speeds


def has_ddp():
    words = "import sys, torch.distributed as d; sys.exit(not d.is_available())"
    return subprocess.run([sys.executable, "-c", words], stderr=subprocess.DEVNULL, check=False).returncode == 0


def ratios_of(speeds):
    """To the first loop, of each round."""
    (_, first), *others = speeds.items()
    return {name: [one / other for one, other in zip(found, first)] for name, found in others}


def spread(values, kind):
    return f"{format(statistics.median(values), kind)} ({format(min(values), kind)} to {format(max(values), kind)})"


def counts(text):
    made = [int(one) for one in text.split(",")]
    if not all(1 <= one <= 64 for one in made):
        raise ValueError(text)
    return made


def use_package(parser, given):
    """That of the build, in this process and those that it starts, which compute with one thread and keep the memory of tensors that are freed."""
    given.build = given.build.resolve()
    package = str(given.build / "lib/python")
    if not pathlib.Path(package, "pliant").is_dir():
        parser.error(f"--build {given.build}: has no Python package")
    sys.path.insert(0, package)
    os.environ["PYTHONPATH"] = package
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    # Else glibc gives it back and takes it again, a step or not as its heap happens to lie: one loop differs by a tenth from run to run.
    os.environ.update(MALLOC_MMAP_THRESHOLD_=str(2**28), MALLOC_TRIM_THRESHOLD_=str(2**30))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR", help="default: build/release")
    parser.add_argument("--workers", type=counts, default=[1, 2, 4], metavar="N,...", help="default: 1,2,4")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", choices=range(1, 101), help="default: 5")
    parser.add_argument("--steps", type=int, default=40, metavar="N", choices=range(2, 10001), help="default: 40")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the config, in all of them")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ddp", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    use_package(parser, given)
    os.environ["PATH"] = os.pathsep.join([str(given.build / "libexec/python"), os.environ["PATH"]])
    if given.bare or given.ddp:
        (bare if given.bare else ddp)(given)
        return
    given.has_ddp = has_ddp()
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="bench-torch-") as folder:
        found = {workers: measure(given, pathlib.Path(folder), workers) for workers in given.workers}
    if given.json:
        print(json.dumps({"schema": "pliant.bench_torch/1", "load": load, "workers": [
            {"workers": workers, "tokens_per_second": speeds, "ratios": ratios_of(speeds)} for workers, speeds in found.items()]}))
        return
    print(f"load {load} at the beginning\n\n| workers | loop | tokens/s, median (least to largest) | of the first, of each round | n |\n"
          "| --- | --- | --- | --- | --- |")
    for workers, speeds in found.items():
        ratios = ratios_of(speeds)
        for name, values in speeds.items():
            part = spread(ratios[name], ".3f") if name in ratios else "1"
            print(f"| {workers} | {name} | {spread(values, ',.0f')} | {part} | {len(values)} |")
    if not given.has_ddp and max(given.workers) > 1:
        print("\nLeft out: DDP: torch has no torch.distributed here")


if __name__ == "__main__":
    main()
