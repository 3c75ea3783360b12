"""Tables: csv and parquet files in, a model that takes the raw table, predictions out."""

from mlayer.tables.encode import Encoded, Schema, learn_schema
from mlayer.tables.fitting import FitResult, Plan, fit_table
from mlayer.tables.model import Predictions, TableModel, load_table_model
from mlayer.tables.onnx import export_table_onnx
from mlayer.tables.remarks import Remark
from mlayer.tables.source import Source, open_table
from mlayer.tables.stream import Prediction, predict_table
from mlayer.tables.task import Target, guess_task
from mlayer.tables.training import Training
from mlayer.tables.written import read_with_target

__all__ = [
    "Encoded",
    "FitResult",
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
    "learn_schema",
    "load_table_model",
    "open_table",
    "predict_table",
    "read_with_target",
]
