"""the stubs name what the module has, with the same parameters, and nothing else."""
import ast
import pathlib
import re

import pytest

import pliant._core

STUB = ast.parse(pathlib.Path(pliant._core.__file__).with_name("_core.pyi").read_text())
OWN = {"__init__", "__len__", "__getitem__", "__iter__", "__next__", "__eq__", "__hash__", "__contains__", "__enter__", "__exit__"}


def stubbed(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, node


def is_shown(name):
    return name in OWN or not (name.startswith("__") and name.endswith("__"))


def parameters_of(function):
    """Names as nanobind says them: "def f(self, a: int, *, b: str = 'x') -> int"."""
    signature = function.__nb_signature__[0][0]
    inside = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    inside = re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", re.sub(r"\[[^\[\]]*\]", "", inside)))
    return [re.split(r"[:=]", part)[0].strip() for part in inside.split(",") if part.strip() not in ("", "/")]


def parameters_in(stub):
    names = [argument.arg for argument in stub.args.posonlyargs + stub.args.args]
    return names + (["*"] if stub.args.kwonlyargs else []) + [argument.arg for argument in stub.args.kwonlyargs]


def is_named(name):
    return not re.fullmatch(r"arg\d*", name)


CLASSES = {name: node for name, node in stubbed(STUB.body) if isinstance(node, ast.ClassDef)}


def test_module_and_stubs_have_the_same_names():
    assert {name for name, _ in stubbed(STUB.body)} - {"__version__"} == {name for name in vars(pliant._core) if is_shown(name)}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_members(name):
    members = {member for member in vars(getattr(pliant._core, name)) if is_shown(member)}
    said = {member for member, _ in stubbed(CLASSES[name].body)}
    if "__init__" not in said:  # there is one all the same, which refuses
        members.discard("__init__")
        with pytest.raises(TypeError):
            getattr(pliant._core, name)()
    assert said == members


def functions():
    for name, node in stubbed(STUB.body):
        if isinstance(node, ast.FunctionDef):
            yield name, node, getattr(pliant._core, name)
    for of, cls in CLASSES.items():
        for name, node in stubbed(cls.body):
            runtime = getattr(getattr(pliant._core, of), name)
            if hasattr(runtime, "__nb_signature__"):
                yield f"{of}.{name}", node, runtime


@pytest.mark.parametrize("name, stub, runtime", [pytest.param(*one, id=one[0]) for one in functions()])
def test_functions_have_the_same_parameters(name, stub, runtime):
    known, said = parameters_of(runtime), parameters_in(stub)
    if any(decorator.id == "staticmethod" for decorator in stub.decorator_list if isinstance(decorator, ast.Name)):
        known = [parameter for parameter in known if parameter != "self"]
    assert len(known) == len(said)
    for one, other in zip(known, said):
        assert one == other or not is_named(one), (known, said)
