"""Runs a program under AddressSanitizer, and fails where the program does, where a process of it has a report, or where memory that our code took
was lost. What the interpreter and other modules leave behind is not ours. Where the search for lost memory itself crashed, the program runs again.

    leaks.py FOLDER COMMAND...      FOLDER: the build, whose files are ours
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FRAME = re.compile(r"#\d+ 0x[0-9a-f]+ +\((?P<module>[^+)]+)\+(?P<offset>0x[0-9a-f]+)\)")
CRASHED = "LeakSanitizer has encountered a fatal error"  # its tracer read a thread's memory that was gone; it says nothing about the program
TRIES = 3
RUNTIME = re.compile(r"/(lib(asan|ubsan|stdc\+\+|gcc_s|c|pthread)[.-]|ld-linux)")


def who_took(leak, folder):
    """The frames of a leak, if the code that took the memory is of `folder`."""
    frames = [(found["module"], found["offset"]) for found in FRAME.finditer(leak)]
    takers = [frame for frame in frames if not RUNTIME.search(frame[0])]
    is_ours = bool(takers) and os.path.realpath(takers[0][0]).startswith(folder + os.sep)
    return frames if is_ours else None


def named(frames):
    """The frames of our files by function and line, the others by file."""
    for module, offset in frames[:8]:
        done = subprocess.run(["addr2line", "-Cfpe", module, offset], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
                              env={"PATH": os.environ["PATH"]})  # itself without AddressSanitizer
        yield f"    {module}+{offset}  {done.stdout.strip()[:300]}"


def findings(report, folder):
    """What a report of one process says against us."""
    text = report.read_text(encoding="utf-8", errors="replace")
    if "LeakSanitizer: detected memory leaks" not in text:
        yield text
        return
    head, *leaks = re.split(r"^(?=(?:Direct|Indirect) leak of )", text, flags=re.MULTILINE)
    if re.search(r"ERROR: AddressSanitizer|runtime error", head):
        yield head
    ours = [(leak, frames) for leak in leaks if (frames := who_took(leak, folder))]
    for leak, frames in ours[:3]:  # a name takes a second
        yield "\n".join([leak.splitlines()[0], *named(frames)])
    if len(ours) > 3:
        yield f"{len(ours) - 3} more"


def watch(command, folder):
    """One run of the program: its exit code, how many of its processes left a report, and what of these is against us."""
    with tempfile.TemporaryDirectory(prefix="leaks-") as reports:
        environment = dict(os.environ, PYTHONMALLOC="malloc")  # in the interpreter's own arenas it would not see what is in use
        environment["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=1:symbolize=0:log_path={reports}/report"
        environment["LSAN_OPTIONS"] = "exitcode=0"
        environment["UBSAN_OPTIONS"] = f"{os.environ.get('UBSAN_OPTIONS', '')}:log_path={reports}/report"
        code = subprocess.run(command, env=environment, check=False).returncode
        files = sorted(pathlib.Path(reports).iterdir())
        return code, len(files), [finding for file in files for finding in findings(file, folder)]


def main():
    folder = os.path.realpath(sys.argv[1])
    for left in reversed(range(TRIES)):
        code, reports, found = watch(sys.argv[2:], folder)
        for finding in found:
            print(finding)
        if not left or not found or not all(CRASHED in finding for finding in found):
            break
        print("the search for lost memory crashed; once more", flush=True)
    print(f"{reports} processes lost memory; lost by our code, or wrong: {len(found)}")
    sys.exit(code or bool(found))


if __name__ == "__main__":
    main()
