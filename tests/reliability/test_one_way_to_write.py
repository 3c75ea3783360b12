"""Files are written by `mlayer.disk` alone, all or nothing. Read from the source: no call slips in."""

from __future__ import annotations

import ast
from pathlib import Path

import mlayer

SOURCE = Path(mlayer.__file__).parent
# Calls that change the disk, by the name of the method or function.
CHANGES = {
    *(
        "write_text",
        "write_bytes",
        "touch",
        "unlink",
        "rename",
        "mkdir",
        "rmdir",
        "symlink_to",
        "hardlink_to",
    ),
    *("remove", "makedirs", "rmtree", "copy2", "copyfile", "copytree", "move"),
    *("savez", "savez_compressed", "savefig", "to_csv", "to_parquet", "save_file"),
    *("mkstemp", "mkdtemp", "NamedTemporaryFile"),
}
# Who may all the same, and why.
ALLOWED = {
    "certificates/problem/constants.py": {"savez"},  # into memory
    "cli/commands/certify.py": {"to_csv"},  # inside replace_file, as are those below
    "cli/commands/fit.py": {"mkdtemp"},  # for a model whose own place can no longer be written
    "cli/commands/explain.py": {"savefig"},
    "experiments/running/runner.py": {"savefig", "unlink", "rmtree", "rmdir"},  # checkpoints of what is done
    "experiments/shared/pictures.py": {"savefig"},  # into memory
    "exponential/build.py": {"unlink"},  # the compiler writes, to a name of its own that is then renamed
    "files/network_file.py": {"write_bytes"},  # inside replace_file; read back before it replaces
    "report/theme.py": {"savefig"},  # into memory
    "tables/predict.py": {"open", "to_csv"},
    "datasets/download.py": {"open"},  # the temporary file that disk gives
}


def changes(code: str) -> set[str]:
    """The calls in some code that change the disk; `open` where it is not for reading."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "replace" and isinstance(node.func, ast.Attribute):
            owner = getattr(node.func.value, "id", "")
            if owner == "os":
                found.add("os.replace")
        if name in CHANGES and not _of_a_list(node):
            found.add(name)
        if name == "open":
            words = [
                a.value
                for a in [*node.args, *(k.value for k in node.keywords)]
                if isinstance(a, ast.Constant)
            ]
            if any(isinstance(w, str) and len(w) < 4 and set(w) & set("wax+") for w in words):
                found.add(name)
    return found


def _of_a_list(node: ast.Call) -> bool:
    """`remove` and `rename` are methods of lists and of tables too; those take no path."""
    name = getattr(node.func, "attr", "")
    return (name == "remove" and getattr(getattr(node.func, "value", None), "id", "") != "os") or (
        name == "rename" and any(keyword.arg == "columns" for keyword in node.keywords)
    )


def test_only_disk_writes_files() -> None:
    found = {
        str(file.relative_to(SOURCE)): changes(file.read_text())
        for file in SOURCE.rglob("*.py")
        if file.name != "disk.py"
    }
    assert {name: calls for name, calls in found.items() if calls} == ALLOWED


def test_the_reader_of_calls_itself() -> None:
    assert changes("Path('x').write_text('y'); open('x', 'wb'); p.open(mode='a'); os.replace(a, b)") == {
        "write_text",
        "open",
        "os.replace",
    }
    assert (
        changes("open('file'); p.open('rb'); names.remove(3); f.rename(columns=g); 'a'.replace('b', 'c')")
        == set()
    )
