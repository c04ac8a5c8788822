"""Ranks of programs in PyTorch, forked from one process that has loaded it: to load it takes seconds, each time.

As a program it forks what each line of its input asks for, and answers with one line for each group: how its ranks ended, and what they wrote.
"""
import json
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import tempfile
import traceback


class Launcher:
    """Starts groups as torchrun does, one after the other. Its processes compute with one thread."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__], env=dict(os.environ, OMP_NUM_THREADS="1"), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, world_size, program, *arguments, folder, ranks=None, path=()):
        """Exit codes, stdout and stderr by rank: of all, unless `ranks` says of which. `path`: where else modules are found."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as said:
            asked = {"program": str(program), "arguments": arguments, "folder": str(folder), "ranks": list(ranks or range(world_size)),
                     "path": list(map(str, path)), "said": said,
                     "environment": {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}}
            print(json.dumps(asked), file=self.process.stdin, flush=True)
            codes = json.loads(self.process.stdout.readline())
            out, err = ([pathlib.Path(said, f"{name}-{rank}").read_text(encoding="utf-8") for rank in asked["ranks"]] for name in ("out", "err"))
        return codes, out, err

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def become(rank, asked):
    """Is the program from here on."""
    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        file = os.open(f"{asked['said']}/{name}-{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, stream.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.environ.update(asked["environment"], RANK=str(rank))
    os.chdir(asked["folder"])
    sys.path[:0] = [str(pathlib.Path(asked["program"]).parent), *asked["path"]]
    sys.argv[:] = [asked["program"], *asked["arguments"]]
    code = 0
    try:
        runpy.run_path(asked["program"], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # what ends a program
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main():
    import torch  # noqa: F401
    import torch.distributed  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        children = []
        for rank in asked["ranks"]:
            child = os.fork()
            if not child:
                become(rank, asked)
            children.append(child)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)


if __name__ == "__main__":
    main()
