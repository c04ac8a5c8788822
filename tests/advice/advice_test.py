#!/usr/bin/env python3
"""Gives what messages advise as they advise it: a command that is pasted ends as it promises, an option or an edit that is
taken mends what was wrong.

    advice_test.py ROOT BUILD [WORDS]     only the rows whose message has WORDS

A row of ROWS is a message: the command that brings it about, words of it, and what is pasted then. Every string of core, plugins,
accelerators, samples and the SDK that advises a command, an option or a value must be that of a row, or of ELSEWHERE with the reason.
"""
import json
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

VERSION = "config_version = 1\n"
V01 = '[elasticity]\nuse = "v0.1"\n[elasticity."v0.1"]\nmax_train_batch_size = 12\nmicro_batch_sizes = [1, 2, 3]\n'
DATA = '[data]\nlengths = "lengths.txt"\n'
LONG = '[data]\nlengths = "long.txt"\n'  # three of 5,000 tokens among them


def elasticity(policy, options):
    return f'[elasticity]\nuse = "{policy}"\n[elasticity."{policy}"]\n{options}\n'


def sampler(name, options=""):
    return f'[sampler]\nuse = "{name}"\n[sampler.{name}]\n{options}\n'


def rate(options):
    return V01 + f"[lr]\n{options}\n"


class Row:
    """`source`: a part of the string in the code. `says`: a pattern of the message. `command` ends with `code`, and with each
    of `pastes` with 0. A paste is a list of words behind the command, or a function that takes the config's text to another.
    A function for `pastes` as a whole makes them of the message. `first`: a line of a shell that runs before."""

    def __init__(self, source, says, config, command, pastes, code=2, mends=True, files=(), first=""):
        self.source, self.says, self.config, self.command = source, says, config, shlex.split(command)
        self.pastes, self.code, self.mends, self.files, self.first = pastes, code, mends, files, first


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def advised_sets(message):
    """A paste for each line of help, with all its --set."""
    pastes = []
    for line in message.splitlines():
        found = re.findall(r"--set ('[^']*'|\S+)", line)
        if found and not line.startswith("{"):
            pastes.append(sets(*(shlex.split(one)[0] for one in found)))
    return pastes


def advised_command(message):
    """The command in backticks, alone."""
    return [Command(re.search(r"`(pliant [^`]*)`", message).group(1))]


class Command:
    """A command that takes the place of the one before."""

    def __init__(self, line):
        self.words = shlex.split(line)[1:]


class Script:
    """A line of a shell that takes the place of the command."""

    def __init__(self, line):
        self.line = line


def imported_commands(message):
    """What the comments of an imported config advise, with 4 for N."""
    comments = re.sub(r"\n# ?", " ", json.loads(message.splitlines()[-1])["toml"])
    lines = [line for line in re.findall(r"`(pliant [^`]*)`", comments) if line not in ("pliant config import", "pliant plan")]
    return [Command(line.replace(" N", " 4")) for line in lines]


def appended(text):
    return lambda config: config + text


CHANGES = "\\n  help: --set '{}' {}: global batch"
OVER_LONG = ". Raise max_tokens, or set over_long = "
COORDINATOR = VERSION + '[coordinator]\nuse = "planned"\n'
SHARDED = VERSION + V01 + '[run]\nworkers = 2\nmax_steps = 2\ncommand = ["sharded_trainer"]\nattach = "required"\n[coordinator]\n'
SIMULATE = "coordinator simulate pliant.toml"
BENCH = {"schema": "pliant.accel_bench/1", "ranks": 1,
         "collectives": [{"what": "all_gather", "bytes": 4096, "time": {"median_s": 1e-5}, "in_a_row": None}]}
MEASURED = Script("pliant accel bench host --only collectives --ranks 2 --sizes 4KiB,1MiB --min-time 0.001 --json > bench.json && "
                  "pliant " + SIMULATE + " --costs bench.json")


def deepspeed(**more):
    block = {"enabled": True, "max_train_batch_size": 12, "micro_batch_sizes": [1, 2, 3], "max_gpus": 12, **more}
    return [("ds.json", json.dumps({"elasticity": block}))]


def batched(rate="sqrt", **more):
    sampling = {"dynamic_batching": {"enabled": True, "max_tokens": 4096, "lr_scaling_method": rate}}
    return [("ds.json", json.dumps({"data_efficiency": {"data_sampling": sampling}, **more}))]


ROWS = [
    # Sizes that are not valid: every line of help, with every policy.
    *(Row(CHANGES, "help: --set ", VERSION + plan, command.replace("SIZE", size), advised_sets)
      for plan, size in ((V01, "5"), (V01, "11"), (elasticity("exact", "max_train_batch_size = 4\nmicro_batch_sizes = [1]"), "6"),
                         (elasticity("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [2, 4]\nmax_gpus = 5"), "6"),
                         (elasticity("v0.1", "max_train_batch_size = 200\nmicro_batch_sizes = [2, 4, 6]"), "9"))
      for command in ("plan pliant.toml --world-size SIZE", "plan pliant.toml --world-size SIZE --json",
                      "run pliant.toml --workers SIZE -- true")),
    Row("widen the limits in [elasticity", r'widen the limits in \[elasticity."v0.1"\]',
        VERSION + elasticity("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [3]\nmin_gpus = 7\nmax_gpus = 9"),
        "plan pliant.toml", [sets('elasticity."v0.1".min_gpus=1')]),
    Row(" rows evenly; widen the limits", "widen the limits, or use = \"exact\" with the same max_train_batch_size",
        VERSION + elasticity("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [3]\nmin_gpus = 7\nmax_gpus = 9\nstrict = true"),
        "plan pliant.toml",
        [sets("elasticity.use=exact", "elasticity.exact.max_train_batch_size=12", "elasticity.exact.micro_batch_sizes=[3]"),
         sets('elasticity."v0.1".min_gpus=1')]),
    # Sections and keys that are missing.
    Row("write config_version = 1 on the first line", "write config_version = 1", V01, "plan pliant.toml",
        [lambda config: VERSION + config]),
    Row("write [{}] and below it use = ", r'write \[elasticity\] and below it use = "exact"', VERSION, "plan pliant.toml",
        [appended('[elasticity]\nuse = "exact"\n')], mends=False),
    Row("write use = \\\"{}\\\" below", r'write use = "exact" below \[elasticity\]', VERSION + "[elasticity]\n",
        "plan pliant.toml", [appended('use = "exact"\n')], mends=False),
    Row("write {} = <{}{}> in [{}]", r"write micro_batch_sizes = <int list.*> in \[elasticity.exact\]",
        VERSION + elasticity("exact", "max_train_batch_size = 12"), "plan pliant.toml", [appended("micro_batch_sizes = [1]\n")]),
    Row("lengths is missing; set it to a file", r"\[data\] lengths is missing; set it to a file", VERSION + sampler("fixed"), "pack pliant.toml",
        [sets("data.lengths=lengths.txt")]),
    Row("nothing to run: give [run] command", "or a program after `--`", VERSION, "run pliant.toml",
        [["--", "true"], appended('[run]\ncommand = ["true"]\n')]),
    Row("CONFIG is missing", "pliant run --workers 2 -- python3 train.py", "", "run",
        lambda message: [Command(message[message.index("pliant run"):])], files=[("train.py", "print('hello')\n")]),
    Row("\\n  see {} --help", r"unknown option '--world'.*\n  see pliant plan --help", VERSION + V01, "plan pliant.toml --world 5",
        lambda message: [Command(message[message.index("see ") + 4:])]),
    Row("another name, or overwrite it with --force", "overwrite it with --force", "{}", "config import ds.json --output pliant.toml",
        [["--force"]], files=[("ds.json", '{"elasticity": {"enabled": true, "max_train_batch_size": 12, "micro_batch_sizes": [1, 2, 3]}}')]),
    Row("no such file and no such plugin", "pliant plugin list shows", "", "plugin check no-such",
        lambda message: [Command("pliant plugin list")], code=3),
    Row("start one without --resume", "start one without --resume", VERSION, "run pliant.toml --resume -- true",
        lambda message: [Command("pliant run pliant.toml -- true")]),
    # Sharded state.
    Row("--memory: {} has no [coordinator]", "add --set coordinator.use=planned", VERSION + V01,
        "plan pliant.toml --memory model.safetensors", advised_sets),
    Row("{} has no [coordinator]; add --set", "add --set coordinator.use=planned", VERSION, "coordinator simulate pliant.toml",
        advised_sets),
    Row("this program shards its model, which needs a coordinator", "add --set coordinator.use=planned",
        VERSION + V01 + '[run]\nworkers = 2\nmax_steps = 2\ncommand = ["sharded_trainer"]\nattach = "required"\n', "run pliant.toml",
        advised_sets),
    Row(" or read it with `pliant trace {}`", "or read it with `pliant trace ",
        VERSION + V01 + '[run]\nworkers = 2\nmax_steps = 2\ncommand = ["sharded_trainer"]\nattach = "required"\n[coordinator]\n',
        "run pliant.toml --trace trace.json", advised_command, code=0),
    Row("--lists shows one simulation only", "omit it with --compare or --budget", COORDINATOR, SIMULATE + " --lists --compare planned,eager",
        [Command(f"pliant {SIMULATE} --compare planned,eager"), Command(f"pliant {SIMULATE} --lists")]),
    Row("give the budgets with --budget", "give the budgets with --budget", COORDINATOR, SIMULATE + " --plot curve.svg",
        [["--budget", "512MiB,1GiB"]]),
    Row("give two or more budgets, e.g. --budget", "give two or more budgets", COORDINATOR, SIMULATE + " --plot curve.svg --budget 1GiB",
        lambda message: [Command(f"pliant {SIMULATE} --plot curve.svg " + re.search(r"--budget \S+,\S+", message).group(0))]),
    Row("give whole bytes with a unit", "--budget '64': give whole bytes", COORDINATOR, SIMULATE + " --budget 64",
        lambda message: [Command(f"pliant {SIMULATE} --budget " + re.search(r"e.g. (\S+)", message).group(1))]),
    Row("give the compute cost yourself", "--flops RATE and --tokens N", SHARDED, SIMULATE + " --trace beside.json",
        [["--flops", "100T", "--tokens", "4096"]],
        first="pliant -q run pliant.toml --trace trace.json && sed 's/\"host_visible\":true/\"host_visible\":false/' trace.json > beside.json"),
    Row("trace a job that has [coordinator]", r"^(?!.*--set).*without sharding", VERSION + V01, "plan pliant.toml --memory plain.json",
        [Command("pliant plan sharded.toml --memory trace.json")], files=[("sharded.toml", SHARDED)],
        first="pliant -q run pliant.toml --workers 2 --trace plain.json --set run.attach=required --set run.max_steps=2 -- device_trainer && "
              "pliant -q run sharded.toml --trace trace.json"),
    Row("has no time of all_gather; measure the part", 'measure the part "collectives"', COORDINATOR, SIMULATE + " --costs bench.json",
        [MEASURED], files=[("bench.json", json.dumps({**BENCH, "collectives": []}))]),
    Row("where nothing passes between ranks; measure", "measure with --ranks 2 or more", COORDINATOR, SIMULATE + " --costs bench.json",
        [MEASURED], files=[("bench.json", json.dumps(BENCH))]),
    Row("Its own limits are max_live_parameters", '"planned" keeps a budget', COORDINATOR,
        SIMULATE + " --set coordinator.use=zero3 --set coordinator.budget=16777216", [sets("coordinator.use=planned")]),
    # Files and folders.
    Row("give --output, too", "give --output, too", "", "config import ds.json --force", [["--output", "made.toml"]], files=deepspeed()),
    Row("exists already; name another folder", "name another folder with --dir", "", "plugin new elasticity mine", [["--dir", "other"]],
        files=[("mine/there.txt", "")]),
    Row(" log_dir, or pass --log-dir", "or pass --log-dir", VERSION + '[run]\nlog_dir = "/proc/none"\n', "run pliant.toml -- true",
        [["--log-dir", "here"], sets("run.log_dir=here")], code=1),
    # What an imported config says of itself.
    *(Row(source, "pliant config check made.toml", "", "config import ds.json --output made.toml --force --json", imported_commands, code=0,
          files=files)
      for source, files in (("Next: `pliant config check", deepspeed(version=0.1)), (", then `pliant plan {} --world-size N`", deepspeed()),
                            ("added to the options below, fixes", deepspeed(version=0.1)),
                            ("makes every world size valid: call the table", deepspeed(version=0.2)),
                            (" It plans for existing devices", deepspeed(version=0.2)),
                            ("A plan also needs an [elasticity] section", batched()))),
    Row('the rule \\"linear\\" refuses', 'with use = "sqrt" set lr.optimizer = "adamw"', VERSION, "config import ds.json --output made.toml",
        [Command("pliant config check made.toml --set lr.use=sqrt --set lr.optimizer=adamw")], code=0,
        files=batched("linear", optimizer={"type": "AdamW", "params": {"lr": 3e-4}})),
    # Programs of the embedding API.
    Row("this program uses the embedding API, which needs a plan", "for example --set elasticity.use=exact",
        VERSION + '[sampler]\nuse = "fixed"\n[run]\nattach = "required"\n', "run pliant.toml -- TOY", advised_sets),
    Row("accelerator '{}' finds no device on this machine", "", "", "version", lambda message: [Command("pliant accel list")], code=0),
    # Samplers.
    Row("Use a smaller global batch, or set tail", 'set tail = "keep"', VERSION + DATA + sampler("fixed", 'tail = "drop"'),
        "pack pliant.toml --global-batch 100000", [sets("sampler.fixed.tail=keep")]),
    Row("Use a smaller global batch or max_tokens, or set strict", "set strict = true",
        VERSION + DATA + sampler("seqlen", "max_tokens = 4096"), "pack pliant.toml --global-batch 100000",
        [sets("sampler.seqlen.strict=true")]),
    *(Row(OVER_LONG, "Raise max_tokens, or set over_long = ", VERSION + LONG + sampler(name, "max_tokens = 512\nover_long = \"error\""),
          "pack pliant.toml",
          [sets(f"sampler.{name}.over_long={how}") for how in ("split", "truncate", "drop")] + [sets(f"sampler.{name}.max_tokens=5000")])
      for name in ("best_fit", "next_fit", "streaming")),
    Row("; raise it to ", "raise it to 64 or lower open_packs", VERSION + DATA + sampler("streaming", "max_tokens = 512\nopen_packs = 32\nmax_wait = 5"),
        "pack pliant.toml", [sets("sampler.streaming.max_wait=64"), sets("sampler.streaming.open_packs=2")]),
    *(Row(', or set over_long = \\"drop\\" to leave them out', 'raise max_tokens to 5000, or set over_long = "drop"',
          VERSION + LONG + sampler(name, 'max_tokens = 512\nover_long = "error"'), "pack pliant.toml",
          [sets(f"sampler.{name}.over_long=drop"), sets(f"sampler.{name}.max_tokens=5000")]) for name in ("fixed", "seqlen")),
    Row("has no cost; remove quadratic_length", "remove quadratic_length, or set budget_unit",
        VERSION + DATA + sampler("best_fit", 'max_tokens = 4096\nbudget_unit = "loss_tokens"\nquadratic_length = 512'), "pack pliant.toml",
        [sets("sampler.best_fit.budget_unit=cost"), lambda config: config.replace("quadratic_length = 512", "")]),
    Row("cannot be used with budget_unit", 'use over_long = "error" or "drop"',
        VERSION + DATA + sampler("best_fit", 'max_tokens = 4096\nbudget_unit = "loss_tokens"\nover_long = "split"'), "pack pliant.toml",
        [sets("sampler.best_fit.over_long=error"), sets("sampler.best_fit.over_long=drop")]),
    Row("uses every piece of a sequence", 'use over_long = "truncate"',
        VERSION + DATA + sampler("best_fit", 'max_tokens = 4096\nover_long = "split"\ntail = "drop"'), "pack pliant.toml",
        [sets("sampler.best_fit.over_long=truncate")]),
    Row('. Add rows with them, or set unused = ', 'set unused = "drop" to leave them out',
        VERSION + DATA + sampler("rows", 'offsets = "offsets.npy"\nids = "ids.npy"'), "pack pliant.toml", [sets("sampler.rows.unused=drop")]),
    Row(". Pack them again, or raise max_tokens to ", "raise max_tokens to 667",
        VERSION + DATA + sampler("rows", 'offsets = "offsets.npy"\nids = "ids.npy"\nunused = "drop"\nmax_tokens = 600'), "pack pliant.toml",
        [sets("sampler.rows.max_tokens=667")]),
    # Rules of the learning rate.
    Row("these optimizers normalise it", 'set use = "sqrt", or force it with use = "power" and exponent = 1',
        VERSION + rate('use = "linear"\noptimizer = "adamw"'), "run pliant.toml -- true",
        [sets("lr.use=sqrt"), sets("lr.use=power", "lr.power.exponent=1")]),
    Row("the stochastic differential equation of Adam", 'for sgd set use = "linear", for other optimizers use = "sqrt"',
        VERSION + rate('use = "adam_sde"\noptimizer = "sgd"'), "run pliant.toml -- true", [sets("lr.use=linear"), sets("lr.use=sqrt")]),
    Row("depends on the optimizer: set [lr] optimizer", r"set \[lr\] optimizer", VERSION + rate('use = "adam_sde"'), "run pliant.toml -- true",
        [sets("lr.optimizer=adamw", "lr.beta1=0.9", "lr.beta2=0.95", "lr.epsilon=1e-8")]),
    Row("its gain compares the variance", 'variant = "adam" of this rule', VERSION + rate('use = "adascale"\noptimizer = "adamw"'),
        "run pliant.toml -- true", [sets("lr.use=sqrt"), sets("lr.adascale.variant=adam")]),
    Row("the peak comes from the sign in the step", 'for sgd set use = "noise_scale"',
        VERSION + rate('use = "surge"\noptimizer = "sgd"\n[lr.surge]\nnoise_batch = 1000'), "run pliant.toml -- true",
        [sets("lr.use=noise_scale", "lr.noise_scale.noise_batch=1000")]),
    Row("the weight decay of plain adam is part of the gradient", "use adamw, or set weight_decay = false",
        VERSION + rate('use = "sqrt"\nthen = ["timescale"]\noptimizer = "adam"\nweight_decay = 0.1\n[lr.timescale]\nweight_decay = true'),
        "run pliant.toml -- true", [sets("lr.optimizer=adamw"), sets("lr.timescale.weight_decay=false")]),
]

# Strings that advise, and why no row pastes them.
ELSEWHERE = {
    "Example": "help: docs/tutorial and the tests of each command run its examples",
    "pliant config show pliant.toml --origin": "help",
    "; same as --set run.": "help",
    "from this file, written by `pliant accel bench NAME --json`": "help",
    "Open it in ui.perfetto.dev or read it with `pliant trace`": "help",
    " completion of pliant. Written by `pliant completion": "the first line of a script",
    "as `pliant plan` shows it": "says what a column is",
    "The file that `pliant run --trace FILE` wrote": "help",
    "--costs: {} {}; give a file written by `pliant accel bench NAME --json`": "takes minutes: tests/negative/accel_command_test.cpp",
    "--set has no effect here": "says to which command --set belongs",
    "only `pliant run` takes a program after --": "says what was wrong",
    "another `pliant run` is using": "says what was wrong",
    "is not a trace of `pliant run --trace`": "says what was wrong",
    "this program was built with another version of Pliant than": "to build again is no command of Pliant's",
    "start it with `pliant run CONFIG -- PROGRAM`": "the two words stand for what only its reader knows",
    "the plan has no micro-batch for": "a plan that has the size gives one: a guard",
    "gives rank {} two of the {} granules": "tests/integration/sharded_test.cpp: a balancer that deals otherwise",
    "or skip such steps with [run] on_nonfinite": "tests/integration/nonfinite_test.cpp",
    " fit a pack. Raise max_tokens": "of rows that are read one by one: tests/unit/sampler",
    "set [coordinator.zero3] strict = true": "of zero3: tests/unit/coordinator/zero3_strict_test.cpp",
    "times the base, or set clamp = true": "while a job runs: tests/unit/lr",
    "allocate PLIANT_MEMORY_DEVICE": "needs a GPU: tests/unit/accelerator/cuda_nccl_test.cpp",
    "is not in this build: it was made without the headers of Gloo": "of another build",
    "set the same transport on all ranks": "tests/unit/accelerator/gloo_rendezvous_test.cpp",
    "--inject: at=bucket exists where buckets": "of a job with a worker: tests/integration/buckets_test.cpp",
    "asks for the base rate of a group": "a program asks while a job runs, and its rate is what only its reader knows",
    "Required with transport": "the text of an option",
    "is allowed only with transport = ": "tests/unit/accelerator/gloo_rendezvous_test.cpp",
    "uses the square root of the gain": "tests/unit/lr: a rule that refuses an optimizer",
    "with exchange = false": "says what was asked for",
    "with aligned = false": "says what was asked for",
    "with registers = false": "says what was asked for",
    "with spends = false": "says what was asked for",
    "with clock = ": "the text of an option",
    "' --set '": "stands between the options of a line of help",
    "--set run.workers=2": "the name of an option that was given",
    "--set '": "the name of an option that was given",
    "an option of the plugin and its value, e.g. --set": "help",
    "Overwrite the file of --output": "help",
    "config_version = 1\\n[run]": "a config in a sample",
    "Written by `pliant config import`": "the first line of a config",
    "plans no nodes; give --world-size": "of a policy of a stranger: ours plan nodes",
    "base_batch = N, with N": "N is what only its reader knows: tests/parity/dynamic_batching.cpp",
    "for DeepSpeed's rates set lr.base_batch": "the same",
    "monitoring belongs to the training program": "says where a key's work is done",
    "does not tune by trial": "says where a key's work is done",
    "starts the workers: run.command": "says where a key's work is done",
    "the plan decides it, for every world size": "says where a key's work is done",
    "name more places to search with --plugin-dir": "of an installation without plugins",
    "because none is searched; use --plugin-dir": "of an installation without plugins",
    "free memory or lower --ranks": "needs a machine that is out of memory",
    "choose another with --step": "tests/negative/trace_command_test.cpp",
    "; raise it, or use fewer micro-batches per pass": "tests/negative/trace_command_test.cpp",
    "raise it, or choose a coordinator": "of a coordinator that gathers more than it said: tests/unit/sharded/passes_test.cpp",
    "is more than the free memory of the device": "tests/unit/sharded/budget_test.cpp",
    "bytes in one piece besides the parameters": "of planned: tests/unit/coordinator_planned/nested_test.cpp",
    "; raise it": "of planned: tests/unit/coordinator_planned/nested_test.cpp; of limits of the system",
    "remove files or raise it, and start again": "needs a full disk",
    "raise it (`ulimit -f`) and start again": "a limit of the shell: tests/unit/elastic/ledger_disk_test.cpp",
    "sentences are too long. Raise max_sequence": "tests/unit/tinylm/corpus_test.cpp",
    "tinylm computes on the CPU": "tests/integration/tinylm_test.cpp",
    "to train with it replicated, or set accelerator.use": "tests/integration/tinylm_test.cpp",
    "refuses to plan under every drawn set": "of a plugin that refuses its own defaults",
    "it refuses every drawn epoch": "of a plugin that refuses its own defaults",
}

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
ADVISES = re.compile(r"`pliant |--set [^K]|\b(?:set|write|use|with|take|leave) (?:out )?[\[a-z_\]. ]* ?= |use = ")


# An option that a sentence asks for: "give --flops RATE", "or pass --log-dir".
ASKS = re.compile(r"(?:^|[;:,(.] |\b(?:or|and) )(?:add|choose|drop|free|give|leave|lower|measure|name|omit|overwrite|pass|raise|record|remove|"
                  r"repeat|run|set|start|take|try|use|write)\b(?:e\.g\.|[^.;])*--[a-z]|\b(?:raise|lower) it\b|give whole bytes", re.IGNORECASE)
ROOMS = ("accelerators", "core", "plugins", "samples", "sdk")
ENDINGS = (".c", ".cpp", ".h", ".hpp")


def strings_of(file):
    """Its string literals, those that stand one behind the other as one."""
    text = re.sub(r"^\s*(//|#include).*$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    strings, end = [], None
    for found in STRING.finditer(text):
        if end is not None and not text[end:found.start()].strip():
            strings[-1] += found.group(1)
        else:
            strings.append(found.group(1))
        end = found.end()
    return strings


def unknown_advice(root):
    known = [row.source for row in ROWS] + list(ELSEWHERE)
    used = set()
    for room in ROOMS:
        for file in sorted(one for one in (root / room).rglob("*") if one.suffix in ENDINGS):
            for text in strings_of(file):
                named = [words for words in known if words in text]
                used.update(named)
                if (ADVISES.search(text) or ASKS.search(text)) and not named:
                    yield f"{file.relative_to(root)}: no row of ROWS brings about: {text[:200]}"
    for words in known:
        if words not in used:
            yield f"no string of the code has the words of a row: {words}"


def safetensors():
    header = json.dumps({"layer.weight": {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(256)


def npy(values):
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(values)},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}q", *values)


class Folder:
    """Where the command of a row, and what is pasted then, runs."""

    def __init__(self, row, build, path):
        self.build, self.path = build, pathlib.Path(path)
        (self.path / "lengths.txt").write_text("".join(f"{40 + 7 * i % 300}\n" for i in range(200)))
        (self.path / "long.txt").write_text("".join("5000\n" if i % 70 == 3 else "100\n" for i in range(200)))
        (self.path / "offsets.npy").write_bytes(npy(range(0, 199, 2)))  # rows of two sequences, but for the last two of lengths.txt
        (self.path / "ids.npy").write_bytes(npy(range(198)))
        (self.path / "model.safetensors").write_bytes(safetensors())
        for file, text in row.files:
            (self.path / file).parent.mkdir(exist_ok=True)
            (self.path / file).write_text(text)

    def run(self, words, config):
        """`words`: of a command of pliant, or a Script."""
        if not isinstance(words, Script):
            words = [str(self.build / "bin/pliant"), *(str(self.build / "tests/toy_worker") if word == "TOY" else word for word in words)]
        if config:
            (self.path / "pliant.toml").write_text(config)
        environment = dict(os.environ, PATH=f"{self.build / 'bin'}{os.pathsep}{os.environ['PATH']}", LC_ALL="C.UTF-8")
        done = subprocess.run(["bash", "-c", words.line] if isinstance(words, Script) else words, cwd=self.path, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr + done.stdout


def behind(command, words):
    """`command` with `words`, those of pliant before a program's."""
    if "--" not in command or words[:1] == ["--"]:
        return command + words
    at = command.index("--")
    return command[:at] + words + command[at:]


def problems_of(row, build):
    """What is not as the row says."""
    with tempfile.TemporaryDirectory() as path:
        return problems_in(Folder(row, build, path), row)


def problems_in(folder, row):
    if row.first:
        code, message = folder.run(Script(row.first), row.config)
        if code != 0:
            return [f"{row.first} ended with {code}:\n{message}"]
    code, message = folder.run(row.command, row.config)
    line = "pliant " + shlex.join(row.command)
    if code != row.code or not re.search(row.says, message, re.DOTALL):
        return [f"{line} ended with {code} and did not say {row.says!r}:\n{row.config}\n{message}"]
    problems = []
    pastes = row.pastes(message) if callable(row.pastes) else row.pastes
    if not pastes:
        problems.append(f"{line}: nothing can be pasted of:\n{message}")
    for paste in pastes:
        config = paste(row.config) if callable(paste) else row.config
        words = (paste if isinstance(paste, Script) else paste.words if isinstance(paste, Command) else row.command if callable(paste)
                 else behind(row.command, paste))
        code, said = folder.run(words, config)
        same = row.says and row.code != 0 and re.search(row.says, said, re.DOTALL)
        if (row.mends and code != 0) or same:
            pasted = words.line if isinstance(words, Script) else "pliant " + shlex.join(words)
            problems.append(f"{line} said:\n{message}\nand {pasted} ended with {code}:\n{config}\n{said}")
    return problems


def main():
    root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    wanted = [row for row in ROWS if len(sys.argv) < 4 or sys.argv[3] in row.source]
    problems = [problem for row in wanted for problem in problems_of(row, build)]
    problems += unknown_advice(root)
    print("\n\n".join(problems) or f"{len(wanted)} pieces of advice work")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
