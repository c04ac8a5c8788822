"""What every call of the package raises."""
from __future__ import annotations

import enum
from collections import namedtuple

TYPE_CHECKING = False  # typing, and re, which it needs, took a quarter of the time in which the package is imported
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple


class Status(enum.IntEnum):
    """What kind of failure it is. The numbers are those of the C and C++ APIs."""

    OK = 0
    INVALID_ARGUMENT = 1
    OUT_OF_RANGE = 2
    NOT_FOUND = 3
    FAILED_PRECONDITION = 4
    RESOURCE_EXHAUSTED = 5
    UNIMPLEMENTED = 6
    INTERNAL = 7
    ABORTED = 8
    PEER_LOST = 9
    DATA_LOSS = 10
    INCOMPATIBLE_WORLD_SIZE = 11
    DEADLINE_EXCEEDED = 12


if TYPE_CHECKING:

    class Finding(NamedTuple):
        """One thing that is wrong with a config, and where. `place` is what the value came from: the file, a `--set` or a variable of the
        environment; `line` and `column` count from 1 and are 0 where it is no file."""

        place: str
        line: int
        column: int
        message: str

else:
    Finding = namedtuple("Finding", "place line column message")
    Finding.__doc__ = "One thing that is wrong with a config, and where: line and column count from 1 and are 0 where it is no file."


class Error(Exception):
    """A call that failed. `status`: the kind of failure. `exit_code`: what a program that ends with it should exit with: 2 for a mistake of
    its user, 3 for one of a plugin, 75 where no world size is left, else 1. `options`: keys of a plugin's options that it is about.
    `rank` and `device`: what it is about, -1 where that is none or is not known. `findings`: all that is wrong with a config, sorted by place;
    empty for an error that is not about one."""

    def __init__(
        self,
        message: str,
        status: Status = Status.INVALID_ARGUMENT,
        exit_code: int = 1,
        options: tuple[str, ...] = (),
        rank: int = -1,
        device: int = -1,
        findings: Iterable[Finding] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.exit_code = exit_code
        self.options = options
        self.rank = rank
        self.device = device
        self.findings = list(findings)

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return (Error, (self.message, self.status, self.exit_code, self.options, self.rank, self.device, self.findings))


def _from_core(
    status: int, exit_code: int, message: str, options: str, rank: int, device: int, findings: list[tuple[str, int, int, str]]
) -> Error:
    try:
        known = Status(status)
    except ValueError:
        known = Status.INTERNAL
    return Error(message, known, exit_code, tuple(options.split()), rank, device, [Finding(*one) for one in findings])
