"""mlayer: the M-layer, a model whose only nonlinearity is one matrix exponential."""

from mlayer.errors import MLayerError
from mlayer.exponential import ExpmPath, expm, expm_path
from mlayer.files import export_onnx, load, save
from mlayer.nn import MLayer
from mlayer.version import __version__

__all__ = [
    "ExpmPath",
    "MLayer",
    "MLayerError",
    "__version__",
    "expm",
    "expm_path",
    "export_onnx",
    "load",
    "save",
]
