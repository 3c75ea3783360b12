"""Compares screenshots of a page with each other: light with dark, wide with narrow.

Nothing depends on the fonts or the pixels of one machine. What is compared: the places of all boxes on the
light and the dark page, the order of boxes on the wide and the narrow one, whether each box shows something,
and whether whatever can be seen in a part of a picture on the light page can be seen there on the dark one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from browser import Look, look

WIDTHS = (1200, 390)
TILES = 12  # along each side of a picture
# Contrast to the background of a picture from which a pixel is seen clearly, and from which at all.
CLEARLY, FAINTLY = 3.5, 1.3
# Shares of the pixels of a tile: if more than the first are seen clearly on one page, the other page has to
# show at least the second there.
MUCH, LITTLE = 0.01, 0.001
LEAST_CONTRAST = 3.0  # of the darkest and the brightest pixels of a box with text
Image = np.ndarray


@dataclass(frozen=True)
class Shot:
    """A page at one width, light or dark."""

    seen: Look
    pixels: Image  # shape: (height, width, 3)


def shots(page: Path, folder: Path, width: int) -> tuple[Shot, Shot]:
    """The light and the dark page."""
    from matplotlib.image import imread

    taken = []
    for dark in (False, True):
        file = folder / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
        seen = look(page, folder, width, dark, file)
        taken.append(Shot(seen, np.round(255 * imread(file)[:, :, :3]).astype(np.uint8)))
    return taken[0], taken[1]


def luminance(pixels: Image) -> Image:
    """Relative luminance of the Web Content Accessibility Guidelines 2.1."""
    part = pixels / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))


def visible(pixels: Image, contrast: float) -> Image:
    """True for the pixels of a picture with this contrast to its background, the most frequent luminance."""
    bright = luminance(pixels)
    steps = np.round(bright * 200).astype(int)
    ground = np.bincount(steps.ravel()).argmax() / 200
    above, below = np.maximum(bright, ground), np.minimum(bright, ground)
    return np.asarray((above + 0.05) / (below + 0.05) >= contrast)


def compare(light: Shot, dark: Shot, themed: bool) -> Iterator[str]:
    """Faults of a page, one sentence each.

    Args:
        light: the page as a reader with a light system sees it.
        dark: the same with a dark system.
        themed: whether its pictures are drawn for both.
    """
    if [box[0] for box in light.seen.boxes] != [box[0] for box in dark.seen.boxes]:
        yield "the light and the dark page do not have the same elements"
        return
    for here, there in zip(light.seen.boxes, dark.seen.boxes, strict=True):
        if max(abs(a - b) for a, b in zip(here[1:], there[1:], strict=True)) > 1:
            yield f"{here[0]} is at {here[1:]} on the light page and at {there[1:]} on the dark one"
    for box in light.seen.boxes:
        tag, left, top, width, height = box
        if top + height > min(len(light.pixels), len(dark.pixels)):
            continue  # below the screenshot
        place = (slice(top, top + height), slice(max(left, 0), left + width))
        if tag == "IMG":
            yield from _picture(light.pixels[place], dark.pixels[place], box, themed)
        elif tag != "FIGURE":
            for name, shot in (("light", light), ("dark", dark)):
                bright = luminance(shot.pixels[place])
                contrast = (bright.max() + 0.05) / (bright.min() + 0.05)
                if contrast < LEAST_CONTRAST:
                    yield f"{tag} at {box[1:]} shows nothing on the {name} page: contrast {contrast:.1f}"


def _picture(light: Image, dark: Image, box: tuple[str, int, int, int, int], themed: bool) -> Iterator[str]:
    for name, part in (("light", light), ("dark", dark)):
        if visible(part, CLEARLY).mean() < LITTLE:
            yield f"the picture at {box[1:]} is empty on the {name} page"
            return
    if not themed:
        return
    if np.abs(light.astype(int) - dark.astype(int)).mean() < 10:
        yield f"the picture at {box[1:]} is the same on the light and the dark page"
    for lost, seen, other in (("dark", light, dark), ("light", dark, light)):
        shares = zip(_tiles(visible(seen, CLEARLY)), _tiles(visible(other, FAINTLY)), strict=True)
        for number, (clear, faint) in enumerate(shares):
            if clear > MUCH and faint < LITTLE:
                yield f"part {divmod(number, TILES)} of the picture at {box[1:]} is lost on the {lost} page"


def _tiles(part: Image) -> list[float]:
    rows = np.array_split(part, TILES)
    return [float(tile.mean()) for row in rows for tile in np.array_split(row, TILES, axis=1)]


def outline(seen: Look) -> list[list[str | int]]:
    """Tag, left and right edge of each box in percent of the width, which fonts do not change."""
    return [
        [tag, round(100 * left / seen.width), round(100 * (left + width) / seen.width)]
        for tag, left, _, width, _ in seen.boxes
    ]
