"""The batch of a DeepSpeed job by the call that DeepSpeed had for it: elastic_config.py ds_config.json WORLD_SIZE"""
import json
import sys

# from deepspeed.elasticity import compute_elastic_config
from pliant.deepspeed import compute_elastic_config

with open(sys.argv[1], encoding="utf-8") as file:
    ds_config = json.load(file)
batch, world_sizes, micro_batch = compute_elastic_config(ds_config, "0.16.0", int(sys.argv[2]))
print(f"{batch} samples a step at {len(world_sizes)} world sizes, by {micro_batch} at once at this one")
