"""torchtitan's dataloader for the packs of a PackedBatchSampler: its state is the same on every rank, and for every number of them. It needs
torchtitan and torchdata."""
import pickle

from torchdata.stateful_dataloader import StatefulDataLoader
from torchtitan.components.dataloader import ParallelAwareDataloader


class PackLoader(ParallelAwareDataloader):
    def state_dict(self):
        return {"loader": pickle.dumps(StatefulDataLoader.state_dict(self))}

    def load_state_dict(self, state):
        if state:
            StatefulDataLoader.load_state_dict(self, pickle.loads(state["loader"]))
