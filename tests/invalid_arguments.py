"""The common part of the tests of wrong calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from mlayer.errors import MLayerError

Call = Callable[[], Any]
Cases = list[tuple[Call, str]]  # what is called, and the words that come


def names_of(cases: Cases) -> list[str]:
    """For pytest's report."""
    return [f"{i}: {words}" for i, (_, words) in enumerate(cases)]


def says_what_is_wrong(call: Call, words: str) -> None:
    """One of our errors, with these words and a hint."""
    with pytest.raises(MLayerError, match=re.escape(words)) as caught:
        call()
    assert str(caught.value).rstrip().endswith((".", "?", ")", "]")), "no hint"
