"""The principal logarithm and the principal square root: batched, differentiable to every order."""

from mlayer.exponential.inverse.logm_and_sqrtm import logm, sqrtm

__all__ = ["logm", "sqrtm"]
