"""The report page: self-contained, harmless whatever the table holds, readable for all."""

from __future__ import annotations

import base64
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlayer
from mlayer.errors import MissingPackageError
from mlayer.report import fit_page, plots, theme
from mlayer.report.page import STYLE, Page
from mlayer.report.theme import DARK, LIGHT
from mlayer.tables import FitResult, Predictions, Remark, Schema, TableModel, Target
from mlayer.tables.columns import Category, Number

NASTY = "<script>alert('x')</script> & \"$\\frac\" [red] 漢字 _^"
VOID = {"meta", "img", "source", "br"}


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def result(classes: list[Any], truth: Any, outputs: Any, name: str = "y") -> FitResult:
    """A fit of three columns, whose names are all made of ``name``."""
    metrics = {"accuracy": 0.9, "log loss": 0.3} if classes else {"RMSE": 1.5, "MAE": 1.0, "R2": 0.5}
    columns = [Number(f"{name} column", 0.0, False, 0.0, 1.0), Category(f"{name} text", (f"{name} cell",))]
    target = Target(name, "classification" if classes else "regression", tuple(classes))
    facts = {
        "rows": {"train": 80, "test": 20},
        "parameters": 1234,
        "epochs": 8,
        "seconds": 1.5,
        "seed": 0,
        "versions": {"mlayer": "0"},
        "created": "now",
    }
    model = TableModel(mlayer.MLayer(2, len(classes) or 1), Schema(tuple(columns)), target, facts)
    return FitResult(
        model=model,
        reason="as given",
        metrics=metrics,
        baseline=dict.fromkeys(metrics, 0.25),
        remarks=[Remark("dropped", name, 0, "left out")],
        history=[{"epoch": k, "loss": 1 / k, "validation_loss": 2 / k} for k in range(1, 9)],
        truth=truth,
        predictions=Predictions(outputs, target, []),
        importance={f"{name} column": (0.5, 0.1), "other": (0.0, 0.0)},
    )


def page_of(classes: list[Any], name: str = "y") -> str:
    draw = np.random.default_rng(0)
    if classes:
        truth, raw = draw.integers(0, len(classes), 40), draw.random((40, len(classes)))
        fitted = result(classes, truth, raw / raw.sum(axis=1, keepdims=True), name)
    else:
        fitted = result([], draw.normal(size=40), draw.normal(size=40), name)
    return fit_page(fitted, "t.csv: csv", "my model.safetensors").html()


def pictures(html: str) -> list[bytes]:
    return [
        base64.b64decode(data) for data in re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", html)
    ]


KINDS = [[], ["a", "b"], ["a", "b", "c"], list(range(30))]


@pytest.mark.parametrize("classes", KINDS, ids=lambda c: f"{len(c)} classes")
def test_self_contained(classes: list[Any]) -> None:
    html = page_of(classes)
    reader = Reader(html)
    assert not {tag for tag, _ in reader.tags} & {"script", "link", "iframe", "object", "embed", "base"}
    for tag, attributes in reader.tags:
        for key in ("src", "srcset", "href"):
            if key in attributes:
                assert str(attributes[key]).startswith("data:image/svg+xml;base64,"), tag
        assert not [key for key in attributes if key.startswith("on")]
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@pytest.mark.parametrize("classes", KINDS, ids=lambda c: f"{len(c)} classes")
def test_pictures_are_svg_for_light_and_dark_with_words(classes: list[Any]) -> None:
    html = page_of(classes)
    images = pictures(html)
    reader = Reader(html)
    figures = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert len(images) == 2 * len(figures) >= 8
    for image in images:
        assert ET.fromstring(image).tag.endswith("svg")
    assert all(len(attributes["alt"] or "") > 20 for attributes in figures)
    sources = [attributes for tag, attributes in reader.tags if tag == "source"]
    assert {attributes["media"] for attributes in sources} == {"(prefers-color-scheme: dark)"}
    light, dark = images[1], images[0]
    assert LIGHT.text.encode() in light
    assert DARK.text.encode() in dark
    assert LIGHT.text.encode() not in dark


def test_made_for_phones_and_for_the_dark() -> None:
    html = page_of([])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in html
    assert "@media (prefers-color-scheme: dark)" in html
    assert '<html lang="en">' in html


@pytest.mark.parametrize("classes", [[], [NASTY, "b"]], ids=["regression", "classification"])
def test_text_is_never_html(classes: list[Any]) -> None:
    html = page_of(classes, NASTY)
    reader = Reader(html)
    assert "script" not in {tag for tag, _ in reader.tags}
    assert NASTY in reader.text
    for image in pictures(html):
        assert not [e for e in ET.fromstring(image).iter() if e.tag.endswith("script")]


def test_what_is_on_it() -> None:
    text = Reader(page_of(["a", "b"])).text
    for words in (
        "Classification of y",
        "On 40 held-out rows the model's accuracy is 0.9",
        "accuracy",
        "0.25",
        "1,234",
        "column 'y': left out",
        "mlayer predict 'my model.safetensors' NEW.csv",
        "--onnx 'my model.onnx'",
        "on the held-out rows; the model file holds this model.",
    ):
        assert words in text


def test_equal_data_give_equal_bytes() -> None:
    assert page_of(["a", "b"]) == page_of(["a", "b"])


def test_rows_without_an_answer() -> None:
    outputs = np.array([0.5, np.nan, 1.0])
    assert "<figure>" in fit_page(result([], np.zeros(3), outputs), "t", "m").html()
    nothing = replace(result([], np.zeros(3), np.full(3, np.nan)), metrics={})
    assert "<h1>" in fit_page(nothing, "t", "m").html()


def test_save_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("title", "lead").code("x = 1").items(["a"])
    page.save(tmp_path / "p.html")
    assert (tmp_path / "p.html").read_text() == page.html()

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="the disk is full"):
        Page("other").save(tmp_path / "p.html")
    assert (tmp_path / "p.html").read_text() == page.html()
    assert os.listdir(tmp_path) == ["p.html"]


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"matplotlib.*pip install 'mlayer\[cli\]'"):
        theme.svg(plots.errors(np.zeros(3), np.ones(3)), LIGHT)


def test_matplotlib_is_left_as_it_was() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    page_of(["a", "b"])
    assert dict(matplotlib.rcParams) == before


# ---- What the plots show. -------------------------------------------------------------------------


def drawn(draw: theme.Draw) -> Any:
    from matplotlib.figure import Figure

    figure = Figure()
    draw(figure, LIGHT)
    (axes,) = figure.axes
    return axes


def test_predictions_are_drawn_over_the_truth() -> None:
    """Every row up to some thousands, evenly thinned beyond; the dotted line is that of perfect ones."""
    truth = np.arange(5000.0)
    axes = drawn(plots.predicted_against_true(truth, truth + 2))
    points = np.asarray(axes.collections[0].get_offsets())
    assert 2000 <= len(points) <= 5000
    np.testing.assert_array_equal(points[:, 1] - points[:, 0], 2)
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_xdata(), [0, 5001])
    np.testing.assert_array_equal(line.get_ydata(), [0, 5001])


def test_confusion_against_scikit_learn() -> None:
    from sklearn.metrics import confusion_matrix

    draw = np.random.default_rng(1)
    truth, guess = draw.integers(0, 3, 50), draw.integers(0, 3, 50)
    axes = drawn(plots.confusion(truth, guess, ["a", "b", "c"]))
    counts = np.array([int(text.get_text()) for text in axes.texts]).reshape(3, 3)
    assert counts.tolist() == confusion_matrix(truth, guess).tolist()
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares, confusion_matrix(truth, guess, normalize="true"))


@pytest.mark.parametrize("ties", [False, True])
def test_roc_against_scikit_learn(ties: bool) -> None:
    from sklearn.metrics import roc_curve

    draw = np.random.default_rng(2)
    truth = draw.integers(0, 2, 80)
    score = draw.integers(0, 5, 80) / 5 if ties else draw.random(80)
    line = drawn(plots.roc(truth, score)).lines[1]
    alarms, hits, _ = roc_curve(truth, score, drop_intermediate=False)
    np.testing.assert_allclose(line.get_xdata(), alarms)
    np.testing.assert_allclose(line.get_ydata(), hits)


def test_calibration_by_hand() -> None:
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.35, 0.65], [1.0, 0.0]])
    line = drawn(plots.calibration(np.array([0, 1, 1, 0]), probabilities)).lines[1]
    np.testing.assert_allclose(line.get_xdata(), [0.65, (0.95 + 0.95 + 1) / 3])
    np.testing.assert_allclose(line.get_ydata(), [1.0, 2 / 3])


def test_importance_bars_of_like_names() -> None:
    """Long names that are cut to the same letters keep a bar each, largest on top."""
    long = {f"a column with a long name {k}": (float(k), 0.1) for k in range(4)}
    axes = drawn(plots.importance_bars(long, "cost"))
    assert [bar.get_width() for bar in axes.patches] == [0.0, 1.0, 2.0, 3.0]
    assert len({bar.get_y() for bar in axes.patches}) == 4


def test_lines_differ_in_dash_too() -> None:
    axes = drawn(
        plots.learning_curve([{"epoch": k, "loss": 1.0, "validation_loss": None} for k in (1, 2)], 2)
    )
    assert len(axes.lines) == 1
    both = [{"epoch": k, "loss": 10.0**-k, "validation_loss": 1.0} for k in range(1, 5)]
    axes = drawn(plots.learning_curve(both, 2))
    assert len({line.get_linestyle() for line in axes.lines}) == 2
    assert axes.get_yscale() == "log"


def test_a_loss_of_one_epoch_is_seen() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    plots.learning_curve([{"epoch": 1, "loss": 0.5}], 1)(figure, LIGHT)
    assert figure.axes[0].lines[0].get_marker() == "o", "a line of one point has no length"


@pytest.mark.parametrize("axis", ["x", "y"])
def test_labels_of_a_logarithmic_axis_are_plain(axis: str) -> None:
    """Mathematics is off, for names with dollars; matplotlib's own labels of powers would be shown raw."""

    def draw(figure: Any, _: theme.Theme) -> None:
        axes = figure.subplots()
        axes.plot([1e-5, 1.0], [1e-5, 1.0])
        axes.set(**{f"{axis}scale": "log"})

    picture = theme.svg(draw, LIGHT)
    assert b"$" not in picture
    assert b">0.001<" in picture


def test_cells_of_wide_tables_carry_the_name_of_their_column() -> None:
    """So that a phone can show the cells of a row below each other."""
    wide = Page("t").table(["", "paper", 'our "goal"'], [["MNIST", "97.99", ""]]).html()
    assert '<table class="stacked">' in wide
    assert '<td>MNIST</td><td data-name="paper">97.99</td><td data-name="our &quot;goal&quot;"></td>' in wide
    assert "stacked" not in Page("t").table(["name", "value"], [["x", "1"]]).html().split("</style>")[1]
