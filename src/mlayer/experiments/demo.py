"""The demo, in under a minute: learn a spiral, a wave and the digits; compile a formula.

mlayer demo
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from mlayer.certificates import Certifier, attack
from mlayer.datasets import FIGURE_COSINES, digits, spirals
from mlayer.experiments import periodic, spiral
from mlayer.experiments.running.protocol import Results, RunContext
from mlayer.experiments.shared.dense import parameter_count
from mlayer.nn.layer import MLayer
from mlayer.symbolic import determinant_plan
from mlayer.training import Settings, train


@dataclass(frozen=True)
class Config:
    """The size of each part."""

    seed: int = 0  # of everything
    points: int = 2000  # on the spirals
    epochs: int = 150  # of the M-layer on the spirals
    dnn_epochs: int = 150  # of the dense net it is compared with
    digit_epochs: int = 30  # of the digits
    certified: int = 20  # digits to certify
    fit_steps: int = 100  # of the certificates' constants


SMOKE = Config(points=200, epochs=2, dnn_epochs=2, digit_epochs=2, certified=2, fit_steps=5)


def run(config: Config, context: RunContext) -> Results:
    """All four parts; plain data.

    In one thread: batches this small gain nothing from more, which wait for each other on a busy machine,
    and sums in another order give another spiral at the end.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "spiral": _spiral(config, context),
            "wave": _wave(config, context),
            "determinant": _determinant(context),
            "digits": _digits(config, context),
        }
    finally:
        torch.set_num_threads(threads)


def _spiral(config: Config, context: RunContext) -> dict[str, Any]:
    points = spirals(config.points, seed=config.seed)
    further = spirals(config.points, extra_turn=True, seed=1_000_003 + config.seed)
    sizes = spiral.Config(dnn_epochs=config.dnn_epochs, epochs=config.epochs)
    recipes = spiral.models(sizes, config.seed)
    found: dict[str, Any] = {"points": [[round(v, 2) for v in row] for row in points.x.tolist()]}
    found["labels"] = points.y.tolist()
    for name, title in (("ours", "M-layer"), ("relu", "ReLU net")):
        model, settings = recipes[name]
        if name == "relu":
            settings = replace(settings, batch_size=64, learning_rate=5e-3)
        train(model, (points.x, points.y), settings, progress=context.follow(f"spirals: {title}"))
        found[name] = {
            "title": title,
            "parameters": parameter_count(model),
            "epochs": settings.epochs,
            "training_accuracy": spiral.accuracy(model, points),
            "extra_turn_accuracy": spiral.accuracy(model, further),
            "boundary": spiral.boundary(model, 141),
        }
    return found


def _wave(config: Config, context: RunContext) -> dict[str, Any]:
    context.say("a sum of two cosines, learned on [0, 2]")
    function = FIGURE_COSINES[0]
    model, outcome = periodic.ours(function, config.seed)
    ours = outcome | {"curve": periodic.curve(model)}
    return {"function": function.label, "curve": periodic.curve(function), "ours": ours}


def _determinant(context: RunContext) -> dict[str, Any]:
    context.say("the 3 x 3 determinant, compiled")
    plan = determinant_plan(3)
    layer = plan.build(torch.float64)
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randint(-9, 10, (200, 3, 3), generator=generator)
    a, b, c, d, e, f, g, h, i = matrices.flatten(1).T
    exact = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)  # in integers
    with torch.no_grad():
        outputs = layer(matrices.double().flatten(1))[:, 0]
    return {
        "matrix_size": layer.matrix_size,
        "checked": len(matrices),
        "largest_error": float((outputs - exact).abs().max()),
        "largest_value": float(exact.abs().max()),
        "plan": str(plan),
    }


def _digits(config: Config, context: RunContext) -> dict[str, Any]:
    data = digits()
    x, y = data.train.images(), data.train.labels
    test, labels = data.test.images(), data.test.labels
    generator = torch.Generator().manual_seed(config.seed)
    model = MLayer(64, 10, matrix_size=8, embedding_size=12, init="balanced", generator=generator)
    settings = Settings(
        epochs=config.digit_epochs,
        loss="cross_entropy",
        learning_rate=3e-3,
        activity_penalty=1e-4,
        schedule="cosine",
        seed=config.seed,
    )
    train(model, (x, y), settings, progress=context.follow("digits"))
    with torch.no_grad():
        right = model(test).argmax(1) == labels
    chosen = torch.nonzero(right)[: config.certified, 0]
    context.say("certificates of a few digits")
    certifier = Certifier(model, box=(0.0, 1.0), references=x[:32].double(), fit_steps=config.fit_steps)
    rows, classes = test[chosen].double(), labels[chosen]
    proved = certifier(
        rows, classes, progress=lambda k, n: context.say("certificates of a few digits", k / n)
    )
    paper = certifier(rows, classes, method="paper")
    broken = attack(model, rows, classes, box=(0.0, 1.0))
    return {
        "accuracy": float(right.double().mean()),
        "parameters": parameter_count(model),
        "paper": paper.radius.tolist(),
        "certified": proved.radius.tolist(),
        "attacked": broken.radius.tolist(),
        "images": [[round(v, 2) for v in row] for row in test[chosen].tolist()],
        "labels": classes.tolist(),
    }
