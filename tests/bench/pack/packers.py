#!/usr/bin/env python3
"""Packs the same sequences with Pliant and, given their sources, with TRL, fairseq and DeepSpeed; prints one table.

    scripts/bench-packers [--trl DIR] [--fairseq DIR] [--deepspeed DIR] [OPTION ...]

DIR is the root of a checkout. One function is taken from each: TRL's _pack_bfd, fairseq's batch_by_size_vec (compiled in a
temporary folder where the Python has Cython), DeepSpeed's batch_by_seqlens. Nothing else of them is needed or run. Lengths
are drawn with a fixed seed and cut to the budget. Every packing is checked: each sequence at most once, no pack over budget.
Ends with 1 if one is wrong. Times of ours are those that `pliant pack --json` gives: planning and checking every row.
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

import lengths as length_files
import peers

HERE = pathlib.Path(__file__).resolve().parent
NAMES = {"trl": "TRL", "fairseq": "fairseq", "deepspeed": "DeepSpeed"}
# What is shown of ours: sampler and order.
OURS = [("next_fit", ""), ("best_fit", ""), ("streaming", ""), ("padded_budget", ""), ("padded_budget", "seqlen"),
        ("seqlen", "")]
# Peer, variant, and the one of ours that does the same.
THEIRS = [("trl", "windows of 1000", ("best_fit", "")), ("trl", "one window", ("best_fit", "")),
          ("fairseq", "as given", ("padded_budget", "")), ("fairseq", "sorted", ("padded_budget", "seqlen")),
          ("deepspeed", "", ("seqlen", ""))]


def name_of(packer, variant):
    return f"{packer}, {variant}" if variant else packer


def numbers(text, least=1):
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        found = [0]
    if found[0] < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not one or more numbers of at least {least} with commas between")
    return found


def sizes(text):
    return numbers(text, 2)  # DeepSpeed, and `seqlen` with it, leaves out the last one


def kinds(text):
    found = text.split(",")
    unknown = [word for word in found if word not in length_files.DRAWN]
    if unknown:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is unknown; allowed are {', '.join(length_files.DRAWN)}")
    return found


def seconds(text):
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found <= 86400:
        raise argparse.ArgumentTypeError(f"'{text}' is no time in seconds above 0")
    return found


def arguments_of(words):
    parser = argparse.ArgumentParser(prog="bench-packers", usage="%(prog)s [--trl DIR] [--fairseq DIR] [--deepspeed DIR] ...",
                                     description="\n".join(__doc__.splitlines()[:1] + __doc__.splitlines()[4:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in NAMES:
        parser.add_argument(f"--{peer}", type=pathlib.Path, metavar="DIR", help=f"root of {NAMES[peer]}'s source tree")
    parser.add_argument("--sizes", type=sizes, metavar="N,...",
                        help="sequences to pack. Default: 10000,1000000, or all of --file")
    parser.add_argument("--budgets", type=numbers, default=[512, 2048, 8192], metavar="N,...",
                        help="tokens that a pack holds. Default: 512,2048,8192")
    drawn = parser.add_mutually_exclusive_group()
    drawn.add_argument("--lengths", type=kinds, default=["wiki", "lognormal"], metavar="KIND,...",
                       help="wiki (longest 512, mean 256), lognormal (median 300, sigma 1). Default: both")
    drawn.add_argument("--file", type=pathlib.Path, metavar="LENGTHS",
                       help="lengths from an .npy, or from text with a number in every line")
    parser.add_argument("--seconds-limit", type=seconds, default=60.0, metavar="S",
                        help="a peer that takes longer packs the largest of 250, 500, 1000, 2000, ... sequences that fits, and "
                             "the table says so. Default: 60")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", choices=range(1, 1001),
                        help="runs of each packer, where a quarter of the limit holds so many. Default: 5")
    parser.add_argument("--python", default=sys.executable, metavar="PROGRAM",
                        help="runs the peers: has numpy for TRL and fairseq, pyarrow for all of TRL, Cython for a fast fairseq")
    parser.add_argument("--pliant", type=pathlib.Path, metavar="PROGRAM",
                        help="the built pliant. Default: build/release/bin/pliant, which is brought up to date")
    parser.add_argument("--json", action="store_true", help="print one JSON document in place of the table")
    parser.add_argument("--only-check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    for peer in NAMES:
        tree = getattr(options, peer)
        if tree is None:
            continue
        if not tree.is_dir():
            parser.error(f"--{peer} {tree}: there is no such folder")
        if not (tree / peers.MODULES[peer]).is_file():
            parser.error(f"--{peer} {tree}: has no {peers.MODULES[peer]}; give the root of a checkout of {NAMES[peer]}")
    if options.pliant and not os.access(options.pliant, os.X_OK):
        parser.error(f"--pliant {options.pliant}: is no program")
    options.read = None
    if options.file:
        try:
            options.read = length_files.read_lengths(options.file)
            if len(options.read) < 2:
                raise ValueError("has 1 length; at least 2 are needed")
        except (OSError, ValueError, SyntaxError, KeyError, TypeError) as error:
            parser.error(f"--file {options.file}: {getattr(error, 'strerror', None) or error}")
    try:
        options.packages = ask(options.python, "packages")
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        parser.error(f"--python {options.python}: cannot be run ({error})")
    return options


def ask(python, *words, job=None, limit=None):
    """What peer_job.py, in a process of its own, answers. The process is ended at the limit."""
    done = subprocess.run([python, "-B", str(HERE / "peer_job.py"), *map(str, words)], check=True, timeout=limit, text=True,
                          input=json.dumps(job) if job else "", stdout=subprocess.PIPE)
    return json.loads(done.stdout)


class Ours:
    """`pliant pack` with one sampler after the other."""

    def __init__(self, options, folder):
        self.program, self.repetitions = options.pliant, options.repetitions
        self.config = pathlib.Path(folder, "pliant.toml")

    def pack(self, sampler, order, lengths, budget):
        text = f'config_version = 1\n[data]\nlengths = "{lengths.name}"\n[sampler]\nuse = "{sampler}"\n[sampler.{sampler}]\n'
        text += f"max_tokens = {budget}\n" + (f'order = "{order}"\n' if order else "")
        self.config.write_text(text, encoding="utf-8")
        found = []
        for _ in range(self.repetitions):
            done = subprocess.run([self.program, "pack", self.config, "--json"], stdout=subprocess.PIPE, text=True, check=False)
            answer = json.loads(done.stdout or "{}")
            if done.returncode:
                sys.exit(f"pliant pack with {sampler}: {answer.get('error', f'ended with {done.returncode}')}")
            found.append(answer)
        one = found[0]
        return {"packer": name_of(sampler, "sorted" if order else ""), "ours": True, "budget": budget,
                "sequences": one["dataset_sequences"], "packs": one["packs"], "efficiency": one["efficiency"],
                "lost": one["dataset_sequences"] - one["sequences"], "seconds": [each["seconds"] for each in found],
                "cpu_seconds": [each["cpu_seconds"] for each in found], "ratio": 1.0, "notes": []}


class Comparison:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.ours = Ours(options, folder)
        self.rows, self.left_out, self.done = [], {}, {}
        self.built = None
        for peer in NAMES:
            if getattr(options, peer) is None:
                self.left_out[NAMES[peer]] = f"no --{peer}"
        if options.fairseq:
            self.built = ask(options.python, "compile", options.fairseq.resolve(), folder)

    def lengths_of(self, kind, size, budget):
        path = self.folder / f"{kind}-{size}-{budget}.npy"
        if not path.exists():
            drawn = self.options.read if self.options.read else length_files.DRAWN[kind](size)
            length_files.write_npy(path, length_files.clipped(drawn[:size], budget))
        return path

    def our_row(self, which, kind, size, budget):
        key = which, kind, size, budget
        if key not in self.done:
            row = dict(self.ours.pack(*which, self.lengths_of(kind, size, budget), budget), lengths=kind)
            self.done[key] = row
            self.rows.append(row)
        return self.done[key]

    def their_row(self, peer, variant, like, kind, size, budget):
        """One row, or none where the peer cannot be run or a smaller size was too much already."""
        options, name = self.options, name_of(NAMES[peer], variant)
        key = peer, variant, kind, budget
        if getattr(options, peer) is None or name in self.left_out or key in self.done:
            return
        job = {"peer": peer, "variant": variant, "tree": str(getattr(options, peer).resolve()), "budget": budget,
               "lengths": str(self.lengths_of(kind, size, budget)), "limit": options.seconds_limit,
               "repetitions": options.repetitions, "built": self.built}
        guard = 10 * options.seconds_limit + 60
        try:
            found = ask(options.python, "pack", job=job, limit=guard)
        except subprocess.TimeoutExpired:
            found = {"left_out": f"{kind}, {size:,} sequences, budget {budget}: did not end in {guard:g} s"}
        except (subprocess.CalledProcessError, ValueError) as error:
            found = {"left_out": f"{kind}, {size:,} sequences, budget {budget}: {error}"}
        if "left_out" in found:
            self.left_out[name] = found["left_out"]
            return
        if found["count"] < size:
            self.done[key] = True
        ours = self.our_row(like, kind, found["count"], budget)
        ratio = statistics.median(found["cpu_seconds"]) / max(statistics.median(ours["cpu_seconds"]), 1e-6)
        notes = [f"{found['count']:,} of {size:,} in {options.seconds_limit:g} s"] if found["count"] < size else []
        notes += [found["how"]] if found["how"] else []
        notes += [f"WRONG: {found['wrong']}"] if found["wrong"] else []
        self.rows.append({
            "packer": name, "ours": False, "like": ours["packer"], "lengths": kind, "budget": budget,
            "sequences": found["count"], "packs": found["packs"],
            "efficiency": found["tokens"] / max(1, found["packs"] * budget), "lost": found["count"] - found["used"],
            "seconds": found["seconds"], "cpu_seconds": found["cpu_seconds"], "wrong": found["wrong"],
            "ratio": ratio, "notes": notes})

    def run(self):
        options = self.options
        every = options.sizes or ([len(options.read)] if options.read else [10_000, 1_000_000])
        if options.read:
            every = sorted({min(size, len(options.read)) for size in every})
        for kind in [options.file.stem] if options.file else options.lengths:
            for budget in options.budgets:
                for size in every:
                    print(f"{kind}, budget {budget}, {size:,} sequences...", file=sys.stderr, flush=True)
                    for which in OURS:
                        self.our_row(which, kind, size, budget)
                    for peer, variant, like in THEIRS:
                        self.their_row(peer, variant, like, kind, size, budget)


def machine_of(options):
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    version = subprocess.run([options.pliant, "version"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[0]
    return {"cpu": model, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "pliant": version, **options.packages}


def git(tree, *words):
    try:
        done = subprocess.run(["git", "-C", tree, *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_of(tree):
    """Of the checkout that `tree` is the root of; a folder inside of another repository has none."""
    at_root = git(tree, "rev-parse", "--show-prefix") == ""
    return (git(tree, "log", "-1", "--format=%h (%cs)") if at_root else None) or "of no known commit"


def rate(count):
    scale, unit = (1e6, "M") if count >= 1e6 else (1e3, "k") if count >= 1e3 else (1, "")
    return f"{count / scale:.3g}{unit}"


def cells_of(row):
    rates = [row["sequences"] / max(one, 1e-6) for one in row["cpu_seconds"]]
    spread = f" ({rate(min(rates))} to {rate(max(rates))})" if len(rates) > 1 else ""
    notes = ([f"{row['lost']:,} lost"] if row["lost"] else []) + row["notes"]
    ratio = "1" if row["ours"] else f"{row['ratio']:,.3g} x {row['like']}" if row["ratio"] < 100 else \
        f"{row['ratio']:,.0f} x {row['like']}"
    return [row["packer"], row["lengths"], str(row["budget"]), f"{row['sequences']:,}", f"{row['packs']:,}",
            f"{100 * row['efficiency']:.2f} %", rate(statistics.median(rates)) + spread,
            f"{statistics.median(row['cpu_seconds']):.3g}", f"{statistics.median(row['seconds']):.3g}", ratio, "; ".join(notes)]


def table_of(document):
    machine = document["machine"]
    lines = ["{cpu}, {cores} cores, load {load}; {pliant}; Python {python}".format(**machine)
             + "".join(f", {name} {machine[name]}" for name in ("numpy", "pyarrow", "Cython") if machine[name])]
    lines += [f"{name} {commit}" for name, commit in document["sources"].items()]
    lines += ["", "| packer | lengths | budget | sequences | packs | efficiency | sequences per CPU second (least to most) "
              "| CPU seconds | seconds by the clock | CPU time to ours | note |", "| " + " | ".join(["---"] * 11) + " |"]
    lines += [f"| {' | '.join(cells_of(row))} |" for row in document["rows"]]
    lines += [""] * bool(document["left_out"]) + [f"Left out: {name}: {why}" for name, why in document["left_out"].items()]
    return "\n".join(lines)


def main():
    options = arguments_of(sys.argv[1:])
    if options.only_check:
        return 0
    if options.pliant is None:
        options.pliant = HERE.parents[2] / "build/release/bin/pliant"
    options.pliant = options.pliant.resolve()
    with tempfile.TemporaryDirectory(prefix="bench-packers-") as folder:
        comparison = Comparison(options, folder)
        document = {"schema": "pliant.bench_packers/1", "machine": machine_of(options)}
        comparison.run()
    given = [peer for peer in NAMES if getattr(options, peer)]
    document["sources"] = {NAMES[peer]: commit_of(getattr(options, peer)) for peer in given}
    document.update(left_out=comparison.left_out, rows=comparison.rows)
    print(json.dumps(document) if options.json else table_of(document))
    return 1 if any(row.get("wrong") for row in comparison.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
