"""Colors for light and dark: lines from Okabe and Ito's palette, which color-blind readers can distinguish.

Okabe and Ito, "Color universal design" (2008): jfly.uni-koeln.de/color.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mlayer.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Theme:
    """Colors of a plot; its background is that of the page."""

    text: str
    faint: str
    first: str
    second: str


LIGHT = Theme(text="#1c2126", faint="#c9ced4", first="#0072b2", second="#d55e00")
DARK = Theme(text="#e6e9ec", faint="#4a525b", first="#56b4e9", second="#e69f00")

Draw = Callable[["Figure", Theme], None]
_INCHES = (4.4, 3.3)
# Parts of matplotlib that a user's own settings may change, among them TeX, which would run names of columns.
_GROUPS = {"axes", "errorbar", "figure", "font", "grid", "hatch", "image", "legend", "lines", "mathtext"}
_GROUPS |= {"patch", "path", "savefig", "svg", "text", "xtick", "ytick"}


def svg(draw: Draw, theme: Theme) -> bytes:
    """The picture that ``draw`` makes, as SVG on a transparent ground; equal data give equal bytes."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullFormatter
    except ImportError:
        raise MissingPackageError("a report with plots", "matplotlib", "pip install 'mlayer[cli]'") from None
    import warnings

    style = {key: v for key, v in matplotlib.rcParamsDefault.items() if key.split(".")[0] in _GROUPS} | {
        "svg.fonttype": "none",  # letters stay letters: sharp, small, and in the reader's fonts
        "svg.hashsalt": "mlayer",
        "font.size": 11,  # so that it can be read where the picture is as wide as a phone
        "text.color": theme.text,
        "axes.labelcolor": theme.text,
        "axes.edgecolor": theme.faint,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "text.parse_math": False,  # a $ in the name of a column is a $
        "axes.formatter.use_mathtext": False,
    }
    buffer = io.BytesIO()
    with matplotlib.rc_context(cast(Any, style)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has the letter that matplotlib's font lacks
        figure = Figure(figsize=_INCHES, layout="constrained", facecolor="none")
        draw(figure, theme)
        for axes in figure.axes:
            axes.set_facecolor("none")
            for axis in (axes.xaxis, axes.yaxis):
                if axis.get_scale() == "log":  # whose labels are mathematics, which would be shown raw
                    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                    axis.set_minor_formatter(NullFormatter())
        figure.savefig(buffer, format="svg", transparent=True, dpi=200, metadata={"Date": None})
    return buffer.getvalue()
