"""The packing functions of TRL, fairseq and DeepSpeed, each taken from a source tree by path.

Of a tree the one module with the function is loaded; what that imports is replaced by empty modules.
"""
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import types

MODULES = {
    "trl": "trl/data_utils.py",
    "fairseq": "fairseq/data/data_utils_fast.pyx",
    "deepspeed": "deepspeed/runtime/data_pipeline/data_sampling/variable_batch_size_and_lr.py",
}
WINDOW = 1000  # rows that TRL packs at once: what datasets.map hands to it unless told


class Unfit(Exception):
    """The peer cannot be run here; the text says why."""


class EmptyModule(types.ModuleType):
    """Has every name: an empty class."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = type(name, (), {})
        return self.__dict__[name]


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of the packages named, and of all in them, with empty modules."""

    def __init__(self, packages):
        self.packages = packages

    def find_spec(self, name, _path=None, _target=None):
        if name.split(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass


def has(package):
    return importlib.util.find_spec(package) is not None


def load(tree, peer, empty):
    sys.meta_path.insert(0, EmptyModules(set(empty)))
    path = pathlib.Path(tree, MODULES[peer])
    spec = importlib.util.spec_from_file_location(MODULES[peer][:-3].replace("/", "."), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(module, name):
    if not hasattr(module, name):
        raise Unfit(f"{module.__file__} has no {name}")
    return getattr(module, name)


class Trl:
    """`_pack_bfd` in windows of 1000 rows or one of all. Without pyarrow: its segment tree and its placement loop."""
    padded = False

    def __init__(self, job):
        if not has("numpy"):
            raise Unfit("this Python has no numpy")
        self.arrow = has("pyarrow")
        empty = ["trl", "datasets", "transformers"] + ([] if self.arrow else ["pyarrow"])
        self.module = load(job["tree"], "trl", empty)
        self.whole = job["variant"] == "one window"
        self.how = "" if self.arrow else "placement loop alone, numpy's sort: this Python has no pyarrow"
        if self.arrow:
            self.pack = function_of(self.module, "_pack_bfd")
            self.taken = []
            self.module.pc = self.listening(self.module.pc)
        else:
            self.place = self.placement_loop(job["tree"])

    def listening(self, compute):
        """pyarrow.compute, which keeps the ids that _pack_bfd takes: its result holds no ids."""
        taken = self.taken

        class Compute:
            def __getattr__(self, name):
                return getattr(compute, name)

            def take(self, values, ids):
                taken.append(ids)
                return compute.take(values, ids)

        return Compute()

    def placement_loop(self, tree):
        """The statements of _pack_bfd from the segment tree to the end of the loop, as a function of their own."""
        path = pathlib.Path(tree, MODULES["trl"])
        whole = next((node for node in ast.parse(path.read_text(encoding="utf-8")).body
                      if isinstance(node, ast.FunctionDef) and node.name == "_pack_bfd"), None)
        body = whole.body if whole else []
        first = next((i for i, node in enumerate(body) if isinstance(node, ast.Assign)
                      and getattr(node.targets[0], "id", "") == "segment_tree"), None)
        last = next((i for i, node in enumerate(body) if first is not None and i > first and isinstance(node, ast.For)), None)
        if last is None:
            raise Unfit(f"{path}: _pack_bfd has no placement loop that is known here; install pyarrow to run it whole")
        place = ast.parse("def place(lengths, seq_length):\n    return bins").body[0]
        place.body[:0] = body[first:last + 1]
        exec(compile(ast.Module([place], []), str(path), "exec"), self.module.__dict__)
        return self.module.place

    def prepare(self, lengths, budget):
        import numpy
        counts = numpy.array(lengths, dtype=numpy.int64)
        window = len(counts) if self.whole else WINDOW
        starts = range(0, len(counts), window)
        if self.arrow:
            import pyarrow
            offsets = numpy.concatenate(([0], numpy.cumsum(counts)))
            small = offsets[-1] < 2**31
            kind = pyarrow.ListArray if small else pyarrow.LargeListArray
            tokens = pyarrow.array(numpy.zeros(offsets[-1], dtype=numpy.int8))
            column = kind.from_arrays(offsets.astype(numpy.int32 if small else numpy.int64), tokens)
            table = pyarrow.table({"input_ids": column})

            def run():
                self.taken.clear()
                return [self.pack(table.slice(start, window), budget) for start in starts]
        else:
            def run():
                return [self.place(Sorted(numpy, counts[start:start + window]), budget) for start in starts]
        self.starts = starts
        return run

    def packs(self, result):
        for window, (start, packed) in enumerate(zip(self.starts, result)):
            if not self.arrow:
                yield from ([start + int(i) for i in one["ids"]] for one in packed)
                continue
            ids = [start + int(i) for i in self.taken[window]]
            ends = packed["seq_lengths"].combine_chunks()
            ends = getattr(ends, "chunks", [ends])[0].offsets.to_pylist()
            yield from (ids[begin:end] for begin, end in zip(ends, ends[1:]))


class Sorted:
    """Lengths and ids, longest first, with the two calls that TRL's loop makes of pyarrow's struct array."""

    def __init__(self, numpy, lengths):
        order = numpy.argsort(-lengths, kind="stable")
        self.fields = [lengths[order], order]

    def field(self, index):
        return types.SimpleNamespace(to_numpy=lambda: self.fields[index])


class Fairseq:
    """`batch_by_size_vec`, compiled if that could be done, on the lengths as given or sorted as its data sets do."""
    padded = True

    def __init__(self, job):
        if not has("numpy"):
            raise Unfit("this Python has no numpy")
        self.sorts = job["variant"] == "sorted"
        self.how = job["built"]["how"]
        if job["built"]["module"]:
            loader = importlib.machinery.ExtensionFileLoader("data_utils_fast", job["built"]["module"])
            spec = importlib.util.spec_from_file_location("data_utils_fast", job["built"]["module"], loader=loader)
            self.module = importlib.util.module_from_spec(spec)
            loader.exec_module(self.module)
        else:
            self.module = without_types(pathlib.Path(job["tree"], MODULES["fairseq"]))
        self.pack = function_of(self.module, "batch_by_size_vec")

    def prepare(self, lengths, budget):
        import numpy
        ids = numpy.arange(len(lengths), dtype=numpy.int64)
        counts = numpy.array(lengths, dtype=numpy.int64)

        def run():
            if not self.sorts:
                return self.pack(ids, counts, budget, -1, 1)
            order = numpy.argsort(counts, kind="mergesort")
            return self.pack(order, counts[order], budget, -1, 1)
        return run

    def packs(self, result):
        return (batch.tolist() for batch in result)


def without_types(path):
    """The module with batch_by_size_vec read as Python: its C types are left out."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r"^cpdef list (batch_by_size_vec\(.*?\n\):)(.*?)(?=^@|\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise Unfit(f"{path} has no batch_by_size_vec that can be read as Python")
    head = re.sub(r"^\s+(?:[\w.]+\[[^\]]*\]|\w+) (\w+),", r"    \1,", found.group(1), flags=re.MULTILINE)
    body = re.sub(r"^(\s+)cdef [\w.]+(?:\[[^\]]*\])? (\w+ =)", r"\1\2", found.group(2), flags=re.MULTILINE)
    import numpy
    module = types.ModuleType("data_utils_fast")
    module.__file__ = str(path)
    module.np = numpy
    exec(compile(f"def {head}{body}", str(path), "exec"), module.__dict__)
    return module


class DeepSpeed:
    """`batch_by_seqlens` as its data loader calls it."""
    padded = False
    how = ""

    def __init__(self, job):
        module = load(job["tree"], "deepspeed", ["deepspeed", "torch"] + ([] if has("numpy") else ["numpy"]))
        self.pack = function_of(module, "batch_by_seqlens")

    def prepare(self, lengths, budget):
        numbers = list(lengths)
        return lambda: self.pack(numbers, budget)

    def packs(self, result):
        return (ids for _, ids in result[0])


PEERS = {"trl": Trl, "fairseq": Fairseq, "deepspeed": DeepSpeed}


def compile_fairseq(tree, folder):
    """Cython and the compiler with fairseq's own flags. {"module": path or None, "how": words for the table}."""
    compiler = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
    missing = [words for words, there in (("no Cython", has("Cython")), ("no numpy", has("numpy")),
                                          ("no C++ compiler", compiler)) if not there]
    if not missing:
        import numpy
        source = pathlib.Path(tree, MODULES["fairseq"])
        made, module = pathlib.Path(folder, "data_utils_fast.cpp"), pathlib.Path(folder, "data_utils_fast.so")
        includes = [f"-I{path}" for path in (sysconfig.get_paths()["include"], numpy.get_include())]
        for command in ([sys.executable, "-m", "cython", "-3", "--cplus", str(source), "-o", str(made)],
                        [compiler, "-std=c++11", "-O3", "-shared", "-fPIC", "-w", *includes, str(made), "-o", str(module)]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                print(done.stdout, file=sys.stderr)
                missing.append(f"{pathlib.Path(command[0]).name} failed")
                break
        else:
            return {"module": str(module), "how": "compiled with Cython"}
    return {"module": None, "how": f"read as plain Python: {', '.join(missing)}"}
