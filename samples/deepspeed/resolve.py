"""The config of a DeepSpeed job for a world size, without the elasticity block: resolve.py ds_config.json WORLD_SIZE"""
import json
import sys

from pliant.deepspeed import ElasticityIncompatibleWorldSize, resolve

with open(sys.argv[1], encoding="utf-8") as file:
    ds_config = json.load(file)
try:
    resolved = resolve(ds_config, int(sys.argv[2]))
except ElasticityIncompatibleWorldSize as error:
    sys.exit(f"resolve.py: {error}")
print(json.dumps(resolved, indent=2))  # a program of its own hands it to deepspeed.initialize(config=resolved)
