#!/usr/bin/env python3
"""Holds the pages to what they say: links lead somewhere, quoted files are the files, shown commands print what is shown.

    pages_test.py [--update] ROOT BIN_DIR PAGE.md ...

In a page, an HTML comment before a fenced block says what the block is:
    <!-- file: PATH -->   the file PATH of the repository, whole
    <!-- part: PATH -->   lines that stand in PATH in this order, one after the other
    <!-- config -->       a config that `pliant config check` accepts
    <!-- config: FILE --> the same, which the page's commands find as FILE
    <!-- run -->          commands after `$ `, each with its output; `...` on a line of its own stands for any lines, … in a
                          line for what differs from run to run
    <!-- run: PART -->    the same, where the build has the file PART.pliant.so or the program PART, and its text where that is tinylm; of
                          python the Python package, of torch that and PyTorch
    <!-- not run: WHY -->  commands that no test can run, such as those for a GPU
A block of python, c or bash without such a comment is refused: nothing would notice when it is wrong.
Commands run in a copy of ROOT's samples, with BIN_DIR first in PATH and then the Python that the package is built for. --update writes what they print into the pages.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^<!-- (file|part|config|run)(?:: (\S+))? -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^(<!-- (?:file|part|config|run|not run)(?:: .+)? -->\n+)?```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
HELD = ("python", "c", "bash")
DATA_FILE = re.compile(r'^(?:text|lengths|loss_tokens) = "([^"/]+)"', re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def shown_as(shown, printed):
    pattern = "".join(r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()).replace("…", ".*?") + r"[ ]*\n"
                      for line in shown)
    return re.fullmatch(pattern, printed) is not None


def commands_of(block):
    commands = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands:
            commands[-1][1].append(line)
    return commands


def output_of(command, bin_dir, folder):
    environment = dict(os.environ, PATH=os.pathsep.join([str(bin_dir), str(python_of(bin_dir).parent), os.environ["PATH"]]), LC_ALL="C.UTF-8",
                       PYTHONPATH=str(bin_dir.parent / "lib/python"), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode in (126, 127):
        sys.exit(f"`{command}` cannot be run: {done.stdout}")
    return done.stdout


def python_of(bin_dir):
    return bin_dir.parent / "libexec/python/python3"


def is_left_out(part, bin_dir):
    if part is None:
        return False
    if part in ("python", "torch"):
        if not python_of(bin_dir).exists() or not list(bin_dir.parent.glob("lib/python/pliant/_core*.so")):
            return True
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({'torch' if part == 'torch' else 'numpy'!r}) is None)"
        return subprocess.run([python_of(bin_dir), "-c", look], stdin=subprocess.DEVNULL, check=False).returncode != 0
    has_text = part != "tinylm" or default_text().exists()
    plugin = bin_dir.parent / f"lib/pliant/plugins-1/{part}.pliant.so"
    return not plugin.exists() and not ((bin_dir / part).exists() and has_text)


def default_text():
    """Where scripts/fetch-text leaves the novels. A machine without a network has none."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (pathlib.Path(cache) if os.path.isabs(cache) else pathlib.Path.home() / ".cache") / "pliant/text/austen.txt"


def check_run(block, bin_dir, folder):
    for command, shown in commands_of(block):
        printed = output_of(command, bin_dir, folder)
        if not shown_as([line for line in shown if line.strip()], re.sub(r"\n\s*\n", "\n", printed)):
            yield f"`{command}` printed:\n{printed}"


def update(page, bin_dir, folder):
    def run_again(found):
        kind, name, block = found.groups()
        if kind != "run" or "\n...\n" in block or "…" in block or is_left_out(name, bin_dir):
            return found.group(0)
        fresh = "".join(f"$ {command}\n{output_of(command, bin_dir, folder)}" for command, _ in commands_of(block))
        return found.group(0).replace(block, fresh)

    page.write_text(BLOCK.sub(run_again, page.read_text(encoding="utf-8")), encoding="utf-8")


def check_config(block, name, bin_dir, folder):
    for data in DATA_FILE.findall(block):  # a check wants what it names to be there
        (pathlib.Path(folder) / data).touch()
    (pathlib.Path(folder) / name).write_text(block, encoding="utf-8")
    said = output_of(f"pliant config check {name} && echo accepted", bin_dir, folder)
    return [] if "accepted" in said else [said]


def check_quote(kind, block, path):
    if not path.is_file():
        return [f"{path} does not exist"]
    text = path.read_text(encoding="utf-8")
    if (block.strip("\n") != text.strip("\n")) if kind == "file" else (block not in text):
        return [f"the block is not {'the file' if kind == 'file' else 'a part of'} {path}"]
    return []


def check_page(page, root, bin_dir, folder):
    text = page.read_text(encoding="utf-8")
    for found in LINK.finditer(text):
        target = found.group(1)
        if "://" not in target and not (page.parent / target).exists():
            yield f"{page}:{line_of(text, found.start())}: the link to {target} leads nowhere"
    for found in FENCE.finditer(text):
        if found.group(2) in HELD and not found.group(1):
            yield (f"{page}:{line_of(text, found.start())}: nothing holds this block of {found.group(2)}: quote a file that a test runs, as "
                   "<!-- part: PATH -->, or show commands with what they print, as <!-- run -->")
    configs = []
    for found in BLOCK.finditer(text):
        kind, name, block = found.groups()
        if kind == "run":
            problems = [] if is_left_out(name, bin_dir) else check_run(block, bin_dir, folder)
        elif kind == "config":
            problems = check_config(block, name or "shown.toml", bin_dir, folder)
            configs.append(pathlib.Path(folder) / (name or "shown.toml"))
        else:
            problems = check_quote(kind, block, root / name)
        for problem in problems:
            yield f"{page}:{line_of(text, found.start())}: {problem}"
    for config in configs:
        config.unlink(missing_ok=True)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--update"]
    root, bin_dir = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]).resolve()
    pages = [pathlib.Path(page) for page in arguments[2:]]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root / "samples", pathlib.Path(folder) / "samples")
        if "--update" in sys.argv:
            for page in pages:
                update(page, bin_dir, folder)
        problems = [problem for page in pages for problem in check_page(page, root, bin_dir, folder)]
    print("\n".join(problems) or f"{len(pages)} pages say what is so")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
