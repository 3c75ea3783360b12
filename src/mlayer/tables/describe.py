"""A model file in words, for people and for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlayer.files import load_with_notes
from mlayer.tables.metrics import BETTER_HIGH
from mlayer.tables.model import table_model


def describe_model(path: str | Path) -> dict[str, Any]:
    """A JSON object: the layer's sizes and, for a model of a table, its target, columns and facts."""
    layer, notes = load_with_notes(path)
    count = sum(parameter.numel() for parameter in layer.parameters())
    sizes = {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "matrix_size": layer.matrix_size,
        "embedding_size": layer.embedding_size,
        "structure": type(layer.structure).name,
        "dtype": str(layer.readout.dtype).removeprefix("torch."),
        "parameters": count,
    }
    said = (
        f"an M-layer from {layer.in_features} to {layer.out_features} numbers, n = {layer.matrix_size}, "
        f"d = {layer.generator_count}, {count} parameters, {sizes['dtype']}"
    )
    table = None
    if notes is not None and "table" in notes:
        model = table_model(path, layer, notes)
        table = {
            "target": model.target.as_json(),
            "columns": [
                {"name": c.name, "kind": c.kind, "features": list(c.features), "said": c.said}
                for c in model.schema.columns
            ],
            "facts": {name: _ordered(value) for name, value in model.facts.items()},
        }
    return {"file": str(path), "layer": {**sizes, "said": said}, "table": table}


def _ordered(value: Any) -> Any:
    """Metrics in our order: the file keeps none."""
    if isinstance(value, dict) and value.keys() <= BETTER_HIGH.keys():
        return {name: value[name] for name in BETTER_HIGH if name in value}
    return value
