"""Plays rows of zero3_trace.jsonl on DeepSpeed's own coordinator.

    Replay(row, reference).play()       the entries of a row, one for each operation
"""
import itertools
import types

from zero3_stubs import DEVICE, Backward, Nothing, Status

OF_HEAD_ONLY = {"reset_head", "leftovers_head", "invalidate_head"}
PRIVATE = "_PartitionedParameterCoordinator__"


class Handle:
    """One all-gather: the first wait makes all its parameters available, later ones are free."""

    def __init__(self, parameters):
        self.parameters = parameters

    def wait(self, **_):
        for parameter in self.parameters:
            parameter.ds_status = Status.AVAILABLE
        self.parameters = []


class Parameter:
    def __init__(self, row, replay):
        self.ds_id = row["id"]
        self.ds_numel = row["numel"]
        self.ds_persist = row.get("persist", False)
        self.is_external_param = row.get("external", False)
        self.requires_grad = not row.get("frozen", False)
        self.ds_status = Status.NOT_AVAILABLE
        self.ds_active_sub_modules = set()
        self.ds_tensor = types.SimpleNamespace(final_location=None, status=None)
        self.ds_secondary_tensor = self.nvme_swapper = None
        self.ds_shape = ()
        self.replay = replay

    def __hash__(self):
        return self.ds_id

    def __eq__(self, other):
        return self is other

    def partition_numel(self):
        return (self.ds_numel + 1) // 2

    def ds_summary(self, **_):
        return f"P{self.ds_id}"

    def partition(self, **_):
        self.ds_status = Status.NOT_AVAILABLE
        self.replay.happened("rel", [self])

    def all_gather_coalesced(self, parameters, **_):
        parameters = list(parameters)
        needed = any(parameter in self.replay.needed for parameter in parameters)
        self.replay.happened("fetch" if needed else "prefetch", parameters)
        for parameter in parameters:
            parameter.ds_status = Status.INFLIGHT
        return Handle(parameters)


class Module:
    training = True

    def __init__(self, row, replay):
        self.ds_id = self.id = row["id"]
        self.leaf = row.get("leaf", False)
        self.own, self.external = list(row["params"]), list(row.get("external", []))
        self.children = row.get("children", [])
        self.replay = replay
        self.ds_recompute_parameters = set()

    def subtree(self):
        yield self
        for child in self.children:
            yield from self.replay.modules[child].subtree()

    def named_parameters(self, recurse=True):
        modules = self.subtree() if recurse else [self]
        for number in dict.fromkeys(number for module in modules for number in module.own):
            yield str(number), self.replay.parameters[number]

    def ds_external_parameters(self):
        return [(str(number), self.replay.parameters[number]) for number in dict.fromkeys(self.external)]


class Replay:
    """A coordinator of `reference` with the model of a row."""

    def __init__(self, row, reference):
        self.row, self.reference = row, reference
        self.head = hasattr(reference, "InflightParamRegistry")
        self.parameters = {one["id"]: Parameter(one, self) for one in row["params"]}
        self.modules = {one["id"]: Module(one, self) for one in row["modules"]}
        self.events_finish = row["config"]["event_query"]
        self.waited_by_hand = 0
        self.events, self.needed = [], set()
        config = row["config"]
        limits = [config["prefetch_bucket_sz"], config["max_reuse_distance"], config["max_available"], Nothing()]
        if self.head:
            self.registry = reference.InflightParamRegistry()
            self.coordinator = reference.PartitionedParameterCoordinator(*limits, self.registry)
        else:
            self.coordinator = reference.PartitionedParameterCoordinator(*limits)
            self.registry = self.state("inflight_param_registry")
        self.listen()

    def state(self, name):
        return getattr(self.coordinator, PRIVATE + name)

    def happened(self, kind, parameters=()):
        self.events.append((kind, [parameter.ds_id for parameter in parameters]))

    def synchronized(self):
        self.waited_by_hand += 1

    def listen(self):
        """Makes waits and dropped traces events."""
        take, invalidate = self.registry.pop, self.coordinator._invalidate_trace

        def taken(parameter, *default):
            self.happened("w", [parameter])
            return take(parameter, *default)

        def invalidated():
            invalidate()
            self.happened("inval")

        self.registry.pop, self.coordinator._invalidate_trace = taken, invalidated
        if self.head:
            clean = self.coordinator._clean_inflight_param_registry

            def cleaned():
                self.happened("w", list(self.registry.data))
                clean()

            self.coordinator._clean_inflight_param_registry = cleaned

    def perform(self, name, *given):
        DEVICE.replay = self
        coordinator = self.coordinator
        if name in ("pre", "post"):
            module, forward = self.modules[given[0]], bool(given[1])
            Backward.task = 1 if not forward or (len(given) > 2 and given[2]) else -1
            how = {"forward": forward} if self.head else {}
            if name == "post":
                return coordinator.release_sub_module(module, **how)
            coordinator.trace_prologue(module)
            if coordinator.is_record_trace():
                coordinator.record_module(module)
            deep = {"recurse": module.leaf} if self.head else {}
            self.needed = set(self.reference.iter_params(module, **deep))
            coordinator.fetch_sub_module(module, **how)
        elif name == "setparams":
            module = self.modules[given[0]]
            module.own, module.external = list(given[1]), list(given[2])
        elif name == "release_all":
            coordinator.release_and_reset_all(self.modules[self.row["root"]])
        elif name == "leftovers_head":
            coordinator.release_backward_leftovers()
        elif name == "invalidate_head":
            if not coordinator.is_invalid_trace():
                coordinator._invalidate_trace()
        else:
            coordinator.reset_step()

    def shown_events(self, of_visit):
        """Neighbours of one kind as one event, ids sorted; in a clean-up all waits, then all releases."""
        shown, run = [], []

        def end_run():
            kinds = [kind for kind, _ in run]
            if not of_visit or len(set(kinds)) > 1:
                run.sort(key=lambda event: event[0] == "rel")
            for kind, members in itertools.groupby(run, key=lambda event: event[0]):
                ids = sorted(number for _, numbers in members for number in numbers)
                if ids:
                    shown.append([kind, ids])
            run.clear()

        for kind, ids in self.events:
            if kind in ("w", "rel"):
                run.append((kind, ids))
                continue
            end_run()
            shown.append([kind, sorted(ids)] if ids else [kind])
        end_run()
        if self.waited_by_hand:
            shown.append(["esync", self.waited_by_hand])
        return shown

    def entry(self, operation):
        self.events, self.needed, self.waited_by_hand = [], set(), 0
        error = None
        try:
            self.perform(*operation)
        except (RuntimeError, AssertionError, LookupError, AttributeError) as raised:
            error = {"type": type(raised).__name__, "message": str(raised).split("\n", maxsplit=1)[0]}
        queue, events = self.state("param_queue"), self.shown_events(operation[0] in ("pre", "post"))
        made = {"ev": events} if events else {}
        made.update(avail=self.state("n_available_params"), st=self.state("trace_mode").name[0], k=self.state("step_id"),
                    q=None if queue is None else len(queue))
        if self.registry.data:
            made["fl"] = sorted(parameter.ds_id for parameter in self.registry.data)
        if error:
            made["error"] = error
        return made

    def play(self):
        """One entry for each operation, null for those that only head has, up to the first exception."""
        entries = []
        for operation in self.row["ops"]:
            if not self.head and operation[0] in OF_HEAD_ONLY:
                entries.append(None)
                continue
            entries.append(self.entry(operation))
            if "error" in entries[-1]:
                break
        return entries


def replays(row, head, seed):
    """Both columns of a row; seed knows no leaf modules."""
    leaves = any(module.get("leaf") for module in row["modules"])
    return Replay(row, head).play(), None if leaves else Replay(row, seed).play()
