#!/usr/bin/env python3
"""Times the decisions of zero3, of planned and, beside them, of DeepSpeed's own coordinator; prints medians and spread as a table.

    compare.py BENCH_COORDINATOR [COORDINATOR_PY] [--repetitions N]

BENCH_COORDINATOR is the built benchmark. COORDINATOR_PY is deepspeed/runtime/zero/partitioned_param_coordinator.py of a checkout;
nothing else of DeepSpeed is needed. Both play the same passes: layers of 2 and of 16 parameters, forward and backward, in a
trace that is complete. A visit is a module entered and left; parameters are stubs, so that only decisions are timed. "Copied" visits
are those of passes that zero3 has recorded, "decided" ones those of passes that it decides anew. planned knows the order of the passes and
has a budget of three layers, or where all is kept of all of them. Ours are told of gradients that are complete and decide when they are
reduced, too; DeepSpeed's coordinator has no part in that.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "parity"))
from zero3_reference import Replay  # noqa: E402
from zero3_stubs import DEVICE, load  # noqa: E402

LAYERS = 128
ELEMENTS = 1000


def limits(kept, layer):
    """Prefetch bucket, reuse distance and live elements of the benchmark of the same name."""
    return (50_000_000, 1_000_000_000, 1_000_000_000) if kept else (2 * layer, 0, 4 * layer)


def layered(parameters, kept):
    bucket, distance, live = limits(kept, parameters * ELEMENTS)
    modules = [{"id": 0, "params": [], "children": list(range(1, LAYERS + 1))}]
    for layer in range(LAYERS):
        modules.append({"id": layer + 1, "params": list(range(layer * parameters, (layer + 1) * parameters))})
    return {"root": 0, "modules": modules, "params": [{"id": i, "numel": ELEMENTS} for i in range(LAYERS * parameters)],
            "config": {"prefetch_bucket_sz": bucket, "max_reuse_distance": distance, "max_available": live,
                       "event_query": True}}


def one_pass(replay):
    coordinator, modules = replay.coordinator, replay.modules

    def enter(module, forward):
        coordinator.trace_prologue(module)
        if coordinator.is_record_trace():
            coordinator.record_module(module)
        coordinator.fetch_sub_module(module, forward=forward)

    replay.events.clear()
    coordinator.reset_step()
    for forward in (True, False):
        enter(modules[0], forward)
        for layer in range(1, LAYERS + 1) if forward else range(LAYERS, 0, -1):
            enter(modules[layer], forward)
            coordinator.release_sub_module(modules[layer], forward=forward)
        coordinator.release_sub_module(modules[0], forward=forward)


class Theirs:
    """Seconds of a visit of the reference, one repetition a call."""

    def __init__(self, reference, parameters, kept):
        self.replay = Replay(layered(parameters, kept), reference)
        DEVICE.replay = self.replay
        for _ in range(4):
            one_pass(self.replay)

    def seconds(self):
        DEVICE.replay = self.replay
        begun = time.process_time()
        one_pass(self.replay)
        return (time.process_time() - begun) / (2 * LAYERS + 2)


def ours(bench, case):
    """Seconds of a visit; `case`: the benchmark's name."""
    output = subprocess.run([bench, f"--benchmark_filter=^{case}$", "--benchmark_format=json",
                             "--benchmark_min_time=0.02"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                            text=True).stdout
    return json.loads(output)["benchmarks"][0]["visit"]


def shown(seconds):
    unit, scale = ("us", 1e6) if min(seconds) >= 1e-6 else ("ns", 1e9)
    low, middle, high = min(seconds) * scale, statistics.median(seconds) * scale, max(seconds) * scale
    return f"{middle:.3g} {unit} ({low:.3g} to {high:.3g})"


def ratio(theirs, mine):
    return f"{statistics.median(theirs) / statistics.median(mine):,.0f}" if theirs else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=pathlib.Path)
    parser.add_argument("reference", nargs="?", type=pathlib.Path)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    reference = load(options.reference) if options.reference else None
    print("| visit | zero3, copied | zero3, decided | planned | DeepSpeed | ratio of the medians to copied | to decided | to planned |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, kept in (("gathered", False), ("kept", True)):
        for parameters in (2, 16):
            theirs = Theirs(reference, parameters, kept) if reference else None
            cases = [f"visits/{name}/{parameters}", f"visits/{name}_decided/{parameters}", f"planned_visits/{name}/{parameters}"]
            times = [[] for _ in cases]
            others = []
            for _ in range(options.repetitions):  # in turn, so that all meet the same load
                for case, seconds in zip(cases, times):
                    seconds.append(ours(options.bench, case))
                if theirs:
                    others.append(theirs.seconds())
            cells = [f"{name}, {parameters} parameters", *map(shown, times), shown(others) if others else "-",
                     *(ratio(others, seconds) for seconds in times)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
