#!/usr/bin/env python3
"""A training script that knows nothing of Pliant: it runs under torchrun's environment variables and keeps a checkpoint.

It fits y = a x + b by data-parallel gradient descent. Every rank takes its share of each batch, rank 0 adds the gradients up and
sends the sum back. When a rank dies the others lose their connection and exit; the program that started the group starts it again, and
rank 0's checkpoint says where to go on.
"""
import argparse
import json
import os
import pathlib
import random
import socket
import struct
import sys
import time

GLOBAL_BATCH = int(os.environ.get("PLIANT_GLOBAL_BATCH", "12"))  # rows of a step; Pliant's plan where there is one
TRUE_A, TRUE_B = 3.0, -2.0


class Group:
    """Sums lists of floats over all ranks: everybody sends to rank 0, which answers with the sum."""

    def __init__(self, rank, world_size, address, patience_s=30.0):
        self.rank = rank
        self.peers = []
        if world_size == 1:
            return
        if rank == 0:
            with socket.create_server(address, backlog=world_size) as server:
                server.settimeout(patience_s)
                joined = {}
                while len(joined) < world_size - 1:
                    peer, _ = server.accept()
                    joined[struct.unpack("!i", receive(peer, 4))[0]] = peer
                self.peers = [joined[rank] for rank in sorted(joined)]  # one order of additions
        else:
            self.peers = [connect(address, patience_s)]
            self.peers[0].sendall(struct.pack("!i", rank))

    def sum(self, values):
        form = f"!{len(values)}d"
        if not self.peers:
            return list(values)
        if self.rank != 0:
            self.peers[0].sendall(struct.pack(form, *values))
            return list(struct.unpack(form, receive(self.peers[0], struct.calcsize(form))))
        total = list(values)
        for peer in self.peers:
            theirs = struct.unpack(form, receive(peer, struct.calcsize(form)))
            total = [mine + other for mine, other in zip(total, theirs)]
        for peer in self.peers:
            peer.sendall(struct.pack(form, *total))
        return total


def connect(address, patience_s):
    give_up = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection(address, timeout=patience_s)
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def receive(peer, size):
    parts = b""
    while len(parts) < size:
        part = peer.recv(size - len(parts))
        if not part:
            raise ConnectionError("a rank of the group is gone")
        parts += part
    return parts


def batch_rows(step):
    """The rows of one global batch: a function of the step alone, so that every world size trains on the same ones."""
    noise = random.Random(step)
    rows = [noise.uniform(-1, 1) for _ in range(GLOBAL_BATCH)]
    return [(x, TRUE_A * x + TRUE_B + noise.gauss(0, 0.05)) for x in rows]


def gradient_of(rows, a, b):
    """Sums over `rows`: squared error, and its gradient with respect to a and b."""
    errors = [(a * x + b - y, x) for x, y in rows]
    return [sum(e * e for e, _ in errors), sum(2 * e * x for e, x in errors), sum(2 * e for e, _ in errors)]


def write_whole(path, state):
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(state), encoding="utf-8")
    os.replace(beside, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("checkpoint.json"))
    parser.add_argument("--crash-at", type=int, default=-1, help="step at which rank 1 exits with 1, in the first attempt only")
    options = parser.parse_args()

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    group = Group(rank, world_size, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))

    saved = {"step": 0, "a": 0.0, "b": 0.0}
    if rank == 0 and options.checkpoint.exists():
        saved = json.loads(options.checkpoint.read_text(encoding="utf-8"))
    # What rank 0 has read counts; the others add zeros.
    first, a, b = group.sum([saved["step"], saved["a"], saved["b"]] if rank == 0 else [0.0, 0.0, 0.0])
    print(f"rank {rank} of {world_size}, attempt {attempt}, from step {int(first)}", flush=True)

    loss = float("nan")
    for step in range(int(first), options.steps):
        if rank == 1 and attempt == 0 and step == options.crash_at:
            sys.exit("rank 1 breaks down, as --crash-at asks")
        share = batch_rows(step)[rank::world_size]
        loss, slope_a, slope_b = (total / GLOBAL_BATCH for total in group.sum(gradient_of(share, a, b)))
        a, b = a - 0.3 * slope_a, b - 0.3 * slope_b
        if rank == 0 and (step + 1) % 10 == 0:
            write_whole(options.checkpoint, {"step": step + 1, "a": a, "b": b})
            print(f"step {step + 1} loss {loss:.4f} a {a:.3f} b {b:.3f}", flush=True)
    if rank == 0:
        options.checkpoint.unlink(missing_ok=True)
        print(f"done: y = {a:.2f} x + {b:.2f}", flush=True)


if __name__ == "__main__":
    main()
