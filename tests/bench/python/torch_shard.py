#!/usr/bin/env python3
"""Measures a model that is cut over its workers: `pliant.torch.shard` beside torch's own `fully_shard` (FSDP2) over gloo.

    scripts/bench-torch --sharded [--python FILE] [--workers 1,2,4] [--rounds N] [--steps N] [--width N] [--layers N] [--json]

Both train the model of samples/torch_shard, wider and deeper, from the same first values, on the rows, micro-batches and rates of the job in fast
mode, with AdamW and one thread a process; each block is a unit. Seconds are those of a step but the first, from the end of the one before. The peak of
memory is of a run of its own: what a worker has beyond what it had before the model was made, of memory that is no file's, each shared page in
parts (PSS), looked at every 10 ms; the mean of the workers. Where losses are not near each other, nothing is printed. At the end one worker of two
visits two blocks the other way round, or leaves one out: what becomes of the job, and of FSDP's.
FSDP2 over gloo needs a current torch: --python names an interpreter that has one, which the package must be built for as well.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from torch_lm import counts, rows_of, spread, use_package

ROOT = pathlib.Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "samples/torch_shard/train.py"
AGREE_TO = 1e-3  # of a loss: sums in another order
PATIENCE = 30.0  # seconds for workers that do not agree
DIFFERENCES = {"swapped": "visits two blocks the other way round", "left_out": "leaves a block out"}

CONFIG = """config_version = 1
[run]
name = "sharded"
workers = {workers}
max_steps = {steps}
snapshot_every = 0
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 16
micro_batch_sizes = [4]
max_gpus = 4
[sampler]
use = "fixed"
[sampler.fixed]
order = "random"
[lr]
use = "none"
base_lr = 0.001
[coordinator]
use = "planned"
"""


class Sentences:
    lengths = [100 + i * 7 % 29 for i in range(2000)]

    def __getitem__(self, i):
        import torch

        return (i + torch.arange(self.lengths[i])) % 16


def build(given):
    """The sample, and a model with first values that depend on nothing else."""
    import torch

    specification = importlib.util.spec_from_file_location("torch_shard_sample", SAMPLE)
    sample = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(sample)

    class Model(sample.Model):
        order = range(given.layers)

        def forward(self, batch):
            x = self.embedding(batch[:, :-1].clamp(min=0))
            for number in self.order:
                x = self.blocks[number](x)
            return torch.nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")

    torch.manual_seed(5)
    return sample, Model(given.width, given.layers)


def warm_up():
    """What torch loads when a first loss and a first update are made is not the model's."""
    import torch

    one = torch.nn.Parameter(torch.zeros(3, 3))
    torch.nn.functional.cross_entropy(one, torch.zeros(3, dtype=torch.int64), reduction="sum").backward()
    torch.optim.AdamW([one], lr=0.001).step()


def make_differ(model, given, rank, step):
    if rank == 1 and step == 2 and given.differ:
        model.order = [1, 0, *range(2, given.layers)] if given.differ == "swapped" else [0, *range(2, given.layers)]


def of_no_file():
    """Bytes of this process that no file has."""
    found = {key: int(value.split()[0]) for key, _, value in
             (line.partition(":") for line in pathlib.Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:])}
    return (found["Pss_Anon"] + found["Pss_Shmem"]) * 1024


class Meter:
    """Ends of steps, and the peak of memory where it is asked for."""

    def __init__(self, given):
        self.given, self.ends, self.losses = given, [], []
        self.before = self.peak = of_no_file()
        self.is_over = threading.Event()
        if given.memory:
            threading.Thread(target=self.look, daemon=True).start()

    def look(self):
        while not self.is_over.wait(0.01):
            self.peak = max(self.peak, of_no_file())

    def step(self, loss):
        self.ends.append(time.perf_counter())
        self.losses.append(loss)

    def write(self, rank):
        self.is_over.set()
        seconds = [end - begin for begin, end in zip(self.ends, self.ends[1:])]
        (self.given.folder / f"rank-{rank}").write_text(json.dumps({"seconds": seconds, "losses": self.losses, "peak": self.peak - self.before}), encoding="utf-8")


def ours(given):
    import torch

    import pliant.elastic
    import pliant.torch

    def main(session):
        warm_up()
        meter = Meter(given)
        sample, model = build(given)
        data = Sentences()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
        state = pliant.torch.shard(model, optimizer, session=session, units=[sample.Block])
        session.start(data.lengths, loss_tokens=[n - 1 for n in data.lengths], state=state)
        loader = session.loader(data, sample.collate)
        step = None
        for step in session:
            make_differ(model, given, step.rank, step.index)
            with step.attempt():
                for batch in loader.of(step):
                    step.backward(model(batch))
            if committed := step.commit():
                optimizer.step()
                meter.step(committed.loss)
        meter.write(step.rank)

    return pliant.elastic.run_worker(main)


def theirs(given):
    """One of the processes that torchrun has started."""
    import torch
    from torch.distributed.fsdp import fully_shard

    import pliant
    from pliant.elastic._loader import _items

    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    warm_up()
    meter = Meter(given)
    sample, model = build(given)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    config = pliant.Config.parse(CONFIG.format(workers=ranks, steps=given.steps))
    data, plan = Sentences(), pliant.Planner(config).plan(ranks)
    batches = pliant.Batches(config, plan, data.lengths, [one - 1 for one in data.lengths])
    for step, batch in enumerate(batches):
        if step == given.steps:
            break
        make_differ(model, given, rank, step)
        loss = torch.zeros((), dtype=torch.float64)
        for rows in rows_of(batch.size.rows, plan.micro_batch, ranks, rank):
            summed = model(sample.collate([data[item] for items in _items(batch, list(rows)) for item in items]))
            (summed * ranks / batch.size.loss_tokens).backward()  # FSDP takes the mean over the ranks
            loss += summed.detach().double()
        optimizer.step()
        optimizer.zero_grad()
        torch.distributed.all_reduce(loss)
        meter.step(float(loss) / batch.size.loss_tokens)
    meter.write(rank)
    torch.distributed.barrier()  # gloo aborts a rank whose peer has gone
    torch.distributed.destroy_process_group()
    return 0


def command_of(given, who, workers, folder, *more):
    own = [__file__, f"--{who}", "--build", given.build, "--steps", given.steps, "--width", given.width, "--layers", given.layers, "--folder", folder, *more]
    if who == "theirs":
        return [given.python, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", workers, *own]
    (folder / "pliant.toml").write_text(CONFIG.format(workers=workers, steps=given.steps), encoding="utf-8")
    return [given.build / "bin/pliant", "run", folder / "pliant.toml", "--set", "run.attach=required", "--log-dir", folder / "runs", "--", given.python, "-B", *own]


def run(given, who, workers, *more):
    """What each rank measured."""
    with tempfile.TemporaryDirectory(prefix="bench-shard-") as name:
        folder = pathlib.Path(name)
        done = subprocess.run(list(map(str, command_of(given, who, workers, folder, *more))), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            logs = "".join(file.read_text(errors="replace") for file in folder.glob("runs/*/logs/*"))
            sys.exit(f"{who} ended with {done.returncode}: {(done.stdout + logs).strip()[-1500:]}")
        return [json.loads((folder / f"rank-{rank}").read_text(encoding="utf-8")) for rank in range(workers)]


def end_all(folder):
    """Ends the processes that were started with the folder. Workers of torchrun are in sessions of their own."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if folder.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ValueError):  # it has ended
            pass


def differ(given, who, how):
    """How two workers end of which one visits other blocks, and after how many seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-shard-") as name:
        folder, begin = pathlib.Path(name), time.monotonic()
        process = subprocess.Popen(list(map(str, command_of(given, who, 2, folder, "--differ", how))), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            said = process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            end_all(name)
            process.communicate()
            return {"ends": False, "seconds": PATIENCE, "says": ""}
        lines = [line for line in said.splitlines() if "is not committed" in line or "Error" in line]
        says = re.sub(r"^outcome +failed: ", "", lines[0].strip())[:300] if lines else ""
        return {"ends": True, "seconds": round(time.monotonic() - begin, 1), "exit_code": process.returncode, "says": says}


def measure(given, workers):
    who = ["ours", *(["theirs"] if given.has_fsdp else [])]
    found = {one: {"seconds": [], "peak": []} for one in who}
    for number in range(given.rounds + 1):
        print(f"{workers} workers, round {number} of {given.rounds}{' (memory)' if number == 0 else ''}", file=sys.stderr, flush=True)
        losses = {}
        for one in who if number % 2 else who[::-1]:
            ranks = run(given, one, workers, *([] if number else ["--memory"]))
            losses[one] = ranks[0]["losses"]
            if number:
                found[one]["seconds"].append(statistics.median(ranks[0]["seconds"]))
            else:
                found[one]["peak"] = statistics.mean(rank["peak"] for rank in ranks)
        for step, (mine, other) in enumerate(zip(*(losses[one] for one in (who[0], who[-1])))):
            if abs(mine - other) > AGREE_TO * abs(other):
                sys.exit(f"FSDP computes something else: its loss at step {step} is {other}, that of the job {mine}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", metavar="DIR", help="default: build/release")
    parser.add_argument("--python", type=pathlib.Path, default=pathlib.Path(sys.executable), metavar="FILE", help="default: the one that runs this")
    parser.add_argument("--workers", type=counts, default=[1, 2, 4], metavar="N,...", help="default: 1,2,4; at most 4 each")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", choices=range(1, 101), help="default: 3")
    parser.add_argument("--steps", type=int, default=8, metavar="N", choices=range(4, 10001), help="default: 8")
    parser.add_argument("--width", type=int, default=256, metavar="N", choices=range(8, 65537), help="default: 256")
    parser.add_argument("--layers", type=int, default=8, metavar="N", choices=range(2, 1025), help="blocks; default: 8")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--differ", choices=DIFFERENCES, help=argparse.SUPPRESS)
    for word in ("ours", "theirs", "memory"):
        parser.add_argument(f"--{word}", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    use_package(parser, given)
    if given.ours or given.theirs:
        return (ours if given.ours else theirs)(given)
    if max(given.workers) > 4:
        parser.error(f"--workers {max(given.workers)}: a step has four micro-batches, so there are at most 4 workers")
    try:
        asked = subprocess.run([given.python, "-c", "import torch; print(torch.__version__, flush=True); from torch.distributed.fsdp import fully_shard"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as failure:
        parser.error(f"--python {given.python}: {failure.strerror}")
    torch, given.has_fsdp = asked.stdout.strip(), asked.returncode == 0
    if not torch:
        parser.error(f"--python {given.python}: has no torch: {asked.stderr.strip()[-300:]}")
    load = round(os.getloadavg()[0], 1)
    found = {workers: measure(given, workers) for workers in given.workers}
    differing = {how: {who: differ(given, who, how) for who in ["ours", *(["theirs"] if given.has_fsdp else [])]} for how in DIFFERENCES}
    if given.json:
        print(json.dumps({"schema": "pliant.bench_torch_shard/1", "torch": torch, "load": load, "differing": differing,
                          "workers": [{"workers": workers, **one} for workers, one in found.items()]}))
        return 0
    print(f"torch {torch}, load {load} at the beginning\n\n| workers | | ms a step, median (least to largest) | to FSDP2 | peak of a worker |\n"
          "| --- | --- | --- | --- | --- |")
    for workers, one in found.items():
        for who, name in (("ours", "pliant.torch.shard"), ("theirs", "fully_shard, gloo")):
            if who in one:
                ratio = "1" if who == "theirs" or "theirs" not in one else spread([a / b for a, b in zip(one["ours"]["seconds"], one["theirs"]["seconds"])], ".2f")
                print(f"| {workers} | {name} | {spread([1e3 * x for x in one[who]['seconds']], '.1f')} | {ratio} | {one[who]['peak'] / 2**20:.1f} MiB |")
    for how, words in DIFFERENCES.items():
        print(f"\nOne of two workers {words} from step 2 on:")
        for who, one in differing[how].items():
            ends = f"ends with {one['exit_code']} after {one['seconds']} s" if one["ends"] else f"has not ended after {PATIENCE:.0f} s"
            print(f"  {'the job' if who == 'ours' else 'FSDP2'} {ends}{': ' + one['says'] if one['says'] else ', and says nothing'}")
    if not given.has_fsdp:
        print(f"\nLeft out: fully_shard: torch {torch} has none")
    return 0


if __name__ == "__main__":
    sys.exit(main())
