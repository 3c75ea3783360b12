"""Formulas in, formulas out: the universal-approximation theorem as a compiler, and layers read back."""

from mlayer.symbolic.compile.boolean import boolean_plan, from_boolean
from mlayer.symbolic.compile.builders import (
    determinant,
    determinant_plan,
    elementary_symmetric,
    permanent,
    permanent_plan,
    rigid_body_rotation,
    rotation,
    sum_of_cosines,
)
from mlayer.symbolic.compile.function import Approximation, approximate, from_function
from mlayer.symbolic.compile.polynomial import PolynomialPlan, from_polynomial, plan
from mlayer.symbolic.draw_board import draw_board
from mlayer.symbolic.read.explain import Explanation, explain
from mlayer.symbolic.read.formula import Formula
from mlayer.symbolic.read.to_sympy import read_formula, to_sympy

__all__ = [
    "Approximation",
    "Explanation",
    "Formula",
    "PolynomialPlan",
    "approximate",
    "boolean_plan",
    "determinant",
    "determinant_plan",
    "draw_board",
    "elementary_symmetric",
    "explain",
    "from_boolean",
    "from_function",
    "from_polynomial",
    "permanent",
    "permanent_plan",
    "plan",
    "read_formula",
    "rigid_body_rotation",
    "rotation",
    "sum_of_cosines",
    "to_sympy",
]
