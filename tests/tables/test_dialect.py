"""Encoding, delimiter and decimal sign of text tables, found or complained about."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlayer.errors import ArgumentError, FileFormatError
from mlayer.tables import open_table
from mlayer.tables.reader.dialect import DELIMITERS, sniff

WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff", exclude_categories=("C", "Z")), max_size=8
)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["\n", "\r\n", "\n\n", "\n \n"])
def test_line_ends_in_names_are_kept(inside: str, end: str, tmp_path: Path) -> None:
    """Spreadsheets write such names. Python's csv reader finds the same ones in rows that are read later."""
    file = tmp_path / "t.csv"
    text = f'{end}"Price{inside}(EUR)",Price(EUR),c{end}{end}1,2,3{end} {end}4,5,6{end}'
    file.write_text(text, encoding="utf-8", newline="")
    with file.open(encoding="utf-8", newline="") as rows:
        wanted = next(row for row in csv.reader(rows) if row)
    source = open_table(file)
    assert list(source.columns) == wanted
    assert source.read().to_numpy().tolist() == [[1, 2, 3], [4, 5, 6]]


@given(
    delimiter=st.sampled_from(sorted(DELIMITERS)),
    cells=st.lists(st.tuples(WORDS, WORDS, st.integers(-99, 99)), min_size=2, max_size=12),
)
def test_the_delimiter_that_a_writer_used_is_found(
    delimiter: str, cells: list[tuple[str, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The delimiter is found for all contents of cells: the standard library's writer quotes where needed."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["first", "second", "third"])
    writer.writerows(cells)
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    file.write_text(text.getvalue(), encoding="utf-8", newline="")
    found = sniff(file)
    assert found.header == ("first", "second", "third")
    assert found.delimiter == delimiter
    assert found.decimal == "."


@pytest.mark.parametrize(
    ("text", "delimiter", "decimal"),
    [
        ("a;b\n1,5;2\n2,5;3\n", ";", ","),
        ("a;b\n1,5;2\n2.5;3\n", ";", ","),
        ("a;b\n1,5;2\nx,y;3\n", ";", "."),
        ("a;b\n1.5;2\n", ";", "."),
        ("a\tb\n1,5\t2\n", "\t", ","),
        ("a,b\n1,5\n2,5\n", ",", "."),
        ("a|b\n1|2\n", "|", "."),
        ("a\n1\n2\n", ",", "."),
        ("a;b;c\n1,2;3,4;x,y,z\n1,2;3,4;x,y,z\n", ";", ","),
        ('name,note\n"a;b","c;d"\n"e;f","g;h"\n', ",", "."),
    ],
)
def test_by_hand(text: str, delimiter: str, decimal: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    found = sniff(tmp_path / "t.csv")
    assert (found.delimiter, found.decimal) == (delimiter, decimal)


@pytest.mark.parametrize("given", ["comma", ",", "semicolon", "tab", "\\t", "pipe", "space"])
def test_a_delimiter_by_name(given: str, tmp_path: Path) -> None:
    sign = {"comma": ",", ",": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}[
        given
    ]
    (tmp_path / "t.csv").write_text(f"a{sign}b\n1{sign}2\n")
    assert sniff(tmp_path / "t.csv", delimiter=given).header == ("a", "b")


def test_the_wrong_delimiter_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
    words = r"one column, 'a,b,c', with commas inside, when split at semicolons. Pass --delimiter comma"
    with pytest.raises(FileFormatError, match=words):
        sniff(tmp_path / "t.csv", delimiter=";")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delimiter": ";;"}, "delimiter must be one character; got ';;'"),
        ({"delimiter": ""}, "delimiter must be one character"),
        ({"delimiter": "\n"}, "not a quote or a line end"),
        ({"delimiter": '"'}, "not a quote or a line end"),
        ({"delimiter": "\0"}, "not a quote or a line end"),
        ({"delimiter": "\ud800"}, "not a quote or a line end"),
        ({"decimal": "x"}, "decimal must be '.' or ',', and not the delimiter; got 'x'"),
        ({"decimal": ","}, "decimal must be '.' or ',', and not the delimiter; got ','"),
        ({"encoding": "klingon"}, "encoding must be known to Python; got 'klingon'"),
    ],
)
def test_wrong_options(options: dict[str, str], words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match=words):
        sniff(tmp_path / "t.csv", **options)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "a table; got an empty file"),
        (b"\n \n", "a table; got an empty file"),
        (b"a,b\n\x00\x01\x02,3\n", "got binary data"),
        (b"PK\x03\x04rest", "a zip archive or a spreadsheet. Save the sheet as csv"),
        (
            "größe,b\n1,2\n".encode() + "größe\n".encode("latin-1"),  # a damaged file of UTF-8
            "text in utf-8-sig; got other bytes .*--encoding, for example latin-1",
        ),
        (b"a,b\n\xff\x05\x06,3\n", "text in utf-8-sig; got other bytes"),
        (b"a,b\n\x81,3\n", "text in utf-8-sig; got other bytes"),
    ],
)
def test_what_is_no_text_table(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        sniff(tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_need_not_be_named(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("größe,b\n1,2\n".encode(encoding))
    assert sniff(tmp_path / "t.csv").header == ("größe", "b")
    (tmp_path / "t.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    assert sniff(tmp_path / "t.csv", encoding="latin-1").header == ("größe", "b")


def test_a_spreadsheet_of_windows_need_not_be_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("größe;b\r\n1,5 €;2\r\n".encode("cp1252"))
    found = sniff(tmp_path / "t.csv")
    assert (found.header, found.rows) == (("größe", "b"), (("1,5 €", "2"),))
    assert "encoding cp1252" in found.names
    assert open_table(tmp_path / "t.csv").read().iloc[0, 0] == "1,5 €"


def test_a_letter_cut_in_two_at_the_end_of_the_head(tmp_path: Path) -> None:
    for shift in range(4):
        (tmp_path / "t.csv").write_text("a,b\n" + "x" * shift + "é,1\n" * 40_000, encoding="utf-8")
        assert sniff(tmp_path / "t.csv").header == ("a", "b")


def test_gzip(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a;b\n1;2\n"))
    assert sniff(tmp_path / "t.csv.gz").delimiter == ";"
    (tmp_path / "t.csv.gz").write_bytes(b"a;b\n1;2\n")
    with pytest.raises(FileFormatError, match="a complete gzip file; got something else"):
        sniff(tmp_path / "t.csv.gz")


def test_a_table_without_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n")
    assert sniff(tmp_path / "t.csv").header_looks_like_data
    (tmp_path / "t.csv").write_text("a,b,1\n4.9,3.0,setosa\n")
    assert not sniff(tmp_path / "t.csv").header_looks_like_data


@pytest.mark.parametrize("columns", [5_000, 20_000, 100_000])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_long_headers_are_read_whole(columns: int, ending: str, tmp_path: Path) -> None:
    """Beyond 64 kB: columns used to be lost without a word."""
    names = [f"a rather long name {k}" for k in range(columns)]
    text = ";".join(names) + "\n" + (";".join(["1,5"] * columns) + "\n") * 2
    path = tmp_path / f"t.{ending}"
    path.write_bytes(gzip.compress(text.encode(), 1) if ending == "csv.gz" else text.encode())
    dialect = sniff(path)
    assert dialect.header == tuple(names)
    assert (dialect.delimiter, dialect.decimal) == (";", ",")


def test_a_quoted_name_across_the_end_of_what_is_read_first(tmp_path: Path) -> None:
    text = "a,b," + '"' + "note\n" * 20_000 + '",c\n' + "1,2,3,4\n" * 3
    (tmp_path / "t.csv").write_text(text)
    header = sniff(tmp_path / "t.csv").header
    assert len(header) == 4
    assert header[-1] == "c"


@pytest.mark.parametrize("text", ['"' + "ab,\n" * 60_000, "a" * 200_000 + ",b\n1,2\n"])
def test_headers_that_do_not_end(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(FileFormatError, match="a quote that is not closed"):
        sniff(tmp_path / "t.csv")


def test_a_long_cell_below_a_short_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1,5;" + "x" * 300_000 + "\n2,5;y\n")
    dialect = sniff(tmp_path / "t.csv")
    assert (dialect.header, dialect.delimiter) == (("a", "b"), ";")


@pytest.mark.parametrize("encoding", ["idna", "a\0b", "undefined", "rot13", "hex", "no-such", ""])
def test_what_is_no_encoding_of_text_is_refused(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match=r"encoding must be (one of text|known to Python)"):
        open_table(tmp_path / "t.csv", encoding=encoding).read()


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_what_ends_no_line_of_a_table_may_stand_in_names_and_cells(sign: str, tmp_path: Path) -> None:
    rows = "".join(f"{k},u{sign}v\n" for k in range(5))
    (tmp_path / "t.csv").write_text(f"a{sign}b,c\n{rows}", encoding="utf-8", newline="")
    frame = open_table(tmp_path / "t.csv").read()
    assert list(frame.columns) == [f"a{sign}b", "c"]
    assert frame["c"].tolist() == [f"u{sign}v"] * 5
