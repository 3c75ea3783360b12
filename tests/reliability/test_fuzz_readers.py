"""Fuzzers for every reader: changed files are refused with our errors, or read; never a raw error or a bomb.

Changes are drawn by Hypothesis. Files under a digest are changed twice over: as damage, which must be
noticed, and as forgery, with a digest that fits. `make fuzz` draws $MLAYER_FUZZ of each, 2,000 if not given.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from figures import note
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import ERRORS, READERS

import mlayer
from hostile import BOMBS, ODDITIES, no_hang, programs
from mlayer.errors import MLayerError

SMOKE, LONG = 12, int(os.environ.get("MLAYER_FUZZ", "2000"))  # of each reader
FIRST = settings(max_examples=SMOKE, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=LONG, suppress_health_check=list(HealthCheck))
_ROOM = 3 * 2**30  # bytes that reading a file of some kilobytes may map beyond what is mapped now

INTERESTING = [
    number.to_bytes(size, order, signed=number < 0)
    for size in (1, 2, 4, 8)
    for order in ("little", "big")
    for number in (0, 1, -1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1, 127)
    if -(2 ** (8 * size - 1)) <= number < 2 ** (8 * size)
]
WORDS = [
    *(
        b"null",
        b"{}",
        b"[]",
        b"-1",
        b"1e999",
        b"NaN",
        b"9" * 40,
        b"9" * 5000,
        b'"',
        b"\\",
        b"\x00",
        b"\xff\xfe",
    ),
    *(b"[" * 3000, b"F64", b"BF16", b"I64", b"float64", b"nilpotent", b"\n", b",", b";", b"=cmd()"),
]
pieces = st.one_of(st.sampled_from(INTERESTING), st.sampled_from(WORDS), st.binary(min_size=1, max_size=9))
# Where (a share of the length; often the head), how many bytes are taken away, what comes in their place.
changes = st.tuples(
    st.one_of(st.floats(0, 1, exclude_max=True), st.floats(0, 0.1)),
    st.sampled_from([0, 1, 1, 2, 4, 8, 64, 10**9]),
    st.one_of(st.just(b""), pieces),
)
mutations = st.lists(changes, min_size=1, max_size=3)


def changed(data: bytes, wanted: list[tuple[float, int, bytes]]) -> bytes:
    """A file with pieces taken away, put in, and put in place of others."""
    for share, gone, piece in wanted:
        at = int(share * len(data))
        data = data[:at] + piece + data[at + (gone or (0 if piece else 1)) :]
    return data


@contextmanager
def bounded() -> Iterator[None]:
    """Work that hangs or takes gigabytes fails."""
    if sys.platform != "linux":
        with no_hang():
            yield
        return
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + _ROOM, before[1]))
    try:
        with no_hang():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@cache
def seeds(reader: str) -> list[tuple[bytes, Any]]:
    """Whole files, and what is in them."""
    from tempfile import TemporaryDirectory

    found = []
    with TemporaryDirectory() as folder:
        for data in READERS[reader].seeds():
            path = Path(folder) / READERS[reader].name
            path.write_bytes(data)
            found.append((data, READERS[reader].read(path)))
    return found


def attempt(reader: str, path: Path, data: bytes) -> tuple[str, Any]:
    """Read a file: "read" and its content, or "refused" and why."""
    path.write_bytes(data)
    try:
        with bounded():
            return "read", READERS[reader].read(path)
    except ERRORS as error:
        words = str(error)
    if "MemoryError" in words or not words.strip():
        pytest.fail(f"memory was asked for, or nothing said: {words!r}")
    return "refused", words


def fuzz(reader: str, folder: Path, how: settings) -> Counter[str]:
    """Damage and forge files; what came of it."""
    counts: Counter[str] = Counter()
    path = folder / READERS[reader].name
    one = READERS[reader]

    @how
    @given(st.sampled_from(range(len(seeds(reader)))), mutations, st.booleans())
    def run(seed: int, wanted: list[tuple[float, int, bytes]], forge: bool) -> None:
        data, content = seeds(reader)[seed]
        new = changed(data, wanted)
        if forge and one.reseal is not None:
            forged = one.reseal(new)
            if forged is not None:
                result, _ = attempt(reader, path, forged)
                counts[f"forged, {result}"] += 1
                return
        result, found = attempt(reader, path, new)
        counts[result] += 1
        assert new == data or not one.sealed or result == "refused" or found == content, "not noticed"

    run()
    return counts


@pytest.mark.parametrize("reader", READERS)
def test_some_changed_files(reader: str, tmp_path: Path) -> None:
    counts = fuzz(reader, tmp_path, FIRST)
    assert counts.total() >= SMOKE // 2, counts


@pytest.mark.fuzz
@pytest.mark.parametrize("reader", READERS)
def test_thousands_of_changed_files(reader: str, tmp_path: Path) -> None:
    counts = fuzz(reader, tmp_path, MANY)
    note(f"fuzz {reader}", tried=counts.total(), **{k.replace(", ", "_"): v for k, v in counts.items()})
    assert counts["refused"] + counts["forged, refused"] > counts.total() // 10, counts


@pytest.mark.parametrize("reader", READERS)
def test_every_truncation_of_the_head_and_nothing_at_all(reader: str, tmp_path: Path) -> None:
    data, content = seeds(reader)[0]
    for length in (0, 1, 7, 8, 9, len(data) // 2, len(data) - 1):
        result, found = attempt(reader, tmp_path / READERS[reader].name, data[:length])
        assert not READERS[reader].sealed or result == "refused" or found == content, length


# ---- Formulas. ----------------------------------------------------------------------------------------

TOKENS = [
    *("x", "y", "z", "1", "2.5", "1e3", "1e-400", "9" * 30, "+", "-", "*", "/", "**", "^", "(", ")", ","),
    *("sin", "cos", "exp", "sqrt", "pi", "E", "&", "|", "~", "not ", " and ", " or ", "True", "=", "==", "<"),
    *("[", "]", "'", '"', "\\", ".", "_", "__", "import", "lambda ", ":", ";", "\n", "\x00", "\u202e", "²"),
]
formulas = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=14).map("".join),
    st.text(max_size=20),
    st.sampled_from(["x*y + 1", "x**2 - y", "sin(x)", "x & ~y", "x | y"]).flatmap(
        lambda text: mutations.map(lambda m: changed(text.encode(), m).decode("utf-8", "replace"))
    ),
    st.sampled_from([*BOMBS, *ODDITIES, *programs("fuzz_canary")]),
)
ROUTES: dict[str, Callable[[str], object]] = {
    "from_polynomial": lambda text: mlayer.from_polynomial([text], "x y"),
    "from_boolean": lambda text: mlayer.from_boolean([text], "x y"),
}


def fuzz_formulas(route: str, how: settings) -> Counter[str]:
    counts: Counter[str] = Counter()

    @how
    @given(formulas)
    def run(text: str) -> None:
        try:
            with bounded():
                ROUTES[route](text)
            counts["read"] += 1
        except MLayerError:
            counts["refused"] += 1

    run()
    return counts


@pytest.mark.parametrize("route", ROUTES)
def test_some_formulas(route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = fuzz_formulas(route, settings(FIRST, max_examples=60))
    assert counts["refused"] > 5, counts
    assert not (tmp_path / "fuzz_canary").exists()


@pytest.mark.fuzz
@pytest.mark.parametrize("route", ROUTES)
def test_thousands_of_formulas(route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = fuzz_formulas(route, MANY)
    note(f"fuzz {route}", tried=counts.total(), **counts)
    assert not (tmp_path / "fuzz_canary").exists()
