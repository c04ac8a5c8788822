#!/usr/bin/env python3
"""fetch-nanobind unpacks the wheel that it knows, whole or not at all, and no other.

    nanobind_test.py ROOT
"""
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SCRIPT = pathlib.Path(sys.argv[1]) / "scripts/fetch-nanobind"


def run(cache, *arguments):
    return subprocess.run([sys.executable, "-B", SCRIPT, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, env=dict(os.environ, XDG_CACHE_HOME=str(cache)))


def load():
    loader = importlib.machinery.SourceFileLoader("fetch_nanobind", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def main():
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        cache = scratch / "cache"
        cache.mkdir()
        absent = run(cache, "--where")
        assert (absent.returncode, absent.stdout) == (1, ""), absent

        wheel = scratch / "wheel.whl"
        with zipfile.ZipFile(wheel, "w") as packed:
            packed.writestr("nanobind/src/nb_combined.cpp", "// none\n")
        refused = run(cache, "--wheel", wheel)
        assert refused.returncode == 1 and "its sha256 is" in refused.stderr and not list(cache.rglob("*.cpp")), refused

        module = load()
        module.SHA256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        folder = cache / "pliant/nanobind" / module.VERSION
        module.unpack(wheel, folder)
        module.unpack(wheel, folder)  # another process was quicker
        assert [path.name for path in folder.parent.iterdir()] == [module.VERSION]
        found = run(cache, "--where")
        assert (found.returncode, found.stdout.strip()) == (0, str(folder / "nanobind")), found
    return 0


if __name__ == "__main__":
    sys.exit(main())
