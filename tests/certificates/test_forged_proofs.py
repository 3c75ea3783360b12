"""Damaged and forged proofs: refused, or true all the same."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlayer.certificates.checker import ProofError, margins, parse_proof
from mlayer.certificates.proofs import check_rows
from proof_cases import Case, proved_case

NUMBERS: tuple[Any, ...] = (
    0.0,
    -1.0,
    1e-300,
    5e-324,
    1e308,
    math.nan,
    math.inf,
    None,
    True,
    "1",
    [],
    {},
    2**70,
)


def mutated(value: Any, chooser: random.Random) -> Any:
    """The same object with one place changed: a number, a key, a length, a type."""
    if isinstance(value, dict) and value:
        key = chooser.choice(sorted(value))
        if chooser.random() < 0.05:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: mutated(value[key], chooser)}
    if isinstance(value, list) and value:
        place = chooser.randrange(len(value))
        if chooser.random() < 0.1:
            return value[:place] + value[place + 1 :] if chooser.random() < 0.5 else [*value, value[place]]
        return [*value[:place], mutated(value[place], chooser), *value[place + 1 :]]
    if isinstance(value, float | int) and chooser.random() < 0.7:
        return value * chooser.choice((-1.0, 0.5, 0.99, 1 + 2**-50, 1.01, 2.0, 1e6))
    if isinstance(value, str) and chooser.random() < 0.5:
        return chooser.choice(("linear", "quadratic", "touching", "infinite", "l2", "linf"))
    return chooser.choice(NUMBERS)


def forge(count: int, seed: int) -> tuple[int, int]:
    """Change proofs: whatever is accepted must be true. How many were accepted, and refused."""
    chooser = random.Random(seed)
    accepted = refused = 0
    cases = []
    for kind, number, norm, box in (
        ("full", 7, "linf", None),
        ("jordan", 12, "l2", None),
        ("skew", 1, "linf", (-0.2, 1.3)),
        ("large", 14, "linf", None),
    ):
        case = Case(kind, number, norm, box)
        k = int((case.radius > 0).nonzero()[0])
        _, claims = case.prover.confirmed(case.row(k), float(case.radius[k]), False)
        cases.append((case, k, case.prover.proof((claims,)).as_lists()))
    for _ in range(count):
        case, k, proof = chooser.choice(cases)
        changed = proof
        for _ in range(chooser.choice((1, 1, 1, 2, 5))):
            changed = mutated(changed, chooser)
        rows = [(case.x[k].tolist(), int(case.labels[k]))]
        (verdict,) = check_rows(case.prover.layer, case.prover.region, changed, rows)
        if verdict.accepted:
            accepted += 1
            assert verdict.radius <= float(case.attacked[k])
        else:
            refused += 1
            assert verdict.reason
            assert verdict.radius == 0
    return accepted, refused


def test_forged_proofs_are_refused_or_true() -> None:
    accepted, refused = forge(100, 0)
    assert refused > 30
    assert accepted > 5  # a changed tangent point is a proof still


LIES: tuple[Any, ...] = (0.0, -1.0, 5e-324, 1e-300, 1e-9, 1e9, 1e300, -1e300, 1.7e308, None, "linear")


def lied(value: Any, lie: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The object with each number of it replaced in turn; of long lists the first, and all of them."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("x", "label", "eps", "bits", "scale", "low", "high"):
                yield from (
                    (where, value | {key: changed}) for where, changed in lied(item, lie, (*path, key))
                )
    elif isinstance(value, list) and value and not isinstance(value[0], dict):
        yield (*path, 0), [lie, *value[1:]]
        yield (*path, "all"), [lie] * len(value)
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from (
                (where, [*value[:k], changed, *value[k + 1 :]])
                for where, changed in lied(item, lie, (*path, k))
            )
    else:
        yield path, lie


@pytest.mark.parametrize(
    ("kind", "number", "norm", "box"),
    [("full", 8, "linf", None), ("jordan", 8, "l2", None), ("skew", 14, "linf", (-0.2, 1.3))],
)
def test_no_lie_carries_a_radius_beyond_the_attack(kind: str, number: int, norm: str, box: Any) -> None:
    """Every number of a proof, in turn, as good as it gets; the same with levels put in front."""
    case = Case(kind, number, norm, box)
    k = int(((case.radius > 0) & case.attacked.isfinite()).nonzero()[0])
    _, claims = case.prover.confirmed(case.row(k), float(case.radius[k]) / 2, True)
    assert claims is not None
    proof = case.prover.proof((claims,)).as_lists()
    rows = [(case.x[k].tolist(), int(case.labels[k]))]
    beyond = {"eps": 1.01 * float(case.attacked[k])}
    proof["rows"][0] |= beyond
    longer = copy.deepcopy(proof)
    for rival in longer["rows"][0]["rivals"].values():
        for mu in (1e308, 1e6):
            rival.setdefault("levels", []).insert(0, {"kind": "linear", "mu": mu, "nu": 0.0})
    tried = 0
    for forged in (proof, longer):
        for lie in LIES:
            for where, changed in lied(forged, lie):
                (verdict,) = check_rows(case.prover.layer, case.prover.region, changed, rows)
                assert not verdict.accepted, (where, lie)
                tried += 1
    assert tried > 200


@pytest.mark.fuzz
def test_ten_thousand_forged_proofs() -> None:
    accepted, refused = forge(10_000, 1)
    assert refused > accepted


def damage(data: bytes, chooser: random.Random) -> bytes:
    place = chooser.randrange(len(data))
    kind = chooser.randrange(4)
    if kind == 0:
        return data[:place] + bytes([data[place] ^ (1 << chooser.randrange(8))]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data[:place] + bytes([chooser.randrange(256)]) + data[place:]
    return data[:place] + data[place + chooser.randint(1, 20) :]


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.fuzz)])
def test_damaged_files_are_refused(count: int, norm: str, tmp_path: Path) -> None:
    case, _, claims = proved_case(norm)
    case.prover.proof((claims,)).save(tmp_path / "p")
    data = (tmp_path / "p").read_bytes()
    assert parse_proof(data)["rows"]
    chooser = random.Random(count)
    for _ in range(count):
        with pytest.raises(ProofError):
            parse_proof(damage(data, chooser))
    with pytest.raises(ProofError):
        parse_proof(b"")


def test_a_proof_in_more_parts_than_a_prover_makes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is true, and the time of the checker was in proportion to the size of the file."""
    case, radius, claims = proved_case("linf")
    planes: list[int] = []
    plane = margins.Rival._plane

    def counted(self: margins.Rival, *arguments: Any) -> Any:
        planes.append(1)
        return plane(self, *arguments)

    monkeypatch.setattr(margins.Rival, "_plane", counted)
    monkeypatch.setattr(margins, "_MOST_LEVELS", 40)

    def in_parts(depth: int) -> dict[str, Any]:
        split = copy.deepcopy(claims) | {"eps": radius / 1000}
        for name, rival in split["rivals"].items():
            part = {"levels": rival.pop("levels")}
            for _ in range(depth):
                part = {"split": 0, "at": 0.0, "parts": [part, part]}
            split["rivals"][name] = rival | part
        return split

    assert case.check(0, in_parts(1)).accepted
    planes.clear()
    verdict = case.check(0, in_parts(7))
    assert not verdict.accepted
    assert "too many" in verdict.reason
    assert len(planes) <= 40


def test_a_proof_in_many_precisions_is_refused() -> None:
    """The claims about the layer were proved again for each of 4,000 precisions, and kept."""
    case, _, claims = proved_case("linf")
    proof = case.prover.proof((claims,)).as_lists()
    row = proof["rows"][0]
    proof["rows"] = [row | {"bits": bits} for bits in range(80, 100)]
    rows = [(case.x[0].tolist(), int(case.labels[0]))] * len(proof["rows"])
    verdicts = check_rows(case.prover.layer, case.prover.region, proof, rows)
    assert [verdict.accepted for verdict in verdicts] == [True] * 8 + [False] * 12
    assert "rows of more than 8 precisions" in verdicts[-1].reason
