#!/usr/bin/env python3
"""Packs with one function of another project and times it; packers.py starts this, a process a job.

    peer_job.py packages                  which of the packages that peers need are there, as JSON
    peer_job.py compile TREE FOLDER       builds fairseq's batch_by_size_vec into FOLDER
    peer_job.py pack < JOB                packs as the JSON on stdin says; prints times and what came out as JSON
"""
import contextlib
import json
import math
import signal
import sys
import time

import lengths as length_files
import peers


class Slow(BaseException):
    """A run went past its limit."""


def check(packs, lengths, budget, padded):
    """What is wrong with the packs, or None; packs, sequences in them and their tokens."""
    seen = bytearray(len(lengths))
    rows, used, tokens, wrong = 0, 0, 0, None
    for pack in packs:
        sizes = []
        for one in pack:
            if not 0 <= one < len(lengths) or seen[one]:
                wrong = wrong or f"sequence {one} is {'in two packs' if 0 <= one < len(lengths) else 'none of the data'}"
                continue
            seen[one] = 1
            sizes.append(lengths[one])
        room = len(sizes) * max(sizes, default=0) if padded else sum(sizes)
        if room > budget:
            wrong = wrong or f"pack {rows} holds {room} of {budget} tokens"
        rows, used, tokens = rows + 1, used + len(sizes), tokens + sum(sizes)
    return {"wrong": wrong, "packs": rows, "used": used, "tokens": tokens}


def timed(run, limit):
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        result = run()
        taken = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return result, taken


def next_size(measured, wanted, limit, may_jump):
    """The size to try after those measured (size, seconds, CPU seconds): all, or twice as many; None past the limit.
    Growth is read off the CPU time, which other programs on the machine change less."""
    size, seconds, cpu = measured[-1]
    power = 1.0
    if len(measured) > 1 and measured[-2][2] > 1e-3:
        before, _, then = measured[-2]
        power = min(4.0, max(1.0, math.log(cpu / then) / math.log(size / before)))
    if may_jump and len(measured) > 1 and seconds * (wanted / size) ** power <= limit:
        return wanted
    return min(wanted, 2 * size) if seconds * 2**power <= limit else None


def largest(peer, lengths, budget, limit):
    """Packs as many sequences as the limit allows; returns how many, the packing as a call, its result and its times."""
    wanted = len(lengths)
    size, may_jump, measured, best = min(wanted, 250), True, [], None
    while size is not None:
        run = peer.prepare(lengths[:size], budget)
        try:
            result, taken = timed(run, limit)
        except Slow:
            if best is None:
                raise peers.Unfit(f"{size} sequences take more than {limit:g} s") from None
            if not may_jump or size <= 2 * best[0]:
                return best
            may_jump = False
        else:
            best = size, run, result, taken
            measured.append((size, *taken))
            if size == wanted:
                return best
        size = next_size(measured, wanted, limit, may_jump)
    return best


def pack(job):
    peer = peers.PEERS[job["peer"]](job)
    lengths = length_files.read_npy(job["lengths"])

    def stop(*_):
        raise Slow

    signal.signal(signal.SIGALRM, stop)
    size, run, result, taken = largest(peer, lengths, job["budget"], job["limit"])
    answer = check(peer.packs(result), lengths[:size], job["budget"], peer.padded)
    del result
    all_taken = [taken]
    while len(all_taken) < job["repetitions"] and sum(one[0] for one in all_taken) + taken[0] < job["limit"] / 4:
        try:
            all_taken.append(timed(run, job["limit"])[1])
        except Slow:
            break
    return dict(answer, count=size, how=peer.how, seconds=[one[0] for one in all_taken],
                cpu_seconds=[one[1] for one in all_taken])


def packages():
    found = {}
    for name in ("numpy", "pyarrow", "Cython"):
        found[name] = getattr(__import__(name), "__version__", "?") if peers.has(name) else None
    return dict(found, python=sys.version.split()[0])


def answer_to(arguments):
    if arguments[0] == "packages":
        return packages()
    if arguments[0] == "compile":
        return peers.compile_fairseq(*arguments[1:])
    try:
        return pack(json.load(sys.stdin))
    except peers.Unfit as reason:
        return {"left_out": str(reason)}
    except (AssertionError, ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, NameError, OSError,
            SyntaxError, TypeError, ValueError) as error:
        return {"left_out": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        answer = answer_to(sys.argv[1:])
    print(json.dumps(answer))
