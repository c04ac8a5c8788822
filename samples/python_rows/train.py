"""A packer in Python, whose rows are shared out, recorded and resumed at any world size: as one rank of a group that a
launcher starts, such as torchrun. Without torch."""
import os
import pathlib
import sys

import pliant


def pack(lengths, budget):
    """First fit, the longest first: row i is the sequences ids[offsets[i]] to ids[offsets[i + 1] - 1]."""
    rows = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((row for row in rows if sum(lengths[j] for j in row) + lengths[i] <= budget), None)
        if row is None:
            rows.append([i])
        else:
            row.append(i)
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return offsets, [i for row in rows for i in row]


rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
config = pliant.Config.open(pathlib.Path(__file__).with_name("pliant.toml"))
lengths = [3 + i * 7 % 29 for i in range(400)]
rows = pack(lengths, 64)  # the same on every rank; or numpy arrays that a packer left in files

sampler = pliant.PackedBatchSampler(config, lengths, rank, world_size, rows=rows)
rate = pliant.LearningRate(config)
step, position, ledger = 0, (0, 0), None
if rank == 0:
    if "--resume" in sys.argv:
        ledger = pliant.Ledger.open("pliant-runs/python_rows/latest", config, sampler.plan, sampler.batches)  # refuses other rows
    else:
        ledger = pliant.Ledger.begin(config, sampler.plan, sampler.batches)
    ledger.start_generation(world_size, "start")
    step, position = ledger.steps, ledger.position  # which rank 0 tells the others; their weights are those of a checkpoint at that step
sampler.load_state_dict(sampler.state_at(*position))

for micro in sampler:
    # Here: forward and backward over the sequences of `micro`.
    if micro.position[2] != 0:
        continue  # the step has more micro-batches
    batch = sampler.batch_of(micro)
    print(f"step {step}: {batch.size.rows} rows of {batch.size.tokens} tokens over {world_size} ranks")
    # Here: all-reduce, and an optimizer step with the rate.
    if ledger is not None:
        ledger.commit(batch, sampler.assignment(batch), 0.5, rate.at(step, batch.size))
    rate.commit(step, batch.size)
    step += 1
    if step == 4 and "--resume" not in sys.argv:
        break  # as if it were killed here
