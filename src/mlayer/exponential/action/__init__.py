"""exp(t A) V without the exponential: A dense, sparse or known only by what it does to vectors."""

from mlayer.exponential.action.expm_action_function import expm_action

__all__ = ["expm_action"]
