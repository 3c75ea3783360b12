"""Files: one safetensors file per model, ONNX out, the authors' weights in. No pickle anywhere."""

from mlayer.files.authors import load_authors_model, load_keras_npz
from mlayer.files.onnx_export import export_onnx
from mlayer.files.store import load, load_with_notes, save

__all__ = ["export_onnx", "load", "load_authors_model", "load_keras_npz", "load_with_notes", "save"]
