#!/usr/bin/env python3
"""Lists the texts that users read: help, options, errors, table heads, lines of a job's log.

Usage: scripts/texts.py [--refused] [ROOT]    one line a text: FILE:LINE: TEXT
--refused lists those alone that have a word for which the field has a plainer one, with that; ends with 1 if there is one.

A text is a string literal of what is installed or of a sample that has two words or more; R"script(...)script" is none. Literals side by
side are one text. Of Python the docstrings are texts as well.
"""

import argparse
import ast
import pathlib
import re
import subprocess
import sys

ROOMS = ["accelerators", "core", "plugins", "samples", "sdk"]
ENDINGS = {".c", ".cpp", ".h", ".hpp", ".py"}

# What is refused, a regular expression | what says it plainly.
REFUSED = [
    (r"\bwho(?:m|ever)?\b", "name the subject: a rank, the program, the user"),
    (r"\btold\b|\btells?\b", "says, reports, is notified"),
    (r"\b(?:let|lets|letting) go\b", "release, free, close"),
    (r"\b(?:struck|strikes?)\b", "fails, kills, hits"),
    (r"\bfor so long\b", "for this long"),
    (r"\bso many\b", "this many"),
    (r"\b(?:some|no|any)body\b", "name the subject: another process, no rank"),
    (r"\banew\b", "again, a new one, from the beginning"),
    (r"\bmend(?:s|ed|ing)?\b", "fix"),
    (r"\bby way of\b", "through, with"),
    (r"\bthe other way round\b", "in reverse"),
    (r"\bfor want of\b", "because of missing, out of"),
    (r"\b(?:held|hold|holds) (?:\w+ ){0,3}against\b", "check against"),
    (r"\bof like\b", "similar"),
    (r"\bthat is no\b", "that is not a, other than"),
    (r"\bin words\b", "with a message"),
]

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""  # comments
    r"""|R"(?P<mark>[^(\s"]{0,16})\((?P<raw>.*?)\)(?P=mark)\""""
    r"""|(?P<prefix>u8|u|U|L)?"(?P<text>(?:[^"\\\n]|\\.)*)\""""
    r"""|'(?:[^'\\\n]|\\.)+'"""
    r"""|\n|[A-Za-z_]\w*|[0-9][\w.']*|\S""",
    re.DOTALL | re.VERBOSE,
)
ESCAPES = {"n": " ", "t": " ", '"': '"', "\\": "\\", "'": "'"}


def unescaped(text):
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found.group(1), " "), text)


def is_text(text):
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\{[^}]*\}", " ", text))) >= 2 and " " in text.strip()


def texts_of(source):
    """(line, text) of each text in a C or C++ source, in its order."""
    found = []
    line = 1
    parts, began = [], 0

    def close():
        nonlocal parts
        text = " ".join("".join(parts).split())
        if parts and is_text(text):
            found.append((began, text))
        parts = []

    at_include = False
    for token in TOKEN.finditer(source):
        word = token.group(0)
        literal = token.group("text")
        raw = token.group("raw")
        if word == "include":
            at_include = True
        elif word == "\n":
            at_include = False
        elif at_include or word.startswith(("//", "/*")):
            pass
        elif literal is not None or raw is not None:
            if not parts:
                began = line
            # R"script(: a program, not a text
            parts.append(unescaped(literal) if literal is not None else raw if token.group("mark") != "script" else "")
        else:
            close()
        line += word.count("\n")
    close()
    return found


def texts_of_python(source):
    """The same of a Python source. What an f-string puts in is {}."""
    found = []

    def add(node, text):
        text = " ".join(text.split())
        if is_text(text):
            found.append((node.lineno, text))

    def visit(node):
        if isinstance(node, ast.JoinedStr):
            add(node, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            add(node, node.value)
        for below in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.JoinedStr) and isinstance(below, ast.Constant)):
                visit(below)

    visit(ast.parse(source))
    return sorted(found)


def texts_in(file):
    source = file.read_text(encoding="utf-8")
    return texts_of_python(source) if file.suffix == ".py" else texts_of(source)


def files_of(root):
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "--", *ROOMS],
        check=True, capture_output=True, text=True).stdout.splitlines()
    return [root / name for name in sorted(set(listed)) if pathlib.PurePath(name).suffix in ENDINGS and (root / name).is_file()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refused", action="store_true", help="only texts with a word that is refused; ends with 1 if there is one")
    parser.add_argument("root", nargs="?", default=".", type=pathlib.Path)
    asked = parser.parse_args()
    refused = 0
    for file in files_of(asked.root):
        for line, text in texts_in(file):
            where = f"{file.relative_to(asked.root)}:{line}"
            if not asked.refused:
                print(f"{where}: {text}")
                continue
            for pattern, plain in REFUSED:
                word = re.search(pattern, text, re.IGNORECASE)
                if word:
                    refused += 1
                    print(f'{where}: "{word.group(0)}" ({plain}): {text}')
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
