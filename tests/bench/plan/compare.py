#!/usr/bin/env python3
"""Times the planning of Pliant and, beside it, of DeepSpeed's elasticity.py; prints medians and spread as a table.

    compare.py BENCH_PLAN [ELASTICITY_PY [PYTHON]] [--repetitions N] [--limit SECONDS] [--only REGEX]

BENCH_PLAN is the built benchmark. ELASTICITY_PY is deepspeed/elasticity/elasticity.py of a checkout, or that file with its
neighbours config.py and constants.py alone; nothing else of DeepSpeed is needed. PYTHON has numpy and packaging.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
import types


class Slow(BaseException):
    """The reference ran past its limit."""


def load_reference(path):
    """The module elasticity.py with the rest of its package replaced by what it imports."""
    def stub(name, **members):
        module = types.ModuleType(name)
        module.__dict__.update(members)
        module.__path__ = []
        sys.modules[name] = module

    quiet = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None, warn=lambda *_: None)
    stub("deepspeed")
    stub("deepspeed.utils", logger=quiet)
    stub("deepspeed.git_version_info", version="0.19.6")
    stub("deepspeed.elasticity")
    for name in ("constants", "config", "elasticity"):
        spec = importlib.util.spec_from_file_location(f"deepspeed.elasticity.{name}", path.with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def seconds_of(call, repetitions, limit):
    """Medians of up to `repetitions` runs, each of as many calls as take 50 ms; what fits `limit` seconds."""
    taken = []
    started = time.perf_counter()
    while len(taken) < repetitions and (not taken or time.perf_counter() - started + taken[-1] < limit):
        calls = 0
        begun = time.perf_counter()
        while calls == 0 or time.perf_counter() - begun < 0.05:
            call()
            calls += 1
        taken.append((time.perf_counter() - begun) / calls)
    return taken


def run_reference(path, repetitions, limit):
    """Reads one case a line from stdin, answers with one line of seconds each; [] for a case past the limit."""
    reference = load_reference(path)
    os.environ["WORLD_SIZE"] = "1"

    def stop(*_):
        raise Slow

    signal.signal(signal.SIGALRM, stop)
    for line in sys.stdin:
        config = {"elasticity": dict(json.loads(line), enabled=True)}
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            taken = seconds_of(lambda: reference.compute_elastic_config(config, "0.19.6"), repetitions, limit / 2)
        except Slow:
            taken = []
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(taken), flush=True)


def cases_of(bench, only):
    listed = subprocess.run([bench, "--benchmark_list_tests", f"--benchmark_filter=^plan/.*{only}"],
                            stdout=subprocess.PIPE, check=True, text=True).stdout
    return [name.split("/", 1)[1] for name in listed.split()]


def run_bench(bench, case, repetitions):
    """The config of the case as JSON, the seconds of plan(), those of a Planner and plan(): every repetition."""
    output = subprocess.run(
        [bench, f"--benchmark_filter=^(plan|make_and_plan)/{case}$", "--benchmark_format=json",
         f"--benchmark_repetitions={repetitions}", "--benchmark_min_time=0.05"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    rows = [row for row in json.loads(output)["benchmarks"] if row["run_type"] == "iteration"]
    plan, fresh = ([row["real_time"] * 1e-6 for row in rows if row["run_name"].startswith(f"{kind}/")]
                   for kind in ("plan", "make_and_plan"))
    return rows[0]["label"], plan, fresh


def shown(seconds):
    unit, scale = ("s", 1) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    return f"{seconds * scale:.3g} {unit}"


def shown_all(taken):
    return f"{shown(statistics.median(taken))} ({shown(min(taken))} to {shown(max(taken))})"


def row_of(case, options, reference):
    """One line of the table: Pliant and at once the reference, so that both meet the same load. `exact` has none."""
    policy = case.split("/", 1)[0]
    label, plan, fresh = run_bench(options.bench, case, options.repetitions)
    limit = options.limit
    theirs, ratio = "-", "-"
    if reference and policy != "exact":
        reference.stdin.write(json.dumps(dict(json.loads(label), version=float(policy[1:]))) + "\n")
        reference.stdin.flush()
        taken = json.loads(reference.stdout.readline())
        theirs = shown_all(taken) if taken else f"> {limit:g} s"
        seconds = statistics.median(taken) if taken else limit
        ratio = f"{'' if taken else '> '}{seconds / statistics.median(plan):,.0f}"
    return f"| {case} | {shown_all(plan)} | {shown_all(fresh)} | {theirs} | {ratio} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=pathlib.Path)
    parser.add_argument("reference", nargs="?", type=pathlib.Path)
    parser.add_argument("python", nargs="?", default=sys.executable)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--limit", type=float, default=30, help="seconds that the reference may take for one case")
    parser.add_argument("--only", default="", help="a regular expression on the names of the cases")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        run_reference(options.reference, options.repetitions, options.limit)
        return
    reference = None
    if options.reference:
        command = [options.python, __file__, options.bench, options.reference, "--answer", "--repetitions",
                   options.repetitions, "--limit", options.limit]
        reference = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {options.repetitions} (least to most)\n")
    print("| case | plan() | Planner and plan() | DeepSpeed | times |\n| --- | --- | --- | --- | --- |")
    for case in cases_of(options.bench, options.only):
        print(row_of(case, options, reference), flush=True)
    if reference:
        reference.stdin.close()
        reference.wait()


if __name__ == "__main__":
    main()
