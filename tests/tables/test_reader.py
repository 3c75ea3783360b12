"""Tables on the disk: whole, in part, in pieces; larger than the memory; and files that are none."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlayer import memory
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.tables import open_table
from mlayer.tables.reader import source as reader

FRAME = pd.DataFrame(
    {
        "n": [1.5, np.nan, 3.0, 4.0],
        "k": [1, 2, 3, 4],
        "t": ["a", "b", None, "d"],
        "b": [True, False, True, True],
        "d": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]),
    }
)


@pytest.fixture(params=["csv", "tsv", "csv.gz", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"t.{request.param}"
    if request.param == "parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False, sep="\t" if request.param == "tsv" else ",")
    return path


def same(frame: pd.DataFrame, expected: pd.DataFrame) -> None:
    frame = frame.assign(d=pd.to_datetime(frame["d"]).astype("datetime64[ns]"))
    expected = expected.assign(d=expected["d"].astype("datetime64[ns]"))
    pd.testing.assert_frame_equal(
        frame.reset_index(drop=True), expected.reset_index(drop=True), check_dtype=False
    )


def test_read(file: Path) -> None:
    source = open_table(file)
    assert source.columns == tuple(FRAME.columns)
    same(source.read(), FRAME)
    same(source.read(2), FRAME.head(2))
    same(pd.concat(source.pieces(size=3)), FRAME)
    assert [len(piece) for piece in source.pieces(size=3)] == [3, 1]


def test_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1,5;2\n")
    assert (
        open_table(tmp_path / "t.csv").description
        == "t.csv: csv, delimiter semicolon, decimal comma, 2 columns"
    )
    FRAME.to_parquet(tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").description == "t.parquet: parquet, 5 columns"


def test_decimal_commas_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1,5;2\n2,25;3\n")
    assert open_table(tmp_path / "t.csv").read()["a"].tolist() == [1.5, 2.25]


def test_codes_stay_text_where_asked(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("code,b\n007,2\n010,3\n")
    (piece,) = open_table(tmp_path / "t.csv").pieces(("code",))
    assert piece["code"].tolist() == ["007", "010"]
    assert piece["b"].tolist() == [2, 3]


def test_names_are_stripped_and_filled(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(' a , "b c",\n1,2,3\n')
    source = open_table(tmp_path / "t.csv")
    assert source.columns == ("a", "b c", "Unnamed: 2")
    assert list(source.read().columns) == list(source.columns)


def test_an_index_that_pandas_kept_is_no_column(tmp_path: Path) -> None:
    FRAME.iloc[1:].to_parquet(tmp_path / "t.parquet", index=True)
    assert open_table(tmp_path / "t.parquet").columns == tuple(FRAME.columns)
    assert len(open_table(tmp_path / "t.parquet").read()) == 3


# ---- Larger than the memory. ----------------------------------------------------------------------


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """10 GB on paper: a head of rows, then a hole that takes no space on the disk."""
    path = tmp_path / "huge.csv"
    with path.open("w") as file:
        file.write("a,b,y\n" + "".join(f"{k},{k % 7},{k % 2}\n" for k in range(30_000)))
    os.truncate(path, 10_000_000_000)
    return path


def test_ten_gigabytes(huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 8_000_000_000)
    source = open_table(huge)
    with pytest.raises(
        ArgumentError, match=r"smaller than the memory: about .* got 8.0 GB of free memory.*--rows N"
    ):
        source.read()
    assert source.read(1000)["a"].tolist() == list(range(1000))
    assert next(source.pieces(size=500))["b"].tolist() == [k % 7 for k in range(500)]


def test_large_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"a": np.random.default_rng(0).random(10_000)}).to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    with pytest.raises(ArgumentError, match="smaller than the memory"):
        open_table(tmp_path / "t.parquet").read()
    assert len(open_table(tmp_path / "t.parquet").read(10)) == 10
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000_000)
    assert len(open_table(tmp_path / "t.parquet").read()) == 10_000


def test_a_small_gzip_of_much_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of text in far less than 1 MB: the packed size says nothing."""
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b,y\n" + b"1.5,2,yes\n" * 6_000_000, 1))
    assert path.stat().st_size < 1_000_000
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000_000)
    with pytest.raises(ArgumentError, match="smaller than the memory"):
        open_table(path)._check_memory()
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000_000_000)
    open_table(path)._check_memory()


def test_a_parquet_of_repeated_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million equal numbers take a few bytes in the file and 8 MB in memory."""
    pd.DataFrame({"a": np.ones(1_000_000)}).to_parquet(tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    monkeypatch.setattr(memory, "available_memory", lambda: 8_000_000)
    with pytest.raises(ArgumentError, match="smaller than the memory"):
        open_table(tmp_path / "t.parquet").read()


def test_where_the_system_does_not_tell(huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    open_table(huge)._check_memory()


def test_memory_of_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "max").write_text("1000\n")
    (tmp_path / "current").write_text("300\n")
    monkeypatch.setattr(memory, "_CGROUPS", ((str(tmp_path / "max"), str(tmp_path / "current")),))
    assert memory.available_memory() == 700
    (tmp_path / "max").write_text("max\n")
    assert memory._container() is None


# ---- Files that are no tables. --------------------------------------------------------------------


def test_no_file(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n")
    with pytest.raises(FileNotFoundError, match=r"no file .*dta.csv. There are: data.csv"):
        open_table(tmp_path / "dta.csv")
    with pytest.raises(FileNotFoundError, match=r"Check the path"):
        open_table(tmp_path / "nowhere" / "dta.csv")
    with pytest.raises(ArgumentError, match=r"a file; got the folder"):
        open_table(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("t.xlsx", b"PK\x03\x04", r"csv or parquet; got the ending '.xlsx'"),
        ("t.parquet", b"a,b\n1,2\n", r"a parquet file, as its name says; got something else"),
        ("t.parquet", b"PAR1 and no more", r"a complete parquet file; got something else"),
        ("t.csv", b"," * 100_000 + b"\n1\n", r"at most 100,000 columns; got 100,001\. .* transpose it"),
        ("t.csv", b"a,b,a\n1,2,3\n", r"distinct names; got several columns named 'a'"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", r"as many fields in each line as in the header"),
        ("t.csv", b"a,b\n1,2,3\n1,2,3\n", r"as many fields in each line as in the header"),
        ("t.csv", b'a,b\n1,"2\n3,4\n', r"as many fields in each line as in the header"),
        ("t.csv", b"a,b\n1,2\n" + b"3,4\n" * 40_000 + b"\xff\xfe,1\n", r"text in UTF-8; got other bytes"),
    ],
)
def test_unreadable(name: str, data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        open_table(tmp_path / name).read()
    with pytest.raises(FileFormatError, match=words):
        list(open_table(tmp_path / name).pieces())


def test_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match="rows must be an integer of at least 1; got 0"):
        open_table(tmp_path / "t.csv").read(0)


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("price,size\n1,2\n", "pricee", r"got 'pricee'. Did you mean 'price'\?"),
        ("price,size\n1,2\n", "PRICE", r"Did you mean 'price'\?"),
        ("price,size\n1,2\n", "weight", r"The columns are: price, size\."),
        ("price\n1\n", "price", r"got the only column, 'price'. The table has one column; .*--delimiter"),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "species", r"The first line looks like data"),
    ],
)
def test_missing_target(text: str, target: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ArgumentError, match=words):
        open_table(tmp_path / "t.csv").check_target(target)


def test_rows_longer_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed file of some kilobytes, asked for in pieces or for its first rows."""
    line = b"1," + b"z" * 1_000_000 + b"\n"
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,u\n" * 1000 + line * 90))
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(memory, "available_memory", lambda: 400_000_000)
    monkeypatch.setattr(reader, "_SMALL", 5_000_000)
    with pytest.raises(ArgumentError, match="smaller than the memory"):
        list(open_table(path).pieces())
    with pytest.raises(ArgumentError, match="smaller than the memory"):
        open_table(path).read(5000)
    assert len(open_table(path).read(1010)) == 1010
    monkeypatch.setattr(memory, "available_memory", lambda: 8_000_000_000)
    assert sum(map(len, open_table(path).pieces())) == 1090


def test_a_short_table_of_very_many_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.2 MB of text with 200,000 columns and 3 rows took 3.3 GB."""
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"x{k}" for k in range(4000)) + "\n" + ",".join(["1"] * 4000) + "\n")
    monkeypatch.setattr(memory, "available_memory", lambda: 60_000_000)
    for rows in (None, 1):
        with pytest.raises(ArgumentError, match="smaller than the memory"):
            open_table(path).read(rows)
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000_000)
    assert open_table(path).read(1).shape == (1, 4000)


def test_pieces_of_long_rows_have_fewer_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + (b"1," + b"z" * 10_000 + b"\n") * 3_000)
    # The whole table is longer than what may be read at once, each piece is not.
    monkeypatch.setattr(memory, "available_memory", lambda: 160_000_000)
    monkeypatch.setattr(reader, "_SMALL", 5_000_000)
    sizes = [len(piece) for piece in open_table(path).pieces()]
    assert sum(sizes) == 3_000
    assert max(sizes) < 1_000
