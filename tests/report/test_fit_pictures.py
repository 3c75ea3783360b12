"""The pictures of a fit: precision over recall, the forecast, and figures that people can read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from mlayer.report import fit, fit_page, plots
from mlayer.report.theme import LIGHT, svg
from mlayer.tables import FitResult, Plan, Training, fit_table, load_table_model
from mlayer.tables.fit.result import TimeSeries

QUICK = Training(epochs=30, effort="quick")


def drawn(draw: Any) -> Any:
    figure = Figure()
    draw(figure, LIGHT)
    return figure.axes[0]


@pytest.mark.parametrize("ties", [False, True])
def test_precision_and_recall_against_scikit_learn(ties: bool) -> None:
    from sklearn.metrics import precision_recall_curve

    draw = np.random.default_rng(2)
    positive = draw.random(80) < 0.2
    score = draw.integers(0, 5, 80) / 5 if ties else draw.random(80)
    line = drawn(plots.precision_recall(positive, score)).lines[1]
    precision, recall, _ = precision_recall_curve(positive, score)
    np.testing.assert_allclose(line.get_xdata()[1:], recall[-2::-1])
    np.testing.assert_allclose(line.get_ydata()[1:], precision[-2::-1])


def test_a_forecast_shows_truth_forecast_and_band() -> None:
    days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]").astype("datetime64[s]")
    values = np.arange(60.0)
    half = np.linspace(1.0, 2.0, 10)
    axes = drawn(plots.forecast((days[:50], values[:50]), (days[50:], values[50:], values[50:] + 1), half))
    assert [len(line.get_xdata()) for line in axes.lines] == [30, 10, 10]
    low, high = axes.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == (values[50] + 1 - 1, values[59] + 1 + 2)
    endless = np.full(10, np.inf)
    bare = drawn(plots.forecast((days[:50], values[:50]), (days[50:], values[50:], values[50:]), endless))
    assert not bare.collections


@pytest.mark.parametrize("days", [0.02, 0.3, 1.5, 4, 9, 25, 60, 130, 250, 420, 700, 1168, 1500, 2600, 6000])
@pytest.mark.filterwarnings("error")
def test_dates_have_labels_without_a_warning(days: float) -> None:
    moments = np.datetime64("2021-01-04", "s") + (86400 * days * np.linspace(0, 1, 40)).astype(
        "timedelta64[s]"
    )
    values = np.arange(40.0)
    draw = plots.forecast((moments[:30], values[:30]), (moments[30:], values[30:], values[30:]), np.ones(10))
    assert 2 <= svg(draw, LIGHT).count(b'<g id="xtick') <= 7


@pytest.fixture(scope="module")
def sales() -> FitResult:
    t = np.arange(400)
    noise = np.random.default_rng(0).normal(0, 100, len(t))
    values = 60_000 + 20 * t + 4000 * np.sin(2 * np.pi * t / 7) + noise
    dates = pd.date_range("2022-01-01", periods=len(t)).strftime("%Y-%m-%d")
    return fit_table(pd.DataFrame({"date": dates, "revenue": values}), Plan(target="revenue"))


def test_the_page_of_a_series(sales: FitResult) -> None:
    html = fit_page(sales, "sales.csv", "sales.safetensors").html()
    assert "The last 80 time points of date were held out and forecast" in html
    assert "Periods found: 7.0 days" in html
    assert "waves with a period of 7.0 days" in sales.verdict
    assert "column used" in html
    assert "The band is the 90% interval of each row: from ±\N{NO-BREAK SPACE}" in html
    assert "+- " in sales.verdict  # for terminals of all kinds
    assert "+- " not in html
    assert "the model file was then fitted to all rows" in html
    assert "increase in RMSE" not in html  # one column has nothing to be compared with
    assert "Loss during training" not in html  # least squares has no curve of losses
    assert "e+0" not in html
    assert f"{sales.baseline['RMSE']:,.0f}" in html  # a baseline of thousands, with its comma


def test_a_loss_of_one_dot_is_not_shown(sales: FitResult) -> None:
    line = {"epoch": 1, "loss": 0.5}
    one = fit_page(replace(sales, history=[line]), "sales.csv", "sales.safetensors").html()
    falling = replace(sales, history=[line, line | {"epoch": 2, "loss": 0.4}])
    two = fit_page(falling, "s.csv", "s.safetensors").html()
    assert ("Loss during training" in one, "Loss during training" in two) == (False, True)


def test_the_axis_of_the_loss_counts_passes_as_the_text_does(sales: FitResult) -> None:
    """An entry of L-BFGS's history stands for 20 passes."""
    history = [{"epoch": k, "loss": 1.0 / k} for k in (1, 2, 3)]
    facts = {**sales.model.facts, "epochs": 60}
    result = replace(sales, history=history, model=replace(sales.model, facts=facts))
    [(draw, words)] = [(draw, words) for draw, words, _ in fit._pictures(result) if words.startswith("Loss")]
    assert drawn(draw).lines[0].get_xdata().tolist() == [20.0, 40.0, 60.0]
    assert words.startswith("Loss over 60 passes")


def rare(rows: int = 600) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    x, z = draw.normal(size=rows), draw.normal(size=rows)
    ill = draw.random(rows) < 1 / (1 + np.exp(3.5 - 1.5 * x))
    return pd.DataFrame({"x": x, "z": z, "ill": np.where(ill, "yes", "no")})


def fitted(**options: Any) -> FitResult:
    return fit_table(rare(), Plan(target="ill", training=QUICK, **options))


def test_a_flat_loss_is_not_shown(sales: FitResult) -> None:
    """Matplotlib wrote an offset, 1e-7+1.7842e-1, above a line of rounding."""
    lines = [{"epoch": k, "step": k, "loss": 0.17842 - 1e-7 * k} for k in (1, 2)]
    flat = replace(sales, history=lines)
    assert "Loss during training" not in fit_page(flat, "a.csv", "a.safetensors").html()
    steep = replace(sales, history=[lines[0], lines[1] | {"loss": 0.1}])
    assert "Loss during training" in fit_page(steep, "a.csv", "a.safetensors").html()


def test_lines_of_several_groups_are_said_to_be_means(sales: FitResult) -> None:
    assert "means of the rows" not in fit_page(sales, "a.csv", "a.safetensors").html()
    double = replace(sales, truth=np.tile(sales.truth, 2))
    assert any("means of the rows" in words for _, _, words in fit._series(double))


def test_of_rare_classes_the_curve_and_the_count_are_told() -> None:
    result = fitted()
    count = int((result.predictions.choices == 0).sum())
    assert next(iter(result.metrics)) == "ROC AUC"
    assert f"{count:,} of {len(result.truth):,} predictions are 'no'" in result.verdict
    html = fit_page(result, "ill.csv", "ill.safetensors").html()
    assert "Precision and recall for the class yes" in html


def test_balanced_classes_are_those_of_scikit_learns_weights() -> None:
    plain, balanced = fitted(), fitted(balanced=True)
    assert (balanced.predictions.choices == 1).sum() > (plain.predictions.choices == 1).sum()
    # Weights inverse to the frequencies: the mean probability of the rare class comes near one half of both.
    assert balanced.predictions.outputs[:, 1].mean() > 2 * plain.predictions.outputs[:, 1].mean()
    assert balanced.metrics["balanced accuracy"] > plain.metrics["balanced accuracy"]


def test_a_threshold_decides_and_is_kept(tmp_path: Any) -> None:
    result = fitted(threshold=0.1)
    chosen = result.predictions.outputs[:, 1] >= 0.1
    assert (result.predictions.choices == chosen).all()
    assert chosen.sum() > (result.predictions.outputs[:, 1] >= 0.5).sum()
    assert result.metrics["accuracy"] == pytest.approx((chosen == result.truth).mean())
    result.model.save(tmp_path / "m.safetensors")
    again = load_table_model(tmp_path / "m.safetensors").predict(rare())
    assert (again.choices == (again.outputs[:, 1] >= 0.1)).all()
    # The confusion matrix counts the answers that are given.
    axes = drawn(plots.confusion(result.truth, result.predictions.choices, ("no", "yes")))
    assert int(axes.texts[1].get_text()) == int((chosen & (result.truth == 0)).sum())


def long_series(result: FitResult, rows: int) -> FitResult:
    """The result with a series of ``rows`` hours, a fifth of them forecast."""
    hours = np.datetime64("2024-01-01", "s") + 3600 * np.arange(rows).astype("timedelta64[s]")
    values = 50 + 20 * np.sin(2 * np.pi * np.arange(rows) / 24)
    cut = 4 * rows // 5
    after = (hours[cut:], values[cut:], values[cut:] + 1)
    half = np.full(rows - cut, 3.0)
    return replace(result, series=TimeSeries("hour", (hours[:cut], values[:cut]), after, half))


def test_a_long_series_is_drawn_whole_and_close_up(sales: FitResult) -> None:
    """A line through 2,000 hours of a daily season is a solid block."""
    series = long_series(sales, 2000)
    html = fit_page(series, "sales.csv", "sales.safetensors").html()
    assert "Shown are the lowest and the highest value of every 27 time points." in html  # 1,600 / 60
    assert "the last 30 time points before the forecast and its first 90" in html
    assert series.series is not None
    before, after = series.series.before, series.series.after
    whole = drawn(plots.forecast_ranges(before, after, 27))
    low, high = (line.get_ydata() for line in whole.lines)
    assert len(low) == -(-400 // 27)
    for place in range(len(low)):
        start = min(27 * place, 400 - 27)  # the last stretch is as long as the others
        stretch = after[2][start : start + 27]
        assert (low[place], high[place]) == (stretch.min(), stretch.max())
    close = [draw for draw, words, _ in fit._pictures(series) if "the first 90 of them" in words]
    assert [len(line.get_xdata()) for line in drawn(close[0]).lines] == [30, 90, 90]


@pytest.mark.parametrize("rows", [10, 150, 300, 301, 350])
def test_short_series_are_one_picture_of_a_line(sales: FitResult, rows: int) -> None:
    names = [words for _, words, _ in fit._pictures(long_series(sales, rows)) if "points forecast" in words]
    assert len(names) == (1 if rows <= 300 else 2)  # four fifths of the rows are shown
