"""Kilobytes of parquet that unpack to gigabytes: refused before that, or read in small pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlayer import memory
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.tables import open_table
from mlayer.tables.reader import parquet
from parquet_footers import columns_on_one_place, page

LONG = "z" * 2_000_000


def references(text: str, rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


# Built when asked for, not when the tests are collected: half a gigabyte.
BOMBS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "one text in every row": (lambda: references(LONG, 300), {"store_schema": False}),
    "one text in every row, as categories": (lambda: references(LONG, 300), {}),
    "lists": (lambda: pa.array([[1.0] * 20_000] * 500), {}),
    "lists of one text": (lambda: pa.array([["y" * 200_000] * 100] * 10), {}),
    "lists of two texts": (lambda: pa.array([["y" * 100_000, "x"] * 5] * 200), {"row_group_size": 70}),
    "rows": (lambda: references("u", 30_000_000), {"store_schema": False}),
    "fixed lengths": (
        lambda: pa.array([b"z" * 100_000] * 1000, pa.binary(100_000)),
        {"store_schema": False},
    ),
}


def bomb(path: Path, name: str) -> Any:
    """Writes the file; its column."""
    build, options = BOMBS[name]
    column = build()
    table = pa.table({"a": pa.nulls(len(column), pa.int8()), "b": column})
    pq.write_table(table, path, compression="zstd", **options)
    assert path.stat().st_size < 200_000
    return column


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with little memory, whatever this one has."""
    monkeypatch.setattr(memory, "available_memory", lambda: 60_000_000)
    monkeypatch.setattr(parquet, "_LEAST", 1 << 20)


@contextmanager
def counted() -> Iterator[Any]:
    """The memory that Arrow takes meanwhile."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_whole(name: str, tmp_path: Path, small: None) -> None:
    bomb(tmp_path / "t.parquet", name)
    with counted() as pool, pytest.raises(ArgumentError, match="smaller than the memory"):
        open_table(tmp_path / "t.parquet").read()
    assert pool.max_memory() < 60_000_000


@pytest.mark.parametrize("name", ["one text in every row", "lists of two texts"])
def test_a_bomb_is_read_in_pieces_that_fit(name: str, tmp_path: Path, small: None) -> None:
    column, rows = bomb(tmp_path / "t.parquet", name), 0
    with counted() as pool:
        for piece in open_table(tmp_path / "t.parquet").pieces():
            first = column[rows].as_py()
            assert (list(piece["b"].iloc[0]) if isinstance(first, list) else piece["b"].iloc[0]) == first
            rows += len(piece)
            del piece
    assert rows == len(column)
    assert pool.max_memory() < 60_000_000


def test_pieces_of_rows_that_are_too_large_are_refused(tmp_path: Path, small: None) -> None:
    for name in ("lists of one text", "fixed lengths"):
        bomb(tmp_path / "t.parquet", name)
        with counted() as pool, pytest.raises(ArgumentError, match="smaller than the memory"):
            next(open_table(tmp_path / "t.parquet").pieces())
        assert pool.max_memory() < 60_000_000


def test_sizes_are_those_of_the_pages_whatever_the_footer_says(tmp_path: Path, small: None) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"b": ["z" * 40_000_000]}), path, compression="zstd", use_dictionary=False)
    meta = pq.ParquetFile(path).metadata.row_group(0)
    sizes = {meta.total_byte_size, meta.column(0).total_uncompressed_size}
    data = path.read_bytes()
    for size in sizes:  # zigzag, seven bits a byte, as the footer has it; of the same length, but zero
        number = 2 * size
        written = bytes([*(number >> 7 * k & 127 | 128 for k in range(3)), number >> 21])
        at = data.rindex(written)
        data = data[:at] + b"\x80\x80\x80\x00" + data[at + 4 :]
        while (at := data.rfind(written)) > len(data) // 2:
            data = data[:at] + b"\x80\x80\x80\x00" + data[at + 4 :]
    path.write_bytes(data)
    assert pq.ParquetFile(path).metadata.row_group(0).total_byte_size == 0
    with counted() as pool, pytest.raises(ArgumentError, match="smaller than the memory"):
        open_table(path).read()
    assert pool.max_memory() < 60_000_000


def test_every_type_is_read_as_pyarrow_reads_it(tmp_path: Path) -> None:
    """Text is decoded in two steps; the table is the same."""
    rows = 7
    table = pa.table(
        {
            "text": pa.array(["a", None, "bb", "a", "", "ü", "a"]),
            "large": pa.array(["x"] * rows, pa.large_string()),
            "view": pa.array(["x", "y" * 20, None] * 2 + ["z"], pa.string_view()),
            "bytes": pa.array([b"\xff"] * rows),
            "categories": references("u", rows),
            "lists": pa.array([["a", None], None, [], ["b"], ["c"], ["a"], ["d"]]),
            "pairs": pa.array([[("k", "v")]] * rows, pa.map_(pa.string(), pa.string())),
            "struct": pa.array([{"x": "q", "n": 1}] * rows),
            "a.b": pa.array(["dot"] * rows),
            "number": pa.array(range(rows)),
        }
    )
    try:
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    except pa.ArrowNotImplementedError:  # the oldest pyarrow that we allow cannot write views
        table = table.drop_columns(["view"])
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    expected = table.to_pandas(ignore_metadata=True).to_csv()
    assert open_table(tmp_path / "t.parquet").read().to_csv() == expected  # exact: numbers as stored
    # exact: numbers as stored
    assert open_table(tmp_path / "t.parquet").read(5).to_csv() == table.slice(0, 5).to_pandas().to_csv()


def test_a_page_without_sizes_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"b": [1.0, 2.0]}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4] = 0  # the end of the header of the first page
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="a page without its size"):
        open_table(path).read(1)


def test_columns_that_name_the_same_pages_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand columns that each name all of a million pages: the pages are counted once or not at all."""
    path = tmp_path / "t.parquet"
    body = page(1, 4) + np.int32(7).tobytes()
    columns_on_one_place(path, 1, body, 1)
    assert open_table(path).read()["c0"].tolist() == [7]
    columns_on_one_place(path, 1000, body * 50, 50)
    walked: list[Any] = []
    counted_pages = parquet._header

    def walk(*given: Any) -> Any:
        walked.append(given)
        return counted_pages(*given)

    monkeypatch.setattr(parquet, "_header", walk)
    for read in (lambda: open_table(path).read(1), lambda: next(open_table(path).pieces())):
        with pytest.raises(FileFormatError, match=r"columns of \d+ bytes in a file of \d+"):
            read()
    assert not walked


@pytest.mark.parametrize(("levels", "described"), [(4, True), (0, False)])
def test_a_footer_that_contradicts_itself_is_damage(tmp_path: Path, levels: int, described: bool) -> None:
    """Pyarrow ends the process when it is asked for the description of such a column."""
    body = page(2, 16) + bytes(16)
    columns_on_one_place(tmp_path / "t.parquet", 1, body, 2, levels=levels, described=described)
    if levels and int(pa.__version__.partition(".")[0]) < 19:  # knows no histograms, and leaves them out
        assert open_table(tmp_path / "t.parquet").read().shape == (2, 1)
    else:
        with pytest.raises(FileFormatError, match="a complete parquet file"):
            open_table(tmp_path / "t.parquet").read()
    columns_on_one_place(tmp_path / "t.parquet", 1, body, 2, levels=1)
    assert open_table(tmp_path / "t.parquet").read().shape == (2, 1)


def test_wide_rows_are_decoded_few_at_a_time(tmp_path: Path, small: None) -> None:
    """Not decoded as a whole and cut afterward: 13 MB of numbers in a budget of one."""
    draw = np.random.default_rng(0)
    table = pa.table({f"c{k}": draw.normal(size=20_000) for k in range(80)})
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, data_page_size=4096)
    source, rows = open_table(tmp_path / "t.parquet"), 0
    with counted() as pool:
        for piece in source.pieces():
            rows += len(piece)
            del piece
    assert rows == 20_000
    assert pool.max_memory() < 8_000_000


def test_values_that_a_page_names_are_counted_whatever_the_footer_says(tmp_path: Path) -> None:
    """A few bytes of runs stand for any number of values; the footer names one row."""
    columns_on_one_place(tmp_path / "t.parquet", 1, page(10**9, 4) + bytes(4), 1)
    assert parquet.parquet_size(tmp_path / "t.parquet").total > 8 * 10**9
