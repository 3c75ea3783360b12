"""The temperature series."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mlayer.datasets import temperatures
from mlayer.errors import FileFormatError, MissingDataError


def write(folder: Path, text: str) -> None:
    (folder / "daily-min-temperatures.csv").write_text(text)


def test_reads_dates_and_numbers(tmp_path: Path) -> None:
    write(tmp_path, '"Date","Temp"\n"1981-01-01",20.7\n1981-01-02,-0.5\n')
    with pytest.raises(FileFormatError, match="the published file, SHA-256"):
        temperatures(tmp_path)
    series = temperatures(tmp_path, verify=False)
    assert series.values.tolist() == [20.7, -0.5]
    assert series.values.dtype == torch.float64
    assert series.dates == ("1981-01-01", "1981-01-02")
    assert (series.unit, len(series)) == ("°C", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "columns Date,Temp; got ''"),
        ("Day,Temp\n", "columns Date,Temp; got 'Day,Temp'"),
        ("Date,Temp\n", "a table with rows; got none"),
        ("Date,Temp\n1981-01-01,?0.2\n", r"a date and a number; got '1981-01-01,\?0.2' in line 2"),
        ("Date,Temp\n1981-13-01,1\n", "got '1981-13-01,1' in line 2"),
        ("Date,Temp\n1981-01-01\n", "got '1981-01-01' in line 2"),
    ],
)
def test_broken(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path, text)
    with pytest.raises(FileFormatError, match=words):
        temperatures(tmp_path, verify=False)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=rf"put it at {tmp_path}/daily-min-temperatures.csv"):
        temperatures(tmp_path)


def test_the_real_series(real_data: Path) -> None:
    if not (real_data / "daily-min-temperatures.csv").exists():
        pytest.skip("$MLAYER_DATA has no daily-min-temperatures.csv")
    series = temperatures(real_data)  # no warning: the tested copy
    assert len(series) == 3650
    assert (series.dates[0], series.dates[-1]) == ("1981-01-01", "1990-12-31")
    assert 11 < series.values.mean() < 11.3
