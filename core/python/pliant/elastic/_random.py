"""Random numbers that a program draws without naming a generator: of Python, and of numpy and torch where they are imported."""
from __future__ import annotations

import hashlib
import random
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class _Generator(NamedTuple):
    """One that all threads of the process share."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], object]
    seed: Callable[[int], object]


def _generators() -> list[_Generator]:
    found = [_Generator("random", random.getstate, random.setstate, random.seed)]
    numpy: Any = sys.modules.get("numpy.random")
    if hasattr(numpy, "set_state"):
        found.append(_Generator("numpy.random", numpy.get_state, numpy.set_state, lambda number: numpy.seed(number & 0xFFFFFFFF)))
    torch: Any = getattr(sys.modules.get("torch"), "default_generator", None)
    if torch is not None:
        found.append(_Generator("torch", torch.get_state, torch.set_state, torch.manual_seed))
    return found


def key(seed: int, step: int, row: int, what: bytes = b"") -> int:
    """64 bits that depend on nothing else."""
    packed = struct.pack("<QQQ", seed & (2**64 - 1), step, row) + what
    (number,) = struct.unpack("<Q", hashlib.blake2b(packed, digest_size=8).digest())
    return int(number)


def seed_all(number: int | None) -> None:
    """What is drawn from here on depends on `number`. None: nothing is changed."""
    if number is None:
        return
    for one in _generators():
        one.seed(number)


def apart(work: Callable[[], Any]) -> Any:
    """Does it. What is drawn afterwards is what would be without it."""
    before = [(one, one.get()) for one in _generators()]
    try:
        return work()
    finally:
        for one, state in before:
            one.set(state)


def drawn_by(work: Callable[[], object]) -> list[str]:
    """Does it, and gives the names of the generators that it has drawn from."""
    before = [(one, one.get()) for one in _generators()]
    work()
    return [one.name for one, state in before if not _is_same(state, one.get())]


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(_is_same(*pair) for pair in zip(one, other))
    return bool((one == other).all()) if hasattr(one, "shape") else bool(one == other)
