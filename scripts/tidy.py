#!/usr/bin/env python3
"""clang-tidy over the sources given, on all processors. Part of scripts/lint, which calls it.

A source that was clean is not read again while it, the headers of the project that it includes, its compile command, .clang-tidy
and clang-tidy itself stay the same: such results are kept by content in ~/.cache/pliant/tidy. What was changed last is read first.

usage: tidy.py COMPILE_COMMANDS_FOLDER [--minutes N] < SOURCES      a source a line, relative to the project
Ends with 1 if there is a finding. With --minutes, what is not reached by then is counted and left to the next run.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

PROGRAM = "clang-tidy-14"
ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME_CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "pliant" / "tidy"
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


@functools.lru_cache(maxsize=None)
def content(file):
    return pathlib.Path(file).read_bytes()


@functools.lru_cache(maxsize=None)
def headers_named_in(file, folders):
    """Files of the project that `file` includes, whatever conditions stand around it."""
    found = []
    for name in INCLUDE.findall(content(file)):
        for folder in (os.path.dirname(file), *folders):
            path = os.path.normpath(os.path.join(folder, name.decode()))
            if os.path.isfile(path):
                found.append(path)
                break
    return found


def key_of(source, command, always):
    words = command.split()
    folders = tuple(word[2:] for word in words if word.startswith(f"-I{ROOT}"))
    seen, left = set(), [str(ROOT / source)]
    while left:
        file = left.pop()
        if file in seen:
            continue
        seen.add(file)
        left.extend(headers_named_in(file, folders))
    digest = hashlib.sha256(always)
    digest.update(command.replace(str(ROOT), "").encode())
    for file in sorted(seen):
        digest.update(os.path.relpath(file, ROOT).encode() + b"\0" + hashlib.sha256(content(file)).digest())
    return digest.hexdigest()


def last_changed_first(sources):
    """Uncommitted changes, then the files of the newest commits."""
    order = {}
    for arguments in (["diff", "--name-only", "HEAD"], ["log", "--name-only", "--format=", "-n", "200"]):
        told = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False).stdout
        for name in told.splitlines():
            order.setdefault(name, len(order))
    return sorted(sources, key=lambda source: order.get(source, len(order)))


def folder_of_results(otherwise):
    for folder in (HOME_CACHE, otherwise):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return otherwise


def main():
    parser = argparse.ArgumentParser(add_help=True, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--minutes", type=float, default=None)
    arguments = parser.parse_args()
    sources = [line.strip() for line in sys.stdin if line.strip()]
    entries = json.loads((pathlib.Path(arguments.folder) / "compile_commands.json").read_text())
    commands = {os.path.relpath(entry["file"], ROOT): entry["command"] for entry in entries}
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout
    always = version + (ROOT / ".clang-tidy").read_bytes()
    end = time.monotonic() + arguments.minutes * 60 if arguments.minutes is not None else None
    clean = folder_of_results(pathlib.Path(arguments.folder) / "clean")

    keys = {source: key_of(source, commands.get(source, ""), always) for source in sources}
    to_read = last_changed_first([source for source in sources if not (clean / keys[source]).exists()])

    def read(source):
        if end is not None and time.monotonic() > end:
            return None
        done = subprocess.run([PROGRAM, "-p", arguments.folder, "--quiet", "--extra-arg=-Wno-unknown-warning-option",
                               "--extra-arg=-Wno-ignored-optimization-argument", source],
                              cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            (clean / keys[source]).touch()
        else:
            print(done.stdout or done.stderr, flush=True)
        return done.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(read, to_read))
    left = results.count(None)
    print(f"clang-tidy: {len(results) - left} files read, {len(sources) - len(to_read)} unchanged since they were clean"
          + (f", {left} not reached in {arguments.minutes:g} min and left to the next run" if left else ""), file=sys.stderr)
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
