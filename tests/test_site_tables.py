"""Markdown of the documentation site: cells know their columns, formulas in plain text stay whole."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("markdown", reason="needs Markdown, of the extra docs")
pytest.importorskip("latex2mathml", reason="needs latex2mathml, of the extra docs")
FILE = Path(__file__).resolve().parents[1] / "docs" / "site_markdown.py"


@pytest.fixture(name="site")
def fixture_site() -> Any:
    spec = importlib.util.spec_from_file_location("site_markdown", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_markdown"] = module
    spec.loader.exec_module(module)
    return module


def test_tables(site: Any) -> None:
    import markdown

    text = "| a | `b` | c |\n|---|---|---|\n| x | `nn/test_layer.py::test_one` | |\n"
    page = markdown.markdown(text, extensions=["tables", site.makeExtension()])
    assert '<td data-name="b"><code>nn/<wbr>test_<wbr>layer.py::<wbr>test_<wbr>one</code></td>' in page
    assert '<td data-name="a">x</td>' in page
    assert '<td data-name="c"></td>' in page
    two = markdown.markdown("| a | b |\n|---|---|\n| x | y |\n", extensions=["tables", site.makeExtension()])
    assert "data-name" not in two


FORMULAS = """f = b + <W, e^M> and |<W, exp(M)>|,
<G, L(A, E)> = <L(A^T, G), E>: <D, T_a>, sum_{j<k} (M + N)^j for j >= k,
|z|_Q^2 t^T Q t, sum p_i X_{ij}, ||W||_nuc <= a_1."""


def test_formulas_in_plain_text_stay_whole(site: Any) -> None:
    import markdown

    page = markdown.markdown(FORMULAS, extensions=[site.makeExtension()])
    assert not re.search("<(?!/?p>)", page)  # no tag but the paragraph's: nothing for a browser to hide
    assert html.unescape(re.sub("</?p>", "", page)) == FORMULAS


def test_html_links_code_and_emphasis_are_still_read(site: Any) -> None:
    import markdown

    text = 'a <b class="x">bold</b> `<W, c_d>` <https://a.org/b> *so* <br/> <!-- hidden -->'
    page = markdown.markdown(text, extensions=[site.makeExtension()])
    assert '<b class="x">bold</b> <code>&lt;W, c_d&gt;</code>' in page
    assert '<a href="https://a.org/b">https://a.org/b</a> <em>so</em> <br/> <!-- hidden -->' in page
