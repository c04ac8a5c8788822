#!/usr/bin/env python3
"""Times four collectives of Pliant's host accelerator and, where they are given, of OpenMPI and Gloo; one table.

    scripts/bench-collectives [--mpi DIR] [--gloo-headers DIR --gloo-library FILE] [OPTION ...]

--mpi: the prefix of an MPI (with bin/mpicxx and bin/mpirun); without it both are looked for in PATH. --gloo-headers: a folder
with gloo/allgather.h, of a development package or of the source tree that the library was built from. What is absent is left
out, and it is said. The peers' programs are compiled in a temporary folder. All take turns, --rounds times; shown is the
median of the rounds' medians, the least and the largest of them. Time of the slowest rank, all ranks set out together; in a row:
per call, of 8 that follow each other.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
UNITS = {"": 1, "B": 1, "K": 2**10, "KiB": 2**10, "M": 2**20, "MiB": 2**20}


class Absent(Exception):
    """A peer that cannot be measured here, and why."""


def size(text):
    found = re.fullmatch(r"(\d+)(\w*)", text)
    if not found or found.group(2) not in UNITS or not int(found.group(1)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size, such as 4KiB or 1MiB")
    return int(found.group(1)) * UNITS[found.group(2)]


def sizes(text):
    return sorted({size(word) for word in text.split(",")})


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def repetitions(byte_count, most):
    return max(2, min(most, (64 << 20) // byte_count * 8))


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode:
        raise Absent(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def compiler():
    found = os.environ.get("CXX") or next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    if not found:
        raise Absent("there is no C++ compiler")
    return found


class Ours:
    name = "pliant host"

    def __init__(self, given, _):
        self.program = given.pliant
        self.ranks = given.ranks

    def measure(self, byte_count, times):
        said = json.loads(run([self.program, "accel", "bench", "host", "--only", "collectives", "--json", "--ranks",
                               str(self.ranks), "--sizes", str(byte_count), "--repeat", str(times)]))
        for one in said["collectives"]:
            if one["what"] in COLLECTIVES:
                yield one["what"], 1, one["time"]["median_s"]
                yield one["what"], said["calls_in_a_row"], one["in_a_row"]["median_s"]


class Peer:
    """A program that prints lines of peer_timing.hpp."""

    def measure(self, byte_count, times):
        for line in self.output(byte_count, times).splitlines():
            one = json.loads(line)
            yield one["what"], one["calls"], statistics.median(one["times_ns"]) * 1e-9


class Mpi(Peer):
    name = "OpenMPI"

    def __init__(self, given, folder):
        where = os.fspath(given.mpi / "bin") if given.mpi else None
        self.runner, mpicxx = shutil.which("mpirun", path=where), shutil.which("mpicxx", path=where)
        if not self.runner or not mpicxx:
            raise Absent(f"no mpirun and mpicxx in {where or 'PATH'}; --mpi names the prefix of one")
        self.program = folder / "mpi_peer"
        self.ranks = given.ranks
        run([mpicxx, "-std=c++20", "-O2", str(HERE / "mpi_peer.cpp"), "-o", str(self.program)])
        said = run([self.runner, "--version"]).splitlines()[0]
        self.flags = ["--oversubscribe", "--allow-run-as-root"] if "Open MPI" in said else []
        self.name = said.strip() or self.name

    def output(self, byte_count, times):
        return run([self.runner, *self.flags, "-n", str(self.ranks), str(self.program), str(times), str(byte_count)])


class Gloo(Peer):
    name = "Gloo"

    def __init__(self, given, folder):
        if not given.gloo_headers or not given.gloo_library:
            raise Absent("--gloo-headers and --gloo-library do not name it")
        if not (given.gloo_headers / "gloo" / "allgather.h").is_file():
            raise Absent(f"there is no gloo/allgather.h in {given.gloo_headers}")
        if not given.gloo_library.is_file():
            raise Absent(f"there is no {given.gloo_library}")
        self.folder, self.program, self.ranks = folder, folder / "gloo_peer", given.ranks
        if not (given.gloo_headers / "gloo" / "config.h").is_file():
            self.write_config(given.gloo_headers)
        run([compiler(), "-std=c++17", "-O2", "-w", f"-I{folder}", f"-I{given.gloo_headers}", str(HERE / "gloo_peer.cpp"), "-o",
             str(self.program), str(given.gloo_library), f"-Wl,-rpath,{given.gloo_library.parent}", "-pthread"])

    def write_config(self, headers):
        """A source tree's config.h as Debian configures it: TCP, and no accelerators."""
        text = (headers / "gloo" / "config.h.in").read_text(encoding="utf-8")
        text = re.sub(r"@GLOO_VERSION_\w+@", "0", text)
        text = re.sub(r"#cmakedefine01 (\w+)", lambda found: f"#define {found.group(1)} "
                      f"{int(found.group(1) in ('GLOO_HAVE_TRANSPORT_TCP', 'GLOO_USE_REDIS', 'GLOO_USE_IBVERBS'))}", text)
        (self.folder / "gloo").mkdir()
        (self.folder / "gloo" / "config.h").write_text(text, encoding="utf-8")

    def output(self, byte_count, times):
        with tempfile.TemporaryDirectory(dir=self.folder) as store:
            return run([str(self.program), str(self.ranks), str(times), store, str(byte_count)], timeout=300)


def time_text(seconds):
    for least, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= least:
            return f"{seconds / least:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def size_text(byte_count):
    for factor, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if byte_count % factor == 0:
            return f"{byte_count // factor} {unit}"
    return f"{byte_count} B"


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pliant", default=os.fspath(HERE.parents[2] / "build/release/bin/pliant"), help="the program")
    parser.add_argument("--mpi", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--gloo-headers", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--gloo-library", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--ranks", type=positive, default=4)
    parser.add_argument("--sizes", type=sizes, default=[4096, 1 << 20, 64 << 20])
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--repeat", type=positive, default=400, help="repetitions of a round; large sizes take fewer")
    given = parser.parse_args()
    if not shutil.which(given.pliant):
        parser.error(f"--pliant: there is no program {given.pliant}")
    return given


def main():
    given = arguments()
    with tempfile.TemporaryDirectory() as name:
        runners = []
        for kind in (Ours, Mpi, Gloo):
            folder = pathlib.Path(name, kind.__name__)
            folder.mkdir()
            try:
                runners.append(kind(given, folder))
            except Absent as reason:
                print(f"left out: {kind.name}: {reason}", file=sys.stderr)
        medians, failures = {}, {}
        for _ in range(given.rounds):
            for byte_count in given.sizes:
                for runner in runners:
                    if runner in failures:
                        continue
                    try:
                        for what, calls, median in runner.measure(byte_count, repetitions(byte_count, given.repeat)):
                            key = (what, byte_count, min(calls, 2), runner.name)
                            medians.setdefault(key, []).append(median)
                    except (Absent, subprocess.TimeoutExpired) as reason:
                        failures[runner] = reason
                        print(f"left out: {runner.name}: {reason}", file=sys.stderr)
    rows = [["", "size", "", "alone", "fastest", "slowest round", "in a row", "fastest", "slowest round"]]
    for what in COLLECTIVES:
        for byte_count in given.sizes:
            for runner in runners:
                row = [what, size_text(byte_count), runner.name]
                for calls in (1, 2):
                    found = medians.get((what, byte_count, calls, runner.name))
                    row += [time_text(f(found)) for f in (statistics.median, min, max)] if found else ["-", "-", "-"]
                rows.append(row)
    print(f"{given.ranks} processes, {given.rounds} rounds; size: all_gather's result, else the input of one rank")
    print_table(rows)
    return 1 if any(isinstance(runner, Ours) for runner in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
