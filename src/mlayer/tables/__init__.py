"""Tables: csv and parquet files in, a model that takes the raw table, predictions out.

In the order of the data: ``reader`` (a file), ``columns`` (its cells), ``schema`` and ``target`` (what they
become), ``fit``, ``model``, and what a model is for: ``predict``, ``certify``, ``explain``, ``export``.
"""

from mlayer.tables.export.onnx_table import export_table_onnx
from mlayer.tables.fit.fit_table import fit_table
from mlayer.tables.fit.labeled import Labeled, label, read_with_target
from mlayer.tables.fit.plan import Plan, Training
from mlayer.tables.fit.result import FitResult
from mlayer.tables.model import Predictions, TableModel, load_table_model
from mlayer.tables.predict import Prediction, predict_table
from mlayer.tables.reader.source import Source, open_table
from mlayer.tables.remarks import Remark
from mlayer.tables.schema import Encoded, Schema, learn_schema
from mlayer.tables.target import Target, guess_task

__all__ = [
    "Encoded",
    "FitResult",
    "Labeled",
    "Plan",
    "Prediction",
    "Predictions",
    "Remark",
    "Schema",
    "Source",
    "TableModel",
    "Target",
    "Training",
    "export_table_onnx",
    "fit_table",
    "guess_task",
    "label",
    "learn_schema",
    "load_table_model",
    "open_table",
    "predict_table",
    "read_with_target",
]
