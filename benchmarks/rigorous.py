"""Claim: what `rigorous=True` certifies the independent checker accepts, at <= 15 s per row of a real model.

    python benchmarks/rigorous.py DATA                  200 held-out images, 2,000 random layers; resumable
    python benchmarks/rigorous.py DATA --images 20      only 20 images; --layers likewise
    python benchmarks/rigorous.py DATA --summary        no new rows: summarize what the checkpoint holds

DATA holds cifar10_model.npy and cifar-10-batches-bin/. The images are correctly classified test images of the
authors' model that no threshold was tuned on, the layers small ones of four structures, in both norms, with
and without a box, in float32 and float64. Each row is certified twice by the second order, without and with
`rigorous`, and attacked. The proof is saved, read again and given to a new checker, which must accept it at
the same radius. Each finished row is a line of a checkpoint (build/rigorous.jsonl); a second start
continues where the first stopped. Writes results/rigorous.json and the table in docs/certificates.md
(benchmarks/write_tables.py); exit code 1 if a target is missed.

Targets: every proof accepted again; no radius above the attack's; <= 15 s of processor time a row in the mean
on the authors' model.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Target, argument_parser, circumstances, finish
from torch import Tensor

from certificates import images
from mlayer.certificates import Certifier, attack
from mlayer.certificates.checker import read_proof
from mlayer.certificates.proofs import check_proof
from mlayer.files import load_authors_model
from mlayer.nn import BlockDiagonal, MLayer

METHOD = "second_order"
TUNED_ON = 500  # first images of the order of benchmarks/certificates.py: thresholds were tuned on them
STRUCTURES = ("full", "nilpotent", "skew", "blocks")
Line = dict[str, Any]


def row_of(  # noqa: PLR0917
    certifier: Certifier, layer: MLayer, x: Tensor, labels: Tensor, region: dict[str, Any], folder: Path
) -> Line:
    """One row, certified with and without `rigorous`, its proof checked again by a new checker."""
    start = time.process_time()
    plain = certifier(x, labels, method=METHOD)
    middle = time.process_time()
    found = certifier(x, labels, method=METHOD, proof=True)
    spent = time.process_time() - middle
    assert found.proof is not None
    found.proof.save(folder / "proof.safetensors")
    start_check = time.process_time()
    (verdict_,) = check_proof(layer, x, labels, read_proof(folder / "proof.safetensors"), **region)
    checking = time.process_time() - start_check
    radius = float(found.radius[0])
    claimed = radius > 0
    if not float(plain.radius[0]) < np.inf:
        attacked = np.inf
    else:
        attacked = float(attack(layer, x, labels, **region).radius[0])
    return {
        "plain": float(plain.radius[0]),
        "radius": radius,
        "attack": attacked,
        "accepted": bool(verdict_.accepted) and verdict_.radius == radius if claimed else True,
        "claimed": claimed,
        "bytes": (folder / "proof.safetensors").stat().st_size,
        "seconds_plain": middle - start,
        "seconds": spent,
        "seconds_check": checking,
    }


def random_layer(seed: int) -> tuple[MLayer, Tensor, Tensor, dict[str, Any]]:
    """A small layer, one row with its class, and the region."""
    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    kind = STRUCTURES[seed % len(STRUCTURES)]
    n, m, d = integer(2, 6), integer(1, 6), integer(1, 6)
    structure: str | torch.nn.Module = BlockDiagonal([1, n - 1]) if kind == "blocks" else kind
    layer = MLayer(m, integer(2, 4), matrix_size=n, embedding_size=d, structure=structure)
    size = (0.05, 0.3, 0.6, 1.0)[integer(0, 3)]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * size)
    if integer(0, 1):
        layer = layer.double()
    x = torch.rand(1, m, generator=generator, dtype=torch.float64)
    regions: tuple[dict[str, Any], ...] = ({}, {"norm": "l2"}, {"box": (0.0, 1.0)})
    with torch.no_grad():
        labels = layer.double()(x).argmax(1)
    return layer, x, labels, regions[integer(0, 2)]


def image_rows(data: Path, count: int, done: set[str], folder: Path) -> Iterator[Line]:
    """Held-out images of the authors' model."""
    layer = load_authors_model(data / "cifar10_model.npy", dtype=torch.float64)
    x, y = images(data / "cifar-10-batches-bin/test_batch.bin")
    train, _ = images(data / "cifar-10-batches-bin/data_batch_1.bin", 64)
    with torch.no_grad():
        correct = torch.nonzero(layer(x).argmax(1) == y)[:, 0].numpy()
    # The order of certificates.py, from its end.
    order = np.random.default_rng(0).permutation(correct)[TUNED_ON:][::-1]
    chosen = order[:count].tolist()
    todo = [k for k in chosen if f"image {k}" not in done]
    if not todo:
        return
    certifier = Certifier(layer, references=train, fit_steps=500)
    for k in todo:
        line = row_of(certifier, layer, x[k : k + 1], y[k : k + 1], {}, folder)
        yield {"row": f"image {k}", **line}


def layer_rows(count: int, done: set[str], folder: Path) -> Iterator[Line]:
    """Random layers."""
    for seed in range(count):
        if f"layer {seed}" not in done:
            layer, x, labels, region = random_layer(seed)
            line = row_of(Certifier(layer, fit_steps=10, **region), layer, x, labels, region, folder)
            yield {"row": f"layer {seed}", **line}


def read(path: Path) -> list[Line]:
    """The lines of a checkpoint."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def quantiles(values: list[float]) -> dict[str, float]:
    """5 %, median, 95 %."""
    return {str(q): float(np.quantile(values, q)) for q in (0.05, 0.5, 0.95)} if values else {}


def summary(lines: list[Line]) -> Line:
    """The entries of a table about these rows."""
    finite = [line for line in lines if 0 < line["plain"] < np.inf]
    return {
        "rows": len(lines),
        "claimed": sum(line["claimed"] for line in lines),
        "infinite": sum(line["radius"] == np.inf for line in lines),
        "refused": sum(not line["accepted"] for line in lines),
        "above_the_attack": sum(line["radius"] > line["attack"] for line in lines),
        "kept": quantiles([line["radius"] / line["plain"] for line in finite]),
        "seconds": statistics.fmean(line["seconds"] for line in lines),
        "seconds_longest": max(line["seconds"] for line in lines),
        "seconds_plain": statistics.fmean(line["seconds_plain"] for line in lines),
        "seconds_check": statistics.fmean(line["seconds_check"] for line in lines),
        "kilobytes": statistics.fmean(line["bytes"] for line in lines) / 1e3,
    }


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--layers", type=int, default=2000)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--log", type=Path, default=Path("build/rigorous.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    done = {line["row"] for line in read(options.log)}
    if not options.summary:
        with tempfile.TemporaryDirectory() as folder, options.log.open("a") as log:
            for source in (
                layer_rows(options.layers, done, Path(folder)),
                image_rows(options.data, options.images, done, Path(folder)),
            ):
                for line in source:
                    log.write(json.dumps(line) + "\n")
                    log.flush()
                    print(
                        line["row"], f"{line['radius']:.4g} of {line['plain']:.4g}, {line['seconds']:.1f} s"
                    )
    lines = read(options.log)
    parts = {
        name: summary([line for line in lines if line["row"].startswith(name)])
        for name in ("image", "layer")
        if any(line["row"].startswith(name) for line in lines)
    }
    targets = [
        Target(
            "proofs that a new checker refuses", 0, sum(p["refused"] for p in parts.values()), at_most=True
        ),
        Target(
            "radii above the attack's", 0, sum(p["above_the_attack"] for p in parts.values()), at_most=True
        ),
    ]
    if "image" in parts:
        targets.append(Target("seconds per row, authors' model", 15, parts["image"]["seconds"], at_most=True))
    command = f"python benchmarks/rigorous.py DATA --images {options.images} --layers {options.layers}"
    content: dict[str, Any] = {"circumstances": {**circumstances(), "command": command}, "parts": parts}
    return finish("rigorous", content, targets)


if __name__ == "__main__":
    sys.exit(main())
