"""The Python package of an installation plans with the plugins that were installed with it, and with no others.

    python_package.py PREFIX
"""
import pathlib
import re
import sys

import pliant

PREFIX = pathlib.Path(sys.argv[1]).resolve()
POLICY = 'config_version = 1\n[elasticity]\nuse = "{0}"\n[elasticity."{0}"]\nmax_train_batch_size = 96\nmicro_batch_sizes = [2, 4]\n'

assert PREFIX in pathlib.Path(pliant.__file__).resolve().parents, pliant.__file__
assert pliant.plan(pliant.Config.parse(POLICY.format("v0.1")), 4).global_batch > 0
try:
    pliant.Config.parse(POLICY.format("nowhere"))
except pliant.Error as error:
    folders = re.findall(r"(/\S+/plugins-1) \(", str(error))
    assert folders, error
    for folder in folders:
        assert pathlib.Path(folder).resolve() == PREFIX / "lib/pliant/plugins-1", error
else:
    sys.exit("a policy that is not installed was found")
