"""Log lines of the C++ side as those of `logging`."""
from __future__ import annotations

import logging

# What nobody listens to is not printed.
logging.getLogger("pliant").addHandler(logging.NullHandler())

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def deliver(level: int, logger: str, line: str) -> None:
    name = logger if logger == "pliant" or logger.startswith("pliant.") else f"pliant.{logger}"
    logging.getLogger(name).log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s", line)


def deliver_exception(raised: BaseException) -> None:
    """Of the program's own code, within a call that goes on without it."""
    shown = (type(raised), raised, raised.__traceback__)
    logging.getLogger("pliant.session").error("the program's own code failed within a call of the session, which goes on", exc_info=shown)
