"""Workers that torchrun started: rank 0 starts the agent of their job, and torchrun's store says to the others where that is."""
from __future__ import annotations

import atexit
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from pliant import _core
from pliant._errors import Error, Status

_SECONDS_TO_ATTACH = 300
_SECONDS_OF_AGENT = 10  # that it has at the end of the job


def _mistake(message: str, status: Status = Status.INVALID_ARGUMENT) -> Error:
    return Error(message, status, exit_code=2)


class Launch(NamedTuple):
    """A place in a group that torchrun started."""

    rank: int
    world_size: int


def is_launched() -> bool:
    """Whether torchrun, or something like it, started this process."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))


def _number(name: str, otherwise: int | None = None) -> int:
    text = os.environ.get(name, "" if otherwise is None else str(otherwise))
    if not text.isascii() or not text.isdigit():
        raise _mistake(f"{name} is '{text}' in the environment of this process, and not a whole number: torchrun sets it")
    return int(text)


def launch() -> Launch:
    """Raises Error (INVALID_ARGUMENT) where the variables make no sense, and for a group of several machines."""
    rank, world_size = _number("RANK"), _number("WORLD_SIZE")
    if rank >= world_size:
        raise _mistake(f"RANK is {rank} and WORLD_SIZE {world_size}: ranks are 0 .. WORLD_SIZE - 1")
    here = _number("LOCAL_WORLD_SIZE", world_size)
    if here != world_size:
        raise _mistake(f"{here} of {world_size} ranks are on this machine: under torchrun a job of Pliant is on one (--nnodes 1)")
    return Launch(rank, world_size)


def _store() -> Any:
    """Torchrun's own, as torch.distributed finds it. A process group is not made."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise _mistake(
            "torchrun's store, by which ranks find their agent, is reached by torch: import torch before Session.attach, or start the program "
            "with `pliant run`",
            Status.FAILED_PRECONDITION,
        )
    try:
        return next(torch.distributed.rendezvous("env://", timeout=timedelta(seconds=_SECONDS_TO_ATTACH)))[0]
    except (AttributeError, RuntimeError, ValueError) as failure:
        raise Error(f"torchrun's store cannot be reached: {failure}", Status.FAILED_PRECONDITION) from failure


def _program() -> str:
    """The command `pliant` that belongs to this package."""
    package = pathlib.Path(_core.__file__).parent
    prefix = pathlib.Path(os.path.realpath(package / "plugins-1")).parent.parent.parent
    for place in (package / "bin/pliant", prefix / "bin/pliant"):
        if place.is_file():
            return str(place)
    found = shutil.which("pliant")
    if found is None:
        raise _mistake("the command `pliant`, which is the agent of the job, is neither with this package nor in PATH: install it", Status.NOT_FOUND)
    return found


def _launcher() -> str:
    """Names this start of torchrun, which its restarts have in common."""
    parent = os.getppid()
    try:
        started = pathlib.Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = "?"
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', 'none')}/{parent}/{started}"


class Agent:
    """The agent of a job whose rank 0 this process is. The job is over for it when the rank has left, at the latest at its end."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._owner = os.getpid()
        self._session: _core.Session | None = None
        atexit.register(self.leave)

    def has(self, session: _core.Session) -> None:
        self._session = session

    def leave(self) -> int:
        """The exit code of the agent, which ends when all ranks have left; 0 where it waits for others for long."""
        if os.getpid() != self._owner:
            return 0
        if self._session is not None:
            self._session.end()
        elif self._process.stdin is not None:
            self._process.stdin.close()  # else it waits for this rank to attach
        try:
            return self._process.wait(_SECONDS_OF_AGENT)
        except subprocess.TimeoutExpired:
            return 0


def _start_agent(place: Launch, address: str, config: str | os.PathLike[str], resume: bool, sets: Iterable[str]) -> Agent:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + address)
        listener.listen(place.world_size)
        command = [_program(), "run", os.fspath(config), "--workers", str(place.world_size), "--listen", str(listener.fileno())]
        command += ["--launcher", _launcher(), *(["--resume-or-begin"] if resume else [])]
        for one in sets:
            command += ["--set", one]
        words = list(sys.orig_argv) or [sys.executable]
        # In a session of its own: what torchrun or a terminal says to the group, ranks pass on, once. Its input ends with this process.
        process = subprocess.Popen([*command, "--", *words], pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=2, start_new_session=True)
    return Agent(process)


def attach(config: str | os.PathLike[str], resume: bool, sets: Iterable[str], leave_stop_signals: bool) -> tuple[_core.Session, Agent | None, Any]:
    """The session, the agent where this is rank 0, and the store, which must live as long."""
    place = launch()
    store = _store()
    of_start = f"pliant/{_number('TORCHELASTIC_RESTART_COUNT', 0)}"  # current releases of torch keep what earlier starts of the group have stored
    agent_key = f"{of_start}/agent"  # the address, or "!" and why there is none
    if store.add(f"{of_start}/attached/{place.rank}", 1) > 1:
        raise _mistake("a process joined as this rank before: a worker attaches once, and programs that it starts are no workers", Status.FAILED_PRECONDITION)
    agent = None
    if place.rank == 0:
        address = f"pliant-{secrets.token_hex(16)}"
        try:
            agent = _start_agent(place, address, config, resume, sets)
        except BaseException as failure:
            store.set(agent_key, f"!{failure}")  # for those that wait
            raise
        store.set(agent_key, address)
    else:
        try:
            address = store.get(agent_key).decode()
        except RuntimeError as failure:
            raise Error(f"rank 0 has not attached within {_SECONDS_TO_ATTACH} s: {failure}", Status.DEADLINE_EXCEEDED) from failure
        if address.startswith("!"):
            raise Error(f"rank 0 could not start the agent: {address[1:]}", Status.FAILED_PRECONDITION)
    session = _core.Session.attach_at(address, place.rank, place.world_size, leave_stop_signals)
    if agent is not None:
        agent.has(session)
    return session, agent, store
