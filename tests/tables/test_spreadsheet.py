"""Cells that a spreadsheet would run: every way to start one is marked; numbers and plain text stay."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from mlayer.tables.predict import marked_as_text as as_text
from mlayer.tables.predict import without_formulas

SIGNS = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66"]
BEFORE = [
    "",
    " ",
    "\t",
    "\r",
    "\n",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\ufeff",
    "\u2060",
    "\x00",
    "\x1b",
    '"',
    ' "',
]
ENDS = [";", "\t", "|", "\n", "\r\n"]


@pytest.mark.parametrize("sign", SIGNS)
def test_formulas_are_marked(sign: str) -> None:
    for before in BEFORE:
        assert as_text(f"{before}{sign}cmd|' /C calc'!A0").startswith("'"), ascii(before)
    for end in ENDS:
        assert f"{end}'{sign}cmd()" in as_text(f"a{end}{sign}cmd()"), ascii(end)
        assert f"{end}' {sign}cmd()" in as_text(f"a{end} {sign}cmd()"), ascii(end)


@pytest.mark.parametrize(
    "cell",
    [
        *("-1.5", "+1", "-1e-3", "-,5", " -2", "1;-2", "a;b", "a=b", "x-y", "", " ", "'=1", "@"[:0]),
        *(-1.5, 0, None, True, "2020-01-01", "a\nb", "\u221a"),
    ],
)
def test_the_rest_stays(cell: object) -> None:
    assert as_text(cell) == cell


def test_a_file_that_is_split_at_every_sign_holds_no_formula() -> None:
    """LibreOffice splits at commas, semicolons and tabs at once; a byte order mark is dropped."""
    evil = "x;=1+1\t@SUM(1)|+2+2"
    frame = pd.DataFrame({"\ufeff=1+1": [-1.5, 2.0], evil: pd.Categorical([evil, "-3"]), "b": [True, False]})
    text = without_formulas(frame).to_csv(index=False).removeprefix("\ufeff")
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            for part in cell.replace("\t", ";").replace("|", ";").split(";"):
                assert part[:1] not in "=+@" or not part, part
    assert text.splitlines()[1].startswith("-1.5,")
    assert text.splitlines()[2] == "2.0,-3,False"
