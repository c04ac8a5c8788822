"""What the tests share: configs, and processes of their own."""
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ELASTIC = '[elasticity]\nuse = "exact"\n[elasticity.exact]\nmax_train_batch_size = 12\nmicro_batch_sizes = [2]\nmax_gpus = 6\n'
RATE = '[lr]\nuse = "linear"\nbase_lr = 0.01\nunit = "tokens"\nbase_batch = 500\n'
PACKED = '[sampler]\nuse = "next_fit"\n[sampler.next_fit]\nmax_tokens = 64\norder = "random"\n'
CUT = '[sampler]\nuse = "concat"\n[sampler.concat]\nmax_tokens = 48\norder = "random"\n'


def toml(sampler=PACKED, run="epochs = 3\nseed = 7\n", more=""):
    return f"config_version = 1\n[run]\n{run}{ELASTIC}{sampler}{RATE}{more}"


def lengths_of(count=400):
    return [3 + i * 7 % 29 for i in range(count)]


@pytest.fixture
def pliant():
    import pliant as package

    return package


@pytest.fixture
def config(pliant):
    return pliant.Config.parse(toml())


@pytest.fixture
def run_python(tmp_path):
    """Runs a program, and gives what it did. `leaves_memory`: at its end it may hold what nobody can free."""

    def run(program, *, ends_with=0, leaves_memory=False):
        environment = dict(os.environ, PLIANT_TEST_CONFIG=toml(), PLIANT_TEST_HELP=str(pathlib.Path(__file__).parent))
        if leaves_memory and "ASAN_OPTIONS" in environment:
            environment["ASAN_OPTIONS"] += ":detect_leaks=0"
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False, env=environment)
        assert done.returncode == ends_with, done.stdout + done.stderr
        return done

    return run
