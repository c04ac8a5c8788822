#!/usr/bin/env python3
"""Writes rows like those of zero3_trace.jsonl by running DeepSpeed's coordinator on random models and visits.

    zero3_rows.py HEAD.py SEED.py [--rows N] [--start N] [--passes N] [--wild] | pliant-parity /dev/stdin
    zero3_rows.py HEAD.py SEED.py --check zero3_trace.jsonl.gz

HEAD.py and SEED.py are deepspeed/runtime/zero/partitioned_param_coordinator.py of August 2026 (edaa7221) and of April 2023
(47f9f13bd). Models reach 200 parameters and 25 modules, with 0 elements, leaves, shared, external, persistent and frozen ones.
--wild: visits that do not match, releases and resets in the middle. --check: the rows of a file have what the reference does.
"""
import argparse
import gzip
import json
import pathlib
import random
import sys

from zero3_reference import replays
from zero3_stubs import load


def any_model(rng):
    parameters = [{"id": number, "numel": rng.randint(1, rng.choice([5, 60, 1000, 10**6]))}
                  for number in range(rng.randint(1, rng.choice([4, 10, 40, 200])))]
    empty = rng.random() < 0.25
    for one in parameters:
        if empty and rng.random() < 0.4:
            one["numel"] = rng.choice([0, 1, rng.randint(0, 20)])
        for flag, share in (("persist", 0.15), ("external", 0.06), ("frozen", 0.2)):
            if rng.random() < share:
                one[flag] = True
    modules = [{"id": number, "params": []} for number in range(rng.randint(1, rng.choice([4, 8, 25])))]
    for number in range(1, len(modules)):
        modules[rng.randint(max(0, number - 3), number - 1)].setdefault("children", []).append(number)
    for number in range(len(parameters)):
        for owner in rng.sample(modules, min(len(modules), rng.choice([1, 1, 1, 1, 2, 3]))):
            owner["params"].append(number)
    with_external, with_leaves = rng.random() < 0.3, rng.random() < 0.25
    for module in modules:
        if with_external and rng.random() < 0.4:
            module["external"] = rng.sample(range(len(parameters)), min(len(parameters), rng.randint(1, 3)))
        if with_leaves and module["id"] > 0 and rng.random() < 0.3:
            module["leaf"] = True
    return parameters, modules


class Visits:
    """Passes over the modules of a model, with the disturbances of `chances` (each a share of the visits)."""

    def __init__(self, rng, modules, chances):
        self.rng, self.modules, self.chances = rng, modules, chances

    def happens(self, what):
        return self.rng.random() < self.chances.get(what, 0)

    def children(self, module):
        row = self.modules[module]
        return [] if row.get("leaf") else [child for child in row.get("children", []) if not self.happens("skip")]

    def forward(self, module):
        visits = [["pre", module, 1]]
        for child in self.children(module):
            visits += self.forward(child)
            if self.happens("repeat"):
                visits += self.forward(child)
        return visits + [["post", module, 1]]

    def backward(self, module):
        visits = [["pre", module, 0]]
        if self.happens("recompute"):
            again = self.rng.choice([[module], self.children(module)])
            inner = [["pre", module, 1], ["post", module, 1]] if again == [module] else sum(map(self.forward, again), [])
            visits += [visit + [1] for visit in inner]
        for child in reversed(self.children(module)):
            visits += self.backward(child)
        return visits if self.happens("never_left") else visits + [["post", module, 0]]


def disturbed(rng, visits, modules):
    """Visits that do not match, and what a program would do between passes."""
    made = list(visits)
    for name, share in (("visit", 0.3), ("release_all", 0.15), ("invalidate_head", 0.1), ("leftovers_head", 0.1)):
        if rng.random() >= share:
            continue
        for _ in range(rng.randint(1, 3) if name == "visit" else 1):
            visit = [rng.choice(["pre", "post"]), rng.randrange(len(modules)), rng.randint(0, 1)]
            made.insert(rng.randrange(len(made) + 1), visit if name == "visit" else [name])
    return made


def any_row(rng, name, wild, passes):
    parameters, modules = any_model(rng)
    total = sum(one["numel"] for one in parameters)

    def limit():
        return rng.choice([0, 1, total // 10, total // 3, total, 10 * total + 5, rng.randint(0, total + 1), 10**9])

    config = {"prefetch_bucket_sz": limit(), "max_reuse_distance": limit(), "max_available": limit(),
              "event_query": rng.random() < 0.6}
    chances = dict(rng.sample([("skip", 0.1), ("repeat", 0.2), ("recompute", 0.4), ("never_left", 0.2), ("", 0)], 2))
    operations, visits = [["reset_head"]], None
    for _ in range(rng.randint(2, passes)):
        if visits is None or rng.random() < 1.75 / passes:
            walk = Visits(rng, modules, chances)
            visits = walk.forward(0) + (walk.backward(0) if rng.random() < 0.85 else [])
            visits = visits[:400]
        pass_of_now = visits if rng.random() > 0.84 / passes else visits[:rng.randint(0, len(visits))]
        operations += disturbed(rng, pass_of_now, modules) if wild else pass_of_now
        for name_of, share in (("leftovers_head", 0.5), ("invalidate_head", 0.08), ("release_all", 0.3), ("reset", 1)):
            if rng.random() < share:
                operations.append([name_of])
        if rng.random() < 0.06:
            own, external = (rng.sample(range(len(parameters)), min(len(parameters), rng.randint(0, most)))
                             for most in (3, 2))
            operations.append(["setparams", rng.randrange(len(modules)), own, external])
    return {"id": name, "cat": "random", "config": config, "root": 0, "params": parameters, "modules": modules,
            "ops": operations}


def comparable(entries):
    """Exceptions by their class."""
    for entry in entries or []:
        if entry and "error" in entry:
            entry["error"] = entry["error"]["type"]
    return entries


def check(path, head, seed):
    differing = 0
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            for column, entries in zip(("head", "seed"), replays(row, head, seed)):
                if comparable(json.loads(json.dumps(entries))) != comparable(row[column]):
                    differing += 1
                    print(f"row {row['id']}: {column} differs")
    print(f"{differing} columns differ")
    return 1 if differing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("head", type=pathlib.Path)
    parser.add_argument("seed", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--start", type=int, default=1, help="the number that the random rows follow from")
    parser.add_argument("--passes", type=int, default=7, help="of a row, at most; the more, the steadier they are")
    parser.add_argument("--wild", action="store_true")
    parser.add_argument("--check", type=pathlib.Path, metavar="ROWS")
    options = parser.parse_args()
    head, seed = load(options.head), load(options.seed)
    if options.check:
        return check(options.check, head, seed)
    rng = random.Random(options.start)
    for number in range(options.rows):
        row = any_row(rng, f"{options.start}.{number}", options.wild, options.passes)
        row["head"], row["seed"] = replays(row, head, seed)
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
