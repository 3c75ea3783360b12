"""Nothing in the package runs text as code or unpickles: read from the source, so that no call slips in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mlayer

SOURCE = Path(mlayer.__file__).parent

# Whatever runs or unpacks what it is given. Names of functions, however they are imported.
CALLS = {
    "eval": "runs text",
    "exec": "runs text",
    "compile": "text to code",
    "__import__": "imports what a text names",
    "sympify": "evaluates strings, also inside lists",
    "parse_expr": "evaluates strings",
    "lambdify": "writes code and runs it",
    "parse_latex": "evaluates strings",
    "nsimplify": "sympifies",
    "read_pickle": "unpickles",
    "to_pickle": "pickles",
    "system": "a shell",
    "popen": "a shell",
    "getoutput": "a shell",
    "extractall": "writes where an archive says",
    "mktemp": "a race",
    "unsafe_load": "builds objects from YAML",
    "full_load": "builds objects from YAML",
}
# Functions of these modules, by the module's usual names.
FROM_MODULES = {
    ("torch", "load"): "unpickles; safetensors instead",
    ("yaml", "load"): "builds objects",
    ("joblib", "load"): "unpickles",
    ("joblib", "dump"): "pickles",
    ("torch", "save"): "pickles",
    ("sympy", "S"): "sympifies",
}
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle"}
MODULES |= {"code", "pty", "subprocess"}
# Compiled patterns are no code; classes have methods of such names.
ALLOWED = {("re", "compile"), ("torch", "compile")}


# Files that start a program of their own choosing, with arguments that no data reach: the compiler, git.
START_PROGRAMS = {"exponential/build.py", "experiments/running/provenance.py"}


def complaints(code: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"imports {n}" for n in names if n.split(".")[0] in MODULES]
            if isinstance(node, ast.ImportFrom):
                found += [f"imports {a.name}: {CALLS[a.name]}" for a in node.names if a.name in CALLS]
        if isinstance(node, ast.Call):
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            module = owner.id if isinstance(owner, ast.Name) else ""
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            evaluation_mode = owner is not None and name == "eval" and not node.args  # of a module
            if name in CALLS and (module, name) not in ALLOWED and not evaluation_mode:
                found.append(f"calls {name}: {CALLS[name]}")
            if (module, name) in FROM_MODULES:
                found.append(f"calls {module}.{name}: {FROM_MODULES[module, name]}")
            arguments = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
            if arguments.get("shell"):
                found.append("shell=True")
            if (module in ("np", "numpy") and name == "load") and arguments.get("allow_pickle") is not False:
                found.append("numpy.load without allow_pickle=False")
    return found


def test_no_code_from_data() -> None:
    found = {
        file.relative_to(SOURCE).as_posix(): complaints(file.read_text(encoding="utf-8"))
        for file in SOURCE.rglob("*.py")
    }
    expected = {file: ["imports subprocess"] for file in START_PROGRAMS}
    assert {file: problems for file, problems in found.items() if problems} == expected


@pytest.mark.parametrize(
    "code",
    [
        "eval(x)",
        "exec(x)",
        "sympy.sympify(x)",
        "from sympy import sympify",
        "sympy.parsing.sympy_parser.parse_expr(x)",
        "sympy.lambdify(x, y)",
        "sympy.S(x)",
        "import pickle",
        "from pickle import load",
        "torch.load(p)",
        "np.load(p)",
        "np.load(p, allow_pickle=True)",
        "yaml.load(p)",
        "yaml.load(p, Loader=yaml.Loader)",
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "import subprocess",
        "pandas.read_pickle(p)",
        "compile(x, '', 'exec')",
        "tar.extractall(p)",
        "joblib.load(p)",
    ],
)
def test_the_check_sees_it(code: str) -> None:
    assert complaints(code)


@pytest.mark.parametrize(
    "code", ["re.compile(x)", "np.load(p, allow_pickle=False)", "model.eval()", "import json"]
)
def test_the_check_lets_pass(code: str) -> None:
    assert not complaints(code)
