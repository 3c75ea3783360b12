"""A product of powers, c x^a y^b ..., for data that follow one: m v^2 / r is one, and not a polynomial.

In logarithms it is a linear model, so the columns that matter and their exponents come from the same
selection as the terms of a polynomial. Exponents near a multiple of one half are moved there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlayer.numerics.arrays import Array
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.read.fit_polynomial import decimal_or_fraction
from mlayer.symbolic.read.formula import Formula
from mlayer.symbolic.read.term_selection import select

_FEWEST = 20  # rows
_NEAR = 0.1  # of an exponent to a multiple of one half
_LARGEST_EXPONENT = 6
_FLOOR = 1e-7


def fitted_power_law(points: Array, targets: Array, symbols: list[Any]) -> Formula | None:
    """The product of powers of positive columns that fits one positive target, or None if there is none."""
    if targets.shape[1] != 1 or len(points) < _FEWEST or (targets <= 0).any():
        return None
    usable = [k for k in range(points.shape[1]) if (points[:, k] > 0).all() and np.ptp(points[:, k]) > 0]
    if not usable:
        return None
    logs = np.column_stack([np.ones(len(points)), np.log(points[:, usable])])
    target = np.log(targets[:, 0])
    chosen = select(logs, target, _FLOOR * max(float(target.std()), 1e-300))
    powers = {}
    for place, value, error in zip(chosen.terms, chosen.coefficients, chosen.errors, strict=True):
        if place == 0:
            continue
        near = round(2 * value) / 2
        if abs(near - value) > max(_NEAR, 3 * error) or abs(near) > _LARGEST_EXPONENT:
            return None  # not the exponents of a law
        if near:
            powers[usable[place - 1]] = near
    if not powers:
        return None
    product = np.prod([points[:, k] ** a for k, a in powers.items()], axis=0)
    factor = float(product @ targets[:, 0] / (product @ product))
    left = targets[:, 0] - factor * product
    error = math.sqrt(float(left @ left) / max(1, len(left) - 1) / float(product @ product))
    sympy = sympy_module()
    expression = decimal_or_fraction(factor, error)
    for k, a in powers.items():
        expression *= symbols[k] ** sympy.Rational(round(2 * a), 2)
    return Formula((expression,), tuple(symbols), "power law", math.sqrt(float(np.mean(left**2))))
