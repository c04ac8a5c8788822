"""Runs mypy's stubtest over modules of the package, without what it says of nanobind's classes and functions, which are no ordinary ones, and of
names that a private module has imported.

    stubtest.py MODULE...
"""
import re
import subprocess
import sys

# Of what C++ binds: its metaclass and its functions are nanobind's, a class without a constructor refuses arguments by itself.
OF_NANOBIND = re.compile(r"metaclass differs$|is not a function$|stub does not have \*args argument \"args\"$|stub is a staticmethod but runtime is not$"
                         r"|stub does not have \*\*kwargs argument \"kwargs\"$")
# Of a module that is imported with its framework alone, which is not there.
OF_FRAMEWORKS = re.compile(r"failed to import, ModuleNotFoundError: No module named '(transformers|accelerate|lightning|torchdata|torchtitan)")
LINE = re.compile(r"^(?P<name>pliant[\w.]*) (?P<message>.+)$")


def is_shown(name):
    """Whether it is reached without a private module; the one in C++ is what the stubs are of."""
    return not any(part.startswith("_") and not part.endswith("__") and part != "_core" for part in name.split("."))


def main():
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "--concise", *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    found = [line for line in lines if not (said := LINE.match(line)) or is_shown(said["name"]) and not OF_NANOBIND.search(said["message"])
             and not OF_FRAMEWORKS.match(said["message"])]
    if done.returncode not in (0, 1) or not lines:
        sys.exit(f"stubtest ended with {done.returncode}\n{done.stdout}")
    # Where it finds nothing it says so, and else how much; both are no finding.
    found = [line for line in found if not re.match(r"Found \d+ errors? \(checked|Success: ", line)]
    print("\n".join([*found, f"{len(lines) - 1 - len(found)} lines are of nanobind or of private modules"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
