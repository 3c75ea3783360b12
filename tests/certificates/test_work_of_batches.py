"""A fixed eps on many rows: what is computed, counted; what easy rows do not need is not computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mlayer
from mlayer.certificates import Certifier
from mlayer.certificates.api import certifier as api
from mlayer.certificates.bounds import fourth_order, remainder
from mlayer.certificates.bounds.caps import Caps, View
from mlayer.certificates.bounds.of_pair import Bounds
from mlayer.certificates.bounds.quartic_tensor import Quartic
from mlayer.certificates.bounds.second_order import SecondOrder
from mlayer.certificates.bounds.second_order_together import QuickSecondOrder, quadratic_term_apart
from mlayer.certificates.derivatives.spectral import SpectralPath
from mlayer.certificates.linalg import top_eigenvalue
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.problem.model import gradients
from mlayer.certificates.solve import rows_batched, strategy

ROWS, CLASSES = 24, 6


def case() -> tuple[Certifier, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    layer = mlayer.MLayer(
        12, CLASSES, matrix_size=5, embedding_size=4, init="balanced", generator=random
    ).double()
    with torch.no_grad():
        layer.free_generators.mul_(1.5)
    x = torch.rand(ROWS, 12, generator=random, dtype=torch.float64)
    with torch.no_grad():
        labels = layer(x).argmax(1)
    return Certifier(layer, fit_steps=5), x, labels


def test_a_row_that_its_runner_up_breaks_needs_one_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    taken: list[int] = []

    def counted(model: Any, M: Any, W: Any) -> Any:
        taken.append(W.shape[0] * W.shape[1])
        return gradients(model, M, W)

    monkeypatch.setattr(rows_batched, "gradients", counted)
    far = 2 * float(certifier(x, labels).radius.max())
    taken.clear()
    found = certifier(x, labels, eps=far)
    assert not found.certified.any()
    others = sum(taken[1:])
    assert taken[0] == ROWS
    assert others % (CLASSES - 1) == 0
    assert others <= ROWS * (CLASSES - 1) / 4  # nearly all rows are broken by the second largest output


def test_eigenvalues_only_where_the_frobenius_norm_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    eps = 0.5 * float(certifier(x, labels).radius.median())
    forms: list[int] = []
    eigenvalues: list[int] = []
    seconds = SpectralPath.seconds

    def counted_forms(path: SpectralPath, W: Any) -> Any:
        forms.append(len(W))
        return seconds(path, W)

    def counted_eigenvalues(A: Any) -> Any:
        eigenvalues.append(len(A))
        return top_eigenvalue(A)

    monkeypatch.setattr(SpectralPath, "seconds", counted_forms)
    monkeypatch.setattr(rows_batched, "top_eigenvalue", counted_eigenvalues)
    found = certifier(x, labels, eps=eps)
    assert found.certified.sum() > ROWS / 2
    assert sum(forms) >= 4
    assert sum(eigenvalues) <= sum(forms) / 2


def test_linear_and_quadratic_terms_together_only_where_the_terms_apart_are_not_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certifier, x, labels = case()
    eps = 0.8 * float(certifier(x, labels).radius.median())
    apart: list[int] = []
    together: list[int] = []

    def counted_apart(margins: Any, *others: Any) -> Any:
        apart.append(len(margins.classes))
        return quadratic_term_apart(margins, *others)

    def counted_together(margins: Any, *others: Any) -> Any:
        together.append(len(margins.classes))
        return QuickSecondOrder(margins, *others)

    monkeypatch.setattr(rows_batched, "quadratic_term_apart", counted_apart)
    monkeypatch.setattr(rows_batched, "QuickSecondOrder", counted_together)
    found = certifier(x, labels, eps=eps)
    assert bool(found.certified.any())
    assert 0 < sum(together) <= sum(apart) / 2


def test_a_rival_settled_by_the_frobenius_norm_holds_at_random_corners() -> None:
    certifier, x, labels = case()
    radii = certifier(x, labels).radius
    for share in (0.5, 0.9):
        eps = share * float(radii.median())
        certified = certifier(x, labels, eps=eps).certified
        assert bool((certified | (radii < eps)).all())
        signs = np.sign(np.random.default_rng(1).standard_normal((200, 12)))
        with torch.no_grad():
            outputs = certifier.layer(x[certified][:, None] + eps * torch.from_numpy(signs))
        # exact: classes, which the certificate promises
        assert bool((outputs.argmax(-1) == labels[certified][:, None]).all())


def counts_of_fine_remainders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the number of pairs of each fine remainder from now on."""
    fine: list[int] = []
    remainders = remainder._coefficients

    def counted(pairs: Any, *sizes: int) -> Any:
        if sizes == remainder._FINE:
            fine.append(len(pairs))
        return remainders(pairs, *sizes)

    monkeypatch.setattr(remainder, "_coefficients", counted)
    return fine


def test_fine_remainders_only_where_the_coarse_one_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    radii = certifier(x, labels).radius
    fine = counts_of_fine_remainders(monkeypatch)
    settled = 0
    for row in range(ROWS):
        part = slice(row, row + 1)
        fine.clear()
        found = certifier(x[part], labels[part], eps=0.9 * float(radii[row]))
        assert bool(found.certified)
        settled += found.method == ("third_order",) and not fine
    assert settled >= 3  # rows that the third order certifies by the coarse remainder alone


def test_rows_of_a_chunk_do_not_keep_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    kept: list[Row] = []
    computed: list[int] = []
    together, third = rows_batched.rows_together, SpectralPath.third

    def remembered(*arguments: Any, **names: Any) -> list[Row]:
        kept.extend(together(*arguments, **names))
        return kept

    def counted(path: SpectralPath, W: Any) -> Any:
        computed.append(len(W))
        return third(path, W)

    monkeypatch.setattr(api, "rows_together", remembered)
    monkeypatch.setattr(SpectralPath, "third", counted)
    certifier(x[:3], labels[:3])
    assert len(kept) == 3
    assert computed
    assert not any(row.known or "derivatives" in vars(row) for row in kept)


def test_the_quartic_tensor_only_where_the_fourth_order_can_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    built: list[int] = []

    def counted(pair: Any, tolerance: float) -> Any:
        built.append(pair.rival)
        return Quartic(pair, tolerance)

    monkeypatch.setattr(fourth_order, "Quartic", counted)
    radii = certifier(x[:2], labels[:2], method="fourth_order").radius.tolist()
    without, positive = 0, 0
    for k, radius in enumerate(radii):
        row = Row(certifier._model, x[k].numpy(), int(labels[k]))
        for share in (0.5, 0.99, 1.05, 3.0):
            for rival in range(CLASSES):
                if rival == row.label:
                    continue
                bound = Bounds(row.pair(rival)).fourth
                built.clear()
                passes = bound.passes(share * radius)
                without += not built
                assert passes == (bound.lower(share * radius) > 0)
                positive += passes
    assert positive >= 8
    assert without >= 8


def test_caps_begin_where_the_estimate_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    views: list[str] = []
    view = Caps._view

    def counted(caps: Caps, *arguments: Any) -> Any:
        views.append(caps.name)
        return view(caps, *arguments)

    monkeypatch.setattr(Caps, "_view", counted)
    radii = certifier(x, labels).radius.tolist()
    shared = 0
    for k in np.argsort(radii)[-6:].tolist():
        row = Row(certifier._model, x[k].numpy(), int(labels[k]))
        for share in (0.9, 1.0, 1.2):
            eps = share * radii[k]
            caps, fresh = (Bounds(row.pair(row.runner_up)).caps for _ in range(2))
            views.clear()
            expected = caps.levels(eps)
            passes = caps.passes(eps)
            after = len(views)
            assert fresh.passes(eps) == passes
            assert len(views) - after == after  # as many as `passes` alone
            assert fresh.levels(eps) == pytest.approx(expected, rel=1e-9)
            shared += passes and expected > 0
    assert shared >= 2


def test_caps_end_where_an_order_makes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    row = Row(certifier._model, x[0].numpy(), int(labels[0]))
    seen: list[float] = []

    def views(levels: list[float]) -> Any:
        def view(*arguments: Any) -> View:
            *_, low, _, radius = arguments
            seen.append(levels[len(seen)])
            return View(seen[-1], 0 * low, 0.9 * radius, None)

        return view

    for levels, passes in (([1.0, 0.6, 0.0], True), ([1.0, 1.1, 0.0], False), ([1.0, 0.6, 0.7, 0.0], False)):
        seen.clear()
        monkeypatch.setattr(Caps, "_view", views(levels))
        assert Bounds(row.pair(row.runner_up)).caps.passes(0.1) == passes
        assert seen == (levels if passes else levels[:-1])


def test_no_fit_where_the_rest_is_above_the_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    fits: list[float] = []
    terms = SecondOrder.quadratic_terms

    def counted(second: SecondOrder, eps: float) -> float:
        fits.append(eps)
        return terms(second, eps)

    monkeypatch.setattr(SecondOrder, "quadratic_terms", counted)
    found = certifier(x, labels)
    few = len(fits)
    monkeypatch.setattr(strategy, "_may_pass", lambda bounds, name, eps: True)
    fits.clear()
    always = certifier(x, labels)
    torch.testing.assert_close(found.radius, always.radius, rtol=1e-9, atol=0.0)
    assert found.method == always.method
    assert few < len(fits)


def test_a_coarse_remainder_that_is_enough_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    certifier, x, labels = case()
    radii = certifier(x, labels).radius
    fine = counts_of_fine_remainders(monkeypatch)
    decided: dict[bool, list[bool]] = {}
    computed: dict[bool, int] = {}
    for known in (True, False):
        if not known:
            monkeypatch.setattr(SecondOrder, "_coarse_or_inf", lambda second, eps: np.inf)
        fine.clear()
        decided[known] = [
            bool(certifier(x[k : k + 1], labels[k : k + 1], eps=share * float(radii[k])).certified)
            for k in range(ROWS)
            for share in (0.7, 0.8, 0.9)
        ]
        computed[known] = sum(fine)
    assert decided[True] == decided[False]
    assert computed[True] < computed[False]
