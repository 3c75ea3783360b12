"""The site's Markdown extension: formulas, examples in docstrings, tables for phones.

$formulas$ become MathML when a page is built, so that the reader's browser needs no script. Doctests, which
stand in our docstrings without a heading, become code blocks, and Sphinx's :class:`Name` becomes `Name`.
Cells of tables carry the name of their column, which style/site.css shows where the rows are stacked, and
long names in them may be broken between their parts.

Formulas in plain text keep their signs, as on other sites with CommonMark: Python-Markdown would take
<W, exp(M)> for an HTML tag, which a browser hides, and the underscores of |z|_Q and X_{ij} for emphasis.
Emphasis is *so*.
"""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor

# What pymdownx.arithmatex leaves behind with generic: true.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
ROLE = re.compile(r":(?:class|func|meth|mod|attr):(`[^`]+`)")


# A "<" that begins no HTML tag, comment, entity or address in angle brackets, as CommonMark defines them.
_ATTRIBUTE = r"""\s+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>`]+))?"""
_TAG = rf"/?[A-Za-z][A-Za-z0-9-]*(?:{_ATTRIBUTE})*\s*/?>"
LESS_THAN = rf"<(?!{_TAG}|!--|[A-Za-z][A-Za-z0-9+.-]+:[^\s<>]*>|[^\s<>@]+@[^\s<>]+>)"

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
HEAD = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
CELL = re.compile(r"<td([^>]*)>(.*?)</td>", re.DOTALL)
CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)
FEWEST_STACKED = 3  # columns; two fit a phone side by side


def table_for_phones(table: str) -> str:
    """An HTML table whose cells know their columns, and whose code can be broken after / . _ ( and ::."""
    names = [html.escape(html.unescape(re.sub("<[^>]*>", "", name))) for name in HEAD.findall(table)]

    def broken(code: re.Match[str]) -> str:
        return "<code>" + re.sub(r"(::|[/_(]|\.(?!py\b))(?=\w)", r"\1<wbr>", code[1]) + "</code>"

    def row(found: re.Match[str]) -> str:
        column = iter(names)

        def cell(content: re.Match[str]) -> str:
            name = next(column, "")
            label = f' data-name="{name}"' if name and len(names) >= FEWEST_STACKED else ""
            return f"<td{content[1]}{label}>{CODE.sub(broken, content[2])}</td>"

        return CELL.sub(cell, found[0])

    return ROW.sub(row, table)


class _Tables(Postprocessor):
    def run(self, text: str) -> str:
        return TABLE.sub(lambda found: table_for_phones(found[0]), text)


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


class _LessThan(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        return self.md.htmlStash.store("&lt;"), m.start(0), m.end(0)


class SiteMarkdown(Extension):
    """Doctests before fences are read; MathML after the stash of raw HTML has been put back.

    "<" is read after code in backticks (190) and before HTML in a line (90).
    """

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Called by Markdown."""
        md.preprocessors.register(_Doctests(md), "doctests", 35)
        md.inlinePatterns.register(_LessThan(LESS_THAN, md), "less_than", 95)
        md.inlinePatterns.deregister("em_strong2", strict=False)  # Markdown before 3.11
        delimiters = getattr(md, "delimiters", None)
        if delimiters is not None:
            delimiters.remove("_")
        md.postprocessors.register(_MathML(md), "mathml", 5)
        md.postprocessors.register(_Tables(md), "tables", 4)


def makeExtension(**options: object) -> SiteMarkdown:  # noqa: N802
    """Called by Markdown, by this name."""
    return SiteMarkdown(**options)
