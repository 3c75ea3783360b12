"""Dates, amounts, durations and codes as exports write them, against Python's calendar and arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import constants

from mlayer.tables import learn_schema, open_table
from mlayer.tables.columns import Category, Date, Number, column_from_json, infer_column
from mlayer.tables.columns.date_notations import date_format
from mlayer.tables.export.encode_rows import encode_rows
from mlayer.tables.export.onnx_table import _without_imports_of_mlayer
from mlayer.tables.fit.labeled import read_with_target

MOMENTS = [datetime(2021, 11, 27, 6) + timedelta(days=k, hours=k % 7) for k in range(400)]
_GERMAN = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
GERMAN = _GERMAN.split()
FRENCH = ["janv.", "févr.", "mars", "avr.", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."]
_SPANISH = "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
SPANISH = _SPANISH.split()


def learned(cells: Any, name: str = "c") -> Any:
    """The column of the cells, which the exported program encodes in the same way."""
    series = pd.Series(cells, name=name)
    column = infer_column(series, 50).column
    assert column is not None
    assert column_from_json(column.as_json()) == column
    rows = [{name: None if isinstance(cell, float) and np.isnan(cell) else cell} for cell in cells]
    found = encode_rows([column.as_json()], rows)
    np.testing.assert_allclose(found, column.encode(series)[0], rtol=1e-12, atol=1e-9)
    return column


DAYS: dict[str, Callable[[datetime], str]] = {
    "German": lambda t: f"{t.day}. {GERMAN[t.month - 1]} {t.year}",
    "French": lambda t: f"{t.day} {FRENCH[t.month - 1]} {t.year}",
    "Spanish": lambda t: f"{t.day} de {SPANISH[t.month - 1]} de {t.year}",
    "weekday": lambda t: f"{t:%A, %B %d, %Y}",
    "German weekday": lambda t: f"{['Mo', 'Di', 'Mi', 'Do', 'Fr', 'Sa', 'So'][t.weekday()]}, {t:%d.%m.%Y}",
    "ordinal": lambda t: f"{t:%B} {t.day}{'st' if t.day in (1, 21, 31) else 'th'}, {t.year}",
    "SAS": lambda t: f"{t:%d%b%Y}".upper(),
    "spaces": lambda t: f"{t.day}. {t.month}. {t.year}",
    "Japanese": lambda t: f"{t.year}年{t.month}月{t.day}日",
    "week and day": lambda t: "{}-W{:02}-{}".format(*t.isocalendar()),
    "week of pandas": lambda t: f"{t:%Y-%m-%d}/{t + timedelta(days=6):%Y-%m-%d}",
}
CLOCKS: dict[str, Callable[[datetime], str]] = {
    "mail": lambda t: f"{t:%a, %d %b %Y %H:%M:%S} +0000",
    "web server": lambda t: f"{t:%d/%b/%Y:%H:%M:%S} +0000",
    "C": lambda t: f"{t:%a %b %d %H:%M:%S %Y}",
    "SAS": lambda t: f"{t:%d%b%Y:%H:%M:%S}".upper(),
    "UTC": lambda t: f"{t:%Y-%m-%d %H:%M:%S} UTC",
    "short year": lambda t: f"{t:%d.%m.%y %H:%M}",
    "words": lambda t: f"{t:%d %b %Y %I:%M %p}",
    "German": lambda t: f"{t:%d.%m.%Y}, {t:%H:%M} Uhr",
    "energy market": lambda t: f"{t:%d.%m.%Y %H:%M} - {t + timedelta(hours=1):%d.%m.%Y %H:%M}",
}


@pytest.mark.parametrize("how", DAYS)
def test_days_in_words(how: str) -> None:
    column = learned([DAYS[how](t) for t in MOMENTS])
    assert isinstance(column, Date)
    found = column.parse(pd.Series([DAYS[how](t) for t in MOMENTS])).values + column.origin
    # exact: whole days
    assert found.tolist() == [(t.date() - datetime(1970, 1, 1).date()).days for t in MOMENTS]


@pytest.mark.parametrize("how", CLOCKS)
def test_moments(how: str) -> None:
    column = learned([CLOCKS[how](t) for t in MOMENTS])
    assert isinstance(column, Date)
    found = column.parse(pd.Series([CLOCKS[how](t) for t in MOMENTS])).values + column.origin
    assert found == pytest.approx([(t - datetime(1970, 1, 1)).total_seconds() / 86400 for t in MOMENTS])


@pytest.mark.parametrize("form", ["%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S"])
def test_moments_in_digits(form: str) -> None:
    column = learned([int(f"{t:{form}}") for t in MOMENTS])
    assert isinstance(column, Date)
    wanted = [(t - datetime(1970, 1, 1)).total_seconds() / 86400 for t in MOMENTS]
    assert (
        column.parse(pd.Series([f"{t:{form}}" for t in MOMENTS])).values + column.origin
    ) == pytest.approx(wanted)


@pytest.mark.parametrize("form", ["{0}M{1:02}", "{0} {2}", "{2}-{0}", "{2}/{3:02}", "{4} {0}", "{0}年{1}月"])
def test_months(form: str) -> None:
    months = [datetime(2019 + k // 12, k % 12 + 1, 1) for k in range(30)]
    texts = [form.format(t.year, t.month, f"{t:%b}", t.year % 100, GERMAN[t.month - 1][:3]) for t in months]
    column = learned(texts)
    assert isinstance(column, Date)
    found = column.parse(pd.Series(texts)).values + column.origin
    assert found.tolist() == [(t - datetime(1970, 1, 1)).days for t in months]  # exact: whole days


def test_months_with_a_point_or_in_digits(tmp_path: Path) -> None:
    lines = [
        f"{k % 12 + 1:02}.{2019 + k // 12},{201900 + 100 * (k // 12) + k % 12 + 1},{k}" for k in range(40)
    ]
    (tmp_path / "t.csv").write_text("when,month,y\n" + "\n".join(lines))
    frame = read_with_target(open_table(tmp_path / "t.csv"), "y").frame
    for name in ("when", "month"):
        column = infer_column(frame[name], 50).column
        assert isinstance(column, Date), name
        assert column.high == (datetime(2022, 4, 1) - datetime(2019, 1, 1)).days
    assert isinstance(infer_column(frame["month"].rename("price"), 50).column, Number)


@pytest.mark.parametrize(
    "cells",
    [
        ["2010/11", "2011/12", "2009/10"] * 9,  # seasons
        ["SEP12", "SEP07", "MAR31"] * 9,
        ["Set 2020", "Set 2021", "Set 2022"] * 9,
        ["12 Mar A", "Mar 5X", "A1"] * 9,
        ["1-Mar", "2-Sep", "1-Dec"] * 9,
    ],
    ids=["seasons", "genes", "sets", "parts", "days"],
)
def test_names_that_resemble_months(cells: list[str]) -> None:
    assert date_format(cells) is None
    assert isinstance(learned(cells), Category)


def test_formats_of_older_files_are_read() -> None:
    entry = learned(["31.12.2024", "01.02.2025"]).as_json()
    for old, text in (("%d.%m.%Y %H:%M", "31.12.2024 06:00"), ("%B %d, %Y", "December 31, 2024")):
        column = column_from_json(entry | {"format": old})
        assert isinstance(column, Date)
        assert column.parse(pd.Series([text])).values[0] == pytest.approx(0.25 if ":" in text else 0.0)
    with pytest.raises(ValueError, match="column"):
        column_from_json(entry | {"format": "%d.%H"})


AMOUNTS: dict[str, tuple[list[str], list[float]]] = {
    "magnitudes": (["950", "1.2K", "3.4M", "7k"], [950, 1200, 3.4e6, 7000]),
    "money": (["$1.2M", "$900K", "$2 billion", "$50"], [1.2e6, 9e5, 2e9, 50]),
    "German money": (["5,2 Mio. €", "300 Tsd. €", "7 €"], [5.2e6, 3e5, 7]),
    "weights": (["5 kg", "700 g", "2 kg"], [5, 0.7, 2]),
    "scales": (["70 kg", "154 lb", "80.5 kg", "11 lbs"], [70, 154 * constants.lb, 80.5, 11 * constants.lb]),
    "rulers": (["1.8 m", "6 ft", "2 m", "70 inches"], [1.8, 6 * constants.foot, 2, 70 * constants.inch]),
    "ways": (["5 km", "3 miles", "9 km", "1 mi"], [5, 3 * constants.mile / 1e3, 9, constants.mile / 1e3]),
    "Swedish miles": (["50 km", "3 mil", *["20 km"] * 18], [50, np.nan, *[20] * 18]),
    "food and physics": (["250 cal", "2 kcal", *["7 kcal"] * 18], [np.nan, 2, *[7] * 18]),
    "lots": (["2 ha", "1.5 acres", "3 ha"], [2, 1.5 * constants.acre / constants.hectare, 3]),
    "flats": (["80 m²", "97.5 m2", "900 sq ft", "80 m²"], [80, 97.5, 900 * constants.foot**2, 80]),
    "speeds": (["80 km/h", "50 mph", "20 m/s", "7 km/h"], [80, 50 * constants.mph / constants.kmh, 72, 7]),
    "pressures": (["1 bar", "30 psi", "2 bar"], [1, 30 * constants.psi / constants.bar, 2]),
    "food": (["50 kcal", "90 kJ", "7 kcal"], [50, 90 / 4.184, 7]),
    "binary bytes": (["2 GiB", "512 MiB", "8 GiB"], [2, 0.5, 8]),
    "bytes": (["1.5 GB", "20 MB", "300 MB"], [1500, 20, 300]),
    "limits": (["<0.5", "1.2", "3.4", ">5"], [0.5, 1.2, 3.4, 5]),
    "more": (["0", "1", "2", "3+"], [0, 1, 2, 3]),
    "minus behind": (["12.50-", "3.25", "1,200.00-"], [-12.5, 3.25, -1200]),
    "no cents": (["839,-", "12,50", "7,-"], [839, 12.5, 7]),
    "lakhs": (["₹71,14,568", "₹1,234", "₹12,34,567.5"], [7114568, 1234, 1234567.5]),
    "notes": (["99.1*", "60.6", "26.5[1]", "7.0"], [99.1, 60.6, 26.5, 7]),
    "arrows": (["▲ 2.3", "▼ 1.1"], [2.3, -1.1]),
    "areas": (["80 m2", "97.5 m2"], [80, 97.5]),
    "rent": (["$69.10/month", "$1,200/month"], [69.1, 1200]),
    "two words": (["4,038 sq ft", "950 sq ft"], [4038, 950]),
    "durations": (["1h 30m", "2h", "45m", "1h 1m"], [1.5, 2, 0.75, 61 / 60]),
    "ISO durations": (["PT1H30M", "PT45M"], [1.5, 0.75]),
    "hours": (["5 am", "12 pm", "12 am"], [5, 12, 0]),
    "words beside digits": (["1.2 million", "850,000", "2 million", "90,000"], [1.2e6, 8.5e5, 2e6, 9e4]),
    "singular": (["1 day", "3 days", "12 days"], [1, 3, 12]),
    "German singular": (["1 Jahr", "3 Jahre", "2 Jahre"], [1, 3, 2]),
    "calendar": (["2 years", "6 months", "1 year", "3 years"], [2, 0.5, 1, 3]),
    "latitudes": (["45.5N", "33.9S", "60.2N"], [45.5, -33.9, 60.2]),
    "longitudes": (["2.35° E", "74° W", "10.5° W"], [2.35, -74, -10.5]),
    "tenure": (["< 1 year", "1 year", "10+ years", "5 years"], [1, 1, 10, 5]),
    "meters": (["5 m", "7.5 m", "6", "12 m"], [5, 7.5, 6, 12]),
    "accents": (["3 años", "1 año", "12 años"], [3, 1, 12]),
    "flags of Eurostat": (["1.5", ":", "2.5", "3.5", "4.5 e"], [1.5, np.nan, 2.5, 3.5, 4.5]),
}


@pytest.mark.parametrize("how", [how for how in AMOUNTS if how != "durations"])
def test_amounts(how: str) -> None:
    cells, wanted = AMOUNTS[how]
    column = learned(cells * 5)
    assert isinstance(column, Number), column
    np.testing.assert_allclose(column.parse(pd.Series(cells)).values, wanted)


def test_minutes_alone_are_minutes_and_beside_hours_parts_of_them() -> None:
    cells, wanted = AMOUNTS["durations"]
    both = learned([*cells[:1], *cells[3:]] * 9)
    np.testing.assert_allclose(both.parse(pd.Series([cells[0], cells[3]])).values, [wanted[0], wanted[3]])
    assert learned(["45 min", "90 min", "5 min"] * 9).unit == "min"


def test_an_e_between_digits_is_a_letter(tmp_path: Path) -> None:
    lines = [f"{12 + k % 5}E{k % 3},{k}e+0{k % 3},{k}" for k in range(60)]
    (tmp_path / "t.csv").write_text("room,x,y\n" + "\n".join(lines))
    frame = read_with_target(open_table(tmp_path / "t.csv"), "y").frame
    assert isinstance(infer_column(frame["room"], 50).column, Category)
    assert isinstance(infer_column(frame["x"], 50).column, Number)


@pytest.mark.parametrize(("code", "rest"), [(-999.0, 10.0), (9999.0, 100.0), (-99.0, 30.0)])
def test_nines_far_from_all_others_are_missing(code: float, rest: float) -> None:
    values = np.linspace(0, rest, 60)
    values[[3, 17, 40]] = code
    column = learned(values)
    assert column.flag
    assert column.high == pytest.approx(rest)
    encoded = column.encode(pd.Series([code, 1.0]))[0]
    assert encoded[:, 1].tolist() == [1.0, 0.0]
    few = values.copy()
    few[[17, 40]] = 1.0  # once may be true
    assert not learned(few).flag
    assert not learned(np.append(np.linspace(0, 98, 60), [99, 99])).flag  # within reach of the others


def test_the_exported_program_is_one_file_without_mlayer() -> None:
    from mlayer.tables.columns import amount_cells, date_cells, durations, truth_words
    from mlayer.tables.export import encode_rows as last

    names: list[str] = []
    for part in (truth_words, durations, amount_cells, date_cells, last):
        code = _without_imports_of_mlayer(Path(str(part.__file__)))
        assert "\nimport mlayer" not in code
        assert "\nfrom mlayer" not in code
        for node in ast.parse(code).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
            elif isinstance(node, ast.Assign):
                names += [each.id for each in node.targets if isinstance(each, ast.Name)]
    again = {name for name in names if names.count(name) > 1}
    assert not again, "a name of one part would replace that of another"
    frame = pd.DataFrame({"a": ["$1M", "$2K"], "b": ["1. Mai 2020", "2. Juni 2020"], "c": ["ja", "nein"]})
    schema, _ = learn_schema(frame)
    np.testing.assert_allclose(
        encode_rows(schema.as_json(), frame.to_dict("records")), schema.encode(frame).numbers
    )
