#!/usr/bin/env python3
"""Measures what a job costs a loop in PyTorch: samples/torch_lm with one worker, beside the same loop bare, in alternating pairs.

    torch_lm.py --build DIR [--pairs N] [--steps N] [--set KEY=VALUE ...] [--json]

Speeds are tokens a second from the end of the first step to the end of the last, which leaves the start out: `tokens_per_second` of
`pliant run --json`, and the same of the bare loop. The bare loop has the batches, micro-batches and rates of the job in fast mode, as many threads, and no
agent, ledger, digest, look for NaN or read-ahead. Where its losses are not near those of the job it computes something else, and nothing is printed.
Deterministic mode is measured beside both.
"""
import argparse
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


def bare(given):
    """Prints losses, and tokens a second."""
    import torch

    import pliant
    from pliant.elastic._loader import _items
    from pliant.torch import LRScheduler

    specification = importlib.util.spec_from_file_location("torch_lm", SAMPLE / "train.py")
    sample = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(sample)
    config = pliant.Config.open(SAMPLE / "pliant.toml", sets=given.set)
    sentences = sample.Sentences(sample.read_text(config), config.app_int("max_sequence"))
    lengths = [len(one) for one in sentences.bytes]
    model, optimizer, warm_up = sample.build(config, config.run.seed)
    plan = pliant.Planner(config).plan(1)
    batches = pliant.Batches(config, plan, lengths, [one - 1 for one in lengths])
    scheduler = LRScheduler(optimizer, pliant.LearningRate(config, batches.epoch(0).mean_batch()), warm_up)
    losses, tokens, begin = [], 0, 0.0
    for batch in batches:
        if len(losses) == given.steps:
            break
        optimizer.zero_grad()
        loss = 0.0
        for first in range(0, batch.size.rows, plan.micro_batch):
            rows = list(range(first, min(first + plan.micro_batch, batch.size.rows)))
            micro = sample.collate([sentences[item] for items in _items(batch, rows) for item in items])
            summed = model(micro)
            summed.backward()
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
    print(json.dumps({"losses": losses, "speed": tokens / (end - begin)}))


def output_of(command, folder):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout.splitlines()[-1]


def job(given, folder, deterministic):
    sets = [*given.set, f"run.max_steps={given.steps}", "run.snapshot_every=0", f"run.deterministic={str(deterministic).lower()}"]
    command = [given.build / "bin/pliant", "run", SAMPLE / "pliant.toml", "--json", "--workers", "1", "--log-dir", folder / "runs"]
    for one in sets:
        command += ["--set", one]
    summary = json.loads(output_of(command, folder))
    records = map(json.loads, (pathlib.Path(summary["directory"]) / "ledger.jsonl").read_text(encoding="utf-8").splitlines())
    return summary["tokens_per_second"], [one["loss"] for one in records if one["record"] == "commit"]


def measure(given, folder):
    found = {"bare": [], "fast": [], "deterministic": []}
    for number in range(given.pairs):
        print(f"pair {number + 1} of {given.pairs}", file=sys.stderr, flush=True)
        said = json.loads(output_of([sys.executable, "-B", __file__, "--build", given.build, "--bare", "--steps", given.steps,
                                     *(word for one in given.set for word in ("--set", one))], folder))
        fast, losses = job(given, folder, False)
        exact, _ = job(given, folder, True)
        for step, (one, other) in enumerate(zip(said["losses"][:STEPS_THAT_AGREE], losses)):
            if abs(one - other) > AGREE_TO * abs(other):
                sys.exit(f"the bare loop computes something else: its loss at step {step} is {one}, that of the job {other}")
        if len(said["losses"]) != len(losses):
            sys.exit(f"the bare loop has made {len(said['losses'])} steps, the job {len(losses)}")
        for name, speed in (("bare", said["speed"]), ("fast", fast), ("deterministic", exact)):
            found[name].append(speed)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR", help="default: build/release")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", choices=range(1, 101))
    parser.add_argument("--steps", type=int, default=40, metavar="N", choices=range(2, 10001))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the config, in all of them")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.build = given.build.resolve()
    package = str(given.build / "lib/python")
    if not pathlib.Path(package, "pliant").is_dir():
        parser.error(f"--build {given.build}: has no Python package")
    sys.path.insert(0, package)
    os.environ["PYTHONPATH"] = package
    os.environ["PATH"] = os.pathsep.join([str(given.build / "libexec/python"), os.environ["PATH"]])
    if given.bare:
        bare(given)
        return
    with tempfile.TemporaryDirectory(prefix="bench-torch-lm-") as folder:
        found = measure(given, pathlib.Path(folder))
    ratios = {name: [one / other for one, other in zip(found[name], found["bare"])] for name in ("fast", "deterministic")}
    if given.json:
        print(json.dumps({"schema": "pliant.bench_torch_lm/1", "tokens_per_second": found, "of_the_bare_loop": ratios}))
        return
    print("| loop | tokens/s, median (least to largest) | of the bare loop, median of pairs | n |\n| --- | --- | --- | --- |")
    for name, speeds in found.items():
        part = f"{statistics.median(ratios[name]):.3f}" if name in ratios else ""
        print(f"| {name} | {statistics.median(speeds):,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f}) | {part} | {len(speeds)} |")


if __name__ == "__main__":
    main()
