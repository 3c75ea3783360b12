"""The site's Markdown extension: formulas without a script, and examples in docstrings as code.

$formulas$ become MathML when a page is built, so that the reader's browser needs no script. Doctests, which
stand in our docstrings without a heading, become code blocks, and Sphinx's :class:`Name` becomes `Name`.
"""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor

# What pymdownx.arithmatex leaves behind with generic: true.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
ROLE = re.compile(r":(?:class|func|meth|mod|attr):(`[^`]+`)")


class _MathML(Postprocessor):
    def run(self, text: str) -> str:
        text = INLINE.sub(lambda found: convert(html.unescape(found[1])), text)
        return BLOCK.sub(lambda found: convert(html.unescape(found[1]), display="block"), text)


class _Doctests(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        result: list[str] = []
        fenced = example = False
        for line in lines:
            if line.startswith("```"):
                fenced = not fenced
            if not fenced and not example and line.startswith(">>> "):
                result += ["", "```pycon"]
                example = True
            if example and not line.strip():
                result.append("```")
                example = False
            result.append(line if example or fenced else ROLE.sub(r"\1", line))
        return [*result, "```"] if example else result


class SiteMarkdown(Extension):
    """Doctests before fences are read; MathML after the stash of raw HTML has been put back."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Called by Markdown."""
        md.preprocessors.register(_Doctests(md), "doctests", 35)
        md.postprocessors.register(_MathML(md), "mathml", 5)


def makeExtension(**options: object) -> SiteMarkdown:  # noqa: N802
    """Called by Markdown, by this name."""
    return SiteMarkdown(**options)
