"""Claim: radii a thousand times the paper's, proved, on the authors' CIFAR-10 model and the real test set.

    python benchmarks/certificates.py DATA               all correctly classified test images; resumable
    python benchmarks/certificates.py DATA --images 200  only so many (a fixed random order)
    python benchmarks/certificates.py DATA --summary     no new images: summarise what the checkpoint holds

DATA holds cifar10_model.npy and cifar-10-batches-bin/. For every image: the paper's radius (Lambert W), our
radius (method "best"), and the radius of the attack, an upper bound of the truth. Each finished image is a
line of the checkpoint; a second start goes on where the first stopped. Writes results/certificates.json;
exit code 1 if a target is missed.

Targets: median of radius / attack's radius >= 0.98; its 5 % quantile >= 0.90; median of radius / paper's
radius >= 1000; no radius above the attack's; <= 0.2 s of processor time an image (two cores: 0.1 s).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, Target, circumstances, save, verdict
from torch import Tensor

from mlayer.certificates import Certifier, attack
from mlayer.files import load_authors_model
from mlayer.nn import MLayer

CHUNK = 20


def images(path: Path, rows: int | None = None) -> tuple[Tensor, Tensor]:
    """A CIFAR-10 batch: images of height x width x channel in [0, 1] as float64, and labels."""
    raw = np.fromfile(path, np.uint8).reshape(-1, 3073)[:rows]
    pixels = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).reshape(-1, 3072)
    return torch.from_numpy(pixels / 255.0), torch.from_numpy(raw[:, 0].astype(np.int64))


def make_certifier(layer: MLayer, data: Path, file: Path) -> Certifier:
    """The certifier with its constants, kept beside the checkpoint."""
    if file.exists():
        return Certifier(layer, constants=file)
    train, _ = images(data / "cifar-10-batches-bin/data_batch_1.bin", 64)
    certifier = Certifier(layer, references=train, fit_steps=500)
    certifier.save(file)
    return certifier


def run(  # noqa: PLR0917
    certifier: Certifier, layer: MLayer, x: Tensor, y: Tensor, todo: list[int], log: Path
) -> None:
    """Certify and attack the images ``todo``; one line each."""
    with log.open("a") as file:
        for begin in range(0, len(todo), CHUNK):
            part = todo[begin : begin + CHUNK]
            upper = attack(layer, x[part], y[part]).radius.tolist()
            paper = certifier(x[part], y[part], method="paper").radius.tolist()
            for k, image in enumerate(part):
                start, wall = time.process_time(), time.perf_counter()
                found = certifier(x[image : image + 1], y[image : image + 1])
                entry = {
                    "image": image,
                    "radius": float(found.radius[0]),
                    "attack": upper[k],
                    "paper": paper[k],
                    "processor_seconds": time.process_time() - start,
                    "seconds": time.perf_counter() - wall,
                }
                file.write(json.dumps(entry) + "\n")
            file.flush()


def summary(lines: list[dict[str, Any]], total: int) -> dict[str, Any]:
    """Quantiles over the images in the checkpoint."""
    column = {name: np.array([line[name] for line in lines]) for name in lines[0]}
    part = column["radius"] / column["attack"]
    gain = column["radius"] / column["paper"]
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)

    def quantiles(values: Any) -> dict[str, float]:
        return {f"{q:g}": float(np.quantile(values, q)) for q in shares}

    return {
        "images": len(lines),
        "correct_images": total,
        "radius": quantiles(column["radius"]),
        "attack": quantiles(column["attack"]),
        "paper": quantiles(column["paper"]),
        "radius_over_attack": quantiles(part),
        "radius_over_paper": quantiles(gain),
        "violations": int((part > 1).sum()),
        "certified_at_2_255": float((column["radius"] >= 2 / 255).mean()),
        "not_broken_at_2_255": float((column["attack"] > 2 / 255).mean()),
        "processor_seconds": quantiles(column["processor_seconds"]),
        "processor_seconds_mean": float(column["processor_seconds"].mean()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--images", type=int, help="how many of the correctly classified images")
    parser.add_argument("--checkpoint", type=Path, default=RESULTS.parent / "build" / "certificates.jsonl")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    layer = load_authors_model(options.data / "cifar10_model.npy", dtype=torch.float64)
    x, y = images(options.data / "cifar-10-batches-bin/test_batch.bin")
    with torch.no_grad():
        correct = np.flatnonzero((layer(x).argmax(1) == y).numpy())
    order = np.random.default_rng(0).permutation(correct)[: options.images].tolist()
    log: Path = options.checkpoint
    log.parent.mkdir(parents=True, exist_ok=True)
    certifier = make_certifier(layer, options.data, log.with_suffix(".npz"))
    if not options.summary:
        done = {json.loads(line)["image"] for line in log.read_text().splitlines()} if log.exists() else set()
        run(certifier, layer, x, y, [image for image in order if image not in done], log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    figures = summary(lines, len(correct))
    constants = certifier.constants
    figures["constants"] = {
        name: getattr(constants, name) for name in ("delta_in", "readout_norm", "delta_F", "delta_2")
    }
    for name, value in figures.items():
        print(name, value)
    targets = [
        Target("median of radius / attack", 0.98, figures["radius_over_attack"]["0.5"]),
        Target("5 % quantile of radius / attack", 0.90, figures["radius_over_attack"]["0.05"]),
        Target("median of radius / paper's radius", 1000, figures["radius_over_paper"]["0.5"]),
        Target("radii above the attack's", 0, figures["violations"], at_most=True),
        Target("processor seconds an image, mean", 0.2, figures["processor_seconds_mean"], at_most=True),
    ]
    figures["targets"] = [str(target) for target in targets]
    command = "python benchmarks/certificates.py DATA"  # without the path of the data here
    save("certificates", {**circumstances(), "command": command, **figures})
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())
