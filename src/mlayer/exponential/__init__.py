"""The matrix exponential: tensors in, tensors out. Knows nothing of layers."""

from mlayer.exponential.action import expm_action
from mlayer.exponential.expm_function import expm
from mlayer.exponential.inverse import logm, sqrtm
from mlayer.exponential.paths import ExpmPath, expm_path

__all__ = ["ExpmPath", "expm", "expm_action", "expm_path", "logm", "sqrtm"]
