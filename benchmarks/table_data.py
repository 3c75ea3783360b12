"""Tables like those of people with data, made from seeds: messy, grouped, seasonal, imbalanced, products.

Each function gives a frame with the columns as they would stand in a file, its target named ``target`` in
:class:`Case`, and the rows that are predicted: a random part, or, for series, the last stretch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Case:
    """A table with its target.

    Attributes:
        train: rows to learn from.
        test: rows to predict; later ones where ``series``.
        target: the column to predict.
        classes: whether it names classes.
        series: whether the test rows lie beyond the training rows in time.
        mess: from clean columns to those of the file.
    """

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    classes: bool = False
    series: bool = False
    mess: Callable[[pd.DataFrame], pd.DataFrame] = field(default=lambda frame: frame)


def _random(frame: pd.DataFrame, target: str, seed: int, classes: bool = False) -> Case:
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = len(frame) * 3 // 4
    train, test = (frame.iloc[part].reset_index(drop=True) for part in (order[:cut], order[cut:]))
    return Case(train, test, target, classes=classes)


def _later(frame: pd.DataFrame, target: str, days: int) -> Case:
    dates = pd.to_datetime(frame["date"])
    late = dates > dates.max() - pd.Timedelta(days=days)
    train, test = (frame[mask].reset_index(drop=True) for mask in (~late, late))
    return Case(train, test, target, series=True)


def houses(rows: int = 2600, seed: int = 0) -> Case:
    """Prices by area, rooms, year, district, with gaps; the price per area depends on the district."""
    draw = np.random.default_rng(seed)
    area = draw.lognormal(4.5, 0.35, rows)
    district = draw.choice(
        ["center", "north", "south", "harbor", "hills"], rows, p=[0.2, 0.25, 0.25, 0.1, 0.2]
    )
    rate = pd.Series(district).map(
        {"center": 5200, "north": 3100, "south": 2700, "harbor": 3900, "hills": 4400}
    )
    built = draw.integers(1900, 2023, rows)
    garden = draw.random(rows) < 0.4
    distance = draw.gamma(2.0, 3.0, rows)
    condition = draw.choice(["poor", "fair", "good", "new"], rows, p=[0.1, 0.35, 0.4, 0.15])
    factor = pd.Series(condition).map({"poor": 0.75, "fair": 0.92, "good": 1.0, "new": 1.15})
    price = area * rate * factor * np.exp(-0.025 * distance) + 30_000 * garden
    price = price * (1 + 0.0012 * (built - 1960)) * draw.lognormal(0, 0.09, rows)
    frame = pd.DataFrame(
        {
            "area": area.round(1),
            "rooms": np.clip((area / 25 + draw.normal(0, 0.8, rows)).round(), 1, 9).astype(int),
            "built": built.astype(float),
            "district": district,
            "condition": condition,
            "garden": np.where(garden, "yes", "no"),
            "distance": distance.round(2),
            "floor": draw.integers(0, 8, rows),
            "price": np.asarray(price).round(-2),
        }
    )
    frame.loc[draw.random(rows) < 0.06, "built"] = np.nan
    return _random(frame, "price", seed)


def churn(rows: int = 4000, seed: int = 1) -> Case:
    """Customers that leave: mostly linear in the logit, one interaction, 26 % leave."""
    draw = np.random.default_rng(seed)
    tenure = draw.integers(0, 72, rows)
    charge = draw.uniform(18, 118, rows)
    contract = draw.choice(["month", "year", "two years"], rows, p=[0.55, 0.25, 0.2])
    internet = draw.choice(["fiber", "dsl", "none"], rows, p=[0.45, 0.35, 0.2])
    support, paperless = draw.random(rows) < 0.35, draw.random(rows) < 0.6
    terms = pd.Series(contract).map({"month": 0.9, "year": -0.4, "two years": -1.4}).to_numpy(float)
    kinds = pd.Series(internet).map({"fiber": 0.5, "dsl": 0.0, "none": -0.6}).to_numpy(float)
    logit = -1.6 + terms + kinds - 0.035 * tenure + 0.012 * charge - 0.4 * support + 0.25 * paperless
    logit = logit + 0.006 * charge * (contract == "month") * (tenure < 12)
    frame = pd.DataFrame({"customer_id": [f"C-{k:05d}" for k in range(rows)], "tenure": tenure})
    frame["charge"], frame["contract"], frame["internet"] = charge.round(2), contract, internet
    frame["support"], frame["paperless"] = np.where(support, "Yes", "No"), np.where(paperless, "Yes", "No")
    for k in range(6):
        frame[f"usage {k}"] = draw.gamma(2, 1, rows).round(2)
    frame["churn"] = np.where(draw.random(rows) < 1 / (1 + np.exp(-logit)), "Yes", "No")
    return _random(frame, "churn", seed, classes=True)


@dataclass(frozen=True)
class _Store:
    """Level, trend per day, size of the seasons, their phase, and what a promotion brings."""

    base: float
    slope: float
    size: float
    phase: float
    promotion: float

    def daily(self, days: int, draw: np.random.Generator) -> pd.DataFrame:
        t, promo = np.arange(days), draw.random(days) < 0.1
        week = self.size * (14 * np.sin(2 * np.pi * t / 7 + self.phase) + 5 * np.cos(4 * np.pi * t / 7))
        year = self.size * 25 * np.sin(2 * np.pi * t / 365.25 + self.phase / 2)
        values = self.base + self.slope * t + week + year + self.promotion * promo + draw.normal(0, 8, days)
        dates = pd.date_range("2020-01-01", periods=days).strftime("%Y-%m-%d")
        return pd.DataFrame({"date": dates, "promo": promo.astype(int), "sales": values.round(1)})


def sales(years: int = 4, seed: int = 2) -> Case:
    """Daily sales with a trend, a week, a year and promotions; the last year is predicted."""
    draw = np.random.default_rng(seed)
    return _later(_Store(200, 0.05, 1.0, 0.3, 30).daily(365 * years, draw), "sales", 365)


def stores(years: int = 3, seed: int = 3) -> Case:
    """Two stores, each with its own level, trend and seasons; the last half year is predicted."""
    draw = np.random.default_rng(seed)
    kinds = {"A": _Store(200, 0.05, 1.0, 0.3, 30), "B": _Store(320, -0.03, 1.6, 1.4, 45)}
    parts = [kind.daily(365 * years, draw).assign(store=name) for name, kind in kinds.items()]
    frame = pd.concat(parts).sort_values(["date", "store"]).reset_index(drop=True)
    return _later(frame[["date", "store", "promo", "sales"]], "sales", 182)


def law(rows: int = 1500, seed: int = 4) -> Case:
    """A centripetal force, m v^2 / r, with 2 % noise and two columns that do not matter."""
    draw = np.random.default_rng(seed)
    m, v, r = draw.uniform(0.5, 5, rows), draw.uniform(1, 10, rows), draw.uniform(1, 6, rows)
    frame = pd.DataFrame({"m": m, "v": v, "r": r, "temperature": draw.normal(20, 5, rows)})
    frame["operator"] = draw.choice(["Ann", "Bo", "Cy"], rows)
    frame["force"] = m * v**2 / r * (1 + 0.02 * draw.standard_normal(rows))
    return _random(frame, "force", seed)


def twenty_columns(rows: int = 4000, seed: int = 5) -> Case:
    """Twenty columns of all kinds, of which eight matter: products, a square, a wave, groups."""
    draw = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {f"x{k}": draw.normal(size=rows).round(4) for k in range(14)}
    columns["kind"] = draw.choice(list("abcdefgh"), rows)
    columns["class"] = draw.choice(["low", "middle", "high"], rows)
    columns["flag"] = draw.choice(["yes", "no"], rows)
    columns["count"] = draw.poisson(3, rows)
    columns["part"] = draw.uniform(0, 1, rows).round(3)
    columns["month"] = draw.integers(1, 13, rows)
    frame = pd.DataFrame(columns)
    y = frame["x0"] * frame["x1"] + np.sin(frame["x2"]) + 0.5 * frame["x3"] ** 2 + 0.3 * frame["count"]
    y = y + 2 * (frame["kind"] == "a") + (frame["class"] == "low") * frame["x4"]
    frame["y"] = (y + draw.normal(0, 0.5, rows)).round(4)
    return _random(frame, "y", seed)


def homes(rows: int = 1200, seed: int = 6) -> Case:
    """Prices with everything a spreadsheet does to numbers: currency, units, percent, gaps, spellings."""
    draw = np.random.default_rng(seed)
    area, age = draw.gamma(6, 15, rows) + 20, draw.integers(0, 90, rows)
    city = draw.choice(["Leeds", "York", "Bath"], rows, p=[0.5, 0.3, 0.2])
    yield_ = draw.uniform(2, 9, rows)
    rate = pd.Series(city).map({"Leeds": 2100.0, "York": 2900.0, "Bath": 4100.0}).to_numpy()
    price = area * rate * (1 - 0.003 * age) * (1.15 - 0.03 * yield_) * draw.lognormal(0, 0.07, rows)
    frame = pd.DataFrame({"area": area.round(1), "age": age.astype(float), "city": city})
    frame["yield"], frame["price"] = yield_.round(2), price.round(2)
    frame.loc[draw.random(rows) < 0.08, "age"] = np.nan
    return replace(_random(frame, "price", seed), mess=_messy_homes)


def _messy_homes(frame: pd.DataFrame) -> pd.DataFrame:
    spell: list[Callable[[str], str]] = [str, str.upper, str.lower, lambda name: f" {name}  "]
    return frame.assign(
        area=[f"{value} m²" for value in frame["area"]],
        city=[spell[k % 4](name) for k, name in enumerate(frame["city"])],
        **{"yield": [f"{value}%" for value in frame["yield"]]},
        price=[f"£{value:,.2f}" for value in frame["price"]],
    )


def fraud(rows: int = 6000, seed: int = 7) -> Case:
    """Payments of which about 2 in 100 are fraud: amount times distance at night, by channel."""
    draw = np.random.default_rng(seed)
    amount, distance = draw.lognormal(3.5, 1.0, rows), draw.exponential(40, rows)
    hour, channel = draw.integers(0, 24, rows), draw.choice(["card", "web", "phone"], rows, p=[0.6, 0.3, 0.1])
    night = (hour < 6).astype(float)
    logit = -6.2 + 0.5 * np.log(amount) + 0.008 * distance * night + 1.2 * (channel == "web")
    frame = pd.DataFrame({"payment_id": np.arange(rows) + 10_000, "amount": amount.round(2)})
    frame["distance"], frame["hour"], frame["channel"] = distance.round(1), hour, channel
    for k in range(5):
        frame[f"score {k}"] = draw.normal(size=rows).round(3)
    frame["fraud"] = np.where(draw.random(rows) < 1 / (1 + np.exp(-logit)), "yes", "no")
    return _random(frame, "fraud", seed, classes=True)


def hourly(days: int = 60, seed: int = 8) -> Case:
    """Load by the hour: a day with its harmonics, a week, temperature; the last ten days are predicted."""
    draw = np.random.default_rng(seed)
    t = np.arange(24 * days)
    warm = 15 + 6 * np.sin(2 * np.pi * (t - 9) / 24) + np.cumsum(draw.normal(0, 0.15, len(t)))
    day = 30 * np.sin(2 * np.pi * (t - 8) / 24) + 12 * np.sin(4 * np.pi * t / 24 + 1)
    load = 300 + day + 18 * np.sin(2 * np.pi * t / 168) + 2.5 * warm + draw.normal(0, 6, len(t))
    dates = pd.date_range("2024-01-01", periods=len(t), freq="h").strftime("%Y-%m-%d %H:%M:%S")
    frame = pd.DataFrame({"date": dates, "temperature": warm.round(1), "load": load.round(1)})
    return _later(frame, "load", 10)


def lens(rows: int = 800, seed: int = 9) -> Case:
    """The image distance of a thin lens, 1 / (1 / f - 1 / g), with 1 % noise: quotients."""
    draw = np.random.default_rng(seed)
    f, g = draw.uniform(20, 60, rows), draw.uniform(90, 300, rows)
    image = 1 / (1 / f - 1 / g) * (1 + 0.01 * draw.standard_normal(rows))
    frame = pd.DataFrame({"focal": f.round(2), "object": g.round(1), "room": draw.choice(["A", "B"], rows)})
    return _random(frame.assign(image=image.round(3)), "image", seed)


USERS: dict[str, Callable[[], Case]] = {
    "houses": houses,
    "churn": churn,
    "sales": sales,
    "stores": stores,
    "law": law,
}

# Tables of benchmarks/user_tables.py.
USER_TABLES: dict[str, Callable[[int], Case]] = {
    "houses": lambda seed: houses(seed=seed),
    "churn": lambda seed: churn(seed=seed),
    "daily sales": lambda seed: sales(seed=seed),
    "two stores": lambda seed: stores(seed=seed),
    "centripetal force": lambda seed: law(seed=seed),
    "twenty columns": lambda seed: twenty_columns(seed=seed),
    "messy homes": lambda seed: homes(seed=seed),
    "fraud, 2 %": lambda seed: fraud(seed=seed),
    "hourly load": lambda seed: hourly(seed=seed),
    "thin lens": lambda seed: lens(seed=seed),
}
