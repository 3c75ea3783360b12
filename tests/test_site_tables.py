"""Tables of the documentation site: cells know their columns, and long names break between their parts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("markdown", reason="needs Markdown, of the extra docs")
pytest.importorskip("latex2mathml", reason="needs latex2mathml, of the extra docs")
FILE = Path(__file__).resolve().parents[1] / "docs" / "site_markdown.py"


def test_tables() -> None:
    spec = importlib.util.spec_from_file_location("site_markdown", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_markdown"] = module
    spec.loader.exec_module(module)
    import markdown

    text = "| a | `b` | c |\n|---|---|---|\n| x | `nn/test_layer.py::test_one` | |\n"
    page = markdown.markdown(text, extensions=["tables", module.makeExtension()])
    assert '<td data-name="b"><code>nn/<wbr>test_<wbr>layer.py::<wbr>test_<wbr>one</code></td>' in page
    assert "<td>x</td>" in page
    assert '<td data-name="c"></td>' in page
    two = markdown.markdown(
        "| a | b |\n|---|---|\n| x | y |\n", extensions=["tables", module.makeExtension()]
    )
    assert "data-name" not in two
