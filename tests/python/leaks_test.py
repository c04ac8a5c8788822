"""who watches the package under AddressSanitizer tells memory that our code lost from what the interpreter leaves behind."""
import os
import pathlib
import subprocess
import sys

import pytest

WATCHER = pathlib.Path(__file__).with_name("leaks.py")
LEAK = """
=================================================================
==7==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 64 byte(s) in 1 object(s) allocated from:
    #0 0x7f3 in malloc (/usr/lib/libasan.so.8+0xba)
    #0 0x7f4  (/usr/lib/x86_64-linux-gnu/libasan.so.8+0xba)
    #1 0x7f5  ({taker}+0x1234)
    #2 0x7f6  ({below}+0x99)

SUMMARY: AddressSanitizer: 64 byte(s) leaked in 1 allocation(s).
"""


def watched(folder, report, ends_with=0):
    """What the watcher says of a program that leaves this report and ends so."""
    program = ("import os, pathlib, re, sys; place = re.search('log_path=([^:]+)', os.environ['ASAN_OPTIONS'])[1]\n"
               "if sys.argv[1]: pathlib.Path(place + '.7').write_text(sys.argv[1])\n"
               "sys.exit(int(sys.argv[2]))")
    return run_watcher(folder, "-c", program, report, str(ends_with))


def run_watcher(folder, *arguments):
    """Exit code and output of the watcher over the interpreter with these arguments."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.endswith("SAN_OPTIONS")}
    done = subprocess.run([sys.executable, "-B", WATCHER, folder, sys.executable, *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False, env=plain)
    return done.returncode, done.stdout


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "lib/_core.so"
    file.parent.mkdir()
    file.write_bytes(b"")
    return file


def test_memory_that_our_code_took_is_named(tmp_path, module):
    code, said = watched(tmp_path, LEAK.format(taker=module, below="/usr/bin/python3.11"))
    assert code == 1 and "Direct leak of 64 byte(s)" in said and f"{module}+0x1234" in said


def test_memory_that_the_interpreter_took_is_not_ours_though_our_code_asked_it_to(tmp_path, module):
    code, said = watched(tmp_path, LEAK.format(taker="/usr/bin/python3.11", below=module))
    assert code == 0 and "1 processes lost memory; lost by our code, or wrong: 0" in said


@pytest.mark.parametrize("report", ["==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x602\n",
                                    "core/src/a.cpp:3:5: runtime error: signed integer overflow\n"])
def test_any_other_report_is_shown(tmp_path, report):
    code, said = watched(tmp_path, report)
    assert code == 1 and report in said


def test_a_program_that_fails_fails(tmp_path):
    assert watched(tmp_path, "", ends_with=5)[0] == 5
    assert watched(tmp_path, "")[0] == 0


CRASH = """Tracer caught signal 11: addr=0x1b90 pc=0x7fb2 sp=0x7fb3
==7==LeakSanitizer has encountered a fatal error.
"""


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_a_program_whose_leaks_could_not_be_searched_runs_again_twice(tmp_path, module, crashes):
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, pathlib, re, sys
count = pathlib.Path(__file__).with_name("count")
run = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(run))
place = re.search('log_path=([^:]+)', os.environ['ASAN_OPTIONS'])[1]
pathlib.Path(place + '.7').write_text({CRASH!r} if run <= {crashes} else {LEAK.format(taker=module, below="/usr/bin/python3.11")!r})
sys.exit(1 if run <= {crashes} else 0)
""")
    code, said = run_watcher(tmp_path, program)
    runs = int((tmp_path / "count").read_text())
    assert runs == min(crashes + 1, 3)
    if crashes < 3:
        assert code == 1 and f"{module}+0x1234" in said, "a leak of the last run counts"
    else:
        assert code == 1 and "LeakSanitizer has encountered a fatal error" in said
