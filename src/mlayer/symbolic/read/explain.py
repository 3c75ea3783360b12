"""`explain`: the formula of a layer as text and LaTeX, its errors, and a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mlayer.checks import brief
from mlayer.errors import ArgumentError
from mlayer.nn import MLayer
from mlayer.nn.layer import check_layer
from mlayer.numerics.arrays import Array
from mlayer.symbolic.draw_board import figure, plainly
from mlayer.symbolic.parse.expressions import sympy_module
from mlayer.symbolic.parse.lists import listed
from mlayer.symbolic.read.evaluate import values_at
from mlayer.symbolic.read.extrapolation_test import Ends, worst_ends
from mlayer.symbolic.read.formula import Formula, evaluate, rms
from mlayer.symbolic.read.to_sympy import read_formula, split_data

_PROBES = 1000
_LINE = 4000  # points of a curve: 200 periods keep 20 points each, so that fast waves are not aliased
_MOST_TERMS = 12  # that are shown
_BELIEVABLE = 0.99  # of the model's variance
_NEAR_THE_MODEL = 0.9  # the same, where the data support the formula too
_AS_GOOD = 1.1  # times the model's own error
_USELESS = 0.1  # of the data's variance
_ROUNDING = 1e-6  # of the data's deviation: smaller errors are compared with nothing
_LARGEST = 1e150  # of outputs: their squares are numbers
_NO_SPREAD = 1e-9  # of the largest value: outputs that differ by less are constant
_SKETCH = "a sketch, not to be relied on; try another --degree"


@dataclass(frozen=True)
class Explanation:
    """A readable account of the function of a layer.

    Attributes:
        layer: the layer.
        formula: the formulas, with the method that found them.
        error: root mean square difference of formula and layer on the points, over all outputs.
        largest_error: the largest such difference.
        data_error: root mean square difference of formula and targets; None without targets.
        model_data_error: the same of the layer itself, to compare; None without targets.
        points: where the errors were measured: the data, or random points of [-1, 1]^inputs.
        targets: of the data, or None.
        names: of the outputs; p, or p0, p1, ... if empty.
    """

    layer: MLayer
    formula: Formula
    error: float
    largest_error: float
    data_error: float | None
    model_data_error: float | None
    points: Array
    targets: Array | None
    names: tuple[str, ...] = ()

    @property
    def formulas(self) -> tuple[Any, ...]:
        """Sympy expressions, one per output."""
        return self.formula.expressions

    @property
    def text(self) -> str:
        """One line per output."""
        return "\n".join(f"{name} = {one}" for name, one in zip(self._names, self.formulas, strict=True))

    @property
    def latex(self) -> str:
        """One line per output, in LaTeX."""
        sympy = sympy_module()
        lines = []
        for m, one in enumerate(self.formulas):
            name = "p" if len(self.formulas) == 1 else f"p_{{{m}}}"
            if self.names:
                name = sympy.latex(sympy.Symbol(self.names[m]))
            lines.append(f"{name} = {sympy.latex(one)}")
        return "\n".join(lines)

    @property
    def _names(self) -> list[str]:
        if self.names:
            return list(self.names)
        return ["p"] if len(self.formulas) == 1 else [f"p{m}" for m in range(len(self.formulas))]

    def __str__(self) -> str:
        """The explanation as text."""
        kind = "exact up to rounding" if self.formula.exact else "an approximation on the data"
        lines = [
            *(f"{name} = {_capped(one, self)}" for name, one in zip(self._names, self.formulas, strict=True)),
            f"({self.formula.method}: {kind})",
            f"error against the model: {_figure(self.error)} root mean square, "
            f"{_figure(self.largest_error)} at most",
        ]
        if self.data_error is not None:
            lines.append(
                f"error against the data: {_figure(self.data_error)} "
                f"(the model's own: {_figure(self.model_data_error or 0.0)})"
            )
        lines.append(self.verdict)
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """The shares of the model and of the data that the formula explains, and whether to believe it."""
        model = evaluate(self.layer, self.points)
        of_model = _share(self.formula(self.points) - model, model)
        share = f"the formula explains {_percent(of_model)} of the model's variation"
        if self.targets is None or self.data_error is None or self.model_data_error is None:
            believe = self.formula.exact or of_model > _BELIEVABLE
            return f"{share}: {'it can stand for the model here' if believe else _SKETCH}"
        of_data = _share(self.formula(self.points) - self.targets, self.targets)
        of_own = _share(model - self.targets, self.targets)
        share += f" and {_percent(of_data)} of the data's"
        if of_data < _USELESS:
            return f"{share}: there is little to believe"
        rounding = _ROUNDING * float(self.targets.std())
        as_good = self.data_error <= _AS_GOOD * self.model_data_error + rounding
        if as_good and of_model > _NEAR_THE_MODEL:
            return f"{share}, as much as the model itself: {self._reach}"
        return f"{share} (the model itself: {_percent(of_own)}): {_SKETCH}"

    @cached_property
    def ends(self) -> Ends | None:
        """The errors at the ends of the input that a formula fitted to the middle of the data predicts worst.

        None without targets, and where no input has ends that can be held out.
        """
        if self.targets is None:
            return None
        variables = list(self.formula.variables)
        found = [
            worst_ends(one, variables, self.points, self.targets[:, m]) for m, one in enumerate(self.formulas)
        ]
        return max((ends for ends in found if ends is not None), key=lambda ends: ends.ratio, default=None)

    @property
    def _reach(self) -> str:
        """Whether a formula that is as good as the model is the law or follows it within the data."""
        if self.ends is None:
            return "believe it within the range of the data"
        if self.ends.reached:
            return "believe it within the range of the data; fitted to the middle of it, it predicts the ends"
        return (
            "a fit within the range of the data, not the law (fitted to the middle of "
            f"{self.ends.variable}, it misses the ends by {_figure(self.ends.error)}; a law would by "
            f"{_figure(min(self.ends.expected, self.ends.largest))})"
        )

    def plot(self, output: int = 0) -> Any:
        """Layer, formula and data for one input as curves, for two as maps; a matplotlib Figure."""
        inputs = self.layer.in_features
        if inputs > 2:
            raise ArgumentError("layer", "one of 1 or 2 inputs", f"{inputs} inputs", "Print the formula.")
        if not isinstance(output, int) or not 0 <= output < self.layer.out_features:
            raise ArgumentError(
                "output", f"from 0 to {self.layer.out_features - 1}", brief(output), "Choose one."
            )
        names = [str(v) for v in self.formula.variables]
        low, high = self.points.min(0), self.points.max(0)
        if inputs == 1:
            return self._curves(np.linspace(low[0], high[0], _LINE)[:, None], names[0], output)
        return self._maps(low, high, names, output)

    def _curves(self, line: Array, name: str, output: int) -> Any:
        drawing = figure(6.4, 4.0)
        axes = drawing.add_subplot()
        if self.targets is not None:
            axes.plot(
                self.points[:, 0], self.targets[:, output], ".", color="0.7", markersize=3, label="data"
            )
        axes.plot(line[:, 0], evaluate(self.layer, line)[:, output], color="C0", linewidth=3, label="layer")
        axes.plot(line[:, 0], self.formula(line)[:, output], "--", color="C1", label="formula")
        axes.set_xlabel(name)
        axes.set_ylabel(self._names[output])
        axes.set_title(_shortened(self.formulas[output]), fontsize=9)
        axes.legend(loc="best", fontsize=8)
        return plainly(drawing)

    def _maps(self, low: Array, high: Array, names: list[str], output: int) -> Any:
        side = 80
        grids = np.meshgrid(*(np.linspace(low[k], high[k], side) for k in range(2)))
        points = np.stack([g.ravel() for g in grids], 1)
        layer = evaluate(self.layer, points)[:, output].reshape(side, side)
        formula = self.formula(points)[:, output].reshape(side, side)
        drawing = figure(10.5, 3.4)
        limits = {"vmin": float(layer.min()), "vmax": float(layer.max())}
        for k, (title, values, style) in enumerate(
            (("layer", layer, limits), ("formula", formula, limits), ("difference", formula - layer, {}))
        ):
            axes = drawing.add_subplot(1, 3, k + 1)
            picture = axes.pcolormesh(*grids, values, shading="auto", rasterized=True, **style)
            drawing.colorbar(picture, ax=axes)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel(names[0])
            axes.set_ylabel(names[1])
        drawing.suptitle(_shortened(self.formulas[output]), fontsize=9)
        return plainly(drawing)


def explain(
    layer: MLayer, data: Any = None, variables: Any = None, names: Any = (), **options: Any
) -> Explanation:
    """Read a layer's formula and measure it against the layer and, if targets are given, the data.

    Args:
        layer: the layer.
        data: points (count, inputs), or a pair (points, targets). Layers without an exact formula need it.
        variables: names of the inputs.
        names: of the outputs; p, or p0, p1, ... if empty.
        options: of :func:`mlayer.symbolic.to_sympy`: method, degree, tolerance, factor.

    >>> from mlayer.symbolic import from_polynomial
    >>> print(explain(from_polynomial("x*y + 1", "x y"), variables="x y").text)
    p = x*y + 1
    """
    if not isinstance(names, tuple) or names:
        names = _output_names(layer, names)
    formula = read_formula(layer, variables, data=data, **options)
    points, targets = split_data(layer, data)
    if points is None:
        points = np.random.default_rng(0).uniform(-1, 1, (_PROBES, layer.in_features))
    model, read = evaluate(layer, points), formula(points)
    bad = int((~(np.abs(model) + np.abs(read) < _LARGEST)).any(1).sum())
    if bad:
        hint = "Leave out rows that are far from the others."
        must_be = f"points where the layer and its formula are below {_LARGEST:g}"
        raise ArgumentError("data", must_be, f"{bad} of {len(points)} where they are not", hint)
    return Explanation(
        layer,
        formula,
        rms(read - model),
        float(np.abs(read - model).max()),
        None if targets is None else rms(read - targets),
        None if targets is None else rms(model - targets),
        points,
        targets,
        names,
    )


def _output_names(layer: MLayer, names: Any) -> tuple[str, ...]:
    check_layer(layer)
    count, hint = layer.out_features, "One for each output, or leave it out."
    found = listed("names", names, "names of the outputs", count, hint)
    if len(found) != count or not all(isinstance(name, str) for name in found):
        raise ArgumentError(
            "names", f"{count} texts", f"{len(found)} ({', '.join(map(brief, found[:3]))})", hint
        )
    return tuple(found)


def _share(difference: Array, whole: Array) -> float:
    """The part of the variance that is explained; all of it where rounding alone makes one."""
    spread = float(np.square(whole - whole.mean(0)).sum())
    rounding = whole.size * (_NO_SPREAD * float(np.abs(whole).max())) ** 2
    return 1 - float(np.square(difference).sum()) / spread if spread > rounding else 1.0


def _figure(value: float) -> str:
    """An error as text: 15,812 and not 1.58e+04."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"


def _percent(share: float) -> str:
    """A share with enough digits to distinguish 99.9% from 100%, rounded down.

    >>> _percent(0.57), _percent(0.99996)
    ('57%', '99.9%')
    """
    tenths = math.floor(1000 * max(0.0, share) + 1e-9)  # 1000 times 0.57 is less than 570
    return f"{tenths / 10:g}%"


def _capped(expression: Any, found: Explanation) -> str:
    """The formula, of many terms only those that matter most, with what the rest amounts to."""
    terms = sympy_module().Add.make_args(expression)
    if len(terms) <= _MOST_TERMS:
        return str(expression)

    def deviation(term: Any) -> float:
        return float(values_at(term, found.formula.variables, found.points).std())

    def size(term: Any) -> float:
        return deviation(term) if term.free_symbols else abs(float(term))

    ordered = sorted(terms, key=lambda term: -size(term))
    rest = ordered[_MOST_TERMS:]
    shown = sympy_module().Add(*ordered[:_MOST_TERMS])
    amount = f"{len(rest)} smaller terms (deviation {deviation(sum(rest)):.3g}; all with --json or --latex)"
    return f"{shown} + {amount}"


def _shortened(expression: Any) -> str:
    text = str(expression)
    return text if len(text) <= 90 else text[:87] + "..."
