#!/usr/bin/env python3
"""Runs scripts/lint over a small tree that keeps all rules, and over one in which something breaks each of them.

    lint_test.py ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
ROOMS = ["base", "plugin", "config", "collectives", "accelerator", "plan", "data", "balance", "sharded", "rendezvous", "elastic", "elastic/agent"]
# The files in which lint excuses something, and what it reads the kinds from.
KEPT = [
    "scripts/lint", "scripts/rooms.py", "scripts/texts.py", ".clang-format", "sdk/include/pliant/sdk/kinds.hpp", "sdk/template",
    "core/src/base/environment.cpp", "core/src/elastic/agent/worker_process.cpp", "core/src/elastic/agent/warden.cpp",
    "core/src/elastic/agent/job.cpp", "core/src/elastic/agent/stop.cpp", "core/src/elastic/run_worker.cpp", "core/src/elastic/session.cpp",
    "core/python/src/session.cpp", "accelerators/common/gloo/api.cpp",
]
# scripts/prepare installs packages; the rules need none of them.
PREPARE = """set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
say() { printf '%s\\n' "$*" >&2; }
install_packages() { :; }
"""


def table(rows):
    return "# Rooms\n\n| room | what | may know | headers |\n|---|---|---|---|\n" + "".join(
        f"| `{room}` | it. | {knows} | {headers} |\n" for room, knows, headers in rows)


def clean_table():
    rows = [("sdk", "nothing", ""), ("sdk/testkit", "`sdk`", ""), ("plugins`, `accelerators", "`sdk`", "")]
    rows += [(f"core/src/{room}", "those above", "`plan.hpp`" if room == "plan" else "") for room in ROOMS]
    rows += [("accelerators/common/low", "`sdk`", ""), ("accelerators/common/high", "`sdk`, `low`", "")]
    rows += [("core/python", "`core/include`", ""), ("samples", "`core/include`, `sdk`", "")]
    return table(rows)


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def clean_tree(root):
    for name in KEPT:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
    write(root, "scripts/prepare", PREPARE)
    write(root, "docs/explanation/architecture.md", clean_table())
    write(root, "core/include/pliant/plan.hpp", "// A plan.\n#pragma once\n")
    for room in ROOMS:
        write(root, f"core/src/{room}/room.hpp", "// What the room has.\n#pragma once\n")
    write(root, "accelerators/common/low/low.hpp", "// Low.\n#pragma once\n")
    write(root, "accelerators/common/high/high.hpp", '// High.\n#pragma once\n#include "common/low/low.hpp"\n')
    for name in ("sdk/testkit", "plugins/lr/plain", "samples/plain"):
        write(root, f"{name}/some.cpp", "// Some.\n")
    write(root, "core/src/plan/plan.cpp", '// Makes it.\n#include "pliant/plan.hpp"\n\n#include "base/room.hpp"\n')
    write(root, "tests/unit/some_test.cpp", '// Some.\nTEST_CASE("it does") {}\n')
    subprocess.run(["git", "init", "--quiet", "."], cwd=root, check=True)


def cpp(line):
    return f"// One line.\n{line}\n"


# The file that breaks a rule | what it has | the words of the rule.
BROKEN = [
    ("sdk/include/pliant/sdk/greedy.hpp", cpp("#include <fmt/format.h>"), "an sdk header includes what a plugin author may not have"),
    ("core/include/pliant/greedy.hpp", cpp("#include <toml++/toml.h>"), "a public core header includes a library that embedders need not have"),
    ("plugins/lr/reaching/reaching.cpp", cpp('#include "core/src/plan/room.hpp"'), "a plugin reaches into core"),
    ("core/src/plan/named.cpp", cpp("class PlanManager;"), "a name that says nothing"),
    ("core/src/plan/prints.cpp", cpp("void f() { std::cout << 1; }"), "the library prints, exits or aborts"),
    ("core/src/plan/changes.cpp", cpp("void f() { ::umask(0); }"), "the library changes what is the whole process's"),
    ("core/cli/reads.cpp", cpp('auto home() { return std::getenv("HOME"); }'), "core reads the environment past base/environment.hpp"),
    ("plugins/lr/trusting/trusting.cpp", cpp('auto size() { return std::getenv("WORLD_SIZE"); }'),
     "a plugin believes the environment in a program with more rights than its user"),
    ("core/src/plan/new.cpp", cpp("#include <format>"), "not in both compilers"),
    ("core/src/plan/open.cpp", cpp("// " + "TO" + "DO later"), "an open end"),
    ("tests/unit/cut_test.cpp", cpp('TEST_CASE("this; and that") {\n}'), "a test name that CMake would cut at its semicolon"),
    ("tests/unit/waits_test.cpp", cpp("void f() { std::this_thread::sleep_for(second); }"), "a wait that does not say why it is no guess"),
]
# Whole lines, but for what stands for itself.
LINES = [
    "core/src/plan/upward.cpp:2: core/src/plan may not know core/src/elastic: elastic/room.hpp",
    "core/src/base/aside.cpp:2: core/src/base may not know core/src/plan: pliant/plan.hpp",
    "core/src/stray/stray.cpp: docs/explanation/architecture.md gives it no room",
    "plugins/lr/reaching/reaching.cpp:2: plugins may not know core/src/plan: core/src/plan/room.hpp",
    "accelerators/common/low/up.cpp:2: accelerators/common/low may not know accelerators/common/high: common/high/high.hpp",
    "accelerators/own/own.cpp:2: accelerators may not know core/src/elastic: elastic/room.hpp",
    "accelerators/own/own.cpp:3: accelerators/own may not know accelerators/other: ../other/other.hpp",
    "plugins/lr/near/near.cpp:2: plugins/lr/near may not know plugins/sampler/far: ../../sampler/far/far.hpp",
    "sdk/testkit/knowing.cpp:2: sdk/testkit may not know core/src/base: base/room.hpp",
    "samples/inside/inside.cpp:2: samples may not know core/src/data: data/room.hpp",
    "core/include/pliant/door.hpp:2: a public header opens a door to the inside: base/room.hpp",
    "docs/explanation/architecture.md: there is no room core/src/gone",
    "docs/explanation/architecture.md: core/src/gone may know `elsewhere`, of which some is no room above it",
    "docs/explanation/architecture.md: door.hpp is no public header, or stands in two rooms",
    "docs/explanation/architecture.md: none.hpp is no public header, or stands in two rooms",
    "a text that users read has a word for which the field has a plainer one:",
    '  core/src/plan/told.cpp:2: "told" (says, reports, is notified): the rank was told to stop',
    '  core/src/plan/told.cpp:4: "for so long" (for this long): kill it after it waits for so long',
    '  core/python/told.py:2: "told" (says, reports, is notified): The rank that is told so.',
    '  samples/plain/told.py:3: "let go" (release, free, close): rank {} let go of {}',
    "core/src/plan/empty.cpp: it is empty",
    "core/src/plan/silent.cpp: its first line does not say what it is for",
    "sdk/template/lr/my_lr.cpp: the kind [lr] has no template",
    "sdk/template/README.md does not say of [sampler] what",
    "scripts/lint: nothing needs this excuse any more: core/src/elastic/agent/job\\.cpp",
]


def broken_tree(root):
    clean_tree(root)
    for name, text, _ in BROKEN:
        write(root, name, text)
    write(root, "core/src/plan/upward.cpp", cpp('#include "elastic/room.hpp"'))
    write(root, "core/src/base/aside.cpp", cpp('#include "pliant/plan.hpp"'))
    write(root, "core/src/stray/stray.cpp", "// Lost.\n")
    for other in ("accelerators/other/other.hpp", "accelerators/common/cpu/some.hpp", "plugins/sampler/far/far.hpp"):
        write(root, other, "// Its own.\n#pragma once\n")
    write(root, "accelerators/own/own.cpp",
          cpp('#include "elastic/room.hpp"\n#include "../other/other.hpp"\n#include "../common/cpu/some.hpp"'))
    write(root, "accelerators/common/low/up.cpp", cpp('#include "common/high/high.hpp"'))
    write(root, "plugins/lr/near/near.cpp", cpp('#include "../../sampler/far/far.hpp"'))
    write(root, "sdk/testkit/knowing.cpp", cpp('#include "base/room.hpp"'))
    write(root, "samples/inside/inside.cpp", cpp('#include "data/room.hpp"\n#include "pliant/plan.hpp"'))
    write(root, "core/include/pliant/door.hpp", cpp('#include "base/room.hpp"'))
    write(root, "core/src/plan/told.cpp",
          cpp('const char* kTold = "the rank was told to stop";  // who tells is no text') +
          'const char* kKept = "a text that is fine";\nconst char* kLong = "kill it after it waits "\n    "for so long";\n')
    write(root, "core/python/told.py", '# Who is told.\n\"\"\"The rank that is\n   told so.\"\"\"\ntold = "fine words"\n')
    write(root, "samples/plain/told.py", 'import sys\n\nsys.exit(f"rank {sys.argv} "\n         f"let go of {sys.argv!r}")\n')
    write(root, "core/src/plan/empty.cpp", "")
    write(root, "core/src/plan/silent.cpp", "int silent();\n")
    write(root, "core/src/plan/crooked.cpp", "// Crooked.\nint   crooked( );\n")
    rows = clean_table() + "| `core/src/gone` | it. | `elsewhere` | `door.hpp`, `none.hpp` |\n"
    rows += "| `core/src/balance/again` | it. | nothing | `door.hpp` |\n"
    write(root, "docs/explanation/architecture.md", rows)
    (root / "sdk/template/lr/my_lr.cpp").unlink()
    (root / "core/src/elastic/agent/job.cpp").unlink()
    told = root / "sdk/template/README.md"
    told.write_text("".join(line for line in told.read_text().splitlines(True) if not line.startswith("- `sampler`:")))


def lint(root):
    """Exit status and what it said, without clang-tidy; and without clang-format where that is missing."""
    environment = dict(os.environ)
    if not shutil.which("clang-format-14"):
        write(root, ".git/bin/clang-format-14", "#!/bin/sh\n")
        (root / ".git/bin/clang-format-14").chmod(0o755)
        environment["PATH"] = f"{root}/.git/bin:{environment['PATH']}"
    ran = subprocess.run(["bash", "scripts/lint", "--no-tidy"], cwd=root, env=environment, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    return ran.returncode, ran.stdout


class Lint(unittest.TestCase):
    def tree(self, make):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        make(pathlib.Path(folder.name))
        return lint(pathlib.Path(folder.name))

    def test_a_clean_tree_passes(self):
        code, said = self.tree(clean_tree)
        self.assertEqual((code, said), (0, "lint: nothing found\n"))

    def test_what_breaks_a_rule_is_named(self):
        code, said = self.tree(broken_tree)
        self.assertEqual(code, 1, said)
        lines = said.splitlines()
        for name, _, rule in BROKEN:
            with self.subTest(rule=rule):
                heads = [i for i, line in enumerate(lines) if line.startswith(rule)]
                below = [line for i in heads for line in lines[i + 1:i + 4] if line.startswith("  ")]
                self.assertTrue(any(line.startswith(f"  {name}:2:") for line in below), said)
        for line in LINES:
            with self.subTest(line=line):
                self.assertTrue(any(one.startswith(line) for one in lines), said)
        self.assertEqual(said.count("  core/src/plan/told.cpp:"), 2, said)  # neither the comment nor the text that is fine
        self.assertEqual((said.count("  core/python/told.py:"), said.count("  samples/plain/told.py:")), (1, 1), said)
        if shutil.which("clang-format-14"):
            self.assertIn("core/src/plan/crooked.cpp:2:", said)

    def test_every_rule_is_among_those_that_are_broken(self):
        rules = re.findall(r'^ *refuse(?:_unless_excused)? "([^"]+)"', (ROOT / "scripts/lint").read_text(), re.MULTILINE)
        self.assertGreater(len(rules), 9)
        for rule in rules:
            self.assertTrue(any(rule.startswith(known) for _, _, known in BROKEN), rule)

    def test_an_unreadable_table_is_named(self):
        def make(root):
            clean_tree(root)
            write(root, "docs/explanation/architecture.md", "# Nothing\n")
            write(root, "sdk/include/pliant/sdk/kinds.hpp", "// No rows.\n#pragma once\n")
        code, said = self.tree(make)
        self.assertEqual(code, 1, said)
        self.assertIn("architecture.md: it has no table of rooms that this program can read", said)
        self.assertIn("kinds.hpp: scripts/lint cannot read the rows of kinds any more", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
