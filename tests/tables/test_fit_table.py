"""From a table to a tested model: what is learned from which rows, and what is said."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from least_squares import LeastSquares
from mlayer.errors import ArgumentError
from mlayer.tables import Plan, Training, fit_table, learn_schema
from mlayer.tables.fit.fit_table import default_estimator
from mlayer.tables.target import Target


def frame(rows: int = 200, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"a": draw.normal(size=rows), "b": draw.normal(size=rows), "noise": draw.normal(size=rows)}
    )
    return table.assign(y=3 * table["a"] - table["b"] + 0.1 * draw.normal(size=rows))


def test_metrics_are_those_of_the_held_out_rows() -> None:
    """Recomputed: scikit-learn's own least squares on the same split."""
    table = frame()
    result = fit_table(table, Plan("y", seed=3), estimator=LeastSquares())
    test = np.isin(table["y"], result.truth)
    assert test.sum() == 40
    x, y = table[["a", "b", "noise"]].to_numpy(), table["y"].to_numpy()
    theirs = LinearRegression().fit(x[~test], y[~test]).predict(x[test])
    np.testing.assert_allclose(result.predictions.outputs, theirs, rtol=1e-9)
    assert result.metrics["RMSE"] == pytest.approx(np.sqrt(np.mean((theirs - y[test]) ** 2)))
    assert result.baseline["RMSE"] == pytest.approx(np.sqrt(np.mean((y[~test].mean() - y[test]) ** 2)))
    assert result.model.facts["rows"] == {"train": 160, "test": 40}


def test_columns_are_learned_from_the_training_rows_alone() -> None:
    """A fill value that saw the held-out rows would move when these change."""
    table = frame().assign(c=np.random.default_rng(1).normal(size=200))
    table.loc[::5, "c"] = np.nan
    before = fit_table(table, Plan("y"), estimator=LeastSquares())
    test = np.isin(table["y"], before.truth)
    table.loc[test, "c"] = 1e6
    after = fit_table(table, Plan("y"), estimator=LeastSquares())
    assert after.model.schema == before.model.schema


def test_the_same_seed_gives_the_same_model() -> None:
    one, two, three = (
        fit_table(frame(), Plan("y", seed=seed), estimator=LeastSquares()) for seed in (0, 0, 1)
    )
    assert one.metrics == two.metrics
    assert one.importance == two.importance
    assert one.metrics != three.metrics


def test_importance() -> None:
    result = fit_table(frame(), Plan("y"), estimator=LeastSquares())
    cost = {name: pair[0] for name, pair in result.importance.items()}
    assert cost["a"] > cost["b"] > 10 * abs(cost["noise"])
    # Shuffling a standard normal a changes 3 a by an error of deviation 3 sqrt(2).
    assert cost["a"] == pytest.approx(3 * 2**0.5, rel=0.25)


def test_task_guessed_or_told() -> None:
    table = frame().assign(y=lambda t: (t["y"] > 0).astype(int))
    said: list[str] = []
    guessed = fit_table(table, Plan("y"), estimator=LeastSquares(), on_stage=said.append)
    assert guessed.model.target == Target("y", "classification", (0, 1))
    assert said[0] == (
        "classification of 'y' (the target has two values; its positive class is '1'): "
        "160 rows to learn from, 40 held out"
    )
    told = fit_table(table, Plan("y", task="regression"), estimator=LeastSquares())
    assert told.model.target.task == "regression"
    assert told.reason == "as given"


def test_verdict() -> None:
    good = fit_table(frame(), Plan("y"), estimator=LeastSquares())
    assert good.verdict.startswith("On 40 held-out rows the model's RMSE is 0.1")
    assert "no better" not in good.verdict
    noise = frame().assign(y=np.random.default_rng(5).choice(["a", "b"], 200))
    poor = fit_table(noise, Plan("y"), estimator=LeastSquares())
    assert "95% interval" in poor.verdict
    assert ("The model is no better" in poor.verdict) == (
        poor.metrics["accuracy"] <= poor.baseline["accuracy"]
    )


def test_the_share_of_rows_that_an_interval_held_is_that_of_the_stated_width() -> None:
    """Errors of fits to fewer rows widen the interval; the share was that of a narrower one."""
    result = fit_table(frame(), Plan("y"), estimator=LeastSquares())
    errors = np.abs(result.predictions.outputs - result.truth)
    facts = {**result.model.facts, "errors": sorted([*errors, *(3 * errors), *(3 * errors)])}
    wide = replace(result, model=replace(result.model, facts=facts), scores=None)
    half = wide.model.half_width(0.9)
    assert half > errors.max()
    assert "contains 100% of these rows" in wide.verdict


def test_periods_of_the_same_length_are_written_once() -> None:
    result = fit_table(frame(), Plan("y"), estimator=LeastSquares())
    facts = {**result.model.facts, "periods": [(0, 0.5), (0, 0.5000001), (1, 0.25)]}
    assert len(replace(result, model=replace(result.model, facts=facts)).periods) == 2


def test_rows_without_target_and_single_classes_are_said() -> None:
    table = frame().assign(y=["a", "b"] * 99 + ["c", None])
    result = fit_table(table, Plan("y"), estimator=LeastSquares())
    said = " ".join(map(str, result.remarks))
    assert "1 row without a target was left out" in said
    assert "1 class has one row only" in said
    assert result.model.target.classes == ("a", "b", "c")


def test_summary_is_json() -> None:
    result = fit_table(frame().assign(gone=None), Plan("y"), estimator=LeastSquares())
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["metrics"] == result.metrics
    assert [column["name"] for column in summary["columns"]] == ["a", "b", "noise"]
    assert summary["remarks"][0]["said"] == "column 'gone': left out: all cells are missing"


def test_strict_refuses_what_would_be_mended() -> None:
    with pytest.raises(
        ArgumentError, match=r"without what --strict refuses; got column 'k': left out: constant"
    ):
        fit_table(frame().assign(k=1), Plan("y", strict=True), estimator=LeastSquares())
    fit_table(frame().assign(k=1), Plan("y", strict=True, drop=("k",)), estimator=LeastSquares())


@pytest.mark.parametrize(
    ("table", "plan", "words"),
    [
        (frame(), Plan("Y "), r"target must be a column of the table; got 'Y '. Did you mean 'y'\?"),
        (frame(8), Plan("y"), r"at least 10 rows with a target; got 8"),
        (frame().assign(y=1), Plan("y", task="classification"), r"the class '1' in every row"),
        (frame()[["y"]], Plan("y"), r"a column to learn from; got none"),
    ],
)
def test_invalid_arguments(table: pd.DataFrame, plan: Plan, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        fit_table(table, plan, estimator=LeastSquares())


def test_the_table_is_not_changed() -> None:
    table = frame().assign(t=["x", None] * 100)
    copy = table.copy(deep=True)
    fit_table(table, Plan("y"), estimator=LeastSquares())
    pd.testing.assert_frame_equal(table, copy)


# ---- With our own estimators. ---------------------------------------------------------------------


def test_warnings_of_the_estimator_become_remarks() -> None:
    class Warns(LeastSquares):
        def fit(self, x: Any, y: Any) -> Warns:
            warnings.warn("training stopped early", RuntimeWarning, stacklevel=1)
            super().fit(x, y)
            return self

    result = fit_table(frame(), Plan("y"), estimator=Warns())
    assert "training stopped early" in [remark.text for remark in result.remarks]


def test_our_estimator_gets_the_settings() -> None:
    training = Training(epochs=7, matrix_size=3, embedding_size=2, effort="thorough", time_limit=100)
    wanted = asdict(training)
    wanted["max_iter"], wanted["random_state"] = wanted.pop("epochs"), 5
    del wanted["time_limit"]  # kept by `fit_table`
    schema, _ = learn_schema(frame().drop(columns="y"))
    for target, name in (
        (Target("y", "classification", ("a", "b")), "MLayerClassifier"),
        (Target("y", "regression"), "MLayerRegressor"),
    ):
        estimator = default_estimator(target, Plan("y", seed=5, training=training), schema)
        assert type(estimator).__name__ == name
        parameters = estimator.get_params()
        assert {name: parameters[name] for name in wanted} == wanted


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_our_estimator_learns(task: str) -> None:
    table = frame(60)
    table = table if task == "regression" else table.assign(y=np.where(table["y"] > 0, "up", "down"))
    result = fit_table(table, Plan("y", training=Training(epochs=30, matrix_size=4, embedding_size=3)))
    name, better = ("RMSE", -1) if task == "regression" else ("accuracy", 1)
    assert better * result.metrics[name] > better * result.baseline[name]
    assert result.history
    assert result.model.facts["epochs"] >= 1


def test_a_fit_ends_when_its_time_is_over() -> None:
    """One trial and one step are made where there is no time; without a limit the same fit makes far more."""
    table = frame(300)
    # A size of the matrix: else a linear model, which takes no steps, would do for this table.
    short = fit_table(table, Plan("y", training=Training(time_limit=1e-6, matrix_size=8)))
    free = fit_table(table, Plan("y", training=Training(epochs=100, matrix_size=8)))
    assert short.model.facts["epochs"] <= 20 < free.model.facts["epochs"]
    assert np.isfinite(short.metrics["RMSE"])


def test_progress_runs_from_0_to_1_once() -> None:
    parts: list[float] = []
    fit_table(
        frame(100),
        Plan("y", training=Training(epochs=40)),
        on_progress=lambda part, _: parts.append(part),
    )
    assert parts == sorted(parts)
    assert parts[0] == 0.0
    assert 0.6 <= parts[-1] <= 1.0
