#!/usr/bin/env python3
"""Holds docs/reference/glossary.md to the terms that texts and public headers use: each has one row.

    glossary_test.py ROOT
"""
import pathlib
import re
import sys

# Terms that a reader of messages, help or headers meets. One that none of them uses any more does not belong here.
TERMS = [
    "agent", "worker group", "pending", "rank", "world size", "granule", "global batch", "micro-batch", "generation", "commit", "ledger",
    "pack", "plan", "snapshot", "transport", "mailbox", "discarded", "module", "shard", "owner", "gather", "prefetch", "release", "pass", "trace",
    "coordinator", "budget", "arena", "tier",
]
ROOMS = ["core", "sdk", "plugins", "accelerators"]


def rows_of(page):
    """The terms of the table, several of a row apart."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    return [term.strip() for row in rows for term in row.split(",") if term.strip() not in ("term", "---")]


def main():
    root = pathlib.Path(sys.argv[1])
    rows = rows_of((root / "docs/reference/glossary.md").read_text(encoding="utf-8"))
    sources = [file for room in ROOMS for ending in ("*.hpp", "*.cpp", "*.h") for file in (root / room).rglob(ending)]
    used = "\n".join(file.read_text(encoding="utf-8") for file in sources).lower()
    problems = [f"docs/reference/glossary.md: {term} has two rows" for term in sorted(set(rows)) if rows.count(term) > 1]
    problems += [f"docs/reference/glossary.md: it lacks {term}" for term in TERMS if term not in rows]
    problems += [f"tests/docs/glossary_test.py: nothing uses {term} any more" for term in TERMS if term not in used]
    print("\n".join(problems) or f"{len(rows)} terms")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
