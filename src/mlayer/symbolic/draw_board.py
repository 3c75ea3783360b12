"""Breadboards drawn: M as a grid, every entry labeled with its linear form, what is read marked."""

from __future__ import annotations

from typing import Any

from mlayer.checks import instance, written_out
from mlayer.errors import ArgumentError, MissingPackageError
from mlayer.nn import MLayer
from mlayer.symbolic.compile.polynomial import PolynomialPlan
from mlayer.symbolic.read.formula import number, symbols_for, weights_of

_LARGEST = 40
_LONGEST_LABEL = 200  # characters


def figure(width: float, height: float) -> Any:
    """A matplotlib figure outside pyplot, so that nothing is shown or kept."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError("plots", "matplotlib", "pip install 'mlayer[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def plainly(drawing: Any) -> Any:
    """The figure with its labels as they are: a $ starts no formula, control characters are written out.

    A label of 130,000 letters would take minutes; the beginning says enough.
    """
    from matplotlib.text import Text

    for text in drawing.findobj(Text):
        text.set_parse_math(False)
        words = text.get_text()
        text.set_text(written_out(words if len(words) <= _LONGEST_LABEL else f"{words[:_LONGEST_LABEL]}..."))
    return drawing


def draw_board(board: PolynomialPlan | MLayer, variables: Any = None, *, title: str | None = None) -> Any:
    """M as a labeled grid; entries of exp(M) that an output reads have a thick frame.

    Args:
        board: a plan or a layer.
        variables: names of the inputs of a layer.
        title: over the grid; the size of the matrix if None.

    Returns:
        a matplotlib Figure.
    """
    instance(
        "board",
        board,
        PolynomialPlan | MLayer,
        "a PolynomialPlan or an MLayer",
        "For example determinant_plan(3).",
    )
    instance("title", title, str | None, "text", "Leave it out for the size of the matrix.")
    layer = board if isinstance(board, MLayer) else board.build()
    symbols = symbols_for(layer, variables if isinstance(board, MLayer) else list(board.variables))
    n = layer.matrix_size
    if n > _LARGEST:
        raise ArgumentError(
            "board", f"of at most {_LARGEST} rows to be drawn", f"{n} rows", "Draw a smaller one."
        )
    weights = weights_of(layer)
    scale = max(float(abs(weights.T).max()), float(abs(weights.B).max()), 1e-300)
    cell = 0.85 if n <= 10 else 0.6
    drawing = figure(cell * n + 0.8, cell * n + 1.0)
    axes = drawing.add_subplot()
    middle: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
    for i in range(n):
        for j in range(n):
            form = number(float(weights.B[i, j]), 1e-6 * scale)
            for a, symbol in enumerate(symbols):
                form += number(float(weights.T[a, i, j]), 1e-6 * scale) * symbol
            if form != 0:
                label = _label(form)
                axes.add_patch(_square(i, j, facecolor="#dbe9f6", edgecolor="none", zorder=1))
                size = min(11.0, 62 * cell / max(4, len(label)))
                axes.text(j + 0.5, i + 0.5, label, fontsize=size, **middle)
            if (weights.S[:, i, j] != 0).any():
                axes.add_patch(_square(i, j, facecolor="none", edgecolor="#c44e00", linewidth=2.5, zorder=4))
                if i != j and form == 0:
                    which = [str(m) for m in range(layer.out_features) if weights.S[m, i, j] != 0]
                    text = "read" if layer.out_features == 1 else "p" + ",".join(which)
                    axes.text(j + 0.5, i + 0.5, text, fontsize=8, color="#c44e00", **middle)
    axes.set_xlim(0, n)
    axes.set_ylim(n, 0)
    axes.set_aspect("equal")
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks([k + 0.5 for k in range(n)], [str(k) for k in range(n)])
    axes.tick_params(length=0, labelsize=8)
    for k in range(n + 1):
        axes.axhline(k, color="0.8", linewidth=0.6, zorder=2)
        axes.axvline(k, color="0.8", linewidth=0.6, zorder=2)
    axes.set_title(f"M, {n} x {n}; framed: read from exp(M)" if title is None else title, fontsize=10)
    return plainly(drawing)


def _square(i: int, j: int, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((j, i), 1, 1, **style)


def _label(form: Any) -> str:
    """A linear form, short: numbers that are not simple fractions get three digits."""
    short = form.evalf(3) if any(f.is_Float or (f.is_Rational and f.q > 99) for f in form.atoms()) else form
    return str(short).replace("*", "").replace(" ", "")
