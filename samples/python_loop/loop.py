"""A loop of one's own in Python, as one rank of a group that another program starts, such as torchrun: its share of each batch, the
learning rate of the batch, and on rank 0 the ledger. It goes on at any world size where its ledger ends. Without torch."""
import argparse
import os
import pathlib

import pliant

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=10**9, help="ends after this many, as if it were killed then")
parser.add_argument("--resume", action="store_true", help="go on with the newest run")
given = parser.parse_args()

rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
config = pliant.Config.open(pathlib.Path(__file__).with_name("pliant.toml"))
lengths = [3 + i * 7 % 29 for i in range(90)]  # or an array of numpy, torch or anybody else; one of 32 bits is not copied

sampler = pliant.PackedBatchSampler(config, lengths, rank, world_size)  # refuses a size that is not valid, with the nearest
rate = pliant.LearningRate(config)
step, lr_state, position, ledger = 0, b"", (0, 0), None
if rank == 0:
    if given.resume:
        run = f"{config.run.log_dir}/{config.run.name}/latest"
        ledger = pliant.Ledger.open(run, config, sampler.plan, sampler.batches)  # refuses other data
        step, lr_state, weights = ledger.restore()  # the newest snapshot; steps after it are void
        position = ledger.position
    else:
        ledger = pliant.Ledger.begin(config, sampler.plan, sampler.batches)
    ledger.start_generation(world_size, "start")
# Here: rank 0 tells the others the step, the rate's state, the position and the weights.
if lr_state:
    rate.load(lr_state)
sampler.load_state_dict(sampler.state_at(*position))

done = 0
for micro in sampler.whole_job():
    # Here: forward and backward over the sequences of `micro`. It is empty where another rank has more to do.
    done += len(micro)
    if micro.position[2] != 0:
        continue  # the step has more micro-batches
    batch = sampler.batch_of(micro)
    print(f"step {step}: {done} of {batch.size.sequences} sequences, rate {rate.at(step, batch.size):.5f}")
    # Here: all-reduce.
    if ledger is not None:
        ledger.commit(batch, sampler.assignment(batch), 0.5, rate.at(step, batch.size))
    # Here: an optimizer step with that rate.
    rate.commit(step, batch.size)
    step, done = step + 1, 0
    if ledger is not None and step % 2 == 0:
        ledger.keep_snapshot(b"the weights", rate.save())
    if step == given.steps:
        break
print(f"a position of {len(sampler.state_dict()['pliant'])} bytes, the same on every rank")
