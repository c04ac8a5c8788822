"""the package is at home in a process that has libpliant as well, and names a C++ runtime that is too old."""
import ctypes
import os
import pathlib
import re

import pytest
from conftest import lengths_of, toml

LIBRARIES = sorted((pathlib.Path(os.environ["PLIANT_TEST_BIN"]).parent / "lib").glob("libpliant.so.*.*"))


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("needs", ctypes.c_char_p),
                ("sets", ctypes.c_void_p), ("set_count", ctypes.c_uint64), ("plugin_dirs", ctypes.c_void_p),
                ("plugin_dir_count", ctypes.c_uint64), ("name", ctypes.c_char_p)]


class Lengths(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("count", ctypes.c_uint64),
                ("lengths", ctypes.POINTER(ctypes.c_int32)), ("loss_tokens", ctypes.c_void_p), ("content", ctypes.c_uint64),
                ("source", ctypes.c_char_p), ("release", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class View(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("numbers", ctypes.c_int64 * 8),
                ("digest", ctypes.c_uint64), ("entry_count", ctypes.c_uint64), ("offsets", ctypes.c_void_p),
                ("ids", ctypes.POINTER(ctypes.c_int64)), ("first_tokens", ctypes.c_void_p), ("token_counts", ctypes.c_void_p)]


class InC:
    """The batches of a job, by libpliant."""

    def __init__(self, text, lengths):
        self.library = ctypes.CDLL(str(LIBRARIES[0]))
        self.library.pliant_last_message.restype = ctypes.c_char_p
        options = Options(ctypes.sizeof(Options), 1, b"elasticity sampler")
        given = Lengths(ctypes.sizeof(Lengths), 0, len(lengths), (ctypes.c_int32 * len(lengths))(*lengths))
        config, planner, plan, dataset, self.batches = (ctypes.c_void_p() for _ in range(5))
        self.must("config_parse", text.encode(), ctypes.c_uint64(len(text)), ctypes.byref(options), ctypes.byref(config))
        self.must("planner_make", config, ctypes.byref(planner))
        self.must("planner_plan", planner, ctypes.c_int64(0), ctypes.byref(plan))
        self.must("dataset_make", ctypes.byref(given), ctypes.byref(dataset))
        self.must("batches_make", config, plan, dataset, ctypes.byref(self.batches))
        for name, handle in (("dataset", dataset), ("plan", plan), ("planner", planner), ("config", config)):
            assert getattr(self.library, f"pliant_{name}_free")(handle) == 0

    def free(self):
        assert self.library.pliant_batches_free(self.batches) == 0

    def must(self, function, *arguments):
        status = getattr(self.library, "pliant_" + function)(*arguments, None)
        assert status == 0, self.library.pliant_last_message(None)

    def __next__(self):
        batch, view = ctypes.c_void_p(), View(ctypes.sizeof(View))
        self.must("batches_next", self.batches, ctypes.byref(batch))
        if not batch:
            return None
        self.must("batch_look", batch, ctypes.byref(view))
        ids = view.ids[: view.entry_count]
        assert self.library.pliant_batch_free(batch) == 0
        return ids


@pytest.mark.skipif(not LIBRARIES, reason="libpliant was not built")
def test_libpliant_in_the_same_process_gives_the_same_batches_and_each_has_its_own_errors(pliant, config):
    lengths = lengths_of()
    in_c = InC(toml(), lengths)
    batches = pliant.Batches(config, pliant.plan(config), lengths)
    steps = 0
    for batch in batches:
        assert next(in_c) == list(batch.ids)
        steps += 1
    assert steps > 5 and next(in_c) is None
    assert in_c.library.pliant_check_version(1 << 30) != 0
    said = in_c.library.pliant_last_message(None)
    with pytest.raises(pliant.Error):
        pliant.Config.parse("oops")
    assert in_c.library.pliant_last_message(None) == said
    in_c.free()


# Of AddressSanitizer the runtime is loaded before all else, from where it is.
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the tests under AddressSanitizer load a runtime of their own")
def test_an_older_cpp_runtime_as_of_a_conda_environment_is_named_with_what_to_do(run_python, tmp_path, monkeypatch):
    asks = run_python("import pliant; print([line.split()[-1] for line in open('/proc/self/maps') if 'libstdc++' in line][0])")
    runtime = pathlib.Path(asks.stdout.strip()).read_bytes()
    newest = max(re.findall(rb"GLIBCXX_3\.4\.(\d+)\0", runtime), key=int)
    core = run_python("import pliant._core; print(pliant._core.__file__)").stdout.strip()
    needed = max(re.findall(rb"GLIBCXX_3\.4\.(\d+)\0", pathlib.Path(core).read_bytes()), key=int)
    assert int(needed) <= int(newest)
    wanted = b"GLIBCXX_3.4." + needed + b"\0"
    (tmp_path / "libstdc++.so.6").write_bytes(runtime.replace(wanted, wanted.replace(b"GLIBCXX_3", b"GLIBCXX_0")))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    failed = run_python("import pliant", ends_with=1)
    assert "ImportError" in failed.stderr and wanted[:-1].decode() in failed.stderr
    assert "this process has an older libstdc++ than Pliant was built with" in failed.stderr
