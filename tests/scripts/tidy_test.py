#!/usr/bin/env python3
"""Which sources scripts/tidy.py has clang-tidy read: those that are not as they were when they were clean. clang-tidy is a script here.

    tidy_test.py ROOT
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1])
CLANG_TIDY = """#!/bin/sh
if [ "$1" = --version ]; then echo 14; exit 0; fi
for last; do :; done
echo "$last" >> read.txt
if grep -q WRONG "$last"; then echo "$last:1: a finding"; exit 1; fi
"""


class Project:
    def __init__(self, folder):
        self.folder = folder
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "tidy.py", folder / "scripts")
        self.write("bin/clang-tidy-14", CLANG_TIDY)
        (folder / "bin/clang-tidy-14").chmod(0o755)
        self.write(".clang-tidy", "Checks: '*'\n")
        self.write("a.hpp", "")
        self.write("a.cpp", '#include "a.hpp"\n')
        self.write("b.cpp", "")
        self.write_commands("")

    def write(self, name, text):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def write_commands(self, options):
        entries = [{"directory": str(self.folder), "file": str(self.folder / name), "command": f"c++ {options} -c {name}"}
                   for name in ("a.cpp", "b.cpp")]
        self.write("build/compile_commands.json", json.dumps(entries))

    def read(self, *arguments):
        """The sources that were read, the exit code and what was said."""
        (self.folder / "read.txt").write_text("")
        environment = os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache"), "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        done = subprocess.run([sys.executable, "-B", self.folder / "scripts/tidy.py", self.folder / "build", *arguments],
                              input="a.cpp\nb.cpp\n", cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return sorted((self.folder / "read.txt").read_text().split()), done.returncode, done.stdout + done.stderr


def check(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"{what}: {got}, not {wanted}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        project = Project(pathlib.Path(folder).resolve())

        def reads(what, wanted, code=0):
            got = project.read()
            check(what, got[:2], (wanted, code))
            return got[2]

        hurried = project.read("--minutes", "0")
        check("no time", hurried[:2], ([], 0))
        check("what no time says", "2 not reached in 0 min" in hurried[2], True)
        reads("the first time", ["a.cpp", "b.cpp"])
        reads("nothing changed", [])
        project.write("a.hpp", "int a;\n")
        reads("a header changed", ["a.cpp"])
        project.write("a.hpp", "")
        reads("it changed back", [])
        project.write("b.cpp", "// WRONG\n")
        check("the finding is shown", "b.cpp:1: a finding" in reads("a finding", ["b.cpp"], 1), True)
        reads("a finding that nobody mended", ["b.cpp"], 1)
        project.write("b.cpp", "")
        reads("a finding that was mended", [])
        project.write_commands("-O2")
        reads("the compiler's options changed", ["a.cpp", "b.cpp"])
        project.write(".clang-tidy", "Checks: 'bugprone-*'\n")
        reads("the rules changed", ["a.cpp", "b.cpp"])


if __name__ == "__main__":
    main()
