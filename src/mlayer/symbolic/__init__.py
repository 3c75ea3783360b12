"""Formulas in, formulas out."""

from mlayer.symbolic.polynomial import Plan, from_polynomial, plan

__all__ = ["Plan", "from_polynomial", "plan"]
