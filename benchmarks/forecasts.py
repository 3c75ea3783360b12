"""Forecasts and their intervals on ten kinds of series, compared with seasonal-naive and gradient boosting.

    python benchmarks/forecasts.py               60 series; writes results/forecasts.json; exits with 1 on a
                                                 miss
    python benchmarks/forecasts.py --quick       two series of each kind; no file
    python benchmarks/forecasts.py --seed 500    other series

Claims, for each kind of series, over its series: intervals that are asked to hold 90 % of the later values
hold at least 80 %, and the mean RMSE is at most 1.1 times that of the better of two rivals.

mlayer gets the raw table, with dates as text, by `fit_table` and `predict`. Seasonal-naive repeats the last
season (7 days, 12 months) of each group. Boosting (HistGradientBoosting) gets the day number, weekday, month
and day of the year, and groups as categories. RMSE is divided by the standard deviation of the training rows.
Infinite intervals are counted and do not count as holding anything. The settings of the forecasts were chosen
on other seeds, below 4000.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from measure import argument_parser, circumstances, save
from sklearn.ensemble import HistGradientBoostingRegressor

from mlayer.tables import Plan, fit_table

NAME = "forecasts"
SERIES = 6
SEED = 7000
COVERAGE, LEAST, WORST = 0.9, 0.8, 1.1
Draw = np.random.Generator


@dataclass(frozen=True)
class Series:
    """Rows of a series: the last ``later`` moments are not shown to any method."""

    frame: pd.DataFrame
    later: int
    season: int

    @property
    def parts(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows to learn from, and later ones."""
        moments = np.sort(self.frame["date"].unique())
        late = self.frame["date"] >= moments[-self.later]
        return self.frame[~late].reset_index(drop=True), self.frame[late].reset_index(drop=True)


def _daily(values: Any, later: int) -> Series:
    dates = pd.date_range("2021-03-01", periods=len(values), freq="D")
    return Series(pd.DataFrame({"date": dates, "y": values}), later, 7)


def _monthly(values: Any, later: int) -> Series:
    dates = pd.date_range("2009-01-01", periods=len(values), freq="MS")
    return Series(pd.DataFrame({"date": dates, "y": values}), later, 12)


def _year(draw: Draw, months: Any) -> Any:
    """A season of the year that is not a sine."""
    return draw.normal(size=12)[months % 12]


def seasonal_trend(draw: Draw) -> Series:
    t = np.arange(144)
    return _monthly(100 + draw.uniform(-0.5, 0.8) * t + 10 * _year(draw, t) + draw.normal(0, 4, 144), 24)


def growing(draw: Draw) -> Series:
    t = np.arange(144)
    level = 50 * np.exp(draw.uniform(0.004, 0.012) * t + 0.15 * _year(draw, t))
    return _monthly(level * np.exp(draw.normal(0, 0.04, 144)), 24)


def random_walk(draw: Draw) -> Series:
    return _daily(100 + np.cumsum(draw.normal(0, 1, 360)), 60)


def autoregressive(draw: Draw) -> Series:
    values, rate = np.zeros(360), draw.uniform(0.6, 0.95)
    for t in range(1, 360):
        values[t] = rate * values[t - 1] + draw.normal()
    return _daily(20 + values, 60)


def level_shift(draw: Draw) -> Series:
    t = np.arange(360)
    shift = draw.uniform(5, 15) * (t > draw.integers(120, 270)) * draw.choice([-1, 1])
    return _daily(50 + shift + draw.normal(0, 2, 360), 60)


def intermittent(draw: Draw) -> Series:
    demand = draw.poisson(draw.uniform(3, 9), 360) * (draw.random(360) < draw.uniform(0.15, 0.35))
    return _daily(demand.astype(float), 60)


def short(draw: Draw) -> Series:
    t = np.arange(30)
    return _monthly(100 + draw.uniform(-1, 2) * t + 8 * np.sin(2 * np.pi * t / 12) + draw.normal(0, 4, 30), 6)


def weekly(draw: Draw) -> Series:
    t = np.arange(240)
    return _daily(
        100 + draw.uniform(0, 0.1) * t + 8 * draw.normal(size=7)[t % 7] + draw.normal(0, 4, 240), 28
    )


def groups(draw: Draw) -> Series:
    t = np.arange(240)
    parts = []
    for name in ("north", "south", "west"):
        part = _daily(
            draw.uniform(20, 200)
            + draw.uniform(-0.05, 0.1) * t
            + 8 * draw.normal(size=7)[t % 7]
            + draw.normal(0, 4, 240),
            28,
        )
        parts.append(part.frame.assign(store=name))
    return Series(pd.concat(parts, ignore_index=True).sort_values("date", ignore_index=True), 28, 7)


def gaps(draw: Draw) -> Series:
    whole = weekly(draw).frame
    kept = draw.random(len(whole)) > 0.25
    kept[100:115] = False
    return Series(whole[kept].reset_index(drop=True), 28, 7)


KINDS: dict[str, Callable[[Draw], Series]] = {
    "seasonal and trend, monthly": seasonal_trend,
    "growing, monthly": growing,
    "random walk": random_walk,
    "AR(1)": autoregressive,
    "level shift": level_shift,
    "intermittent": intermittent,
    "short, 24 rows": short,
    "weekly season, daily": weekly,
    "three groups": groups,
    "gaps in the dates": gaps,
}


def seasonal_naive(series: Series) -> Any:
    """The value of the last season at the same place of it."""
    train, test = series.parts
    daily = series.season == 7
    found = np.empty(len(test))
    for k, row in enumerate(test.itertuples()):
        mine = train if "store" not in train else train[train["store"] == row.store]
        same = (
            mine["date"].dt.day_of_week == row.date.weekday()
            if daily
            else mine["date"].dt.month == row.date.month
        )
        found[k] = mine[same]["y"].iloc[-1]
    return found


def boosting(series: Series) -> Any:
    """Gradient boosting on the features of the calendar."""

    def features(frame: pd.DataFrame) -> pd.DataFrame:
        dates = frame["date"].dt
        columns = {
            "day": (frame["date"] - pd.Timestamp("2000-01-01")) / pd.Timedelta(days=1),
            "weekday": dates.day_of_week,
            "month": dates.month,
            "day of year": dates.day_of_year,
        }
        if "store" in frame:
            columns["store"] = frame["store"].astype("category")
        return pd.DataFrame(columns)

    train, test = series.parts
    model = HistGradientBoostingRegressor(random_state=0, categorical_features="from_dtype")
    return model.fit(features(train), train["y"]).predict(features(test))


def ours(series: Series) -> tuple[Any, Any]:
    """Predictions and half-widths."""
    train, test = (part.assign(date=part["date"].dt.strftime("%Y-%m-%d")) for part in series.parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = fit_table(train, Plan(target="y", task="regression")).model
    later = test.drop(columns="y")
    return model.predict(later).outputs, model.half_widths(later, COVERAGE)


def measured(kind: str, number: int) -> dict[str, float]:
    """RMSE by method, over the deviation of the training rows; coverage and width of our intervals."""
    series = KINDS[kind](np.random.default_rng([number, list(KINDS).index(kind)]))
    train, test = series.parts
    truth = test["y"].to_numpy()
    middle, half = ours(series)
    answers = {"mlayer": middle, "seasonal-naive": seasonal_naive(series), "boosting": boosting(series)}
    spread = train["y"].std()
    result = {
        name: float(np.sqrt(np.mean(np.square(values - truth))) / spread) for name, values in answers.items()
    }
    finite = np.isfinite(half)
    result["coverage"] = float(np.mean(finite & (np.abs(middle - truth) <= half)))
    result["half-width"] = float(np.mean(half[finite]) / spread) if finite.any() else float("inf")
    result["infinite"] = float(np.mean(~finite))
    return result


def main() -> int:
    parser = argument_parser(__doc__, "a smoke run: no file")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kind", help="only kinds that contain this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, missed = {}, []
    print(f"{'kind':28} {'mlayer':>8} {'naive':>8} {'boosting':>8} {'ratio':>6} {'coverage':>8} {'width':>7}")
    for kind in KINDS:
        if options.kind and options.kind not in kind:
            continue
        runs = [measured(kind, options.seed + k) for k in range(2 if options.quick else SERIES)]
        mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        mean["ratio"] = mean["mlayer"] / min(mean["seasonal-naive"], mean["boosting"])
        rows[kind] = {"mean": mean, "series": runs}
        if mean["coverage"] < LEAST or mean["ratio"] > WORST:
            missed.append(kind)
        print(
            f"{kind:28} {mean['mlayer']:8.3f} {mean['seasonal-naive']:8.3f} {mean['boosting']:8.3f} "
            f"{mean['ratio']:6.2f} {mean['coverage']:8.2f} {mean['half-width']:7.2f}  "
            + " ".join(f"{run['coverage']:.2f}" for run in runs),
            flush=True,
        )
    if not options.quick and not options.kind and options.seed == SEED:
        save(NAME, {"circumstances": circumstances(), "coverage asked for": COVERAGE, "kinds": rows})
    print("missed: " + ", ".join(missed) if missed else "all held")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
