"""Certified radii of the authors' released CIFAR-10 model: section 3.7, the histogram and the truth.

    mlayer reproduce robustness             all 10,000 test images; ours and the attack on the first 500:
                                            some minutes
    mlayer reproduce robustness --full      our radii of all 5,279 that are classified correctly: 40
                                            minutes on one core
    mlayer reproduce robustness --smoke     seconds, on a small untrained layer; no data needed

Expected (paper): delta_in about 200, ||S||_2 about 3, ||M||_2 between 3 and 4, radii of about 1e-5 on the
correctly classified test images. The model is looked for in the data folder as ``cifar10_model.npy``. Radii
are L-infinity, without a box, as in the paper: for every image paper's <= ours <= true <= attack's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlayer.certificates import Certifier, attack
from mlayer.datasets import cifar10
from mlayer.datasets.load_by_name import AUTHORS_MODEL
from mlayer.datasets.local_files import find
from mlayer.disk import make_folder, replace_bytes
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.running.rows import paper_rows
from mlayer.experiments.shared.pictures import Figure, colors, is_narrow, panels
from mlayer.files.authors import load_authors_model
from mlayer.nn import MLayer
from mlayer.report.numbers import formatted
from mlayer.report.reproduction import Card
from mlayer.report.theme import Theme

TITLE = "Certified radii of the authors' CIFAR-10 model"
IN_PAPER = "Figure 6; sections 3.7 and 4.4"
CAPTION = (
    "The authors' released model (n = 20) on the CIFAR-10 test set. First: certified L-infinity radii by "
    "the paper's bound, as in Figure 6. Second: the same, ours, and the radius at which an attack succeeds. "
    "Third: the share of all images that is certified, or withstands the attack, at each radius."
)
# "delta_in ~ 200, ||S||_2 ~ 3, ||M||_2 typically between 3 and 4", a typical bound of ~ 1e-5.
EXPECTED = {"radius": 1e-5, "delta_in": 200.0, "readout_norm": 3.0, "matrix_norm": [3.0, 4.0]}
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_CHUNK = 50
_REFERENCES = 64
_UNBROKEN = 1e9
_ASKED = {"1_255": 1 / 255, "2_255": 2 / 255, "4_255": 4 / 255}
ROWS = paper_rows(
    "Authors' CIFAR-10 model: ",
    "robustness",
    (
        ("certified radius by the paper's bound, median", "about 1e-5", "paper_median_radius", ".2e", {}),
        ("certified radius by ours, median", "", "our_median_radius", ".2e", {}),
        ("our certified radius / the paper's, median", "", "median_ratio", ".0f", {"at_least": 1000}),
        (
            "our certified radius / the attack's, median",
            "",
            "median_part_of_attack",
            ".3f",
            {"at_least": 0.98},
        ),
    ),
)


@dataclass(frozen=True)
class Config:
    """The images that are certified."""

    seed: int = 0  # of the small layer, if there is one; the rest is not random
    images: int = 10_000  # how many of the first test images get the paper's bound
    ours: int = 500  # how many of the first of these get our bound and the attack
    fit_steps: int = 500  # of the constants of our bound
    released: bool = True  # the authors' model on CIFAR-10; False: a small untrained layer on random inputs


SCALES = {
    "smoke": Config(images=50, ours=20, fit_steps=20, released=False),
    "default": Config(),
    "full": Config(ours=10_000),
}


def needs(config: Config) -> tuple[str, ...]:
    """The authors' released model and the images it was trained for."""
    return ("cifar10", "authors_model") if config.released else ()


def run(config: Config, context: RunContext) -> Results:
    """The constants of the model and the radii of every correctly classified image."""
    layer, x, labels, typical = _released(config, context) if config.released else _small(config)
    return radii(layer, x, labels, typical, ours=config.ours, fit_steps=config.fit_steps, context=context)


def radii(
    layer: MLayer,
    x: Tensor,
    labels: Tensor,
    typical: Tensor,
    *,
    ours: int,
    fit_steps: int,
    context: RunContext,
) -> Results:
    """The paper's radii of all rows; our radii and the attack's of the first ``ours``.

    The layer is in float64. The constants of our bound are fitted to ``typical``, rows of the training set.
    """
    certifier = _certifier(layer, typical, fit_steps, context)
    paper = certifier(x, labels, method="paper")
    with torch.no_grad():
        norms = torch.linalg.matrix_norm(layer.matrix(x), 2)
    correct = paper.radius[paper.correct]
    results: Results = {
        "images": len(x),
        "accuracy": round(100 * float(paper.correct.double().mean()), 4),
        "delta_in": certifier.constants.delta_in,
        "readout_norm": certifier.constants.readout_norm,
        "delta_F": certifier.constants.delta_F,
        "delta_2": certifier.constants.delta_2,
        "matrix_norm": _quantiles(norms),
        "radius": _quantiles(correct),
        "radii": _short(correct),
    }
    count = min(ours, len(x))
    chosen = torch.nonzero(paper.correct[:count])[:, 0]
    proved, attacked = _bracket(certifier, layer, x[chosen], labels[chosen], context)
    return results | {"ours": _compared(count, paper.radius[chosen], proved, attacked)}


def _compared(images: int, paper: Tensor, ours: Tensor, attacked: Tensor) -> dict[str, Any]:
    """Our radii, the paper's and the attack's, of the correct ones among the first ``images``."""
    return {
        "images": images,
        "correct": len(ours),
        "paper_radius": _quantiles(paper),
        "radius": _quantiles(ours),
        "attack_radius": _quantiles(attacked),
        "over_paper": _quantiles(ours / paper),
        "over_attack": _quantiles(ours / attacked),
        "violations": int((ours > attacked).sum()) + int((paper > ours).sum()),
        # In percent of all images, the misclassified ones included.
        "certified": {name: _share(ours >= eps, images) for name, eps in _ASKED.items()},
        "attacked": {name: _share(attacked > eps, images) for name, eps in _ASKED.items()},
        "paper_radii": _short(paper),
        "radii": _short(ours),
        "attack_radii": _short(attacked),
    }


def _bracket(
    certifier: Certifier, layer: MLayer, x: Tensor, labels: Tensor, context: RunContext
) -> tuple[Tensor, Tensor]:
    """Our radius and the attack's of every row; a stopped run resumes after the last whole piece."""
    folder = context.checkpoint("ours")
    kept = None if folder is None else folder / "radii.json"
    pairs: list[list[float]] = json.loads(kept.read_text()) if kept is not None and kept.exists() else []
    for begin in range(len(pairs), len(x), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        ours = certifier(x[part], labels[part]).radius
        attacked = attack(layer, x[part], labels[part]).radius
        # Beyond any use: a number for what nothing breaks, because JSON has no infinity.
        pairs += torch.stack([ours, attacked], 1).clamp(max=_UNBROKEN).tolist()
        if kept is not None:
            make_folder(kept.parent)
            replace_bytes(kept, json.dumps(pairs).encode())
        context.say("certifying and attacking", len(pairs) / len(x))
    table = torch.tensor(pairs, dtype=torch.float64).view(-1, 2)
    return table[:, 0], table[:, 1]


def _certifier(layer: MLayer, typical: Tensor, fit_steps: int, context: RunContext) -> Certifier:
    """The certifier, with the constants of a run that was stopped if there was one."""
    folder = context.checkpoint("ours")
    kept = None if folder is None else folder / "constants.npz"
    if kept is not None and kept.exists():
        return Certifier(layer, constants=kept)
    context.say("fitting the constants of the model")
    certifier = Certifier(layer, references=typical, fit_steps=fit_steps)
    if kept is not None:
        make_folder(kept.parent)
        certifier.save(kept)
    return certifier


def _quantiles(values: Tensor) -> dict[str, float]:
    levels = torch.tensor(_LEVELS, dtype=torch.float64)
    return dict(zip(map(str, _LEVELS), values.quantile(levels).tolist(), strict=True))


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


def _share(chosen: Tensor, images: int) -> float:
    return round(100 * int(chosen.sum()) / images, 4)


def _released(config: Config, context: RunContext) -> tuple[MLayer, Tensor, Tensor, Tensor]:
    path = find(context.data, AUTHORS_MODEL, verify=False)  # the loader of the model verifies it
    data = cifar10(context.data)
    test = data.test.take(slice(0, config.images))
    typical = data.train.images(slice(0, _REFERENCES)).double()
    return load_authors_model(path, dtype=torch.float64), test.images().double(), test.labels, typical


def _small(config: Config) -> tuple[MLayer, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(config.seed)
    layer = MLayer(6, 3, 4, 5, generator=generator, dtype=torch.float64)
    x = torch.rand(config.images, 6, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return layer, x, layer(x).argmax(1), x[:4]


def radius_figures(results: Results) -> dict[str, float]:
    """Median radii, their ratios, and the model's constants."""
    ours = results["ours"]
    return {
        "paper_median_radius": results["radius"]["0.5"],
        "our_median_radius": ours["radius"]["0.5"],
        "median_ratio": ours["over_paper"]["0.5"],
        "median_part_of_attack": ours["over_attack"]["0.5"],
        "violations": float(ours["violations"]),
        "delta_in": results["delta_in"],
        "readout_norm": results["readout_norm"],
        "median_matrix_norm": results["matrix_norm"]["0.5"],
        "accuracy": results["accuracy"],
    }


def headline(results: Results) -> dict[str, float]:
    """The same, and what is certified at 2/255."""
    ours = results["ours"]
    figures = radius_figures(results) | {
        "certified_at_2_255": ours["certified"]["2_255"],
        "attacked_at_2_255": ours["attacked"]["2_255"],
        "images": float(ours["correct"]),
    }
    return {f"robustness.{name}": value for name, value in figures.items()}


def plot(results: Results) -> Figure:
    """The paper's histogram, its radii, ours and the attack's on one axis, and accuracy against radius."""
    ours = results["ours"]
    figure, (first, second, third) = panels(3, 12.6, 3.9 if is_narrow() else 4.6)
    median = results["radius"]["0.5"]
    positive = [radius for radius in results["radii"] if radius > 0]
    bins = np.geomspace(min(positive), max(positive), 41)  # 40 of equal logarithmic width, as in the paper
    first.hist(positive, bins=bins.tolist(), color=colors().paper)
    first.axvline(median, color=colors().ink, lw=1, label=f"median {formatted(median, '.2e')}")
    first.set_xscale("log")
    first.set_xlabel("certified $L_\\infty$ radius, the paper's bound")
    first.set_ylabel("correctly classified images")
    first.set_title(f"Paper's bound: {len(results['radii']):,} of {results['images']:,} images", fontsize=10)
    first.legend(loc="upper left", fontsize=8)
    histograms(second, ours)
    _curves(third, ours)
    return figure


def histograms(axes: Any, ours: dict[str, Any]) -> None:
    """The paper's radii, ours and the attack's on one logarithmic axis."""
    kinds = {"paper": colors().paper, "ours": colors().m_layer, "attack": colors().ink}
    radius_histograms(axes, ours, kinds, edges=70, alpha=0.8)
    axes.set_xlabel("$L_\\infty$ radius")
    axes.set_title(
        f"{ours['correct']:,} images; ours / paper's: {ours['over_paper']['0.5']:,.0f} x", fontsize=10
    )
    axes.legend(fontsize=8, loc="upper left")


def radius_histograms(
    axes: Any, ours: dict[str, Any], colors_of: Mapping[str, str], *, edges: int, alpha: float
) -> None:
    """Histograms of the paper's radii, ours and, unfilled, the attack's; the labels with their colors."""
    kinds = list(zip(colors_of.items(), ("paper_radii", "radii", "attack_radii"), strict=True))
    positive = [value for _, key in kinds for value in ours[key] if 0 < value < np.inf]
    bins = np.geomspace(min(positive), max(positive), edges).tolist()
    for (label, color), key in kinds:
        style = {"histtype": "step"} if key == "attack_radii" else {"histtype": "stepfilled", "alpha": alpha}
        axes.hist(ours[key], bins=bins, color=color, label=label, **style)
    axes.set_xscale("log")


def _curves(axes: Any, ours: dict[str, Any]) -> None:
    """Shares of all images, so that the curves begin at the clean accuracy."""
    start = min(ours["paper_radii"]) / 2
    for key, label, color in (
        ("attack_radii", "withstands the attack", colors().ink),
        ("radii", "certified, ours", colors().m_layer),
        ("paper_radii", "certified, paper", colors().paper),
    ):
        radii = np.sort(np.array(ours[key]))
        left = 100 * np.arange(len(radii), 0, -1) / ours["images"]
        axes.step(
            np.concatenate([[start], radii]),
            np.concatenate([left[:1], left]),
            where="pre",
            color=color,
            label=label,
        )
    axes.axvline(2 / 255, color=colors().soft, lw=0.8, ls=":")
    axes.text(2 / 255, 1, "2/255 ", ha="right", fontsize=8, color=colors().soft)
    axes.set_xscale("log")
    axes.set_ylim(0, None)
    axes.set_xlabel("$L_\\infty$ radius eps")
    axes.set_ylabel("accuracy, %")
    axes.set_title("Accuracy against eps", fontsize=10)
    axes.legend(fontsize=8, loc="lower left")


def card(record: dict[str, Any]) -> Card:
    """Our radii over the paper's, with the histograms of both."""
    ours, figures = record["results"]["ours"], record["headline"]

    def draw(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots()
        kinds = {"paper": theme.second, "certified here": theme.first, "attacked": theme.text}
        radius_histograms(axes, ours, kinds, edges=60, alpha=0.7)
        axes.set(xlabel="radius", ylabel="images")
        axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.18), columnspacing=0.8)

    return Card(
        f"{figures['robustness.median_ratio']:,.0f} x",
        "the paper's certified L-infinity radius, on the authors' own CIFAR-10 model, and "
        f"{formatted(figures['robustness.median_part_of_attack'], '.1%')} of the radius at which an attack "
        f"succeeds: medians of {figures['robustness.images']:,.0f} images.",
        draw,
        "Histograms of radii: the paper's, ours far to the right, the attack's just beyond.",
    )
