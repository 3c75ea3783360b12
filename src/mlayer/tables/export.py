"""ONNX out of a table model: the layer on encoded rows, with the way there written into the file."""

from __future__ import annotations

import json
from pathlib import Path

from mlayer.files import export_onnx, load_with_notes
from mlayer.tables.model import TableModel, table_model

KEY = "mlayer.table"


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
    return list(model.schema.features)
