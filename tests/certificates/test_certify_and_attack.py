"""Certify and attack as a user calls them: results, errors, constants on disk, attack, loss."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import mlayer
from certificate_drafts import draft
from certificate_layers import random_layer
from certificate_truth import changes_class, stored
from mlayer.certificates import CertifiedLoss, Certifier, attack, certify
from mlayer.certificates.problem.expansion import Row
from mlayer.errors import ArgumentError, ArgumentTypeError, FileFormatError, MissingPackageError


@pytest.fixture
def case() -> tuple[mlayer.MLayer, torch.Tensor, torch.Tensor]:
    layer, x, labels = random_layer("full", 4)
    return layer, x, labels


def test_results_do_not_depend_on_the_batch(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    certifier = Certifier(layer, fit_steps=5)
    seen = []
    together = certifier(x, labels, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 5) for k in range(1, 6)]
    for k in range(5):
        alone = certifier(x[k : k + 1], labels[k : k + 1])
        torch.testing.assert_close(alone.radius[0], together.radius[k], rtol=1e-6, atol=0)
    backwards = certifier(x.flip(0), labels.flip(0), workers=2)
    torch.testing.assert_close(backwards.radius.flip(0), together.radius, rtol=1e-6, atol=0)


def _each_by_itself(model, x, labels, method, eps, *, regions):  # type: ignore[no-untyped-def]
    return [Row(model, x[k], label, regions[k]) for k, label in enumerate(labels)]


def test_rows_of_a_chunk_are_those_of_rows_by_themselves(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    certifier = Certifier(layer, fit_steps=5)
    # Below the radius of a row, not at it: whether that is certified there, rounding may decide.
    eps = 0.999 * float(certifier(x, labels).radius[:-1].median())
    front = "mlayer.certificates.api.certifier"
    for question in ({}, {"eps": eps}, {"eps": eps / 2}, {"method": "second_order"}, {"eps": 0.0}):
        together = certifier(x, labels, **question)
        with mock.patch(f"{front}.chunk_size", return_value=2):
            parts = certifier(x, labels, **question)
        with mock.patch(f"{front}.rows_together", _each_by_itself):
            alone = certifier(x, labels, **question)
        for found in (parts, alone):
            torch.testing.assert_close(found.radius, together.radius, rtol=1e-6, atol=0)
            assert torch.equal(found.certified, together.certified)
            assert found.method == together.method


def test_fields(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    found = Certifier(layer, fit_steps=5)(x, labels)
    outputs = layer(x).detach()
    others = outputs.scatter(1, labels[:, None], -torch.inf)
    torch.testing.assert_close(found.margin, outputs.gather(1, labels[:, None])[:, 0] - others.max(1).values)
    assert torch.equal(found.runner_up, others.argmax(1))
    assert found.method[-1] == "misclassified"
    assert found.radius[-1] == 0
    assert not bool(found.rounding_checked.any())
    assert found.certified_accuracy(0.0) == float(found.correct.double().mean())
    assert "4 correct" in str(found)
    nothing = Certifier(layer, fit_steps=0)(x[:0], labels[:0])
    assert len(nothing) == 0
    assert str(nothing) == "Certificates of no rows"


def test_asking_for_eps(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    certifier = Certifier(layer, fit_steps=5)
    radius = certifier(x, labels).radius
    eps = float(radius[:-1].median())
    asked = certifier(x, labels, eps=eps * 0.999)
    assert torch.equal(asked.certified, radius >= eps * 0.999)
    with pytest.raises(ArgumentError, match=r"eps must be at most .*, which was asked for"):
        asked.certified_accuracy(2 * eps)
    with pytest.raises(ArgumentTypeError, match="eps must be a number; got str"):
        asked.certified_accuracy("far")  # type: ignore[arg-type]


def test_float32_layers_are_certified_as_their_exact_function(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    low = (
        mlayer.MLayer.from_weights(
            layer.generators.float(),
            layer.readout.float(),
            embedding=None,
            matrix_bias=layer.matrix_bias.float(),
        )
        if layer.embedding is None
        else None
    )
    low = low or layer.float()
    found = certify(low, x.float(), labels, fit_steps=5)
    same = certify(low.double(), x.float().double(), labels, fit_steps=5)
    assert torch.equal(found.radius, same.radius)


def test_scale_is_the_unit(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    plain = certify(layer, x, labels, fit_steps=0).radius
    twice = certify(layer, x, labels, fit_steps=0, scale=2.0).radius
    torch.testing.assert_close(twice, plain / 2, rtol=1e-3, atol=0)


def test_box_only_helps(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    plain = certify(layer, x, labels, fit_steps=0).radius
    boxed = certify(layer, x, labels, fit_steps=0, box=(0, 1)).radius
    assert bool((boxed >= plain * (1 - 1e-3)).all())


def test_constants_on_disk(case, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    certifier = Certifier(layer, fit_steps=7)
    certifier.save(tmp_path / "c.npz")
    again = Certifier(layer, constants=tmp_path / "c.npz")
    assert torch.equal(again(x, labels).radius, certifier(x, labels).radius)
    with pytest.raises(FileFormatError, match=r"of this layer and region; got constants of other weights"):
        Certifier(layer, norm="l2", constants=tmp_path / "c.npz")
    (tmp_path / "d.npz").write_bytes(b"no")
    with pytest.raises(FileFormatError, match=r"constants that a Certifier saved; got something else"):
        Certifier(layer, constants=tmp_path / "d.npz")
    with np.load(tmp_path / "c.npz") as content:
        np.savez(tmp_path / "e.npz", **{**content, "format": np.array(9)})
    with pytest.raises(FileFormatError, match=r"of format 2; got format 9"):
        Certifier(layer, constants=tmp_path / "e.npz")
    with pytest.raises(FileNotFoundError):
        Certifier(layer, constants=tmp_path / "nothing.npz")


def test_estimators_by_to_mlayer(case) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case

    class Estimator:
        def to_mlayer(self) -> mlayer.MLayer:
            return layer

    assert torch.equal(
        certify(Estimator(), x, labels, fit_steps=0).radius, certify(layer, x, labels, fit_steps=0).radius
    )


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"layer": torch.nn.Linear(2, 2)}, ArgumentTypeError, "layer must be an MLayer or an estimator"),
        ({"layer": mlayer.MLayer(3, 1)}, ArgumentError, "at least 2 outputs; got one with 1 output"),
        ({"x": [[0.0]]}, ArgumentTypeError, "x must be a torch.Tensor; got list"),
        ({"x": torch.zeros(2, 3, dtype=torch.int64)}, ArgumentTypeError, "of a floating point dtype"),
        ({"x": torch.zeros(2, 4)}, ArgumentError, "x must be of shape (rows, 3); got shape (2, 4)"),
        ({"x": torch.zeros(3)}, ArgumentError, "got shape (3,). One row alone: x[None]"),
        ({"x": torch.zeros(2, 3, device="meta")}, ArgumentTypeError, "with data; got a tensor without data"),
        ({"x": torch.zeros(2, 3).to_sparse()}, ArgumentTypeError, "x must be a dense tensor with data"),
        ({"norm": torch.zeros(2)}, ArgumentTypeError, "norm must be one of 'linf', 'l2'; got of type Tensor"),
        ({"x": torch.full((2, 3), torch.nan)}, ArgumentError, "x must be finite; got NaN"),
        ({"x": torch.full((2, 3), 2.0), "box": (0, 1)}, ArgumentError, "x must be inside the box"),
        ({"labels": [0, 1]}, ArgumentTypeError, "labels must be a torch.Tensor; got list"),
        ({"labels": torch.zeros(2)}, ArgumentTypeError, "labels must be of an integer dtype"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, ArgumentError, "labels must be of shape (2,)"),
        ({"labels": torch.tensor([0, 2])}, ArgumentError, "between 0 and 1; got values from 0 to 2"),
        ({"norm": "l1"}, ArgumentError, "norm must be one of 'linf', 'l2'; got 'l1'"),
        ({"scale": -1.0}, ArgumentError, "scale must be non-negative"),
        ({"scale": torch.ones(4)}, ArgumentError, "scale must be a number or a vector of 3"),
        ({"scale": "wide"}, ArgumentTypeError, "scale must be a number or a vector of 3; got str"),
        ({"scale": torch.inf}, ArgumentError, "scale must be finite"),
        ({"box": (1, 0)}, ArgumentError, "box must be a pair with low <= high"),
        ({"box": 3}, ArgumentTypeError, "box must be a pair (low, high); got int"),
        ({"box": (0, 1), "norm": "l2"}, ArgumentError, "box must be None with norm='l2'"),
        ({"eps": -1.0}, ArgumentError, "eps must be finite and not negative"),
        ({"eps": "far"}, ArgumentTypeError, "eps must be a number; got str"),
    ],
)
def test_invalid_arguments(kwargs: dict[str, object], error: type[Exception], words: str) -> None:
    arguments: dict[str, object] = {
        "layer": mlayer.MLayer(3, 2, matrix_size=2, embedding_size=None),
        "x": torch.zeros(2, 3),
        "labels": torch.tensor([0, 1]),
        **kwargs,
    }
    with pytest.raises(error, match=re.escape(words)):
        certify(**arguments, fit_steps=0)  # type: ignore[arg-type]
    with pytest.raises(error, match=re.escape(words)):
        attack(**arguments)  # type: ignore[arg-type]


def test_other_complaints(case, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    layer, x, labels = case
    certifier = Certifier(layer, fit_steps=0)
    with pytest.raises(
        ArgumentError,
        match=r"method must be one of 'paper', .* got 'first-order'. Did you mean 'first_order'",
    ):
        certifier(x, labels, method="first-order")
    with pytest.raises(ArgumentTypeError, match="rigorous must be True or False; got 'no'"):
        certifier(x, labels, rigorous="no")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="constants must be a path; got 3"):
        Certifier(layer, constants=3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"no file nowhere.npz; Certifier\(layer, ...\).save"):
        Certifier(layer, constants="nowhere.npz")
    with pytest.raises(ArgumentError, match="references must be at least one row; got none"):
        Certifier(layer, references=x[:0])
    with pytest.raises(ArgumentError, match="references must be of shape"):
        Certifier(layer, references=x[:, 1:])
    with pytest.raises(ArgumentError, match="workers must be an integer >= 1"):
        certifier(x, labels, workers=0)
    with pytest.raises(ArgumentTypeError, match="progress must be callable"):
        certifier(x, labels, progress=3)  # type: ignore[arg-type]
    for steps in (-1, 10**30):
        with pytest.raises(ArgumentError, match="fit_steps must be an integer from 0 to 100,000; got"):
            Certifier(layer, fit_steps=steps)
    for name, least in (("starts", 1), ("pgd_steps", 0), ("pgd_restarts", 0)):
        for count in (least - 1, 10**6 + 1, 2**63, 10**5000, True, 2.0):
            with pytest.raises(
                ArgumentError, match=f"{name} must be an integer from {least} to 1,000,000; got"
            ):
                attack(layer, x, labels, eps=0.1, **{name: count})  # type: ignore[arg-type]
    loss = CertifiedLoss(x.shape[1], None)
    with pytest.raises(ArgumentError, match="eps must be finite and not negative; got -1"):
        loss(layer, x, labels, eps=-1.0)
    with pytest.raises(ArgumentError, match=r"x must be of shape \(rows, \d+\)"):
        loss(layer, x[:, 1:], labels, eps=0.1)
    with pytest.raises(ArgumentTypeError, match="labels must be of an integer dtype"):
        loss(layer, x, labels.double(), eps=0.1)
    with pytest.raises(ArgumentError, match=r"layer must be of 2 inputs, as the loss is; got one of"):
        CertifiedLoss(2)(layer, x, labels, eps=0.1)
    with pytest.raises(ArgumentTypeError, match="in_features must be a positive integer; got float"):
        CertifiedLoss(2.5)  # type: ignore[arg-type]
    with torch.no_grad():
        layer.readout[0] = torch.nan
    with pytest.raises(
        ArgumentError, match="layer must be of finite weights; got NaN or infinity in readout"
    ):
        certify(layer, x, labels)
    monkeypatch.setitem(__import__("sys").modules, "flint", None)
    with pytest.raises(MissingPackageError, match=r"rigorous=True needs the package python-flint"):
        certifier(x, labels, rigorous=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": [[0.0]]}, "x must be a torch.Tensor"),
        ({"labels": torch.tensor([0])}, "labels must be of shape"),
        ({"method": "bset"}, "method must be one of"),
        ({"eps": -1.0}, "eps must be"),
        ({"box": (5.0, 6.0)}, "x must be inside the box"),
        ({"rigorous": 1}, "rigorous must be True or False"),
        ({"progress": 3}, "progress must be callable"),
        ({"workers": 0}, "workers must be an integer >= 1"),
    ],
)
def test_complaints_come_before_the_constants(case, change, words, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The constants of a layer of the default size take minutes: a wrong label was said after them."""
    monkeypatch.setattr("mlayer.certificates.api.certifier.compute", mock.Mock(side_effect=AssertionError))
    layer, x, labels = case
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        certify(**{"layer": layer, "x": x, "labels": labels, **change})


def _outputs_every_way(layer: mlayer.MLayer, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs as a batch, row by row, and in reverse order: another batch may be summed in another order."""
    with torch.no_grad():
        return [layer(x), torch.cat([layer(row) for row in x.split(1)]), layer(x.flip(0)).flip(0)]


@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("eps", [0.2, None])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_attack_finds_real_examples(norm: str, eps: float | None, precision: torch.dtype) -> None:
    """Within eps, and misclassified by the layer itself, however its rows are grouped."""
    hits = 0
    for kind, seed in [("full", seed) for seed in range(8)] + [("large", 1), ("skew", 2), ("ties", 3)]:
        layer, x, labels = random_layer(kind, seed)
        layer, x = layer.to(precision), x.to(precision)
        found = attack(layer, x, labels, eps=eps, norm=norm)  # type: ignore[arg-type]
        size = (found.adversarial - x).norm(dim=1, p=torch.inf if norm == "linf" else 2)
        within = found.radius if eps is None else torch.full_like(size, eps)
        assert bool((size <= within * (1 + 1e-9))[found.success].all())
        for outputs in _outputs_every_way(layer, found.adversarial.to(precision)):
            own = outputs.gather(1, labels[:, None])[:, 0]
            rival = outputs.gather(1, found.target[:, None])[:, 0]
            assert bool((own < rival)[found.success].all())
        assert bool((found.radius <= (torch.inf if eps is None else eps))[found.success].all())
        assert found.adversarial[~found.success].equal(x.double()[~found.success])
        hits += int(found.success.sum())
    assert hits > 8


def test_a_tie_has_radius_zero_and_is_no_success() -> None:
    """Two classes with the same weights: no input is classified as the other one."""
    layer, x, labels = random_layer("ties", 0)
    with torch.no_grad():
        layer.readout[2:], layer.output_bias[2:] = 0.0, -1e3  # type: ignore[index]
    labels = torch.zeros_like(labels)
    found = attack(layer, x, labels, eps=0.3)
    assert bool((found.radius == 0).all())
    assert not bool(found.success.any())
    assert found.target.equal(labels)


def test_examples_far_from_the_origin_are_examples() -> None:
    """The terms of M cancel there: what float64 sees below zero may be their rounding."""
    for seed in range(6, 12):
        random = np.random.default_rng(seed)
        weights = draft(random, n=2, m=5)
        weights.T, weights.B = np.triu(weights.T, 1), np.triu(weights.B, 1)
        layer, exact = weights.layer(), stored(weights.layer())
        x = torch.from_numpy(random.standard_normal((2, 5)) + 10.0 ** random.uniform(5, 9))
        labels = layer(x).argmax(1)
        found = attack(layer, x, labels, norm="l2", starts=1)
        assert bool(found.success.all())
        for row, label in zip(found.adversarial.tolist(), labels.tolist(), strict=True):
            assert changes_class(exact, row, label)


def test_attack_against_foolbox() -> None:
    """An independent attack breaks no certificate, and does not beat our search by much."""
    foolbox = pytest.importorskip("foolbox")
    for seed in (0, 2, 5):
        layer, x, labels = random_layer("full", seed)
        x, labels, layer = x[:-1].float(), labels[:-1], layer.float()
        box = (-4.0, 4.0)
        model = foolbox.PyTorchModel(layer.eval(), bounds=box, device="cpu")
        certified = certify(layer, x, labels, fit_steps=20).radius
        ours = attack(layer, x, labels).radius
        for eps in (0.01, 0.05, 0.2, 0.5):
            method = foolbox.attacks.LinfPGD(steps=60, random_start=True)
            _, _, success = method(model, x, labels, epsilons=eps)
            assert not bool((success & (certified > eps * (1 + 1e-5))).any())
            assert bool((ours <= eps * 1.05)[success].all())


def test_loss_is_above_the_worst_found() -> None:
    for seed in range(5):
        layer, x, labels = random_layer("full", seed)
        loss = CertifiedLoss(x.shape[1], (0, 1)).double()
        for eps in (1e-4, 0.03):
            bound = loss(layer, x, labels, eps)
            random = torch.Generator().manual_seed(0)
            worst = torch.zeros(len(x), dtype=torch.float64)
            for k in range(60):
                noise = torch.rand(x.shape, generator=random, dtype=torch.float64) * 2 - 1
                point = (x + eps * noise.sign()).clamp(0, 1)
                if k >= 30:  # from a corner, two steps up the loss
                    for _ in range(2):
                        point.requires_grad_(True)
                        value = torch.nn.functional.cross_entropy(layer(point), labels)
                        (g,) = torch.autograd.grad(value, point)
                        point = (x + eps * g.sign()).clamp(0, 1)
                with torch.no_grad():
                    each = torch.nn.functional.cross_entropy(layer(point), labels, reduction="none")
                worst = torch.maximum(worst, each)
            assert float(bound.detach()) >= float(worst.mean())
        clean = torch.nn.functional.cross_entropy(layer(x), labels)
        torch.testing.assert_close(loss(layer, x, labels, 0.0), clean)
        loss(layer, x, labels, 0.01).backward()
        gradients = [p.grad for p in (*layer.own_parameters(), *loss.parameters())]
        assert all(g is not None and bool(g.isfinite().all()) for g in gradients)


def test_inputs_stored_with_their_sign_reversed(case) -> None:  # type: ignore[no-untyped-def]
    """The imaginary part of a conjugate is a view whose numbers are stored negated."""
    layer, x, labels = case
    view = torch.complex(x, -x).conj().imag
    assert view.is_neg()
    radii = [certify(layer, one, labels, method="first_order", fit_steps=0).radius for one in (view, x)]
    assert torch.equal(*radii)
