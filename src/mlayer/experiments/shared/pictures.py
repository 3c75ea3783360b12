"""Canvases and colors of the experiments' pictures: for light and dark pages, for wide ones and for phones.

A picture is drawn from results alone, so it can be drawn again for another page: `seen_as` says for which,
and `canvas`, `panels`, `ink`, `shade` and `soft` follow it.
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

# Okabe and Ito's colors, "Color universal design" (2008), which color-blind readers can distinguish. The same
# kind of model has the same color in all pictures.
M_LAYER = "#0072B2"
M_LAYER_OF_OTHERS = "#56B4E9"  # the paper's recipe, the notebook's
NET = "#D55E00"
GREEN, PINK = "#009E73", "#CC79A7"  # models that are not networks
PAPER = "#D55E00"  # what the paper reports or proves, where no net is shown with it

# A phone is some 390 points wide; letters of 10 points on 4.6 inches are legible there.
_NARROW = 4.6


@dataclass(frozen=True)
class Look:
    """The page that a picture is drawn for."""

    dark: bool = False
    narrow: bool = False


_WIDE = Look()
_LOOK: ContextVar[Look] = ContextVar("look", default=_WIDE)


@contextmanager
def seen_as(look: Look) -> Iterator[None]:
    """Pictures drawn inside are drawn for this."""
    import matplotlib

    token = _LOOK.set(look)
    text = ink()
    style: dict[str, Any] = {
        "text.color": text,
        "axes.labelcolor": text,
        "axes.edgecolor": soft(),
        "xtick.color": text,
        "ytick.color": text,
        "axes.facecolor": "none",
        "legend.facecolor": ground(),
        "legend.edgecolor": soft(),
    }
    try:
        with matplotlib.rc_context(cast(Any, style)):
            yield
    finally:
        _LOOK.reset(token)


def ink() -> str:
    """The color of text and of measured data."""
    return "#e6e9ec" if _LOOK.get().dark else "#000000"


def soft() -> str:
    """The color of secondary lines."""
    return "#808a94"


def shade() -> str:
    """The color of an area behind curves."""
    return "#2a3138" if _LOOK.get().dark else "#ededed"


def ground() -> str:
    """The color of the page."""
    return "#1e2328" if _LOOK.get().dark else "#ffffff"


def is_narrow() -> bool:
    """Whether the picture is for a page as wide as a phone."""
    return _LOOK.get().narrow


def canvas(width: float, height: float) -> Figure:
    """An empty figure, no wider than its page; rows of a narrow one keep their height."""
    from matplotlib.figure import Figure

    return Figure(
        figsize=(min(width, _NARROW) if _LOOK.get().narrow else width, height), layout="constrained"
    )


def panels(
    count: int, width: float, height: float, *, ratios: tuple[float, ...] | None = None, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels side by side, or one below the other on a narrow page.

    Args:
        count: of panels.
        width: of all panels side by side, in inches.
        height: of one.
        ratios: of their widths.
        sharey: whether panels side by side have one vertical axis.
    """
    if _LOOK.get().narrow:
        figure = canvas(_NARROW, height * count)
        return figure, list(figure.subplots(count, 1, squeeze=False)[:, 0])
    figure = canvas(width, height)
    grid = figure.subplots(1, count, squeeze=False, width_ratios=ratios, sharey=sharey)
    return figure, list(grid[0])


def rendered(plot: Callable[[Any], Figure], results: Any, look: Look) -> bytes:
    """The picture of some results as a WebP file with a transparent ground."""
    buffer = io.BytesIO()
    with seen_as(look):
        plot(results).savefig(
            buffer, format="webp", dpi=100, transparent=True, pil_kwargs={"quality": 60, "method": 2}
        )
    return buffer.getvalue()
