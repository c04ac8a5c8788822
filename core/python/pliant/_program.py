"""The command `pliant` of a wheel: the program that lies in the package."""
from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Becomes the program, which gets the signals as they are without an interpreter."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "pliant")
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(program, ["pliant", *sys.argv[1:]])
