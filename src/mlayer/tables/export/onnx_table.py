"""ONNX out of a table model: the layer on encoded rows, and Python functions for the way there and back."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path

from mlayer.disk import replace_bytes
from mlayer.files import export_onnx, load_with_notes
from mlayer.tables.export import encode_rows
from mlayer.tables.horizon import last_day
from mlayer.tables.model import DEGREE, SLACK, TableModel, table_model

KEY = "mlayer.table"

_HEAD = '''"""Rows of a raw table as the numbers that a fitted model takes, with Python's own library only."""

from __future__ import annotations

import json

'''

# Below the code of `encode_rows` in the file next to the ONNX file. The columns are JSON in a string
# literal: names of columns come from others.
_OF_THIS_MODEL = """

# ---- The columns of one model. ----

COLUMNS = json.loads({columns})
NAMELESS = {nameless}  # columns without a name in the table of the fit


def numbers(rows: Iterable[Mapping[str, Any]]) -> list[list[float]]:
    \"\"\"The input x of the ONNX file for rows of the raw table, for example those of csv.DictReader.

    Of several columns of one name, or without, csv.DictReader keeps the last. That is an error where the
    model needs one of them: give it ``fieldnames``, the third column without a name as "Unnamed: 2".
    \"\"\"
    return encode_rows(COLUMNS, rows, NAMELESS)
"""

# Below that, for a quantity.
_OF_A_QUANTITY = """

LIMITS = json.loads({limits})


def predictions(x: Iterable[Sequence[float]], p: Iterable[Sequence[float]]) -> list[float]:
    \"\"\"The predictions of `mlayer predict`, from the input x and the output p of the ONNX file.

    They differ from p where growth comes to an end after the last date, and where p goes further beyond the
    targets of the fit than `mlayer predict` lets it.
    \"\"\"
    return limited(COLUMNS, LIMITS, x, [float(row[0]) for row in p])
"""


def rows_file(path: str | Path) -> Path:
    """The Python file next to an ONNX file.

    >>> rows_file("houses.onnx").name
    'houses_rows.py'
    """
    return Path(path).with_name(f"{Path(path).stem}_rows.py")


def rows_program(model: TableModel) -> str:
    """Python with a function ``numbers(rows)`` from raw cells to what the ONNX file takes."""
    code = "\n\n".join(_without_imports_of_mlayer(path) for path in _program_files())
    columns = json.dumps(model.schema.as_json(), ensure_ascii=True)
    nameless = int(model.facts.get("nameless", 0))
    program = _HEAD + code + _OF_THIS_MODEL.format(columns=repr(columns), nameless=nameless)
    if model.target.classifies:
        return program
    return program + _OF_A_QUANTITY.format(limits=repr(json.dumps(limits_of(model))))


def limits_of(model: TableModel) -> dict[str, float]:
    """The limits of the values of a model in `mlayer predict`, for `encode_rows.limited`.

    Growth at a constant ``rate`` slows down ``after`` as many days from the ``last`` date of the fit, which
    like the feature at ``place`` is counted from the origin of its column.
    """
    least, most = model.facts.get("range", (0.0, 0.0))
    result = {"least": least, "most": most, "slack": SLACK, "degree": DEGREE} if least < most else {}
    horizon = model.facts.get("horizon", {})
    if "slows" not in horizon:
        return result
    ((date, place),) = (
        (column.date, places.start)
        for column, places in model.schema.placed
        if column.date is not None and column.name == horizon["column"]
    )
    slows = {name: float(horizon["slows"][name]) for name in ("rate", "after")}
    return result | slows | {"place": place, "last": last_day(horizon) - date.origin}


def _program_files() -> list[Path]:
    """The modules of mlayer that `encode_rows` imports, which import none themselves, then `encode_rows`."""
    last = Path(str(encode_rows.__file__))
    imported = [
        str(import_module(node.module).__file__)
        for node in ast.parse(last.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mlayer.")
    ]
    return [*map(Path, imported), last]


def _without_imports_of_mlayer(path: Path) -> str:
    """The source of a module; what it imports from mlayer is in the same program, as is the first line."""
    code = path.read_text(encoding="utf-8")
    lines = code.splitlines()
    for node in ast.parse(code).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("mlayer", "__future__"):
            for place in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[place] = ""
    return "\n".join(lines).strip() + "\n"


def export_table_onnx(model: TableModel, path: str | Path) -> None:
    """Write the layer of ``model`` as ONNX, from encoded rows to logits or values.

    The metadata entry "mlayer.table" holds the columns and the target, as in the model file, and
    "mlayer.features" the names of the inputs, in order. Needs ``pip install 'mlayer[onnx]'``.
    """
    about = {KEY: model.as_json(), "mlayer.features": list(model.schema.features)}
    export_onnx(model.layer, path, metadata={name: json.dumps(value) for name, value in about.items()})


def export_any_onnx(model_file: str | Path, path: str | Path) -> list[str]:
    """Write the model of a file, with or without a table; the names of its inputs, if it has a table."""
    layer, notes = load_with_notes(model_file)
    if notes is None or "table" not in notes:
        export_onnx(layer, path)
        return []
    model = table_model(model_file, layer, notes)
    export_table_onnx(model, path)
    replace_bytes(rows_file(path), rows_program(model).encode())
    return list(model.schema.features)
