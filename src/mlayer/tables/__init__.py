"""Tables: csv and parquet files in, a model that takes the raw table, predictions out."""

from mlayer.tables.export import export_table_onnx
from mlayer.tables.fit import fit_table
from mlayer.tables.labeled import Labeled, label, read_with_target
from mlayer.tables.model import Predictions, TableModel, load_table_model
from mlayer.tables.plan import Plan, Training
from mlayer.tables.predict import Prediction, predict_table
from mlayer.tables.reader import Source, open_table
from mlayer.tables.remarks import Remark
from mlayer.tables.result import FitResult
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
