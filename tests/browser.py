"""A real browser for tests of pages: measurements and a screenshot at some width, light or dark.

The page is loaded in a frame of the wanted width, because windows of Chromium are at least 500 pixels wide. A
script that is added to a copy of the page sends what it measures to the page around the frame.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TALLEST = 16_000  # pixels of a screenshot; what is further down is measured, not seen
# Least contrast of text and of large text: Web Content Accessibility Guidelines 2.1, criterion 1.4.3 (AA).
_MEASURE = """
<script>
addEventListener("load", () => setTimeout(() => {
  const read = text => { const v = text.match(/[\\d.]+/g).map(Number); return [...v, 1].slice(0, 4); };
  const linear = v => v <= 10.3 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = c => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
  const background = element => {
    if (!element) return [255, 255, 255];
    const own = read(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, background(element.parentElement));
  };
  const clipped = element => element && element !== document.body
    && (getComputedStyle(element).overflowX !== "visible" || clipped(element.parentElement));
  const width = document.documentElement.clientWidth;
  const scroll = document.documentElement.scrollWidth;
  const height = document.documentElement.scrollHeight;
  const found = {width, scroll, height, pale: [], wide: [], broken: [], cut: [], boxes: []};
  const main = document.querySelector("article") || document.querySelector("main") || document.body;
  const kinds = "h1,h2,h3,h4,p,pre,table,img,figure,summary,.card,.gallery a,li";
  for (const element of main.querySelectorAll(kinds)) {
    const box = element.getBoundingClientRect();
    const folded = element.closest("details:not([open])") && element.tagName !== "SUMMARY";
    if (box.width && box.height && !folded)
      found.boxes.push([element.tagName, ...[box.left, box.top, box.width, box.height].map(Math.round)]);
  }
  for (const element of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    const name = () => `${element.tagName} ${element.className} "${element.textContent.trim().slice(0, 30)}"`;
    if (style.visibility === "hidden" || !box.width || !box.height || +style.opacity === 0) continue;
    if (element.tagName === "math" && element.scrollWidth > element.clientWidth + 1) found.cut.push(name());
    if (box.right <= 0 || box.left >= width || element.closest("math, svg, .md-overlay")) continue;
    const hides = axis => ["hidden", "clip"].includes(style["overflow" + axis]);
    const clips = (hides("X") && element.scrollWidth > element.clientWidth + 1)
      || (hides("Y") && element.scrollHeight > element.clientHeight + 1);
    if (clips && main.contains(element)) found.cut.push(name());
    const outside = box.right > width + 1 || box.left < -1;
    if (element.tagName === "TABLE" && !element.closest(".highlight") && outside)
      found.cut.push(name());
    if (element.tagName === "IMG" && !element.naturalWidth) found.broken.push(name());
    if (element.tagName === "IMG" && (box.right > width + 1 || box.left < -1)) found.cut.push(name());
    if (box.right > width + 1 && !clipped(element)) found.wide.push(name());
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim())) continue;
    const below = background(element);
    const [a, b] = [luminance(over(read(style.color), below)), luminance(below)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (large ? 3 : 4.5)) found.pale.push(`${contrast.toFixed(2)} ${name()}`);
  }
  parent.postMessage(JSON.stringify(found), "*");
}, 300));
</script>
"""
_AROUND = """<!doctype html><body style="margin:0">
<iframe src="{uri}" style="border:0;width:{width}px;height:{height}px"></iframe>
<pre hidden id="measured"></pre>
<script>addEventListener("message", e => document.getElementById("measured").textContent = e.data);</script>
"""


@dataclass(frozen=True)
class Look:
    """A page as a browser shows it.

    Attributes:
        width: of what is seen, in pixels.
        scroll: of the content; more than ``width`` means that the page must be moved sideways.
        height: of the content.
        pale: texts with too little contrast.
        wide: elements that reach beyond the edge.
        broken: images that could not be shown.
        cut: images, tables and formulas that the edge cuts off, and elements that hide some of their content.
        boxes: tag, left, top, width and height of headings, paragraphs, pictures, tables, ... in their order.
    """

    width: int
    scroll: int
    height: int
    pale: list[str]
    wide: list[str]
    broken: list[str]
    cut: list[str]
    boxes: list[tuple[str, int, int, int, int]]

    def faults(self) -> list[str]:
        sideways = [f"content of {self.scroll} in {self.width} pixels"] if self.scroll > self.width else []
        return [*sideways, *self.pale, *self.wide, *self.broken, *self.cut]


def _chromium(around: Path, dark: bool, *options: str) -> str:
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--virtual-time-budget=8000",
        f"--user-data-dir={around.parent / 'profile'}",
        *options,
        around.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout


def look(page: Path, folder: Path, width: int, dark: bool, picture: Path | None = None) -> Look:
    """Open ``page`` at this width; write a screenshot of all of it to ``picture`` if one is wanted."""
    copy = page.with_name(f".{page.stem}.measured.html")  # beside the page, whose links are relative
    copy.write_text(page.read_text() + _MEASURE)
    around = folder / "around.html"
    try:
        height = 1600
        around.write_text(_AROUND.format(uri=copy.as_uri(), width=width, height=height))
        content = _chromium(around, dark, f"--window-size={max(width, 500)},{height}", "--dump-dom")
        measured = re.search(r'id="measured">(.*?)</pre>', content, re.DOTALL)
        assert measured is not None
        found = json.loads(html.unescape(measured[1]))
        seen = Look(**found | {"boxes": [tuple(box) for box in found["boxes"]]})
        if picture is not None:
            height = min(seen.height, TALLEST)
            around.write_text(_AROUND.format(uri=copy.as_uri(), width=width, height=height))
            _chromium(around, dark, f"--window-size={width},{height}", f"--screenshot={picture}")
    finally:
        copy.unlink()
    return seen
