#!/usr/bin/env python3
"""Compiles a program with a precompiled header as scripts/prepare has it cached, while the header changes and changes back.

    cache_test.py ROOT COMPILER
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT, COMPILER = sys.argv[1:]


def environment(folder):
    """What scripts/prepare exports, with a cache of its own."""
    said = subprocess.run(["bash", "-c", f"source {ROOT}/scripts/prepare && env -0"], check=True, capture_output=True, text=True)
    exported = dict(line.split("=", 1) for line in said.stdout.split("\0") if line.startswith("CCACHE_"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
    return kept | exported | {"CCACHE_DIR": str(folder / "cache"), "CCACHE_BASEDIR": str(folder), "CCACHE_DISABLE": ""}


class Build:
    def __init__(self, folder):
        self.folder = folder
        self.environment = environment(folder)
        self.environment.pop("CCACHE_DISABLE")
        self.write("all.hxx", f'#include "{folder}/value.hpp"\n')
        self.write("all.hxx.cxx", "")
        self.write("main.cpp", "int main() { return value(); }\n")

    def write(self, name, text):
        (self.folder / name).write_text(text)
        an_hour_ago = time.time() - 3600  # the cache trusts no file that may still be written to
        os.utime(self.folder / name, (an_hour_ago, an_hour_ago))

    def compile(self, *arguments):
        subprocess.run(["ccache", COMPILER, "-fpch-preprocess", "-include", self.folder / "all.hxx", *arguments], cwd=self.folder,
                       env=self.environment, check=True)

    def value(self, wanted):
        """Of a program whose header says `wanted`; all of it is compiled, or comes from the cache."""
        self.write("value.hpp", f"inline int value() {{ return {wanted}; }}\n")
        self.compile("-x", "c++-header", "-MD", "-MF", "all.d", "-o", "all.hxx.gch", "-c", "all.hxx.cxx")
        self.compile("-MD", "-MF", "main.d", "-o", "main.o", "-c", "main.cpp")
        subprocess.run([COMPILER, "main.o", "-o", "main"], cwd=self.folder, check=True)
        return subprocess.run([self.folder / "main"], check=False).returncode


with tempfile.TemporaryDirectory() as folder:
    build = Build(pathlib.Path(folder).resolve())
    for step, wanted in enumerate([1, 2, 1, 3, 1, 2]):
        if wanted == 1:
            (build.folder / "all.hxx.gch").unlink(missing_ok=True)
        got = build.value(wanted)
        if got != wanted:
            sys.exit(f"build {step + 1}: the header says {wanted}, the program was made with {got}")
    hits = subprocess.run(["ccache", "--print-stats"], env=build.environment, check=True, capture_output=True, text=True).stdout
    direct = int(next(line for line in hits.splitlines() if line.startswith("direct_cache_hit")).split()[1])
    if direct < 4:
        sys.exit(f"only {direct} of 12 came from the cache:\n{hits}")
print("ok")
