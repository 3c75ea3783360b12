"""Canvases and colors of the experiments' pictures: for light and dark pages, for wide ones and for phones.

A picture is drawn from results alone, so it can be drawn again for another page: `drawn_for` says for which,
and `canvas`, `panels` and `colors` follow it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib import axes, figure

    Axes = axes.Axes
    Figure = figure.Figure
else:  # matplotlib is imported when a picture is drawn; these are for annotations, also those of others
    Axes = Figure = Any

# The widest picture, in inches of 100 pixels. The page has room for some 930; letters shrink with the rest.
_WIDE_INCHES = 10.4
# A phone is some 390 points wide; letters of 10 points on 4.6 inches are legible there.
_NARROW = 4.6
# Names of data sets in titles and tables.
SET_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "svhn": "SVHN"}
# The most panels side by side: more become too small to read.
_ABREAST = 3


@dataclass(frozen=True)
class Colors:
    """Colors of lines and bars; the same kind of model has the same color in all pictures.

    Okabe and Ito's, "Color universal design" (2008), which color-blind readers can distinguish, made darker
    or lighter where the page needs it.
    """

    m_layer: str  # M-layers of our recipes
    m_layer_of_others: str  # those of the paper's recipe and the notebook's
    net: str  # other networks
    paper: str  # what the paper reports or proves, where no net is shown with it
    green: str  # a model that is not a network
    pink: str  # another one
    ink: str  # text and measured data
    shade: str  # an area behind curves
    ground: str  # the page
    soft: str = "#808a94"  # secondary lines


_ON_LIGHT = Colors(
    *("#0072B2", "#2F8DC4", "#D55E00", "#D55E00", "#008F68", "#B8619C"), "#000000", "#ededed", "#ffffff"
)
_ON_DARK = Colors(
    *("#56B4E9", "#A8DAF6", "#E69F00", "#E69F00", "#2CC295", "#E39BC4"), "#e6e9ec", "#2a3138", "#1e2328"
)


@dataclass(frozen=True)
class Look:
    """The page that a picture is drawn for."""

    dark: bool = False
    narrow: bool = False


_WIDE = Look()
_LOOK: ContextVar[Look] = ContextVar("look", default=_WIDE)


@contextmanager
def drawn_for(look: Look) -> Iterator[None]:
    """Pictures drawn inside are drawn for this."""
    import matplotlib

    token = _LOOK.set(look)
    texts = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[str, Any] = dict.fromkeys(texts, colors().ink)
    style |= dict.fromkeys(("axes.edgecolor", "legend.edgecolor"), colors().soft)
    style |= {"axes.facecolor": "none", "legend.facecolor": colors().ground}
    try:
        with matplotlib.rc_context(cast(Any, style)):
            yield
    finally:
        _LOOK.reset(token)


def colors() -> Colors:
    """The colors on this page."""
    return _ON_DARK if _LOOK.get().dark else _ON_LIGHT


def is_narrow() -> bool:
    """Whether the picture is for a page as wide as a phone."""
    return _LOOK.get().narrow


def canvas(width: float, height: float) -> Figure:
    """An empty figure, no wider than its page; a narrow one keeps its height, a wide one its shape."""
    from matplotlib.figure import Figure

    if _LOOK.get().narrow:
        size = min(width, _NARROW), height
    else:
        shrunk = min(1.0, _WIDE_INCHES / width)
        size = width * shrunk, height * shrunk
    return Figure(figsize=size, layout="constrained")


def panels(
    count: int, width: float, height: float, *, ratios: tuple[float, ...] | None = None, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels side by side, in two rows if there are many; one below the other on a narrow page.

    The width is that of all panels side by side, the height that of one, in inches; ``ratios`` of their
    widths are for one row.
    """
    if _LOOK.get().narrow:
        figure = canvas(_NARROW, height * count)
        return figure, list(figure.subplots(count, 1, squeeze=False)[:, 0])
    rows = -(-count // _ABREAST)
    columns = -(-count // rows)
    figure = canvas(width * columns / count, height * rows)
    grid = figure.subplots(rows, columns, squeeze=False, width_ratios=ratios, sharey=sharey)
    for spare in grid.flat[count:]:
        spare.remove()
    return figure, list(grid.flat[:count])


def rendered(plot: Callable[[Any], Figure], results: Any, look: Look) -> bytes:
    """The picture of some results as a WebP file with a transparent ground."""
    buffer = io.BytesIO()
    with drawn_for(look):
        plot(results).savefig(
            buffer, format="webp", dpi=100, transparent=True, pil_kwargs={"quality": 60, "method": 2}
        )
    return buffer.getvalue()
