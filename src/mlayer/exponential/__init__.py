"""The matrix exponential: tensors in, tensors out. Knows nothing of layers."""

from mlayer.exponential.front import expm
from mlayer.exponential.paths import ExpmPath, expm_path

__all__ = ["ExpmPath", "expm", "expm_path"]
