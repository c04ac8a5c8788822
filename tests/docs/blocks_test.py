#!/usr/bin/env python3
"""Blocks of code that nothing holds are refused in a page, by language; those with a comment, and what is no code, are not."""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pages_test import check_page  # noqa: E402

QUOTED = "<!-- part: quoted.py -->\n```python\nx = 1\n```\n"
PAGES = {
    "# A page\n\n" + QUOTED: [],
    "```python\nx = 1\n```\n": ["of python:"],
    QUOTED + "\n```c\nint x;\n```\n\n```python\nx = 1\n```\n": ["of c:", "of python:"],
    "<!-- part: quoted.py -->\n\nA sentence.\n\n```python\nx = 1\n```\n": ["of python:"],
    "<!-- not run: it needs a GPU -->\n```bash\nnvidia-smi\n```\n\n```bash\nls\n```\n": ["of bash:"],
    "```\nplain\n```\n\n```text\nplain\n```\n\n    python3 indented.py\n": [],
    "<!-- part: quoted.py -->\n```python\ny = 2\n```\n": ["is not a part"],
}


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "quoted.py").write_text("x = 1\n", encoding="utf-8")
        for text, expected in PAGES.items():
            page = root / "page.md"
            page.write_text(text, encoding="utf-8")
            found = list(check_page(page, root, root, folder))
            if len(found) != len(expected) or not all(word in problem for word, problem in zip(expected, found)):
                failed.append(f"{text!r}: expected {expected}, found {found}")
    print("\n".join(failed) or f"{len(PAGES)} pages are judged rightly")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
